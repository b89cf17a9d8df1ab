/* Timers: a hierarchical wheel of three levels of 256 buckets (after Varghese and Lauck, SOSP '87, scheme 7).
 *
 * Arming, disarming and expiry cost a few nanoseconds whatever the number of timers; finding the next one
 * reads twelve words. Times are rounded up to the tick, so that nothing fires early; a timer that is further
 * away than the wheel reaches (nine minutes) is re-armed on the way. One thread. */
#ifndef MR_TIMER_WHEEL_H
#define MR_TIMER_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_TIMER_TICK_BITS 5u /* 32 us */
#define MR_TIMER_TICK_US   (1u << MR_TIMER_TICK_BITS)
#define MR_TIMER_LEVELS    3u
#define MR_TIMER_BUCKETS   256u

struct mr_timer {
    struct mr_timer *next;
    struct mr_timer **link; /* the pointer to this timer; NULL = not armed */
    uint64_t due_tick;
    uint32_t bucket;
    uint32_t kind; /* the owner's business */
};

struct mr_timer_wheel {
    uint64_t tick; /* everything due by then has fired or is in its bucket of level 0 */
    uint32_t armed;
    uint64_t occupied[MR_TIMER_LEVELS][MR_TIMER_BUCKETS / 64];
    struct mr_timer *buckets[MR_TIMER_LEVELS][MR_TIMER_BUCKETS];
};

void mr_timer_wheel_init(struct mr_timer_wheel *wheel);

static inline bool mr_timer_armed(const struct mr_timer *timer)
{
    return timer->link != NULL;
}

/* Arms or moves a timer (zeroed before its first use). A time that has passed fires within a tick. */
void mr_timer_arm(struct mr_timer_wheel *wheel, struct mr_timer *timer, uint64_t now_us, uint64_t at_us);
/* Disarms a timer; harmless when it is not armed. */
void mr_timer_disarm(struct mr_timer_wheel *wheel, struct mr_timer *timer);
/* Removes the next timer that is due and returns it, disarmed; NULL when there is none. A timer that is armed
 * meanwhile for a time after now_us is not returned for the same now_us. */
struct mr_timer *mr_timer_take(struct mr_timer_wheel *wheel, uint64_t now_us);
/* Returns when to call mr_timer_take() again: never later than the first timer, perhaps earlier. UINT64_MAX =
 * nothing is armed. */
uint64_t mr_timer_next_us(const struct mr_timer_wheel *wheel);

#endif
