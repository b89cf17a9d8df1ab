/* Any bytes as the values of a remote call: what is read lies within the message, in order; references are
 * taken in once each, and those that were taken before one fails are there to be given back; what is read is
 * written again as the same values.
 *
 * Input: which reference is refused, which tensors the message has besides the first, then the first one's
 * bytes. */
#include <stdbool.h>
#include <string.h>
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/values.h"
#include "fuzz_assert.h"

#define OPTION_BYTES 4u
#define FROM         7u
#define TO           9u

struct mr_rref {
    uint64_t words[MR_RREF_WORDS];
    bool is_held;
};

struct references {
    uint32_t refused; /* the number of the one that cannot be taken in */
    uint32_t taken, passed;
    struct mr_rref handles[MR_RPC_ARGUMENTS_MAX];
};

static enum mr_status take_in(void *self, uint32_t from, const uint64_t words[MR_RREF_WORDS],
                              struct mr_rref **rref)
{
    struct references *r = self;
    FUZZ_ASSERT(from == FROM && r->taken < MR_RPC_ARGUMENTS_MAX);
    if (r->taken == r->refused)
        return MR_INVALID_ARGUMENT;
    *rref = &r->handles[r->taken++];
    memcpy((*rref)->words, words, sizeof((*rref)->words));
    (*rref)->is_held = true;
    return MR_OK;
}

static enum mr_status pass_out(void *self, struct mr_rref *rref, uint32_t to, uint64_t words[MR_RREF_WORDS])
{
    struct references *r = self;
    FUZZ_ASSERT(to == TO && rref == &r->handles[r->passed]);
    memcpy(words, r->handles[r->passed++].words, sizeof(rref->words));
    return MR_OK;
}

/* The first tensor: an allocation of its own, so that every byte read beyond it is seen. */
static struct mr_message make_message(const uint8_t *options, const uint8_t *head, size_t head_bytes)
{
    static float floats[8];
    struct mr_message m = {0};
    void *room = NULL;
    FUZZ_ASSERT(posix_memalign(&room, MR_TENSOR_ALIGN, head_bytes + (head_bytes == 0)) == 0);
    memcpy(room, head, head_bytes);
    m.tensors[0] = mr_tensor_1d((options[3] & 1) != 0 ? MR_I8 : MR_U8, (uint32_t)head_bytes, room);
    m.preamble.tensor_count = options[1] % (MR_TENSORS_MAX + 1);
    for (uint32_t i = 1; i < m.preamble.tensor_count; i++)
        m.tensors[i] = mr_tensor_1d(MR_F32, (options[2] + i) % 8, floats);
    return m;
}

static void check_views(const struct mr_message *m, const struct mr_rpc_head *head, const char *name,
                        const struct mr_value *values)
{
    uint32_t count = head->value_count;
    const char *first = m->tensors[0].data, *end = first + m->tensors[0].bytes, *at = name;
    uint32_t tensor = 1;
    FUZZ_ASSERT(name > first && name < end && memchr(name, 0, MR_RPC_NAME_BYTES) != NULL);
    at += strlen(name) + 1;
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_value *v = &values[i];
        struct mr_value_wire wire;
        memcpy(&wire, first + sizeof(struct mr_rpc_head) + i * sizeof(wire), sizeof(wire));
        FUZZ_ASSERT(v->kind < MR_VALUE_OBJECT && v->kind == wire.kind);
        FUZZ_ASSERT(v->gradient == (head->context == 0 ? 0 : wire.gradient));
        if (v->kind == MR_VALUE_STRING) {
            FUZZ_ASSERT(v->string.text == at && v->string.bytes < (size_t)(end - at) &&
                        at[v->string.bytes] == 0);
            at += v->string.bytes + 1;
        } else if (v->kind == MR_VALUE_TENSOR) {
            FUZZ_ASSERT(memcmp(&v->tensor, &m->tensors[tensor++], sizeof(v->tensor)) == 0);
        }
    }
    FUZZ_ASSERT(at == end && tensor == m->preamble.tensor_count);
}

static void check_same(const struct mr_value *a, const struct mr_value *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_ASSERT(a[i].kind == b[i].kind && a[i].gradient == b[i].gradient);
        if (a[i].kind == MR_VALUE_I64 || a[i].kind == MR_VALUE_F64)
            FUZZ_ASSERT(a[i].i64 == b[i].i64); /* or the bits of a double */
        if (a[i].kind == MR_VALUE_RREF)
            FUZZ_ASSERT(memcmp(a[i].rref->words, b[i].rref->words, sizeof(a[i].rref->words)) == 0);
        if (a[i].kind == MR_VALUE_STRING)
            FUZZ_ASSERT(a[i].string.bytes == b[i].string.bytes &&
                        memcmp(a[i].string.text, b[i].string.text, a[i].string.bytes + 1) == 0);
        if (a[i].kind == MR_VALUE_TENSOR)
            FUZZ_ASSERT(a[i].tensor.bytes == b[i].tensor.bytes &&
                        a[i].tensor.dims[0] == b[i].tensor.dims[0] &&
                        memcmp(a[i].tensor.data, b[i].tensor.data, a[i].tensor.bytes) == 0);
    }
}

/* The values again, as a message of their own. */
static void check_round_trip(const struct mr_message *m, const struct mr_rpc_head *head, const char *name,
                             const struct mr_value *values, struct references *references)
{
    struct mr_message again = {0};
    struct references taken = {.refused = UINT32_MAX};
    struct mr_value_hooks out = {.self = references, .pass_out = pass_out},
                          in = {.self = &taken, .take_in = take_in};
    struct mr_value read[MR_RPC_ARGUMENTS_MAX];
    struct mr_rpc_head head_again;
    uint32_t count = head->value_count, count_again;
    const char *name_again;
    size_t bytes = mr_values_head_bytes(name, values, count);
    FUZZ_ASSERT(bytes == m->tensors[0].bytes);
    uint8_t *written = malloc(bytes);
    FUZZ_ASSERT(written != NULL);
    uint64_t words[MR_RPC_ARGUMENTS_MAX * MR_RREF_WORDS];
    FUZZ_ASSERT(mr_values_pass(values, count, &out, TO, words) == MR_OK);
    mr_values_write(written, head, name, values, count, words);
    FUZZ_ASSERT(references->passed == references->taken);
    again.preamble.tensor_count = (uint16_t)mr_values_tensors(written, bytes, values, count, again.tensors);
    FUZZ_ASSERT(mr_values_decode(&again, &head_again, &name_again, read, &count_again, &in, FROM));
    FUZZ_ASSERT(count_again == count && memcmp(head, &head_again, sizeof(*head)) == 0);
    FUZZ_ASSERT(strcmp(name, name_again) == 0);
    check_same(values, read, count);
    free(written);
}

static void check_copy(const struct mr_value *values, uint32_t count)
{
    struct mr_value copies[MR_RPC_ARGUMENTS_MAX];
    void *room = NULL;
    size_t bytes = mr_values_copy_bytes(values, count);
    FUZZ_ASSERT(posix_memalign(&room, MR_TENSOR_ALIGN, bytes + (bytes == 0)) == 0);
    mr_values_copy(values, count, copies, room);
    check_same(values, copies, count);
    free(room);
}

static void check_whole(const struct mr_message *m, const struct mr_rpc_head *head, const char *name,
                        const struct mr_value *values, struct references *references)
{
    struct mr_rpc_head peeked;
    const char *peeked_name;
    char text[80];
    check_views(m, head, name, values);
    FUZZ_ASSERT(mr_values_peek(m, &peeked, &peeked_name));
    FUZZ_ASSERT(memcmp(&peeked, head, sizeof(peeked)) == 0 && peeked_name == name);
    check_round_trip(m, head, name, values, references);
    check_copy(values, head->value_count);
    mr_signature_describe(values, head->value_count, text, sizeof(text));
    FUZZ_ASSERT(memchr(text, 0, sizeof(text)) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct references references;
    struct mr_value_hooks hooks = {.self = &references, .take_in = take_in};
    struct mr_value values[MR_RPC_ARGUMENTS_MAX];
    struct mr_rpc_head head;
    const char *name;
    uint32_t count;
    if (bytes < OPTION_BYTES)
        return 0;
    struct mr_message m = make_message(data, data + OPTION_BYTES, bytes - OPTION_BYTES);
    references = (struct references){.refused = data[0]};
    bool plain = mr_values_decode(&m, &head, &name, values, &count, NULL, FROM);
    bool whole = mr_values_decode(&m, &head, &name, values, &count, &hooks, FROM);
    FUZZ_ASSERT(whole || !plain);
    FUZZ_ASSERT(plain == (whole && references.taken == 0));
    if (whole) {
        FUZZ_ASSERT(count == head.value_count);
        check_whole(&m, &head, name, values, &references);
    }
    for (uint32_t i = 0; i < count; i++) { /* each that was taken in is there, once */
        if (values[i].kind != MR_VALUE_RREF)
            continue;
        FUZZ_ASSERT(values[i].rref->is_held);
        values[i].rref->is_held = false;
        references.taken--;
    }
    FUZZ_ASSERT(references.taken == 0);
    free(m.tensors[0].data);
    return 0;
}
