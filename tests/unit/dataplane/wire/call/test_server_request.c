#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

/* ---- packets made by hand, under the session's key: what a client with the key and bad intentions can send
 * ---- */

static struct mr_packet_header header(uint8_t type, uint16_t flags, uint64_t call_id, uint32_t message_bytes,
                                      uint32_t offset)
{
    uint32_t segment_bytes = message_bytes > MR_SEGMENT_BYTES_MIN ? MR_SEGMENT_BYTES_MIN : 0;
    struct mr_packet_header h = {
        .magic = MR_MAGIC,
        .version = MR_PROTOCOL_VERSION,
        .type = type,
        .flags = flags,
        .session_id = p.session->peer.session_id,
        .call_id = call_id,
        .message_bytes = message_bytes,
        .segment_bytes = (uint16_t)segment_bytes,
        .segment_number = (uint16_t)(segment_bytes != 0 ? offset / segment_bytes : offset),
        .incarnation = p.session->peer.incarnation,
        .clock_us = (uint32_t)p.now_us,
        .number = next_number(PAIR_CLIENT),
    };
    return h;
}

static void send_packet(struct mr_packet_header h, const void *payload, uint32_t bytes)
{
    static uint8_t packet[MR_UDP_BYTES_MAX];
    h.payload_bytes = (uint16_t)bytes;
    memcpy(packet, &h, sizeof(h));
    if (bytes > 0)
        memcpy(packet + sizeof(h), payload, bytes);
    mr_tag_write(&p.session->peer.key, packet, sizeof(h) + bytes);
    pair_inject(&p, PAIR_SERVER, packet, (uint32_t)sizeof(h) + bytes);
}

static _Alignas(64) uint8_t message[100000];
static uint32_t message_bytes;

static void make_message(uint8_t op, uint32_t body_bytes, uint32_t deadline_ms)
{
    static uint8_t body[sizeof(message)];
    struct mr_preamble preamble = {.op = op, .deadline_ms = deadline_ms};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, body_bytes, body);
    uint32_t count = body_bytes > 0;
    message_bytes = mr_message_bytes(&tensor, count);
    assert_int_in_range(message_bytes, 1, sizeof(message));
    mr_message_layout(message, &preamble, &tensor, count);
}

static void send_whole(uint64_t call_id, uint16_t flags)
{
    send_packet(header(MR_PACKET_DATA, flags, call_id, message_bytes, 0), message, message_bytes);
}

static void send_segment(uint64_t call_id, uint32_t n, uint16_t flags)
{
    uint32_t segment_bytes = p.session->peer.segment_bytes, offset = n * segment_bytes;
    uint32_t left = message_bytes - offset;
    send_packet(header(MR_PACKET_DATA, flags, call_id, message_bytes, offset), message + offset,
                left < segment_bytes ? left : segment_bytes);
}

TEST(executes_each_id_once, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 10, 0);
    for (int i = 0; i < 5; i++)
        send_whole(1, i % 2 == 0 ? 0 : MR_FLAG_PROBE);
    assert_int_equal(p.executed, 1);
    assert_int_equal(served()->calls_replayed, 4);
    assert_int_equal(served()->segments_repeated, 4);
    assert_int_equal(p.ends[PAIR_SERVER].sent,
                     2 + 2 + 5); /* handshake, its ping, what the path carries, the replies */
}

TEST(only_members_of_clusters_take_epochs, pair_opened, pair_ended)
{
    for (int takes = 0; takes < 2; takes++) {
        struct pair_call got = {.epoch = 7};
        server()->config.takes_epochs = takes == 1;
        pair_call(&p, &got, MR_OP_ECHO, NULL, 0, UINT64_MAX);
        pair_run(&p, 100000);
        assert_int_equal(got.ended, 1);
        assert_int_equal(got.status, takes == 1 ? MR_OK : MR_BAD_MESSAGE);
    }
    assert_int_equal(served()->drop_message, 1);
}

TEST(an_older_id_is_stale, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 10, 0);
    send_whole(65, 0);
    send_whole(1, 0);
    assert_int_equal(p.executed, 1);
    assert_int_equal(served()->drop_stale, 1);
    send_whole(0, 0);
    assert_int_equal(served()->drop_stale, 2);
}

TEST(ids_may_leave_some_out, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 10, 0);
    send_whole(1, 0);
    send_whole(1000, 0);
    send_whole(999, 0);
    assert_int_equal(p.executed, 3);
}

TEST(a_newer_id_while_executing_waits, pair_opened, pair_ended)
{
    make_message(MR_OP_SAVE, 0, 0);
    send_whole(1, 0);
    make_message(MR_OP_PUSH_GRAD, 0, 0);
    send_whole(65, 0);
    assert_int_equal(p.executed, 1);
    assert_int_equal(served()->drop_range, 1);
    mr_reply_status(server(), p.later[0], MR_OK);
    send_whole(65, 0);
    assert_int_equal(p.executed, 2);
}

TEST(a_newer_id_takes_over_a_request_that_was_never_whole, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 5000, 0);
    send_segment(1, 1, 0);
    assert_true(mr_endpoint_memory_used(server()) > 0);
    make_message(MR_OP_PUSH_GRAD, 0, 0);
    send_whole(65, 0);
    assert_int_equal(p.executed, 1);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    make_message(MR_OP_PUSH_GRAD, 5000, 0);
    for (uint32_t n = 0; n < 5; n++)
        send_segment(1, n, 0);
    assert_int_equal(p.executed, 1);
}

TEST(a_damaged_packet_is_not_looked_at, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 10, 0);
    struct mr_packet_header h = header(MR_PACKET_DATA, 0, 1, message_bytes, 0);
    uint8_t packet[MR_UDP_BYTES_MAX];
    h.payload_bytes = (uint16_t)message_bytes;
    memcpy(packet, &h, sizeof(h));
    memcpy(packet + sizeof(h), message, message_bytes);
    uint32_t bytes = (uint32_t)sizeof(h) + message_bytes;
    mr_tag_write(&p.session->peer.key, packet, bytes);
    for (uint32_t i = sizeof(h); i < bytes; i++) {
        packet[i] ^= 1;
        pair_inject(&p, PAIR_SERVER, packet, bytes);
        packet[i] ^= 1;
    }
    assert_int_equal(served()->drop_tag, message_bytes);
    assert_int_equal(p.executed, 0);
    pair_inject(&p, PAIR_SERVER, packet, bytes);
    assert_int_equal(p.executed, 1);
}

/* It is as its sender made it, so it would be no better the next time. */
TEST(a_malformed_request_is_refused_once_and_for_all, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 10, 0);
    message[1] = 0xff; /* priority */
    send_whole(1, 0);
    make_message(MR_OP_PUSH_GRAD, 2000, 0);
    message[8] = 2; /* tensors */
    send_segment(2, 0, 0);
    send_segment(2, 1, 0);
    assert_int_equal(served()->drop_message, 2);
    assert_int_equal(p.executed, 0);
    assert_int_equal(served()->busy_sent, 0);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    const struct mr_server_session *session = &server()->server_sessions[0];
    for (uint32_t slot = 1; slot <= 2; slot++) {
        assert_int_equal(session->slots[slot].state, MR_SLOT_DONE);
        assert_int_equal(session->slots[slot].status, MR_BAD_MESSAGE);
        assert_int_equal(session->slots[slot].op, MR_OP_PUSH_GRAD);
        assert_int_equal(session->slots[slot].priority, 0);
    }
    make_message(MR_OP_PUSH_GRAD, 10, 0); /* what is right comes too late under an id that has its answer */
    send_whole(1, 0);
    assert_int_equal(p.executed, 0);
    assert_int_equal(served()->calls_replayed, 1);
}

TEST(lengths_and_offsets_out_of_range_are_dropped, pair_opened, pair_ended)
{
    uint32_t segment_bytes = p.session->peer.segment_bytes;
    make_message(MR_OP_PUSH_GRAD, 5000, 0);
    struct mr_packet_header odd = header(MR_PACKET_DATA, 0, 1, message_bytes, 0);
    odd.segment_bytes = 1185; /* no multiple of 8 */
    send_packet(odd, message, 1185);
    odd.number = next_number(PAIR_CLIENT);
    odd.segment_bytes = 1168; /* shorter than any has to be */
    send_packet(odd, message, 1168);
    send_packet(header(MR_PACKET_DATA, 0, 2, message_bytes, 0), message, segment_bytes - 1);
    send_packet(header(MR_PACKET_DATA, 0, 3, message_bytes, UINT16_MAX * segment_bytes), message,
                segment_bytes);
    send_packet(header(MR_PACKET_DATA, 0, 4, UINT32_MAX, 0), message, segment_bytes);
    send_packet(header(MR_PACKET_DATA, 0, 5, 8, 0), message, 8);
    send_packet(header(MR_PACKET_DATA, 0, 6, 100, 50), message, 100);
    assert_int_equal(served()->drop_range, 7);
    assert_int_equal(p.executed, 0);
    send_segment(7, 0, 0);
    send_packet(header(MR_PACKET_DATA, 0, 7, message_bytes + 1, segment_bytes), message, segment_bytes);
    assert_int_equal(served()->drop_range, 8);
}

TEST(a_malformed_bundle_stops_where_it_breaks, pair_opened, pair_ended)
{
    uint8_t bundle[400] = {0};
    make_message(MR_OP_PUSH_GRAD, 0, 0);
    struct mr_frame frame = {.call_id = 1, .message_bytes = message_bytes};
    memcpy(bundle, &frame, sizeof(frame));
    memcpy(bundle + sizeof(frame), message, message_bytes);
    uint32_t second = (uint32_t)sizeof(frame) + message_bytes;
    frame.call_id = 2;
    const struct {
        uint32_t message_bytes, reserved, bytes;
    } bad[] = {{message_bytes, 1, second * 2},
               {message_bytes, 0, second * 2 - 8},
               {UINT32_MAX, 0, 200},
               {0, 0, second * 2},
               {7, 0, second + 24},
               {message_bytes, 0, second + 8},
               {UINT32_MAX - 3, 0, second * 2}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        frame.message_bytes = bad[i].message_bytes;
        frame.reserved = bad[i].reserved;
        memcpy(bundle + second, &frame, sizeof(frame));
        memcpy(bundle + second + sizeof(frame), message, message_bytes);
        send_packet(header(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0, 0, 0), bundle, bad[i].bytes);
        assert_int_equal(p.executed, 1);
        assert_int_equal(served()->drop_range, i + 1);
    }
}

/* What the hook got, and how many requests had been executed by then. */
static struct {
    uint32_t calls, count[8], executed[8];
    const uint8_t *first[8];
} prefetch;

static void on_prefetch(void *app, const struct mr_prefetch *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(requests[i].message_bytes, message_bytes);
        assert_memory_equal(requests[i].message, message, message_bytes);
        assert_true(i == 0 || requests[i].message > requests[i - 1].message);
    }
    prefetch.first[prefetch.calls] = requests[0].message;
    prefetch.executed[prefetch.calls] = p.executed;
    prefetch.count[prefetch.calls++] = count;
}

static uint32_t make_bundle(uint8_t *bundle, uint64_t first_id, uint32_t count)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_frame frame = {.call_id = first_id + i, .message_bytes = message_bytes};
        memcpy(bundle + bytes, &frame, sizeof(frame));
        memcpy(bundle + bytes + sizeof(frame), message, message_bytes);
        bytes += (uint32_t)sizeof(frame) + message_bytes;
    }
    return bytes;
}

TEST(requests_of_a_bundle_are_announced_before_the_first_is_executed, pair_opened, pair_ended)
{
    static uint8_t bundle[MR_UDP_BYTES_MAX];
    memset(&prefetch, 0, sizeof(prefetch));
    server()->config.on_prefetch = on_prefetch;
    make_message(MR_OP_PUSH_GRAD, 0, 0);
    send_whole(1, 0); /* nothing to overlap with */
    assert_int_equal(prefetch.calls, 0);
    uint32_t bytes = make_bundle(bundle, 2, 20);
    send_packet(header(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0, 0, 0), bundle, bytes);
    assert_int_equal(prefetch.calls, 1);
    assert_int_equal(prefetch.count[0], 20);
    assert_int_equal(prefetch.executed[0], 1);
    assert_int_equal(p.executed, 21);
    /* More than one look takes; all of them are from before their own requests. */
    bytes = make_bundle(bundle, 22, MR_PREFETCH_MAX + 2);
    send_packet(header(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0, 0, 0), bundle, bytes);
    assert_int_equal(prefetch.calls, 3);
    assert_int_equal(prefetch.count[1], MR_PREFETCH_MAX);
    assert_int_equal(prefetch.executed[1], 21);
    assert_int_equal(prefetch.count[2], 2);
    assert_int_equal(prefetch.executed[2], 21 + MR_PREFETCH_MAX);
    assert_int_equal(p.executed, 21 + MR_PREFETCH_MAX + 2);
    /* What is malformed, and what comes after it, is not announced. */
    bytes = make_bundle(bundle, 200, 3);
    ((struct mr_frame *)(void *)(bundle + bytes / 3 * 2))->message_bytes = UINT32_MAX;
    send_packet(header(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0, 0, 0), bundle, bytes);
    assert_int_equal(prefetch.count[3], 2);
    assert_int_equal(served()->drop_range, 1);
}

/* Its memory is free then, and the call may be made again under another id. */
TEST(a_request_that_stops_coming_is_given_up, pair_opened, pair_ended)
{
    make_message(MR_OP_ECHO, 90000, 0);
    const size_t before = mr_buddy_used_bytes(server()->memory);
    for (uint32_t n = 0; n < 3; n++)
        send_segment(1, n, 0);
    assert_true(mr_buddy_used_bytes(server()->memory) > before + 90000);
    pair_run(&p, MR_STALLED_US / 2);
    send_segment(1, 3, 0);
    pair_run(&p, MR_STALLED_US / 2 + 1000); /* the last one is not so old */
    assert_int_equal(served()->requests_stalled, 0);
    for (uint32_t i = 0; i < 4; i++) { /* what is known is no progress */
        send_segment(1, 3, 0);
        pair_run(&p, MR_STALLED_US / 4);
    }
    assert_int_equal(served()->requests_stalled, 1);
    assert_int_equal(mr_buddy_used_bytes(server()->memory), before);
    assert_int_equal(server()->role_memory_bytes[MR_ROLE_OPERATOR], 0);
    const uint64_t busy = served()->busy_sent;
    send_segment(1, 4, 0);
    assert_int_equal(served()->busy_sent, busy + 1);
    for (uint32_t n = 0; n * MR_SEGMENT_BYTES_MIN < message_bytes; n++)
        send_segment(17, n, 0);
    assert_int_equal(p.executed, 1);
}

/* A segment now and then does not keep it. */
TEST(a_request_that_comes_too_slowly_is_given_up, pair_opened, pair_ended)
{
    make_message(MR_OP_ECHO, 90000, 0);
    const size_t before = mr_buddy_used_bytes(server()->memory);
    for (uint32_t n = 0; n < 10 && served()->requests_stalled == 0; n++) {
        send_segment(1, n, 0);
        pair_run(&p, MR_STALLED_US / 2);
    }
    assert_int_equal(served()->requests_stalled, 1);
    assert_int_equal(mr_buddy_used_bytes(server()->memory), before);
}

TEST(time_left_counts_from_the_first_segment, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 2000, 5);
    send_segment(1, 0, 0);
    p.now_us += 6000;
    send_segment(1, 1, 0);
    assert_int_equal(p.executed, 0);
    assert_int_equal(served()->calls_expired, 1);
    send_segment(2, 0, 0);
    p.now_us += 4000;
    send_segment(2, 1, 0);
    assert_int_equal(p.executed, 1);
}

TEST(reports_gaps_and_answers_probes, pair_opened, pair_ended)
{
    make_message(MR_OP_PUSH_GRAD, 10000, 0); /* 9 segments */
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    send_segment(1, 1, 0);
    send_segment(1, 2, 0);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    send_segment(1, 3, 0); /* three behind the gap */
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 1);
    send_segment(1, 4, 0);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 1);
    send_segment(1, 4, MR_FLAG_PROBE);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 2);
    send_packet(header(MR_PACKET_PING, MR_FLAG_PROBE, 1, 0, 0), NULL, 0);
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 3);
    send_packet(header(MR_PACKET_PING, MR_FLAG_PROBE, 77, 0, 0), NULL, 0); /* never seen */
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 4);
    send_packet(header(MR_PACKET_PING, 0, 1, 0, 0), NULL, 0); /* wants no answer */
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent + 4);
}

TEST(no_memory_is_busy_and_nothing_is_left, pair_opened, pair_ended)
{
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_SERVER].memory_bytes = 64u << 10;
    pair_start(&p);
    pair_open(&p);
    make_message(MR_OP_PUSH_GRAD, 10000, 0);
    send_segment(2, 0, 0);
    size_t held = mr_endpoint_memory_used(server());
    make_message(MR_OP_PUSH_GRAD, 40000, 0);
    send_segment(1, 0, 0);
    assert_int_equal(served()->busy_sent, 1);
    assert_int_equal(mr_endpoint_memory_used(server()), held);
    make_message(MR_OP_PUSH_GRAD, 0, 0);
    send_whole(1, 0); /* under this id no more */
    assert_int_equal(served()->busy_sent, 2);
    assert_int_equal(p.executed, 0);
    send_whole(1 + MR_WINDOW_MAX, 0);
    assert_int_equal(p.executed, 1);
    send_whole(1, 0);
    assert_int_equal(served()->busy_sent, 2);
    assert_int_equal(p.executed, 1);
}

TEST(a_session_says_bye_once, pair_opened, pair_ended)
{
    send_packet(header(MR_PACKET_BYE, 0, 0, 0, 0), NULL, 0);
    assert_int_equal(session_count(server()), 0);
    send_packet(header(MR_PACKET_BYE, 0, 0, 0, 0), NULL, 0);
    assert_int_equal(served()->drop_session, 1);
}

TEST(random_packets_under_the_key_do_no_harm, pair_opened, pair_ended)
{
    uint64_t r = 88172645463325252u;
    make_message(MR_OP_LOOKUP, 10000, 0);
    p.reply_bytes = 5000;
    for (uint32_t i = 0; i < 20000; i++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        struct mr_ack ack = {.received_bytes = (uint32_t)(r >> 40) % 12000,
                             .grant_bytes = (uint32_t)(r >> 20),
                             .segment_bytes = r % 3 == 0 ? MR_SEGMENT_BYTES_MIN : (uint32_t)(r >> 13) % 1400,
                             .sack = {r, r >> 3, ~r, r * 3}};
        if (i % 3 == 0)
            ack.received_bytes -= ack.received_bytes % p.session->peer.segment_bytes;
        uint64_t id = r >> 60;
        switch (i % 5) {
        case 0:
            send_packet(header(i % 10 == 0 ? MR_PACKET_ACK : MR_PACKET_RESEND, MR_FLAG_REPLY, id, 0, 0), &ack,
                        sizeof(ack));
            break;
        case 1:
            send_packet(header(MR_PACKET_PING, MR_FLAG_PROBE, id, 0, 0), NULL, 0);
            break;
        case 2:
            send_packet(header(MR_PACKET_DATA, (uint16_t)(r & 6), id, (uint32_t)(r >> 17) % 20000,
                               (uint32_t)(r >> 50)),
                        message, 1 + (uint32_t)(r >> 30) % 1180);
            break;
        default:
            send_segment(id + i / 1000 * 16, (uint32_t)(r >> 8) % 9, (uint16_t)(r >> 5 & MR_FLAG_PROBE));
            break;
        }
        mr_endpoint_poll(server(), p.now_us, 4);
    }
    assert_true(p.executed > 0);
    send_packet(header(MR_PACKET_BYE, 0, 0, 0, 0), NULL, 0);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}
