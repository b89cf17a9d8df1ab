#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include "dataplane/waiter.h"

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

/* The sleeper never blocks with an item before it: it looks after its announcement, and whoever posts after that look
 * rings. Naps are bounded, so a lost ring would only be slow; that each item is seen, once and in order, is what counts. */
static void every_item_is_seen_and_none_twice(void **state)
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

static void only_a_sleeper_is_rung(void **state)
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

static void a_queue_without_a_sign_makes_the_naps_short(void **state)
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

static void a_readable_socket_ends_the_nap(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_seen_and_none_twice),
        cmocka_unit_test(only_a_sleeper_is_rung),
        cmocka_unit_test(a_queue_without_a_sign_makes_the_naps_short),
        cmocka_unit_test(a_readable_socket_ends_the_nap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
