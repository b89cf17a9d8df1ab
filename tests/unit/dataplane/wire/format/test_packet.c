#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/packet.h"
#include "tests/test.h"

/* A heap copy of exactly the datagram's length, so that AddressSanitizer sees every byte read beyond it. */
static enum mr_drop parse_exact(const uint8_t *bytes, size_t n, struct mr_packet_header *header,
                                size_t *payload_at)
{
    const uint8_t *payload = NULL;
    uint8_t *copy = malloc(n + (n == 0));
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    enum mr_drop drop = mr_packet_parse(copy, n, header, &payload);
    if (drop == MR_DROP_NONE)
        *payload_at = (size_t)(payload - copy);
    else
        assert_null(payload);
    free(copy);
    return drop;
}

static uint8_t packet[MR_UDP_BYTES_MAX + 64];

static size_t packet_make(uint8_t type, uint16_t flags, size_t payload_bytes)
{
    bool bundle = (flags & MR_FLAG_BUNDLE) != 0, segment = type == MR_PACKET_DATA && !bundle;
    struct mr_packet_header h = {
        .magic = MR_MAGIC,
        .version = MR_PROTOCOL_VERSION,
        .type = type,
        .flags = flags,
        .payload_bytes = (uint16_t)payload_bytes,
        .session_id = UINT64_C(0x1122334455667703),
        .call_id = bundle ? 0 : 77,
        .message_bytes = segment ? 1000 : 0,
        .segment_bytes = segment ? 200 : 0,
        .segment_number = segment ? 3 : 0,
        .incarnation = 9,
        .clock_us = 123456,
        .number = UINT64_C(0x0102030405060708),
        .tag = UINT64_C(0xa1a2a3a4a5a6a7a8),
    };
    memset(packet, 0xee, sizeof(packet));
    memcpy(packet, &h, sizeof(h));
    return sizeof(h) + payload_bytes;
}

static enum mr_drop packet_parse(size_t n)
{
    struct mr_packet_header h;
    size_t at = 0;
    return parse_exact(packet, n, &h, &at);
}

/* Byte by byte, as docs/protocol.md gives it. */
TEST(fields_stand_where_the_protocol_says)
{
    static const uint8_t wire[] = {
        0x4d, 0x52, 4,    4,
        0x05, 0x00, 0x02, 0x00, /* magic "MR", version, DATA, REPLY | PROBE, payload */
        0x03, 0x77, 0x66, 0x55,
        0x44, 0x33, 0x22, 0x11, /* session */
        0x4d, 0,    0,    0,
        0,    0,    0,    0x01, /* call */
        0xe8, 0x03, 0,    0,
        0xc8, 0,    3,    0, /* message bytes, segment bytes and number */
        0x09, 0,    0,    0,
        0x40, 0xe2, 0x01, 0, /* incarnation, clock */
        0x08, 0x07, 0x06, 0x05,
        0x04, 0x03, 0x02, 0x01, /* number */
        0xa8, 0xa7, 0xa6, 0xa5,
        0xa4, 0xa3, 0xa2, 0xa1, /* tag */
        0x55, 0x66,             /* payload */
    };
    struct mr_packet_header h;
    size_t at = 0;
    assert_int_equal(parse_exact(wire, sizeof(wire), &h, &at), MR_DROP_NONE);
    assert_int_equal(at, MR_HEADER_BYTES);
    assert_int_equal(h.magic, MR_MAGIC);
    assert_int_equal(h.version, 4);
    assert_int_equal(h.type, MR_PACKET_DATA);
    assert_int_equal(h.flags, MR_FLAG_REPLY | MR_FLAG_PROBE);
    assert_int_equal(h.payload_bytes, 2);
    assert_true(h.session_id == UINT64_C(0x1122334455667703));
    assert_true(h.call_id == UINT64_C(0x010000000000004d));
    assert_int_equal(h.message_bytes, 1000);
    assert_int_equal(h.segment_bytes, 200);
    assert_int_equal(h.segment_number, 3);
    assert_int_equal(h.incarnation, 9);
    assert_int_equal(h.clock_us, 123456);
    assert_true(h.number == UINT64_C(0x0102030405060708));
    assert_true(h.tag == UINT64_C(0xa1a2a3a4a5a6a7a8));
}

static const struct rule {
    uint8_t type;
    uint16_t flags;
    size_t payload_min, payload_max;
    const char *name;
} rules[] = {
    {1, 0, 128, 128, "HELLO"}, {2, 0, 16, 16, "RETRY"},  {3, 0, 96, 96, "ACCEPT"}, {4, 7, 1, 8896, "DATA"},
    {5, 1, 48, 48, "ACK"},     {6, 1, 48, 48, "RESEND"}, {7, 0, 0, 0, "BUSY"},     {8, 0, 0, 0, "RESET"},
    {9, 0, 0, 0, "BYE"},       {10, 4, 0, 0, "PING"},    {11, 1, 0, 8896, "PATH"},
};
#define NAME(name, value) [value] = #name,
static const char *const names[MR_PACKET_TYPE_END] = {MR_PACKET_TYPE_LIST(NAME)};
#define RULE_COUNT (sizeof(rules) / sizeof(rules[0]))

TEST(each_type_takes_its_payload_and_no_other)
{
    assert_int_equal(RULE_COUNT, MR_PACKET_TYPE_END - 1);
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const struct rule *r = &rules[i];
        assert_string_equal(names[r->type], r->name);
        assert_int_equal(packet_parse(packet_make(r->type, 0, r->payload_min)), MR_DROP_NONE);
        assert_int_equal(packet_parse(packet_make(r->type, 0, r->payload_max)), MR_DROP_NONE);
        assert_int_equal(packet_parse(packet_make(r->type, 0, r->payload_max + 1)), MR_drop_range);
        if (r->payload_min > 0)
            assert_int_equal(packet_parse(packet_make(r->type, 0, r->payload_min - 1)), MR_drop_range);
    }
}

/* Of ACCEPT there are two, and nothing between. */
TEST(an_accept_has_a_version_or_none)
{
    for (uint32_t bytes = 0; bytes < 140; bytes++)
        assert_int_equal(packet_parse(packet_make(MR_PACKET_ACCEPT, 0, (uint16_t)bytes)),
                         bytes == 96 || bytes == 120 ? MR_DROP_NONE : MR_drop_range);
}

TEST(each_type_takes_its_flags_and_no_other)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const struct rule *r = &rules[i];
        assert_int_equal(packet_parse(packet_make(r->type, r->flags, r->payload_min)), MR_DROP_NONE);
        for (uint32_t bit = 0; bit < 16; bit++) {
            uint16_t flag = (uint16_t)(1u << bit);
            enum mr_drop expected = (r->flags & flag) != 0 ? MR_DROP_NONE : MR_drop_type;
            assert_int_equal(packet_parse(packet_make(r->type, flag, r->payload_min)), expected);
        }
    }
}

TEST(fields_without_a_meaning_are_zero)
{
    static const struct {
        size_t offset;
        bool in_bundles_alone;
    } fields[] = {{offsetof(struct mr_packet_header, call_id), true},
                  {offsetof(struct mr_packet_header, message_bytes), false},
                  {offsetof(struct mr_packet_header, segment_bytes), false},
                  {offsetof(struct mr_packet_header, segment_number), false}};
    for (size_t i = 0; i < RULE_COUNT; i++)
        for (size_t f = 0; f < 4; f++) {
            const struct rule *r = &rules[i];
            size_t n = packet_make(r->type, 0, r->payload_min);
            bool means_something = r->type == MR_PACKET_DATA || fields[f].in_bundles_alone;
            packet[fields[f].offset + 1] ^= 1;
            assert_int_equal(packet_parse(n), means_something ? MR_DROP_NONE : MR_drop_range);
        }
    for (size_t f = 0; f < 4; f++) {
        size_t n = packet_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 100);
        assert_int_equal(packet_parse(n), MR_DROP_NONE);
        packet[fields[f].offset + 1] ^= 1;
        assert_int_equal(packet_parse(n), MR_drop_range);
    }
}

TEST(unknown_types_are_dropped)
{
    for (uint32_t type = 0; type < 256; type++) {
        if (type >= 1 && type < MR_PACKET_TYPE_END)
            continue;
        assert_int_equal(packet_parse(packet_make((uint8_t)type, 0, 0)), MR_drop_type);
    }
}

TEST(a_datagram_is_as_long_as_it_says)
{
    size_t whole = packet_make(MR_PACKET_DATA, 0, 100);
    for (size_t n = 0; n < whole; n++)
        assert_int_equal(packet_parse(n), MR_drop_short);
    assert_int_equal(packet_parse(whole), MR_DROP_NONE);
    assert_int_equal(packet_parse(whole + 1), MR_drop_short);
}

/* Each packet is wrong in one way and in all that are checked later: the first one counts. */
TEST(checks_come_in_their_order)
{
    struct mr_packet_header h = {.magic = 1, .version = 9, .type = 99, .flags = 0xffff, .payload_bytes = 5};
    size_t at = 0;
    uint8_t bytes[MR_HEADER_BYTES];
    memcpy(bytes, &h, sizeof(h));
    assert_int_equal(parse_exact(bytes, sizeof(bytes) - 1, &h, &at), MR_drop_short);
    assert_int_equal(parse_exact(bytes, sizeof(bytes), &h, &at), MR_drop_magic);
    h.magic = MR_MAGIC;
    memcpy(bytes, &h, sizeof(h));
    assert_int_equal(parse_exact(bytes, sizeof(bytes), &h, &at), MR_drop_version);
    h.version = MR_PROTOCOL_VERSION;
    memcpy(bytes, &h, sizeof(h));
    assert_int_equal(parse_exact(bytes, sizeof(bytes), &h, &at), MR_drop_type);
    h.type = MR_PACKET_PING;
    memcpy(bytes, &h, sizeof(h));
    assert_int_equal(parse_exact(bytes, sizeof(bytes), &h, &at), MR_drop_type);
    h.flags = 0;
    memcpy(bytes, &h, sizeof(h));
    assert_int_equal(parse_exact(bytes, sizeof(bytes), &h, &at), MR_drop_short);
    assert_int_equal(at, 0);
}

TEST(nothing_is_written_on_failure)
{
    struct mr_packet_header h, before;
    const uint8_t *payload = packet;
    memset(&h, 0x5a, sizeof(h));
    before = h;
    packet_make(MR_PACKET_HELLO, 0, 127);
    assert_int_equal(mr_packet_parse(packet, MR_HEADER_BYTES + 127, &h, &payload), MR_drop_range);
    assert_memory_equal(&h, &before, sizeof(h));
    assert_ptr_equal(payload, packet);
}

/* Appends a message of these bytes to the bundle in `packet`; returns the bundle's payload bytes. */
static size_t bundle_append(size_t payload_bytes, uint64_t call_id, uint32_t message_bytes)
{
    struct mr_frame frame = {.call_id = call_id, .message_bytes = message_bytes};
    memcpy(packet + MR_HEADER_BYTES + payload_bytes, &frame, sizeof(frame));
    return payload_bytes + sizeof(frame) + (message_bytes + 7) / 8 * 8;
}

TEST(a_segment_is_one_fragment)
{
    packet_make(MR_PACKET_DATA, MR_FLAG_PROBE, 200);
    struct mr_fragment out[MR_FRAGMENTS_MAX];
    struct mr_packet_header h;
    const uint8_t *payload;
    uint32_t at = 0, count;
    assert_int_equal(mr_packet_parse(packet, MR_HEADER_BYTES + 200, &h, &payload), MR_DROP_NONE);
    assert_true(mr_packet_fragments(&h, payload, &at, out, &count));
    assert_int_equal(at, 200);
    assert_int_equal(count, 1);
    assert_int_equal(out[0].call_id, 77);
    assert_int_equal(out[0].offset, 3 * 200);
    assert_int_equal(out[0].bytes, 200);
    assert_int_equal(out[0].message_bytes, 1000);
    assert_true(out[0].probe);
}

TEST(a_bundle_is_taken_until_it_is_malformed)
{
    enum { MESSAGES = MR_FRAGMENTS_MAX + 2 };
    size_t bytes = 0;
    packet_make(MR_PACKET_DATA, MR_FLAG_BUNDLE, 0);
    for (uint32_t i = 0; i < MESSAGES; i++)
        bytes = bundle_append(bytes, i + 1, 33 + i % 8);
    size_t whole = bytes;
    bytes = bundle_append(bytes, MESSAGES + 1, 40) - 8; /* cut short */
    struct mr_packet_header h = {.type = MR_PACKET_DATA, .flags = MR_FLAG_BUNDLE};
    h.payload_bytes = (uint16_t)bytes;
    struct mr_fragment out[MR_FRAGMENTS_MAX];
    uint32_t at = 0, count;
    assert_true(mr_packet_fragments(&h, packet + MR_HEADER_BYTES, &at, out, &count));
    assert_int_equal(count, MR_FRAGMENTS_MAX);
    assert_int_equal(out[1].call_id, 2);
    assert_int_equal(out[1].bytes, 34);
    assert_ptr_equal(out[1].payload, packet + MR_HEADER_BYTES + 16 + 40 + 16);
    assert_false(mr_packet_fragments(&h, packet + MR_HEADER_BYTES, &at, out, &count));
    assert_int_equal(count, 2);
    assert_int_equal(out[1].call_id, MESSAGES);
    assert_int_equal(at, whole);
}
