/* Replies that are sent while their end is still being made. */
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

#define REPLY_BYTES 400000u
#define HALF_BYTES  (168u * 1176u) /* so that the last report covers all of it */

static struct mr_tensor reply; /* of the call answered last */

static const struct mr_wire_counters *counters(void)
{
    return mr_endpoint_counters(server());
}

static uint8_t pattern(uint32_t i)
{
    return (uint8_t)(i * 13 + (i >> 7));
}

static void write_reply(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        ((uint8_t *)reply.data)[i] = pattern(i);
}

static void advance(uint32_t i, uint32_t to)
{
    mr_reply_advance(server(), p.later[i], (uint8_t *)reply.data + to);
}

/* A call whose reply the test makes: it is begun, and nothing of it is written. */
static void server_reply_open_begin(struct pair_call *c, uint32_t reply_bytes)
{
    uint32_t i = p.later_count;
    c->keep = true;
    pair_call(&p, c, MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 500);
    assert_int_equal(p.later_count, i + 1);
    reply = mr_tensor_1d(MR_U8, reply_bytes, NULL);
    assert_true(mr_reply_begin(server(), p.later[i], MR_OK, &reply, 1));
}

static void check_reply(const struct pair_call *c, uint32_t bytes)
{
    assert_int_equal(c->ended, 1);
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(c->tensors[0].bytes, bytes);
    for (uint32_t i = 0; i < bytes; i++)
        assert_int_equal(((uint8_t *)c->tensors[0].data)[i], pattern(i));
}

/* Everything has come and nothing is left behind. */
static void server_reply_open_finish(struct pair_call *c, uint32_t bytes)
{
    pair_run(&p, 500000);
    check_reply(c, bytes);
    mr_call_free(client(), c->call);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

static uint32_t received(const struct pair_call *c)
{
    return c->call->reply != NULL ? c->call->incoming.received_bytes : 0;
}

TEST(parts_are_sent_while_it_is_open, pair_opened, pair_ended)
{
    struct pair_call c = {0}, other = {0};
    server_reply_open_begin(&c, REPLY_BYTES);
    pair_run(&p, 100);
    assert_int_equal(received(&c), 0);
    write_reply(0, HALF_BYTES);
    advance(0, HALF_BYTES);
    pair_run(&p, 100);
    assert_int_in_range(received(&c), HALF_BYTES - p.session->peer.segment_bytes, HALF_BYTES + 64);
    p.reply_bytes = 30000;
    pair_call(&p, &other, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 500);
    assert_int_equal(other.status, MR_OK);
    assert_int_equal(other.ended, 1);
    assert_int_equal(c.ended, 0);
    write_reply(HALF_BYTES, REPLY_BYTES);
    mr_reply_end(server(), p.later[0]);
    server_reply_open_finish(&c, REPLY_BYTES);
}

TEST(the_last_segment_waits_for_the_end, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    server_reply_open_begin(&c, REPLY_BYTES);
    write_reply(0, REPLY_BYTES);
    advance(0, REPLY_BYTES);
    pair_run(&p, 1000);
    assert_true(c.call->incoming.message_bytes - received(&c) <= p.session->peer.segment_bytes);
    assert_int_equal(c.ended, 0);
    advance(0, HALF_BYTES); /* back is nowhere */
    mr_reply_end(server(), p.later[0]);
    server_reply_open_finish(&c, REPLY_BYTES);
}

TEST(a_small_one_waits_for_the_end, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    server_reply_open_begin(&c, 500);
    write_reply(0, 500);
    advance(0, 500);
    pair_run(&p, 300000); /* and probes do not bring it forth */
    assert_int_equal(c.ended, 0);
    mr_reply_end(server(), p.later[0]);
    pair_run(&p, 1000);
    server_reply_open_finish(&c, 500);
}

TEST(several_may_be_open_at_once, pair_opened, pair_ended)
{
    struct pair_call c[3] = {0};
    struct mr_tensor replies[3];
    for (uint32_t i = 0; i < 3; i++) {
        server_reply_open_begin(&c[i], REPLY_BYTES);
        replies[i] = reply;
    }
    for (uint32_t from = 0; from < REPLY_BYTES; from += 5000) {
        for (uint32_t i = 0; i < 3; i++) {
            reply = replies[i];
            write_reply(from, from + 5000);
            advance(i, from + 5000);
            pair_run(&p, 7);
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        mr_reply_end(server(), p.later[2 - i]);
    pair_run(&p, 1000);
    for (uint32_t i = 0; i < 2; i++) {
        check_reply(&c[i], REPLY_BYTES);
        mr_call_free(client(), c[i].call);
    }
    server_reply_open_finish(&c[2], REPLY_BYTES);
}

static enum pair_verdict drop_some(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    return from == PAIR_SERVER && n >= pair->drop_from && n < pair->drop_from + pair->drop_n ? PAIR_DROP
                                                                                             : PAIR_PASS;
}

/* The n-th to the m-th packet of the server from now on are lost. */
static void lose(uint32_t first, uint32_t n)
{
    p.drop_from = p.ends[PAIR_SERVER].sent + first;
    p.drop_n = n;
    p.filter = drop_some;
}

TEST(losses_heal_while_it_is_open, pair_opened, pair_ended)
{
    static const uint32_t lost[][2] = {{0, 100}, {0, 1}, {3, 2}, {5, 100}, {15, 3}};
    for (uint32_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        struct pair_call c = {0};
        server_reply_open_begin(&c, REPLY_BYTES);
        write_reply(0, HALF_BYTES);
        lose(lost[i][0], lost[i][1]);
        advance(i, HALF_BYTES);
        pair_run(&p, 1000);
        p.filter = NULL;
        pair_run(&p, 3000000);
        assert_true(received(&c) >= HALF_BYTES - p.session->peer.segment_bytes);
        assert_int_equal(c.ended, 0);
        lose(0, 4);
        write_reply(HALF_BYTES, REPLY_BYTES);
        mr_reply_end(server(), p.later[i]);
        server_reply_open_finish(&c, REPLY_BYTES);
        p.filter = NULL;
    }
    assert_int_equal(p.events[MR_SESSION_AWAY], 0); /* the server answered every probe */
    assert_int_equal(p.executed, 5);
}

TEST(requests_of_several_segments_may_have_one, pair_opened, pair_ended)
{
    static uint8_t data[30000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call c = {.keep = true};
    pair_call(&p, &c, MR_OP_SAVE, &tensor, 1, UINT64_MAX);
    pair_run(&p, 1000);
    reply = mr_tensor_1d(MR_U8, REPLY_BYTES, NULL);
    assert_true(mr_reply_begin(server(), p.later[0], MR_OK, &reply, 1));
    write_reply(0, HALF_BYTES);
    lose(0, 100);
    advance(0, HALF_BYTES);
    pair_run(&p, 1000);
    p.filter = NULL;
    pair_run(&p, 1000000);
    assert_true(received(&c) > 0);
    assert_int_equal(p.executed, 1);
    assert_int_equal(p.later_request[0]->message->tensors[0].bytes, sizeof(data));
    write_reply(HALF_BYTES, REPLY_BYTES);
    mr_reply_end(server(), p.later[0]);
    server_reply_open_finish(&c, REPLY_BYTES);
}

TEST(its_session_may_end_meanwhile, pair_opened, pair_ended)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct pair_call c = {0};
        server_reply_open_begin(&c, REPLY_BYTES);
        write_reply(0, HALF_BYTES);
        if (i == 1)
            advance(i, HALF_BYTES);
        pair_run(&p, 100);
        mr_client_session_close(client(), p.session, p.now_us);
        pair_run(&p, 100);
        assert_int_equal(c.status, MR_CANCELLED);
        mr_call_free(client(), c.call);
        assert_false(mr_call_ref_alive(server(), p.later[i]));
        assert_true(mr_endpoint_memory_used(server()) > 0); /* the request */
        assert_int_equal(p.later_request[i]->message->preamble.op, MR_OP_SAVE);
        mr_reply_advance(server(), p.later[i], NULL);
        mr_reply_end(server(), p.later[i]);
        assert_int_equal(mr_endpoint_memory_used(server()), 0);
        mr_reply_end(server(), p.later[i]);
        pair_open(&p);
    }
}

/* A late copy of a request without tensors. */
static void repeat_request(uint64_t call_id)
{
    _Alignas(8) uint8_t packet[MR_HEADER_BYTES + sizeof(struct mr_preamble)];
    const struct mr_preamble preamble = {.op = MR_OP_PUSH_GRAD};
    const struct mr_packet_header h = {.magic = MR_MAGIC,
                                       .version = MR_PROTOCOL_VERSION,
                                       .type = MR_PACKET_DATA,
                                       .payload_bytes = sizeof(preamble),
                                       .session_id = p.session->peer.session_id,
                                       .call_id = call_id,
                                       .message_bytes = sizeof(preamble),
                                       .incarnation = p.session->peer.incarnation,
                                       .number = next_number(PAIR_CLIENT)};
    memcpy(packet, &h, sizeof(h));
    memcpy(packet + sizeof(h), &preamble, sizeof(preamble));
    mr_tag_write(&p.session->peer.key, packet, sizeof(packet));
    pair_inject(&p, PAIR_SERVER, packet, sizeof(packet));
}

TEST(its_client_may_stop_waiting, pair_opened, pair_ended)
{
    struct pair_call c = {.keep = true}, next = {0};
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].window = 1;
    pair_start(&p);
    pair_open(&p);
    server_reply_open_begin(&c, REPLY_BYTES);
    write_reply(0, HALF_BYTES);
    advance(0, HALF_BYTES);
    pair_run(&p, 1000);
    mr_call_cancel(client(), c.call);
    mr_call_free(client(), c.call);
    pair_call(&p, &next, MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    write_reply(HALF_BYTES, HALF_BYTES + 10000);
    advance(0, HALF_BYTES + 10000); /* the client learns of it, and says that it is over */
    pair_run(&p, 1000);
    uint64_t sent = counters()->tx_bytes;
    write_reply(HALF_BYTES + 10000, REPLY_BYTES);
    advance(0, REPLY_BYTES);
    pair_run(&p, 100);
    assert_true(counters()->tx_bytes - sent < 500); /* nothing more of it */
    assert_int_equal(next.ended, 0);
    assert_int_equal(p.executed, 1);
    uint64_t refused_id = next.call->call_id;
    assert_true(counters()->busy_sent > 0);
    mr_reply_end(server(), p.later[0]);
    repeat_request(refused_id); /* it was refused for good */
    assert_int_equal(p.executed, 1);
    pair_run(&p, 30000);
    assert_int_equal(next.ended, 1);
    assert_int_equal(next.status, MR_OK);
    assert_int_equal(p.executed, 2);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}

static void report(const struct pair_call *c, enum mr_packet_type type, uint32_t received_bytes)
{
    struct mr_ack ack = {.received_bytes = received_bytes,
                         .grant_bytes = received_bytes,
                         .segment_bytes = p.session->peer.segment_bytes};
    struct mr_packet packet = {
        .header = {.type = (uint8_t)type, .flags = MR_FLAG_REPLY, .call_id = c->call->call_id},
        .payload = (const uint8_t *)&ack,
    };
    mr_reply_acked(server(), &server()->server_sessions[p.later[0].session_index], &packet);
}

TEST(nobody_has_what_is_not_written, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    server_reply_open_begin(&c, REPLY_BYTES);
    write_reply(0, HALF_BYTES);
    advance(0, HALF_BYTES);
    pair_run(&p, 1000);
    uint32_t segment_bytes = p.session->peer.segment_bytes;
    uint64_t before = counters()->drop_range;
    report(&c, MR_PACKET_ACK, (HALF_BYTES / segment_bytes + 2) * segment_bytes);
    report(&c, MR_PACKET_RESEND, (HALF_BYTES / segment_bytes + 2) * segment_bytes);
    assert_int_equal(counters()->drop_range, before + 2);
    report(&c, MR_PACKET_RESEND, 0); /* overtaken by a later one: takes nothing back */
    pair_run(&p, 1000);
    assert_int_equal(mr_endpoint_counters(client())->segments_repeated, 0);
    write_reply(HALF_BYTES, REPLY_BYTES);
    mr_reply_end(server(), p.later[0]);
    server_reply_open_finish(&c, REPLY_BYTES);
}
