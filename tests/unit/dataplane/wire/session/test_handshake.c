#include <string.h>

#include "pair_fixture.h"
#include "tests/test.h"

static enum pair_verdict drop_nth(struct pair *pair, enum pair_side from, uint32_t n,
                                  struct pair_packet *packet)
{
    return pair->wire_packets - 1 == pair->drop_from ? PAIR_DROP : PAIR_PASS;
}

static enum pair_verdict all_twice(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    return PAIR_TWICE;
}

TEST(any_packet_of_the_handshake_may_be_lost, pair_started, pair_ended)
{
    for (uint32_t n = 0; n < 6; n++) {
        pair_stop(&p);
        pair_init(&p);
        pair_start(&p);
        p.filter = drop_nth;
        p.drop_from = n;
        pair_open(&p);
        pair_run(&p, 200000);
        assert_true(up());
        struct pair_call call = {0};
        pair_call(&p, &call, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
        pair_run(&p, 100000);
        assert_int_equal(call.ended, 1);
        assert_int_equal(call.status, MR_OK);
        assert_int_equal(p.executed, 1);
    }
}

TEST(any_packet_of_the_handshake_may_come_twice, pair_started, pair_ended)
{
    p.filter = all_twice;
    pair_open(&p);
    assert_true(up());
    assert_int_equal(p.events[MR_SESSION_UP], 1);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
}

/* ---- what each side says of its version ---- */

static uint32_t accept_bytes;
static uint64_t heard;

static enum pair_verdict measure_accepts(struct pair *pair, enum pair_side from, uint32_t n,
                                         struct pair_packet *packet)
{
    if (from == PAIR_SERVER && packet->data[3] == MR_PACKET_ACCEPT)
        accept_bytes = packet->bytes - MR_HEADER_BYTES;
    return PAIR_PASS;
}

static void hear(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    heard = request->capabilities;
    mr_reply_status(ep, request->ref, MR_OK);
}

static void check_versions(const struct mr_peer_version *client_version,
                           const struct mr_peer_version *server_version, uint32_t expected_bytes)
{
    struct mr_client_session_info info;
    struct pair_call call = {0};
    const bool is_long = expected_bytes == sizeof(struct mr_accept_long);
    const struct mr_peer_version nothing = {0};
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].version = *client_version;
    p.config[PAIR_SERVER].version = *server_version;
    p.handler = hear;
    p.filter = measure_accepts;
    pair_start(&p);
    pair_open(&p);
    assert_true(up());
    assert_int_equal(accept_bytes, expected_bytes);
    mr_client_session_info(p.session, &info);
    assert_memory_equal(&info.version, is_long ? server_version : &nothing, sizeof(nothing));
    pair_call(&p, &call, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 100000);
    assert_int_equal(call.status, MR_OK);
    assert_int_equal(heard, client_version->capabilities);
}

/* A side that says nothing is of a version before 0.3.0, which takes an ACCEPT of 96 bytes only. */
TEST(versions_are_exchanged_where_both_say_theirs, pair_started, pair_ended)
{
    const struct mr_peer_version nothing = {0}, one = {.capabilities = UINT64_MAX, .text = "9.8.7+01234567"},
                                 other = {.capabilities = 1, .text = "0.3.0"};
    check_versions(&one, &other, sizeof(struct mr_accept_long));
    check_versions(&other, &one, sizeof(struct mr_accept_long));
    check_versions(&nothing, &one, sizeof(struct mr_accept));
    check_versions(&one, &nothing, sizeof(struct mr_accept));
}

/* The server was brought up to date under its client. */
TEST(a_version_is_that_of_the_last_accept, pair_started, pair_ended)
{
    struct mr_client_session_info info;
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_SERVER].version = (struct mr_peer_version){0};
    pair_start(&p);
    pair_open(&p);
    mr_client_session_info(p.session, &info);
    assert_int_equal(info.version.capabilities, 0);
    p.config[PAIR_SERVER].version = (struct mr_peer_version){.capabilities = 6, .text = "0.9.1"};
    pair_restart_server(&p);
    struct pair_call call = {0};
    pair_call(&p, &call, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 5000000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    mr_client_session_info(p.session, &info);
    assert_int_equal(info.version.capabilities, 6);
    assert_string_equal(info.version.text, "0.9.1");
}

TEST(keeps_knocking_at_a_bounded_rate, pair_started, pair_ended)
{
    p.filter = drop_all;
    pair_open(&p);
    uint32_t sent = p.ends[PAIR_CLIENT].sent;
    pair_run(&p, 10000000);
    sent = p.ends[PAIR_CLIENT].sent - sent;
    assert_int_in_range(sent, 10000000 / 250000, 10000000 / 150000 + 8);
    p.filter = NULL;
    pair_run(&p, 300000);
    assert_true(up());
}

TEST(a_stale_cookie_is_replaced, pair_started, pair_ended)
{
    p.filter = drop_nth;
    p.drop_from = 2; /* the HELLO with the cookie */
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &p.session),
                     MR_OK);
    pair_run(&p, 25);
    pair_restart_server(&p); /* its secret is another: the cookie is worth nothing */
    p.ends[PAIR_SERVER].random_state = 77;
    pair_run(&p, 500000);
    assert_true(up());
}

TEST(restart_repeats_what_can_be_and_ends_the_rest, pair_started, pair_ended)
{
    struct pair_call push = {0}, lookup = {0}, late = {0};
    p.reply_bytes = 100;
    pair_open(&p);
    p.filter = drop_all;
    pair_call(&p, &push, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_call(&p, &lookup, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    pair_restart_server(&p);
    p.filter = NULL;
    pair_run(&p, 500000);
    assert_int_equal(push.ended, 1);
    assert_int_equal(push.status, MR_UNKNOWN_OUTCOME);
    assert_int_equal(lookup.ended, 1);
    assert_int_equal(lookup.status, MR_OK);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    assert_int_equal(p.executed, 1);
    pair_call(&p, &late, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(late.status, MR_OK);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

/* The server knows it by its number, so that it may come again. */
TEST(a_numbered_push_outlives_a_restart, pair_started, pair_ended)
{
    struct pair_call push = {.sequence = 1};
    pair_open(&p);
    p.filter = drop_all;
    pair_call(&p, &push, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    pair_restart_server(&p);
    p.filter = NULL;
    pair_run(&p, 500000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    assert_int_equal(push.ended, 1);
    assert_int_equal(push.status, MR_OK);
    assert_int_equal(p.executed, 1);
}

TEST(held_calls_wait_while_those_ahead_go, pair_started, pair_ended)
{
    struct pair_call before = {0}, ahead = {.ahead = true}, after = {0};
    struct mr_client_session_info info;
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].hold_on_restart = true;
    pair_start(&p);
    pair_open(&p);
    mr_client_session_info(p.session, &info);
    assert_false(info.held);
    p.filter = drop_all;
    pair_call(&p, &before, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    pair_restart_server(&p);
    p.filter = NULL;
    pair_run(&p, 500000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    mr_client_session_info(p.session, &info);
    assert_true(info.up && info.held);
    pair_call(&p, &after, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_call(&p, &ahead, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 100000);
    assert_int_equal(ahead.ended, 1);
    assert_int_equal(before.ended + after.ended, 0);
    assert_int_equal(p.executed, 1);
    mr_client_session_release(client(), p.session, p.now_us);
    mr_client_session_info(p.session, &info);
    assert_false(info.held);
    pair_run(&p, 1000);
    assert_int_equal(before.ended + after.ended, 2);
    assert_int_equal(p.executed, 3);
    mr_client_session_release(client(), p.session, p.now_us); /* once more: nothing */
}

static uint8_t order[8];
static uint32_t order_count;

static void note_op(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    order[order_count++ % 8] = request->message->preamble.op;
    mr_reply_status(ep, request->ref, MR_OK);
}

/* Also when the server is lost again before they have been answered. */
TEST(those_ahead_stay_ahead_over_another_restart, pair_started, pair_ended)
{
    struct pair_call ahead[2] = {{.ahead = true}, {.ahead = true}}, last = {0};
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].hold_on_restart = true;
    p.config[PAIR_CLIENT].window = 1;
    p.handler = note_op;
    pair_start(&p);
    pair_open(&p);
    p.filter = drop_all;
    pair_call(&p, &last, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_call(&p, &ahead[0], MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_call(&p, &ahead[1], MR_OP_LIST, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    for (uint32_t restarts = 1; restarts <= 2; restarts++) {
        pair_restart_server(&p);
        p.filter = NULL;
        for (int turns = 0; turns < 100000 && p.events[MR_SESSION_RESTARTED] < restarts; turns++)
            pair_run(&p, 10);
        assert_int_equal(p.events[MR_SESSION_RESTARTED], restarts);
        if (restarts == 1)
            p.filter = drop_all;
    }
    pair_run(&p, 1000000);
    assert_int_equal(order_count, 2);
    mr_client_session_release(client(), p.session, p.now_us);
    pair_run(&p, 1000);
    const uint8_t expected[] = {MR_OP_LOOKUP, MR_OP_LIST, MR_OP_ECHO};
    assert_int_equal(order_count, 3);
    assert_memory_equal(order, expected, 3);
}

TEST(a_call_that_was_never_sent_whole_is_sent_after_the_restart, pair_started, pair_ended)
{
    static uint8_t data[40000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call push = {0};
    p.config[PAIR_SERVER].receive_window_bytes = 8000;
    pair_restart_server(&p);
    pair_open(&p);
    p.filter = drop_all;
    pair_call(&p, &push, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    pair_run(&p, 10000);
    pair_restart_server(&p);
    p.filter = NULL;
    pair_run(&p, 500000);
    assert_int_equal(push.ended, 1);
    assert_int_equal(push.status, MR_OK);
    assert_int_equal(p.executed, 1);
}

TEST(a_forgotten_session_is_made_anew, pair_started, pair_ended)
{
    struct pair_call push = {0}, lookup = {0};
    pair_open(&p);
    p.filter = drop_all;
    pair_run(&p, 65000000);
    p.filter = NULL;
    pair_call(&p, &lookup, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 500000);
    assert_int_equal(lookup.status, MR_OK);
    assert_int_equal(lookup.ended, 1);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    pair_call(&p, &push, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(push.status, MR_OK);
}

TEST(away_after_a_second_and_up_again, pair_started, pair_ended)
{
    struct pair_call push = {0};
    pair_open(&p);
    p.filter = drop_all;
    pair_call(&p, &push, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 900000);
    assert_int_equal(p.events[MR_SESSION_AWAY], 0);
    pair_run(&p, 600000);
    assert_int_equal(p.events[MR_SESSION_AWAY], 1);
    assert_false(up());
    pair_run(&p, 5000000);
    p.filter = NULL;
    pair_run(&p, 300000);
    assert_true(up());
    assert_int_equal(p.events[MR_SESSION_AWAY], 1);
    assert_int_equal(p.events[MR_SESSION_UP], 2);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    assert_int_equal(push.status, MR_OK);
    assert_int_equal(p.executed, 1);
}

TEST(an_unfounded_reset_changes_nothing, pair_started, pair_ended)
{
    struct pair_call save = {0};
    pair_open(&p);
    pair_call(&p, &save, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    /* The server of another incarnation resets the session; then the first one is back, as after a packet
     * went astray. */
    struct pair_end *end = &p.ends[PAIR_SERVER];
    struct mr_endpoint *right = end->ep;
    struct mr_endpoint *wrong;
    assert_int_equal(mr_endpoint_create(&p.config[PAIR_SERVER], &wrong), MR_OK);
    end->ep = wrong;
    for (int i = 0; i < 10000 && mr_endpoint_counters(wrong)->resets_sent == 0; i++)
        pair_run(&p, 1);
    assert_int_equal(mr_endpoint_counters(wrong)->resets_sent, 1);
    end->ep = right;
    pair_run(&p, 100000);
    mr_endpoint_destroy(wrong);
    assert_true(mr_endpoint_counters(client())->resets_received > 0);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    assert_int_equal(save.ended, 0);
    mr_reply_status(right, p.later[0], MR_OK);
    pair_run(&p, 100000);
    assert_int_equal(save.ended, 1);
    assert_int_equal(save.status, MR_OK);
}
