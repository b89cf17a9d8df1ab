#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/timer_wheel.h"
#include "tests/test.h"

#define TICK MR_TIMER_TICK_US

static struct mr_timer_wheel wheel;

static int setup(void **state)
{
    mr_timer_wheel_init(&wheel);
    return 0;
}

TEST(empty_wheel_has_nothing, setup)
{
    assert_null(mr_timer_take(&wheel, UINT64_MAX));
    assert_int_equal(mr_timer_next_us(&wheel), UINT64_MAX);
}

TEST(fires_at_its_time_and_not_before, setup)
{
    static const uint64_t delays_us[] = {1,          TICK - 1,    TICK,        TICK + 1, 255 * TICK,
                                         256 * TICK, 257 * TICK,  5000000,     60000000, 536000000,
                                         537000000,  3600000000u, 86400000000u};
    for (size_t i = 0; i < sizeof(delays_us) / sizeof(delays_us[0]); i++) {
        mr_timer_wheel_init(&wheel);
        struct mr_timer t = {0};
        uint64_t start_us = 12345678901 + i, at_us = start_us + delays_us[i], now_us = start_us;
        mr_timer_arm(&wheel, &t, start_us, at_us);
        uint32_t looks = 0;
        struct mr_timer *taken = NULL;
        while (taken == NULL) {
            uint64_t next_us = mr_timer_next_us(&wheel);
            assert_true(next_us >= now_us && next_us < at_us + TICK);
            now_us = next_us;
            taken = mr_timer_take(&wheel, now_us);
            assert_true(++looks < 1000);
        }
        assert_ptr_equal(taken, &t);
        assert_true(now_us >= at_us);
        assert_false(mr_timer_armed(&t));
    }
}

TEST(a_passed_time_fires_within_a_tick, setup)
{
    struct mr_timer t = {0};
    mr_timer_arm(&wheel, &t, 1000000, 5);
    assert_int_in_range(mr_timer_next_us(&wheel), 1000000 - TICK, 1000000 + TICK);
    assert_ptr_equal(mr_timer_take(&wheel, 1000000 + TICK), &t);
}

TEST(disarming_is_final_and_harmless, setup)
{
    struct mr_timer t = {0};
    mr_timer_disarm(&wheel, &t);
    mr_timer_arm(&wheel, &t, 0, 5000);
    mr_timer_disarm(&wheel, &t);
    mr_timer_disarm(&wheel, &t);
    assert_null(mr_timer_take(&wheel, 1000000));
    assert_int_equal(mr_timer_next_us(&wheel), UINT64_MAX);
}

TEST(arming_again_moves_it, setup)
{
    struct mr_timer t = {0};
    mr_timer_arm(&wheel, &t, 0, 5000);
    mr_timer_arm(&wheel, &t, 0, 90000);
    assert_null(mr_timer_take(&wheel, 80000));
    assert_ptr_equal(mr_timer_take(&wheel, 90000 + TICK), &t);
    assert_null(mr_timer_take(&wheel, UINT64_MAX >> 1));
}

TEST(one_armed_for_later_does_not_come_out_now, setup)
{
    struct mr_timer t = {0};
    mr_timer_arm(&wheel, &t, 0, 100);
    assert_ptr_equal(mr_timer_take(&wheel, 100000), &t);
    mr_timer_arm(&wheel, &t, 100000, 100000 + 2 * TICK);
    assert_null(mr_timer_take(&wheel, 100000));
}

#define MANY 2000

/* Against a list that is searched for what is due. */
TEST(agrees_with_a_plain_list, setup)
{
    static struct mr_timer timers[MANY];
    static uint64_t at_us[MANY];
    uint64_t now_us = 1;
    uint32_t fired = 0;
    memset(timers, 0, sizeof(timers));
    memset(at_us, 0, sizeof(at_us));
    srand(7);
    for (uint32_t step = 0; step < 200000; step++) {
        uint32_t i = (uint32_t)rand() % MANY;
        uint32_t what = (uint32_t)rand() % 8;
        if (what < 3) {
            at_us[i] = now_us + 1 + (uint64_t)rand() % (UINT64_C(1) << (rand() % 34));
            mr_timer_arm(&wheel, &timers[i], now_us, at_us[i]);
        } else if (what == 3) {
            at_us[i] = 0;
            mr_timer_disarm(&wheel, &timers[i]);
        } else {
            now_us += (uint64_t)rand() % (UINT64_C(1) << (rand() % 26));
            struct mr_timer *t;
            while ((t = mr_timer_take(&wheel, now_us)) != NULL) {
                ptrdiff_t n = t - timers;
                assert_true(at_us[n] != 0 && at_us[n] <= now_us);
                at_us[n] = 0;
                fired++;
            }
            for (uint32_t n = 0; step % 50 == 0 && n < MANY; n++)
                assert_true(at_us[n] == 0 || at_us[n] + TICK > now_us);
        }
        assert_int_equal(mr_timer_armed(&timers[i]), at_us[i] != 0);
    }
    assert_true(fired > MANY);
}
