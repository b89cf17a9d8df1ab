#include <string.h>
#include <stdlib.h>
#include "dataplane/capture/filter.h"
#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"
#include "tests/test.h"

enum { SESSION = 0x5501, CLIENT_PORT = 40000 };

static const uint8_t client[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};
static const uint8_t other[16] = {[10] = 0xff, 0xff, 10, 0, 0, 3};

struct packet {
    uint8_t bytes[512];
    uint32_t count;
};

static struct packet filter_make(uint8_t type, uint16_t flags, uint64_t call_id)
{
    struct packet p = {.count = MR_HEADER_BYTES};
    const struct mr_packet_header header = {.magic = MR_MAGIC,
                                            .version = MR_PROTOCOL_VERSION,
                                            .type = type,
                                            .flags = flags,
                                            .session_id = SESSION,
                                            .call_id = call_id};
    memcpy(p.bytes, &header, sizeof(header));
    return p;
}

static void add_message(struct packet *p, uint8_t op)
{
    const struct mr_preamble preamble = {.op = op};
    memcpy(p->bytes + p->count, &preamble, sizeof(preamble));
    p->count += (uint32_t)sizeof(preamble);
}

static struct packet whole(uint8_t op, uint64_t call_id)
{
    struct packet p = filter_make(MR_PACKET_DATA, 0, call_id);
    add_message(&p, op);
    return p;
}

static struct packet segment(uint8_t op, uint64_t call_id, uint16_t number)
{
    struct packet p = whole(op, call_id);
    struct mr_packet_header *header = (struct mr_packet_header *)(void *)p.bytes;
    header->segment_bytes = 1176;
    header->segment_number = number;
    return p;
}

static bool wants(struct dp_filter *f, const struct packet *p)
{
    return dp_filter_wants(f, client, CLIENT_PORT, p->bytes, p->count);
}

static struct dp_filter of_op(enum mr_op op)
{
    struct dp_filter f = {.has_ops = true};
    f.ops[op / 64] |= UINT64_C(1) << (op % 64);
    f.calls = calloc(DP_FILTER_CALLS, sizeof(*f.calls));
    assert_non_null(f.calls);
    return f;
}

TEST(without_conditions_everything_is_wanted)
{
    struct dp_filter f = {.port = 0};
    const struct packet p = whole(MR_OP_LOOKUP, 1);
    assert_true(wants(&f, &p));
    assert_true(dp_filter_wants(&f, NULL, 0, NULL, 0)); /* ARP, say */
}

TEST(a_peer_is_known_by_address_and_port)
{
    struct dp_filter f = {.has_ip = true};
    memcpy(f.ip, client, sizeof(client));
    assert_true(dp_filter_wants(&f, client, 1, NULL, 0));
    assert_false(dp_filter_wants(&f, other, 1, NULL, 0));
    assert_false(dp_filter_wants(&f, NULL, 0, NULL, 0));
    f.port = CLIENT_PORT;
    assert_true(dp_filter_wants(&f, client, CLIENT_PORT, NULL, 0));
    assert_false(dp_filter_wants(&f, client, CLIENT_PORT + 1, NULL, 0));
}

TEST(a_whole_message_is_known_by_its_op)
{
    struct dp_filter f = of_op(MR_OP_LOOKUP);
    const struct packet lookup = whole(MR_OP_LOOKUP, 1), push = whole(MR_OP_PUSH_GRAD, 2);
    assert_true(wants(&f, &lookup));
    assert_false(wants(&f, &push));
    free(f.calls);
}

/* Also of one beyond the first 64. */
TEST(each_op_has_a_bit)
{
    struct dp_filter f = of_op((enum mr_op)200);
    const struct packet wanted = whole(200, 1), unwanted = whole(200 - 64, 2);
    assert_true(wants(&f, &wanted));
    assert_false(wants(&f, &unwanted));
    free(f.calls);
}

TEST(later_packets_are_known_by_their_call)
{
    static const uint8_t types[] = {MR_PACKET_ACK, MR_PACKET_RESEND, MR_PACKET_BUSY, MR_PACKET_PING};
    struct dp_filter f = of_op(MR_OP_LOOKUP);
    const struct packet first = segment(MR_OP_LOOKUP, 7, 0), second = segment(MR_OP_PUSH_GRAD, 7, 1);
    const struct packet of_another = segment(MR_OP_LOOKUP, 8, 1);
    for (size_t i = 0; i < sizeof(types); i++) {
        const struct packet p = filter_make(types[i], 0, 7);
        assert_false(wants(&f, &p));
    }
    assert_false(wants(&f, &second)); /* its bytes are no preamble */
    assert_true(wants(&f, &first));
    assert_true(wants(&f, &second));
    assert_false(wants(&f, &of_another));
    for (size_t i = 0; i < sizeof(types); i++) {
        const struct packet p = filter_make(types[i], 0, 7);
        assert_true(wants(&f, &p));
    }
    struct packet elsewhere = filter_make(MR_PACKET_ACK, 0, 7);
    elsewhere.bytes[offsetof(struct mr_packet_header, session_id)]++;
    assert_false(wants(&f, &elsewhere));
    const struct packet of_no_call = filter_make(MR_PACKET_PING, MR_FLAG_PROBE, 0);
    assert_false(wants(&f, &of_no_call));
    free(f.calls);
}

static void add_frame(struct packet *p, uint64_t call_id, uint8_t op)
{
    const struct mr_frame frame = {.call_id = call_id, .message_bytes = sizeof(struct mr_preamble)};
    memcpy(p->bytes + p->count, &frame, sizeof(frame));
    p->count += (uint32_t)sizeof(frame);
    add_message(p, op);
}

TEST(a_bundle_is_wanted_for_any_of_its_messages)
{
    struct dp_filter f = of_op(MR_OP_LOOKUP);
    struct packet bundle = filter_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    add_frame(&bundle, 20, MR_OP_PUSH_GRAD);
    assert_false(wants(&f, &bundle));
    add_frame(&bundle, 21, MR_OP_LOOKUP);
    add_frame(&bundle, 22, MR_OP_LOOKUP);
    assert_true(wants(&f, &bundle));
    for (uint64_t call = 20; call <= 23; call++) {
        const struct packet p = filter_make(MR_PACKET_ACK, 0, call);
        assert_int_equal(wants(&f, &p), call == 21 || call == 22);
    }
    free(f.calls);
}

/* Whatever its lengths say, nothing is read beyond its end. */
TEST(malformed_bundles_do_no_harm)
{
    struct dp_filter f = of_op(MR_OP_LOOKUP);
    struct packet whole_bundle = filter_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    add_frame(&whole_bundle, 1, MR_OP_PUSH_GRAD);
    for (uint32_t count = 0; count <= whole_bundle.count; count++) {
        uint8_t *exact = malloc(count == 0 ? 1 : count);
        assert_non_null(exact);
        memcpy(exact, whole_bundle.bytes, count);
        assert_false(dp_filter_wants(&f, client, CLIENT_PORT, exact, count));
        free(exact);
    }
    struct packet too_long = filter_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    const struct mr_frame frame = {.call_id = 1, .message_bytes = UINT32_MAX};
    memcpy(too_long.bytes + too_long.count, &frame, sizeof(frame));
    too_long.count += (uint32_t)sizeof(frame);
    add_message(&too_long, MR_OP_PUSH_GRAD);
    assert_false(wants(&f, &too_long));
    free(f.calls);
}

TEST(what_is_not_of_the_protocol_has_no_op)
{
    struct dp_filter f = of_op(MR_OP_LOOKUP);
    struct packet p = whole(MR_OP_LOOKUP, 1);
    p.bytes[0]++;
    assert_false(wants(&f, &p));
    p.bytes[0]--;
    p.bytes[2]++;
    assert_false(wants(&f, &p));
    assert_false(dp_filter_wants(&f, client, CLIENT_PORT, NULL, 0));
    free(f.calls);
}
