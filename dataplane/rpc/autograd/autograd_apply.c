/* Functions of our own, run on the caller's thread, or by the caller itself. */
#include <stdlib.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/serving.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"

#define CALLER "mr_autograd_apply"

static enum mr_status take_results(struct mr_rpc *agent, struct mr_rpc_call *call,
                                   struct mr_rpc_result **result)
{
    struct mr_rpc_result *r;

    if (call->status != MR_OK)
        return mr_rpc_error(call->status, CALLER ": %s: %s", call->function->name, call->error);
    if (result == NULL)
        return MR_OK;
    r = mr_result_copy(agent, call->results, call->result_count);
    if (r == NULL)
        return mr_rpc_error(MR_NO_MEMORY, CALLER ": %s: no memory for the results", call->function->name);
    call->result_count = 0; /* references have moved */
    *result = r;
    return MR_OK;
}

enum mr_status mr_autograd_apply(struct mr_autograd *c, const char *name, const struct mr_value *arguments,
                                 uint32_t argument_count, struct mr_rpc_result **result)
{
    struct mr_rpc_call *call;

    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, CALLER ": %s: " MR_CONTEXT_IS_NULL,
                            name == NULL ? "(NULL)" : name);
    struct mr_rpc *agent = c->contexts->agent;
    enum mr_status status = mr_executing_own(agent, CALLER, name, arguments, argument_count, &call);

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

/* ---- run by the caller ---- */

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
                                  .output_count = output_count};
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
