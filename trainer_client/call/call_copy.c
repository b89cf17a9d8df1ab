#include "trainer_client/call/call_copy.h"

#include <stdlib.h>
#include <string.h>

/* Requests of at least this length, which no datagram holds, are sent while they are copied: about two runs
 * of datagrams at a time, which are still in the cache when they are sent. */
#define COPY_SENT_BYTES_MIN  (256u << 10)
#define COPY_SENT_STEP_BYTES (112u << 10)
#define NO_TENSOR            UINT32_MAX

/* ---- requests ---- */

uint64_t mrc_copy_bytes(const struct mr_future *f)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->part_count; i++)
        for (uint32_t t = 0; t < f->parts[i].tensor_count; t++)
            bytes += f->parts[i].tensors[t].bytes;
    return bytes;
}

void mrc_copy_tensors(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        for (uint32_t t = 0; t < part->tensor_count; t++)
            if (part->sources[t] != NULL && part->tensors[t].bytes > 0)
                memcpy(part->tensors[t].data, part->sources[t], part->tensors[t].bytes);
    }
}

bool mrc_copy_is_in_steps(const struct mr_future *f)
{
    const struct mrc_part *part = &f->parts[0];
    if (f->part_count != 1 || mrc_copy_bytes(f) < COPY_SENT_BYTES_MIN)
        return false;
    for (uint32_t t = 0; t < part->tensor_count; t++)
        if (part->sources[t] == NULL && part->tensors[t].bytes > 0)
            return false;
    return true;
}

void mrc_copy_start(struct mrc_copy_steps *c, const struct mrc_part *part, bool waits)
{
    uint32_t longest = 0;
    *c = (struct mrc_copy_steps){.part = part, .borrowed = NO_TENSOR};
    if (!waits)
        return;
    for (uint32_t t = 1; t < part->tensor_count; t++)
        if (part->tensors[t].bytes > part->tensors[longest].bytes)
            longest = t;
    c->borrowed = longest;
    mr_call_borrow(part->call, part->tensors[longest].data, part->sources[longest],
                   (uint32_t)part->tensors[longest].bytes);
}

bool mrc_copy_is_done(const struct mrc_copy_steps *c)
{
    return c->tensor == c->part->tensor_count;
}

const uint8_t *mrc_copy_step(struct mrc_copy_steps *c)
{
    const struct mrc_part *part = c->part;
    uint64_t left = COPY_SENT_STEP_BYTES;
    const uint8_t *end = part->tensors[0].data;
    for (; c->tensor < part->tensor_count; c->tensor++, c->bytes = 0) {
        const struct mr_tensor *t = &part->tensors[c->tensor];
        if (c->tensor == c->borrowed) {
            end = (const uint8_t *)t->data + t->bytes;
            continue;
        }
        uint64_t bytes = t->bytes - c->bytes < left ? t->bytes - c->bytes : left;
        if (bytes > 0)
            memcpy((uint8_t *)t->data + c->bytes, (const uint8_t *)part->sources[c->tensor] + c->bytes,
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
static void copy_answers(struct mrc_part *part)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < part->answer_count; t++)
        bytes += (part->answers[t].bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    uint8_t *copy = aligned_alloc(MR_TENSOR_ALIGN, bytes == 0 ? MR_TENSOR_ALIGN : bytes);

    if (copy == NULL)
        return; /* without memory they stay where they are */
    part->copy = copy;
    for (uint32_t t = 0; t < part->answer_count; t++) {
        struct mr_tensor *tensor = &part->answers[t];
        if (tensor->bytes > 0)
            memcpy(copy, tensor->data, tensor->bytes);
        tensor->data = copy;
        copy += (tensor->bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    }
}

void mrc_copy_answers(struct mrc_part *part, const struct mr_message *reply)
{
    uint32_t count = reply->preamble.tensor_count;
    part->answers = count <= MRC_FEW_ANSWERS ? part->few : malloc(count * sizeof(*part->answers));
    if (part->answers == NULL) {
        part->status = MR_NO_MEMORY;
        return;
    }
    memcpy(part->answers, reply->tensors, count * sizeof(*part->answers));
    part->answer_count = count;
    if (mrc_link_is_short(part->link))
        copy_answers(part);
}
