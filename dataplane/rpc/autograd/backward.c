/* The pass on one worker, and its root. */
#include "dataplane/rpc/autograd/backward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/call/executing.h"
#include "dataplane/wire/base/plural.h"

/* ---- its state; under the lock ---- */

enum mr_status mr_pass_begin(struct mr_autograd *c, uint64_t id, bool retain)
{
    struct mr_pass *pass = &c->pass;
    uint32_t world_size = c->contexts->agent->config.world_size;
    if (pass->awaited == NULL)
        pass->awaited = calloc(world_size, sizeof(*pass->awaited));
    if (pass->awaited == NULL)
        return MR_NO_MEMORY;
    memset(pass->awaited, 0, world_size * sizeof(*pass->awaited));
    mr_tape_begin_pass(&c->tape, retain);
    pass->id = id;
    pass->retain = retain;
    pass->is_root = false;
    pass->engaged = false;
    pass->flows = false;
    pass->working = 0;
    pass->deficit = 0;
    pass->status = MR_OK;
    pass->error[0] = 0;
    return MR_OK;
}

bool mr_pass_at_rest(const struct mr_pass *pass)
{
    return pass->working == 0 && pass->deficit == 0;
}

void mr_pass_count(struct mr_autograd *c, struct mr_backward_message *message, struct mr_pass_outbox *outbox)
{
    c->pass.deficit++;
    c->pass.awaited[message->call.to]++;
    message->next = outbox->first;
    outbox->first = message;
}

static void notify_done(struct mr_autograd *c)
{
    struct mr_pass *pass = &c->pass;
    const struct mr_recorded_call engaged_by = {.peer = pass->parent};
    struct mr_backward_message *m = mr_backward_message_new(c, &engaged_by, MR_BACKWARD_DONE, 1);
    if (m == NULL)
        return; /* the root's time-out ends it */
    m->first->status = (uint16_t)pass->status;
    mr_backward_message_text(m, pass->error);
    mr_backward_post(m);
}

void mr_pass_rest(struct mr_autograd *c)
{
    struct mr_pass *pass = &c->pass;
    if (pass->id == 0 || !mr_pass_at_rest(pass))
        return;
    if (pass->is_root) {
        (void)mr_agent_done(&pass->done);
    } else if (pass->engaged) {
        pass->engaged = false;
        notify_done(c);
    }
}

void mr_pass_settle(struct mr_autograd *c, uint64_t id, uint32_t to, enum mr_status status, const char *error)
{
    struct mr_pass *pass = &c->pass;
    if (pass->id != id || pass->awaited[to] == 0)
        return;
    pass->awaited[to]--;
    pass->deficit--;
    if (status != MR_OK)
        mr_pass_fail(pass, status, "%s", error);
    mr_pass_rest(c);
}

static void died_in(struct mr_autograd *c, uint32_t rank)
{
    struct mr_pass *pass = &c->pass;
    char who[MR_MEMBER_TEXT_BYTES];
    pthread_mutex_lock(&c->lock);
    if (pass->id != 0 && pass->awaited[rank] != 0) {
        mr_member_text(c->contexts->agent, rank, who);
        mr_pass_fail(pass, MR_WORKER_DIED, "%s died while gradients went back through it", who);
        pass->deficit -= pass->awaited[rank];
        pass->awaited[rank] = 0;
        mr_pass_rest(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void mr_backward_died(struct mr_rpc *agent, uint32_t rank)
{
    struct mr_contexts *contexts = agent->contexts;
    pthread_mutex_lock(&contexts->lock);
    MR_ID_MAP_EACH(node, &contexts->map)
        died_in(MR_CONTAINER(node, struct mr_autograd, id), rank);
    pthread_mutex_unlock(&contexts->lock);
}

/* ---- reaching; under the lock ---- */

struct walk {
    struct mr_autograd *context;
    struct mr_pass_outbox *outbox;
    bool no_memory;
};

/* Reaches what a node depends on at another worker. */
static void reached(void *self, uint32_t node)
{
    struct walk *walk = self;
    const struct mr_tape_node *n = &walk->context->tape.nodes[node];
    const struct mr_recorded_call *call = n->of;
    if (n->kind != MR_RECORDED_CALL && n->kind != MR_RECORDED_ARGUMENTS)
        return;
    struct mr_backward_message *m = mr_backward_message_new(
        walk->context, call,
        n->kind == MR_RECORDED_CALL ? MR_BACKWARD_REACH_RESULTS : MR_BACKWARD_REACH_ARGUMENTS, 0);

    if (m == NULL)
        walk->no_memory = true;
    else
        mr_pass_count(walk->context, m, walk->outbox);
}

static const char *function_of(const struct mr_tape_node *n)
{
    if (n->kind == MR_RECORDED_RUN)
        return ((const struct mr_recorded_run *)n->of)->function->name;
    return n->kind == MR_RECORDED_LEAF ? "?" : ((const struct mr_recorded_call *)n->of)->function;
}

enum mr_status mr_pass_reach(struct mr_autograd *c, uint32_t node, struct mr_pass_outbox *outbox)
{
    struct walk walk = {.context = c, .outbox = outbox};
    uint32_t gone;
    enum mr_status status = mr_tape_reach(&c->tape, node, reached, &walk, &gone);
    if (status == MR_INVALID_ARGUMENT)
        mr_pass_fail(&c->pass, status,
                     "an earlier backward pass used this run of \"%s\"; give that pass `retain` to keep it",
                     function_of(&c->tape.nodes[gone]));
    if (status == MR_NO_MEMORY || walk.no_memory) {
        status = MR_NO_MEMORY;
        mr_pass_fail(&c->pass, status, "no memory");
    }
    return status;
}

/* ---- gradients through this worker's tape; not under the lock ---- */

void mr_backward_give(struct mr_autograd *c, uint64_t pass, uint32_t value, void *sum)
{
    pthread_mutex_lock(&c->lock);
    while (sum != NULL && c->pass.id == pass) {
        const struct mr_tensor shape = c->tape.values[value].shape;
        void *other = mr_tape_put(&c->tape, value, sum);
        if (other == NULL) {
            sum = NULL;
            break;
        }
        pthread_mutex_unlock(&c->lock);
        mr_gradient_add(&shape, sum, other);
        free(other);
        pthread_mutex_lock(&c->lock);
    }
    if (c->pass.id == pass)
        mr_tape_arrived(&c->tape, value);
    pthread_mutex_unlock(&c->lock);
    free(sum);
}

/* A copy of what is needed of a node that runs, because the tape may grow in the meantime. */
struct step {
    uint32_t node, kind;
    void *of;
    uint32_t input_count, output_count;
    uint32_t inputs[MR_RPC_ARGUMENTS_MAX];
    struct mr_tensor input_shapes[MR_RPC_ARGUMENTS_MAX];
    struct mr_tensor gradients[MR_RPC_ARGUMENTS_MAX]; /* of the outputs, owned by the step; NULL data: none */
    bool any;                                         /* any of them exists */
    bool retain;
};

/* Under the lock. */
static void step_take(struct mr_autograd *c, uint32_t node, struct step *step)
{
    struct mr_tape *tape = &c->tape;
    const struct mr_tape_node *n = &tape->nodes[node];
    const uint32_t *inputs = mr_tape_inputs(tape, node), *outputs = mr_tape_outputs(tape, node);
    step->node = node;
    step->kind = n->kind;
    step->of = n->of;
    step->input_count = n->input_count;
    step->output_count = n->output_count;
    step->any = false;
    step->retain = c->pass.retain;
    for (uint32_t i = 0; i < n->input_count; i++) {
        step->inputs[i] = inputs[i];
        if (inputs[i] != MR_TAPE_NONE)
            step->input_shapes[i] = tape->values[inputs[i]].shape;
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        step->gradients[i] = (struct mr_tensor){.data = NULL};
        if (outputs[i] == MR_TAPE_NONE)
            continue;
        step->gradients[i] = tape->values[outputs[i]].shape;
        step->gradients[i].data = mr_tape_take(tape, outputs[i]);
        step->any = step->any || step->gradients[i].data != NULL;
    }
}

static void step_free(struct step *step)
{
    for (uint32_t i = 0; i < step->output_count; i++)
        free(step->gradients[i].data);
}

static void pass_fail(struct mr_autograd *c, uint64_t pass, enum mr_status status, const char *text)
{
    pthread_mutex_lock(&c->lock);
    if (c->pass.id == pass)
        mr_pass_fail(&c->pass, status, "%s", text);
    pthread_mutex_unlock(&c->lock);
}

/* ---- a function ---- */

/* Writes what is wrong with the results of the user's backward. False: nothing is. */
static bool is_wrong(const struct step *step, const struct mr_rpc_call *call, char *text, size_t bytes)
{
    char what[120], wanted[120];
    if (call->result_count != step->input_count) {
        snprintf(text, bytes, "it gave back %u gradient%s for %u argument%s", call->result_count,
                 mr_plural(call->result_count), step->input_count, mr_plural(step->input_count));
        return true;
    }
    for (uint32_t i = 0; i < step->input_count; i++) {
        const struct mr_value *result = &call->results[i];
        struct mr_value argument = mr_value_tensor(step->input_shapes[i]);
        if (result->kind == MR_VALUE_NONE || step->inputs[i] == MR_TAPE_NONE)
            continue;
        if (result->kind == MR_VALUE_TENSOR && mr_gradient_same_shape(&result->tensor, &argument.tensor))
            continue;
        mr_signature_describe(result, 1, what, sizeof(what));
        mr_signature_describe(&argument, 1, wanted, sizeof(wanted));
        snprintf(text, bytes, "gradient %u is %s, and argument %u is %s", i, what, i, wanted);
        return true;
    }
    return false;
}

static enum mr_status give_inputs(struct mr_autograd *c, uint64_t pass, const struct step *step,
                                  const struct mr_rpc_call *call)
{
    for (uint32_t i = 0; i < step->input_count; i++) {
        void *sum = NULL;
        if (step->inputs[i] == MR_TAPE_NONE)
            continue;
        if (call != NULL && call->results[i].kind == MR_VALUE_TENSOR) {
            sum = mr_gradient_copy(&call->results[i].tensor);
            if (sum == NULL)
                return MR_NO_MEMORY;
        }
        mr_backward_give(c, pass, step->inputs[i], sum);
    }
    return MR_OK;
}

static enum mr_status run_backward(struct mr_rpc_call *call, struct mr_recorded_run *run,
                                   const struct step *step, char *text, size_t bytes)
{
    enum mr_status status = run->function->backward(call, run->saved, step->gradients, step->output_count);
    if (status == MR_OK && is_wrong(step, call, text, bytes))
        return MR_WRONG_SHAPE;
    if (status != MR_OK)
        snprintf(text, bytes, "%s", call->error[0] == 0 ? mr_status_text(status) : call->error);
    return status;
}

static void run_function(struct mr_autograd *c, uint64_t pass, struct step *step)
{
    struct mr_rpc *agent = c->contexts->agent;
    struct mr_recorded_run *run = step->of;
    struct mr_rpc_call *call = step->any ? mr_executing_new(agent, run->function, 0) : NULL;
    char text[MR_EXECUTING_ERROR_BYTES] = "no memory", who[MR_MEMBER_TEXT_BYTES], line[MR_RPC_ERROR_BYTES];
    enum mr_status status = !step->any || call != NULL ? MR_OK : MR_NO_MEMORY;
    if (call != NULL) {
        call->is_backward = true;
        call->pass = pass;
        call->caller = run->caller;
        call->deadline_us = UINT64_MAX;
        call->context = c;
        status = run_backward(call, run, step, text, sizeof(text));
    }
    if (status == MR_OK)
        status = give_inputs(c, pass, step, call);
    if (status != MR_OK) {
        mr_member_text(agent, agent->config.rank, who);
        snprintf(line, sizeof(line), "backward of \"%s\" on %s: %s", run->function->name, who, text);
        pass_fail(c, pass, status, line);
    }
    if (call != NULL) {
        call->context = NULL;
        mr_executing_free(call);
    }
    if (step->retain || (run->function->flags & MR_RPC_RETAINED) != 0)
        return;
    if (run->saved != NULL && run->saved_destroy != NULL)
        run->saved_destroy(run->saved);
    run->saved = NULL;
}

/* ---- to other workers ---- */

static void send_gradients(struct mr_autograd *c, uint64_t pass, struct step *step)
{
    enum mr_backward_kind kind = step->kind == MR_RECORDED_CALL ? MR_BACKWARD_RESULTS : MR_BACKWARD_ARGUMENTS;
    struct mr_pass_outbox outbox = {.first = NULL};
    struct mr_backward_message *m = NULL;
    pthread_mutex_lock(&c->lock);
    if (c->pass.id == pass) {
        m = mr_backward_message_new(c, step->of, kind, step->output_count);
        if (m == NULL)
            mr_pass_fail(&c->pass, MR_NO_MEMORY, "no memory");
        else
            mr_pass_count(c, m, &outbox);
    }
    pthread_mutex_unlock(&c->lock);
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < step->output_count; i++) {
        m->tensors[i] = step->gradients[i];
        step->gradients[i].data = NULL;
    }
    mr_backward_post_all(&outbox);
}

void mr_backward_drain(struct mr_autograd *c, uint64_t pass)
{
    struct step *step = malloc(sizeof(*step));
    if (step == NULL)
        pass_fail(c, pass, MR_NO_MEMORY, "no memory");
    while (step != NULL) {
        uint32_t node = MR_TAPE_NONE;
        pthread_mutex_lock(&c->lock);
        if (c->pass.id == pass && c->pass.status == MR_OK)
            node = mr_tape_next(&c->tape);
        if (node != MR_TAPE_NONE)
            step_take(c, node, step);
        pthread_mutex_unlock(&c->lock);
        if (node == MR_TAPE_NONE)
            break;
        if (step->kind == MR_RECORDED_RUN)
            run_function(c, pass, step);
        else
            send_gradients(c, pass, step);
        step_free(step);
    }
    free(step);
}

/* ---- the root ---- */

#define CALLER "mr_autograd_backward"

static enum mr_status check_losses(struct mr_autograd *c, const struct mr_value *losses, uint32_t count)
{
    char text[192];
    if (count == 0 || losses == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, CALLER ": there is no loss");
    for (uint32_t i = 0; i < count; i++) {
        if (losses[i].kind != MR_VALUE_TENSOR || !mr_gradient_is_of(losses[i].tensor.dtype) ||
            losses[i].tensor.bytes != mr_dtype_bytes(losses[i].tensor.dtype)) {
            mr_signature_describe(&losses[i], 1, text, sizeof(text));
            return mr_rpc_error(MR_INVALID_ARGUMENT,
                                CALLER ": loss %u is %s, and must be f32 or f64 of one element", i, text);
        }
        if (mr_tape_find(&c->tape, losses[i].gradient) == MR_TAPE_NONE)
            return mr_rpc_error(MR_INVALID_ARGUMENT,
                                CALLER ": loss %u was not computed in this context from anything that has a "
                                       "gradient, or lost its number `gradient` on the way",
                                i);
    }
    return MR_OK;
}

static enum mr_status check_context(struct mr_autograd *c)
{
    char text[MR_CONTEXT_TEXT_BYTES];
    const char *wrong = NULL;
    if (c->over)
        wrong = "it has ended";
    else if (c->pass.broken)
        wrong = "an earlier backward pass in it timed out, and may still run on other workers: end it";
    else if (c->pass.id != 0 && (c->pass.is_root || c->pass.engaged || !mr_pass_at_rest(&c->pass)))
        wrong = "another backward pass runs in it";
    if (wrong == NULL)
        return MR_OK;
    mr_context_text(c->contexts, c->id.id, text);
    return mr_rpc_error(MR_INVALID_ARGUMENT, CALLER ": %s: %s", text, wrong);
}

/* Under the lock, which it releases in the meantime: the root has done its own work of a phase, and waits
 * until all workers are at rest. */
static enum mr_status wait_for_rest(struct mr_autograd *c, uint64_t id, uint64_t deadline_us)
{
    struct mr_pass *pass = &c->pass;
    pthread_mutex_lock(&c->lock);
    if (pass->id == id) {
        pass->working--;
        mr_pass_rest(c);
    }
    pthread_mutex_unlock(&c->lock);
    bool at_rest = mr_agent_wait(c->contexts->agent, &pass->done, deadline_us);

    pthread_mutex_lock(&c->lock);
    if (!at_rest && pass->id == id)
        mr_pass_fail(pass, MR_DEADLINE_EXCEEDED, "it did not end within the worker's time-out");
    return pass->status;
}

static enum mr_status reach_losses(struct mr_autograd *c, uint64_t id, const struct mr_value *losses,
                                   uint32_t count, uint64_t deadline_us)
{
    struct mr_pass_outbox outbox = {.first = NULL};
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < count && status == MR_OK; i++)
        status = mr_pass_reach(c, c->tape.values[mr_tape_find(&c->tape, losses[i].gradient)].node, &outbox);
    pthread_mutex_unlock(&c->lock);
    mr_backward_post_all(&outbox);
    return wait_for_rest(c, id, deadline_us);
}

static enum mr_status flow(struct mr_autograd *c, uint64_t id, const struct mr_value *losses, uint32_t count,
                           uint64_t deadline_us)
{
    c->pass.working++;
    c->pass.flows = true;
    atomic_store(&c->pass.done, 0);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < count; i++) {
        static const float one = 1;
        static const double one_f64 = 1;
        struct mr_tensor seed =
            losses[i].tensor.dtype == MR_F64 ? mr_tensor_0d(MR_F64, &one_f64) : mr_tensor_0d(MR_F32, &one);
        void *sum = mr_gradient_copy(&seed);
        pthread_mutex_lock(&c->lock);
        if (sum == NULL)
            mr_pass_fail(&c->pass, MR_NO_MEMORY, "no memory");
        uint32_t value = mr_tape_find(&c->tape, losses[i].gradient);

        pthread_mutex_unlock(&c->lock);
        mr_backward_give(c, id, value, sum);
    }
    mr_backward_drain(c, id);
    return wait_for_rest(c, id, deadline_us);
}

/* Under the lock, which it releases in the meantime. */
static enum mr_status run_root(struct mr_autograd *c, uint64_t id, const struct mr_value *losses,
                               uint32_t count, char error[MR_RPC_ERROR_BYTES])
{
    uint64_t deadline_us = mr_agent_deadline_us(c->contexts->agent, mr_agent_now(c->contexts->agent), 0);
    struct mr_pass *pass = &c->pass;
    pass->is_root = true;
    pass->working = 1;
    atomic_store(&pass->done, 0);
    enum mr_status status = reach_losses(c, id, losses, count, deadline_us);

    if (status == MR_OK && pass->id == id)
        status = flow(c, id, losses, count, deadline_us);
    /* Messages that are still in flight after a time-out belong to no pass. */
    if (status == MR_DEADLINE_EXCEEDED) {
        pass->broken = true;
        pass->id = 0;
    }
    pass->is_root = false;
    snprintf(error, MR_RPC_ERROR_BYTES, "%s", pass->error);
    return status;
}

enum mr_status mr_autograd_backward(struct mr_autograd *c, const struct mr_value *losses, uint32_t loss_count,
                                    bool retain)
{
    char error[MR_RPC_ERROR_BYTES] = "no memory";
    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, CALLER ": " MR_CONTEXT_IS_NULL);
    struct mr_rpc *agent = c->contexts->agent;

    if (mr_agent_is_inherited(agent))
        return mr_agent_check_process(agent, CALLER);
    mr_context_hold(c);
    pthread_mutex_lock(&c->lock);
    enum mr_status status = check_context(c);

    if (status == MR_OK)
        status = check_losses(c, losses, loss_count);
    if (status != MR_OK) {
        pthread_mutex_unlock(&c->lock);
        mr_context_put(c, false);
        return status;
    }
    uint64_t id =
        ((uint64_t)agent->config.rank << MR_RPC_ID_SHIFT) | (atomic_fetch_add(&agent->numbers, 1) + 1);

    /* This keeps the worker from leaving. */
    atomic_fetch_add(&agent->in_flight, 1);
    atomic_fetch_add_explicit(&agent->activity, 1, memory_order_relaxed);
    status = mr_pass_begin(c, id, retain);
    if (status == MR_OK)
        status = run_root(c, id, losses, loss_count, error);
    pthread_mutex_unlock(&c->lock);
    atomic_fetch_sub(&agent->in_flight, 1);
    mr_context_put(c, false);
    return status == MR_OK ? MR_OK : mr_rpc_error(status, CALLER ": %s", error);
}
