#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

static uint8_t large[60000];

static void client_rx_start(void)
{
    pair_init(&p);
    p.config[PAIR_CLIENT].receive_window_bytes = 16000;
    p.config[PAIR_SERVER].receive_window_bytes = 16000;
    pair_start(&p);
    pair_open(&p);
    p.wire_packets = 0;
    for (uint32_t i = 0; i < sizeof(large); i++)
        large[i] = (uint8_t)(i * 13 + (i >> 9));
}

static int setup(void **state)
{
    client_rx_start();
    return 0;
}

/* For tests that start pairs of their own, and leave one behind. */
static int no_setup(void **state)
{
    return 0;
}

/* One echo of `bytes`, which must come back whole, having executed once, within `limit_us`; nothing may be
 * left. */
static void echo(uint32_t bytes, uint64_t limit_us)
{
    struct pair_call c = {.keep = true};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, large);
    uint32_t executed = p.executed;
    pair_call(&p, &c, MR_OP_ECHO, &tensor, 1, UINT64_MAX);
    pair_run(&p, limit_us);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, executed + 1);
    assert_int_equal(c.tensors[0].bytes, bytes);
    assert_memory_equal(c.tensors[0].data, large, bytes);
    mr_call_free(client(), c.call);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

static void nothing_left(void)
{
    p.filter = NULL;
    pair_run(&p, 12000000);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 0);
}

static enum pair_verdict drop_some(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    uint32_t at = pair->wire_packets - 1;
    return at >= pair->drop_from && at < pair->drop_from + pair->drop_n ? PAIR_DROP : PAIR_PASS;
}

static enum pair_verdict twice(struct pair *pair, enum pair_side from, uint32_t n, struct pair_packet *packet)
{
    return PAIR_TWICE;
}

static enum pair_verdict late_one(struct pair *pair, enum pair_side from, uint32_t n,
                                  struct pair_packet *packet)
{
    return pair->wire_packets - 1 == pair->drop_from ? PAIR_LATE : PAIR_PASS;
}

static enum pair_verdict damage_one(struct pair *pair, enum pair_side from, uint32_t n,
                                    struct pair_packet *packet)
{
    if (pair->wire_packets - 1 == pair->drop_from && packet->data[3] == MR_PACKET_DATA)
        packet->data[packet->bytes - 1] ^= 0x40;
    return PAIR_PASS;
}

static enum pair_verdict shuffle(struct pair *pair, enum pair_side from, uint32_t n,
                                 struct pair_packet *packet)
{
    pair->late_us = (uint64_t)rand() % 300;
    return PAIR_LATE;
}

static uint32_t client_acks;

static enum pair_verdict count_acks(struct pair *pair, enum pair_side from, uint32_t n,
                                    struct pair_packet *packet)
{
    client_acks += from == PAIR_CLIENT && packet->data[3] == MR_PACKET_ACK;
    return PAIR_PASS;
}

/* More than an eighth of the window of 16000 bytes: until then it counts as in flight. */
TEST(a_long_reply_is_acknowledged_at_once, setup, pair_ended)
{
    p.filter = count_acks;
    client_acks = 0;
    echo(2100, 500);
    assert_int_equal(client_acks, 1);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    nothing_left();
}

TEST(short_replies_are_acknowledged_together, setup, pair_ended)
{
    p.filter = count_acks;
    client_acks = 0;
    echo(1500, 500);
    assert_int_equal(client_acks, 0);
    assert_int_not_equal(mr_endpoint_memory_used(server()), 0);
    echo(1500, 500); /* the two are more than an eighth: the first is acknowledged */
    assert_int_equal(client_acks, 1);
    pair_run(&p, MR_SLOTS_ACK_US + 5000);
    assert_int_equal(client_acks, 2);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    nothing_left();
}

static uint32_t packets_of(uint32_t bytes)
{
    client_rx_start();
    echo(bytes, 500);
    uint32_t packets = p.wire_packets;
    pair_stop(&p);
    return packets;
}

static const uint32_t sizes[] = {10, 1100, 3000, 60000};

/* Every single packet of an exchange is lost, comes late, or is damaged, once. */
static void any_one_packet(pair_filter filter, uint64_t late_us)
{
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        uint32_t packets = packets_of(sizes[s]);
        for (uint32_t n = 0; n < packets; n++) {
            client_rx_start();
            p.filter = filter;
            p.drop_from = n;
            p.drop_n = 1;
            p.late_us = late_us;
            echo(sizes[s], 30000);
            nothing_left();
            pair_stop(&p);
        }
    }
    client_rx_start();
}

TEST(any_one_packet_may_be_lost, no_setup, pair_ended)
{
    any_one_packet(drop_some, 0);
}

TEST(any_one_packet_may_be_late, no_setup, pair_ended)
{
    any_one_packet(late_one, 5000);
}

TEST(any_one_packet_may_be_damaged, no_setup, pair_ended)
{
    any_one_packet(damage_one, 0);
}

TEST(any_run_of_packets_may_be_lost, no_setup, pair_ended)
{
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        uint32_t packets = packets_of(sizes[s]);
        for (uint32_t n = 0; n < packets; n += 3) {
            client_rx_start();
            p.filter = drop_some;
            p.drop_from = n;
            p.drop_n = 20;
            echo(sizes[s], 2000000);
            nothing_left();
            pair_stop(&p);
        }
    }
    client_rx_start();
}

TEST(all_may_come_twice_and_in_any_order, setup, pair_ended)
{
    p.filter = twice;
    echo(10, 1000);
    echo(60000, 2000);
    srand(3);
    p.filter = shuffle;
    echo(10, 2000);
    for (int i = 0; i < 20; i++)
        echo(60000, 50000);
    nothing_left();
}

static enum pair_verdict lose_fifth(struct pair *pair, enum pair_side from, uint32_t n,
                                    struct pair_packet *packet)
{
    return rand() % 5 == 0 ? PAIR_DROP : PAIR_PASS;
}

TEST(heavy_loss_is_survived, setup, pair_ended)
{
    srand(11);
    p.filter = lose_fifth;
    for (int i = 0; i < 30; i++)
        echo(i % 2 == 0 ? 100 : 60000, 3000000);
    p.filter = NULL;
    pair_run(&p, 12000000);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}

TEST(one_lost_packet_costs_one_packet, no_setup, pair_ended)
{
    uint32_t packets = packets_of(60000);
    client_rx_start();
    p.filter = drop_some;
    p.drop_from = 20;
    p.drop_n = 1;
    echo(60000, 30000);
    const struct mr_wire_counters *c = mr_endpoint_counters(client()), *s = mr_endpoint_counters(server());
    assert_int_in_range(c->segments_resent + s->segments_resent, 1, 3);
    assert_int_in_range(p.wire_packets, packets + 1, packets + 8);
}

static void start_with(uint32_t memory_bytes)
{
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].memory_bytes = memory_bytes;
    pair_start(&p);
    pair_open(&p);
}

/* Waiting would not help: it needs more than half, whatever else there is. */
TEST(a_reply_that_cannot_fit_ends_its_call_at_once, setup, pair_ended)
{
    start_with(256u << 10);
    struct pair_call a = {0}, other = {0};
    pair_call(&p, &other, MR_OP_SAVE, NULL, 0, UINT64_MAX); /* goes on */
    p.reply_bytes = 300000;
    pair_call(&p, &a, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    a.keep = true;
    pair_run(&p, 1000);
    assert_int_equal(a.ended, 1);
    assert_int_equal(a.status, MR_NO_MEMORY);
    assert_int_in_range(mr_call_unread_bytes(a.call), 300000, 300200);
    mr_call_free(client(), a.call);
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    pair_run(&p, 1000);
    assert_int_in_range(p.ends[PAIR_SERVER].sent, sent, sent + 2); /* and the server does not go on sending */
    assert_true(mr_endpoint_memory_used(server()) < 300000);       /* nor keeps it */
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_run(&p, 300000);
    assert_int_equal(other.status, MR_OK);
    assert_int_equal(p.executed, 2);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    echo(50000, 30000); /* the session is as good as before */
}

static enum pair_verdict drop_later_segments(struct pair *pair, enum pair_side from, uint32_t n,
                                             struct pair_packet *packet)
{
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    return from == PAIR_SERVER && h.type == MR_PACKET_DATA && h.segment_number > 0 ? PAIR_DROP : PAIR_PASS;
}

/* One segment is enough: no other may come to be answered. */
TEST(the_server_hears_at_once_of_a_reply_that_cannot_fit, setup, pair_ended)
{
    start_with(256u << 10);
    struct pair_call a = {0};
    p.reply_bytes = 300000;
    p.filter = drop_later_segments;
    pair_call(&p, &a, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(a.status, MR_NO_MEMORY);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}

/* What is taken is in replies that the user holds: he may well wait for this one before he lets go of
 * them. */
TEST(replies_that_are_held_do_not_hold_up_others, setup, pair_ended)
{
    start_with(80u << 10);
    struct pair_call a = {.keep = true}, b = {0};
    p.reply_bytes = 40000;
    pair_call(&p, &a, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(a.status, MR_OK);
    pair_call(&p, &b, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(b.ended, 1);
    assert_int_equal(b.status, MR_NO_MEMORY);
    mr_call_free(client(), a.call);
    struct pair_call c = {0};
    pair_call(&p, &c, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 300000);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, 3);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

/* Calls on their way leave room when they end, so that one reply after another finds it. */
TEST(replies_wait_for_calls_on_their_way, setup, pair_ended)
{
    enum { CALLS = 12 };
    start_with(128u << 10);
    struct pair_call calls[CALLS] = {{0}};
    p.reply_bytes = 40000; /* two at once have room */
    for (uint32_t i = 0; i < CALLS; i++)
        pair_call(&p, &calls[i], MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 5000000);
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(calls[i].status, MR_OK);
    }
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

TEST(a_user_who_left_does_not_get_the_reply, setup, pair_ended)
{
    struct pair_call c = {0};
    p.reply_bytes = 60000;
    pair_call(&p, &c, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 2 * PAIR_DELAY_US);
    mr_call_cancel(client(), c.call);
    assert_int_equal(c.ended, 1);
    pair_run(&p, 300000);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
    echo(100, 1000);
}

TEST(nonsense_from_the_server_is_dropped, setup, pair_ended)
{
    uint8_t packet[MR_HEADER_BYTES + 64] = {0};
    struct pair_call c = {0};
    pair_call(&p, &c, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    static const struct {
        uint64_t call_id;
        uint32_t message_bytes;
        uint16_t segment_bytes, segment_number, bytes, flags;
        uint8_t type;
    } bad[] = {
        {1, 64, 0, 1, 64, MR_FLAG_REPLY, MR_PACKET_DATA},
        {1, 8, 0, 0, 8, MR_FLAG_REPLY, MR_PACKET_DATA},
        {1, UINT32_MAX, 0, 0, 64, MR_FLAG_REPLY, MR_PACKET_DATA},
        {2, 64, 0, 0, 64, MR_FLAG_REPLY, MR_PACKET_DATA},
        {0, 64, 0, 0, 64, MR_FLAG_REPLY, MR_PACKET_DATA},
        {1, 5000, 64, 3, 64, MR_FLAG_REPLY, MR_PACKET_DATA},
        {99, 0, 0, 0, 0, 0, MR_PACKET_BUSY},
        {99, 0, 0, 0, 48, 0, MR_PACKET_ACK},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct mr_packet_header h = {.magic = MR_MAGIC,
                                     .version = MR_PROTOCOL_VERSION,
                                     .type = bad[i].type,
                                     .flags = bad[i].flags,
                                     .payload_bytes = bad[i].bytes,
                                     .session_id = p.session->peer.session_id,
                                     .call_id = bad[i].call_id,
                                     .message_bytes = bad[i].message_bytes,
                                     .segment_bytes = bad[i].segment_bytes,
                                     .segment_number = bad[i].segment_number,
                                     .incarnation = p.session->peer.incarnation,
                                     .clock_us = (uint32_t)p.now_us,
                                     .number = next_number(PAIR_SERVER)};
        memcpy(packet, &h, sizeof(h));
        mr_tag_write(&p.session->peer.key, packet, MR_HEADER_BYTES + bad[i].bytes);
        const struct mr_wire_counters *k = mr_endpoint_counters(client());
        uint64_t before = k->drop_range + k->drop_stale;
        pair_inject(&p, PAIR_CLIENT, packet, MR_HEADER_BYTES + bad[i].bytes);
        assert_int_equal(k->drop_range + k->drop_stale, before + 1);
        assert_int_equal(c.ended, 0);
    }
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_run(&p, 300000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

/* A server of another make answers with what no message is. It would be no better the next time. */
TEST(a_malformed_reply_ends_the_call, setup, pair_ended)
{
    static uint8_t reply[3000], packet[MR_UDP_BYTES_MAX];
    const struct mr_preamble preamble = {.op = MR_OP_SAVE, .tensor_count = 1}; /* of no type */
    memcpy(reply, &preamble, sizeof(preamble));
    static const uint32_t lengths[] = {32, 100, 3000};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct pair_call c = {0};
        pair_call(&p, &c, MR_OP_SAVE, NULL, 0, UINT64_MAX);
        pair_run(&p, 100);
        uint32_t segment_bytes = p.session->peer.segment_bytes;
        for (uint32_t offset = 0; offset < lengths[i]; offset += segment_bytes) {
            uint32_t left = lengths[i] - offset, bytes = left < segment_bytes ? left : segment_bytes;
            struct mr_packet_header h = {.magic = MR_MAGIC,
                                         .version = MR_PROTOCOL_VERSION,
                                         .type = MR_PACKET_DATA,
                                         .flags = MR_FLAG_REPLY,
                                         .payload_bytes = (uint16_t)bytes,
                                         .session_id = p.session->peer.session_id,
                                         .call_id = i + 1,
                                         .message_bytes = lengths[i],
                                         .segment_bytes =
                                             (uint16_t)(lengths[i] > segment_bytes ? segment_bytes : 0),
                                         .segment_number = (uint16_t)(offset / segment_bytes),
                                         .incarnation = p.session->peer.incarnation,
                                         .clock_us = (uint32_t)p.now_us,
                                         .number = next_number(PAIR_SERVER)};
            memcpy(packet, &h, sizeof(h));
            memcpy(packet + sizeof(h), reply + offset, bytes);
            mr_tag_write(&p.session->peer.key, packet, sizeof(h) + bytes);
            pair_inject(&p, PAIR_CLIENT, packet, (uint32_t)sizeof(h) + bytes);
        }
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_BAD_MESSAGE);
        assert_int_equal(mr_endpoint_counters(client())->drop_message, i + 1);
        assert_int_equal(mr_endpoint_memory_used(client()), 0);
        mr_reply_status(server(), p.later[i], MR_OK);
        pair_run(&p, 1000);
        assert_int_equal(c.ended, 1);
    }
}

static void always_busy(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    mr_reply_busy(ep, request->ref);
}

/* 200 us, doubling up to 12.8 ms, each between a half and one and a half: a server that has no memory is not
 * asked all the time. */
TEST(a_busy_server_is_asked_less_and_less, setup, pair_ended)
{
    struct pair_call c = {0};
    p.handler = always_busy;
    pair_call(&p, &c, MR_OP_ECHO, NULL, 0, p.now_us + 1000000);
    pair_run(&p, 20000);
    assert_int_in_range(mr_endpoint_counters(client())->busy_received, 4, 10);
    pair_run(&p, 1100000);
    assert_int_in_range(mr_endpoint_counters(client())->busy_received, 1000000 / 19200, 1000000 / 6400 + 10);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_BUSY);
}

#define BUSY_FOR_US 400000u

static uint64_t busy_until_us;

static void busy_for_a_while(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    if (((struct pair *)app)->now_us < busy_until_us)
        mr_reply_busy(ep, request->ref);
    else
        pair_serve(app, ep, request);
}

static enum pair_verdict first_request_is_late(struct pair *pair, enum pair_side from, uint32_t n,
                                               struct pair_packet *packet)
{
    bool request = from == PAIR_CLIENT && packet->data[3] == MR_PACKET_DATA;
    return request && pair->drop_n++ < pair->drop_from ? PAIR_LATE : PAIR_PASS;
}

/* A first copy of the request, or of all its segments, is on its way for long; another one, which asks after
 * it, is refused until the deadline. What was refused must not be executed when the first comes in, and the
 * caller must hear that it was not. */
TEST(a_call_refused_until_its_deadline_never_executes, no_setup, pair_ended)
{
    for (uint32_t bytes = 10; bytes < sizeof(large) / 2; bytes += 3000) {
        struct pair_call c = {0}, next = {0};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, large);
        client_rx_start();
        busy_until_us = p.now_us + BUSY_FOR_US;
        p.handler = busy_for_a_while;
        p.filter = first_request_is_late;
        p.late_us = 2 * BUSY_FOR_US;
        p.drop_from = bytes / MR_SEGMENT_BYTES_MIN + 1;
        p.drop_n = 0;
        pair_call(&p, &c, MR_OP_PUSH_GRAD, &tensor, 1, p.now_us + BUSY_FOR_US * 3 / 4);
        pair_run(&p, BUSY_FOR_US);
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_BUSY);
        pair_run(&p, 3 * BUSY_FOR_US);
        assert_int_equal(p.executed, 0);
        pair_call(&p, &next, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
        pair_run(&p, 1000000);
        assert_int_equal(next.status, MR_OK);
        assert_int_equal(p.executed, 1);
        nothing_left();
        pair_stop(&p);
    }
}

static enum pair_verdict one_refusal_then_silence(struct pair *pair, enum pair_side from, uint32_t n,
                                                  struct pair_packet *packet)
{
    if (from == PAIR_SERVER && packet->data[3] == MR_PACKET_BUSY)
        return PAIR_PASS;
    return from == PAIR_SERVER ? PAIR_DROP : PAIR_PASS;
}

/* Refused once, and perhaps executed then. */
TEST(a_refusal_says_nothing_of_the_next_try, setup, pair_ended)
{
    struct pair_call c = {0};
    busy_until_us = p.now_us + 200;
    p.handler = busy_for_a_while;
    p.filter = one_refusal_then_silence;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 20000);
    pair_run(&p, 30000);
    assert_true(mr_endpoint_counters(client())->busy_received > 0);
    assert_int_equal(p.executed, 1);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_UNKNOWN_OUTCOME);
}

/* Nor of what the server before made of it. */
TEST(a_refusal_says_nothing_of_another_session, no_setup, pair_ended)
{
    for (uint32_t sent_before = 0; sent_before < 2; sent_before++) {
        struct pair_call c = {.sequence = 1};
        client_rx_start();
        p.filter = sent_before ? drop_replies : drop_all;
        pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, p.now_us + 8000000);
        pair_run(&p, 10000);
        assert_int_equal(p.executed, sent_before);
        p.filter = NULL;
        p.handler = always_busy;
        pair_restart_server(&p);
        pair_run(&p, 9000000);
        assert_int_equal(c.ended, 1);
        assert_true(mr_endpoint_counters(client())->busy_received > 0);
        /* Sent whole into the void or not: the first server may have had it. */
        assert_int_equal(c.status, MR_DEADLINE_EXCEEDED);
        pair_stop(&p);
    }
}

TEST(nothing_comes_of_a_refused_id, setup, pair_ended)
{
    struct pair_call c = {0};
    busy_until_us = p.now_us + BUSY_FOR_US;
    p.handler = busy_for_a_while;
    pair_call(&p, &c, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    for (int i = 0; i < 500 && c.call->state != MR_CALL_PAUSED; i++)
        pair_run(&p, 10);
    uint64_t id = c.call->call_id, refusals = served()->busy_sent;
    /* It is asked after under its old id: BUSY once more. */
    struct mr_packet_header ping = {.magic = MR_MAGIC,
                                    .version = MR_PROTOCOL_VERSION,
                                    .type = MR_PACKET_PING,
                                    .flags = MR_FLAG_PROBE,
                                    .session_id = p.session->peer.session_id,
                                    .call_id = id,
                                    .incarnation = p.session->peer.incarnation,
                                    .number = next_number(PAIR_CLIENT)};
    mr_tag_write(&p.session->peer.key, (uint8_t *)&ping, sizeof(ping));
    pair_inject(&p, PAIR_SERVER, (const uint8_t *)&ping, sizeof(ping));
    assert_int_equal(served()->busy_sent, refusals + 1);
    pair_run(&p, 2 * BUSY_FOR_US);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(p.executed, 1);
    assert_true(p.session->next_call_id > id);
}
