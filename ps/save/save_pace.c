#include "ps/save/save_pace.h"

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When what took so long will have been worth its time. */
static void spend(const struct ps_save_pace *p, uint64_t *next_us, uint64_t took_us, uint32_t part,
                  uint64_t now_us)
{
    uint64_t earliest_us = now_us > PS_SAVE_PACE_LATE_US_MAX ? now_us - PS_SAVE_PACE_LATE_US_MAX : 0;
    uint64_t worth_us = (took_us * part * 100 + p->busy_share_percent - 1) / p->busy_share_percent;
    *next_us = later(*next_us, earliest_us) + worth_us;
}

struct ps_save_pace ps_save_pace_start(uint32_t busy_share_percent, uint64_t work, uint64_t now_us)
{
    return (struct ps_save_pace){
        .busy_share_percent = busy_share_percent, .work = work, .next_us = now_us, .own_next_us = now_us};
}

void ps_save_pace_look(struct ps_save_pace *p, uint64_t work, uint64_t now_us)
{
    if (work != p->work) {
        p->work = work;
        p->busy_until_us = now_us + PS_SAVE_PACE_BUSY_US;
    }
    if (p->owed_ns >= 1000) {
        spend(p, &p->next_us, p->owed_ns / 1000, 1, now_us);
        p->owed_ns %= 1000;
    }
}

void ps_save_pace_stepped(struct ps_save_pace *p, uint64_t took_us, uint64_t now_us)
{
    if (!ps_save_pace_is_busy(p, now_us)) {
        /* What was taken of idle time is not owed, and what was left of it is not saved up. */
        p->next_us = p->own_next_us = now_us;
        return;
    }
    uint64_t counted_us = took_us < PS_SAVE_PACE_STEP_US_MAX ? took_us : PS_SAVE_PACE_STEP_US_MAX;
    spend(p, &p->next_us, counted_us, 1, now_us);
    spend(p, &p->own_next_us, counted_us, PS_SAVE_PACE_OWN_PART, now_us);
}
