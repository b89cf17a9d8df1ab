#include "dataplane/wire/base/timer_wheel.h"

#include <assert.h>
#include <string.h>

#define LEVEL_BITS  8u
#define BUCKET_MASK (MR_TIMER_BUCKETS - 1u)

void mr_timer_wheel_init(struct mr_timer_wheel *wheel)
{
    memset(wheel, 0, sizeof(*wheel));
}

/* Put the timer where it belongs as seen from wheel->tick. Of each level only the 255 buckets ahead of the
 * current one are used, so that a bucket never holds two turns; level 0's current bucket holds what is due
 * now. */
static void place(struct mr_timer_wheel *wheel, struct mr_timer *timer)
{
    uint64_t due = timer->due_tick > wheel->tick ? timer->due_tick : wheel->tick;
    uint32_t level = 0;
    uint64_t turn = due;
    while (turn - (wheel->tick >> (level * LEVEL_BITS)) >= MR_TIMER_BUCKETS) {
        if (level == MR_TIMER_LEVELS - 1) {
            turn = (wheel->tick >> (level * LEVEL_BITS)) + BUCKET_MASK;
            break;
        }
        level++;
        turn >>= LEVEL_BITS;
    }
    uint32_t index = (uint32_t)turn & BUCKET_MASK;
    struct mr_timer **head = &wheel->buckets[level][index];
    timer->bucket = level * MR_TIMER_BUCKETS + index;
    timer->next = *head;
    timer->link = head;
    if (*head != NULL)
        (*head)->link = &timer->next;
    *head = timer;
    wheel->occupied[level][index / 64] |= UINT64_C(1) << (index % 64);
}

static void unlink_timer(struct mr_timer_wheel *wheel, struct mr_timer *timer)
{
    *timer->link = timer->next;
    if (timer->next != NULL)
        timer->next->link = timer->link;
    timer->link = NULL;
    uint32_t level = timer->bucket / MR_TIMER_BUCKETS, index = timer->bucket % MR_TIMER_BUCKETS;
    if (wheel->buckets[level][index] == NULL)
        wheel->occupied[level][index / 64] &= ~(UINT64_C(1) << (index % 64));
}

void mr_timer_arm(struct mr_timer_wheel *wheel, struct mr_timer *timer, uint64_t now_us, uint64_t at_us)
{
    if (mr_timer_armed(timer))
        mr_timer_disarm(wheel, timer);
    uint64_t now_tick = now_us >> MR_TIMER_TICK_BITS;
    if (wheel->armed == 0 && now_tick > wheel->tick)
        wheel->tick = now_tick;
    uint64_t due = (at_us >> MR_TIMER_TICK_BITS) + ((at_us & (MR_TIMER_TICK_US - 1)) != 0);
    timer->due_tick = due > wheel->tick ? due : wheel->tick + 1;
    wheel->armed++;
    place(wheel, timer);
}

void mr_timer_disarm(struct mr_timer_wheel *wheel, struct mr_timer *timer)
{
    if (!mr_timer_armed(timer))
        return;
    unlink_timer(wheel, timer);
    assert(wheel->armed > 0);
    wheel->armed--;
}

/* Buckets from `index` (exclusive) on to the next occupied one, around; 0 = none. */
static uint32_t distance(const uint64_t *occupied, uint32_t index)
{
    uint32_t start = (index + 1) & BUCKET_MASK;
    for (uint32_t step = 0; step <= MR_TIMER_BUCKETS / 64; step++) {
        uint32_t word = (start / 64 + step) % (MR_TIMER_BUCKETS / 64);
        uint64_t bits = occupied[word];
        if (step == 0)
            bits &= ~UINT64_C(0) << (start % 64);
        if (bits != 0) {
            uint32_t found = word * 64 + (uint32_t)__builtin_ctzll(bits);
            return ((found - start) & BUCKET_MASK) + 1;
        }
    }
    return 0;
}

/* The next tick at which a bucket is due, or has to be spread over the level below. UINT64_MAX = none. */
static uint64_t next_tick(const struct mr_timer_wheel *wheel)
{
    uint32_t current = (uint32_t)wheel->tick & BUCKET_MASK;
    if (wheel->buckets[0][current] != NULL)
        return wheel->tick;
    uint64_t best = UINT64_MAX;
    for (uint32_t level = 0; level < MR_TIMER_LEVELS; level++) {
        uint64_t turn = wheel->tick >> (level * LEVEL_BITS);
        uint32_t d = distance(wheel->occupied[level], (uint32_t)turn & BUCKET_MASK);
        if (d == 0)
            continue;
        uint64_t at = (turn + d) << (level * LEVEL_BITS);
        best = at < best ? at : best;
    }
    return best;
}

static void spread(struct mr_timer_wheel *wheel, uint32_t level)
{
    uint32_t index = (uint32_t)(wheel->tick >> (level * LEVEL_BITS)) & BUCKET_MASK;
    struct mr_timer *timer;
    while ((timer = wheel->buckets[level][index]) != NULL) {
        unlink_timer(wheel, timer);
        place(wheel, timer);
    }
}

struct mr_timer *mr_timer_take(struct mr_timer_wheel *wheel, uint64_t now_us)
{
    if (wheel->armed == 0)
        return NULL;
    uint64_t now_tick = now_us >> MR_TIMER_TICK_BITS;
    /* Most turns of a busy loop fall into a tick that has been looked at. */
    if (now_tick <= wheel->tick && wheel->buckets[0][(uint32_t)wheel->tick & BUCKET_MASK] == NULL)
        return NULL;
    for (;;) {
        uint64_t at = next_tick(wheel);
        if (at > now_tick) {
            if (now_tick > wheel->tick)
                wheel->tick = now_tick;
            return NULL;
        }
        if (at > wheel->tick) {
            wheel->tick = at;
            for (uint32_t level = MR_TIMER_LEVELS - 1; level > 0; level--)
                if ((at & ((UINT64_C(1) << (level * LEVEL_BITS)) - 1)) == 0)
                    spread(wheel, level);
        }
        struct mr_timer *timer = wheel->buckets[0][(uint32_t)wheel->tick & BUCKET_MASK];
        if (timer != NULL) {
            mr_timer_disarm(wheel, timer);
            return timer;
        }
    }
}

uint64_t mr_timer_next_us(const struct mr_timer_wheel *wheel)
{
    if (wheel->armed == 0)
        return UINT64_MAX;
    return next_tick(wheel) << MR_TIMER_TICK_BITS;
}
