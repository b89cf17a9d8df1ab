/* Functions of ours that we call ourselves: from the executor back to the future. */
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/wire/base/list.h"

static struct mr_rpc_call *of_job(struct mr_job *job)
{
    return MR_CONTAINER(job, struct mr_rpc_call, job);
}

static struct mr_rpc_call *of_work(struct mr_work *work)
{
    return MR_CONTAINER(work, struct mr_rpc_call, work);
}

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
    struct mr_rpc *agent = call->agent;
    struct mr_rpc_future *future = call->future;
    struct mr_rpc_result *result = NULL;

    if ((call->head.flags & MR_RPC_REMOTE) != 0) {
        (void)agent->references.remote_goes(agent->references.self, future->rref);
        mr_serving_keep(call);
    } else if (call->status == MR_OK) {
        result = local_result(call);
    }

    enum mr_status status = call->status;
    char error[MR_EXECUTING_ERROR_BYTES];

    memcpy(error, call->error, sizeof(error));
    mr_executing_free(call);
    mr_future_end(future, status, error, result);
    mr_future_put(future);
}

static void end_local(struct mr_rpc *agent, struct mr_work *work)
{
    (void)agent;
    finish_local(of_work(work));
}

void mr_serving_end_inline(struct mr_rpc_call *call)
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
    struct mr_rpc_call *call = of_job(job);

    if (!mr_serving_refused(call) && !mr_serving_too_late(call))
        mr_executing_run(call);
    call->work.run = end_local;
    mr_agent_submit_quietly(call->agent, &call->work);
}

void mr_serving_run_local(struct mr_rpc_call *call)
{
    call->job = mr_serving_job(call, run_local);
    mr_executor_give_one(call->agent->executor, &call->job);
}

/* ---- cancelled ---- */

static bool is_of_future(const struct mr_job *job, const void *arg)
{
    const struct mr_rpc_call *call = MR_CONTAINER(job, struct mr_rpc_call, job);

    return job->run == run_local && call->future == arg;
}

void mr_serving_cancel_local(struct mr_rpc *agent, const struct mr_rpc_future *future)
{
    struct mr_job *job = mr_executor_take_back(agent->executor, is_of_future, future);

    if (job == NULL)
        return;
    struct mr_rpc_call *call = of_job(job);

    call->status = MR_CANCELLED;
    end_local(agent, &call->work);
}
