/* What others send of a pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/backward_internal.h"
#include "dataplane/rpc/world/long_message.h"

/* One message, from its arrival to its answer. */
struct served {
    struct mr_job job;
    struct mr_work work;
    struct mr_rpc *agent;
    uint32_t from;
    struct mr_call_ref ref;
    const struct mr_request *request;
    struct mr_long_in *parts; /* it came in them; or NULL */
    struct mr_backward_in in;
    /* The answer. */
    enum mr_status status;
    char error[MR_RPC_ERROR_BYTES];
};

static void answer(struct mr_rpc *agent, struct mr_work *work)
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
    s->work.run = answer;
    mr_agent_submit(s->agent, &s->work);
}

/* ---- under the lock ---- */

static bool is_reach(const struct served *s)
{
    return s->in.head.kind == MR_BACKWARD_REACH_RESULTS || s->in.head.kind == MR_BACKWARD_REACH_ARGUMENTS;
}

/* Whether the message is of the pass that runs here, or begins one. */
static enum mr_status join_pass(struct mr_autograd *c, const struct served *s)
{
    struct mr_pass *pass = &c->pass;
    uint64_t id = s->in.head.pass;
    bool later = id >> MR_RPC_ID_SHIFT != pass->id >> MR_RPC_ID_SHIFT || id > pass->id;

    if (c->over)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "the context has ended");
    if (pass->id == id && id != 0) /* what has run must not wait for more, and run again */
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

/* The node that the message is for. */
static uint32_t find_node(struct mr_autograd *c, const struct served *s)
{
    uint64_t invocation = s->in.head.invocation;
    struct mr_id_node *node;

    if (!mr_invocation_is_one(invocation))
        return MR_TAPE_NONE;
    if (s->in.head.kind == MR_BACKWARD_REACH_RESULTS || s->in.head.kind == MR_BACKWARD_RESULTS) {
        node = mr_id_map_get(&c->served, ((uint64_t)s->from << MR_RPC_ID_SHIFT) | invocation);
        return node == NULL ? MR_TAPE_NONE : MR_CONTAINER(node, struct mr_served_call, id)->answer;
    }
    node = mr_id_map_get(&c->calls, invocation);
    if (node == NULL || MR_CONTAINER(node, struct mr_recorded_call, id)->to != s->from)
        return MR_TAPE_NONE;
    return MR_CONTAINER(node, struct mr_recorded_call, id)->send;
}

/* The gradients fit the node's inputs, which are copied out: the tape may grow. */
static bool enter(struct mr_autograd *c, uint32_t node, const struct served *s, uint32_t *inputs)
{
    if (c->tape.nodes[node].input_count != s->in.count)
        return false;
    memcpy(inputs, mr_tape_inputs(&c->tape, node), s->in.count * sizeof(*inputs));
    for (uint32_t i = 0; i < s->in.count; i++) {
        if (inputs[i] != MR_TAPE_NONE && s->in.gradients[i].data != NULL &&
            !mr_backward_same_shape(&s->in.gradients[i], &c->tape.values[inputs[i]].shape))
            return false;
    }
    return mr_tape_enter(&c->tape, node);
}

/* ---- */

static void give(struct mr_autograd *c, const struct served *s, const uint32_t *inputs)
{
    for (uint32_t i = 0; i < s->in.count; i++) {
        float *sum = NULL;

        if (inputs[i] == MR_TAPE_NONE)
            continue;
        if (s->in.gradients[i].data != NULL) {
            sum = mr_backward_copy(&s->in.gradients[i]);
            if (sum == NULL) {
                pthread_mutex_lock(&c->lock);
                mr_pass_fail(&c->pass, MR_NO_MEMORY, "no memory for a gradient");
                pthread_mutex_unlock(&c->lock);
            }
        }
        mr_backward_give(c, s->in.head.pass, inputs[i], sum);
    }
}

/* Whether this message engaged the worker, and nothing is left to do here or to wait for. Under the lock. */
static bool is_over(const struct mr_autograd *c, const struct served *s, bool engaged_by_this)
{
    const struct mr_pass *pass = &c->pass;

    return pass->id == s->in.head.pass && engaged_by_this && pass->working == 1 && pass->deficit == 0 &&
           (c->tape.ready_count == 0 || pass->status != MR_OK);
}

/* Under the lock. Who gets the answer may begin the next backward at once: this one is at rest before. */
static void answer_over(struct mr_pass *pass, struct served *s)
{
    pass->engaged = false;
    pass->working--;
    submit_answer(s, pass->status, pass->error);
}

/* The thread's own work is done, and more is to come. Under the lock. */
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
        give(c, s, inputs);
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

static void run(struct mr_job *job)
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
    s->job = (struct mr_job){.run = run, .may_refuse = true, .depth = MR_EXECUTOR_DEPTHS - 1};
    mr_agent_add_job(agent, &s->job);
}
