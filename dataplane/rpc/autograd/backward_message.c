#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/backward_internal.h"
#include "dataplane/rpc/call/call.h"

struct mr_backward_message *mr_backward_message_new(struct mr_autograd *c, uint32_t to,
                                                    enum mr_backward_kind kind, uint64_t invocation,
                                                    const char *function, uint32_t count)
{
    size_t tensors_bytes = count * sizeof(struct mr_tensor);
    struct mr_backward_message *m =
        calloc(1, sizeof(*m) + tensors_bytes + sizeof(struct mr_backward_wire) + count);

    if (m == NULL)
        return NULL;
    m->context = c;
    mr_context_hold(c);
    m->call.to = to;
    m->count = count;
    snprintf(m->function, sizeof(m->function), "%s", function);
    m->first = (struct mr_backward_wire *)(void *)((uint8_t *)m->tensors + tensors_bytes);
    *m->first = (struct mr_backward_wire){.context = c->id.id,
                                          .pass = c->pass.id,
                                          .invocation = invocation,
                                          .kind = kind,
                                          .retain = c->pass.retain};
    return m;
}

static void message_free(struct mr_backward_message *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        free(m->tensors[i].data);
    mr_context_put(m->context, true);
    free(m);
}

void mr_backward_message_text(struct mr_backward_message *m, const char *text)
{
    if (text[0] == 0)
        return;
    m->tensors[0] = mr_tensor_1d(MR_U8, (uint32_t)strlen(text), NULL);
    m->tensors[0].data = strdup(text);
}

/* ---- out ---- */

/* What became of it, for whoever asked for the backward. */
static void explain(struct mr_rpc *agent, const struct mr_backward_message *m, enum mr_status status,
                    const struct mr_message *reply, char *error, size_t bytes)
{
    char who[MR_MEMBER_TEXT_BYTES];

    mr_member_text(agent, m->call.to, who);
    if (reply != NULL && reply->preamble.tensor_count == 1 && reply->tensors[0].dtype == MR_U8)
        snprintf(error, bytes, "%.*s", (int)(reply->tensors[0].bytes > 400 ? 400 : reply->tensors[0].bytes),
                 (const char *)reply->tensors[0].data);
    else if (status == MR_WORKER_DIED)
        snprintf(error, bytes, "%s died; what it recorded of \"%s\" is gone with it", who, m->function);
    else if (status == MR_DEADLINE_EXCEEDED)
        snprintf(error, bytes,
                 "going back through \"%s\" with %s: no answer came within the worker's time-out",
                 m->function, who);
    else
        snprintf(error, bytes, "going back through \"%s\" with %s: %s", m->function, who,
                 status == MR_TOO_LARGE ? mr_rpc_last_error() : mr_status_text(status));
}

static bool ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                  const struct mr_message *reply)
{
    struct mr_backward_message *m = MR_CONTAINER(call, struct mr_backward_message, call);
    struct mr_autograd *c = m->context;
    char error[MR_RPC_ERROR_BYTES] = "";

    /* Engaged: it is done when a DONE comes. */
    if (m->first->kind != MR_BACKWARD_DONE && (status != MR_NOT_READY || reply == NULL)) {
        if (status != MR_OK)
            explain(agent, m, status, reply, error, sizeof(error));
        pthread_mutex_lock(&c->lock);
        mr_pass_settle(c, m->first->pass, call->to, status, error);
        pthread_mutex_unlock(&c->lock);
    }
    message_free(m);
    return false;
}

/* To another worker. */
static enum mr_status begin(struct mr_rpc *agent, struct mr_backward_message *m)
{
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    uint8_t *present = (uint8_t *)(m->first + 1);
    uint32_t n = 1;

    for (uint32_t i = 0; i < m->count; i++) {
        present[i] = m->tensors[i].data != NULL;
        if (present[i] != 0)
            tensors[n++] = m->tensors[i];
    }
    /* A text is no gradient: its place is not listed. */
    uint32_t listed = m->first->kind == MR_BACKWARD_DONE ? 0 : m->count;

    tensors[0] = mr_tensor_1d(MR_U8, (uint32_t)sizeof(*m->first) + listed, m->first);
    m->call.op = MR_OP_RPC_BACKWARD;
    m->call.control = true;
    m->call.deadline_us =
        m->first->kind == MR_BACKWARD_DONE ? UINT64_MAX : mr_agent_deadline_us(agent, mr_agent_now(agent), 0);
    m->call.ended = ended;
    m->call.stays = true;
    return mr_agent_begin(agent, &m->call, tensors, n);
}

static void send_message(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_backward_message *m = MR_CONTAINER(work, struct mr_backward_message, work);
    enum mr_status status = begin(agent, m);

    if (status != MR_OK) {
        (void)ended(agent, &m->call, status, NULL);
        return;
    }
    for (uint32_t i = 0; i < m->count && m->call.out == NULL; i++) {
        free(m->tensors[i].data);
        m->tensors[i].data = NULL;
    }
    mr_agent_send(agent, &m->call);
}

void mr_backward_post(struct mr_backward_message *m)
{
    m->work.run = send_message;
    mr_agent_submit(m->context->contexts->agent, &m->work);
}

void mr_backward_post_all(struct mr_pass_outbox *outbox)
{
    while (outbox->first != NULL) {
        struct mr_backward_message *m = outbox->first;

        outbox->first = m->next;
        mr_backward_post(m);
    }
}

/* ---- in ---- */

static bool read_gradients(const struct mr_message *message, struct mr_backward_in *in)
{
    const struct mr_tensor *first = &message->tensors[0];
    const uint8_t *present = (const uint8_t *)first->data + sizeof(in->head);
    uint32_t tensor = 1;

    for (uint32_t i = 0; i < in->count; i++) {
        in->gradients[i] = (struct mr_tensor){.data = NULL};
        if (present[i] == 0)
            continue;
        if (tensor == message->preamble.tensor_count || message->tensors[tensor].dtype != MR_F32)
            return false;
        in->gradients[i] = message->tensors[tensor++];
    }
    return tensor == message->preamble.tensor_count;
}

bool mr_backward_read(const struct mr_message *message, struct mr_backward_in *in)
{
    const struct mr_tensor *first = &message->tensors[0];

    if (message->preamble.tensor_count == 0 || first->dtype != MR_U8 || first->bytes < sizeof(in->head) ||
        first->bytes > sizeof(in->head) + MR_RPC_ARGUMENTS_MAX)
        return false;
    memcpy(&in->head, first->data, sizeof(in->head));
    in->count = (uint32_t)(first->bytes - sizeof(in->head));
    in->text_bytes = 0;
    in->text = "";
    if (in->head.kind == MR_BACKWARD_RESULTS || in->head.kind == MR_BACKWARD_ARGUMENTS)
        return read_gradients(message, in);
    if (in->count != 0 || in->head.kind == 0 || in->head.kind > MR_BACKWARD_DONE)
        return false;
    if (in->head.kind != MR_BACKWARD_DONE || message->preamble.tensor_count == 1)
        return message->preamble.tensor_count == 1;
    in->text = message->tensors[1].data;
    in->text_bytes = (uint32_t)message->tensors[1].bytes;
    return message->preamble.tensor_count == 2 && message->tensors[1].dtype == MR_U8;
}
