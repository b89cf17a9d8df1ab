#include <string.h>
#include "dataplane/loop/phases.h"
#include "dataplane/wire/format/op.h"
#include "tests/test.h"

enum { HZ = 10000 }; /* windows of 1000 cycles */

static uint64_t time_now, looks;

static uint64_t phases_look(void)
{
    looks++;
    return time_now;
}

static struct dp_phases p;

static void phases_start(uint32_t every)
{
    time_now = 1000000;
    looks = 0;
    dp_phases_init(&p, phases_look, HZ, every, 7);
    looks = 0;
}

static uint64_t sum(void)
{
    const uint64_t *cycles = (const uint64_t *)&p.counters;
    uint64_t all = 0;
    for (uint32_t i = 0; i < DP_PHASE_COUNT; i++)
        all += cycles[i];
    return all;
}

static void spend(enum dp_phase phase, uint64_t cycles)
{
    enum dp_phase before = dp_phase_enter(&p, phase);
    time_now += cycles;
    dp_phase_leave(&p, before);
}

/* A lookup: 100 cycles, of which 60 are in the table. */
static void serve_lookup(void)
{
    enum dp_phase before = dp_op_enter(&p);
    time_now += 30;
    spend(DP_PHASE_gather, 60);
    time_now += 10;
    dp_op_leave(&p, MR_OP_LOOKUP, before);
}

/* 400 cycles. */
static void busy_turn(void)
{
    dp_turn_begin(&p);
    time_now += 5;
    spend(DP_PHASE_receive, 45);
    enum dp_phase before = dp_phase_enter(&p, DP_PHASE_check);
    time_now += 40;
    serve_lookup();
    time_now += 60;
    dp_phase_leave(&p, before);
    spend(DP_PHASE_transmit, 150);
    dp_turn_end(&p, true);
}

/* 40 cycles, of which none counts as what was looked at. */
static void idle_turn(void)
{
    dp_turn_begin(&p);
    spend(DP_PHASE_receive, 30);
    time_now += 10;
    dp_turn_end(&p, false);
}

TEST(phases_add_up_to_the_time_that_passed)
{
    phases_start(1);
    for (uint32_t i = 0; i < 50; i++)
        busy_turn();
    uint64_t accounted = p.window_since - 1000000;
    assert_true(accounted > 50 * 400 - 2000);
    assert_int_equal(sum(), accounted);
    uint64_t turns = accounted / 400;
    assert_int_equal(accounted % 400, 0);
    assert_int_equal(p.counters.poll, turns * 5);
    assert_int_equal(p.counters.receive, turns * 45);
    assert_int_equal(p.counters.check, turns * 100);
    assert_int_equal(p.counters.dispatch, turns * 40);
    assert_int_equal(p.counters.gather, turns * 60);
    assert_int_equal(p.counters.transmit, turns * 150);
    assert_int_equal(p.counters.idle + p.counters.sleep + p.counters.optimizer, 0);
    assert_int_equal(p.op_cycles[DP_OP_CLASS_lookup], turns * 100);
    assert_int_equal(p.op_cycles[DP_OP_CLASS_push], 0);
    assert_int_equal(p.counters.turns_measured, 50);
}

static uint64_t instructions;

/* At the end of the first call and at the beginning of the third there is no counter. */
static bool read_events(void *arg, struct dp_op_events *out)
{
    uint32_t *reads = arg;
    *out = (struct dp_op_events){{instructions, instructions / 100}};
    return ++*reads != 2 && *reads != 5;
}

TEST(operations_are_measured_in_events_where_there_are_any)
{
    uint32_t reads = 0;
    phases_start(1);
    dp_phases_read_events(&p, read_events, &reads);
    for (uint32_t i = 0; i < 10; i++) {
        dp_turn_begin(&p);
        enum dp_phase before = dp_op_enter(&p);
        time_now += 100;
        instructions += 300;
        dp_op_leave(&p, MR_OP_PUSH_GRAD, before);
        instructions += 7777; /* of nobody */
        dp_turn_end(&p, true);
    }
    assert_int_equal(p.op_cycles[DP_OP_CLASS_push], 1000);
    assert_int_equal(reads, 19); /* a call without a beginning is not read at its end */
    assert_int_equal(p.op_events[DP_OP_INSTRUCTIONS][DP_OP_CLASS_push], 300 * (10 - 2));
    assert_int_equal(p.op_events[DP_OP_INSTRUCTIONS][DP_OP_CLASS_lookup], 0);
}

/* One turn in 16 on average: the sum is exact all the same, and the shares are nearly those of all turns. */
TEST(few_turns_stand_for_all)
{
    enum { TURNS = 2000000 };
    phases_start(16);
    p.window_cycles = 1000000;
    for (uint32_t i = 0; i < TURNS; i++)
        if (i % 4 == 0) /* would be seen always or never, if turns were taken in step */
            busy_turn();
        else
            idle_turn();
    uint64_t accounted = p.window_since - 1000000;
    assert_true(accounted > time_now - 1000000 - 2000000);
    assert_int_equal(sum(), accounted);
    assert_true(p.counters.turns_measured > TURNS / 17 && p.counters.turns_measured < TURNS / 15);
    double busy = 400.0 / (400 + 3 * 40), all = (double)accounted;
    double idle = (double)p.counters.idle / all, gather = (double)p.counters.gather / all;
    assert_true(idle > (1 - busy) * 0.97 && idle < (1 - busy) * 1.03);
    assert_true(gather > busy * 0.15 * 0.97 && gather < busy * 0.15 * 1.03);
    double lookups = (double)p.op_cycles[DP_OP_CLASS_lookup] / all;
    assert_true(lookups > busy * 0.25 * 0.97 && lookups < busy * 0.25 * 1.03);
    assert_true(looks < TURNS); /* of about 6 edges in each turn */
}

TEST(rounding_loses_nothing)
{
    phases_start(1);
    for (uint32_t i = 0; i < 1000; i++) {
        dp_turn_begin(&p);
        spend(DP_PHASE_receive, 1 + i % 7);
        spend(DP_PHASE_optimizer, i % 13);
        spend(DP_PHASE_save, i % 5);
        time_now += i % 3;
        dp_turn_end(&p, i % 11 != 0);
        time_now += 2; /* between turns: shared out, too */
    }
    assert_int_equal(sum(), p.window_since - 1000000);
}

TEST(sleeps_are_measured_in_every_turn)
{
    phases_start(1000);
    for (uint32_t i = 0; i < 5000; i++) {
        dp_turn_begin(&p);
        time_now += 10;
        if (i % 10 == 0) {
            dp_sleep_enter(&p);
            time_now += 500;
            dp_sleep_leave(&p);
        }
        dp_turn_end(&p, false);
    }
    uint64_t accounted = p.window_since - 1000000;
    assert_int_equal(sum(), accounted);
    assert_true(p.counters.turns_measured >= 2 && p.counters.turns_measured < 20);
    /* windows end in the middle of ten turns */
    assert_int_in_range(p.counters.sleep * 600 / accounted, 499, 501);
    assert_int_equal(p.counters.idle + p.counters.sleep, accounted);
}

TEST(nothing_is_measured_when_off)
{
    phases_start(0);
    for (uint32_t i = 0; i < 10000; i++)
        busy_turn();
    dp_sleep_enter(&p);
    time_now += 500;
    dp_sleep_leave(&p);
    assert_int_equal(looks, 0);
    assert_int_equal(sum(), 0);
    p.turns_left = 1; /* 2^32 turns later */
    busy_turn();
    assert_int_equal(looks, 0);
    assert_int_equal(p.counters.turns_measured, 0);
}

TEST(without_phases_nothing_is_entered)
{
    dp_phase_leave(NULL, dp_phase_enter(NULL, DP_PHASE_gather));
    dp_op_leave(NULL, MR_OP_LOOKUP, dp_op_enter(NULL));
}

TEST(operations_have_a_class)
{
    assert_int_equal(dp_op_class(MR_OP_LOOKUP_BATCH), DP_OP_CLASS_lookup);
    assert_int_equal(dp_op_class(MR_OP_PUSH_GRAD), DP_OP_CLASS_push);
    assert_int_equal(dp_op_class(MR_OP_FEED_SAMPLE), DP_OP_CLASS_feed);
    assert_int_equal(dp_op_class(MR_OP_VARIABLE_PULL), DP_OP_CLASS_variable);
    assert_int_equal(dp_op_class(MR_OP_RPC_PART), DP_OP_CLASS_rpc);
    assert_int_equal(dp_op_class(MR_OP_ECHO), DP_OP_CLASS_echo);
    assert_int_equal(dp_op_class(MR_OP_STATS), DP_OP_CLASS_other);
    assert_int_equal(dp_op_class(0), DP_OP_CLASS_other);
    assert_int_equal(dp_op_class(MR_OP_COUNT), DP_OP_CLASS_other);
    assert_string_equal(dp_phase_counter_set.counters[DP_PHASE_gather].name, "gather");
    assert_string_equal(dp_op_calls_counter_set.counters[DP_OP_CLASS_other].name, "other");
}
