#include <string.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/loop/waiter.h"
#include "tests/test.h"

#define HANDOVERS 20000u

struct pair {
    struct dp_waiter waiter;
    _Atomic uint32_t posted, taken;
};

static void *post_one_by_one(void *arg)
{
    struct pair *pair = arg;
    for (uint32_t i = 1; i <= HANDOVERS; i++) {
        atomic_store(&pair->posted, i);
        dp_waiter_ring(&pair->waiter);
        while (atomic_load(&pair->taken) < i)
            sched_yield();
    }
    return NULL;
}

/* The sleeper never blocks with an item before it: it looks after its announcement, and whoever posts after
 * that look rings. Naps are bounded, so a lost ring would only be slow; that each item is seen, once and in
 * order, is what counts. */
TEST(every_item_is_seen_and_none_twice)
{
    struct pair pair = {.posted = 0};
    pthread_t thread;
    assert_true(dp_waiter_init(&pair.waiter));
    assert_int_equal(pthread_create(&thread, NULL, post_one_by_one, &pair), 0);
    for (uint32_t next = 1; next <= HANDOVERS;) {
        dp_waiter_announce(&pair.waiter);
        uint32_t posted = atomic_load(&pair.posted);
        assert_true(posted == next || posted == next - 1);
        if (posted == next) {
            dp_waiter_cancel(&pair.waiter);
            atomic_store(&pair.taken, next++);
        } else {
            dp_waiter_sleep(&pair.waiter, UINT64_MAX);
        }
    }
    pthread_join(thread, NULL);
    dp_waiter_destroy(&pair.waiter);
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Where the two share a core, or have little of one, each meeting costs turns of the scheduler: there, fewer
 * must do. */
#define MEETINGS     200000u
#define MEETINGS_MIN 500u
#define MEETINGS_US  5000000u

/* Two that meet at a gate: both have come, and go on at once. */
struct meeting {
    _Alignas(64) struct dp_waiter waiter; /* all in one line of the cache, which makes a write wait longest */
    _Atomic uint32_t at_gate, done, posted;
    _Atomic bool over; /* set before the gate `done` of the last meeting */
};

static void pass_gate(_Atomic uint32_t *gate, uint32_t meeting)
{
    atomic_fetch_add(gate, 1);
    for (uint32_t turns = 0; atomic_load_explicit(gate, memory_order_acquire) < 2 * meeting; turns++)
        if (turns % 4096 == 4095)
            sched_yield();
}

/* Now the one comes first, now the other. */
static void tarry(uint32_t turns)
{
    for (volatile uint32_t left = turns; left > 0;)
        left = left - 1;
}

static bool is_last(uint32_t meeting, uint64_t begun_us)
{
    return meeting == MEETINGS ||
           (meeting >= MEETINGS_MIN && meeting % 64 == 0 && now_us() - begun_us > MEETINGS_US);
}

static void *post_at_each_meeting(void *arg)
{
    struct meeting *m = arg;
    for (uint32_t i = 1; !atomic_load(&m->over); i++) {
        pass_gate(&m->at_gate, i);
        tarry(i % 128 < 64 ? i % 64 : 0);
        atomic_store_explicit(&m->posted, i, memory_order_relaxed);
        dp_waiter_ring(&m->waiter);
        pass_gate(&m->done, i);
    }
    return NULL;
}

/* Who announces itself and finds nothing is rung, whatever the order in which the two came: without the fence
 * between post and look each may miss the other, and the core sleeps its nap out. Naps are bounded, so that
 * nothing else would tell. */
TEST(nobody_sleeps_with_an_item_before_it)
{
    struct meeting m = {.posted = 0};
    pthread_t thread;
    uint32_t missed = 0;
    uint64_t begun_us = now_us();
    assert_true(dp_waiter_init(&m.waiter));
    assert_int_equal(pthread_create(&thread, NULL, post_at_each_meeting, &m), 0);
    for (uint32_t i = 1; !m.over; i++) {
        uint64_t rung = 0;
        pass_gate(&m.at_gate, i);
        tarry(i % 128 < 64 ? 0 : i % 64);
        dp_waiter_announce(&m.waiter);
        bool seen = atomic_load_explicit(&m.posted, memory_order_relaxed) == i;
        if (is_last(i, begun_us))
            atomic_store(&m.over, true);
        pass_gate(&m.done, i);
        bool bell = read(m.waiter.bell, &rung, sizeof(rung)) == sizeof(rung);
        missed += !seen && !bell;
        dp_waiter_cancel(&m.waiter);
    }
    pthread_join(thread, NULL);
    dp_waiter_destroy(&m.waiter);
    assert_int_equal(missed, 0);
}

/* Of many naps that a ring precedes at least one is shorter than the bound: on a machine however busy, all
 * would be as long as it only if none ended by the bell. */
TEST(a_bell_that_was_rung_ends_the_nap)
{
    struct dp_waiter waiter;
    uint64_t shortest_us = UINT64_MAX;
    assert_true(dp_waiter_init(&waiter));
    for (uint32_t i = 0; i < 1000 && shortest_us >= DP_NAP_MAX_US; i++) {
        dp_waiter_announce(&waiter);
        dp_waiter_ring(&waiter);
        uint64_t begun_us = now_us();
        dp_waiter_sleep(&waiter, UINT64_MAX);
        uint64_t us = now_us() - begun_us;
        shortest_us = us < shortest_us ? us : shortest_us;
    }
    assert_true(shortest_us < DP_NAP_MAX_US);
    dp_waiter_destroy(&waiter);
}

TEST(only_a_sleeper_is_rung)
{
    struct dp_waiter waiter;
    uint64_t rung;
    assert_true(dp_waiter_init(&waiter));
    dp_waiter_ring(&waiter);
    assert_int_equal(read(waiter.bell, &rung, sizeof(rung)), -1);
    dp_waiter_announce(&waiter);
    dp_waiter_ring(&waiter);
    dp_waiter_ring(&waiter);
    assert_int_equal(read(waiter.bell, &rung, sizeof(rung)), sizeof(rung));
    assert_int_equal(rung, 1);
    dp_waiter_destroy(&waiter);
}

TEST(a_queue_without_a_sign_makes_the_naps_short)
{
    struct dp_waiter waiter;
    assert_true(dp_waiter_init(&waiter));
    assert_false(waiter.blind);
    for (uint32_t i = 0; i < DP_WAITER_FDS_MAX; i++)
        dp_waiter_watch(&waiter, 0);
    assert_false(waiter.blind);
    dp_waiter_watch(&waiter, 0);
    assert_true(waiter.blind);
    assert_int_equal(waiter.fd_count, DP_WAITER_FDS_MAX);
    dp_waiter_destroy(&waiter);
    assert_true(dp_waiter_init(&waiter));
    dp_waiter_watch(&waiter, -1);
    assert_true(waiter.blind);
    dp_waiter_destroy(&waiter);
}

TEST(a_readable_socket_ends_the_nap)
{
    struct dp_waiter waiter;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(dp_waiter_init(&waiter));
    dp_waiter_watch(&waiter, ends[0]);
    assert_int_equal(write(ends[1], "x", 1), 1);
    dp_waiter_announce(&waiter);
    dp_waiter_sleep(&waiter, UINT64_MAX);
    assert_false(atomic_load(&waiter.asleep));
    dp_waiter_destroy(&waiter);
    close(ends[0]);
    close(ends[1]);
}
