/* Any bytes as a message: parsed tensors lie within them, in order, aligned, with the sizes that their shapes
 * say; and what is parsed is laid out again as the same message. */
#include <stdbool.h>
#include <string.h>
#include "dataplane/wire/format/message.h"
#include "dataplane/wire/format/packet.h"
#include "fuzz_assert.h"

static uint64_t shape_bytes(const struct mr_tensor *t)
{
    unsigned __int128 product = mr_dtype_bytes(t->dtype);
    for (uint32_t d = 0; d < MR_RANK_MAX; d++)
        if (d < t->rank)
            product *= t->dims[d];
        else
            FUZZ_ASSERT(t->dims[d] == 0);
    FUZZ_ASSERT(product <= MR_MESSAGE_BYTES_MAX);
    return (uint64_t)product;
}

static void check_tensors(const uint8_t *message, uint32_t bytes, const struct mr_message *m)
{
    const uint8_t *end =
        message + sizeof(struct mr_preamble) + m->preamble.tensor_count * sizeof(struct mr_tensor_wire);
    FUZZ_ASSERT(m->preamble.tensor_count <= MR_TENSORS_MAX);
    for (uint32_t i = 0; i < m->preamble.tensor_count; i++) {
        const struct mr_tensor *t = &m->tensors[i];
        const uint8_t *start = t->data;
        FUZZ_ASSERT((uintptr_t)start % MR_TENSOR_ALIGN == 0);
        FUZZ_ASSERT(start >= end && start < end + MR_TENSOR_ALIGN);
        FUZZ_ASSERT(t->rank <= MR_RANK_MAX && mr_dtype_bytes(t->dtype) != 0);
        FUZZ_ASSERT(t->bytes == shape_bytes(t));
        end = start + t->bytes;
    }
    FUZZ_ASSERT(end == message + bytes);
}

static void check_round_trip(const uint8_t *message, uint32_t bytes, const struct mr_message *m)
{
    struct mr_tensor tensors[MR_TENSORS_MAX];
    static struct mr_message again;
    uint32_t count = m->preamble.tensor_count;
    memcpy(tensors, m->tensors, count * sizeof(tensors[0]));
    FUZZ_ASSERT(mr_message_bytes(tensors, count) == bytes);
    uint8_t *copy = aligned_alloc(MR_TENSOR_ALIGN, (bytes + MR_TENSOR_ALIGN - 1) & ~(MR_TENSOR_ALIGN - 1));
    FUZZ_ASSERT(copy != NULL);
    mr_message_layout(copy, &m->preamble, tensors, count);
    FUZZ_ASSERT(mr_message_parse(copy, bytes, copy, &again));
    FUZZ_ASSERT(memcmp(copy, message, sizeof(struct mr_preamble)) == 0);
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_ASSERT((uint8_t *)again.tensors[i].data - copy == (uint8_t *)m->tensors[i].data - message);
        FUZZ_ASSERT(memcmp(again.tensors[i].data, m->tensors[i].data, m->tensors[i].bytes) == 0);
    }
    free(copy);
}

/* A look at the same bytes, anywhere in memory: within them, and the truth if they are a message. */
static void check_peek(const uint8_t *data, uint32_t bytes, const struct mr_message *m)
{
    uint8_t *copy = malloc((size_t)bytes + 1);
    FUZZ_ASSERT(copy != NULL);
    const uint8_t *message = memcpy(copy + 1, data, bytes);
    for (uint32_t i = 0; i <= MR_TENSORS_MAX; i++) {
        struct mr_tensor t;
        bool seen = mr_message_peek(message, bytes, i, &t);
        FUZZ_ASSERT(m == NULL || seen == (i < m->preamble.tensor_count));
        if (!seen)
            continue;
        const uint8_t *start = t.data;
        FUZZ_ASSERT(start >= message && start <= message + bytes);
        FUZZ_ASSERT(t.bytes <= (uint64_t)(message + bytes - start));
        if (m != NULL) {
            const struct mr_tensor *parsed = &m->tensors[i];
            FUZZ_ASSERT(t.dtype == parsed->dtype && t.rank == parsed->rank && t.bytes == parsed->bytes);
            FUZZ_ASSERT(memcmp(t.dims, parsed->dims, sizeof(t.dims)) == 0);
            FUZZ_ASSERT(start == message + ((const uint8_t *)parsed->data - data));
        }
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct mr_message m;
    void *room = NULL;
    if (bytes > 1u << 20 || posix_memalign(&room, MR_TENSOR_ALIGN, bytes + (bytes == 0)) != 0)
        return 0;
    uint8_t *message = room;
    memcpy(message, data, bytes);
    uint32_t n = (uint32_t)bytes;
    bool parsed = mr_message_parse(message, n, message, &m);
    check_peek(message, n, parsed ? &m : NULL);
    if (parsed) {
        check_tensors(message, n, &m);
        check_round_trip(message, n, &m);
    }
    free(room);
    return 0;
}
