/* Who sends next: priorities, sessions in turn, messages in turn. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

#define SESSIONS 1000u
#define GREEDY   64u /* replies of the first session */

static struct mr_client_session *sessions[SESSIONS];
static struct pair_call calls[SESSIONS + GREEDY];
static uint32_t sent_to[SESSIONS], sent_of_call[GREEDY + 1]; /* segments */
static bool swallow;

static enum pair_verdict fairness_count(struct pair *pair, enum pair_side from, uint32_t n,
                                        struct pair_packet *packet)
{
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    if (h.type != MR_PACKET_DATA)
        return PAIR_PASS;
    for (uint32_t i = 0; from == PAIR_SERVER && i < SESSIONS; i++)
        if (sessions[i] != NULL && sessions[i]->peer.session_id == h.session_id)
            sent_to[i]++;
    if (h.session_id == sessions[0]->peer.session_id && h.call_id <= GREEDY)
        sent_of_call[h.call_id]++;
    return swallow && from == PAIR_SERVER ? PAIR_DROP : PAIR_PASS;
}

static void fairness_start(uint32_t n)
{
    memset(sessions, 0, sizeof(sessions));
    memset(calls, 0, sizeof(calls));
    memset(sent_to, 0, sizeof(sent_to));
    memset(sent_of_call, 0, sizeof(sent_of_call));
    swallow = false;
    pair_init(&p);
    for (int i = 0; i < 2; i++) {
        p.config[i].sessions_max = SESSIONS;
        p.config[i].calls_max = SESSIONS + GREEDY;
        p.config[i].memory_bytes = 256u << 20;
    }
    pair_start(&p);
    for (uint32_t i = 0; i < n; i++) {
        pair_open(&p);
        sessions[i] = p.session;
    }
}

static void fairness_call(uint32_t i, struct mr_client_session *session, uint8_t op, uint8_t priority,
                          uint32_t bytes)
{
    static uint8_t data[200000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, data);
    struct mr_call_options options = {
        .op = op, .priority = priority, .deadline_us = UINT64_MAX, .user = &calls[i]};
    assert_int_equal(
        mr_call_begin(p.ends[PAIR_CLIENT].ep, session, &options, &tensor, bytes > 0, &calls[i].call), MR_OK);
    mr_call_send(p.ends[PAIR_CLIENT].ep, calls[i].call, p.now_us);
}

/* Let the requests arrive, and take over the server's port: what it sends from now on is counted and lost. */
static void deliver_requests(void)
{
    mr_endpoint_flush(p.ends[PAIR_CLIENT].ep, p.now_us);
    p.now_us += PAIR_DELAY_US;
    struct pair_end *end = &p.ends[PAIR_SERVER];
    while (end->head != end->tail) {
        struct pair_packet *packet = end->queue[end->head % PAIR_QUEUE_MAX];
        mr_endpoint_receive(end->ep, p.now_us, &p.ends[PAIR_CLIENT].address, packet->data, packet->bytes);
        end->head++;
        free(packet);
    }
    p.filter = fairness_count;
    swallow = true;
}

TEST(a_greedy_session_gets_no_more_than_the_others, NULL, pair_ended)
{
    fairness_start(SESSIONS);
    p.reply_bytes = 60000;
    for (uint32_t i = 0; i < GREEDY; i++)
        fairness_call(SESSIONS + i, sessions[0], MR_OP_LOOKUP, 0, 0);
    for (uint32_t i = 1; i < SESSIONS; i++)
        fairness_call(i, sessions[i], MR_OP_LOOKUP, 0, 0);
    deliver_requests();
    for (uint32_t i = 0; i < SESSIONS; i++) /* 16 segments to each */
        mr_endpoint_poll(server(), p.now_us, 16);
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < SESSIONS; i++) {
        least = sent_to[i] < least ? sent_to[i] : least;
        most = sent_to[i] > most ? sent_to[i] : most;
    }
    assert_int_equal(least, 16);
    assert_int_equal(most, 16);
    for (uint32_t i = 0; i < SESSIONS; i++) /* and its replies share what it has */
        mr_endpoint_poll(server(), p.now_us, 16);
    uint32_t begun = 0;
    for (uint32_t i = 1; i <= GREEDY; i++) {
        assert_true(sent_of_call[i] <= 1);
        begun += sent_of_call[i];
    }
    assert_int_equal(begun, 32);
}

TEST(higher_priorities_go_first_and_leave_a_little, NULL, pair_ended)
{
    fairness_start(3);
    p.reply_bytes = 200000;
    fairness_call(0, sessions[0], MR_OP_LOOKUP, 0, 0);
    fairness_call(1, sessions[1], MR_OP_LOOKUP, 3, 0);
    fairness_call(2, sessions[2], MR_OP_LOOKUP, 7, 0);
    deliver_requests();
    mr_endpoint_poll(server(), p.now_us, 160);
    assert_int_equal(sent_to[0], 160 / MR_TURNS_PER_BULK);
    assert_int_equal(sent_to[1], 0);
    assert_int_equal(sent_to[2], 160 - 160 / MR_TURNS_PER_BULK);
    mr_endpoint_poll(server(), p.now_us, 160); /* the first has its 170 segments */
    assert_true(sent_to[1] > 100);
}

TEST(within_a_session_too, NULL, pair_ended)
{
    fairness_start(2);
    p.reply_bytes = 200000;
    fairness_call(0, sessions[0], MR_OP_LOOKUP, 0, 0);
    fairness_call(1, sessions[0], MR_OP_LOOKUP, 2, 0);
    fairness_call(2, sessions[0], MR_OP_LOOKUP, 2, 0);
    fairness_call(3, sessions[1], MR_OP_LOOKUP, 2, 0);
    deliver_requests();
    mr_endpoint_poll(server(), p.now_us, 64); /* of priority 2 the sessions share seven turns of eight, */
    assert_int_equal(sent_to[1], 28);
    assert_int_in_range(sent_of_call[calls[1].call->call_id], 13, 15); /* and the calls of one what it has, */
    assert_int_in_range(sent_of_call[calls[2].call->call_id], 13, 15);
    assert_int_equal(sent_of_call[calls[0].call->call_id],
                     64 / MR_TURNS_PER_BULK); /* and the low call has the eighth */
    memset(sent_to, 0, sizeof(sent_to));
    mr_endpoint_poll(server(), p.now_us, 32);
    assert_int_equal(sent_to[1], 14);
    mr_server_session_drop(server(), &server()->server_sessions[0]);
    assert_int_equal(mr_endpoint_poll(server(), p.now_us, 16), p.now_us);
    mr_server_session_drop(server(), &server()->server_sessions[1]);
    assert_true(mr_endpoint_poll(server(), p.now_us, 16) > p.now_us); /* nobody is left in line */
}

/* The high ones want all of the window, all the time. */
TEST(a_low_call_is_not_shut_out_by_a_short_window, NULL, pair_ended)
{
    fairness_start(0);
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_SERVER].receive_window_bytes = 20000;
    pair_start(&p);
    pair_open(&p);
    sessions[0] = p.session;
    p.filter = fairness_count;
    for (uint32_t i = 0; i < 4; i++)
        fairness_call(i, sessions[0], MR_OP_PUSH_GRAD, i == 0 ? 0 : 7, 200000);
    pair_run(&p, 1);
    uint64_t low = calls[0].call->call_id;
    while (calls[1].ended + calls[2].ended + calls[3].ended == 0) {
        pair_run(&p, 20);
        uint32_t all = sent_of_call[1] + sent_of_call[2] + sent_of_call[3] + sent_of_call[4];
        assert_int_in_range(sent_of_call[low] * MR_TURNS_PER_BULK, all * 3 / 4 - 8, all * 5 / 4 + 8);
    }
    pair_run(&p, 10000);
}

static void go_on(struct pair *pair, struct pair_call *c)
{
    if (p.executed < 1000 && calls[0].ended == 0)
        fairness_call((uint32_t)(c - calls), sessions[0], MR_OP_PUSH_GRAD, 7, 0);
}

/* Nor by a lack of slots: there is one, and a high call waits for it at all times. */
TEST(nor_by_calls_that_wait_for_a_slot, NULL, pair_ended)
{
    fairness_start(0);
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].window = 1;
    p.on_ended = go_on;
    pair_start(&p);
    pair_open(&p);
    sessions[0] = p.session;
    for (uint32_t i = 1; i <= 4; i++)
        fairness_call(i, sessions[0], MR_OP_PUSH_GRAD, 7, 0);
    fairness_call(0, sessions[0], MR_OP_PUSH_GRAD, 0, 0);
    while (calls[0].ended == 0)
        pair_run(&p, 1000);
    assert_int_in_range(p.executed, 1, 999);
    pair_run(&p, 10000);
}

TEST(a_small_reply_passes_all_large_ones, NULL, pair_ended)
{
    fairness_start(3);
    p.reply_bytes = 200000;
    for (uint32_t i = 0; i < 20; i++)
        fairness_call(i, sessions[i % 2], MR_OP_LOOKUP, 7, 0);
    deliver_requests();
    mr_endpoint_poll(server(), p.now_us, 16);
    swallow = false;
    p.filter = NULL;
    fairness_call(20, sessions[2], MR_OP_PUSH_GRAD, 0, 0);
    deliver_requests();
    mr_endpoint_flush(server(), p.now_us);
    assert_int_equal(sent_to[2], 1); /* and the large ones the rest of the flush */
}

/* Room for four segments: what comes back from its turn must not have the next one as well. */
TEST(requests_share_a_short_window, NULL, pair_ended)
{
    fairness_start(0);
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_SERVER].receive_window_bytes = 5000;
    pair_start(&p);
    pair_open(&p);
    sessions[0] = p.session;
    p.filter = fairness_count;
    for (uint32_t i = 0; i < 3; i++)
        fairness_call(i, sessions[0], MR_OP_PUSH_GRAD, 0, 200000);
    while (calls[0].ended + calls[1].ended + calls[2].ended == 0) {
        pair_run(&p, 20);
        for (uint32_t i = 2; i <= 3; i++)
            assert_int_in_range(sent_of_call[i] + 8, sent_of_call[1], sent_of_call[1] + 16);
    }
    pair_run(&p, 10000);
    assert_int_equal(calls[0].ended + calls[1].ended + calls[2].ended, 3);
}

static void start_with_share(size_t share_bytes)
{
    fairness_start(0);
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_SERVER].memory_bytes = 4u << 20;
    p.config[PAIR_SERVER].session_memory_bytes = share_bytes;
    pair_start(&p);
    for (uint32_t i = 0; i < 2; i++) {
        pair_open(&p);
        sessions[i] = p.session;
    }
}

/* It does not acknowledge what it gets. */
TEST(one_session_cannot_hold_all_memory, NULL, pair_ended)
{
    const struct mr_wire_counters *counters;
    start_with_share(0);
    counters = mr_endpoint_counters(server());
    p.reply_bytes = 100000; /* 128 KiB each */
    for (uint32_t i = 0; i < 40; i++)
        fairness_call(i, sessions[0], MR_OP_LOOKUP, 0, 0);
    deliver_requests();
    assert_int_in_range(mr_endpoint_memory_used(server()), 15u << 17, 2u << 20);
    assert_int_in_range(counters->busy_sent, 24, 25);
    assert_int_equal(counters->shares_used_up, counters->busy_sent);
    for (uint32_t i = 0; i < 10; i++)
        fairness_call(40 + i, sessions[1], MR_OP_LOOKUP, 0, 0);
    deliver_requests();
    assert_int_in_range(counters->busy_sent, 24, 25);
    assert_int_equal(p.executed, 50 - counters->busy_sent);
    p.filter = NULL;
    pair_run(&p, 3000000);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(calls[i].ended, 1);
    assert_int_equal(p.executed, 50);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    assert_int_equal(server()->server_sessions[0].memory_bytes + server()->server_sessions[1].memory_bytes,
                     0);
}

TEST(requests_and_what_is_answered_later_count_too, NULL, pair_ended)
{
    start_with_share(300000);
    for (uint32_t i = 0; i < 4; i++)
        fairness_call(i, sessions[0], MR_OP_SAVE, 0, 100000);
    pair_run(&p, 20000);
    assert_int_equal(p.later_count, 2);
    assert_true(mr_endpoint_counters(server())->shares_used_up > 0);
    assert_true(server()->server_sessions[0].memory_bytes <= 300000);
    for (uint32_t i = 0; i < 4; i++) {
        mr_reply_status(server(), p.later[i], MR_OK);
        pair_run(&p, 50000);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(calls[i].ended, 1);
    assert_int_equal(server()->server_sessions[0].memory_bytes, 0);
}

TEST(one_call_alone_may_have_more_than_the_share, NULL, pair_ended)
{
    start_with_share(10000);
    for (uint32_t i = 0; i < 3; i++)
        fairness_call(i, sessions[0], MR_OP_ECHO, 0, 200000);
    pair_run(&p, 3000000);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(calls[i].status, MR_OK);
    }
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}

/* Sessions of one address leave some of the memory for those of another, but not if there are none. */
TEST(one_address_cannot_hold_all_memory, NULL, pair_ended)
{
    enum { ALONE = 6, CALLS = 10 };
    start_with_share(0);
    mr_client_session_close(p.ends[PAIR_CLIENT].ep, sessions[1], p.now_us);
    pair_run(&p, 100000);
    p.ends[PAIR_CLIENT].address.ip[15]++;
    for (uint32_t i = 2; i <= ALONE; i++) {
        pair_open(&p);
        sessions[i] = p.session;
    }
    p.reply_bytes = 100000; /* 128 KiB each */
    for (uint32_t i = 0; i < 5 * CALLS; i++)
        fairness_call(i, sessions[2 + i / CALLS], MR_OP_LOOKUP, 0, 0);
    deliver_requests();
    assert_int_in_range(mr_endpoint_memory_used(server()), 11u << 18, 3u << 20);
    const uint64_t executed = p.executed, busy = mr_endpoint_counters(server())->busy_sent;
    assert_true(busy > 0);
    p.ends[PAIR_CLIENT].address.ip[15]--;
    for (uint32_t i = 0; i < 5; i++)
        fairness_call(5 * CALLS + i, sessions[0], MR_OP_LOOKUP, 0, 0);
    deliver_requests();
    assert_int_equal(p.executed, executed + 5);
    p.filter = NULL;
    pair_run(&p, 100000);
    mr_client_session_close(p.ends[PAIR_CLIENT].ep, sessions[0], p.now_us);
    pair_run(&p, 100000);
    p.ends[PAIR_CLIENT].address.ip[15]++;
    pair_run(&p, 3000000);
    for (uint32_t i = 0; i < 5 * CALLS + 5; i++)
        assert_int_equal(calls[i].ended, 1);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    for (uint32_t i = 0; i < 5 * CALLS; i++)
        fairness_call(6 * CALLS + i, sessions[2 + i / CALLS], MR_OP_LOOKUP, 0, 0);
    deliver_requests();
    assert_true(mr_endpoint_memory_used(server()) > 3u << 20);
}
