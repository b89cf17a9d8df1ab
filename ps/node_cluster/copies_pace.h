/* How far a backup that follows is behind its owner's cores, and when a copy that has failed begins again.
 * Pure. */
#ifndef PS_COPIES_PACE_H
#define PS_COPIES_PACE_H

#include <stdint.h>
#include "dataplane/dataplane.h"
#include "ps/move/copy_source.h"

/* ---- lag: nothing is noted for each push; the time is from when the ends of the streams were noted to when
 * they were seen to be applied ---- */

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

/* ---- retries: later after each failure in a row ---- */

#define PS_COPIES_RETRY_US     UINT64_C(1000000)  /* after the first failure; then twice as long each time, */
#define PS_COPIES_RETRY_US_MAX UINT64_C(60000000) /* and no longer than this */
#define PS_COPIES_CALM_US      UINT64_C(60000000) /* what was well for longer has no failures behind it */

struct ps_copies_retry {
    uint32_t failures; /* in a row */
    uint64_t at_us;    /* it does not begin before */
    uint64_t since_us; /* since when it is well; 0: it is not */
};

void ps_copies_retry_failed(struct ps_copies_retry *r, uint64_t now_us);
void ps_copies_retry_well(struct ps_copies_retry *r, uint64_t now_us);

#endif
