/* Windows at work, over a link of limited speed and a switch with a buffer. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

#define PULL_BYTES 851968u /* 13312 rows of 16 floats */
#define SESSIONS   8u

static struct slow_link {
    uint32_t bits_per_us;      /* 1000 = 1 Gb/s; 0 = no limit */
    uint32_t buffer_bytes;     /* the switch's */
    uint64_t busy_until_us[2]; /* by sender; in 1/1000 us */
    uint64_t queue_us, queue_max_us;
    uint32_t carried, dropped;
    uint32_t lose_every; /* of DATA, from either side; 0 = none is lost by chance */
    uint64_t path_us;    /* each way, on top of what the pair takes; without a limit of speed */
    bool cut[2];         /* from this side nothing gets through */
} slow_link;

static enum pair_verdict through_the_link(struct pair *pair, enum pair_side from, uint32_t n,
                                          struct pair_packet *packet)
{
    if (slow_link.cut[from])
        return PAIR_DROP;
    if (slow_link.lose_every > 0 && packet->data[3] == MR_PACKET_DATA && n % slow_link.lose_every == 0)
        return PAIR_DROP;
    if (slow_link.bits_per_us == 0) {
        pair->late_us = slow_link.path_us;
        return slow_link.path_us > 0 ? PAIR_LATE : PAIR_PASS;
    }
    uint64_t *until = &slow_link.busy_until_us[from], now = pair->now_us * 1000;
    uint64_t start = *until > now ? *until : now;
    uint64_t wait_us = (start - now) / 1000;
    if (wait_us * slow_link.bits_per_us / 8 > slow_link.buffer_bytes) {
        slow_link.dropped++;
        return PAIR_DROP;
    }
    slow_link.carried++;
    slow_link.queue_us = wait_us;
    slow_link.queue_max_us = wait_us > slow_link.queue_max_us ? wait_us : slow_link.queue_max_us;
    *until = start + (uint64_t)packet->bytes * 8000 / slow_link.bits_per_us;
    pair->late_us = (*until - now) / 1000;
    return PAIR_LATE;
}

static int setup(void **state)
{
    memset(&slow_link, 0, sizeof(slow_link));
    slow_link.buffer_bytes = UINT32_MAX;
    pair_init(&p);
    p.config[PAIR_SERVER].sessions_max = p.config[PAIR_CLIENT].sessions_max = SESSIONS;
    p.config[PAIR_SERVER].memory_bytes = p.config[PAIR_CLIENT].memory_bytes = 256u << 20;
    p.filter = through_the_link;
    pair_start(&p);
    pair_open(&p);
    return 0;
}

static const struct mr_wire_counters *counters(void)
{
    return mr_endpoint_counters(p.ends[PAIR_CLIENT].ep);
}

static const struct mr_wire_counters *server_counters(void)
{
    return mr_endpoint_counters(p.ends[PAIR_SERVER].ep);
}

static void client_window_pull(struct pair_call *c, uint32_t bytes)
{
    p.reply_bytes = bytes;
    pair_call(&p, c, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
}

static void client_window_push(struct pair_call *c, uint32_t bytes)
{
    static uint8_t data[16u << 20];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, data);
    pair_call(&p, c, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
}

/* What so many bytes take on the link, with their headers. */
static uint64_t wire_us(uint64_t bytes)
{
    uint32_t segment_bytes = p.session->peer.segment_bytes;
    return bytes * (segment_bytes + MR_HEADER_BYTES) / segment_bytes * 8 / slow_link.bits_per_us;
}

static uint64_t until_ended(const struct pair_call *c)
{
    uint64_t start_us = p.now_us;
    while (c->ended == 0 && p.now_us - start_us < 10000000)
        pair_run(&p, 10);
    assert_int_equal(c->ended, 1);
    assert_int_equal(c->status, MR_OK);
    return p.now_us - start_us;
}

/* What the first window covers needs one round trip, each further one some more; nothing of that is new. */
TEST(an_idle_network_is_used_as_without_a_window, setup, pair_ended)
{
    struct pair_call a = {0}, b = {0}, c = {0};
    slow_link.bits_per_us = 10000;
    client_window_pull(&a, PULL_BYTES);
    uint64_t us = until_ended(&a);
    assert_int_in_range(us, PULL_BYTES * 8 / 10000, PULL_BYTES * 8 / 10000 * 11 / 10);
    client_window_pull(&b, 16u << 20);
    us = until_ended(&b);
    assert_true(us < (16u << 20) * UINT64_C(8) / 10000 * 11 / 10);
    client_window_push(&c, 8u << 20);
    us = until_ended(&c);
    assert_true(us < (8u << 20) * UINT64_C(8) / 10000 * 11 / 10);
    assert_int_equal(counters()->window_delays + counters()->window_losses, 0);
    assert_int_equal(counters()->segments_repeated + counters()->segments_resent, 0);
}

/* 256 KiB through 1 Gb/s queue up for 2 ms. */
TEST(a_slow_link_is_filled_and_its_queue_kept_short, setup, pair_ended)
{
    for (int i = 0; i < 2; i++) {
        struct pair_call c = {0};
        slow_link.bits_per_us = 1000;
        slow_link.queue_max_us = 0;
        i == 0 ? client_window_pull(&c, 16u << 20) : client_window_push(&c, 16u << 20);
        pair_run(&p, 40000);
        assert_true(slow_link.queue_max_us > 1500);
        assert_true(counters()->window_delays > 0);
        slow_link.queue_max_us = 0;
        uint64_t us = until_ended(&c) + 40000;
        assert_true(slow_link.queue_max_us < 3 * MR_QUEUE_TARGET_US);
        assert_true(us < wire_us(16u << 20) * 104 / 100);
        assert_int_equal(counters()->segments_resent, 0);
    }
}

/* Eight pulls at once want eight times what the switch can hold. */
TEST(many_pulls_at_once_fit_into_the_switch, setup, pair_ended)
{
    struct pair_call calls[SESSIONS] = {0};
    struct mr_client_session *sessions[SESSIONS] = {p.session};
    for (uint32_t i = 1; i < SESSIONS; i++) {
        pair_open(&p);
        sessions[i] = p.session;
    }
    slow_link.bits_per_us = 1000;
    slow_link.buffer_bytes = 300000;
    uint32_t dropped[2];
    for (uint32_t round = 0; round < 2; round++) {
        memset(calls, 0, sizeof(calls));
        slow_link.dropped = 0;
        for (uint32_t i = 0; i < SESSIONS; i++) {
            p.session = sessions[i];
            client_window_pull(&calls[i], 4u << 20);
        }
        uint64_t start_us = p.now_us;
        for (uint32_t i = 0; i < SESSIONS; i++)
            if (calls[i].ended == 0)
                (void)until_ended(&calls[i]);
        assert_true(p.now_us - start_us < (4u << 20) * UINT64_C(8) * SESSIONS / 1000 * 115 / 100);
        dropped[round] = slow_link.dropped;
    }
    assert_true(dropped[0] > 0);
    assert_true(dropped[1] * 10 < dropped[0]); /* what was learnt is kept */
}

TEST(a_sleeping_client_is_soon_as_fast_again, setup, pair_ended)
{
    struct pair_call c = {0};
    slow_link.bits_per_us = 10000;
    client_window_pull(&c, 32u << 20);
    pair_run(&p, 1000);
    for (int i = 0; i < 3; i++) {
        p.now_us += 5000; /* nobody is polled */
        pair_run(&p, 2000);
        assert_true(p.session->replies.bytes >= p.session->replies.max_bytes / 2);
        pair_run(&p, 3000);
    }
    assert_true(counters()->window_delays <= 3);
    (void)until_ended(&c);
    assert_int_equal(p.session->replies.bytes, p.session->replies.max_bytes);
}

static void run_server_alone(uint64_t us)
{
    struct pair_end *server = &p.ends[PAIR_SERVER];
    for (uint64_t end_us = p.now_us + us; p.now_us < end_us; p.now_us += 5) {
        while (server->head != server->tail &&
               server->queue[server->head % PAIR_QUEUE_MAX]->arrives_us <= p.now_us) {
            struct pair_packet *packet = server->queue[server->head++ % PAIR_QUEUE_MAX];
            mr_endpoint_receive(server->ep, p.now_us, &p.ends[PAIR_CLIENT].address, packet->data,
                                packet->bytes);
            free(packet);
        }
        (void)mr_endpoint_poll(server->ep, p.now_us, 32);
    }
}

/* Its own lateness is no queue. It would end at four segments each time it looks, and take 7 s. */
TEST(a_client_that_looks_now_and_then_keeps_its_windows, setup, pair_ended)
{
    struct pair_call calls[2] = {0};
    slow_link.bits_per_us = 10000;
    for (int i = 0; i < 2; i++) {
        i == 0 ? client_window_pull(&calls[i], 16u << 20) : client_window_push(&calls[i], 16u << 20);
        uint64_t start_us = p.now_us;
        while (calls[i].ended == 0 && p.now_us - start_us < 1000000) {
            run_server_alone(2000);
            pair_run(&p, 1);
        }
        assert_int_equal(calls[i].ended, 1);
    }
    assert_int_equal(counters()->window_delays, 0);
}

TEST(a_request_into_the_void_starts_again_from_the_least, setup, pair_ended)
{
    struct pair_call c = {0};
    slow_link.bits_per_us = 10000;
    client_window_push(&c, 4u << 20);
    pair_run(&p, 500);
    slow_link.cut[PAIR_CLIENT] = true;
    pair_run(&p, 100000);
    slow_link.cut[PAIR_CLIENT] = false;
    uint32_t least = p.session->requests.bytes;
    while (c.ended == 0 && p.now_us < 10000000) {
        pair_run(&p, 10);
        least = p.session->requests.bytes < least ? p.session->requests.bytes : least;
    }
    assert_int_equal(c.ended, 1);
    assert_int_equal(least, MR_WINDOW_SEGMENTS_LEAST * p.session->peer.segment_bytes);
}

TEST(the_server_keeps_to_what_the_client_says, setup, pair_ended)
{
    struct mr_endpoint *server = p.ends[PAIR_SERVER].ep, *client = p.ends[PAIR_CLIENT].ep;
    struct mr_peer *peer = &server->server_sessions[0].peer;
    uint32_t all = peer->flight_limit_bytes;
    static const uint32_t says[] = {20000, 1, 0, 100000, UINT32_MAX};
    uint32_t least = MR_WINDOW_SEGMENTS_MIN * peer->segment_bytes;
    const uint32_t then[] = {20000, least, least, 100000, all};
    for (uint32_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
        struct pair_call c = {0};
        p.session->replies.bytes = says[i];
        mr_client_session_ack_slots(client, p.session, 0);
        pair_run(&p, 100);
        assert_int_equal(peer->flight_limit_bytes, then[i]);
        if (says[i] == 1) /* the next word is to find it so */
            continue;
        mr_flow_begin(client, p.session);
        client_window_pull(&c, 100000);
        (void)until_ended(&c);
    }
}

static enum pair_verdict lose_what_is_said_of_the_window(struct pair *pair, enum pair_side from, uint32_t n,
                                                         struct pair_packet *packet)
{
    uint64_t call_id;
    memcpy(&call_id, packet->data + 16, sizeof(call_id));
    return packet->data[3] == MR_PACKET_ACK && call_id == 0 ? PAIR_DROP : PAIR_PASS;
}

/* The server goes by a window of the least, the client by all it has, and takes it for known. */
TEST(a_word_about_the_window_may_be_lost, setup, pair_ended)
{
    struct mr_peer *peer = &p.ends[PAIR_SERVER].ep->server_sessions[0].peer;
    struct pair_call c = {0};
    pair_run(&p, MR_WINDOW_FORGET_US + 1000000); /* what it knew is no longer so */
    p.session->replies.bytes = MR_WINDOW_SEGMENTS_LEAST * peer->segment_bytes;
    mr_client_session_ack_slots(p.ends[PAIR_CLIENT].ep, p.session, 0);
    pair_run(&p, 100);
    p.filter = lose_what_is_said_of_the_window;
    client_window_pull(&c, 4u << 20);
    pair_run(&p, 100);
    assert_int_equal(p.session->replies.bytes, p.session->replies.max_bytes);
    p.filter = through_the_link;
    assert_true(until_ended(&c) < 20000);
}

/* The server is long at work on them; they must not hold up the next. */
TEST(requests_that_have_arrived_are_not_in_flight, setup, pair_ended)
{
    struct pair_call c = {0};
    static uint8_t data[200000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    pair_call(&p, &c, MR_OP_SAVE, &tensor, 1, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(p.later_count, 1);
    assert_int_equal(p.session->peer.flight_bytes, 0);
    assert_true(c.call->server_has);
    mr_reply_status(p.ends[PAIR_SERVER].ep, p.later[0], MR_OK);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
}

/* ---- what the path is like ---- */

/* 4 ms there and back, and nothing on the way: that is no queue. */
TEST(a_long_path_is_no_queue, setup, pair_ended)
{
    for (int i = 0; i < 2; i++) {
        struct pair_call c = {0};
        mr_client_session_close(p.ends[PAIR_CLIENT].ep, p.session, p.now_us);
        slow_link.path_us = 2000;
        pair_open(&p);
        pair_run(&p, 100000);
        i == 0 ? client_window_pull(&c, 4u << 20) : client_window_push(&c, 4u << 20);
        (void)until_ended(&c);
        assert_int_in_range(p.session->base_delay.base_us, 4000 + PAIR_DELAY_US, 4000 + 4 * PAIR_DELAY_US);
        assert_int_equal(counters()->window_delays, 0);
        assert_int_equal(counters()->segments_resent + counters()->segments_repeated, 0);
    }
}

/* The same in the first second of the machine's clock, where all tests of this file are, and an hour
 * later. */
TEST(the_path_is_known_at_any_time_of_the_clock, setup, pair_ended)
{
    for (int i = 0; i < 2; i++) {
        struct pair_call c = {0};
        client_window_pull(&c, PULL_BYTES);
        (void)until_ended(&c);
        assert_int_in_range(p.session->base_delay.base_us, PAIR_DELAY_US, 4 * PAIR_DELAY_US);
        pair_run(&p, UINT64_C(3600000000));
    }
}

TEST(many_losses_shrink_the_window_of_their_direction, setup, pair_ended)
{
    for (int i = 0; i < 2; i++) {
        struct pair_call c = {0};
        pair_run(&p, MR_WINDOW_FORGET_US + 1000000);
        mr_flow_begin(p.ends[PAIR_CLIENT].ep, p.session);
        const struct mr_window *w = i == 0 ? &p.session->replies : &p.session->requests;
        uint64_t before = counters()->window_losses;
        slow_link.bits_per_us = 10000;
        slow_link.lose_every = 8;
        i == 0 ? client_window_pull(&c, 2u << 20) : client_window_push(&c, 2u << 20);
        uint32_t least = w->bytes;
        while (c.ended == 0) {
            pair_run(&p, 10);
            least = w->bytes < least && w->kept_bytes == 0 ? w->bytes : least;
        }
        slow_link.lose_every = 0;
        assert_int_equal(c.status, MR_OK);
        assert_true(counters()->window_losses > before);
        assert_true(least <= w->max_bytes / 2);
    }
}

/* ---- what is sent again ---- */

static uint32_t lost_at, resends;

static enum pair_verdict lose_one_segment(struct pair *pair, enum pair_side from, uint32_t n,
                                          struct pair_packet *packet)
{
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    resends += h.type == MR_PACKET_RESEND;
    if (h.type == MR_PACKET_DATA && h.segment_number == lost_at && lost_at > 0) {
        lost_at = 0;
        return PAIR_DROP;
    }
    return through_the_link(pair, from, n, packet);
}

/* One of a thousand is lost, and asked for once in a round trip, of which there are two at most as its queue
 * grows: not with each that arrives after it. Each time it is sent again, and with it the last one sent, of
 * which the server cannot know what became of it. */
TEST(one_loss_is_one_segment_sent_again, setup, pair_ended)
{
    p.filter = lose_one_segment;
    slow_link.bits_per_us = 10000;
    for (uint32_t i = 0; i < 20; i++) {
        struct pair_call a = {0}, b = {0};
        uint64_t before[2] = {counters()->segments_resent, server_counters()->segments_resent};
        resends = 0;
        lost_at = 1 + 7 * i;
        client_window_pull(&a, 1u << 20);
        (void)until_ended(&a);
        assert_int_in_range(resends, 1, 2);
        assert_int_in_range(server_counters()->segments_resent - before[1], 1, 2 * resends);
        lost_at = 1 + 7 * i;
        client_window_push(&b, 1u << 20);
        (void)until_ended(&b);
        assert_int_in_range(counters()->segments_resent - before[0], 1, 2); /* and perhaps a probe's */
    }
    assert_true(counters()->segments_repeated <= 3 * 20);
}

static enum pair_verdict lose_the_last_acks(struct pair *pair, enum pair_side from, uint32_t n,
                                            struct pair_packet *packet)
{
    struct mr_packet_header h;
    struct mr_ack ack;
    memcpy(&h, packet->data, sizeof(h));
    memcpy(&ack, packet->data + MR_HEADER_BYTES, sizeof(ack));
    if (from == PAIR_CLIENT && h.type == MR_PACKET_ACK && (h.call_id == 0 || ack.received_bytes == 100000))
        return PAIR_DROP;
    return PAIR_PASS;
}

/* Replies that have come, and of which the server does not know it, fill what may be in flight. Each further
 * one goes on by a segment at a time. */
TEST(a_reply_goes_on_while_others_fill_the_window, setup, pair_ended)
{
    struct pair_call calls[4] = {0}, last = {0};
    p.filter = lose_the_last_acks;
    for (uint32_t i = 0; i < 4; i++)
        client_window_pull(&calls[i], 100000 - 64);
    pair_run(&p, 5000);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(calls[i].ended, 1);
    struct mr_peer *peer = &p.ends[PAIR_SERVER].ep->server_sessions[0].peer;
    peer->flight_limit_bytes = 4 * peer->segment_bytes;
    assert_true(peer->flight_bytes > peer->flight_limit_bytes);
    client_window_pull(&last, 50000);
    pair_run(&p, 1000000);
    assert_int_equal(last.ended, 1);
}

/* ---- between sessions ---- */

#define SHARERS    4u
#define LATE_US    100000u /* each begins so long after the one before */
#define SHARING_US 1000000u

static struct sharer {
    struct pair_call call;
    struct mr_client_session *session;
    uint64_t ended_bytes;
} sharers[SHARERS];
static bool sharers_push;

static void go_on(struct sharer *sharer)
{
    sharer->call = (struct pair_call){0};
    p.session = sharer->session;
    sharers_push ? client_window_push(&sharer->call, 4u << 20) : client_window_pull(&sharer->call, 4u << 20);
}

static void sharer_ended(struct pair *pair, struct pair_call *c)
{
    struct sharer *sharer = MR_CONTAINER(c, struct sharer, call);
    sharer->ended_bytes += 4u << 20;
}

static void share_for(uint64_t us, uint32_t begun)
{
    for (uint64_t end_us = p.now_us + us; p.now_us < end_us;) {
        pair_run(&p, 20);
        for (uint32_t i = 0; i < begun; i++)
            if (sharers[i].call.ended > 0)
                go_on(&sharers[i]);
    }
}

/* Who comes late finds the queue of those before him, and must not take it for the path: his share would be
 * theirs. */
TEST(latecomers_share_the_link, setup, pair_ended)
{
    slow_link.bits_per_us = 2500;
    p.on_ended = sharer_ended;
    memset(sharers, 0, sizeof(sharers));
    for (uint32_t i = 0; i < SHARERS; i++) {
        pair_open(&p);
        sharers[i].session = p.session;
        go_on(&sharers[i]);
        share_for(LATE_US, i + 1);
    }
    share_for(SHARING_US, SHARERS);
    for (uint32_t i = 0; i < SHARERS; i++)
        sharers[i].ended_bytes = 0;
    slow_link.queue_max_us = 0;
    share_for(SHARING_US, SHARERS);
    uint64_t all = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < SHARERS; i++) {
        all += sharers[i].ended_bytes;
        least = sharers[i].ended_bytes < least ? sharers[i].ended_bytes : least;
    }
    assert_true(least * SHARERS > all * 8 / 10);
    assert_true(all > (uint64_t)SHARING_US / 8 * slow_link.bits_per_us * 85 / 100);
    assert_true(slow_link.queue_max_us < 3 * MR_QUEUE_TARGET_US);
    for (uint32_t i = 0; i < SHARERS; i++)
        mr_client_session_close(p.ends[PAIR_CLIENT].ep, sharers[i].session, p.now_us);
}

TEST(latecomers_that_push_share_it_too, setup, pair_ended)
{
    sharers_push = true;
    latecomers_share_the_link(state);
    sharers_push = false;
}
