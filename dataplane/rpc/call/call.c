#include "dataplane/rpc/call/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/autograd.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/serving.h"
#include "dataplane/rpc/rref/rref_internal.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/printable.h"

/* ---- futures ---- */

struct mr_rpc_future *mr_rpc_future_begin(struct mr_rpc *agent, const char *name, uint32_t to,
                                          uint32_t timeout_ms)
{
    struct mr_rpc_future *f = mr_pool_take(&agent->futures);
    if (f == NULL)
        return NULL;
    memset(f, 0, offsetof(struct mr_rpc_future, function));
    memcpy(f->function, name, strnlen(name, sizeof(f->function) - 1) + 1);
    f->function[sizeof(f->function) - 1] = 0;
    f->error[0] = 0;
    f->agent = agent;
    mr_agent_hold(agent);
    atomic_store_explicit(&f->holds, 2, memory_order_relaxed);
    f->begun_us = mr_agent_now(agent);
    f->deadline_us = mr_agent_deadline_us(agent, f->begun_us, timeout_ms);
    f->call.to = to;
    f->call.deadline_us = UINT64_MAX;
    atomic_fetch_add(&agent->in_flight, 1);
    atomic_fetch_add_explicit(&agent->activity, 1, memory_order_relaxed);
    return f;
}

static void block_free(struct mr_rpc_future *f)
{
    free(f->block);
    f->block = NULL;
    mr_long_unreserve(f->agent, f->reserved_bytes);
    f->reserved_bytes = 0;
}

void mr_rpc_future_put(struct mr_rpc_future *f)
{
    if (atomic_fetch_sub(&f->holds, 1) != 1)
        return;
    struct mr_rpc *agent = f->agent;

    mr_rpc_result_free(f->result);
    if (f->rref != NULL)
        mr_rref_unpin(f->rref);
    free(f->passed);
    block_free(f);
    mr_pool_give(&agent->futures, f);
    mr_agent_put(agent);
}

void mr_rpc_future_arm(struct mr_rpc_future *f, uint64_t now_us)
{
    struct mr_rpc *agent = f->agent;
    if (f->ended || f->deadline_us == UINT64_MAX)
        return;
    mr_timer_arm(&agent->deadlines, &f->timer, now_us, f->deadline_us);
    if (f->deadline_us < agent->deadlines_next_us)
        agent->deadlines_next_us = f->deadline_us;
}

uint64_t mr_rpc_future_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_timer *timer;
    if (now_us < agent->deadlines_next_us)
        return agent->deadlines_next_us;
    while ((timer = mr_timer_take(&agent->deadlines, now_us)) != NULL) {
        struct mr_rpc_future *f = MR_CONTAINER(timer, struct mr_rpc_future, timer);
        mr_rpc_future_end(f, MR_DEADLINE_EXCEEDED,
                          f->local ? "it did not end within the call's time-out"
                                   : "no answer came within the call's time-out",
                          NULL);
        if (!f->local)
            (void)mr_agent_withdraw(agent, &f->call);
    }
    agent->deadlines_next_us = mr_timer_next_us(&agent->deadlines);
    return agent->deadlines_next_us;
}

static void run_then(struct mr_job *job)
{
    struct mr_rpc_future *f = MR_CONTAINER(job, struct mr_rpc_future, then_job);
    struct mr_rpc_result *result = f->result;
    f->result = NULL;
    f->then(f->then_user, f->status, f->error, result);
    mr_rpc_future_put(f);
}

static void begin_then(struct mr_rpc_future *f)
{
    f->then_job = (struct mr_job){.run = run_then, .urgent = true, .depth = MR_EXECUTOR_DEPTHS - 1};
    mr_executor_give_one(f->agent->executor, &f->then_job);
}

void mr_rpc_future_end(struct mr_rpc_future *f, enum mr_status status, const char *why,
                       struct mr_rpc_result *result)
{
    struct mr_rpc *agent = f->agent;
    char who[MR_MEMBER_TEXT_BYTES];
    if (f->ended) {
        mr_rpc_result_free(result);
        return;
    }
    f->ended = true;
    mr_timer_disarm(&agent->deadlines, &f->timer);
    f->status = status;
    f->result = result;
    if (status != MR_OK) {
        mr_member_text(agent, f->call.to, who);
        snprintf(f->error, sizeof(f->error), "%s on %s: %s", f->function, who,
                 why == NULL || why[0] == 0 ? mr_status_text(status) : why);
        mr_make_printable(f->error, sizeof(f->error));
    }
    uint32_t before = mr_agent_done(&f->word);

    if ((before & MR_RPC_FUTURE_THEN) != 0)
        begin_then(f);
    /* This comes last: what `then` does counts as in flight, too. */
    atomic_fetch_sub(&agent->in_flight, 1);
}

enum mr_status mr_rpc_wait(struct mr_rpc_future *f, struct mr_rpc_result **result)
{
    if (mr_agent_is_inherited(f->agent))
        return mr_agent_check_process(f->agent, "mr_rpc_wait");
    if ((atomic_load(&f->word) & MR_DONE) == 0)
        (void)mr_agent_wait(f->agent, &f->word, UINT64_MAX);
    if (f->status != MR_OK)
        return mr_rpc_error(f->status, "%s", f->error);
    if (result != NULL) {
        *result = f->result;
        f->result = NULL;
    }
    return MR_OK;
}

bool mr_rpc_done(struct mr_rpc_future *f)
{
    return (atomic_load(&f->word) & MR_DONE) != 0 || mr_agent_is_inherited(f->agent);
}

enum mr_status mr_rpc_then(struct mr_rpc_future *f, mr_rpc_then_run then, void *user)
{
    if (then == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rpc_then: then is NULL");
    if (mr_agent_is_inherited(f->agent))
        return mr_agent_check_process(f->agent, "mr_rpc_then");
    f->then = then;
    f->then_user = user;
    if ((atomic_fetch_or(&f->word, MR_RPC_FUTURE_THEN) & MR_DONE) != 0)
        begin_then(f);
    return MR_OK;
}

void mr_rpc_future_destroy(struct mr_rpc_future *f)
{
    if (f != NULL && !mr_agent_is_inherited(f->agent))
        mr_rpc_future_put(f);
}

void mr_rpc_futures_destroy(struct mr_rpc_future *const *futures, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mr_rpc_future_destroy(futures[i]);
}

/* ---- what is wrong at once ---- */

static enum mr_status check_references(struct mr_rpc *agent, const struct mr_rpc_order *order)
{
    for (uint32_t i = 0; i < order->argument_count; i++) {
        const struct mr_value *value = &order->arguments[i];
        if (value->kind != MR_VALUE_RREF)
            continue;
        const char *why = mr_rref_check(agent, value->rref);

        if (why != NULL)
            return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: %s: argument %u %s", order->caller, order->function,
                                i + 1, why);
    }
    return MR_OK;
}

static enum mr_status too_long(const struct mr_rpc *agent, const struct mr_rpc_order *order, uint64_t bytes)
{
    return mr_rpc_error(MR_TOO_LARGE,
                        "%s: %s: the arguments take %llu MiB, and a message of this worker's at most %zu "
                        "MiB: see message_bytes, or a node's " MR_LONG_KEY,
                        order->caller, order->function, (unsigned long long)((bytes >> 20) + 1),
                        agent->config.long_bytes_max >> 20);
}

static enum mr_status call_check(struct mr_rpc *agent, const struct mr_rpc_order *order)
{
    if (agent->rrefs == NULL)
        return mr_rpc_error(MR_UNSUPPORTED, "%s: this process is no worker of a world", order->caller);
    if (order->function == NULL || order->function[0] == 0 || strlen(order->function) >= MR_RPC_NAME_BYTES)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: a function's name has 1 to 63 bytes", order->caller);
    if (order->argument_count > MR_RPC_ARGUMENTS_MAX ||
        (order->arguments == NULL && order->argument_count != 0))
        return mr_rpc_error(MR_INVALID_ARGUMENT, "%s: %s: there may be %u arguments, not %u", order->caller,
                            order->function, MR_RPC_ARGUMENTS_MAX, order->argument_count);
    if (mr_values_head_bytes(order->function, order->arguments, order->argument_count) == 0)
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            "%s: %s: an argument has no value, or is an object, which stays with its owner",
                            order->caller, order->function);
    uint64_t bytes = mr_values_bytes(order->function, order->arguments, order->argument_count);
    enum mr_status status = check_references(agent, order);

    if (status != MR_OK)
        return status;
    if (bytes > agent->config.long_bytes_max && order->to != agent->config.rank)
        return too_long(agent, order, bytes);
    status = mr_member_check(agent, order->to);
    if (status != MR_OK) {
        char why[MR_RPC_ERROR_BYTES];
        snprintf(why, sizeof(why), "%s", mr_rpc_last_error());
        mr_rpc_error_line("%s: %s: %s", order->caller, order->function, why);
    }
    return status;
}

/* ---- to a function of this worker: no message, the executor runs it ---- */

/* Makes the result of a local call, if it has values. */
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
    if (call->result_count == 0)
        return NULL;
    result = mr_result_copy(call->agent, call->results, call->result_count);
    if (result == NULL) {
        (void)mr_rpc_fail(call, "no memory for the result");
        call->status = MR_NO_MEMORY;
        return NULL;
    }
    call->result_count = 0;
    return result;
}

/* Inside, or before any other thread knows the future. */
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
    finish_local(MR_CONTAINER(work, struct mr_rpc_call, work));
}

static void end_inline(struct mr_rpc_call *call)
{
    if ((call->head.flags & MR_RPC_REMOTE) == 0) {
        finish_local(call);
        return;
    }
    call->work.run = end_local; /* references belong to the thread inside */
    mr_agent_submit(call->agent, &call->work);
}

static void submit_end(struct mr_rpc_call *call)
{
    call->work.run = end_local;
    mr_agent_submit_quietly(call->agent, &call->work);
}

static void run_local(struct mr_job *job)
{
    mr_serving_run(MR_CONTAINER(job, struct mr_rpc_call, job), submit_end);
}

/* Runs before the call can end, because its end is work that is submitted later. */
static void begin_local(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, work);
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

static enum mr_status start_local(struct mr_rpc *agent, struct mr_rpc_future *f,
                                  const struct mr_rpc_order *order)
{
    struct mr_rpc_call *call;
    enum mr_status status = mr_executing_own(agent, order->caller, order->function, order->arguments,
                                             order->argument_count, &call);
    if (status != MR_OK)
        return status;
    status = copy_arguments(call, order);

    if (status != MR_OK) {
        mr_executing_free(call);
        return status;
    }
    call->deadline_us = f->deadline_us;
    call->head = f->head;
    call->future = f;
    f->local = true;
    if ((call->function->flags & MR_RPC_INLINE) != 0) {
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

static bool is_of_future(const struct mr_job *job, const void *arg)
{
    return job->run == run_local && MR_CONTAINER(job, struct mr_rpc_call, job)->future == arg;
}

static void cancel_local(struct mr_rpc *agent, const struct mr_rpc_future *future)
{
    struct mr_job *job = mr_executor_take_back(agent->executor, is_of_future, future);
    if (job == NULL)
        return;
    struct mr_rpc_call *call = MR_CONTAINER(job, struct mr_rpc_call, job);

    call->status = MR_CANCELLED;
    end_local(agent, &call->work);
}

/* ---- to another worker ---- */

/* The other worker does not look at the request: takes back the references in it. */
static void unread(struct mr_rpc *agent, struct mr_agent_call *call)
{
    struct mr_rpc_future *f = MR_CONTAINER(call, struct mr_rpc_future, call);
    mr_values_unpass(f->passed, f->passed_count, &agent->hooks);
    f->passed_count = 0;
}

/* The request never left, and neither did the references in it. */
static void take_back(struct mr_rpc *agent, struct mr_rpc_future *f)
{
    unread(agent, &f->call);
    if ((f->head.flags & MR_RPC_REMOTE) != 0)
        mr_remote_never(f->rref, f->status == MR_OK ? MR_CANCELLED : f->status);
}

bool mr_rpc_future_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                         const struct mr_message *reply)
{
    struct mr_rpc_future *f = MR_CONTAINER(call, struct mr_rpc_future, call);
    struct mr_rpc_result *result = NULL;
    char why[MR_EXECUTING_ERROR_BYTES] = "";
    bool keep = false;
    block_free(f);
    agent->counters.calls_made++;
    agent->counters.calls_made_failed += status != MR_OK;
    if (call->cancelled)
        take_back(agent, f);
    else if (status != MR_OK)
        (void)mr_agent_error_text(reply, why, sizeof(why));
    else if ((f->head.flags & MR_RPC_REMOTE) == 0)
        result = mr_result_of_reply(agent, call, reply, &keep, &status);
    if (result != NULL && f->head.context != 0 && !f->ended)
        status = mr_autograd_reply_in(agent->contexts, f->head.context, f->head.invocation, result->values,
                                      result->count);
    if (status != MR_OK) {
        mr_rpc_result_free(result);
        result = NULL;
    }
    if (status == MR_WORKER_DIED && why[0] == 0)
        snprintf(why, sizeof(why), "it died or was restarted while the call was in flight");
    if (status != MR_OK && reply != NULL && (f->head.flags & MR_RPC_REMOTE) != 0)
        mr_remote_never(f->rref, status); /* the callee keeps nothing */
    mr_rpc_future_end(f, status, why, result);
    mr_rpc_future_put(f);
    return keep;
}

static uint64_t time_left_us(const struct mr_rpc_future *f, uint64_t now_us)
{
    if (f->deadline_us == UINT64_MAX)
        return UINT64_MAX;
    return f->deadline_us > now_us ? f->deadline_us - now_us : 0;
}

/* Inside: writes the request to where it is sent from. */
static enum mr_status lay_out(struct mr_rpc *agent, struct mr_rpc_future *f, const struct mr_value *values,
                              uint32_t count)
{
    uint64_t words[MR_RPC_ARGUMENTS_MAX * MR_RREF_WORDS];
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    size_t head_bytes = mr_values_head_bytes(f->function, values, count);
    uint32_t n = mr_values_tensors(NULL, head_bytes, values, count, tensors);
    uint32_t references = mr_values_references(values, count);
    enum mr_status status = mr_agent_begin(agent, &f->call, tensors, n);
    if (status != MR_OK)
        return status;
    if (references != 0) {
        f->passed = malloc((size_t)references * MR_RREF_WORDS * sizeof(*f->passed));
        if (f->passed == NULL)
            status = mr_rpc_error(MR_NO_MEMORY, "no memory for the references among the arguments");
        else
            status = mr_values_pass(values, count, &agent->hooks, f->call.to, words);
    }
    if (status != MR_OK) {
        mr_agent_drop(agent, &f->call);
        return status;
    }
    if (references != 0)
        memcpy(f->passed, words, (size_t)references * MR_RREF_WORDS * sizeof(*f->passed));
    f->passed_count = references;
    mr_values_write(tensors[0].data, &f->head, f->function, values, count, words);
    return MR_OK;
}

/* Reading the clock costs as much as the rest of this: now_us is when the call began, if that was just
 * now. */
static enum mr_status send_request(struct mr_rpc *agent, struct mr_rpc_future *f,
                                   const struct mr_value *values, uint32_t count, uint64_t now_us)
{
    bool remote = (f->head.flags & MR_RPC_REMOTE) != 0;
    enum mr_status status = MR_OK;
    f->head.time_left_us = time_left_us(f, now_us);

    if (remote)
        status = mr_rref_make(f->rref);
    if (status == MR_OK)
        status = lay_out(agent, f, values, count);
    if (status != MR_OK) {
        if (remote)
            mr_remote_never(f->rref, status);
        return status;
    }
    mr_agent_send(agent, &f->call);
    mr_rpc_future_arm(f, now_us);
    return MR_OK;
}

static void send_waiting(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, work);
    enum mr_status status = send_request(agent, f, f->waiting, f->waiting_count, mr_agent_now(agent));
    mr_rrefs_release(f->waiting, f->waiting_count);
    f->waiting_count = 0;
    if (f->call.out == NULL) /* otherwise it is sent from there until the call has ended */
        block_free(f);
    if (status == MR_OK)
        return;
    mr_rpc_future_end(f, status, mr_rpc_last_error(), NULL);
    mr_rpc_future_put(f);
}

static bool is_long(const struct mr_rpc *agent, const struct mr_rpc_order *order)
{
    return mr_long_is(agent, mr_values_bytes(order->function, order->arguments, order->argument_count));
}

static enum mr_status no_room(const struct mr_rpc *agent, const struct mr_rpc_order *order, uint64_t bytes)
{
    return mr_rpc_error(MR_NO_MEMORY,
                        "%s: %s: the arguments take %llu MiB, and %llu MiB of the %zu MiB for long messages "
                        "are in use on this worker: see long_memory_bytes, or a node's " MR_LONG_MEMORY_KEY,
                        order->caller, order->function, (unsigned long long)(bytes >> 20),
                        (unsigned long long)(atomic_load(&agent->longs.bytes) >> 20),
                        agent->config.long_memory_bytes >> 20);
}

/* Another thread is inside, or the request is long: copies the arguments. */
static enum mr_status submit_request(struct mr_rpc *agent, struct mr_rpc_future *f,
                                     const struct mr_rpc_order *order)
{
    size_t values_bytes = (order->argument_count * sizeof(struct mr_value) + 63) / 64 * 64;
    size_t bytes = values_bytes + mr_values_copy_bytes(order->arguments, order->argument_count);
    uint8_t *room = f->bytes_inline;
    if (is_long(agent, order)) {
        if (!mr_long_reserve(agent, bytes))
            return no_room(agent, order, bytes);
        f->reserved_bytes = bytes;
    }
    if (bytes > sizeof(f->bytes_inline)) {
        f->block = aligned_alloc(64, bytes);
        if (f->block == NULL)
            return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the arguments", order->caller,
                                order->function);
        room = f->block;
    }
    f->waiting = (struct mr_value *)(void *)room;
    f->waiting_count = order->argument_count;
    mr_values_copy(order->arguments, order->argument_count, f->waiting, room + values_bytes);
    mr_rrefs_retain(f->waiting, f->waiting_count);
    f->work.run = send_waiting;
    mr_agent_submit(agent, &f->work);
    return MR_OK;
}

static enum mr_status start_remote(struct mr_rpc *agent, struct mr_rpc_future *f,
                                   const struct mr_rpc_order *order)
{
    struct mr_agent_driver *driver = &agent->config.driver;
    f->call.op = MR_OP_RPC_CALL;
    f->call.depth = (uint8_t)f->head.depth;
    f->call.ended = mr_rpc_future_ended;
    f->call.stays = is_long(agent, order);
    f->call.over = &f->ended;
    f->call.unread = unread;
    if (f->call.stays || !driver->enter(driver->self))
        return submit_request(agent, f, order);
    enum mr_status status = send_request(agent, f, order->arguments, order->argument_count, f->begun_us);

    char why[MR_RPC_ERROR_BYTES] = "";

    if (status != MR_OK) /* now, because leaving does other threads' work, which may set error lines */
        snprintf(why, sizeof(why), "%s", mr_rpc_last_error());
    driver->leave(driver->self, order->waits);
    if (status != MR_OK)
        mr_rpc_error_line("%s: %s: %s", order->caller, order->function, why);
    return status;
}

/* ---- both ---- */

/* Any thread, not inside: starts a call. *out is held once for the caller. Fails, with the error line, if an
 * error is known at once. */
static enum mr_status call_start(struct mr_rpc *agent, const struct mr_rpc_order *order,
                                 struct mr_rpc_future **out)
{
    const struct mr_rpc_call_options *options = order->options;
    enum mr_status status = mr_agent_check_process(agent, order->caller);
    if (status == MR_OK)
        status = call_check(agent, order);
    if (status != MR_OK)
        return status;
    struct mr_rpc_future *f =
        mr_rpc_future_begin(agent, order->function, order->to, options == NULL ? 0 : options->timeout_ms);

    if (f == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the call", order->caller, order->function);
    f->head = (struct mr_rpc_head){
        .number = atomic_fetch_add_explicit(&agent->numbers, 1, memory_order_relaxed) + 1,
        .flags = (uint16_t)order->flags,
        .depth = mr_executor_depth()};
    if (order->rref != NULL) {
        (void)mr_rref_pin(order->rref, order->caller);
        f->rref = order->rref;
        f->head.reference = order->rref->id;
        f->head.fork = order->rref->fork;
    }
    if (options != NULL && options->context != NULL)
        status = mr_autograd_call_out(options->context, order->to, order->function, order->arguments,
                                      order->argument_count, &f->head.context, &f->head.invocation);
    if (status == MR_OK)
        status =
            order->to == agent->config.rank ? start_local(agent, f, order) : start_remote(agent, f, order);
    if (status != MR_OK) {
        atomic_fetch_sub(&agent->in_flight, 1);
        mr_rpc_future_put(f);
        mr_rpc_future_put(f);
        return status;
    }
    *out = f;
    return MR_OK;
}

enum mr_status mr_rpc_async(struct mr_rpc *agent, uint32_t to, const char *function,
                            const struct mr_value *arguments, uint32_t argument_count,
                            const struct mr_rpc_call_options *options, struct mr_rpc_future **future)
{
    struct mr_rpc_order order = {.caller = "mr_rpc_async",
                                 .to = to,
                                 .function = function,
                                 .arguments = arguments,
                                 .argument_count = argument_count,
                                 .options = options};
    return call_start(agent, &order, future);
}

enum mr_status mr_rpc_sync(struct mr_rpc *agent, uint32_t to, const char *function,
                           const struct mr_value *arguments, uint32_t argument_count,
                           const struct mr_rpc_call_options *options, struct mr_rpc_result **result)
{
    struct mr_rpc_order order = {.caller = "mr_rpc_sync",
                                 .to = to,
                                 .function = function,
                                 .arguments = arguments,
                                 .argument_count = argument_count,
                                 .options = options,
                                 .waits = true};
    struct mr_rpc_future *future;
    enum mr_status status = call_start(agent, &order, &future);
    if (status != MR_OK)
        return status;
    status = mr_rpc_wait(future, result);
    mr_rpc_future_put(future);
    return status;
}

enum mr_status mr_remote(struct mr_rpc *agent, uint32_t to, const char *function,
                         const struct mr_value *arguments, uint32_t argument_count,
                         const struct mr_rpc_call_options *options, struct mr_rref **rref)
{
    struct mr_rrefs *all = agent->rrefs;
    struct mr_rpc_future *future;
    if (all == NULL)
        return mr_rpc_error(MR_UNSUPPORTED, "mr_remote: this process is no worker of a world");
    struct mr_rref *r = mr_rref_new(all, to, mr_references_new_id(all->refs),
                                    to == agent->config.rank ? 0 : mr_references_new_id(all->refs));

    if (r == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "mr_remote: no memory for a reference");
    struct mr_rpc_order order = {.caller = "mr_remote",
                                 .to = to,
                                 .function = function,
                                 .arguments = arguments,
                                 .argument_count = argument_count,
                                 .options = options,
                                 .flags = MR_RPC_REMOTE,
                                 .rref = r};
    enum mr_status status = call_start(agent, &order, &future);

    if (status != MR_OK) {
        mr_rref_release(r);
        return status;
    }
    mr_rpc_future_destroy(future);
    *rref = r;
    return MR_OK;
}

/* ---- cancelled ---- */

static bool cancel_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                         const struct mr_message *reply)
{
    free(call);
    return false;
}

/* Keeps the function from beginning on the callee, if it has not begun. Losing this does no harm. */
static void send_cancel(struct mr_rpc *agent, const struct mr_rpc_future *f)
{
    struct mr_agent_call *call = malloc(sizeof(*call));
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &f->head.number);
    if (call == NULL)
        return;
    *call = (struct mr_agent_call){.to = f->call.to,
                                   .op = MR_OP_RPC_CANCEL,
                                   .control = true,
                                   .deadline_us = f->deadline_us,
                                   .ended = cancel_ended};
    if (mr_agent_begin(agent, call, &tensor, 1) == MR_OK)
        mr_agent_send(agent, call);
    else
        free(call);
}

static void cancel(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, cancel_work);
    bool ended = f->ended;
    mr_rpc_future_end(f, MR_CANCELLED, NULL, NULL);
    if (!ended && f->local)
        cancel_local(agent, f);
    else if (!ended && !mr_agent_withdraw(agent, &f->call))
        send_cancel(agent, f);
    mr_rpc_future_put(f);
}

void mr_rpc_cancel(struct mr_rpc_future *f)
{
    if (mr_rpc_done(f) || atomic_exchange(&f->cancelled, true))
        return;
    atomic_fetch_add(&f->holds, 1);
    f->cancel_work.run = cancel;
    mr_agent_submit(f->agent, &f->cancel_work);
}
