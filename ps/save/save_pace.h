/* How much of a core's time writing out a checkpoint takes. A core without other work gives all of its time;
 * a busy one gives a share of it, so that calls go on at nearly their speed while the checkpoint takes
 * longer. Pure: time and work are the caller's to tell, the first monotonic; one thread.
 *
 * Work is a count of what the core has done for others (packets, slices of long calls). A core is busy for
 * PS_SAVE_PACE_BUSY_US after it has changed. Then steps are taken only when those so far have been worth
 * their time: a step of t us is worth t * 100 / share. A poll that comes late finds what it is late by made
 * up for, PS_SAVE_PACE_LATE_US_MAX of it at most. A step counts as PS_SAVE_PACE_STEP_US_MAX at most, for the
 * scheduler may have taken the processor meanwhile: so whatever happens, a core that goes on polling takes
 * steps at a rate that has a lower bound.
 *
 * What calls do for the checkpoint, handing over rows before they change, counts as steps do: the share is of
 * all that a checkpoint costs. But a part of it, 1 / PS_SAVE_PACE_OWN_PART, is the steps' own, for calls
 * alone would never come by all rows.
 */
#ifndef PS_SAVE_PACE_H
#define PS_SAVE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PS_SAVE_PACE_BUSY_US     200u
#define PS_SAVE_PACE_LATE_US_MAX 1000u
#define PS_SAVE_PACE_STEP_US_MAX 50u
#define PS_SAVE_PACE_OWN_PART    5u

struct ps_save_pace {
    uint32_t busy_share_percent; /* 1..100; 100: all the time, busy or not */
    uint64_t work;               /* as last reported */
    uint64_t busy_until_us;
    uint64_t next_us;     /* no step before, while busy, */
    uint64_t own_next_us; /* but from here on */
    uint64_t owed_ns;     /* of calls' time: not counted yet */
};

static inline uint64_t ps_save_pace_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When what took so long will have been worth its time. */
static inline void ps_save_pace_spend(const struct ps_save_pace *p, uint64_t *next_us, uint64_t took_us,
                                      uint32_t part, uint64_t now_us)
{
    uint64_t earliest_us = now_us > PS_SAVE_PACE_LATE_US_MAX ? now_us - PS_SAVE_PACE_LATE_US_MAX : 0;
    uint64_t worth_us = (took_us * part * 100 + p->busy_share_percent - 1) / p->busy_share_percent;
    *next_us = ps_save_pace_later(*next_us, earliest_us) + worth_us;
}

/* Not busy until work is seen to change. */
static inline struct ps_save_pace ps_save_pace_start(uint32_t busy_share_percent, uint64_t work,
                                                     uint64_t now_us)
{
    return (struct ps_save_pace){
        .busy_share_percent = busy_share_percent, .work = work, .next_us = now_us, .own_next_us = now_us};
}
/* Once a poll, whether or not a step follows. */
static inline void ps_save_pace_look(struct ps_save_pace *p, uint64_t work, uint64_t now_us)
{
    if (work != p->work) {
        p->work = work;
        p->busy_until_us = now_us + PS_SAVE_PACE_BUSY_US;
    }
    if (p->owed_ns >= 1000) {
        ps_save_pace_spend(p, &p->next_us, p->owed_ns / 1000, 1, now_us);
        p->owed_ns %= 1000;
    }
}
static inline bool ps_save_pace_is_busy(const struct ps_save_pace *p, uint64_t now_us)
{
    return p->busy_share_percent < 100 && now_us < p->busy_until_us;
}
/* It is time for a step. */
static inline bool ps_save_pace_may_step(const struct ps_save_pace *p, uint64_t now_us)
{
    return !ps_save_pace_is_busy(p, now_us) || now_us >= p->next_us || now_us >= p->own_next_us;
}
/* One was taken, and took so long. now_us: its poll's, as for the others. */
static inline void ps_save_pace_stepped(struct ps_save_pace *p, uint64_t took_us, uint64_t now_us)
{
    if (!ps_save_pace_is_busy(p, now_us)) {
        /* What was taken of idle time is not owed, and what was left of it is not saved up. */
        p->next_us = p->own_next_us = now_us;
        return;
    }
    uint64_t counted_us = took_us < PS_SAVE_PACE_STEP_US_MAX ? took_us : PS_SAVE_PACE_STEP_US_MAX;
    ps_save_pace_spend(p, &p->next_us, counted_us, 1, now_us);
    ps_save_pace_spend(p, &p->own_next_us, counted_us, PS_SAVE_PACE_OWN_PART, now_us);
}
/* A call has done so much of it. */
static inline void ps_save_pace_called(struct ps_save_pace *p, uint64_t took_ns)
{
    p->owed_ns += took_ns;
}

#endif
