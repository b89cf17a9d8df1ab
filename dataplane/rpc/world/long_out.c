/* Long messages at their sender. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"

#define PART_WORDS 3u /* {id, offset, bytes}; 0 bytes: done with it, offset 1: and has not looked at it */

bool mr_long_is(const struct mr_rpc *agent, uint64_t bytes)
{
    return bytes > agent->config.long_from_bytes;
}

bool mr_long_reserve(struct mr_rpc *agent, uint64_t bytes)
{
    uint64_t taken = atomic_load(&agent->longs.bytes);

    do {
        if (bytes > agent->config.long_memory_bytes || taken > agent->config.long_memory_bytes - bytes)
            return false;
    } while (!atomic_compare_exchange_weak(&agent->longs.bytes, &taken, taken + bytes));
    return true;
}

void mr_long_unreserve(struct mr_rpc *agent, uint64_t bytes)
{
    atomic_fetch_sub(&agent->longs.bytes, bytes);
}

/* ---- */

static uint8_t *make_room(struct mr_tensor *tensors, uint32_t tensor_count)
{
    uint64_t bytes = MR_TENSOR_ALIGN;

    for (uint32_t i = 0; i < tensor_count; i++) {
        if (tensors[i].data == NULL)
            bytes += (tensors[i].bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    }
    uint8_t *room = aligned_alloc(MR_TENSOR_ALIGN, bytes), *at = room;

    for (uint32_t i = 0; room != NULL && i < tensor_count; i++) {
        if (tensors[i].data != NULL)
            continue;
        tensors[i].data = at;
        at += (tensors[i].bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    }
    return room;
}

struct mr_long_out *mr_long_out_new(struct mr_rpc *agent, uint32_t to, uint8_t op, struct mr_tensor *tensors,
                                    uint32_t tensor_count, uint64_t words[MR_LONG_NOTE_WORDS])
{
    struct mr_long_out *out = malloc(sizeof(*out));

    if (out == NULL)
        return NULL;
    *out = (struct mr_long_out){.to = to,
                                .id = ++agent->longs.last_id,
                                .bytes = mr_message_long_bytes(tensors, tensor_count),
                                .preamble = {.op = op, .step = agent->config.rank},
                                .room = make_room(tensors, tensor_count),
                                .tensor_count = tensor_count};
    if (out->room == NULL) {
        free(out);
        return NULL;
    }
    memcpy(out->tensors, tensors, tensor_count * sizeof(*tensors));
    mr_list_append(&agent->longs.out, &out->link);
    words[0] = out->id;
    words[1] = out->bytes;
    return out;
}

void mr_long_out_end(struct mr_rpc *agent, struct mr_long_out *out, bool unread)
{
    if (out == NULL)
        return;
    mr_list_remove(&out->link);
    if (unread && out->unread != NULL)
        out->unread(agent, out->of);
    if (out->gone != NULL)
        out->gone(agent, out->of);
    free(out->room);
    free(out);
}

/* ---- parts ---- */

static struct mr_long_out *find(struct mr_rpc *agent, uint64_t id, uint32_t to)
{
    for (struct mr_link *link = agent->longs.out.next; link != &agent->longs.out; link = link->next) {
        struct mr_long_out *out = MR_CONTAINER(link, struct mr_long_out, link);

        if (out->id == id && out->to == to)
            return out;
    }
    return NULL;
}

void mr_long_serve_part(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    const struct mr_tensor *first = &request->message->tensors[0];
    uint64_t words[PART_WORDS];

    if (request->message->preamble.tensor_count != 1 || first->bytes != sizeof(words)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    memcpy(words, first->data, sizeof(words));
    struct mr_long_out *out = find(agent, words[0], from->rank);

    if (words[2] == 0) {
        mr_reply_status(ep, request->ref, MR_OK);
        mr_long_out_end(agent, out, words[1] != 0);
        return;
    }
    if (out == NULL || (out->call != NULL && out->call->over != NULL && *out->call->over)) {
        mr_reply_status(ep, request->ref, MR_CANCELLED);
        return;
    }
    if (words[2] > MR_LONG_PART_BYTES || words[1] > out->bytes || words[2] > out->bytes - words[1]) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    struct mr_tensor part = mr_tensor_1d(MR_U8, (uint32_t)words[2], NULL);

    if (!mr_reply_begin(ep, request->ref, MR_OK, &part, 1)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    mr_message_read_part(&out->preamble, out->tensors, out->tensor_count, words[1], (uint32_t)words[2],
                         part.data);
    mr_reply_end(ep, request->ref);
}
