/* The step that training has come to: what moves it, and what does not. */
#include "ps/core/step_clock.h"
#include "tests/test.h"

static uint64_t calls;

static void see(struct ps_step_clock *c, uint64_t step)
{
    ps_step_clock_see(c, step, 7, ++calls);
}

TEST(near_steps_count_at_once)
{
    struct ps_step_clock c = {0};
    see(&c, 1);
    assert_int_equal(c.step, 1);
    see(&c, 3);
    see(&c, 2); /* a slower trainer's */
    see(&c, 0); /* a call without a step */
    assert_int_equal(c.step, 3);
    see(&c, 3 + PS_STEP_NEAR);
    assert_int_equal(c.step, 3 + PS_STEP_NEAR);
    assert_int_equal(c.ignored, 0);
}

TEST(a_wild_step_changes_nothing)
{
    struct ps_step_clock c = {0};
    for (uint64_t step = 1; step < 10000; step++) {
        see(&c, step);
        see(&c, step * UINT64_C(0x9E3779B97F4A7C15) | UINT64_C(1) << 63); /* every other call is */
        see(&c, UINT64_MAX);
        assert_int_equal(c.step, step);
        assert_int_equal(c.ignored,
                         2 * (step - 1)); /* all but those of this round, which nobody has overruled yet */
    }
    see(&c, 10000);
    see(&c, 20000);
    ps_step_clock_hold(&c, 10001); /* somebody waits near by: that overrules it, too */
    assert_int_equal(c.ignored, 2 * 9999 + 1);
    ps_step_clock_set(&c, 3);
    assert_int_equal(c.ignored, 2 * 9999 + 1);
}

TEST(a_wild_call_sent_again_and_again_counts_once)
{
    struct ps_step_clock c = {0};
    see(&c, 5);
    for (uint32_t i = 0; i < 10 * PS_STEPS_AHEAD; i++)
        ps_step_clock_see(&c, UINT64_MAX, 9, 77);
    assert_int_equal(c.step, 5);
    ps_step_clock_see(&c, UINT64_MAX, 10, 77); /* the same id in another session is another call */
    assert_int_equal(c.far_count, 2);
    see(&c, 6);
    assert_int_equal(c.ignored, 2);
}

TEST(many_calls_in_agreement_move_it)
{
    struct ps_step_clock c = {0};
    see(&c, UINT64_MAX); /* a wild one among them does not decide where to */
    for (uint32_t i = 1; i < PS_STEPS_AHEAD; i++) {
        assert_int_equal(c.step, 0);
        see(&c, 1000000 + i);
    }
    assert_int_equal(c.step, 1000001);
    see(&c, 1000020);
    assert_int_equal(c.step, 1000020);
    assert_int_equal(c.ignored, 0); /* they were right */
}

/* Trainers that count samples: each step is far from the last. */
TEST(it_follows_wide_strides)
{
    struct ps_step_clock c = {0};
    for (uint64_t step = 1; step <= 1000; step++)
        see(&c, step * 65536);
    assert_true(c.step > (1000 - 2 * PS_STEPS_AHEAD) * UINT64_C(65536));
    assert_true(c.step <= 1000 * UINT64_C(65536));
}

TEST(a_training_begun_anew_takes_it_back)
{
    struct ps_step_clock c = {0};
    ps_step_clock_set(&c, 1000000);
    for (uint32_t i = 1; i < PS_STEPS_BEHIND; i++)
        see(&c, i);
    assert_int_equal(c.step, 1000000);
    see(&c, PS_STEPS_BEHIND);
    assert_int_equal(c.step, PS_STEPS_BEHIND);
}

/* One that lags far behind, among others. */
TEST(stragglers_do_not)
{
    struct ps_step_clock c = {0};
    ps_step_clock_set(&c, 1000000);
    for (uint32_t i = 1; i < 10 * PS_STEPS_BEHIND; i++) {
        see(&c, i);
        if (i % 100 == 0)
            see(&c, 1000000 + i / 100);
        assert_int_equal(c.step, 1000000 + i / 100);
    }
}

/* A trainer that waits at a step for the others, which are far behind. */
TEST(one_that_waits_keeps_it)
{
    struct ps_step_clock c = {0};
    ps_step_clock_set(&c, 1000000);
    for (uint32_t i = 1; i < 10 * PS_STEPS_BEHIND; i++) {
        see(&c, i);
        if (i % 100 == 0)
            ps_step_clock_hold(&c, 1000001);
        assert_int_equal(c.step, 1000000);
    }
    ps_step_clock_set(&c, 1000000);
    for (uint32_t i = 0; i < PS_STEPS_BEHIND; i++) { /* one that waits far off keeps nothing */
        ps_step_clock_hold(&c, 1000001 + 2 * PS_STEP_NEAR);
        see(&c, 1 + i);
    }
    assert_int_equal(c.step, PS_STEPS_BEHIND);
}

TEST(both_ways_do_not_add_up)
{
    struct ps_step_clock c = {0};
    ps_step_clock_set(&c, 1000000);
    for (uint32_t i = 0; i < 100 * PS_STEPS_AHEAD; i++) {
        see(&c, UINT64_MAX - i);
        see(&c, 1 + i);
    }
    assert_int_equal(c.step, 1000000);
}
