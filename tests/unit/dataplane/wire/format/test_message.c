#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/packet.h"
#include "tests/test.h"

static uint8_t *room(uint32_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, MR_TENSOR_ALIGN, bytes), 0);
    if (p != NULL) /* known to the compiler too */
        memset(p, 0xaa, bytes);
    return p;
}

/* A message with three tensors, one of them empty, one scalar. */
static uint8_t *sample(uint32_t *bytes)
{
    static const uint64_t keys[3] = {1, 2, 3};
    static const float scalar = 2.5f;
    struct mr_preamble p = {
        .op = 8, .priority = 7, .table = 4, .flags = 1, .deadline_ms = 1500, .step = 12345, .sequence = 77};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 3, keys), mr_tensor_2d(MR_F32, 0, 16, NULL),
                                   mr_tensor_0d(MR_F32, &scalar)};
    *bytes = mr_message_bytes(tensors, 3);
    uint8_t *m = room(*bytes);
    mr_message_layout(m, &p, tensors, 3);
    return m;
}

static bool parses(const uint8_t *m, uint32_t bytes)
{
    static struct mr_message out;
    return mr_message_parse(m, bytes, m, &out);
}

TEST(lengths_follow_from_the_shapes)
{
    assert_int_equal(mr_message_bytes(NULL, 0), 32);
    struct mr_tensor t[2] = {mr_tensor_1d(MR_U8, 1, NULL), mr_tensor_1d(MR_U8, 64, NULL)};
    assert_int_equal(mr_message_bytes(t, 1), 65);       /* 32 + 32, then one byte */
    assert_int_equal(mr_message_bytes(t, 2), 192 + 64); /* 96 -> 128, one byte, -> 192 */
    t[0] = mr_tensor_1d(MR_U8, 0, NULL);
    assert_int_equal(mr_message_bytes(t, 1), 64);
}

TEST(what_is_laid_out_is_parsed_back)
{
    uint32_t bytes;
    uint8_t *m = sample(&bytes);
    assert_int_equal(bytes, 192 + 4); /* 128 keys to 152, 192 nothing, 192 scalar */
    struct mr_message out;
    assert_true(mr_message_parse(m, bytes, m, &out));
    assert_int_equal(out.preamble.op, 8);
    assert_int_equal(out.preamble.priority, 7);
    assert_int_equal(out.preamble.table, 4);
    assert_int_equal(out.preamble.flags, 1);
    assert_int_equal(out.preamble.tensor_count, 3);
    assert_int_equal(out.preamble.deadline_ms, 1500);
    assert_int_equal(out.preamble.step, 12345);
    assert_int_equal(out.preamble.sequence, 77);
    assert_int_equal(out.tensors[0].dtype, MR_U64);
    assert_int_equal(out.tensors[0].rank, 1);
    assert_int_equal(out.tensors[0].bytes, 24);
    assert_ptr_equal(out.tensors[0].data, m + 128);
    assert_memory_equal(out.tensors[0].data, ((uint64_t[]){1, 2, 3}), 24);
    assert_int_equal(out.tensors[1].dims[1], 16);
    assert_int_equal(out.tensors[1].bytes, 0);
    assert_ptr_equal(out.tensors[2].data, m + 192);
    assert_memory_equal(out.tensors[2].data, &(float){2.5f}, 4);
    for (uint32_t i = 152; i < 192; i++)
        assert_int_equal(m[i], 0); /* the gap */
    free(m);
}

/* As docs/protocol.md gives it, so that a second implementation would agree. */
TEST(bytes_stand_where_the_protocol_says)
{
    static const uint8_t expected[65] = {/* op, .., one tensor, .., deadline 1000 ms */
                                         2, 0, 0, 0, 0, 0, 0, 0,    1, 0, 0, 0, 0xe8, 0x03, 0, 0,   5,
                                         0, 0, 0, 0, 0, 0, 0,       /* step */
                                         9, 0, 0, 0, 0, 0, 0, 0x80, /* sequence */
                                         1, 1, 0, 0, 1, 0, 0, 0,    0, 0, 0, 0, 0,    0,    0, 0,   0,
                                         0, 0, 0, 0, 0, 0, 0, 1,    0, 0, 0, 0, 0,    0,    0, 0x7f};
    struct mr_preamble p = {
        .op = 2, .deadline_ms = 1000, .step = 5, .sequence = UINT64_C(0x8000000000000009)};
    struct mr_tensor t = mr_tensor_1d(MR_U8, 1, "\x7f");
    uint8_t *m = room(65);
    mr_message_layout(m, &p, &t, 1);
    assert_memory_equal(m, expected, 65);
    free(m);
}

TEST(tensors_without_data_are_filled_in_later)
{
    struct mr_tensor t[2] = {mr_tensor_1d(MR_F32, 4, NULL), mr_tensor_1d(MR_U32, 2, NULL)};
    uint32_t bytes = mr_message_bytes(t, 2);
    uint8_t *m = room(bytes);
    mr_message_layout(m, &(struct mr_preamble){.op = 1}, t, 2);
    assert_ptr_equal(t[0].data, m + 128);
    assert_ptr_equal(t[1].data, m + 192);
    memset(t[0].data, 1, 16);
    memset(t[1].data, 2, 8);
    assert_true(parses(m, bytes));
    free(m);
}

TEST(every_other_length_is_refused)
{
    uint32_t bytes;
    uint8_t *m = sample(&bytes);
    uint8_t *longer = room(bytes + 64);
    memset(longer, 0, bytes + 64);
    memcpy(longer, m, bytes);
    for (uint32_t n = 0; n <= bytes + 64; n++)
        assert_int_equal(parses(longer, n), n == bytes);
    free(longer);
    free(m);
}

struct change {
    uint32_t offset;
    uint8_t value;
};

TEST(ill_formed_fields_are_refused)
{
    static const struct change changes[] = {
        {1, 8},       /* priority */
        {8, 2},       /* fewer tensors than bytes */
        {8, 4},       /* more tensors than bytes */
        {9, 1},       /* 259 tensors */
        {32, 0},      /* dtype */
        {32, 12},     /* dtype */
        {33, 5},      /* rank */
        {33, 0},      /* rank 0 with dims */
        {34, 1},      /* reserved0 */
        {36, 4},      /* dims are not bytes */
        {40, 1},      /* dims beyond the rank */
        {52, 1},      /* reserved1 */
        {56, 32},     /* bytes are not dims */
        {63, 0x80},   /* bytes beyond everything */
        {64 + 4, 1},  /* the empty tensor is not empty */
        {64 + 15, 1}, /* dims[2] of a matrix */
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        uint32_t bytes;
        uint8_t *m = sample(&bytes);
        assert_int_not_equal(m[changes[i].offset], changes[i].value);
        m[changes[i].offset] = changes[i].value;
        assert_false(parses(m, bytes));
        free(m);
    }
}

TEST(an_epoch_is_carried)
{
    struct mr_message out;
    uint8_t *m = room(sizeof(struct mr_preamble));
    mr_message_layout(m, &(struct mr_preamble){.op = 1, .epoch = 0x1234}, NULL, 0);
    assert_int_equal(m[10], 0x34);
    assert_true(mr_message_parse(m, sizeof(struct mr_preamble), m, &out));
    assert_int_equal(out.preamble.epoch, 0x1234);
    assert_false(mr_message_parse_long(m, sizeof(struct mr_preamble), &out));
    free(m);
}

/* dims whose product is `bytes` modulo 2^64 only. */
TEST(products_that_overflow_are_refused)
{
    struct mr_tensor_wire w = {.dtype = MR_U64, .rank = 4, .dims = {1u << 31, 1u << 31, 2, 1}, .bytes = 0};
    uint8_t *m = room(64);
    mr_message_layout(m, &(struct mr_preamble){.op = 1}, NULL, 0);
    m[8] = 1;
    memcpy(m + 32, &w, sizeof(w));
    assert_false(parses(m, 64));

    struct mr_tensor t = {.dtype = MR_U64, .rank = 4, .dims = {1u << 31, 1u << 31, 2, 1}, .bytes = 0};
    assert_int_equal(mr_message_bytes(&t, 1), 0);
    free(m);
}

TEST(ill_formed_tensors_have_no_length)
{
    struct mr_tensor t = mr_tensor_1d(MR_F32, 4, NULL);
    t.bytes = 15;
    assert_int_equal(mr_message_bytes(&t, 1), 0);
    t = mr_tensor_1d(MR_DTYPE_NONE, 4, NULL);
    assert_int_equal(mr_message_bytes(&t, 1), 0);
    t = mr_tensor_1d(MR_F32, 4, NULL);
    t.rank = 5;
    assert_int_equal(mr_message_bytes(&t, 1), 0);
    t.rank = 1;
    t.dims[3] = 1;
    assert_int_equal(mr_message_bytes(&t, 1), 0);
}

TEST(limits_hold)
{
    struct mr_tensor t[MR_TENSORS_MAX + 1];
    for (uint32_t i = 0; i <= MR_TENSORS_MAX; i++)
        t[i] = mr_tensor_1d(MR_U8, 0, NULL);
    assert_int_equal(mr_message_bytes(t, MR_TENSORS_MAX), 32 + 32 * MR_TENSORS_MAX + 32);
    assert_int_equal(mr_message_bytes(t, MR_TENSORS_MAX + 1), 0);

    t[0] = mr_tensor_1d(MR_U8, MR_MESSAGE_BYTES_MAX - 64, NULL);
    assert_int_equal(mr_message_bytes(t, 1), MR_MESSAGE_BYTES_MAX);
    t[0] = mr_tensor_1d(MR_U8, MR_MESSAGE_BYTES_MAX - 63, NULL);
    assert_int_equal(mr_message_bytes(t, 1), 0);
    t[0] = mr_tensor_1d(MR_U8, UINT32_MAX, NULL);
    t[1] = mr_tensor_1d(MR_U8, UINT32_MAX, NULL);
    assert_int_equal(mr_message_bytes(t, 2), 0);
}

TEST(a_peek_stays_within_the_bytes)
{
    static _Alignas(64) uint8_t laid_out[512];
    static uint8_t bytes[512 + 1];
    uint64_t keys[3] = {1, 2, 3};
    struct mr_tensor t[2] = {mr_tensor_1d(MR_U32, 2, (uint32_t[]){9, 0}), mr_tensor_1d(MR_U64, 3, keys)},
                     seen;
    uint32_t n = mr_message_bytes(t, 2);
    mr_message_layout(laid_out, &(struct mr_preamble){0}, t, 2);
    memcpy(bytes + 1, laid_out, n); /* of no alignment */
    assert_true(mr_message_peek(bytes + 1, n, 0, &seen));
    assert_int_equal(seen.dtype, MR_U32);
    assert_int_equal(seen.bytes, 8);
    assert_ptr_equal(seen.data, bytes + 1 + 128);
    assert_true(mr_message_peek(bytes + 1, n, 1, &seen));
    assert_int_equal(seen.dims[0], 3);
    assert_memory_equal(seen.data, keys, sizeof(keys));
    assert_false(mr_message_peek(bytes + 1, n, 2, &seen));
    for (uint32_t cut = 0; cut < n; cut++)
        assert_false(mr_message_peek(bytes + 1, cut, 1, &seen));
    assert_true(mr_message_peek(bytes + 1, 136, 0, &seen)); /* the first is whole */
    memset(bytes + 1 + 32 + 24, 0xff, 8);                   /* its length */
    assert_false(mr_message_peek(bytes + 1, n, 0, &seen));
    assert_false(mr_message_peek(bytes + 1, n, 1, &seen));
}

/* Any part of it is what stands there in the whole message. */
TEST(parts_of_a_long_message_make_the_whole)
{
    static const uint8_t text[] = "a text of 27 bytes, no more";
    float floats[70];
    struct mr_message parsed;
    uint8_t part[600];
    for (uint32_t i = 0; i < 70; i++)
        floats[i] = (float)i;
    const struct mr_preamble p = {.op = 25, .step = 3};
    struct mr_tensor given[3] = {mr_tensor_1d(MR_U8, 27, text), mr_tensor_2d(MR_F32, 0, 5, NULL),
                                 mr_tensor_2d(MR_F32, 35, 2, floats)};
    struct mr_tensor laid[3] = {given[0], given[1], given[2]};
    uint32_t bytes = mr_message_bytes(given, 3);
    uint8_t *whole = room(bytes);
    mr_message_layout(whole, &p, laid, 3);
    assert_int_equal(mr_message_long_bytes(given, 3), bytes);
    assert_true(bytes < sizeof(part));
    for (uint32_t from = 0; from < bytes; from++) {
        for (uint32_t n = 1; n <= bytes - from; n++) {
            part[n] = 0xaa;
            mr_message_read_part(&p, given, 3, from, n, part);
            assert_memory_equal(part, whole + from, n);
            assert_int_equal(part[n], 0xaa);
        }
    }
    assert_true(mr_message_parse_long(whole, bytes, &parsed));
    assert_memory_equal(parsed.tensors[2].data, floats, sizeof(floats));
    assert_false(mr_message_parse_long(whole, bytes - 1, &parsed));
    struct mr_tensor longer = mr_tensor_2d(MR_F32, 1u << 20, 1u << 10, floats);
    assert_int_equal(mr_message_bytes(&longer, 1), 0);
    assert_int_equal(mr_message_long_bytes(&longer, 1), 64 + (UINT64_C(1) << 32));
    longer = mr_tensor_2d(MR_F32, 1u << 20, 1u << 18, floats);
    assert_int_equal(mr_message_long_bytes(&longer, 1), 0);
    free(whole);
}
