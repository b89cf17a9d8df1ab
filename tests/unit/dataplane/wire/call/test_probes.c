/* Calls that hear nothing for a while, and how they are asked after. */

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

TEST(a_long_call_is_asked_after_at_a_bounded_rate, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    pair_call(&p, &c, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 2000000);
    uint32_t before = p.ends[PAIR_CLIENT].sent;
    pair_run(&p, 4000000);
    assert_int_in_range(p.ends[PAIR_CLIENT].sent - before, 4000000 / MR_PTO_MAX_US - 1,
                        4000000 / MR_PTO_MAX_US + 1);
    assert_int_equal(p.executed, 1);
    assert_int_equal(p.events[MR_SESSION_AWAY], 0);
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_run(&p, 100);
    assert_int_equal(c.ended, 1);
}

/* A stall that hits many calls at once: what is asked again goes together, as it did the first time. */
TEST(probes_of_many_calls_share_packets, pair_opened, pair_ended)
{
    enum { CALLS = 40 };
    struct pair_call calls[CALLS] = {0};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, 10, "0123456789");
    uint32_t before = p.ends[PAIR_CLIENT].sent;
    p.filter = drop_all;
    for (uint32_t i = 0; i < CALLS; i++)
        pair_call(&p, &calls[i], MR_OP_ECHO, &tensor, 1, UINT64_MAX);
    pair_run(&p, 100);
    uint32_t packets = p.ends[PAIR_CLIENT].sent - before;
    assert_int_in_range(packets, 2, CALLS / 4);
    pair_run(&p, 300000);
    const struct mr_wire_counters *c = mr_endpoint_counters(client());
    assert_true(c->segments_resent >= 2 * CALLS);
    assert_int_equal(c->segments_resent % CALLS, 0);
    assert_int_equal(c->probes, c->segments_resent);
    uint32_t expected = before + (1 + (uint32_t)c->probes / CALLS) * packets;
    assert_int_in_range(p.ends[PAIR_CLIENT].sent, expected,
                        expected + 20); /* and the keep-alives, and questions after the path */
    p.filter = NULL;
    pair_run(&p, 300000);
    for (uint32_t i = 0; i < CALLS; i++)
        assert_int_equal(calls[i].ended, 1);
    assert_int_equal(p.executed, CALLS);
}

/* The server is at work on all of them: it says so about each, though they are asked after in one packet. */
TEST(a_bundle_of_probes_asks_after_each, pair_opened, pair_ended)
{
    struct pair_call calls[8] = {0};
    for (uint32_t i = 0; i < 8; i++)
        pair_call(&p, &calls[i], MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    uint32_t asked = p.ends[PAIR_CLIENT].sent, told = p.ends[PAIR_SERVER].sent;
    for (int i = 0; i < 200 && p.ends[PAIR_CLIENT].sent == asked; i++)
        pair_run(&p, 1000);
    pair_run(&p, 100);
    assert_int_equal(p.ends[PAIR_CLIENT].sent, asked + 1);
    assert_int_equal(p.ends[PAIR_SERVER].sent, told + 8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(calls[i].call->server_has);
        mr_reply_status(server(), p.later[i], MR_OK);
    }
    pair_run(&p, 300000);
    assert_int_equal(calls[7].ended, 1);
}

static uint64_t seen_deadline_us;

static void note_deadline(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    seen_deadline_us = request->deadline_us;
    mr_reply_status(ep, request->ref, MR_OK);
}

TEST(what_is_sent_again_tells_the_time_that_is_left, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    uint64_t deadline_us = p.now_us + 2000000;
    p.handler = note_deadline;
    p.filter = drop_all;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, deadline_us);
    pair_run(&p, 700000);
    p.filter = NULL;
    pair_run(&p, 300000);
    assert_int_equal(c.ended, 1);
    assert_int_in_range(seen_deadline_us, deadline_us, deadline_us + 2000); /* whole milliseconds */
}

TEST(a_lost_push_reply_is_replayed_not_executed, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.filter = drop_replies;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 400000);
    assert_int_equal(p.executed, 1);
    assert_true(mr_endpoint_counters(server())->calls_replayed > 2);
    p.filter = NULL;
    pair_run(&p, 300000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, 1);
}
