/* How far a backup that follows is behind its owner's cores. Nothing is noted for each push: the time is that
 * from when something was the newest to when it was seen to be applied. Pure. */
#ifndef PS_COPIES_LAG_H
#define PS_COPIES_LAG_H

#include <stdint.h>
#include "dataplane/dataplane.h"
#include "ps/move/copy_source.h"

struct ps_copies_lag {
    uint64_t bytes;
    uint64_t us;                /* 0: what was new at a look was applied at the next one */
    uint64_t mark_us;           /* when the ends of the streams were noted; 0: not yet */
    uint32_t looks;             /* since then, at which they were not all applied */
    uint64_t end[DP_CORES_MAX]; /* of the streams, then */
};

/* A look. status: of each core. */
void ps_copies_lag_measure(struct ps_copies_lag *l, const struct ps_copy_status *status, uint32_t core_count,
                           uint64_t now_us);

#endif
