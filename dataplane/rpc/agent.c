#include "dataplane/rpc/agent.h"

#include <assert.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/dist_optimizer/dist_optimizer.h"
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/wire/base/fence.h"
#include "dataplane/wire/base/plural.h"

#define POOL_BLOCKS_MAX 1024u
#define HURRY_US        200u /* brief jobs that have not begun by then were taken for brief by mistake */
#define RETRY_US        1000u
#define ERROR_BYTES     768u

static _Thread_local char error_line[ERROR_BYTES];

const char *mr_rpc_last_error(void)
{
    return error_line;
}

void mr_rpc_error_line(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(error_line, sizeof(error_line), format, args);
    va_end(args);
}

/* ---- made and destroyed ---- */

/* On an executor's thread. */
static void jobs_done(void *self)
{
    mr_agent_wake(self);
}

static void thread_begins(void *self)
{
    const struct mr_agent_driver *driver = &((const struct mr_rpc *)self)->config.driver;

    if (driver->thread_begins != NULL)
        driver->thread_begins(driver->self);
}

static enum mr_status check_config(const struct mr_agent_config *config, char *error, size_t error_bytes)
{
    size_t name_bytes = strlen(config->name);
    const char *wrong = NULL;

    if (config->world_size == 0 || config->world_size > MR_RPC_WORLD_MAX)
        wrong = "world_size goes from 1 to 1024";
    else if (name_bytes >= MR_RPC_NAME_BYTES)
        wrong = "a worker's name has at most 63 bytes";
    else if (name_bytes == 0 && config->rank != MR_RPC_NO_RANK)
        wrong = "a worker needs a name";
    else if (config->rank != MR_RPC_NO_RANK && config->rank >= config->world_size)
        wrong = "the rank goes from 0 to world_size - 1";
    else if (config->rank == MR_RPC_NO_RANK && !config->is_rendezvous)
        wrong = "one that is neither a worker nor the rendezvous has nothing to do";
    if (wrong == NULL)
        return MR_OK;
    snprintf(error, error_bytes, "worker \"%s\" (rank %d of %u): %s", config->name, (int)config->rank,
             config->world_size, wrong);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status create_parts(struct mr_rpc *agent)
{
    struct mr_executor_config executor = {
        .threads = agent->config.executor_threads, .self = agent, .done = jobs_done, .begins = thread_begins};
    enum mr_status status = mr_world_init(agent);
    struct mr_contexts *contexts;

    if (status == MR_OK)
        status = mr_contexts_create(agent, &contexts);
    if (status == MR_OK)
        status = mr_executor_create(&executor, &agent->executor);
    mr_agent_set_op(agent, MR_OP_RPC_PART, mr_long_serve_part, NULL);
    if (status == MR_OK && agent->config.rank != MR_RPC_NO_RANK)
        status = mr_rrefs_create(agent, &agent->rrefs);
    if (status == MR_OK)
        status = mr_dist_optimizer_register(agent);
    return status;
}

enum mr_status mr_agent_create(const struct mr_agent_config *config, struct mr_rpc **out, char *error,
                               size_t error_bytes)
{
    enum mr_status status = check_config(config, error, error_bytes);

    if (status != MR_OK)
        return status;
    struct mr_rpc *agent = aligned_alloc(64, (sizeof(*agent) + 63) / 64 * 64);

    if (agent == NULL) {
        snprintf(error, error_bytes, "worker \"%s\": no memory", config->name);
        return MR_NO_MEMORY;
    }
    memset(agent, 0, sizeof(*agent));
    agent->config = *config;
    snprintf(agent->name, sizeof(agent->name), "%s", config->name);
    agent->config.name = agent->name;
    atomic_store(&agent->held, config->held);
    mr_functions_init(&agent->functions);
    pthread_mutex_init(&agent->stepping, NULL);
    pthread_mutex_init(&agent->late, NULL);
    atomic_store(&agent->holds, 1);
    mr_pool_init(&agent->futures, sizeof(struct mr_rpc_future), POOL_BLOCKS_MAX);
    mr_pool_init(&agent->results, sizeof(struct mr_rpc_result), POOL_BLOCKS_MAX);
    mr_pool_init(&agent->executing, sizeof(struct mr_rpc_call), POOL_BLOCKS_MAX);
    agent->turned_us = mr_agent_now(agent);
    mr_timer_wheel_init(&agent->deadlines);
    mr_longs_init(agent);
    agent->deadlines_next_us = UINT64_MAX;
    status = create_parts(agent);
    if (status != MR_OK) {
        snprintf(error, error_bytes, "worker \"%s\": %s", config->name, mr_status_text(status));
        mr_agent_join(agent);
        mr_agent_destroy(agent, NULL);
        return status;
    }
    *out = agent;
    return MR_OK;
}

/* Runs all that was submitted; `again` once more, as work may submit work. */
static void run_work(struct mr_rpc *agent)
{
    struct mr_work *newest;

    while ((newest = atomic_exchange(&agent->work, NULL)) != NULL) {
        struct mr_work *in_order = NULL;

        while (newest != NULL) {
            struct mr_work *older = newest->next;

            newest->next = in_order;
            in_order = newest;
            newest = older;
        }
        while (in_order != NULL) {
            struct mr_work *next = in_order->next;

            in_order->run(agent, in_order);
            in_order = next;
        }
    }
}

void mr_agent_close(struct mr_rpc *agent)
{
    agent->closing = true;
    atomic_store(&agent->left, true);
    if (agent->members == NULL)
        return;
    for (uint32_t i = 0; i < agent->config.world_size; i++)
        mr_member_close(agent, &agent->members[i]);
    mr_member_close(agent, &agent->rendezvous);
    mr_longs_close(agent);
    mr_rrefs_close(agent->rrefs);
    mr_agent_give_jobs(agent);
}

void mr_agent_join(struct mr_rpc *agent)
{
    /* It stays: whoever is inside meanwhile may give it jobs. */
    if (agent->executor != NULL)
        mr_executor_stop(agent->executor);
}

void mr_agent_hold(struct mr_rpc *agent)
{
    atomic_fetch_add_explicit(&agent->holds, 1, memory_order_relaxed);
}

static void agent_free(struct mr_rpc *agent)
{
    void (*freed)(void *driver) = agent->freed;
    void *driver = agent->config.driver.self;

    run_work(agent); /* ends of contexts, told to nobody any more */
    mr_contexts_free(agent->autograd.self);
    mr_rrefs_free(agent->rrefs);
    mr_executor_destroy(agent->executor);
    mr_world_fini(agent);
    mr_pool_fini(&agent->executing);
    mr_pool_fini(&agent->results);
    mr_pool_fini(&agent->futures);
    mr_functions_fini(&agent->functions);
    pthread_mutex_destroy(&agent->stepping);
    pthread_mutex_destroy(&agent->late);
    free(agent);
    if (freed != NULL)
        freed(driver);
}

void mr_agent_put(struct mr_rpc *agent)
{
    if (atomic_fetch_sub(&agent->holds, 1) == 1)
        agent_free(agent);
}

/* After the end: whoever submits pushes first and tries the lock then, so that either he gets it or it is
 * seen here. */
static void run_late(struct mr_rpc *agent)
{
    while (mr_agent_has_work(agent) && pthread_mutex_trylock(&agent->late) == 0) {
        run_work(agent);
        pthread_mutex_unlock(&agent->late);
        mr_fence();
    }
}

void mr_agent_destroy(struct mr_rpc *agent, void (*gone)(void *driver))
{
    if (agent == NULL)
        return;
    pthread_mutex_lock(&agent->late);
    atomic_store(&agent->over, true);
    run_work(agent);
    mr_serving_drop_all(agent);
    mr_contexts_end(agent->autograd.self);
    run_work(agent);
    mr_rrefs_end(agent->rrefs);
    run_work(agent);
    agent->freed = gone;
    pthread_mutex_unlock(&agent->late);
    mr_fence();
    run_late(agent);
    mr_agent_put(agent);
}

/* ---- inside ---- */

void mr_agent_add_job(struct mr_rpc *agent, struct mr_job *job)
{
    job->next = NULL;
    if (agent->jobs_last == NULL)
        agent->jobs_first = job;
    else
        agent->jobs_last->next = job;
    agent->jobs_last = job;
    agent->job_count++;
}

void mr_agent_give_jobs(struct mr_rpc *agent)
{
    if (agent->job_count == 0)
        return;
    if (agent->hurry_us == 0)
        agent->hurry_us = mr_agent_now(agent) + HURRY_US;
    mr_executor_give(agent->executor, agent->jobs_first, agent->jobs_last, agent->job_count);
    agent->jobs_first = NULL;
    agent->jobs_last = NULL;
    agent->job_count = 0;
}

static void refuse(struct mr_rpc *agent, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint64_t rank = request->message->preamble.step;

    if (!atomic_load(&agent->complete))
        mr_reply_busy(ep, request->ref); /* we have not heard yet that all are there */
    else if (rank < agent->config.world_size && atomic_load(&agent->members[rank].dead))
        mr_reply_error(ep, request->ref, MR_WORKER_DIED,
                       "worker \"%s\" (rank %u) was taken for dead, as nothing was heard of it for %u ms",
                       agent->members[rank].name, (uint32_t)rank, agent->config.dead_after_ms);
    else
        mr_reply_error(ep, request->ref, MR_UNKNOWN_WORKER, "the caller is not of this world of %u worker%s",
                       agent->config.world_size, mr_plural(agent->config.world_size));
}

void mr_agent_dispatch(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    uint8_t op = request->message->preamble.op;

    if (op == MR_OP_RPC_CALL)
        mr_serving_request(agent, from, request);
    else if (op == MR_OP_RPC_CANCEL)
        mr_serving_cancel(agent, from, request);
    else if (op == MR_OP_RPC_ALIVE)
        mr_world_serve_alive(agent, from, request);
    else if (op == MR_OP_RPC_LEAVE)
        mr_world_serve_leave(agent, from, request);
    else if (agent->served[op].serve != NULL)
        agent->served[op].serve(agent, agent->served[op].self, from->rank, request);
    else
        mr_reply_status(agent->config.endpoint, request->ref, MR_UNKNOWN_OP);
}

static bool comes_in_parts(const struct mr_message *message)
{
    uint8_t op = message->preamble.op;

    return (op == MR_OP_RPC_CALL || op == MR_OP_RPC_BACKWARD) && mr_long_is_note(message);
}

bool mr_agent_on_request(struct mr_rpc *agent, const struct mr_request *request)
{
    uint8_t op = request->message->preamble.op;

    if (op == MR_OP_RPC_STATUS) {
        if (agent->closing)
            mr_reply_status(agent->config.endpoint, request->ref, MR_SHUTTING_DOWN);
        else
            mr_agent_serve_status(agent, request);
        return true;
    }
    if ((op < MR_OP_RPC_JOIN || op > MR_OP_RPC_LAST) && op != MR_OP_RPC_PART)
        return false;
    if (atomic_load(&agent->held) || (agent->retiring && op == MR_OP_RPC_JOIN)) {
        mr_reply_busy(agent->config.endpoint, request->ref);
        return true;
    }
    if (op == MR_OP_RPC_JOIN) {
        mr_world_serve_join(agent, request);
        return true;
    }
    if (agent->closing || (agent->retiring && op == MR_OP_RPC_CALL)) {
        mr_reply_status(agent->config.endpoint, request->ref, MR_SHUTTING_DOWN);
        return true;
    }
    struct mr_member *from = mr_member_of_request(agent, request);

    if (from == NULL)
        refuse(agent, request);
    else if (comes_in_parts(request->message))
        mr_long_receive_request(agent, from, request);
    else
        mr_agent_dispatch(agent, from, request);
    return true;
}

uint64_t mr_agent_turn(struct mr_rpc *agent, uint64_t now_us)
{
    run_work(agent);
    if (agent->closing)
        return UINT64_MAX;
    mr_agent_give_jobs(agent);

    uint64_t next_us = mr_world_turn(agent, now_us);
    uint64_t deadline_us = mr_future_turn(agent, now_us);

    if (deadline_us < next_us)
        next_us = deadline_us;
    if (agent->references.turn != NULL) {
        uint64_t references_us = agent->references.turn(agent->references.self, now_us);

        next_us = references_us < next_us ? references_us : next_us;
    }
    uint64_t longs_us = mr_longs_turn(agent, now_us);

    next_us = longs_us < next_us ? longs_us : next_us;
    if (agent->unanswered != NULL) {
        mr_serving_retry(agent);
        if (agent->unanswered != NULL && now_us + RETRY_US < next_us)
            next_us = now_us + RETRY_US;
    }
    if (agent->hurry_us != 0 && agent->hurry_us <= now_us)
        agent->hurry_us = mr_executor_hurry(agent->executor) ? now_us + HURRY_US : 0;
    if (agent->hurry_us != 0 && agent->hurry_us < next_us)
        next_us = agent->hurry_us;
    /* What the timers did may have made more. */
    run_work(agent);
    mr_agent_give_jobs(agent);
    return next_us;
}

void mr_agent_set_op(struct mr_rpc *agent, uint8_t op, mr_agent_serve serve, void *self)
{
    assert((op > MR_OP_RPC_JOIN && op <= MR_OP_RPC_LAST) || op == MR_OP_RPC_PART);
    agent->served[op] = (struct mr_served_op){.serve = serve, .self = self};
}

struct mr_endpoint *mr_agent_endpoint(struct mr_rpc *agent)
{
    return agent->config.endpoint;
}

void mr_agent_set_references(struct mr_rpc *agent, const struct mr_agent_references *references)
{
    agent->references = *references;
}

void mr_agent_set_autograd(struct mr_rpc *agent, const struct mr_agent_autograd *autograd)
{
    agent->autograd = *autograd;
}

/* ---- any thread ---- */

void mr_agent_submit_quietly(struct mr_rpc *agent, struct mr_work *work)
{
    work->next = atomic_load_explicit(&agent->work, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&agent->work, &work->next, work))
        ;
}

void mr_agent_wake(struct mr_rpc *agent)
{
    if (atomic_load(&agent->over))
        run_late(agent);
    else if (mr_agent_has_work(agent))
        agent->config.driver.wake(agent->config.driver.self);
}

/* Held meanwhile: the work may be what held it last, and another thread may run it as soon as it is there. */
void mr_agent_submit(struct mr_rpc *agent, struct mr_work *work)
{
    mr_agent_hold(agent);
    mr_agent_submit_quietly(agent, work);
    mr_agent_wake(agent);
    mr_agent_put(agent);
}

bool mr_agent_has_work(const struct mr_rpc *agent)
{
    return atomic_load(&agent->work) != NULL;
}

uint32_t mr_agent_done(_Atomic uint32_t *done)
{
    uint32_t before = atomic_exchange(done, MR_DONE);

    if ((before & MR_DONE_SLEEPER) != 0)
        (void)syscall(SYS_futex, done, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    return before;
}

uint64_t mr_agent_now_us(const struct mr_rpc *agent)
{
    return mr_agent_now(agent);
}

void mr_agent_release(struct mr_rpc *agent)
{
    atomic_store(&agent->held, false);
}

struct mr_functions *mr_agent_functions(struct mr_rpc *agent)
{
    return &agent->functions;
}

struct mr_agent_driver *mr_agent_driver(struct mr_rpc *agent)
{
    return &agent->config.driver;
}

bool mr_agent_is_inherited(const struct mr_rpc *agent)
{
    const struct mr_agent_driver *driver = &agent->config.driver;

    return driver->is_inherited != NULL && driver->is_inherited(driver->self);
}

enum mr_status mr_agent_check_process(const struct mr_rpc *agent, const char *caller)
{
    if (!mr_agent_is_inherited(agent))
        return MR_OK;
    return mr_rpc_error(
        MR_FORKED, "%s: the worker is of the process from which this one was forked: a child is no worker",
        caller);
}

enum mr_status mr_rpc_register(struct mr_rpc *agent, const struct mr_rpc_function *function)
{
    char error[ERROR_BYTES];

    if (mr_agent_is_inherited(agent))
        return mr_agent_check_process(agent, "mr_rpc_register");
    enum mr_status status = mr_functions_add(&agent->functions, function, false, error, sizeof(error));

    return status == MR_OK ? MR_OK : mr_rpc_error(status, "mr_rpc_register: %s", error);
}
