#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

/* ---- deadlines ---- */

TEST(at_the_deadline_a_repeatable_call_has_missed_it, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.filter = drop_replies;
    pair_call(&p, &c, MR_OP_LOOKUP, NULL, 0, p.now_us + 5000);
    pair_run(&p, 4999);
    assert_int_equal(c.ended, 0);
    pair_run(&p, 1 + MR_TIMER_TICK_US);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_DEADLINE_EXCEEDED);
}

TEST(at_the_deadline_a_push_that_was_sent_has_an_unknown_outcome, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.filter = drop_replies;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 5000);
    pair_run(&p, 5100);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_UNKNOWN_OUTCOME);
    assert_int_equal(p.executed, 1);
}

TEST(at_the_deadline_a_numbered_push_may_be_sent_again, pair_opened, pair_ended)
{
    struct pair_call c = {.sequence = 1};
    p.filter = drop_replies;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 5000);
    pair_run(&p, 6000);
    assert_int_equal(c.status, MR_DEADLINE_EXCEEDED);
    assert_int_equal(p.executed, 1);
}

TEST(at_the_deadline_a_push_never_sent_has_missed_it, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.ends[PAIR_CLIENT].no_room = true;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 5000);
    pair_run(&p, 5100);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_DEADLINE_EXCEEDED);
    p.ends[PAIR_CLIENT].no_room = false;
    pair_run(&p, 300000);
    assert_int_equal(p.executed, 0);
}

TEST(before_the_session_is_up_it_is_unreachable, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    struct mr_address nowhere = p.ends[PAIR_SERVER].address;
    struct mr_client_session *first = p.session;
    nowhere.port = 9;
    assert_int_equal(mr_client_session_open(client(), &nowhere, 0, NULL, &p.session), MR_OK);
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 5000);
    pair_run(&p, 5100);
    assert_int_equal(c.status, MR_UNREACHABLE);
    p.session = first;
}

TEST(away_is_unreachable_too, pair_opened, pair_ended)
{
    struct pair_call push = {0}, lookup = {0}, later = {0};
    p.filter = drop_all;
    pair_call(&p, &push, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 3000000);
    pair_call(&p, &lookup, MR_OP_LOOKUP, NULL, 0, p.now_us + 3000000);
    pair_run(&p, 2000000);
    pair_call(&p, &later, MR_OP_LOOKUP, NULL, 0, p.now_us + 10);
    pair_run(&p, 1100000);
    assert_int_equal(push.status, MR_UNKNOWN_OUTCOME);
    assert_int_equal(lookup.status, MR_UNREACHABLE);
    assert_int_equal(later.status, MR_UNREACHABLE);
    assert_int_equal(later.ended, 1);
}

TEST(a_deadline_that_has_passed_ends_it_in_the_next_poll, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    pair_call(&p, &c, MR_OP_LOOKUP, NULL, 0, p.now_us - 1);
    assert_int_equal(c.ended, 0);
    pair_run(&p, 100);
    assert_int_equal(c.ended, 1);
}

static uint32_t seen_deadline_ms;

static void note_deadline(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    seen_deadline_ms = request->message->preamble.deadline_ms;
    mr_reply_status(ep, request->ref, MR_OK);
}

TEST(the_server_is_told_how_much_time_is_left, pair_opened, pair_ended)
{
    struct pair_call a = {0}, b = {0};
    p.handler = note_deadline;
    pair_call(&p, &a, MR_OP_LOOKUP, NULL, 0, p.now_us + 1500000);
    pair_run(&p, 100);
    assert_int_equal(seen_deadline_ms, 1501);
    pair_call(&p, &b, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    assert_int_equal(seen_deadline_ms, 0);
}

/* ---- slots ---- */

TEST(more_calls_than_slots_wait_their_turn, pair_opened, pair_ended)
{
    struct pair_call calls[200] = {0};
    p.config[PAIR_SERVER].window = 4;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    for (int i = 0; i < 200; i++)
        pair_call(&p, &calls[i], MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 20);
    assert_int_equal(p.executed, 4);
    pair_run(&p, 50 * 2 * PAIR_DELAY_US);
    assert_int_equal(p.executed, 200);
    for (int i = 0; i < 200; i++)
        assert_int_equal(calls[i].ended, 1);
}

static uint8_t order[16];
static uint32_t order_count;

static void note_order(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    order[order_count++] = request->message->preamble.priority;
    mr_reply_status(ep, request->ref, MR_OK);
}

TEST(higher_priority_goes_first, pair_opened, pair_ended)
{
    static const uint8_t priorities[] = {0, 3, 7, 3, 0, 7};
    p.config[PAIR_SERVER].window = 1;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    p.handler = note_order;
    order_count = 0;
    struct pair_call calls[6] = {0};
    for (int i = 0; i < 6; i++) {
        struct mr_call_options o = {
            .op = MR_OP_ECHO, .priority = priorities[i], .deadline_us = UINT64_MAX, .user = &calls[i]};
        assert_int_equal(mr_call_begin(client(), p.session, &o, NULL, 0, &calls[i].call), MR_OK);
        mr_call_send(client(), calls[i].call, p.now_us);
    }
    pair_run(&p, 1000);
    static const uint8_t expected[] = {7, 7, 3, 3, 0, 0};
    assert_int_equal(order_count, 6);
    assert_memory_equal(order, expected, 6);
}

TEST(one_long_call_does_not_hold_up_the_others, pair_opened, pair_ended)
{
    struct pair_call save = {0};
    pair_call(&p, &save, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    for (int i = 0; i < 300; i++) {
        struct pair_call c = {0};
        pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
        pair_run(&p, 2 * PAIR_DELAY_US + 2);
        assert_int_equal(c.status, MR_OK);
        assert_int_equal(c.ended, 1);
    }
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    pair_run(&p, 100);
    assert_int_equal(save.ended, 1);
}

TEST(an_ended_call_keeps_its_slot_until_it_is_answered, pair_opened, pair_ended)
{
    p.config[PAIR_SERVER].window = 1;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    struct pair_call save = {0}, next = {0};
    pair_call(&p, &save, MR_OP_SAVE, NULL, 0, p.now_us + 3000);
    pair_run(&p, 4000);
    assert_int_equal(save.ended, 1);
    assert_int_equal(save.status, MR_UNKNOWN_OUTCOME);
    pair_call(&p, &next, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000000);
    assert_int_equal(p.executed, 1);
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    pair_run(&p, 1000);
    assert_int_equal(p.executed, 2);
    assert_int_equal(next.status, MR_OK);
    assert_int_equal(save.ended, 1);
}

/* ---- cancel, free, bounds ---- */

/* It was sent, refused, and had its turn again, but the port was full until its deadline. */
TEST(a_call_ended_before_it_was_sent_again_gives_its_slot_back, pair_opened, pair_ended)
{
    static uint8_t large[5000];
    p.config[PAIR_SERVER].window = 1;
    for (uint32_t bytes = 10; bytes <= sizeof(large); bytes += sizeof(large) - 10) {
        struct pair_call refused = {0}, next = {0};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, large);
        pair_restart_server(&p);
        pair_run(&p, 11000000);
        p.executed = 0;
        pair_call(&p, &refused, MR_OP_RESTORE, &tensor, 1, p.now_us + 10000);
        uint64_t refusals = mr_endpoint_counters(client())->busy_received;
        for (int i = 0; i < 500 && mr_endpoint_counters(client())->busy_received == refusals; i++)
            pair_run(&p, 10);
        assert_int_equal(mr_endpoint_counters(client())->busy_received, refusals + 1);
        p.ends[PAIR_CLIENT].no_room = true;
        pair_run(&p, 20000);
        assert_int_equal(refused.ended, 1);
        assert_int_equal(refused.status, MR_BUSY);
        p.ends[PAIR_CLIENT].no_room = false;
        pair_call(&p, &next, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 2000000);
        pair_run(&p, 2001000);
        assert_int_equal(next.ended, 1);
        assert_int_equal(next.status, MR_OK);
    }
}

TEST(cancelled_while_it_waits_or_runs, pair_opened, pair_ended)
{
    struct pair_call waits = {0}, runs = {0};
    pair_call(&p, &runs, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    pair_call(&p, &waits, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    mr_call_cancel(client(), waits.call);
    mr_call_cancel(client(), runs.call);
    assert_int_equal(waits.ended, 1);
    assert_int_equal(waits.status, MR_CANCELLED);
    assert_int_equal(runs.ended, 1);
    assert_int_equal(runs.status, MR_CANCELLED);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    pair_run(&p, 1000000);
    assert_int_equal(p.executed, 1);
    assert_int_equal(runs.ended, 1);
}

TEST(only_what_was_not_sent_whole_is_withdrawn, pair_opened, pair_ended)
{
    static uint8_t data[500000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call waits = {0}, half = {0}, runs = {0}, busy = {0};
    pair_call(&p, &waits, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_call(&p, &half, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    assert_true(mr_call_withdraw(client(), waits.call));
    mr_endpoint_poll(client(), p.now_us, 20);
    assert_true(mr_call_withdraw(client(), half.call));
    assert_int_equal(waits.ended, 1);
    assert_int_equal(waits.status, MR_CANCELLED);
    assert_int_equal(half.ended, 1);
    assert_int_equal(half.status, MR_CANCELLED);
    pair_run(&p, 1000000);
    assert_int_equal(p.executed, 0);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    pair_call(&p, &runs, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    assert_false(mr_call_withdraw(client(), runs.call));
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    pair_run(&p, 1000);
    assert_int_equal(runs.ended, 1);
    assert_int_equal(runs.status, MR_OK);
    /* One that was refused is executed under another id only, which the server has not seen yet. */
    p.executed = 0;
    uint64_t refusals = mr_endpoint_counters(client())->busy_received;
    pair_call(&p, &busy, MR_OP_RESTORE, NULL, 0, UINT64_MAX);
    for (int i = 0; i < 500 && mr_endpoint_counters(client())->busy_received == refusals; i++)
        pair_run(&p, 10);
    p.executed = 1;
    assert_true(mr_call_withdraw(client(), busy.call));
    assert_int_equal(busy.ended, 1);
    assert_int_equal(busy.status, MR_CANCELLED);
    pair_run(&p, 1000000);
    assert_int_equal(p.executed, 1);
}

TEST(a_large_call_cancelled_half_way_never_executes, pair_opened, pair_ended)
{
    static uint8_t data[500000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call c = {0}, next = {0};
    pair_call(&p, &c, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    mr_endpoint_poll(client(), p.now_us, 20);
    mr_call_cancel(client(), c.call);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(p.executed, 0);
    for (int i = 0; i < 64; i++) { /* takes over its slot */
        pair_call(&p, &next, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
        pair_run(&p, 100);
    }
    pair_run(&p, 30000);
    assert_int_equal(p.executed, 64);
    assert_int_equal(mr_endpoint_memory_used(p.ends[PAIR_SERVER].ep), 0);
}

/* A report that was on its way when the call ended says nothing of what came after it. */
TEST(one_cancelled_while_its_end_arrives_keeps_its_slot, pair_opened, pair_ended)
{
    struct pair_call save = {0}, others[4] = {0};
    static uint8_t data[200000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].window = 2;
    pair_start(&p);
    pair_open(&p);
    pair_call(&p, &save, MR_OP_SAVE, &tensor, 1, UINT64_MAX);
    for (int i = 0; i < 100 && !save.call->sent_whole; i++)
        pair_run(&p, 1);
    save.keep = true;
    mr_call_cancel(client(), save.call);
    pair_run(&p, 100);
    assert_int_equal(p.later_count, 1); /* it was too late */
    for (int i = 0; i < 4; i++)
        pair_call(&p, &others[i], MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(others[i].ended, 1);
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    pair_run(&p, 1000000);
    assert_int_equal(p.session->busy_slots, 0);
    mr_call_free(client(), save.call);
}

TEST(calls_max_and_memory_are_bounds, pair_opened, pair_ended)
{
    struct mr_call *calls[256], *one_more;
    struct mr_call_options o = {.op = MR_OP_ECHO, .deadline_us = UINT64_MAX};
    for (int i = 0; i < 256; i++)
        assert_int_equal(mr_call_begin(client(), p.session, &o, NULL, 0, &calls[i]), MR_OK);
    assert_int_equal(mr_call_begin(client(), p.session, &o, NULL, 0, &one_more), MR_NO_MEMORY);
    for (int i = 0; i < 256; i++)
        mr_call_free(client(), calls[i]);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    struct mr_tensor t = mr_tensor_1d(MR_U8, 20u << 20, NULL);
    assert_int_equal(mr_call_begin(client(), p.session, &o, &t, 1, &calls[0]),
                     MR_OK); /* alone it may be large */
    t = mr_tensor_1d(MR_U8, 5u << 20, NULL);
    assert_int_equal(mr_call_begin(client(), p.session, &o, &t, 1, &calls[1]), MR_NO_MEMORY);
    mr_call_free(client(), calls[0]);
    assert_int_equal(mr_call_begin(client(), p.session, &o, &t, 1, &calls[0]), MR_OK);
    assert_int_equal(mr_call_begin(client(), p.session, &o, &t, 1, &calls[1]), MR_OK); /* half of 32 MiB */
    assert_int_equal(mr_call_begin(client(), p.session, &o, NULL, 0, &calls[2]), MR_NO_MEMORY);
    mr_call_free(client(), calls[0]);
    mr_call_free(client(), calls[1]);
    t = mr_tensor_1d(MR_U8, MR_MESSAGE_BYTES_MAX, NULL);
    assert_int_equal(mr_call_begin(client(), p.session, &o, &t, 1, &calls[0]), MR_TOO_LARGE);
    o.priority = 8;
    assert_int_equal(mr_call_begin(client(), p.session, &o, NULL, 0, &calls[0]), MR_INVALID_ARGUMENT);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

TEST(a_request_that_takes_all_memory_is_answered, pair_opened, pair_ended)
{
    struct mr_tensor t = mr_tensor_1d(MR_U8, 20u << 20, NULL);
    struct pair_call c = {0};
    p.config[PAIR_SERVER].memory_bytes = 64u << 20;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    pair_call(&p, &c, MR_OP_PUSH_GRAD, &t, 1, UINT64_MAX);
    pair_run(&p, 500000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

static void begin_in_handler(struct pair *pair, struct pair_call *c)
{
    struct mr_call_options o = {.op = MR_OP_ECHO, .deadline_us = UINT64_MAX};
    struct mr_call *call;
    if (c->status == MR_CANCELLED)
        assert_int_equal(mr_call_begin(pair->ends[PAIR_CLIENT].ep, pair->session, &o, NULL, 0, &call),
                         MR_CANCELLED);
}

TEST(calls_of_a_closed_session_end_as_cancelled, pair_opened, pair_ended)
{
    struct pair_call built = {0}, sent = {0};
    struct mr_call_options o = {.op = MR_OP_ECHO, .deadline_us = UINT64_MAX, .user = &built};
    assert_int_equal(mr_call_begin(client(), p.session, &o, NULL, 0, &built.call), MR_OK);
    pair_call(&p, &sent, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    p.on_ended = begin_in_handler;
    mr_client_session_close(client(), p.session, p.now_us);
    assert_int_equal(sent.ended, 1);
    assert_int_equal(built.ended, 0);
    p.on_ended = NULL;
    mr_call_send(client(), built.call, p.now_us);
    assert_int_equal(built.ended, 0);
    pair_run(&p, 1000);
    assert_int_equal(built.ended, 1);
    assert_int_equal(built.status, MR_CANCELLED);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}
