/* Calls of functions of our own: no message, the executor's threads run them. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/call.h"
#include "dataplane/rpc/call/serving.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref_internal.h"

/* ---- from the executor back to the future ---- */

/* The results of a local call, for its future. */
static struct mr_rpc_result *local_result(struct mr_rpc_call *call)
{
    struct mr_rpc_result *result;

    for (uint32_t i = 0; i < call->result_count; i++) {
        if (call->results[i].kind == MR_VALUE_OBJECT) {
            (void)mr_rpc_fail(call, "an object stays with its owner: ask for it with mr_remote()");
            call->status = MR_INVALID_ARGUMENT;
            return NULL;
        }
    }
    result = mr_result_copy(call->agent, call->results, call->result_count);
    if (result == NULL) {
        (void)mr_rpc_fail(call, "no memory for the result");
        call->status = MR_NO_MEMORY;
        return NULL;
    }
    call->result_count = 0;
    return result;
}

/* Inside, or before anybody knows of its future. */
static void finish_local(struct mr_rpc_call *call)
{
    struct mr_rpc_future *future = call->future;
    struct mr_rpc_result *result = NULL;

    if ((call->head.flags & MR_RPC_REMOTE) != 0) {
        (void)mr_rref_make(future->rref);
        mr_serving_keep(call);
    } else if (call->status == MR_OK) {
        result = local_result(call);
    }

    enum mr_status status = call->status;
    char error[MR_EXECUTING_ERROR_BYTES];

    memcpy(error, call->error, sizeof(error));
    mr_executing_free(call);
    mr_rpc_future_end(future, status, error, result);
    mr_rpc_future_put(future);
}

static void end_local(struct mr_rpc *agent, struct mr_work *work)
{
    (void)agent;
    finish_local(MR_CONTAINER(work, struct mr_rpc_call, work));
}

static void end_inline(struct mr_rpc_call *call)
{
    if ((call->head.flags & MR_RPC_REMOTE) == 0) {
        finish_local(call);
        return;
    }
    call->work.run = end_local; /* references belong to who is inside */
    mr_agent_submit(call->agent, &call->work);
}

static void run_local(struct mr_job *job)
{
    struct mr_rpc_call *call = MR_CONTAINER(job, struct mr_rpc_call, job);

    mr_serving_run(call);
    call->work.run = end_local;
    mr_agent_submit_quietly(call->agent, &call->work);
}

/* ---- from the caller to the executor ---- */

/* Before it can end: that is work, too, which is submitted later. */
static void begin_local(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, work);

    (void)agent;
    mr_rpc_future_arm(f, f->begun_us);
}

static enum mr_status copy_arguments(struct mr_rpc_call *call, const struct mr_rpc_order *order)
{
    size_t bytes = mr_values_copy_bytes(order->arguments, order->argument_count);

    if (bytes != 0) {
        call->copied = aligned_alloc(64, bytes);
        if (call->copied == NULL)
            return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the arguments", order->caller,
                                order->function);
    }
    mr_values_copy(order->arguments, order->argument_count, call->arguments, call->copied);
    call->argument_count = order->argument_count;
    mr_rrefs_retain(call->arguments, call->argument_count);
    return MR_OK;
}

static enum mr_status wrong_arguments(const struct mr_rpc_order *order, const struct mr_function *function)
{
    char text[192];

    mr_signature_describe(order->arguments, order->argument_count, text, sizeof(text));
    return mr_rpc_error(MR_WRONG_SIGNATURE, "%s: %s: it was called with (%s), and takes (%s)", order->caller,
                        order->function, text, function->arguments_text);
}

enum mr_status mr_local_call_start(struct mr_rpc *agent, struct mr_rpc_future *f,
                                   const struct mr_rpc_order *order)
{
    struct mr_function *function = mr_functions_find(&agent->functions, order->function);

    if (function == NULL)
        return mr_rpc_error(MR_UNKNOWN_FUNCTION, "%s: %s: this worker has no function of that name",
                            order->caller, order->function);
    if (!mr_signature_matches(&function->arguments, order->arguments, order->argument_count))
        return wrong_arguments(order, function);
    struct mr_rpc_call *call = mr_executing_new(agent, function, order->argument_count);

    if (call == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the call", order->caller, order->function);
    enum mr_status status = copy_arguments(call, order);

    if (status != MR_OK) {
        mr_executing_free(call);
        return status;
    }
    call->caller = agent->config.rank;
    call->deadline_us = f->deadline_us;
    call->head = f->head;
    call->future = f;
    f->local = true;
    if ((function->flags & MR_RPC_INLINE) != 0) {
        mr_function_run(call);
        end_inline(call);
        return MR_OK;
    }
    f->work.run = begin_local;
    mr_agent_submit(agent, &f->work);
    call->job = mr_serving_job(call, run_local);
    mr_executor_give_one(agent->executor, &call->job);
    return MR_OK;
}

/* ---- cancelled ---- */

static bool is_of_future(const struct mr_job *job, const void *arg)
{
    return job->run == run_local && MR_CONTAINER(job, struct mr_rpc_call, job)->future == arg;
}

void mr_local_call_cancel(struct mr_rpc *agent, const struct mr_rpc_future *future)
{
    struct mr_job *job = mr_executor_take_back(agent->executor, is_of_future, future);

    if (job == NULL)
        return;
    struct mr_rpc_call *call = MR_CONTAINER(job, struct mr_rpc_call, job);

    call->status = MR_CANCELLED;
    end_local(agent, &call->work);
}
