#include "ps/save_pace.h"

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct ps_save_pace ps_save_pace_start(uint32_t busy_share_percent, uint64_t work, uint64_t now_us)
{
    return (struct ps_save_pace){.busy_share_percent = busy_share_percent, .work = work, .next_us = now_us};
}

void ps_save_pace_look(struct ps_save_pace *p, uint64_t work, uint64_t now_us)
{
    if (work != p->work) {
        p->work = work;
        p->busy_until_us = now_us + PS_SAVE_PACE_BUSY_US;
    }
}

void ps_save_pace_stepped(struct ps_save_pace *p, uint64_t took_us, uint64_t now_us)
{
    if (!ps_save_pace_is_busy(p, now_us)) {
        p->next_us =
            now_us; /* what was taken of idle time is not owed, and what was left of it is not saved up */
        return;
    }
    uint64_t counted_us = took_us < PS_SAVE_PACE_STEP_US_MAX ? took_us : PS_SAVE_PACE_STEP_US_MAX;
    uint64_t earliest_us = now_us > PS_SAVE_PACE_LATE_US_MAX ? now_us - PS_SAVE_PACE_LATE_US_MAX : 0;
    uint64_t worth_us = (counted_us * 100 + p->busy_share_percent - 1) / p->busy_share_percent;
    p->next_us = later(p->next_us, earliest_us) + worth_us;
}
