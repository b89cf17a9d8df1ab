/* Notifying others of the end of a context: the messages are there before they are needed, so that the end
 * cannot fail. Asking its creator for that notice takes the same op, the other way. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"

struct mr_context_end {
    struct mr_work work;
    struct mr_agent_call call;
    struct mr_context_end *next; /* of the context */
    bool (*ended)(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                  const struct mr_message *reply);
    uint64_t words[2]; /* the context's id, and the creator's contexts below that counter are over, too */
};

enum mr_status mr_context_end_prepare(struct mr_autograd *c, uint32_t rank)
{
    uint8_t bit = (uint8_t)(1u << (rank % 8));

    if ((c->notified[rank / 8] & bit) != 0)
        return MR_OK;
    struct mr_context_end *end = calloc(1, sizeof(*end));

    if (end == NULL)
        return MR_NO_MEMORY;
    end->call.to = rank;
    end->words[0] = c->id.id;
    end->next = c->ends;
    c->ends = end;
    c->notified[rank / 8] |= bit;
    return MR_OK;
}

void mr_context_end_drop(struct mr_autograd *c)
{
    while (c->ends != NULL) {
        struct mr_context_end *end = c->ends;

        c->ends = end->next;
        free(end);
    }
}

static bool end_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                      const struct mr_message *reply)
{
    free(MR_CONTAINER(call, struct mr_context_end, call));
    return false;
}

static void send_end(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_context_end *end = MR_CONTAINER(work, struct mr_context_end, work);
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, 2, end->words);

    end->call.op = MR_OP_RPC_CONTEXT_END;
    end->call.control = true;
    end->call.deadline_us = UINT64_MAX;
    end->call.ended = end->ended;
    /* It may be dead, or we have left; without memory for messages a later end reports this one, too. */
    if (mr_agent_begin(agent, &end->call, &tensor, 1) == MR_OK)
        mr_agent_send(agent, &end->call);
    else
        free(end);
}

void mr_context_end_notify(struct mr_autograd *c, uint64_t over_below)
{
    struct mr_rpc *agent = c->contexts->agent;

    pthread_mutex_lock(&c->lock);
    struct mr_context_end *end = c->ends, *next;

    c->ends = NULL;
    pthread_mutex_unlock(&c->lock);
    for (; end != NULL; end = next) {
        next = end->next;
        end->words[1] = over_below;
        end->ended = end_ended;
        end->work.run = send_end;
        mr_agent_submit(agent, &end->work);
    }
}

/* ---- asking ---- */

static bool answered(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                     const struct mr_message *reply)
{
    struct mr_context_end *question = MR_CONTAINER(call, struct mr_context_end, call);

    if (status == MR_INVALID_ARGUMENT && reply != NULL)
        mr_contexts_heard(agent->contexts, question->words[0], 0);
    free(question);
    return false;
}

void mr_context_end_ask(struct mr_rpc *agent, uint64_t id)
{
    struct mr_context_end *question = calloc(1, sizeof(*question));

    if (question == NULL)
        return; /* a later end of the creator's reports it */
    question->call.to = (uint32_t)(id >> MR_RPC_ID_SHIFT);
    question->words[0] = id;
    question->ended = answered;
    question->work.run = send_end;
    mr_agent_submit(agent, &question->work);
}

/* On the creator: `from` has it, and nobody may be left to notify it. */
static void serve_question(struct mr_rpc *agent, struct mr_contexts *contexts, uint64_t id, uint32_t from,
                           struct mr_call_ref ref)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct mr_autograd *c;
    enum mr_status status = mr_context_get(contexts, id, MR_RPC_NO_RANK, &c);

    if (status == MR_OK) {
        pthread_mutex_lock(&c->lock);
        status = c->over ? MR_INVALID_ARGUMENT : mr_context_end_prepare(c, from);
        pthread_mutex_unlock(&c->lock);
        mr_context_put(c, true);
    }
    if (status == MR_NO_MEMORY)
        mr_reply_busy(ep, ref);
    else
        mr_reply_status(ep, ref, status);
}

/* ---- */

void mr_context_end_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_contexts *contexts = agent->contexts;
    uint64_t words[2];

    if (request->message->preamble.tensor_count != 1 || request->message->tensors[0].bytes != sizeof(words)) {
        mr_reply_status(agent->config.endpoint, request->ref, MR_BAD_MESSAGE);
        return;
    }
    memcpy(words, request->message->tensors[0].data, sizeof(words));
    if (words[0] >> MR_RPC_ID_SHIFT == agent->config.rank) {
        serve_question(agent, contexts, words[0], from->rank, request->ref);
        return;
    }
    mr_reply_status(agent->config.endpoint, request->ref, MR_OK);
    mr_contexts_heard(contexts, words[0], words[1]);
}
