/* When a copy that has failed begins again: later after each failure in a row. Pure. */
#ifndef PS_COPIES_RETRY_H
#define PS_COPIES_RETRY_H

#include <stdint.h>

#define PS_COPIES_RETRY_US     UINT64_C(1000000)  /* after the first failure; then twice as long each time, */
#define PS_COPIES_RETRY_US_MAX UINT64_C(60000000) /* and no longer than this */
#define PS_COPIES_CALM_US      UINT64_C(60000000) /* what was well for longer has no failures behind it */

struct ps_copies_retry {
    uint32_t failures; /* in a row */
    uint64_t at_us;    /* it does not begin before */
    uint64_t since_us; /* since when it is well; 0: it is not */
};

static inline void ps_copies_retry_failed(struct ps_copies_retry *r, uint64_t now_us)
{
    if (r->since_us != 0 && now_us - r->since_us > PS_COPIES_CALM_US)
        r->failures = 0;
    const uint64_t pause_us = PS_COPIES_RETRY_US << (r->failures < 6 ? r->failures : 6);
    r->at_us = now_us + (pause_us < PS_COPIES_RETRY_US_MAX ? pause_us : PS_COPIES_RETRY_US_MAX);
    r->since_us = 0;
    r->failures++;
}

static inline void ps_copies_retry_well(struct ps_copies_retry *r, uint64_t now_us)
{
    if (r->since_us == 0)
        r->since_us = now_us;
}

#endif
