/* A limit on bytes per second: a little may go at once after a pause, and no more than that above the rate.
 * Pure, one thread.
 */
#ifndef PS_BYTE_RATE_H
#define PS_BYTE_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define PS_BYTE_RATE_PAUSE_US 50000u /* a pause counts for so long at most */

struct ps_byte_rate {
    uint64_t bytes_per_s_max; /* 0: no limit */
    uint64_t next_us;         /* when all that was taken will have been worth its time */
};

/* True when these bytes may go now (monotonic time): they are taken. Fewer than 2^44 at a time. */
static inline bool ps_byte_rate_take(struct ps_byte_rate *r, uint64_t bytes, uint64_t now_us)
{
    if (r->bytes_per_s_max == 0)
        return true;
    if (now_us < r->next_us)
        return false;
    uint64_t earliest_us = now_us > PS_BYTE_RATE_PAUSE_US ? now_us - PS_BYTE_RATE_PAUSE_US : 0;
    uint64_t from_us = r->next_us > earliest_us ? r->next_us : earliest_us;
    r->next_us = from_us + bytes * 1000000u / r->bytes_per_s_max;
    return true;
}

#endif
