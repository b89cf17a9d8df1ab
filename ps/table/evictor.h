/* What a table remembers of its evictions: a cursor over the index, the work that is due, and candidates.
 *
 * AGE, STEPS, NORM: the cursor goes round all buckets once per period (PS_EVICT_ROUNDS_PER_LIMIT rounds per
 * limit), a little at a time. A row that is over its limit goes when the cursor comes by: at most a period
 * later, and one unit of time, or two periods where the index was written anew meanwhile.
 *
 * LRU, LFU: sampled, as in Redis. For each row that has to go the cursor looks at PS_EVICT_SAMPLE_ROWS
 * further rows, and the best PS_EVICT_POOL_ROWS met so far are kept as candidates; the best of these goes,
 * unless it was used meanwhile. Keys are spread by their hash, so what follows the cursor is a random sample,
 * but without repeats.
 */
#ifndef PS_EVICTOR_H
#define PS_EVICTOR_H

#include <stdbool.h>
#include <stdint.h>

#define PS_EVICT_ROUNDS_PER_LIMIT   16u
#define PS_EVICT_SAMPLE_ROWS        10u
#define PS_EVICT_NEAR_ROWS          16u /* looked at where only a row of the same partition makes room */
#define PS_EVICT_SAMPLE_BUCKETS_MAX 64u /* looked at for a sample, at most */
#define PS_EVICT_POOL_ROWS          16u
#define PS_EVICT_PER_INSERT_MAX     3u /* rows that go for a new one, at most */

/* A row as it was when the cursor came by. */
struct ps_evict_candidate {
    uint64_t hash;
    uint32_t seen, uses;
};

struct ps_evictor {
    uint32_t partition, bucket; /* the cursor's next */
    uint16_t version;           /* of that partition, when the cursor was there last */
    bool emits;           /* the eviction under way may take rows that a running cut has still to write */
    uint64_t buckets_due; /* still to be looked at in this time */
    uint32_t pool_count;
    struct ps_evict_candidate pool[PS_EVICT_POOL_ROWS];
};

#endif
