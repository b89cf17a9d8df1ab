#include "dataplane/wire/format/message.h"

#include <string.h>
#include "dataplane/wire/format/packet.h"

static_assert(offsetof(struct mr_preamble, table) == 2, "table");
static_assert(offsetof(struct mr_preamble, status) == 4, "status");
static_assert(offsetof(struct mr_preamble, flags) == 6, "flags");
static_assert(offsetof(struct mr_preamble, tensor_count) == 8, "tensor_count");
static_assert(offsetof(struct mr_preamble, epoch) == 10, "epoch");
static_assert(offsetof(struct mr_preamble, deadline_ms) == 12, "deadline_ms");
static_assert(offsetof(struct mr_preamble, step) == 16, "step");
static_assert(offsetof(struct mr_preamble, sequence) == 24, "sequence");
static_assert(offsetof(struct mr_tensor_wire, rank) == 1, "rank");
static_assert(offsetof(struct mr_tensor_wire, dims) == 4, "dims");
static_assert(offsetof(struct mr_tensor_wire, reserved1) == 20, "reserved1");
static_assert(offsetof(struct mr_tensor_wire, bytes) == 24, "bytes");

#define PRIORITY_MAX 7

static uint64_t align_up(uint64_t offset)
{
    return (offset + MR_TENSOR_ALIGN - 1) & ~(uint64_t)(MR_TENSOR_ALIGN - 1);
}

/* Where the descriptors end: at most 32 + 32 * MR_TENSORS_MAX. */
static uint64_t table_end(uint32_t tensor_count)
{
    return sizeof(struct mr_preamble) + (uint64_t)tensor_count * sizeof(struct mr_tensor_wire);
}

/* Whether a descriptor's bytes are the product of its dims, and dims beyond its rank are zero. */
static bool shape_holds(uint32_t dtype, uint32_t rank, const uint32_t dims[MR_RANK_MAX], uint64_t bytes)
{
    uint64_t product = mr_dtype_bytes((enum mr_dtype)dtype);
    if (product == 0 || rank > MR_RANK_MAX)
        return false;
    for (uint32_t i = 0; i < MR_RANK_MAX; i++) {
        if (i < rank) {
            if (__builtin_mul_overflow(product, (uint64_t)dims[i], &product))
                return false;
        } else if (dims[i] != 0) {
            return false;
        }
    }
    return product == bytes;
}

static uint64_t bytes_up_to(const struct mr_tensor *tensors, uint32_t tensor_count, uint64_t bytes_max)
{
    if (tensor_count > MR_TENSORS_MAX)
        return 0;
    uint64_t end = table_end(tensor_count);
    for (uint32_t i = 0; i < tensor_count; i++) {
        const struct mr_tensor *t = &tensors[i];
        if (!shape_holds((uint32_t)t->dtype, t->rank, t->dims, t->bytes))
            return 0;
        end = align_up(end);
        if (end > bytes_max || t->bytes > bytes_max - end)
            return 0;
        end += t->bytes;
    }
    return end;
}

uint32_t mr_message_bytes(const struct mr_tensor *tensors, uint32_t tensor_count)
{
    return (uint32_t)bytes_up_to(tensors, tensor_count, MR_MESSAGE_BYTES_MAX);
}

uint64_t mr_message_long_bytes(const struct mr_tensor *tensors, uint32_t tensor_count)
{
    return bytes_up_to(tensors, tensor_count, MR_LONG_MESSAGE_BYTES_MAX);
}

/* Copied field by field, in the order in which they were written: a wide load of fields just written would
 * wait for them. */
static void descriptor_write(struct mr_tensor_wire *w, const struct mr_tensor *t)
{
    assert(t->rank <= MR_RANK_MAX);
    w->dtype = (uint8_t)t->dtype;
    w->rank = (uint8_t)t->rank;
    w->reserved0 = 0;
    memset(w->dims, 0, sizeof(w->dims));
    for (uint32_t i = 0; i < t->rank; i++)
        w->dims[i] = t->dims[i];
    w->reserved1 = 0;
    w->bytes = t->bytes;
}

static void copy_common(uint8_t *out, uint64_t from, uint64_t end, const void *data, uint64_t start,
                        uint64_t bytes)
{
    uint64_t first = start > from ? start : from, last = start + bytes < end ? start + bytes : end;
    if (first >= last)
        return;
    if (data == NULL)
        memset(out + (first - from), 0, (size_t)(last - first));
    else
        memcpy(out + (first - from), (const uint8_t *)data + (first - start), (size_t)(last - first));
}

void mr_message_read_part(const struct mr_preamble *preamble, const struct mr_tensor *tensors,
                          uint32_t tensor_count, uint64_t offset, uint32_t bytes, uint8_t *out)
{
    uint64_t last = offset + bytes, end = table_end(tensor_count);
    assert(tensor_count <= MR_TENSORS_MAX);
    struct mr_preamble first = *preamble;
    first.tensor_count = (uint16_t)tensor_count;
    copy_common(out, offset, last, &first, 0, sizeof(first));
    for (uint32_t i = 0; i < tensor_count; i++) {
        struct mr_tensor_wire wire;
        descriptor_write(&wire, &tensors[i]);
        copy_common(out, offset, last, &wire, table_end(i), sizeof(wire));
    }
    for (uint32_t i = 0; i < tensor_count && end < last; i++) {
        uint64_t start = align_up(end);
        copy_common(out, offset, last, NULL, end, start - end);
        if (tensors[i].bytes != 0)
            copy_common(out, offset, last, tensors[i].data, start, tensors[i].bytes);
        end = start + tensors[i].bytes;
    }
}

void mr_message_layout_tensors(uint8_t *buffer, struct mr_tensor *tensors, uint32_t tensor_count)
{
    assert(((uintptr_t)buffer & (MR_TENSOR_ALIGN - 1)) == 0);
    assert(tensor_count <= MR_TENSORS_MAX);
    uint64_t end = table_end(tensor_count);
    for (uint32_t i = 0; i < tensor_count; i++) {
        struct mr_tensor *t = &tensors[i];
        descriptor_write((struct mr_tensor_wire *)(void *)(buffer + table_end(i)), t);
        uint64_t start = align_up(end);
        if (start > end)
            memset(buffer + end, 0, (size_t)(start - end));
        if (t->data != NULL && t->bytes != 0)
            memcpy(buffer + start, t->data, (size_t)t->bytes);
        t->data = buffer + start;
        end = start + t->bytes;
    }
}

/* The tensor list must fill the message exactly: no byte without a meaning. */
static bool parse_tensors(const uint8_t *message, uint64_t message_bytes, const uint8_t *aligned,
                          struct mr_message *out)
{
    uint32_t count = out->preamble.tensor_count;
    uint64_t end = table_end(count);
    if (end > message_bytes)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_tensor_wire w;
        memcpy(&w, message + table_end(i), sizeof(w));
        if (w.reserved0 != 0 || w.reserved1 != 0 || !shape_holds(w.dtype, w.rank, w.dims, w.bytes))
            return false;
        uint64_t start = align_up(end);
        if (start > message_bytes || w.bytes > message_bytes - start)
            return false;
        struct mr_tensor *t = &out->tensors[i];
        t->dtype = (enum mr_dtype)w.dtype;
        t->rank = w.rank;
        memcpy(t->dims, message + table_end(i) + offsetof(struct mr_tensor_wire, dims), sizeof(t->dims));
        t->bytes = w.bytes;
        t->data = (void *)(aligned + start);
        end = start + w.bytes;
    }
    return end == message_bytes;
}

static bool parse_any(const uint8_t *message, uint64_t message_bytes, const uint8_t *aligned,
                      struct mr_message *out)
{
    assert(((uintptr_t)aligned & (MR_TENSOR_ALIGN - 1)) == 0);
    if (message_bytes < sizeof(struct mr_preamble))
        return false;
    struct mr_preamble *p = &out->preamble;
    memcpy(p, message, sizeof(*p));
    if (p->priority > PRIORITY_MAX || p->tensor_count > MR_TENSORS_MAX)
        return false;
    return parse_tensors(message, message_bytes, aligned, out);
}

bool mr_message_parse(const uint8_t *message, uint32_t message_bytes, const uint8_t *aligned,
                      struct mr_message *out)
{
    return message_bytes <= MR_MESSAGE_BYTES_MAX && parse_any(message, message_bytes, aligned, out);
}

bool mr_message_parse_long(const uint8_t *message, uint64_t message_bytes, struct mr_message *out)
{
    return message_bytes <= MR_LONG_MESSAGE_BYTES_MAX && parse_any(message, message_bytes, message, out) &&
           out->preamble.epoch == 0;
}

bool mr_message_peek(const uint8_t *message, uint32_t message_bytes, uint32_t index, struct mr_tensor *out)
{
    uint16_t count;
    if (message_bytes < sizeof(struct mr_preamble))
        return false;
    memcpy(&count, message + offsetof(struct mr_preamble, tensor_count), sizeof(count));
    uint64_t end = table_end(count);
    if (index >= count || end > message_bytes)
        return false;
    struct mr_tensor_wire w;
    uint64_t start = 0;
    for (uint32_t i = 0; i <= index; i++) {
        memcpy(&w, message + table_end(i), sizeof(w));
        start = align_up(end);
        if (start > message_bytes || w.bytes > message_bytes - start)
            return false;
        end = start + w.bytes;
    }
    out->dtype = (enum mr_dtype)w.dtype;
    out->rank = w.rank;
    memcpy(out->dims, w.dims, sizeof(out->dims));
    out->bytes = w.bytes;
    out->data = (void *)(message + start);
    return true;
}
