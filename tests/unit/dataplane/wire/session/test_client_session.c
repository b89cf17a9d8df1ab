#include <string.h>

#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

TEST(calls_made_before_it_is_up_wait, pair_started, pair_ended)
{
    struct pair_call call = {0};
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &p.session),
                     MR_OK);
    pair_call(&p, &call, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(call.ended, 1);
    assert_int_equal(call.status, MR_OK);
}

TEST(two_sessions_to_one_core_do_not_mix, pair_started, pair_ended)
{
    struct mr_client_session *other;
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &other), MR_OK);
    pair_open(&p);
    pair_run(&p, 100000);
    struct mr_client_session_info info;
    mr_client_session_info(other, &info);
    assert_true(info.up && up());
    assert_int_equal(session_count(p.ends[PAIR_SERVER].ep), 2);
}

TEST(an_idle_session_finds_out_about_a_restart, pair_started, pair_ended)
{
    pair_open(&p);
    pair_run(&p, 1000000);
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    assert_true(up());
    struct mr_client_session_info info;
    mr_client_session_info(p.session, &info);
    assert_int_equal(info.incarnation, 8);
}

TEST(an_idle_client_with_another_address_keeps_its_session, pair_started, pair_ended)
{
    pair_open(&p);
    pair_run(&p, 1000000);
    p.ends[PAIR_CLIENT].address.port++;
    pair_run(&p, 120000000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    assert_int_equal(mr_endpoint_counters(p.ends[PAIR_SERVER].ep)->sessions_expired, 0);
    assert_int_equal(mr_endpoint_counters(p.ends[PAIR_SERVER].ep)->sessions_accepted, 1);
}

/* What the client has sent waits to be read. */
TEST(a_server_that_stood_still_keeps_its_sessions, pair_started, pair_ended)
{
    struct pair_end *server = &p.ends[PAIR_SERVER];
    pair_open(&p);
    server->stands_still = true;
    pair_run(&p, 100000000);
    server->stands_still = false;
    (void)mr_endpoint_poll(server->ep, p.now_us, 32);
    pair_run(&p, 100000000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    assert_int_equal(mr_endpoint_counters(server->ep)->sessions_expired, 0);
    assert_int_equal(mr_endpoint_counters(server->ep)->sessions_accepted, 1);
}

static enum pair_verdict drop_pings(struct pair *pair, enum pair_side from, uint32_t n,
                                    struct pair_packet *packet)
{
    return packet->data[3] == MR_PACKET_PING ? PAIR_DROP : PAIR_PASS;
}

TEST(so_does_one_whose_key_was_changed_just_then, pair_started, pair_ended)
{
    uint8_t keys[2][MR_PSK_BYTES] = {{77}};
    pair_open(&p);
    pair_run(&p, 1000000);
    memcpy(keys[1], p.config[PAIR_SERVER].psk[0], MR_PSK_BYTES);
    p.filter = drop_pings;
    mr_endpoint_set_keys(p.ends[PAIR_SERVER].ep, (const uint8_t(*)[MR_PSK_BYTES])keys, 2, p.now_us);
    mr_endpoint_set_keys(client(), (const uint8_t(*)[MR_PSK_BYTES])keys, 1, p.now_us);
    pair_run(&p, 30000);
    p.filter = NULL;
    p.ends[PAIR_CLIENT].address.port++;
    pair_run(&p, 50000000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
    uint64_t sent = mr_endpoint_counters(client())->tx_packets;
    pair_run(&p, 50000000);
    assert_int_in_range(mr_endpoint_counters(client())->tx_packets - sent, 5, 20); /* keep-alives */
    assert_int_equal(mr_endpoint_counters(p.ends[PAIR_SERVER].ep)->sessions_accepted, 1);
}

TEST(close_says_bye_and_ends_calls, pair_started, pair_ended)
{
    struct pair_call a = {0}, b = {0};
    pair_open(&p);
    pair_call(&p, &a, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    pair_call(&p, &b, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    mr_client_session_close(client(), p.session, p.now_us);
    assert_int_equal(a.ended, 1);
    assert_int_equal(a.status, MR_CANCELLED);
    assert_int_equal(b.ended, 1);
    assert_int_equal(b.status, MR_CANCELLED);
    assert_int_equal(session_count(client()), 0);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    pair_run(&p, 1000);
    assert_int_equal(session_count(p.ends[PAIR_SERVER].ep), 0);
    assert_false(mr_call_ref_alive(p.ends[PAIR_SERVER].ep, p.later[0]));
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    assert_int_equal(mr_endpoint_memory_used(p.ends[PAIR_SERVER].ep), 0);
}

static void close_in_event(struct pair *pair, enum mr_client_session_event event)
{
    if (event != MR_SESSION_AWAY && event != MR_SESSION_RESTARTED)
        return;
    mr_client_session_close(pair->ends[PAIR_CLIENT].ep, pair->session, pair->now_us);
    pair->session = NULL;
}

TEST(a_handler_may_close_the_session, pair_started, pair_ended)
{
    struct pair_call calls[4] = {0};
    for (int restart = 0; restart < 2; restart++) {
        p.on_event = NULL;
        pair_open(&p);
        for (int i = 0; i < 4; i++)
            pair_call(&p, &calls[i], i % 2 == 0 ? MR_OP_PUSH_GRAD : MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
        p.filter = drop_all;
        p.on_event = close_in_event;
        pair_run(&p, 500000);
        if (restart == 1) {
            pair_restart_server(&p);
            p.filter = NULL;
        }
        pair_run(&p, 3000000);
        p.filter = NULL;
        assert_null(p.session);
        for (int i = 0; i < 4; i++)
            assert_int_equal(calls[i].ended, restart + 1);
        assert_int_equal(mr_endpoint_memory_used(client()), 0);
    }
}

/* ---- what the server keeps of calls that are over ---- */

static enum pair_verdict drop_acks_of_replies(struct pair *pair, enum pair_side from, uint32_t n,
                                              struct pair_packet *packet)
{
    uint64_t call_id;
    memcpy(&call_id, packet->data + 16, sizeof(call_id));
    bool ack = from == PAIR_CLIENT && packet->data[3] == MR_PACKET_ACK && call_id != 0;
    return ack ? PAIR_DROP : PAIR_PASS;
}

TEST(a_large_reply_is_given_back_though_its_last_ack_is_lost, pair_started, pair_ended)
{
    struct pair_call call = {0};
    pair_open(&p);
    pair_run(&p, 100000); /* the next keep-alive is far away */
    p.filter = drop_acks_of_replies;
    p.reply_bytes = 20000;
    pair_call(&p, &call, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(call.ended, 1);
    assert_true(mr_endpoint_memory_used(p.ends[PAIR_SERVER].ep) > 20000);
    pair_run(&p, 300000);
    assert_int_equal(mr_endpoint_memory_used(p.ends[PAIR_SERVER].ep), 0);
}

TEST(what_came_of_a_request_given_up_is_given_back, pair_started, pair_ended)
{
    struct pair_call call = {0};
    static uint8_t data[4u << 20];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    pair_open(&p);
    pair_run(&p, 100000);
    pair_call(&p, &call, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    pair_run(&p, 100);
    assert_true(mr_endpoint_memory_used(p.ends[PAIR_SERVER].ep) > sizeof(data));
    mr_call_cancel(client(), call.call);
    pair_run(&p, 300000);
    assert_int_equal(call.status, MR_CANCELLED);
    assert_int_equal(p.executed, 0);
    assert_int_equal(mr_endpoint_memory_used(p.ends[PAIR_SERVER].ep), 0);
}

static uint32_t slot_acks;

static enum pair_verdict count_slot_acks(struct pair *pair, enum pair_side from, uint32_t n,
                                         struct pair_packet *packet)
{
    struct mr_packet_header header;
    const uint8_t *payload;
    if (from == PAIR_CLIENT &&
        mr_packet_parse(packet->data, packet->bytes, &header, &payload) == MR_DROP_NONE)
        slot_acks += header.type == MR_PACKET_ACK && header.call_id == 0;
    return PAIR_PASS;
}

/* A little after the first of them, however many end meanwhile. */
TEST(calls_that_are_over_are_acknowledged_soon, pair_started, pair_ended)
{
    enum { CALLS = 10, EACH_US = 5000, SOON_US = 25000 };
    struct pair_call calls[CALLS] = {{0}};
    pair_open(&p);
    pair_run(&p, 1000000);
    p.filter = count_slot_acks;
    slot_acks = 0;
    for (uint32_t i = 0; i < CALLS; i++) {
        pair_call(&p, &calls[i], MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
        pair_run(&p, EACH_US);
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(slot_acks, (i + 1) * EACH_US >= SOON_US);
    }
}

TEST(sessions_max_is_a_bound, pair_started, pair_ended)
{
    struct mr_client_session *s;
    for (uint32_t i = 0; i < p.config[PAIR_CLIENT].sessions_max; i++)
        assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &s), MR_OK);
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &s),
                     MR_NO_MEMORY);
    mr_client_session_close(client(), s, p.now_us);
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, 0, NULL, &s), MR_OK);
    assert_int_equal(mr_client_session_open(client(), &p.ends[PAIR_SERVER].address, MR_CORE_MAX, NULL, &s),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(
        mr_client_session_open(p.ends[PAIR_SERVER].ep, &p.ends[PAIR_SERVER].address, 0, NULL, &s),
        MR_INVALID_ARGUMENT);
}
