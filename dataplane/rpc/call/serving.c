#include "dataplane/rpc/call/serving.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/autograd.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"
#include "dataplane/wire/base/clock.h"

#define SHORT_NS        10000u
#define SHORT_SERIAL_NS 100000u /* of CPU time */

static struct mr_rpc_call *of_job(const struct mr_job *job)
{
    return MR_CONTAINER(job, struct mr_rpc_call, job);
}

/* ---- answers ---- */

static enum mr_answered too_long(const struct mr_rpc *agent, struct mr_call_ref ref, uint64_t bytes)
{
    mr_reply_error(agent->config.endpoint, ref, MR_TOO_LARGE,
                   "the result takes %" PRIu64 " MiB, and a message at most %zu MiB: see message_bytes, or a "
                   "node's " MR_LONG_KEY,
                   (bytes >> 20) + 1, agent->config.long_bytes_max >> 20);
    return MR_ANSWER_SENT;
}

/* Keeps an answer in parts until the caller has it. */
struct held {
    struct mr_answer_hold hold;
    uint32_t references;
    uint64_t words[];
};

static void unread(struct mr_rpc *agent, void *of)
{
    const struct held *held = of;
    mr_values_unpass(held->words, held->references, &agent->hooks);
}

static void gone(struct mr_rpc *agent, void *of)
{
    struct held *held = of;
    if (held->hold.release != NULL)
        held->hold.release(held->hold.of);
    free(held);
}

/* An answer to be sent. The first tensor is the head's, which has no data yet. */
struct answer {
    struct mr_call_ref ref;
    uint32_t to;
    struct mr_rpc_head head;
    const struct mr_value *values;
    uint32_t count, references;
    uint64_t words[MR_RPC_ARGUMENTS_MAX * MR_RREF_WORDS]; /* of the references, which have been passed */
    struct mr_tensor tensors[1 + MR_RPC_ARGUMENTS_MAX];
    uint32_t tensor_count;
};

/* NULL: no memory, nothing has changed. */
static struct mr_long_out *long_new(struct mr_rpc *agent, struct answer *a, uint64_t note[MR_LONG_NOTE_WORDS])
{
    size_t bytes = (size_t)a->references * MR_RREF_WORDS * sizeof(*a->words);
    struct held *held = malloc(sizeof(*held) + bytes);
    struct mr_long_out *out =
        held == NULL ? NULL
                     : mr_long_out_new(agent, a->to, MR_OP_RPC_CALL, a->tensors, a->tensor_count, note);
    if (out == NULL) {
        free(held);
        return NULL;
    }
    held->hold = (struct mr_answer_hold){.release = NULL};
    held->references = a->references;
    memcpy(held->words, a->words, bytes);
    out->unread = unread;
    out->gone = gone;
    out->of = held;
    return out;
}

static enum mr_answered reply_long(struct mr_rpc *agent, struct answer *a, struct mr_answer_hold hold)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint64_t words[MR_LONG_NOTE_WORDS] = {0};
    struct mr_tensor note = mr_body_tensor(MR_BODY_LONG_NOTE, words);
    bool wanted = !agent->closing && mr_call_ref_alive(ep, a->ref);
    struct mr_long_out *out = wanted ? long_new(agent, a, words) : NULL;
    if (out != NULL && mr_reply_begin(ep, a->ref, MR_OK, &note, 1)) {
        mr_values_write(out->tensors[0].data, &a->head, NULL, a->values, a->count, a->words);
        ((struct held *)out->of)->hold = hold;
        mr_reply_end(ep, a->ref);
        return MR_ANSWER_HELD;
    }
    mr_long_out_end(agent, out, false);
    mr_values_unpass(a->words, a->references, &agent->hooks);
    if (wanted && mr_call_ref_alive(ep, a->ref))
        return MR_ANSWER_LATER;
    mr_reply_status(ep, a->ref, agent->closing ? MR_SHUTTING_DOWN : MR_OK);
    return MR_ANSWER_SENT;
}

static enum mr_answered reply_short(struct mr_rpc *agent, struct answer *a)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    if (mr_reply_begin(ep, a->ref, MR_OK, a->tensors, a->tensor_count)) {
        mr_values_write(a->tensors[0].data, &a->head, NULL, a->values, a->count, a->words);
        mr_reply_end(ep, a->ref);
        return MR_ANSWER_SENT;
    }
    mr_values_unpass(a->words, a->references, &agent->hooks);
    if (mr_call_ref_alive(ep, a->ref))
        return MR_ANSWER_LATER;
    mr_reply_status(ep, a->ref, MR_OK); /* nobody waits any more, or it was too large, as was reported */
    return MR_ANSWER_SENT;
}

enum mr_answered mr_serving_reply(struct mr_rpc *agent, struct mr_call_ref ref, uint32_t to, uint64_t context,
                                  const struct mr_value *values, uint32_t count, struct mr_answer_hold hold)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    size_t head_bytes = mr_values_head_bytes(NULL, values, count);
    struct answer a; /* large: only what is used is written */
    if (head_bytes == 0) {
        mr_reply_error(ep, ref, MR_INVALID_ARGUMENT,
                       "an object stays with its owner: only references to it travel");
        return MR_ANSWER_SENT;
    }
    uint64_t bytes = mr_values_bytes(NULL, values, count);

    if (bytes > agent->config.long_bytes_max)
        return too_long(agent, ref, bytes);
    a.ref = ref;
    a.to = to;
    a.head = (struct mr_rpc_head){.context = context};
    a.values = values;
    a.count = count;
    a.references = mr_values_references(values, count);
    a.tensor_count = mr_values_tensors(NULL, head_bytes, values, count, a.tensors);
    enum mr_status status = mr_values_pass(values, count, &agent->hooks, to, a.words);

    if (status == MR_NO_MEMORY)
        return MR_ANSWER_LATER;
    if (status != MR_OK) {
        mr_reply_error(ep, ref, status, "%s", mr_rpc_last_error());
        return MR_ANSWER_SENT;
    }
    return mr_long_is(agent, bytes) ? reply_long(agent, &a, hold) : reply_short(agent, &a);
}

/* The result stays here; it belongs to the references from now on. */
void mr_serving_keep(struct mr_rpc_call *call)
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
    mr_remote_ended(agent, call->head.reference, call->status, call->error, result, call->destroy);
}

static void count_served(struct mr_rpc *agent, bool failed, bool ran)
{
    agent->counters.calls_served++;
    agent->counters.calls_failed += failed;
    agent->counters.calls_refused += !ran;
}

static void release(void *call)
{
    mr_executing_free(call);
}

static enum mr_answered answer_results(struct mr_rpc_call *call)
{
    struct mr_answer_hold hold = {.release = release, .of = call};
    enum mr_answered answered = mr_serving_reply(call->agent, call->ref, call->caller, call->head.context,
                                                 call->results, call->result_count, hold);
    if (answered != MR_ANSWER_HELD)
        return answered;
    mr_long_release(call->in); /* its arguments have been used */
    call->in = NULL;
    return answered;
}

/* False: there is no memory for the answer now. */
static bool serving_answer(struct mr_rpc_call *call)
{
    enum mr_answered answered = MR_ANSWER_SENT;
    if ((call->head.flags & MR_RPC_REMOTE) != 0) {
        mr_serving_keep(call);
        mr_reply_status(call->agent->config.endpoint, call->ref, MR_OK);
    } else if (call->status != MR_OK) {
        mr_reply_error(call->agent->config.endpoint, call->ref, call->status, "%s", call->error);
    } else {
        answered = answer_results(call);
    }
    if (answered == MR_ANSWER_LATER)
        return false;
    count_served(call->agent, call->status != MR_OK, true);
    if (answered != MR_ANSWER_HELD)
        mr_executing_free(call);
    return true;
}

void mr_serving_retry(struct mr_rpc *agent)
{
    struct mr_rpc_call **at = &agent->unanswered;
    while (*at != NULL) {
        struct mr_rpc_call *call = *at;
        struct mr_rpc_call *next = call->next;
        if (serving_answer(call))
            *at = next;
        else
            at = &call->next;
    }
}

static void executed(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_call *call = MR_CONTAINER(work, struct mr_rpc_call, work);
    if (call->postponed && atomic_load(&agent->over)) { /* there is nothing left to answer with */
        mr_executing_free(call);
        return;
    }
    if (serving_answer(call))
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

/* Moves a quarter of the way towards each new time, so that one long run shows at once. */
static void note_time(struct mr_function *function, uint64_t ns)
{
    uint32_t before = atomic_load_explicit(&function->run_ns, memory_order_relaxed);
    int64_t taken = ns > UINT32_MAX ? UINT32_MAX : (int64_t)ns;
    int64_t after = before == 0 ? taken : before + (taken - (int64_t)before) / 4;
    atomic_store_explicit(&function->run_ns, after == 0 ? 1 : (uint32_t)after, memory_order_relaxed);
}

static void check_results(struct mr_rpc_call *call)
{
    char text[192];
    if (mr_signature_matches(&call->function->results, call->results, call->result_count))
        return;
    mr_signature_describe(call->results, call->result_count, text, sizeof(text));
    (void)mr_rpc_fail(call, "it returned (%s), and its signature says (%s)", text,
                      call->function->results_text);
    call->status = MR_WRONG_SIGNATURE;
}

/* Runs that exclude each other are measured by the CPU: how long they wait for each other must not make them
 * seem long, or they would get more threads, and wait longer. */
static uint64_t run_clock_ns(const struct mr_function *function)
{
    return (function->flags & MR_RPC_SERIAL) != 0 ? mr_clock_thread_ns() : mr_clock_ns();
}

static void function_begin(struct mr_rpc_call *call)
{
    uint64_t start_ns = run_clock_ns(call->function);
    atomic_fetch_add_explicit(&call->agent->activity, 1, memory_order_relaxed);
    if (call->head.context != 0)
        call->status = mr_autograd_run_begins(call);
    if (call->status == MR_OK)
        call->status = call->function->run(call, call->arguments, call->argument_count);
    note_time(call->function, run_clock_ns(call->function) - start_ns);
}

static void function_end(struct mr_rpc_call *call)
{
    if (call->status == MR_OK)
        check_results(call);
    if (call->head.context != 0)
        call->status = mr_autograd_run_ended(call, call->status);
    if (call->saved != NULL && call->context == NULL && call->saved_destroy != NULL)
        call->saved_destroy(call->saved);
    if (call->status != MR_OK && call->error[0] == 0)
        snprintf(call->error, sizeof(call->error), "%s", mr_status_text(call->status));
    /* Now, because destroying an object may block, and the thread inside must not. */
    if (call->status != MR_OK)
        mr_executing_drop_results(call);
}

void mr_function_run(struct mr_rpc_call *call)
{
    function_begin(call);
    function_end(call);
}

static bool is_too_late(struct mr_rpc_call *call)
{
    if (call->deadline_us == UINT64_MAX || mr_agent_now(call->agent) < call->deadline_us)
        return false;
    call->status = MR_DEADLINE_EXCEEDED;
    (void)mr_rpc_fail(call, "no thread came to run it before the caller's time was up");
    return true;
}

static bool is_short(const struct mr_function *function)
{
    uint32_t ns = atomic_load_explicit(&function->run_ns, memory_order_relaxed);
    return ns != 0 && ns < ((function->flags & MR_RPC_SERIAL) != 0 ? SHORT_SERIAL_NS : SHORT_NS);
}

static bool is_refused(struct mr_rpc_call *call)
{
    if (!call->job.refused)
        return false;
    call->status = MR_BUSY;
    (void)mr_rpc_fail(call,
                      "all threads of this worker wait for other workers, and %u functions, one within the "
                      "other, wait for this call: it might never run; make fewer calls at a time, or let "
                      "them call less deep",
                      call->head.depth);
    return true;
}

struct mr_job mr_serving_job(struct mr_rpc_call *call, void (*run)(struct mr_job *job))
{
    uint16_t depth = call->head.depth;
    return (struct mr_job){.run = run,
                           .is_short = is_short(call->function),
                           .may_refuse = true,
                           .depth = depth < MR_EXECUTOR_DEPTHS ? (uint8_t)depth : MR_EXECUTOR_DEPTHS - 1};
}

/* Returns whether both halves of a postponed call are over: whoever ends the second one ends the call. */
static bool is_second_half(struct mr_rpc_call *call)
{
    return atomic_fetch_add(&call->halves, 1) == 1;
}

static void end_postponed(struct mr_rpc_call *call)
{
    struct mr_rpc *agent = call->agent;
    call->status = call->finish_status;
    function_end(call);
    call->end(call);
    mr_agent_wake(agent);
    mr_agent_put(agent);
}

void mr_serving_run(struct mr_rpc_call *call, void (*end)(struct mr_rpc_call *call))
{
    call->end = end;
    if (!is_refused(call) && !is_too_late(call)) {
        function_begin(call);
        if (call->postponed) {
            if (is_second_half(call))
                end_postponed(call);
            return;
        }
        function_end(call);
    }
    end(call);
}

enum mr_status mr_rpc_postpone(struct mr_rpc_call *call)
{
    if (call->end == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rpc_postpone: %s runs inline, and must end at once",
                            call->function->name);
    if (call->postponed)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rpc_postpone: %s has postponed this call before",
                            call->function->name);
    call->postponed = true;
    mr_agent_hold(call->agent);
    return MR_OK;
}

void mr_rpc_finish(struct mr_rpc_call *call, enum mr_status status)
{
    call->finish_status = status;
    if (is_second_half(call))
        end_postponed(call);
}

static void end_remote(struct mr_rpc_call *call)
{
    call->work.run = executed;
    mr_agent_submit_quietly(call->agent, &call->work);
}

static void run_remote(struct mr_job *job)
{
    mr_serving_run(of_job(job), end_remote);
}

/* ---- requests ---- */

/* A request that is not run, and why. */
struct refusal {
    struct mr_rpc_head head;
    enum mr_status status;
    char why[256];
};

/* Answers a request that is not run. If its result was to stay here, users of the reference get the error. */
static void refuse(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request,
                   const struct refusal *refusal)
{
    const struct mr_rpc_head *head = &refusal->head;
    if ((head->flags & MR_RPC_REMOTE) == 0) {
        mr_reply_error(agent->config.endpoint, request->ref, refusal->status, "%s", refusal->why);
        return;
    }
    enum mr_status status = mr_remote_came(agent, from->rank, head->reference, head->fork);

    if (status == MR_OK)
        mr_remote_ended(agent, head->reference, refusal->status, refusal->why, NULL, NULL);
    mr_reply_status(agent->config.endpoint, request->ref, status);
}

static bool decode(struct mr_rpc *agent, const struct mr_request *request, uint32_t from,
                   struct mr_rpc_head *head, struct mr_value *values, uint32_t *count)
{
    const char *name;
    return mr_values_decode(request->message, head, &name, values, count, &agent->hooks, from);
}

static void unknown_function(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct refusal refusal = {.status = MR_UNKNOWN_FUNCTION, .why = "it has no function of that name"};
    struct mr_value values[MR_RPC_ARGUMENTS_MAX];
    uint32_t count;
    if (!decode(agent, request, from->rank, &refusal.head, values, &count)) {
        refusal.status = MR_BAD_MESSAGE;
        snprintf(refusal.why, sizeof(refusal.why), "the arguments are malformed");
    }
    mr_rrefs_release(values, count);
    refuse(agent, from, request, &refusal);
}

/* Reads and checks the arguments of a request. False: the request has been answered. */
static bool take_arguments(struct mr_rpc *agent, struct mr_member *from, struct mr_rpc_call *call,
                           const struct mr_request *request)
{
    struct refusal refusal;
    char text[192];
    refusal.status = MR_BAD_MESSAGE;
    if (!decode(agent, request, from->rank, &call->head, call->arguments, &call->argument_count)) {
        snprintf(refusal.why, sizeof(refusal.why),
                 "the arguments are malformed, or have a reference that this worker cannot take");
    } else if (!mr_signature_matches(&call->function->arguments, call->arguments, call->argument_count)) {
        mr_signature_describe(call->arguments, call->argument_count, text, sizeof(text));
        refusal.status = MR_WRONG_SIGNATURE;
        snprintf(refusal.why, sizeof(refusal.why), "it was called with (%s), and takes (%s)", text,
                 call->function->arguments_text);
    } else {
        return true;
    }
    refusal.head = call->head;
    refuse(agent, from, request, &refusal);
    return false;
}

static bool begin_remote(struct mr_rpc *agent, const struct mr_rpc_call *call)
{
    if ((call->head.flags & MR_RPC_REMOTE) == 0)
        return true;
    enum mr_status status = mr_remote_came(agent, call->caller, call->head.reference, call->head.fork);

    if (status == MR_OK)
        return true;
    mr_reply_error(agent->config.endpoint, call->ref, status, "its result cannot be kept here");
    return false;
}

static void run_inline(struct mr_rpc *agent, struct mr_rpc_call *call, const struct mr_request *request)
{
    mr_function_run(call);
    if (serving_answer(call))
        return;
    /* The function must not run again, so the answer waits until there is memory; without memory for that, it
     * is lost. */
    if (call->in != NULL || mr_reply_later(agent->config.endpoint, request) != NULL) {
        executed(agent, &call->work);
        return;
    }
    mr_reply_status(agent->config.endpoint, request->ref, MR_NO_MEMORY);
    mr_executing_free(call);
}

static uint64_t deadline_of(const struct mr_rpc_call *call, uint64_t now_us)
{
    return call->head.time_left_us > UINT64_MAX - now_us ? UINT64_MAX : now_us + call->head.time_left_us;
}

void mr_serving_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    struct mr_rpc_head head;
    const char *name;
    if (!mr_values_peek(request->message, &head, &name)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    if (!mr_rrefs_reserve(agent->rrefs)) {
        mr_long_busy(agent, request);
        return;
    }
    struct mr_function *function = mr_functions_find(&agent->functions, name);

    if (function == NULL) {
        count_served(agent, true, false);
        unknown_function(agent, from, request);
        return;
    }
    struct mr_rpc_call *call = mr_executing_new(agent, function, head.value_count);
    bool on_this_thread = (function->flags & MR_RPC_INLINE) != 0;
    const struct mr_request *stable = request;

    if (call != NULL && (!on_this_thread || mr_long_is_whole(agent, request)))
        stable = mr_long_later(agent, request, &call->in);
    if (call == NULL || stable == NULL) {
        if (call != NULL)
            mr_executing_free(call);
        mr_long_busy(agent, request);
        return;
    }
    call->caller = from->rank;
    call->ref = request->ref;
    if (!take_arguments(agent, from, call, stable) || !begin_remote(agent, call)) {
        count_served(agent, true, false);
        mr_executing_free(call);
        return;
    }
    call->deadline_us = deadline_of(call, request->now_us);
    if (on_this_thread) {
        run_inline(agent, call, request);
        return;
    }
    call->job = mr_serving_job(call, run_remote);
    mr_agent_add_job(agent, &call->job);
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
    const struct mr_rpc_call *call = of_job(job);

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
    memcpy(&wanted.number, request->message->tensors[0].data, sizeof(wanted.number));
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
