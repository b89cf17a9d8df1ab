/* Answers that are too long for one message of the transport's. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/serving.h"

/* Until the caller has it. */
struct held {
    struct mr_answer_hold hold;
    uint32_t references;
    uint64_t words[];
};

static void unread(struct mr_rpc *agent, void *of)
{
    const struct held *held = of;

    mr_values_unpass(held->words, held->references, &agent->hooks);
}

static void gone(struct mr_rpc *agent, void *of)
{
    struct held *held = of;

    (void)agent;
    if (held->hold.release != NULL)
        held->hold.release(held->hold.of);
    free(held);
}

static struct held *hold(const struct mr_answer_long *answer)
{
    uint32_t references = mr_values_references(answer->values, answer->count);
    size_t bytes = (size_t)references * MR_RREF_WORDS * sizeof(*answer->words);
    struct held *held = malloc(sizeof(*held) + bytes);

    if (held == NULL)
        return NULL;
    held->hold = (struct mr_answer_hold){.release = NULL};
    held->references = references;
    memcpy(held->words, answer->words, bytes);
    return held;
}

/* NULL: no memory, nothing has changed. */
static struct mr_long_out *make(struct mr_rpc *agent, const struct mr_answer_long *answer,
                                uint64_t words[MR_LONG_NOTE_WORDS])
{
    struct held *held = hold(answer);
    struct mr_long_out *out = held == NULL ? NULL
                                           : mr_long_out_new(agent, answer->to, MR_OP_RPC_CALL,
                                                             answer->tensors, answer->tensor_count, words);

    if (out == NULL) {
        free(held);
        return NULL;
    }
    out->unread = unread;
    out->gone = gone;
    out->of = held;
    return out;
}

enum mr_answered mr_serving_reply_long(struct mr_rpc *agent, const struct mr_answer_long *answer)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint64_t words[MR_LONG_NOTE_WORDS] = {0};
    struct mr_tensor note = mr_tensor_1d(MR_U64, MR_LONG_NOTE_WORDS, words);
    bool wanted = !agent->closing && mr_call_ref_alive(ep, answer->ref);
    struct mr_long_out *out = wanted ? make(agent, answer, words) : NULL;

    if (out != NULL && mr_reply_begin(ep, answer->ref, MR_OK, &note, 1)) {
        mr_values_write(out->tensors[0].data, answer->head, NULL, answer->values, answer->count,
                        answer->words);
        ((struct held *)out->of)->hold = answer->hold;
        mr_reply_end(ep, answer->ref);
        return MR_ANSWER_HELD;
    }
    mr_long_out_end(agent, out, false);
    mr_values_unpass(answer->words, mr_values_references(answer->values, answer->count), &agent->hooks);
    if (wanted && mr_call_ref_alive(ep, answer->ref))
        return MR_ANSWER_LATER;
    mr_reply_status(ep, answer->ref, agent->closing ? MR_SHUTTING_DOWN : MR_OK);
    return MR_ANSWER_SENT;
}
