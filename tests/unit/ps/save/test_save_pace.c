/* The share of a core's time that a save takes: a core that turns under a clock of the test's own. */
#include "ps/save/save_pace.h"
#include "tests/test.h"

#define START_US  1000000u
#define SECOND_US 1000000u

struct core {
    struct ps_save_pace pace;
    uint64_t now_us, work;
    uint64_t stepped_us, steps; /* of the save */
    uint64_t longest_us;        /* without a step */
    uint64_t last_us;           /* step */
};

static struct core core_start(uint32_t share_percent)
{
    return (struct core){
        .pace = ps_save_pace_start(share_percent, 0, START_US), .now_us = START_US, .last_us = START_US};
}

/* A turn with so much other work, in which the save has more to write. */
static void turn(struct core *c, uint64_t work_us, uint64_t step_us)
{
    const uint64_t turn_us = c->now_us; /* the loop reads the clock once */
    c->work += work_us > 0;
    c->now_us += work_us + 1;
    ps_save_pace_look(&c->pace, c->work, turn_us);
    if (!ps_save_pace_may_step(&c->pace, turn_us))
        return;
    c->longest_us = turn_us - c->last_us > c->longest_us ? turn_us - c->last_us : c->longest_us;
    c->last_us = turn_us;
    c->steps++;
    c->stepped_us += step_us;
    c->now_us += step_us;
    ps_save_pace_stepped(&c->pace, step_us, turn_us);
}

TEST(an_idle_core_gives_all_its_time)
{
    struct core c = core_start(10);
    uint64_t turns = 0;
    for (; c.now_us < START_US + SECOND_US; turns++)
        turn(&c, 0, 20);
    assert_int_equal(c.steps, turns);
}

TEST(a_busy_core_gives_its_share)
{
    static const uint32_t shares[] = {1, 5, 10, 33, 50};
    static const uint64_t turns_us[] = {1, 7, 30, 400};
    for (uint32_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        for (uint32_t j = 0; j < sizeof(turns_us) / sizeof(turns_us[0]); j++) {
            /* Of long turns, one step each may be less than the share. */
            struct core c = core_start(shares[i]);
            while (c.now_us < START_US + SECOND_US)
                turn(&c, turns_us[j], 5);
            uint64_t took_us = c.now_us - START_US, share_us = took_us * shares[i] / 100;
            uint64_t most_us = 5 * took_us / (turns_us[j] + 6);
            assert_true(c.stepped_us <= share_us + PS_SAVE_PACE_LATE_US_MAX);
            assert_true(c.stepped_us >= (share_us < most_us ? share_us : most_us) * 90 / 100);
        }
    }
}

TEST(a_share_of_a_hundred_is_all)
{
    struct core c = core_start(100);
    uint64_t turns = 0;
    for (; c.now_us < START_US + SECOND_US; turns++)
        turn(&c, 30, 20);
    assert_int_equal(c.steps, turns);
}

/* Calls that come by turns with pauses: in these the save goes on at once when they are longer than a
 * moment. */
TEST(pauses_are_used)
{
    struct core c = core_start(10);
    for (uint32_t i = 0; i < 100; i++) {
        for (uint64_t end_us = c.now_us + 1000; c.now_us < end_us;)
            turn(&c, 10, 5);
        for (uint64_t end_us = c.now_us + 10000; c.now_us < end_us;)
            turn(&c, 0, 5);
    }
    uint64_t took_us = c.now_us - START_US;
    assert_int_in_range(c.stepped_us, took_us * 70 / 100, took_us * 90 / 100);
}

/* The processor is taken away in the middle of each step, and between turns: the core goes on nevertheless,
 * and soon. */
TEST(what_the_scheduler_takes_is_not_the_saves)
{
    struct core c = core_start(10);
    for (uint32_t i = 0; i < 1000; i++)
        turn(&c, 4000, 50000);
    assert_int_equal(c.steps, 1000);

    c = core_start(10);
    for (uint32_t i = 0; i < 100000; i++)
        turn(&c, 3, 50000);
    assert_int_in_range(c.longest_us, 50000, 50000 + PS_SAVE_PACE_STEP_US_MAX * 100 / 10 + 10);
}

/* Time that was left over before is not made up for by one long run of steps. */
TEST(lateness_is_made_up_for_within_bounds)
{
    struct core c = core_start(10);
    turn(&c, 1, 5);
    turn(&c, SECOND_US, 5); /* one turn of a second */
    uint64_t before_us = c.stepped_us;
    for (uint64_t end_us = c.now_us + 2000; c.now_us < end_us;)
        turn(&c, 5, 5);
    assert_int_in_range(c.stepped_us - before_us, 190, (2000 + PS_SAVE_PACE_LATE_US_MAX) / 10 + 10);
}

/* Pushes that hand over rows for half the share, for all of it, and for far more than that. */
TEST(what_calls_do_counts)
{
    static const struct {
        uint32_t call_ns;          /* for the save, in each turn of 20 us */
        uint64_t percent_of_share; /* that is left to steps */
    } cases[] = {{0, 100}, {1000, 50}, {2000, 20}, {19000, 20}};
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct core c = core_start(10);
        while (c.now_us < START_US + SECOND_US) {
            ps_save_pace_called(&c.pace, cases[i].call_ns);
            turn(&c, 19, 5);
        }
        /* The share of all time, in which turns are longer by the steps in them. */
        uint64_t expected_us = (c.now_us - START_US) / 10 * cases[i].percent_of_share / 100;
        assert_int_in_range(c.stepped_us, expected_us * 85 / 100, expected_us * 115 / 100);
    }
}

TEST(clocks_may_begin_at_nothing)
{
    struct ps_save_pace p = ps_save_pace_start(1, 7, 0);
    assert_true(ps_save_pace_may_step(&p, 0));
    ps_save_pace_look(&p, 8, 0);
    assert_true(ps_save_pace_may_step(&p, 0));
    ps_save_pace_stepped(&p, 1, 0);
    assert_false(ps_save_pace_may_step(&p, 99));
    assert_true(ps_save_pace_may_step(&p, 100));
    assert_true(ps_save_pace_may_step(&p, PS_SAVE_PACE_BUSY_US));
}
