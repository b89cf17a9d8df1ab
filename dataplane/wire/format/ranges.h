/* Ranges of a variable, and pieces of it in calls.
 *
 * A variable is one range, or split into ranges of range_values elements each, of which the last may be
 * shorter. A range lives on the core that owns mr_range_partition(). A piece is {first element, count};
 * calls name what they are about as a u64 tensor of pieces, one after the other, and the values of all
 * pieces follow in one tensor, in the same order. Pure. */
#ifndef MR_RANGES_H
#define MR_RANGES_H

#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

#define MR_PIECE_WORDS 2u /* of u64 */

static inline uint64_t mr_variable_elements(const struct mr_feature *variable)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < variable->rank; d++)
        elements *= variable->dims[d];
    return elements;
}

/* Elements of a range, but for the last; at least one. */
static inline uint64_t mr_range_elements(const struct mr_feature *variable)
{
    const uint64_t all = mr_variable_elements(variable);
    const uint64_t each =
        variable->range_values == 0 || variable->range_values > all ? all : variable->range_values;
    return each == 0 ? 1 : each;
}

static inline uint32_t mr_variable_ranges(const struct mr_feature *variable)
{
    const uint64_t each = mr_range_elements(variable), all = mr_variable_elements(variable);
    const uint64_t ranges = all / each + (all % each != 0);
    return ranges > UINT32_MAX ? UINT32_MAX : (uint32_t)ranges;
}

/* The part of a piece that lies in one range. */
struct mr_run {
    uint32_t range;
    uint64_t at; /* its first element, in the range */
    uint64_t count;
};

/* The first run of a piece that is inside the variable, and not empty. */
static inline struct mr_run mr_run_of(const struct mr_feature *variable, uint64_t first, uint64_t count)
{
    const uint64_t each = mr_range_elements(variable), left = each - first % each;
    return (struct mr_run){(uint32_t)(first / each), first % each, count < left ? count : left};
}

#endif
