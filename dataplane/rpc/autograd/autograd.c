#include "dataplane/rpc/autograd/autograd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/serving.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"

static enum mr_status no_memory(const char *caller)
{
    return mr_rpc_error(MR_NO_MEMORY, "%s: no memory for the autograd context", caller);
}

static bool any_numbered(const struct mr_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (values[i].gradient != 0)
            return true;
    return false;
}

/* Under the lock: returns whether this tape knows any of the values. */
static bool any_known(const struct mr_tape *tape, const struct mr_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (mr_tape_find(tape, values[i].gradient) != MR_TAPE_NONE)
            return true;
    return false;
}

/* ---- on the caller ---- */

static struct mr_recorded_call *recorded_new(uint64_t id, uint32_t peer, uint64_t invocation,
                                             const char *function)
{
    struct mr_recorded_call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    call->id.id = id;
    call->peer = peer;
    call->invocation = invocation;
    call->arguments = call->results = MR_TAPE_NONE;
    snprintf(call->function, sizeof(call->function), "%s", function);
    return call;
}

/* Under the lock. */
static enum mr_status record_call(struct mr_autograd *c, uint32_t to, const char *function,
                                  const struct mr_value *arguments, uint32_t count)
{
    uint64_t invocation = c->invocations + 1;
    struct mr_recorded_call *call = recorded_new(invocation, to, invocation, function);
    struct mr_tape_entry entry = {
        .kind = MR_RECORDED_SEND, .of = call, .inputs = arguments, .input_count = count};
    enum mr_status status = call == NULL ? MR_NO_MEMORY : mr_context_end_prepare(c, to);
    if (status == MR_OK && any_known(&c->tape, arguments, count))
        status = mr_tape_add(&c->tape, &entry, &call->arguments);
    if (status != MR_OK) {
        free(call);
        return status;
    }
    c->invocations = invocation;
    mr_id_map_put(&c->calls, &call->id);
    return MR_OK;
}

enum mr_status mr_autograd_call_out(struct mr_autograd *c, uint32_t to, const char *function,
                                    const struct mr_value *arguments, uint32_t argument_count,
                                    uint64_t *context_id, uint64_t *invocation)
{
    struct mr_contexts *contexts = c->contexts;
    enum mr_status status = MR_OK;
    char text[MR_CONTEXT_TEXT_BYTES];
    pthread_mutex_lock(&c->lock);
    bool over = c->over;

    if (!over && to != contexts->agent->config.rank)
        status = record_call(c, to, function, arguments, argument_count);
    *context_id = c->id.id;
    *invocation = to == contexts->agent->config.rank ? 0 : c->invocations;
    pthread_mutex_unlock(&c->lock);
    if (over) {
        mr_context_text(contexts, c->id.id, text);
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: %s has ended", function, text);
    }
    return status == MR_OK ? MR_OK : no_memory(function);
}

enum mr_status mr_autograd_reply_in(struct mr_contexts *contexts, uint64_t context_id, uint64_t invocation,
                                    struct mr_value *results, uint32_t result_count)
{
    struct mr_autograd *c;
    enum mr_status status = MR_OK;
    if (!any_numbered(results, result_count))
        return MR_OK;
    if (mr_context_get(contexts, context_id, MR_RPC_NO_RANK, &c) != MR_OK) { /* the context has ended */
        for (uint32_t i = 0; i < result_count; i++)
            results[i].gradient = 0;
        return MR_OK;
    }
    pthread_mutex_lock(&c->lock);
    struct mr_id_node *node = mr_id_map_get(&c->calls, invocation);
    struct mr_recorded_call *call = MR_CONTAINER(node, struct mr_recorded_call, id);
    struct mr_tape_entry entry = {.kind = MR_RECORDED_CALL,
                                  .of = call,
                                  .outputs = results,
                                  .output_count = result_count,
                                  .only_numbered = true};

    if (node != NULL)
        status = mr_tape_add(&c->tape, &entry, &call->results);
    pthread_mutex_unlock(&c->lock);
    mr_context_put(c, true);
    return status;
}

/* ---- on the callee ---- */

/* Under the lock: records the arguments of another worker's call. */
static enum mr_status record_arguments(struct mr_autograd *c, struct mr_rpc_call *call)
{
    uint64_t invocation = call->head.invocation;
    uint64_t id = ((uint64_t)call->caller << MR_RPC_ID_SHIFT) | invocation;
    struct mr_recorded_call *served = recorded_new(id, call->caller, invocation, call->function->name);
    if (served == NULL)
        return MR_NO_MEMORY;
    struct mr_tape_entry entry = {.kind = MR_RECORDED_ARGUMENTS,
                                  .of = served,
                                  .outputs = call->arguments,
                                  .output_count = call->argument_count,
                                  .only_numbered = true};
    enum mr_status status = MR_OK;

    if (!mr_invocation_is_one(invocation) || mr_id_map_get(&c->served, id) != NULL)
        status = MR_BAD_MESSAGE;
    else if (any_numbered(call->arguments, call->argument_count))
        status = mr_tape_add(&c->tape, &entry, &served->arguments);
    if (status != MR_OK) {
        free(served);
        return status;
    }
    mr_id_map_put(&c->served, &served->id);
    call->autograd = served;
    return MR_OK;
}

enum mr_status mr_autograd_run_begins(struct mr_rpc_call *call)
{
    bool is_remote = call->head.invocation != 0;
    struct mr_autograd *c;
    enum mr_status status = mr_context_get(call->agent->contexts, call->head.context,
                                           is_remote ? call->caller : MR_RPC_NO_RANK, &c);
    if (status != MR_OK) {
        (void)mr_rpc_fail(call, "%s", mr_rpc_last_error());
        return status;
    }
    call->context = c;
    if (!is_remote)
        return MR_OK;
    pthread_mutex_lock(&c->lock);
    status = record_arguments(c, call);
    pthread_mutex_unlock(&c->lock);
    if (status != MR_OK)
        (void)mr_rpc_fail(call, "its arguments cannot be recorded: %s", mr_status_text(status));
    return status;
}

/* ---- the run ---- */

/* Returns what a run depends on by this argument: for a reference to a value of this worker, the value. */
static struct mr_value as_input(const struct mr_value *argument)
{
    const struct mr_value *value = NULL;
    if (argument->kind == MR_VALUE_RREF && mr_rref_is_owner(argument->rref))
        value = mr_rref_value_now(argument->rref);
    return value == NULL ? *argument : *value;
}

/* Under the lock: records the run of a differentiable function. */
static enum mr_status record_run(struct mr_autograd *c, struct mr_rpc_call *call)
{
    struct mr_recorded_run *run = calloc(1, sizeof(*run));
    struct mr_value inputs[MR_RPC_ARGUMENTS_MAX];
    uint32_t node;
    if (run == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < call->argument_count; i++)
        inputs[i] = as_input(&call->arguments[i]);
    *run = (struct mr_recorded_run){.function = call->function, .caller = call->caller};
    struct mr_tape_entry entry = {.kind = MR_RECORDED_RUN,
                                  .of = run,
                                  .inputs = inputs,
                                  .input_count = call->argument_count,
                                  .outputs = call->results,
                                  .output_count = call->result_count,
                                  .is_retained = (call->function->flags & MR_RPC_RETAINED) != 0};
    enum mr_status status = mr_tape_add(&c->tape, &entry, &node);

    if (status != MR_OK) {
        free(run);
        return status;
    }
    run->saved = call->saved;
    run->saved_destroy = call->saved_destroy;
    call->saved = NULL;
    return MR_OK;
}

/* Under the lock: records that the results leave. Results that this tape does not know are constants for the
 * caller. */
static enum mr_status record_return(struct mr_autograd *c, struct mr_rpc_call *call)
{
    struct mr_recorded_call *served = call->autograd;
    struct mr_tape_entry entry = {
        .kind = MR_RECORDED_RETURN, .of = served, .inputs = call->results, .input_count = call->result_count};
    for (uint32_t i = 0; i < call->result_count; i++)
        if (mr_tape_find(&c->tape, call->results[i].gradient) == MR_TAPE_NONE)
            call->results[i].gradient = 0;
    if (served == NULL || (call->head.flags & MR_RPC_REMOTE) != 0 ||
        !any_numbered(call->results, call->result_count))
        return MR_OK;
    return mr_tape_add(&c->tape, &entry, &served->results);
}

enum mr_status mr_autograd_run_ended(struct mr_rpc_call *call, enum mr_status status)
{
    struct mr_autograd *c = call->context;
    if (c != NULL && status == MR_OK) {
        pthread_mutex_lock(&c->lock);
        if (call->function->backward != NULL)
            status = record_run(c, call);
        if (status == MR_OK)
            status = record_return(c, call);
        pthread_mutex_unlock(&c->lock);
        if (status != MR_OK)
            (void)mr_rpc_fail(call, "no memory to record it for its backward");
    }
    if (call->saved != NULL && call->saved_destroy != NULL)
        call->saved_destroy(call->saved);
    call->saved = NULL;
    call->context = NULL;
    if (c != NULL)
        mr_context_put(c, (call->function->flags & MR_RPC_INLINE) != 0);
    return status;
}

/* ---- the program's ---- */

struct mr_autograd *mr_rpc_context(const struct mr_rpc_call *call)
{
    return call->context;
}

enum mr_status mr_rpc_save(struct mr_rpc_call *call, void *saved, void (*destroy)(void *))
{
    if (saved == NULL || call->saved != NULL || call->is_backward)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rpc_save: %s: %s", call->function->name,
                            saved == NULL       ? "saved is NULL"
                            : call->is_backward ? "a backward has nothing to save for"
                                                : "it has been called before");
    call->saved = saved;
    call->saved_destroy = destroy;
    return MR_OK;
}

enum mr_status mr_autograd_leaf(struct mr_autograd *c, struct mr_tensor tensor, struct mr_value *value)
{
    struct mr_value leaf = mr_value_tensor(tensor);
    struct mr_tape_entry entry = {
        .kind = MR_RECORDED_LEAF, .outputs = &leaf, .output_count = 1, .is_leaf = true};
    uint32_t node;
    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_autograd_leaf: " MR_CONTEXT_IS_NULL);
    if (!mr_gradient_is_of(tensor.dtype))
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            "mr_autograd_leaf: gradients are of f32 and f64 tensors, and this one is %s",
                            mr_dtype_name(tensor.dtype));
    pthread_mutex_lock(&c->lock);
    enum mr_status status = mr_tape_add(&c->tape, &entry, &node);

    pthread_mutex_unlock(&c->lock);
    if (status != MR_OK)
        return no_memory("mr_autograd_leaf");
    *value = leaf;
    return MR_OK;
}

/* ---- a function of our own, run on the program's thread ---- */

#define APPLY "mr_autograd_apply"

static enum mr_status take_results(struct mr_rpc *agent, struct mr_rpc_call *call,
                                   struct mr_rpc_result **result)
{
    struct mr_rpc_result *r;
    if (call->status != MR_OK)
        return mr_rpc_error(call->status, APPLY ": %s: %s", call->function->name, call->error);
    if (result == NULL)
        return MR_OK;
    r = mr_result_copy(agent, call->results, call->result_count);
    if (r == NULL)
        return mr_rpc_error(MR_NO_MEMORY, APPLY ": %s: no memory for the results", call->function->name);
    call->result_count = 0; /* references have moved */
    *result = r;
    return MR_OK;
}

enum mr_status mr_autograd_apply(struct mr_autograd *c, const char *name, const struct mr_value *arguments,
                                 uint32_t argument_count, struct mr_rpc_result **result)
{
    struct mr_rpc_call *call;
    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, APPLY ": %s: " MR_CONTEXT_IS_NULL,
                            name == NULL ? "(NULL)" : name);
    struct mr_rpc *agent = c->contexts->agent;
    enum mr_status status = mr_executing_own(agent, APPLY, name, arguments, argument_count, &call);

    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < argument_count; i++)
        call->arguments[i] = arguments[i];
    call->argument_count = argument_count;
    mr_rrefs_retain(arguments, argument_count);
    call->deadline_us = UINT64_MAX;
    call->head.context = c->id.id;
    mr_function_run(call);
    status = take_results(agent, call, result);
    mr_executing_free(call);
    return status;
}

/* ---- a run that the program has done by itself ---- */

#define RECORD "mr_autograd_record"

static enum mr_status check_record(struct mr_autograd *c, const char *name, uint32_t input_count,
                                   uint32_t output_count, struct mr_function **function)
{
    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, RECORD ": " MR_CONTEXT_IS_NULL);
    *function = name == NULL ? NULL : mr_functions_find(&c->contexts->agent->functions, name);
    if (*function == NULL)
        return mr_rpc_error(MR_UNKNOWN_FUNCTION, RECORD ": %s: this worker has no function of that name",
                            name == NULL ? "(NULL)" : name);
    if ((*function)->backward == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, RECORD ": %s: it has no backward", name);
    if (input_count > MR_RPC_ARGUMENTS_MAX || output_count > MR_RPC_ARGUMENTS_MAX)
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            RECORD ": %s: there may be %u inputs and outputs, not %u and %u", name,
                            MR_RPC_ARGUMENTS_MAX, input_count, output_count);
    return MR_OK;
}

enum mr_status mr_autograd_record(struct mr_autograd *c, const char *name, const struct mr_value *inputs,
                                  uint32_t input_count, struct mr_value *outputs, uint32_t output_count,
                                  void *saved, void (*destroy)(void *))
{
    struct mr_function *function;
    struct mr_recorded_run *run = NULL;
    enum mr_status status = check_record(c, name, input_count, output_count, &function);
    if (status == MR_OK) {
        run = calloc(1, sizeof(*run));
        if (run == NULL)
            status = mr_rpc_error(MR_NO_MEMORY, RECORD ": %s: no memory", name);
    }
    if (status != MR_OK) {
        if (saved != NULL && destroy != NULL)
            destroy(saved);
        return status;
    }
    *run = (struct mr_recorded_run){.function = function,
                                    .caller = c->contexts->agent->config.rank,
                                    .saved = saved,
                                    .saved_destroy = destroy};
    struct mr_tape_entry entry = {.kind = MR_RECORDED_RUN,
                                  .of = run,
                                  .inputs = inputs,
                                  .input_count = input_count,
                                  .outputs = outputs,
                                  .output_count = output_count,
                                  .is_retained = (function->flags & MR_RPC_RETAINED) != 0};
    uint32_t node;

    pthread_mutex_lock(&c->lock);
    status = c->over ? MR_INVALID_ARGUMENT : mr_tape_add(&c->tape, &entry, &node);
    pthread_mutex_unlock(&c->lock);
    if (status == MR_OK)
        return MR_OK;
    mr_recorded_run_free(run);
    return mr_rpc_error(status, RECORD ": %s: %s", name,
                        status == MR_NO_MEMORY ? "no memory" : "the context has ended");
}
