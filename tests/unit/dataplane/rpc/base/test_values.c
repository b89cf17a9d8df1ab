#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/values.h"
#include "dataplane/wire/format/packet.h"
#include "tests/test.h"

/* A message with the values, laid out and read back. */
struct travelled {
    uint8_t *buffer;
    struct mr_message message;
    uint32_t bytes;
};

static void travel(struct travelled *t, const struct mr_rpc_head *head, const char *name,
                   const struct mr_value *values, uint32_t count, const struct mr_value_hooks *hooks)
{
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    size_t head_bytes = mr_values_head_bytes(name, values, count);
    assert_true(head_bytes > 0);
    uint8_t *first = aligned_alloc(64, (head_bytes + 63) / 64 * 64);
    uint64_t words[MR_RPC_ARGUMENTS_MAX * MR_RREF_WORDS];
    assert_int_equal(mr_values_pass(values, count, hooks, 7, words), MR_OK);
    mr_values_write(first, head, name, values, count, words);
    uint32_t n = mr_values_tensors(first, head_bytes, values, count, tensors);
    t->bytes = mr_message_bytes(tensors, n);
    assert_true(t->bytes > 0);
    t->buffer = aligned_alloc(64, (t->bytes + 63u) / 64 * 64);
    struct mr_preamble preamble = {.op = 25};
    mr_message_layout(t->buffer, &preamble, tensors, n);
    free(first);
    assert_true(mr_message_parse(t->buffer, t->bytes, t->buffer, &t->message));
}

static enum mr_status pass_out(void *self, struct mr_rref *rref, uint32_t to, uint64_t words[MR_RREF_WORDS])
{
    for (uint32_t i = 0; i < MR_RREF_WORDS; i++)
        words[i] = (uintptr_t)rref + to + i;
    return self == NULL ? MR_OK : MR_INVALID_ARGUMENT;
}

static enum mr_status take_in(void *self, uint32_t from, const uint64_t words[MR_RREF_WORDS],
                              struct mr_rref **rref)
{
    for (uint32_t i = 1; i < MR_RREF_WORDS; i++)
        assert_int_equal(words[i], words[0] + i);
    if (words[0] == (uintptr_t)self + 7)
        return MR_INVALID_ARGUMENT;
    *rref = (struct mr_rref *)(uintptr_t)(words[0] - 7 + from); // NOLINT: numbers that play handles
    return MR_OK;
}

static const struct mr_value_hooks hooks = {.pass_out = pass_out, .take_in = take_in};

TEST(all_kinds_come_back)
{
    static const float floats[6] = {1, 2, 3, 4, 5, 6};
    static const uint16_t words[3] = {7, 8, 9};
    struct mr_value in[] = {
        mr_value_tensor(mr_tensor_2d(MR_F32, 2, 3, floats)),
        mr_value_i64(INT64_MIN),
        mr_value_string("some text"),
        mr_value_f64(-0.5),
        mr_value_none(),
        mr_value_rref((struct mr_rref *)0x1000),
        mr_value_tensor(mr_tensor_1d(MR_U16, 3, words)),
        mr_value_string(""),
        mr_value_tensor(mr_tensor_1d(MR_F32, 0, NULL)),
    };
    in[0].gradient = 12;
    in[6].gradient = 13;
    struct mr_rpc_head head = {
        .context = 1, .invocation = 2, .reference = 3, .fork = 4, .flags = MR_RPC_REMOTE};
    struct travelled t;
    travel(&t, &head, "function", in, 9, &hooks);
    struct mr_rpc_head back;
    const char *name;
    struct mr_value out[MR_RPC_ARGUMENTS_MAX];
    uint32_t count;
    assert_true(mr_values_decode(&t.message, &back, &name, out, &count, &hooks, 9));
    assert_int_equal(count, 9);
    assert_string_equal(name, "function");
    assert_int_equal(back.context, 1);
    assert_int_equal(back.invocation, 2);
    assert_int_equal(back.reference, 3);
    assert_int_equal(back.fork, 4);
    assert_int_equal(back.flags, MR_RPC_REMOTE);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(out[i].kind, in[i].kind);
        assert_int_equal(out[i].gradient, in[i].gradient);
    }
    assert_memory_equal(out[0].tensor.data, floats, sizeof(floats));
    assert_int_equal(out[0].tensor.dims[1], 3);
    assert_int_equal(out[1].i64, INT64_MIN);
    assert_string_equal(out[2].string.text, "some text");
    assert_int_equal(out[2].string.bytes, 9);
    assert_true(out[3].f64 == -0.5);
    assert_ptr_equal(out[5].rref, (void *)(0x1000 + 9));
    assert_memory_equal(out[6].tensor.data, words, sizeof(words));
    assert_int_equal(out[7].string.bytes, 0);
    assert_int_equal(out[8].tensor.bytes, 0);
    free(t.buffer);
}

/* The third cannot be passed on, so that the first two were not either. */
struct passing {
    uint32_t passed, taken_back;
};

static enum mr_status pass_two(void *self, struct mr_rref *rref, uint32_t to, uint64_t words[MR_RREF_WORDS])
{
    struct passing *p = self;
    if (p->passed == 2)
        return MR_WORKER_DIED;
    words[0] = ++p->passed;
    words[1] = (uintptr_t)rref;
    words[2] = to;
    return MR_OK;
}

static void take_back(void *self, const uint64_t words[MR_RREF_WORDS])
{
    struct passing *p = self;
    assert_int_equal(words[0], ++p->taken_back);
    assert_int_equal(words[1], 0x1000 * words[0]);
    assert_int_equal(words[2], 4);
}

TEST(all_references_are_passed_or_none)
{
    struct passing p = {.passed = 0};
    struct mr_value_hooks passing = {.self = &p, .pass_out = pass_two, .unpass = take_back};
    struct mr_value values[] = {mr_value_i64(1), mr_value_rref((struct mr_rref *)0x1000), mr_value_i64(2),
                                mr_value_rref((struct mr_rref *)0x2000),
                                mr_value_rref((struct mr_rref *)0x3000)};
    uint64_t words[3 * MR_RREF_WORDS];
    assert_int_equal(mr_values_references(values, 5), 3);
    assert_int_equal(mr_values_pass(values, 5, &passing, 4, words), MR_WORKER_DIED);
    assert_int_equal(p.taken_back, 2);
    p = (struct passing){.passed = 0};
    assert_int_equal(mr_values_pass(values, 4, &passing, 4, words), MR_OK);
    assert_int_equal(p.taken_back, 0);
    mr_values_unpass(words, 2, &passing);
    assert_int_equal(p.taken_back, 2);
}

TEST(an_empty_call_is_small)
{
    struct mr_rpc_head head = {.flags = 0}, back;
    struct travelled t;
    const char *name;
    travel(&t, &head, "empty", NULL, 0, NULL);
    assert_true(t.bytes <= 128);
    assert_true(mr_values_peek(&t.message, &back, &name));
    assert_string_equal(name, "empty");
    assert_int_equal(back.value_count, 0);
    free(t.buffer);
}

TEST(what_cannot_travel_is_refused)
{
    struct mr_value object = {.kind = MR_VALUE_OBJECT, .object = &object};
    struct mr_value no_data = mr_value_tensor(mr_tensor_1d(MR_F32, 3, NULL));
    struct mr_value no_reference = mr_value_rref(NULL);
    struct mr_value no_text = {.kind = MR_VALUE_STRING, .string = {.text = NULL, .bytes = 3}};
    struct mr_value many[MR_RPC_ARGUMENTS_MAX + 1] = {{.kind = MR_VALUE_NONE}};
    assert_int_equal(mr_values_head_bytes("f", &object, 1), 0);
    assert_int_equal(mr_values_head_bytes("f", &no_data, 1), 0);
    assert_int_equal(mr_values_head_bytes("f", &no_reference, 1), 0);
    assert_int_equal(mr_values_head_bytes("f", &no_text, 1), 0);
    assert_int_equal(mr_values_head_bytes("f", many, MR_RPC_ARGUMENTS_MAX + 1), 0);
    assert_true(mr_values_head_bytes("f", many, MR_RPC_ARGUMENTS_MAX) > 0);
    assert_true(mr_values_head_bytes(NULL, NULL, 0) > 0);
}

TEST(references_need_hooks)
{
    struct mr_value reference = mr_value_rref((struct mr_rref *)0x1000);
    struct mr_rpc_head head = {.flags = 0}, back;
    struct mr_value out[MR_RPC_ARGUMENTS_MAX];
    uint64_t words[MR_RREF_WORDS];
    const char *name;
    uint32_t count;
    struct mr_value_hooks refusing = hooks;
    refusing.self = state;
    assert_int_equal(mr_values_pass(&reference, 1, &refusing, 7, words), MR_INVALID_ARGUMENT);
    struct travelled t;
    travel(&t, &head, "f", &reference, 1, &hooks);
    assert_false(mr_values_decode(&t.message, &back, &name, out, &count, NULL, 7));
    free(t.buffer);
}

/* What was taken in before the one that failed must be known, to be given back. */
TEST(references_before_a_bad_one_are_told)
{
    struct mr_value in[] = {mr_value_rref((struct mr_rref *)0x1000), mr_value_rref((struct mr_rref *)0x2000)};
    struct mr_rpc_head head = {.flags = 0}, back;
    struct mr_value out[MR_RPC_ARGUMENTS_MAX];
    struct mr_value_hooks second_fails = hooks;
    struct travelled t;
    const char *name;
    uint32_t count;
    travel(&t, &head, "f", in, 2, &hooks);
    second_fails.self = (void *)0x2000; // NOLINT: a number
    assert_false(mr_values_decode(&t.message, &back, &name, out, &count, &second_fails, 7));
    assert_int_equal(count, 2);
    assert_int_equal(out[0].kind, MR_VALUE_RREF);
    assert_ptr_equal(out[0].rref, (void *)(0x1000 + 7));
    assert_int_equal(out[1].kind, MR_VALUE_NONE);
    free(t.buffer);
}

/* Whatever a peer changes of the first tensor: no read beyond it (sanitizers look), and each cut is
 * noticed. */
TEST(damage_is_noticed)
{
    struct mr_value in[] = {mr_value_string("abc"), mr_value_i64(5), mr_value_rref((struct mr_rref *)0x1000)};
    struct mr_rpc_head head = {.flags = 0}, back;
    struct mr_value out[MR_RPC_ARGUMENTS_MAX];
    struct travelled t;
    const char *name;
    uint32_t count;
    travel(&t, &head, "f", in, 3, &hooks);
    struct mr_message damaged = t.message;
    uint64_t whole = t.message.tensors[0].bytes;
    for (uint64_t bytes = 0; bytes < whole; bytes++) {
        uint8_t *exact = malloc(bytes + 1);
        memcpy(exact, t.message.tensors[0].data, bytes);
        damaged.tensors[0].data = exact;
        damaged.tensors[0].bytes = bytes;
        assert_false(mr_values_decode(&damaged, &back, &name, out, &count, &hooks, 7));
        free(exact);
    }
    for (uint64_t at = 0; at < whole; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            uint8_t *exact = malloc(whole);
            memcpy(exact, t.message.tensors[0].data, whole);
            exact[at] ^= (uint8_t)(1u << bit);
            damaged.tensors[0].data = exact;
            damaged.tensors[0].bytes = whole;
            if (at < sizeof(head) ||
                at >= sizeof(head) + 3 * sizeof(struct mr_value_wire) + MR_RREF_WORDS * 8)
                (void)mr_values_decode(&damaged, &back, &name, out, &count, &hooks, 7);
            else if (at < sizeof(head) + 3 * sizeof(struct mr_value_wire))
                (void)mr_values_decode(&damaged, &back, &name, out, &count, NULL, 7);
            free(exact);
        }
    }
    damaged = t.message;
    damaged.preamble.tensor_count = 2;
    assert_false(mr_values_decode(&damaged, &back, &name, out, &count, &hooks, 7));
    damaged.preamble.tensor_count = 0;
    assert_false(mr_values_decode(&damaged, &back, &name, out, &count, &hooks, 7));
    free(t.buffer);
}

TEST(copies_stand_alone)
{
    float floats[20];
    char text[] = "text";
    for (uint32_t i = 0; i < 20; i++)
        floats[i] = (float)i;
    struct mr_value in[] = {mr_value_string(text), mr_value_tensor(mr_tensor_1d(MR_F32, 20, floats)),
                            mr_value_i64(4), mr_value_tensor(mr_tensor_1d(MR_F32, 0, NULL))};
    struct mr_value out[4];
    size_t bytes = mr_values_copy_bytes(in, 4);
    uint8_t *block = aligned_alloc(64, bytes);
    mr_values_copy(in, 4, out, block);
    memset(text, 'x', sizeof(text) - 1);
    memset(floats, 0, sizeof(floats));
    assert_string_equal(out[0].string.text, "text");
    assert_true(((const float *)out[1].tensor.data)[19] == 19);
    assert_int_equal((uintptr_t)out[1].tensor.data % 64, 0);
    assert_int_equal(out[2].i64, 4);
    free(block);
}

/* Their sum is a small number in 32 bits: the head must not seem to be that small. */
TEST(strings_of_4_gib_are_too_large)
{
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    struct mr_value values[2] = {mr_value_string(""), mr_value_string("")};
    for (uint32_t i = 0; i < 2; i++)
        values[i].string.bytes = UINT32_C(1) << 31;
    assert_int_equal(mr_values_tensors(NULL, mr_values_head_bytes("f", values, 2), values, 2, tensors), 1);
    assert_true(tensors[0].bytes > MR_MESSAGE_BYTES_MAX);
}
