/* Collects the state machine's messages for each worker, and sends them as one call of RPC_REFERENCE at a
 * time. Their order does not matter. No message may be lost: if there is no memory for one, its receiver is
 * regarded as dead. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/rref/rref_internal.h"

#define MESSAGES_MAX  1024u /* in one call */
#define ROOM_MIN      16u
#define MESSAGE_BYTES (MR_REFERENCE_MESSAGE_WORDS * sizeof(uint64_t))

/* ---- out ---- */

static void flush_work(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rrefs *all = MR_CONTAINER(work, struct mr_rrefs, flushing);
    all->flush_submitted = false;
    mr_outbox_flush(all);
}

static void submit_flush(struct mr_rrefs *all)
{
    if (all->flush_submitted || atomic_load(&all->ending))
        return;
    all->flush_submitted = true;
    all->flushing.run = flush_work;
    /* The thread inside looks for work before it leaves. */
    mr_agent_submit_quietly(all->agent, &all->flushing);
}

static bool make_room(struct mr_outbox *box)
{
    uint32_t room = box->room == 0 ? ROOM_MIN : box->room * 2;
    uint64_t *words;
    if (box->count < box->room)
        return true;
    words = realloc(box->words, room * MESSAGE_BYTES);
    if (words == NULL)
        return false;
    box->words = words;
    box->room = room;
    return true;
}

void mr_outbox_send(void *self, uint32_t rank, const struct mr_reference_message *message)
{
    struct mr_rrefs *all = self;
    struct mr_outbox *box = &all->outboxes[rank];
    if (make_room(box))
        mr_reference_message_pack(message, box->words + (size_t)box->count++ * MR_REFERENCE_MESSAGE_WORDS);
    else
        box->lost = true;
    submit_flush(all);
}

void mr_outbox_drop(struct mr_rrefs *all, uint32_t rank)
{
    all->outboxes[rank].count = 0;
    all->outboxes[rank].sent = 0;
}

/* An error says that the worker is gone, or takes them for malformed: they are never sent again. */
static bool sent(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                 const struct mr_message *reply)
{
    struct mr_outbox *box = MR_CONTAINER(call, struct mr_outbox, call);
    box->in_flight = false;
    box->count -= box->sent;
    memmove(box->words, box->words + (size_t)box->sent * MR_REFERENCE_MESSAGE_WORDS,
            box->count * MESSAGE_BYTES);
    box->sent = 0;
    if (box->count != 0)
        submit_flush(box->all);
    return false;
}

static void flush_one(struct mr_rrefs *all, struct mr_outbox *box)
{
    uint32_t count = box->count < MESSAGES_MAX ? box->count : MESSAGES_MAX;
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, count * MR_REFERENCE_MESSAGE_WORDS, box->words);
    if (box->lost) {
        box->lost = false;
        mr_member_died(all->agent, &all->agent->members[box->rank]);
    }
    if (box->in_flight || box->count == 0)
        return;
    box->call = (struct mr_agent_call){.to = box->rank,
                                       .op = MR_OP_RPC_REFERENCE,
                                       .control = true,
                                       .deadline_us = UINT64_MAX,
                                       .ended = sent};
    enum mr_status status = mr_agent_begin(all->agent, &box->call, &tensor, 1);

    if (status == MR_NO_MEMORY) {
        all->retries = true;
        return;
    }
    if (status != MR_OK) { /* it is dead, or this worker has left */
        mr_outbox_drop(all, box->rank);
        return;
    }
    box->in_flight = true;
    box->sent = count;
    mr_agent_send(all->agent, &box->call);
}

void mr_outbox_flush(struct mr_rrefs *all)
{
    for (uint32_t i = 0; i < all->agent->config.world_size; i++)
        flush_one(all, &all->outboxes[i]);
}

/* ---- in ---- */

void mr_outbox_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    const struct mr_tensor *tensor = &request->message->tensors[0];
    enum mr_status worst = MR_OK;
    if (request->message->preamble.tensor_count != 1 || tensor->dtype != MR_U64 ||
        tensor->bytes % MESSAGE_BYTES != 0) {
        mr_reply_status(agent->config.endpoint, request->ref, MR_BAD_MESSAGE);
        return;
    }
    for (size_t at = 0; at < tensor->bytes; at += MESSAGE_BYTES) {
        uint64_t words[MR_REFERENCE_MESSAGE_WORDS];
        struct mr_reference_message message;
        enum mr_status status = MR_BAD_MESSAGE;
        memcpy(words, (const uint8_t *)tensor->data + at, sizeof(words));
        if (mr_reference_message_unpack(words, &message)) {
            /* This worker regards it as dead from now on, too. */
            if (message.kind == MR_REFERENCE_SETTLE && message.rank < agent->config.world_size &&
                message.rank != agent->config.rank && message.rank != from->rank)
                mr_member_died(agent, &agent->members[message.rank]);
            status = mr_references_receive(agent->rrefs->refs, from->rank, &message);
        }
        if (status == MR_NO_MEMORY) { /* all of them come again, which does no harm */
            mr_reply_busy(agent->config.endpoint, request->ref);
            return;
        }
        if (status != MR_OK)
            worst = status;
    }
    mr_reply_status(agent->config.endpoint, request->ref, worst);
}
