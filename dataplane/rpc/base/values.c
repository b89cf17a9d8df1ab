#include "dataplane/rpc/base/values.h"

#include <string.h>

#define COPY_ALIGN 64u

static size_t align_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

struct mr_value mr_value_none(void)
{
    return (struct mr_value){.kind = MR_VALUE_NONE};
}

struct mr_value mr_value_tensor(struct mr_tensor tensor)
{
    return (struct mr_value){.kind = MR_VALUE_TENSOR, .tensor = tensor};
}

struct mr_value mr_value_i64(int64_t i64)
{
    return (struct mr_value){.kind = MR_VALUE_I64, .i64 = i64};
}

struct mr_value mr_value_f64(double f64)
{
    return (struct mr_value){.kind = MR_VALUE_F64, .f64 = f64};
}

struct mr_value mr_value_string(const char *text)
{
    return (struct mr_value){.kind = MR_VALUE_STRING,
                             .string = {.text = text, .bytes = text == NULL ? 0 : (uint32_t)strlen(text)}};
}

struct mr_value mr_value_rref(struct mr_rref *rref)
{
    return (struct mr_value){.kind = MR_VALUE_RREF, .rref = rref};
}

/* ---- out ---- */

/* Returns the bytes of a value after the table; SIZE_MAX: it cannot travel. */
static size_t tail_bytes(const struct mr_value *value)
{
    switch (value->kind) {
    case MR_VALUE_NONE:
    case MR_VALUE_I64:
    case MR_VALUE_F64:
        return 0;
    case MR_VALUE_TENSOR:
        return value->tensor.data == NULL && value->tensor.bytes != 0 ? SIZE_MAX : 0;
    case MR_VALUE_STRING:
        return value->string.text == NULL && value->string.bytes != 0 ? SIZE_MAX
                                                                      : (size_t)value->string.bytes + 1;
    case MR_VALUE_RREF:
        return value->rref == NULL ? SIZE_MAX : MR_RREF_WORDS * sizeof(uint64_t);
    case MR_VALUE_OBJECT:
        break;
    }
    return SIZE_MAX;
}

size_t mr_values_head_bytes(const char *name, const struct mr_value *values, uint32_t count)
{
    size_t bytes = sizeof(struct mr_rpc_head) + count * sizeof(struct mr_value_wire);
    if (count > MR_RPC_ARGUMENTS_MAX)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t tail = tail_bytes(&values[i]);
        if (tail == SIZE_MAX)
            return 0;
        bytes += tail;
    }
    return bytes + (name == NULL ? 0 : strlen(name)) + 1;
}

uint64_t mr_values_bytes(const char *name, const struct mr_value *values, uint32_t count)
{
    uint64_t bytes = mr_values_head_bytes(name, values, count);
    if (bytes > UINT32_MAX) /* the length of such strings does not fit into a message */
        return UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == MR_VALUE_TENSOR &&
            __builtin_add_overflow(bytes, values[i].tensor.bytes, &bytes))
            return UINT64_MAX;
    return bytes;
}

static uint64_t word_of(const struct mr_value *value)
{
    uint64_t word = 0;
    if (value->kind == MR_VALUE_I64)
        word = (uint64_t)value->i64;
    else if (value->kind == MR_VALUE_F64)
        memcpy(&word, &value->f64, sizeof(word));
    else if (value->kind == MR_VALUE_STRING)
        word = value->string.bytes;
    return word;
}

uint32_t mr_values_references(const struct mr_value *values, uint32_t count)
{
    uint32_t references = 0;
    for (uint32_t i = 0; i < count; i++)
        references += values[i].kind == MR_VALUE_RREF;
    return references;
}

enum mr_status mr_values_pass(const struct mr_value *values, uint32_t count,
                              const struct mr_value_hooks *hooks, uint32_t to, uint64_t *words)
{
    uint32_t passed = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].kind != MR_VALUE_RREF)
            continue;
        enum mr_status status =
            hooks->pass_out(hooks->self, values[i].rref, to, words + (size_t)passed * MR_RREF_WORDS);

        if (status != MR_OK) {
            mr_values_unpass(words, passed, hooks);
            return status;
        }
        passed++;
    }
    return MR_OK;
}

void mr_values_unpass(const uint64_t *words, uint32_t references, const struct mr_value_hooks *hooks)
{
    for (uint32_t i = 0; i < references; i++)
        hooks->unpass(hooks->self, words + (size_t)i * MR_RREF_WORDS);
}

static uint8_t *write_text(uint8_t *at, const char *text, size_t bytes)
{
    if (bytes != 0)
        memcpy(at, text, bytes);
    at[bytes] = 0;
    return at + bytes + 1;
}

void mr_values_write(uint8_t *out, const struct mr_rpc_head *head, const char *name,
                     const struct mr_value *values, uint32_t count, const uint64_t *words)
{
    size_t name_bytes = name == NULL ? 0 : strlen(name);
    size_t words_bytes = mr_values_references(values, count) * MR_RREF_WORDS * sizeof(uint64_t);
    struct mr_rpc_head *written = (struct mr_rpc_head *)(void *)out;
    struct mr_value_wire *wire = (struct mr_value_wire *)(void *)(out + sizeof(*head));
    uint8_t *at = (uint8_t *)(wire + count);
    *written = *head;
    written->value_count = (uint16_t)count;
    written->name_bytes = (uint16_t)name_bytes;
    for (uint32_t i = 0; i < count; i++)
        wire[i] = (struct mr_value_wire){
            .kind = (uint32_t)values[i].kind, .gradient = values[i].gradient, .word = word_of(&values[i])};
    if (words_bytes != 0)
        memcpy(at, words, words_bytes);
    at = write_text(at + words_bytes, name, name_bytes);
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == MR_VALUE_STRING)
            at = write_text(at, values[i].string.text, values[i].string.bytes);
}

uint32_t mr_values_tensors(const void *head, size_t head_bytes, const struct mr_value *values, uint32_t count,
                           struct mr_tensor *tensors)
{
    uint32_t n = 0;
    /* Strings of more than 4 GiB must be too large, instead of the truncated number. */
    tensors[n++] = mr_tensor_1d(MR_U8, head_bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)head_bytes, head);
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == MR_VALUE_TENSOR)
            tensors[n++] = values[i].tensor;
    return n;
}

/* ---- in ---- */

/* The parts of a first tensor. */
struct parts {
    const struct mr_value_wire *wire;
    const uint8_t *words; /* of the references */
    const char *texts, *end;
    uint32_t references, tensors;
};

static bool head_is_whole(const struct mr_message *message, struct mr_rpc_head *head, struct parts *parts)
{
    const struct mr_tensor *first = &message->tensors[0];
    if (message->preamble.tensor_count == 0 || first->dtype != MR_U8 || first->rank != 1 ||
        first->bytes < sizeof(*head))
        return false;
    memcpy(head, first->data, sizeof(*head));
    size_t table = sizeof(*head) + head->value_count * sizeof(struct mr_value_wire);

    if (head->value_count > MR_RPC_ARGUMENTS_MAX || head->name_bytes >= MR_RPC_NAME_BYTES ||
        table >= first->bytes)
        return false;
    const uint8_t *bytes = first->data;

    parts->wire = (const struct mr_value_wire *)(const void *)(bytes + sizeof(*head));
    parts->words = bytes + table;
    parts->end = (const char *)bytes + first->bytes;
    parts->references = 0;
    parts->tensors = 0;
    for (uint32_t i = 0; i < head->value_count; i++) {
        parts->references += parts->wire[i].kind == MR_VALUE_RREF;
        parts->tensors += parts->wire[i].kind == MR_VALUE_TENSOR;
        if (parts->wire[i].kind >= MR_VALUE_OBJECT)
            return false;
    }
    size_t words = (size_t)parts->references * MR_RREF_WORDS * sizeof(uint64_t);

    if (table + words + head->name_bytes + 1 > first->bytes ||
        message->preamble.tensor_count != parts->tensors + 1)
        return false;
    parts->texts = (const char *)parts->words + words;
    return parts->texts[head->name_bytes] == 0 && strlen(parts->texts) == head->name_bytes;
}

bool mr_values_peek(const struct mr_message *message, struct mr_rpc_head *head, const char **name)
{
    struct parts parts;
    if (!head_is_whole(message, head, &parts))
        return false;
    *name = parts.texts;
    return true;
}

static bool read_string(const struct mr_value_wire *wire, const char **at, const char *end,
                        struct mr_value *value)
{
    uint64_t left = (uint64_t)(end - *at);
    if (wire->word >= left || (*at)[wire->word] != 0)
        return false;
    value->string.text = *at;
    value->string.bytes = (uint32_t)wire->word;
    *at += wire->word + 1;
    return true;
}

/* Reads all values but references, which are last because they have to be released once they are taken in. */
static bool read_plain(const struct mr_message *message, const struct parts *parts,
                       const struct mr_rpc_head *head, struct mr_value *values)
{
    const char *texts = parts->texts + head->name_bytes + 1;
    uint32_t tensor = 1;
    for (uint32_t i = 0; i < head->value_count; i++) {
        const struct mr_value_wire *wire = &parts->wire[i];
        struct mr_value *value = &values[i];
        *value = (struct mr_value){.kind = (enum mr_value_kind)wire->kind,
                                   .gradient = head->context == 0 ? 0 : wire->gradient};
        switch (value->kind) {
        case MR_VALUE_TENSOR:
            value->tensor = message->tensors[tensor++];
            break;
        case MR_VALUE_I64:
            value->i64 = (int64_t)wire->word;
            break;
        case MR_VALUE_F64:
            memcpy(&value->f64, &wire->word, sizeof(value->f64));
            break;
        case MR_VALUE_STRING:
            if (!read_string(wire, &texts, parts->end, value))
                return false;
            break;
        default:
            value->kind = MR_VALUE_NONE; /* references, until they are taken in */
            break;
        }
    }
    return texts == parts->end;
}

static bool take_references(const struct parts *parts, uint32_t count, const struct mr_value_hooks *hooks,
                            uint32_t from, struct mr_value *values)
{
    const uint8_t *at = parts->words;
    if (parts->references != 0 && hooks == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t words[MR_RREF_WORDS];
        struct mr_rref *rref;
        if (parts->wire[i].kind != MR_VALUE_RREF)
            continue;
        memcpy(words, at, sizeof(words));
        at += sizeof(words);
        if (hooks->take_in(hooks->self, from, words, &rref) != MR_OK)
            return false;
        values[i].kind = MR_VALUE_RREF;
        values[i].rref = rref;
    }
    return true;
}

bool mr_values_decode(const struct mr_message *message, struct mr_rpc_head *head, const char **name,
                      struct mr_value *values, uint32_t *count, const struct mr_value_hooks *hooks,
                      uint32_t from)
{
    struct parts parts;
    *count = 0;
    if (!head_is_whole(message, head, &parts) || !read_plain(message, &parts, head, values))
        return false;
    *count = head->value_count;
    *name = parts.texts;
    return take_references(&parts, head->value_count, hooks, from, values);
}

/* ---- copies ---- */

size_t mr_values_copy_bytes(const struct mr_value *values, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (values[i].kind == MR_VALUE_TENSOR)
            bytes = align_up(bytes, COPY_ALIGN) + values[i].tensor.bytes;
        else if (values[i].kind == MR_VALUE_STRING)
            bytes += (size_t)values[i].string.bytes + 1;
    return align_up(bytes, COPY_ALIGN);
}

void mr_values_copy(const struct mr_value *values, uint32_t count, struct mr_value *copies, uint8_t *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        copies[i] = values[i];
        if (values[i].kind == MR_VALUE_TENSOR) {
            at = align_up(at, COPY_ALIGN);
            if (values[i].tensor.bytes != 0)
                memcpy(out + at, values[i].tensor.data, values[i].tensor.bytes);
            copies[i].tensor.data = out + at;
            at += values[i].tensor.bytes;
        } else if (values[i].kind == MR_VALUE_STRING) {
            copies[i].string.text = (const char *)out + at;
            at = (size_t)(write_text(out + at, values[i].string.text, values[i].string.bytes) - out);
        }
    }
}
