/* Makes, sends, reads and serves the messages of a pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/backward.h"
#include "dataplane/rpc/call/call.h"

struct mr_backward_message *mr_backward_message_new(struct mr_autograd *c,
                                                    const struct mr_recorded_call *call,
                                                    enum mr_backward_kind kind, uint32_t count)
{
    size_t tensors_bytes = count * sizeof(struct mr_tensor);
    struct mr_backward_message *m =
        calloc(1, sizeof(*m) + tensors_bytes + sizeof(struct mr_backward_wire) + count);
    if (m == NULL)
        return NULL;
    m->context = c;
    mr_context_hold(c);
    m->call.to = call->peer;
    m->count = count;
    snprintf(m->function, sizeof(m->function), "%s", call->function);
    m->first = (struct mr_backward_wire *)(void *)((uint8_t *)m->tensors + tensors_bytes);
    *m->first = (struct mr_backward_wire){.context = c->id.id,
                                          .pass = c->pass.id,
                                          .invocation = call->invocation,
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

/* Writes why the message failed, for the program that asked for the backward. */
static void explain(struct mr_rpc *agent, const struct mr_backward_message *m, enum mr_status status,
                    const struct mr_message *reply, char *error, size_t bytes)
{
    char who[MR_MEMBER_TEXT_BYTES];
    mr_member_text(agent, m->call.to, who);
    if (mr_agent_error_text(reply, error, bytes))
        return;
    if (status == MR_WORKER_DIED)
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
    /* If it engaged the receiver, it is done when a DONE comes. */
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

/* Begins the call to the other worker. */
static enum mr_status backward_messages_begin(struct mr_rpc *agent, struct mr_backward_message *m)
{
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    uint8_t *present = (uint8_t *)(m->first + 1);
    uint32_t n = 1;
    for (uint32_t i = 0; i < m->count; i++) {
        present[i] = m->tensors[i].data != NULL;
        if (present[i] != 0)
            tensors[n++] = m->tensors[i];
    }
    /* A text is not a gradient, and is not listed. */
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
    enum mr_status status = backward_messages_begin(agent, m);
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
        if (tensor == message->preamble.tensor_count || !mr_gradient_is_of(message->tensors[tensor].dtype))
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

/* ---- served: one message, from its arrival to its answer ---- */

/* One message, from its arrival to its answer. */
struct served {
    struct mr_job job;
    struct mr_work work;
    struct mr_rpc *agent;
    uint32_t from;
    struct mr_call_ref ref;
    const struct mr_request *request;
    struct mr_long_in *parts; /* if it came in parts; else NULL */
    struct mr_backward_in in;
    /* The answer. */
    enum mr_status status;
    char error[MR_RPC_ERROR_BYTES];
};

static void backward_messages_answer(struct mr_rpc *agent, struct mr_work *work)
{
    struct served *s = MR_CONTAINER(work, struct served, work);
    if (s->error[0] == 0)
        mr_reply_status(agent->config.endpoint, s->ref, s->status);
    else
        mr_reply_error(agent->config.endpoint, s->ref, s->status, "%s", s->error);
    mr_long_release(s->parts);
    free(s);
}

static void submit_answer(struct served *s, enum mr_status status, const char *error)
{
    s->status = status;
    snprintf(s->error, sizeof(s->error), "%s", error);
    s->work.run = backward_messages_answer;
    mr_agent_submit(s->agent, &s->work);
}

/* ---- under the lock ---- */

static bool is_reach(const struct served *s)
{
    return s->in.head.kind == MR_BACKWARD_REACH_RESULTS || s->in.head.kind == MR_BACKWARD_REACH_ARGUMENTS;
}

/* Checks that the message belongs to the pass that runs here, or begins a pass. */
static enum mr_status join_pass(struct mr_autograd *c, const struct served *s)
{
    struct mr_pass *pass = &c->pass;
    uint64_t id = s->in.head.pass;
    bool later = id >> MR_RPC_ID_SHIFT != pass->id >> MR_RPC_ID_SHIFT || id > pass->id;
    if (c->over)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "the context has ended");
    if (pass->id == id && id != 0) /* a node that has run must not wait for more and run again */
        return is_reach(s) && pass->flows
                   ? mr_rpc_error(MR_BAD_MESSAGE, "gradients flow in that backward pass already")
                   : MR_OK;
    if (!is_reach(s) || !later)
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            "that backward pass is over, or another one has begun in its context");
    if (pass->id != 0 && (pass->is_root || pass->engaged || !mr_pass_at_rest(pass)))
        return mr_rpc_error(MR_INVALID_ARGUMENT, "another backward pass runs in the same context");
    return mr_pass_begin(c, id, s->in.head.retain != 0);
}

/* Returns the node for which the message is. */
static uint32_t find_node(struct mr_autograd *c, const struct served *s)
{
    uint64_t invocation = s->in.head.invocation;
    bool of_ours = s->in.head.kind == MR_BACKWARD_REACH_ARGUMENTS || s->in.head.kind == MR_BACKWARD_ARGUMENTS;
    if (!mr_invocation_is_one(invocation))
        return MR_TAPE_NONE;
    struct mr_id_node *node =
        of_ours ? mr_id_map_get(&c->calls, invocation)
                : mr_id_map_get(&c->served, ((uint64_t)s->from << MR_RPC_ID_SHIFT) | invocation);

    if (node == NULL)
        return MR_TAPE_NONE;
    const struct mr_recorded_call *call = MR_CONTAINER(node, struct mr_recorded_call, id);

    if (call->peer != s->from)
        return MR_TAPE_NONE;
    return of_ours ? call->arguments : call->results;
}

/* Checks that the gradients fit the node's inputs, and copies these out, because the tape may grow. */
static bool enter(struct mr_autograd *c, uint32_t node, const struct served *s, uint32_t *inputs)
{
    if (c->tape.nodes[node].input_count != s->in.count)
        return false;
    memcpy(inputs, mr_tape_inputs(&c->tape, node), s->in.count * sizeof(*inputs));
    for (uint32_t i = 0; i < s->in.count; i++)
        if (inputs[i] != MR_TAPE_NONE && s->in.gradients[i].data != NULL &&
            !mr_gradient_same_shape(&s->in.gradients[i], &c->tape.values[inputs[i]].shape))
            return false;
    return mr_tape_enter(&c->tape, node);
}

/* ---- */

static void backward_messages_give(struct mr_autograd *c, const struct served *s, const uint32_t *inputs)
{
    for (uint32_t i = 0; i < s->in.count; i++) {
        void *sum = NULL;
        if (inputs[i] == MR_TAPE_NONE)
            continue;
        if (s->in.gradients[i].data != NULL) {
            sum = mr_gradient_copy(&s->in.gradients[i]);
            if (sum == NULL) {
                pthread_mutex_lock(&c->lock);
                mr_pass_fail(&c->pass, MR_NO_MEMORY, "no memory for a gradient");
                pthread_mutex_unlock(&c->lock);
            }
        }
        mr_backward_give(c, s->in.head.pass, inputs[i], sum);
    }
}

/* Under the lock: returns whether this message engaged the worker, and nothing is left to do or to wait
 * for. */
static bool is_over(const struct mr_autograd *c, const struct served *s, bool engaged_by_this)
{
    const struct mr_pass *pass = &c->pass;
    return pass->id == s->in.head.pass && engaged_by_this && pass->working == 1 && pass->deficit == 0 &&
           (c->tape.ready_count == 0 || pass->status != MR_OK);
}

/* Under the lock. The receiver of the answer may begin the next backward at once, so this one must be at rest
 * before. */
static void answer_over(struct mr_pass *pass, struct served *s)
{
    pass->engaged = false;
    pass->working--;
    submit_answer(s, pass->status, pass->error);
}

/* Under the lock: this thread's own work is done, but more is expected. */
static void answer_engaged(const struct mr_pass *pass, struct served *s, bool engaged_by_this)
{
    if (pass->id != s->in.head.pass)
        submit_answer(s, MR_INVALID_ARGUMENT, "the context has ended");
    else
        submit_answer(s, engaged_by_this ? MR_NOT_READY : MR_OK, "");
}

static void go_through(struct mr_autograd *c, struct served *s, uint32_t node)
{
    struct mr_pass *pass = &c->pass;
    uint64_t id = s->in.head.pass;
    uint32_t inputs[MR_RPC_ARGUMENTS_MAX];
    struct mr_pass_outbox outbox = {.first = NULL};
    bool engaged_by_this = !pass->engaged && !pass->is_root, entered = false;
    if (engaged_by_this) {
        pass->engaged = true;
        pass->parent = s->from;
    }
    pass->working++;
    if (is_reach(s)) {
        (void)mr_pass_reach(c, node, &outbox);
    } else {
        pass->flows = true;
        entered = enter(c, node, s, inputs);
        if (!entered)
            mr_pass_fail(pass, MR_BAD_MESSAGE, "gradients of another shape came, or came twice");
    }
    pthread_mutex_unlock(&c->lock);
    if (entered)
        backward_messages_give(c, s, inputs);
    mr_backward_post_all(&outbox);
    pthread_mutex_lock(&c->lock);
    if (is_over(c, s, engaged_by_this)) {
        answer_over(pass, s);
        return;
    }
    answer_engaged(pass, s, engaged_by_this);
    pthread_mutex_unlock(&c->lock);
    mr_backward_drain(c, id);
    pthread_mutex_lock(&c->lock);
    if (pass->id == id) {
        pass->working--;
        mr_pass_rest(c);
    }
}

static void backward_messages_run(struct mr_job *job)
{
    struct served *s = MR_CONTAINER(job, struct served, job);
    struct mr_autograd *c;
    if (job->refused) {
        submit_answer(s, MR_BUSY, "all threads of a worker wait for others: gradients cannot go through it");
        return;
    }
    enum mr_status status = mr_context_get(s->agent->contexts, s->in.head.context, MR_RPC_NO_RANK, &c);

    if (status != MR_OK) {
        submit_answer(s, status, mr_rpc_last_error());
        return;
    }
    pthread_mutex_lock(&c->lock);
    uint32_t node = find_node(c, s);

    if (node == MR_TAPE_NONE)
        status = mr_rpc_error(MR_BAD_MESSAGE, "no such call was recorded here");
    else
        status = join_pass(c, s);
    if (status == MR_OK)
        go_through(c, s, node);
    pthread_mutex_unlock(&c->lock);
    if (status != MR_OK)
        submit_answer(s, status, mr_rpc_last_error());
    mr_context_put(c, false);
}

/* ---- inside ---- */

static void serve_done(struct mr_rpc *agent, struct served *s)
{
    struct mr_autograd *c;
    char text[MR_RPC_ERROR_BYTES];
    if (mr_context_get(s->agent->contexts, s->in.head.context, MR_RPC_NO_RANK, &c) == MR_OK) {
        snprintf(text, sizeof(text), "%.*s", (int)(s->in.text_bytes > 500 ? 500 : s->in.text_bytes),
                 s->in.text);
        pthread_mutex_lock(&c->lock);
        mr_pass_settle(c, s->in.head.pass, s->from, (enum mr_status)s->in.head.status, text);
        pthread_mutex_unlock(&c->lock);
        mr_context_put(c, true);
    }
    mr_reply_status(agent->config.endpoint, s->ref, MR_OK);
    free(s);
}

void mr_backward_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct served *s = malloc(sizeof(*s));
    if (s == NULL) {
        mr_long_busy(agent, request);
        return;
    }
    *s = (struct served){.agent = agent, .from = from->rank, .ref = request->ref};
    const struct mr_request *stable = request;

    if (!mr_backward_read(request->message, &s->in)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        free(s);
        return;
    }
    if (s->in.head.kind == MR_BACKWARD_DONE) {
        serve_done(agent, s);
        return;
    }
    stable = mr_long_later(agent, request, &s->parts);
    if (stable == NULL || !mr_backward_read(stable->message, &s->in)) {
        mr_reply_busy(ep, request->ref);
        free(s);
        return;
    }
    s->job =
        (struct mr_job){.run = backward_messages_run, .may_refuse = true, .depth = MR_EXECUTOR_DEPTHS - 1};
    mr_agent_add_job(agent, &s->job);
}
