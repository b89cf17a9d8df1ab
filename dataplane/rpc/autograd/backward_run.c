/* Gradients on their way through one worker's tape. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/rpc/autograd/backward_internal.h"
#include "dataplane/rpc/call/executing.h"

float *mr_backward_copy(const struct mr_tensor *gradient)
{
    float *copy = malloc(gradient->bytes == 0 ? 1 : gradient->bytes);

    if (copy != NULL && gradient->bytes != 0)
        memcpy(copy, gradient->data, gradient->bytes);
    return copy;
}

bool mr_backward_same_shape(const struct mr_tensor *a, const struct mr_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

void mr_backward_give(struct mr_autograd *c, uint64_t pass, uint32_t value, float *sum)
{
    pthread_mutex_lock(&c->lock);
    while (sum != NULL && c->pass.id == pass) {
        uint64_t count = c->tape.values[value].shape.bytes / sizeof(*sum);
        float *other = mr_tape_put(&c->tape, value, sum);

        if (other == NULL) {
            sum = NULL;
            break;
        }
        pthread_mutex_unlock(&c->lock);
        for (uint64_t i = 0; i < count; i++)
            sum[i] += other[i];
        free(other);
        pthread_mutex_lock(&c->lock);
    }
    if (c->pass.id == pass)
        mr_tape_arrived(&c->tape, value);
    pthread_mutex_unlock(&c->lock);
    free(sum);
}

/* A node that is gone through: a copy of what is needed of it, as the tape may grow meanwhile. */
struct step {
    uint32_t node, kind;
    void *of;
    uint32_t input_count, output_count;
    uint32_t inputs[MR_RPC_ARGUMENTS_MAX];
    struct mr_tensor input_shapes[MR_RPC_ARGUMENTS_MAX];
    struct mr_tensor gradients[MR_RPC_ARGUMENTS_MAX]; /* of the outputs; NULL data: none; the step's */
    bool any;                                         /* is there */
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

static void fail(struct mr_autograd *c, uint64_t pass, enum mr_status status, const char *text)
{
    pthread_mutex_lock(&c->lock);
    if (c->pass.id == pass)
        mr_pass_fail(&c->pass, status, "%s", text);
    pthread_mutex_unlock(&c->lock);
}

/* ---- a function ---- */

/* What is wrong with what the user's backward gave back; false: nothing. */
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
        if (result->kind == MR_VALUE_TENSOR && mr_backward_same_shape(&result->tensor, &argument.tensor))
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
        float *sum = NULL;

        if (step->inputs[i] == MR_TAPE_NONE)
            continue;
        if (call != NULL && call->results[i].kind == MR_VALUE_TENSOR) {
            sum = mr_backward_copy(&call->results[i].tensor);
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
        fail(c, pass, status, line);
    }
    if (call != NULL) {
        call->context = NULL;
        mr_executing_free(call);
    }
    if (step->retain)
        return;
    if (run->saved != NULL && run->saved_destroy != NULL)
        run->saved_destroy(run->saved);
    run->saved = NULL;
}

/* ---- to other workers ---- */

static void send_gradients(struct mr_autograd *c, uint64_t pass, struct step *step)
{
    const struct mr_recorded_call *call = step->of;
    const struct mr_served_call *served = step->of;
    struct mr_pass_outbox outbox = {.first = NULL};
    struct mr_backward_message *m = NULL;

    pthread_mutex_lock(&c->lock);
    if (c->pass.id == pass) {
        if (step->kind == MR_RECORDED_CALL)
            m = mr_backward_message_new(c, call->to, MR_BACKWARD_RESULTS, call->id.id, call->function,
                                        step->output_count);
        else
            m = mr_backward_message_new(c, served->caller, MR_BACKWARD_ARGUMENTS, served->invocation,
                                        served->function, step->output_count);
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
        fail(c, pass, MR_NO_MEMORY, "no memory");
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
