/* When the answer to a call is due, by how long the last calls of its kind took: a driver that sleeps then
 * would wake up later than the answer arrives. Whoever spins takes the processor from others, so this ends
 * for a while when somebody else is found to want it. Pure. */
#ifndef MRC_ANSWER_TIME_H
#define MRC_ANSWER_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"

#define MRC_ANSWER_SIZES 32u /* of requests, by the logarithm of their length */
/* An answer that takes longer is not waited for in this way: the time to wake up is a small part of it. */
#define MRC_ANSWER_US_MAX 10000u
/* How long a driver that yields the processor may be away when nobody else wants it. */
#define MRC_ANSWER_YIELD_US_MAX 30u

struct mrc_answer_times {
    /* moving averages, in microseconds; 0: none is known, or calls take so little time that they are not
     * noted */
    uint32_t took_us[MR_OP_COUNT][MRC_ANSWER_SIZES];
    uint64_t crowded_until_us; /* others want the processor: no spinning until then */
    uint32_t crowded_us;       /* how long that lasts the next time; 0: as long as the first time */
};

/* The time around the end of a call in which the driver spins; until_us 0: it does not. */
struct mrc_answer_watch {
    uint64_t from_us, until_us;
};

/* Notes that a call with a request of this length was answered after `took_us`. */
void mrc_answer_note(struct mrc_answer_times *t, uint32_t op, uint32_t request_bytes, uint64_t took_us);
/* Returns when to spin for the answer of a call that was sent at `sent_us`. */
struct mrc_answer_watch mrc_answer_watch(const struct mrc_answer_times *t, uint32_t op,
                                         uint32_t request_bytes, uint64_t sent_us);
/* Returns whether somebody else wants the processor, as far as is known. */
static inline bool mrc_answer_crowded(const struct mrc_answer_times *t, uint64_t now_us)
{
    return now_us < t->crowded_until_us;
}
/* Notes that the driver yielded the processor to others while it spun, and was away for `away_us` at most at
 * a time. */
void mrc_answer_yielded(struct mrc_answer_times *t, uint64_t now_us, uint64_t away_us);

#endif
