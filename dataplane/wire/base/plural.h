/* The ending of a noun after its count, in a line for people: snprintf(..., "%u key%s", count,
 * mr_plural(count)). */
#ifndef MR_PLURAL_H
#define MR_PLURAL_H

#include <stdint.h>

static inline const char *mr_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
