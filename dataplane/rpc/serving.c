/* Requests for functions of ours: from the message to the executor, and back to an answer. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/agent_internal.h"

#define BRIEF_NS 10000u

static struct mr_rpc_call *of_job(struct mr_job *job)
{
    return (struct mr_rpc_call *)(void *)((uint8_t *)job - offsetof(struct mr_rpc_call, job));
}

static struct mr_rpc_call *of_work(struct mr_work *work)
{
    return (struct mr_rpc_call *)(void *)((uint8_t *)work - offsetof(struct mr_rpc_call, work));
}

/* ---- answers ---- */

static void answer_error(struct mr_rpc_call *call)
{
    mr_reply_error(call->agent->config.endpoint, call->ref, call->status, "%s", call->error);
}

/* False: there is no memory for the answer now. */
static bool answer_values(struct mr_rpc_call *call)
{
    struct mr_rpc *agent = call->agent;
    struct mr_endpoint *ep = agent->config.endpoint;
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    struct mr_rpc_head head = {.context = call->head.context};
    size_t head_bytes = mr_values_head_bytes(NULL, call->results, call->result_count);

    if (head_bytes == 0) {
        (void)mr_rpc_fail(call, "an object stays with its owner: ask for it with mr_remote()");
        call->status = MR_INVALID_ARGUMENT;
        answer_error(call);
        return true;
    }
    uint32_t n = mr_values_tensors(NULL, head_bytes, call->results, call->result_count, tensors);

    if (!mr_reply_begin(ep, call->ref, MR_OK, tensors, n)) {
        if (mr_call_ref_alive(ep, call->ref))
            return false;
        mr_reply_status(ep, call->ref,
                        MR_OK); /* nobody waits any more, or it was too large, which was said */
        return true;
    }
    enum mr_status status = mr_values_encode(
        tensors[0].data, &head, NULL, call->results, call->result_count,
        agent->references.values.pass_out == NULL ? NULL : &agent->references.values, call->caller);

    if (status !=
        MR_OK) /* cannot happen to values that mr_rpc_return() took; the caller sees a malformed answer */
        memset(tensors[0].data, 0, head_bytes);
    mr_reply_end(ep, call->ref);
    return true;
}

/* The result stays here: the references' from now on. */
static void keep_result(struct mr_rpc_call *call)
{
    struct mr_rpc *agent = call->agent;
    struct mr_rpc_result *result = NULL;

    if (call->status == MR_OK) {
        result = mr_result_copy(agent, call->results, call->result_count);
        if (result == NULL) {
            call->status = MR_NO_MEMORY;
            (void)mr_rpc_fail(call, "no memory for the result");
        } else {
            call->result_count = 0; /* references and objects in it have moved */
        }
    }
    agent->references.remote_ended(agent->references.self, call->head.reference, call->status, call->error,
                                   result, call->destroy);
}

static void count(struct mr_rpc *agent, bool failed, bool ran)
{
    agent->counters.calls_served++;
    agent->counters.calls_failed += failed;
    agent->counters.calls_refused += !ran;
}

static bool answer(struct mr_rpc_call *call)
{
    if ((call->head.flags & MR_RPC_REMOTE) != 0)
        keep_result(call);
    if (call->status != MR_OK)
        answer_error(call);
    else if ((call->head.flags & MR_RPC_REMOTE) != 0)
        mr_reply_status(call->agent->config.endpoint, call->ref, MR_OK);
    else if (!answer_values(call))
        return false;
    count(call->agent, call->status != MR_OK, true);
    mr_executing_free(call);
    return true;
}

void mr_serving_retry(struct mr_rpc *agent)
{
    struct mr_rpc_call **at = &agent->unanswered;

    while (*at != NULL) {
        struct mr_rpc_call *call = *at;
        struct mr_rpc_call *next = call->next;

        if (answer(call))
            *at = next;
        else
            at = &call->next;
    }
}

static void executed(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_call *call = of_work(work);

    if (answer(call))
        return;
    call->next = agent->unanswered;
    agent->unanswered = call;
}

void mr_serving_drop_all(struct mr_rpc *agent)
{
    while (agent->unanswered != NULL) {
        struct mr_rpc_call *call = agent->unanswered;

        agent->unanswered = call->next;
        mr_reply_status(agent->config.endpoint, call->ref, MR_SHUTTING_DOWN);
        mr_executing_free(call);
    }
}

/* ---- executing ---- */

static bool nobody_waits(struct mr_rpc_call *call)
{
    if (call->deadline_us == UINT64_MAX || mr_agent_now(call->agent) < call->deadline_us)
        return false;
    call->status = MR_DEADLINE_EXCEEDED;
    (void)mr_rpc_fail(call, "no thread came to run it before the caller's time was up");
    return true;
}

static void run_remote(struct mr_job *job)
{
    struct mr_rpc_call *call = of_job(job);

    if (!nobody_waits(call))
        mr_executing_run(call);
    call->work.run = executed;
    mr_agent_submit_quietly(call->agent, &call->work);
}

static bool is_brief(const struct mr_function *function)
{
    uint32_t ns = atomic_load_explicit(&function->run_ns, memory_order_relaxed);

    return ns != 0 && ns < BRIEF_NS;
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

void mr_serving_end_local(struct mr_rpc_call *call)
{
    struct mr_rpc_future *future = call->future;
    struct mr_rpc_result *result = NULL;

    if ((call->head.flags & MR_RPC_REMOTE) != 0)
        keep_result(call);
    else if (call->status == MR_OK)
        result = local_result(call);

    enum mr_status status = call->status;
    char error[MR_EXECUTING_ERROR_BYTES];

    memcpy(error, call->error, sizeof error);
    mr_executing_free(call);
    mr_future_end(future, status, error, result);
    mr_future_put(future);
}

static void end_local(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_call *call = of_work(work);

    mr_call_forget_local(agent, call->future);
    mr_serving_end_local(call);
}

static void run_local(struct mr_job *job)
{
    struct mr_rpc_call *call = of_job(job);

    if (!nobody_waits(call))
        mr_executing_run(call);
    call->work.run = end_local;
    mr_agent_submit_quietly(call->agent, &call->work);
}

void mr_serving_run_local(struct mr_rpc_call *call)
{
    call->job = (struct mr_job){.run = run_local, .brief = is_brief(call->function)};
    mr_executor_give_one(call->agent->executor, &call->job);
}

/* ---- requests ---- */

static void wrong_arguments(struct mr_rpc *agent, const struct mr_rpc_call *call, struct mr_call_ref ref)
{
    char text[192];

    mr_signature_describe(call->arguments, call->argument_count, text, sizeof text);
    mr_reply_error(agent->config.endpoint, ref, MR_WRONG_SIGNATURE, "it was called with (%s), and takes (%s)",
                   text, call->function->arguments_text);
}

/* The values of the request, checked. False: it was answered. */
static bool take_arguments(struct mr_rpc *agent, struct mr_rpc_call *call, const struct mr_request *request)
{
    const struct mr_value_hooks *hooks =
        agent->references.values.take_in == NULL ? NULL : &agent->references.values;
    const char *name;

    if (!mr_values_decode(request->message, &call->head, &name, call->arguments, &call->argument_count, hooks,
                          call->caller)) {
        mr_reply_error(agent->config.endpoint, request->ref, MR_BAD_MESSAGE,
                       "the arguments are malformed, or have a reference that this worker cannot take");
        return false;
    }
    if (!mr_signature_matches(&call->function->arguments, call->arguments, call->argument_count)) {
        wrong_arguments(agent, call, request->ref);
        return false;
    }
    return true;
}

static bool begin_remote(struct mr_rpc *agent, const struct mr_rpc_call *call)
{
    const struct mr_agent_references *references = &agent->references;
    enum mr_status status = MR_UNSUPPORTED;

    if ((call->head.flags & MR_RPC_REMOTE) == 0)
        return true;
    if (references->remote_came != NULL)
        status =
            references->remote_came(references->self, call->caller, call->head.reference, call->head.fork);
    if (status == MR_OK)
        return true;
    mr_reply_error(agent->config.endpoint, call->ref, status, "its result cannot be kept here");
    return false;
}

static struct mr_function *find(struct mr_rpc *agent, const struct mr_request *request,
                                struct mr_rpc_head *head)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    const char *name;

    if (!mr_values_peek(request->message, head, &name)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return NULL;
    }
    struct mr_function *function = mr_functions_find(&agent->functions, name);

    if (function == NULL)
        mr_reply_error(ep, request->ref, MR_UNKNOWN_FUNCTION, "it has no function of that name");
    return function;
}

void mr_serving_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct mr_rpc_head head;
    struct mr_function *function = find(agent, request, &head);

    if (function == NULL) {
        count(agent, true, false);
        return;
    }
    struct mr_rpc_call *call = mr_executing_new(agent, function, head.value_count);
    bool on_this_thread = (function->flags & MR_RPC_INLINE) != 0;
    const struct mr_request *stable = request;

    if (call != NULL && !on_this_thread)
        stable = mr_reply_later(ep, request);
    if (call == NULL || stable == NULL) {
        if (call != NULL)
            mr_executing_free(call);
        mr_reply_busy(ep, request->ref);
        return;
    }
    call->caller = from->rank;
    call->deadline_us = request->deadline_us;
    call->ref = request->ref;
    if (!take_arguments(agent, call, stable) || !begin_remote(agent, call)) {
        count(agent, true, false);
        mr_executing_free(call);
        return;
    }
    if (!on_this_thread) {
        call->job = (struct mr_job){.run = run_remote, .brief = is_brief(function)};
        mr_agent_add_job(agent, &call->job);
        return;
    }
    mr_executing_run(call);
    if (answer(call))
        return;
    /* It must not run again, so the answer waits until there is memory; if there is none even for that, it is lost. */
    if (mr_reply_later(ep, request) != NULL) {
        executed(agent, &call->work);
        return;
    }
    mr_reply_status(ep, request->ref, MR_NO_MEMORY);
    mr_executing_free(call);
}

/* ---- cancelled by the caller ---- */

struct wanted {
    uint32_t caller;
    uint64_t number;
};

static bool is_wanted(const struct mr_job *job, const void *arg)
{
    const struct wanted *wanted = arg;

    if (job->run != run_remote)
        return false;
    const struct mr_rpc_call *call =
        (const struct mr_rpc_call *)(const void *)((const uint8_t *)job - offsetof(struct mr_rpc_call, job));

    return call->caller == wanted->caller && call->head.number == wanted->number;
}

void mr_serving_cancel(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct wanted wanted = {.caller = from->rank};

    if (request->message->preamble.tensor_count != 1 || request->message->tensors[0].bytes != 8) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    memcpy(&wanted.number, request->message->tensors[0].data, sizeof wanted.number);
    mr_agent_give_jobs(agent);
    struct mr_job *job = mr_executor_take_back(agent->executor, is_wanted, &wanted);

    mr_reply_status(ep, request->ref, MR_OK);
    if (job == NULL)
        return;
    struct mr_rpc_call *call = of_job(job);

    call->status = MR_CANCELLED;
    (void)mr_rpc_fail(call, "the caller cancelled it");
    executed(agent, &call->work);
}

static bool is_of_future(const struct mr_job *job, const void *arg)
{
    const struct mr_rpc_call *call =
        (const struct mr_rpc_call *)(const void *)((const uint8_t *)job - offsetof(struct mr_rpc_call, job));

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
