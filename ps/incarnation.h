/* The number a node raises at every start, by which clients notice that it was restarted. */
#ifndef PS_INCARNATION_H
#define PS_INCARNATION_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_status.h"

/* One more than DIRECTORY/incarnation holds, written there and synced before this returns; the directory is made when its
 * last part is missing. With directory "" the time in seconds. MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_incarnation_next(const char *directory, uint32_t *incarnation, char *error,
                                   size_t error_bytes);

#endif
