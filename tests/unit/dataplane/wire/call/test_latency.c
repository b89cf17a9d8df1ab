#include <string.h>
#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

static struct mr_histogram latency_copy(uint32_t op, enum mr_latency_phase phase)
{
    struct mr_histogram h = {0};
    const struct mr_histogram *written = mr_endpoint_latency(server(), op, phase);
    if (written != NULL)
        mr_histogram_read(written, &h);
    return h;
}

static void assert_counted(uint32_t op, uint64_t count, uint64_t wait_ns, uint64_t work_ns, uint64_t send_ns)
{
    const uint64_t sums[MR_LATENCY_PHASES] = {wait_ns, work_ns, send_ns};
    for (uint32_t phase = 0; phase < MR_LATENCY_PHASES; phase++) {
        const struct mr_histogram h = latency_copy(op, (enum mr_latency_phase)phase);
        assert_int_equal(h.count, count);
        assert_int_equal(h.sum_ns, sums[phase]);
    }
}

TEST(a_call_has_three_phases, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    pair_call_once(&call, MR_OP_ECHO);
    assert_counted(MR_OP_ECHO, 1, 1000, 1000, 1000);
    assert_null(mr_endpoint_latency(server(), MR_OP_LOOKUP, MR_LATENCY_WORK));
}

TEST(an_answer_given_later_is_work_until_then, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    pair_call(&p, &call, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(p.later_count, 1);
    assert_int_equal(latency_copy(MR_OP_SAVE, MR_LATENCY_WAIT).count, 1);
    assert_int_equal(latency_copy(MR_OP_SAVE, MR_LATENCY_WORK).count, 0);
    pair_clock_ns += 500000;
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_run(&p, 1000);
    assert_int_equal(call.ended, 1);
    assert_counted(MR_OP_SAVE, 1, 1000, 501000, 1000);
}

TEST(an_answer_of_many_segments_is_sent_when_its_last_one_is, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    p.reply_bytes = 300000;
    pair_call(&p, &call, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 30); /* the first of it is on its way */
    assert_int_equal(latency_copy(MR_OP_LOOKUP, MR_LATENCY_WORK).count, 1);
    assert_int_equal(latency_copy(MR_OP_LOOKUP, MR_LATENCY_SEND).count, 0);
    pair_run(&p, 100000);
    assert_int_equal(call.ended, 1);
    assert_int_equal(latency_copy(MR_OP_LOOKUP, MR_LATENCY_SEND).count, 1);
}

/* The first reply is lost, and given again from what was kept. */
TEST(a_repeated_answer_does_not_count_again, pair_timed, pair_ended)
{
    struct pair_call call = {0};
    p.filter = drop_replies;
    pair_call(&p, &call, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 20000);
    assert_int_equal(call.ended, 0);
    p.filter = NULL;
    pair_run(&p, 2000000);
    assert_int_equal(call.ended, 1);
    assert_true(served()->calls_replayed > 0);
    assert_counted(MR_OP_ECHO, 1, 1000, 1000, 1000);
}

TEST(bursts_are_sampled_and_add_up, pair_timed, pair_ended)
{
    enum { CALLS = 32, ROUNDS = 100 };
    static struct pair_call calls[CALLS];
    const uint64_t began_ns = pair_clock_ns;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        memset(calls, 0, sizeof(calls));
        for (uint32_t i = 0; i < CALLS; i++)
            pair_call(&p, &calls[i], MR_OP_ECHO, NULL, 0, UINT64_MAX);
        pair_run(&p, 1000);
        for (uint32_t i = 0; i < CALLS; i++)
            assert_int_equal(calls[i].ended, 1);
    }
    const struct mr_histogram h = latency_copy(MR_OP_ECHO, MR_LATENCY_WORK);
    assert_int_in_range(h.count, CALLS * ROUNDS - MR_LATENCY_STRIDE, CALLS * ROUNDS);
    /* one reading for the arrival of each burst, and three for each call that was timed */
    const uint64_t readings = (pair_clock_ns - began_ns) / 1000;
    assert_true(readings < 1 + ROUNDS * (5 + 3 * (MR_LATENCY_FIRST + CALLS / MR_LATENCY_STRIDE)));
}

TEST(a_call_refused_for_now_is_worked_on_once, pair_timed, pair_ended)
{
    struct pair_call busy = {0};
    pair_call_once(&busy, MR_OP_RESTORE); /* busy the first time */
    assert_int_equal(latency_copy(MR_OP_RESTORE, MR_LATENCY_WORK).count, 1);
}

TEST(without_a_clock_nothing_is_counted, pair_opened, pair_ended)
{
    struct pair_call call = {0};
    pair_call_once(&call, MR_OP_ECHO);
    assert_null(mr_endpoint_latency(server(), MR_OP_ECHO, MR_LATENCY_WAIT));
}
