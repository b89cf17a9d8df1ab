/* How much of a core's time the writing of a checkpoint takes. A core without other work gives all of its
 * time; a busy one gives a share of it, so that calls keep nearly their speed while the checkpoint takes
 * longer. Pure: the caller passes the time, which is monotonic, and the work; one thread.
 *
 * Work is a count of what the core has done for others (packets, slices of long calls). A core is busy for
 * PS_SAVE_PACE_BUSY_US after the count has changed. While it is busy, a step of t us must be followed by a
 * pause, so that one step starts every t * 100 / share us. A poll that comes late is credited with its delay,
 * at most PS_SAVE_PACE_LATE_US_MAX. A step counts as at most PS_SAVE_PACE_STEP_US_MAX, because the scheduler
 * may have taken the processor meanwhile: so a core that keeps polling takes steps at a rate with a lower
 * bound, whatever happens.
 *
 * The time in which calls hand over rows before they change them counts as well: the share covers all that a
 * checkpoint costs. But 1 / PS_SAVE_PACE_OWN_PART of it is reserved for steps, because calls alone would
 * never reach all rows.
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
    uint64_t next_us;     /* no step before this time while busy, */
    uint64_t own_next_us; /* but always one from this time on */
    uint64_t owed_ns;     /* time of calls that is not counted yet */
};

static inline uint64_t ps_save_pace_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Delays *next_us by the time taken times `part`, divided by the share. */
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
/* Notes the work done; called once a poll, whether or not a step follows. */
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
/* Whether it is time for a step. */
static inline bool ps_save_pace_may_step(const struct ps_save_pace *p, uint64_t now_us)
{
    return !ps_save_pace_is_busy(p, now_us) || now_us >= p->next_us || now_us >= p->own_next_us;
}
/* Notes a step and how long it took. now_us: of its poll, as for the others. */
static inline void ps_save_pace_stepped(struct ps_save_pace *p, uint64_t took_us, uint64_t now_us)
{
    if (!ps_save_pace_is_busy(p, now_us)) {
        /* Idle time that was used is not owed, and idle time that was not used is not saved up. */
        p->next_us = p->own_next_us = now_us;
        return;
    }
    uint64_t counted_us = took_us < PS_SAVE_PACE_STEP_US_MAX ? took_us : PS_SAVE_PACE_STEP_US_MAX;
    ps_save_pace_spend(p, &p->next_us, counted_us, 1, now_us);
    ps_save_pace_spend(p, &p->own_next_us, counted_us, PS_SAVE_PACE_OWN_PART, now_us);
}
/* Notes the time in which a call handed over rows. */
static inline void ps_save_pace_called(struct ps_save_pace *p, uint64_t took_ns)
{
    p->owed_ns += took_ns;
}

#endif
