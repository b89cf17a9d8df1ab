#include "trainer_client/call/call_copy.h"

#include <stdlib.h>
#include <string.h>
#include "trainer_client/call/outcome.h"

/* Requests of at least this length, which no datagram holds, are sent while they are copied: about two runs
 * of datagrams at a time, which are still in the cache when they are sent. */
#define COPY_SENT_BYTES_MIN  (256u << 10)
#define COPY_SENT_STEP_BYTES (112u << 10)
#define NO_TENSOR            UINT32_MAX

/* ---- requests ---- */

uint64_t mrc_copy_bytes(const struct mr_future *f)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->request_count; i++)
        for (uint32_t t = 0; t < f->requests[i].tensor_count; t++)
            bytes += f->requests[i].tensors[t].bytes;
    return bytes;
}

void mrc_copy_tensors(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++) {
        struct mrc_shard_request *request = &f->requests[i];
        for (uint32_t t = 0; t < request->tensor_count; t++)
            if (request->sources[t] != NULL && request->tensors[t].bytes > 0)
                memcpy(request->tensors[t].data, request->sources[t], request->tensors[t].bytes);
    }
}

bool mrc_copy_is_in_steps(const struct mr_future *f)
{
    const struct mrc_shard_request *request = &f->requests[0];
    if (f->request_count != 1 || mrc_copy_bytes(f) < COPY_SENT_BYTES_MIN)
        return false;
    for (uint32_t t = 0; t < request->tensor_count; t++)
        if (request->sources[t] == NULL && request->tensors[t].bytes > 0)
            return false;
    return true;
}

void mrc_copy_start(struct mrc_copy_steps *c, const struct mrc_shard_request *request, bool waits)
{
    uint32_t longest = 0;
    *c = (struct mrc_copy_steps){.request = request, .borrowed = NO_TENSOR};
    if (!waits)
        return;
    for (uint32_t t = 1; t < request->tensor_count; t++)
        if (request->tensors[t].bytes > request->tensors[longest].bytes)
            longest = t;
    c->borrowed = longest;
    mr_call_borrow(request->call, request->tensors[longest].data, request->sources[longest],
                   (uint32_t)request->tensors[longest].bytes);
}

bool mrc_copy_is_done(const struct mrc_copy_steps *c)
{
    return c->tensor == c->request->tensor_count;
}

const uint8_t *mrc_copy_step(struct mrc_copy_steps *c)
{
    const struct mrc_shard_request *request = c->request;
    uint64_t left = COPY_SENT_STEP_BYTES;
    const uint8_t *end = request->tensors[0].data;
    for (; c->tensor < request->tensor_count; c->tensor++, c->bytes = 0) {
        const struct mr_tensor *t = &request->tensors[c->tensor];
        if (c->tensor == c->borrowed) {
            end = (const uint8_t *)t->data + t->bytes;
            continue;
        }
        uint64_t bytes = t->bytes - c->bytes < left ? t->bytes - c->bytes : left;
        if (bytes > 0)
            memcpy((uint8_t *)t->data + c->bytes, (const uint8_t *)request->sources[c->tensor] + c->bytes,
                   bytes);
        c->bytes += bytes;
        left -= bytes;
        end = (const uint8_t *)t->data + c->bytes;
        if (c->bytes < t->bytes)
            return end;
    }
    return end;
}

/* ---- answers ---- */

/* Copies the answers out of the message memory, so that callers that keep many replies do not keep the next
 * ones from arriving. */
static void copy_answers(struct mrc_shard_request *request)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < request->answer_count; t++)
        bytes += mrc_reply_room(request->answers[t].bytes);
    uint8_t *copy = aligned_alloc(MR_TENSOR_ALIGN, bytes == 0 ? MR_TENSOR_ALIGN : bytes);

    if (copy == NULL)
        return; /* without memory they stay where they are */
    request->copy = copy;
    for (uint32_t t = 0; t < request->answer_count; t++) {
        struct mr_tensor *tensor = &request->answers[t];
        if (tensor->bytes > 0)
            memcpy(copy, tensor->data, tensor->bytes);
        tensor->data = copy;
        copy += mrc_reply_room(tensor->bytes);
    }
}

void mrc_copy_answers(struct mrc_shard_request *request, const struct mr_message *reply)
{
    uint32_t count = reply->preamble.tensor_count;
    request->answers = count <= MRC_FEW_ANSWERS ? request->few : malloc(count * sizeof(*request->answers));
    if (request->answers == NULL) {
        request->status = MR_NO_MEMORY;
        return;
    }
    memcpy(request->answers, reply->tensors, count * sizeof(*request->answers));
    request->answer_count = count;
    if (mrc_link_is_short(request->link))
        copy_answers(request);
}
