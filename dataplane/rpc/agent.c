#include "dataplane/rpc/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/backward.h"
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/call.h"
#include "dataplane/rpc/call/serving.h"
#include "dataplane/rpc/dist_optimizer/dist_optimizer.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/wire/base/fence.h"
#include "dataplane/wire/base/plural.h"

#define POOL_BLOCKS_MAX 1024u
#define RETRY_US        1000u

/* ---- who serves what ---- */

/* The ops that members send to each other. JOIN and RPC_STATUS also come from others. */
static const mr_agent_serve served[MR_OP_COUNT] = {
    [MR_OP_RPC_CALL] = mr_serving_request,          [MR_OP_RPC_CANCEL] = mr_serving_cancel,
    [MR_OP_RPC_REFERENCE] = mr_outbox_serve,        [MR_OP_RPC_FETCH] = mr_fetch_serve,
    [MR_OP_RPC_CONTEXT_END] = mr_context_end_serve, [MR_OP_RPC_BACKWARD] = mr_backward_serve,
    [MR_OP_RPC_PART] = mr_long_serve_part,          [MR_OP_RPC_ALIVE] = mr_world_serve_alive,
    [MR_OP_RPC_LEAVE] = mr_world_serve_leave,
};

/* Called in this order. */
static const mr_agent_died died[] = {mr_longs_died,    mr_rrefs_died, mr_backward_died,
                                     mr_contexts_died, mr_leave_died, NULL};

static void refuse(struct mr_rpc *agent, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint64_t rank = request->message->preamble.step;
    uint8_t op = request->message->preamble.op;
    /* Only members of an earlier world ask these of a rendezvous that waits for others. */
    bool is_late = agent->config.is_rendezvous && (op == MR_OP_RPC_ALIVE || op == MR_OP_RPC_LEAVE);
    if (!atomic_load(&agent->complete) && !is_late)
        mr_reply_busy(ep, request->ref); /* this worker does not know yet that all have joined */
    else if (rank < agent->config.world_size && atomic_load(&agent->members[rank].dead))
        mr_reply_error(ep, request->ref, MR_WORKER_DIED,
                       "worker \"%s\" (rank %u) was taken for dead: nothing was heard of it for %u ms",
                       agent->members[rank].name, (uint32_t)rank, agent->config.dead_after_ms);
    else
        mr_reply_error(ep, request->ref, MR_UNKNOWN_WORKER, "the caller is not of this world of %u worker%s",
                       agent->config.world_size, mr_plural(agent->config.world_size));
}

/* A node that is only the rendezvous has no functions and no values. */
static bool is_served(const struct mr_rpc *agent, uint8_t op)
{
    return agent->served[op] != NULL &&
           (agent->config.rank != MR_RPC_NO_RANK || op == MR_OP_RPC_ALIVE || op == MR_OP_RPC_LEAVE);
}

static bool comes_in_parts(const struct mr_message *message)
{
    uint8_t op = message->preamble.op;
    return (op == MR_OP_RPC_CALL || op == MR_OP_RPC_BACKWARD) && mr_long_is_note(message);
}

static void serve_member(struct mr_rpc *agent, const struct mr_request *request)
{
    uint8_t op = request->message->preamble.op;
    struct mr_member *from = mr_member_of_request(agent, request);
    if (from == NULL)
        refuse(agent, request);
    else if (!is_served(agent, op))
        mr_reply_status(agent->config.endpoint, request->ref, MR_UNKNOWN_OP);
    else if (comes_in_parts(request->message))
        mr_long_receive_request(agent, from, request);
    else
        agent->served[op](agent, from, request);
}

bool mr_agent_on_request(struct mr_rpc *agent, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint8_t op = request->message->preamble.op;
    if ((op < MR_OP_RPC_JOIN || op > MR_OP_RPC_LAST) && op != MR_OP_RPC_PART && op != MR_OP_RPC_STATUS)
        return false;
    if (op == MR_OP_RPC_STATUS && !agent->closing)
        mr_agent_serve_status(agent, request);
    else if (op != MR_OP_RPC_STATUS &&
             (atomic_load(&agent->held) || (agent->retiring && op == MR_OP_RPC_JOIN)))
        mr_reply_busy(ep, request->ref);
    else if (op == MR_OP_RPC_JOIN)
        mr_world_serve_join(agent, request);
    else if (agent->closing || (agent->retiring && op == MR_OP_RPC_CALL))
        mr_reply_status(ep, request->ref, MR_SHUTTING_DOWN);
    else
        serve_member(agent, request);
    return true;
}

/* ---- made ---- */

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
        wrong = "world_size must be 1 to 1024";
    else if (name_bytes >= MR_RPC_NAME_BYTES)
        wrong = "a worker's name has at most 63 bytes";
    else if (name_bytes == 0 && config->rank != MR_RPC_NO_RANK)
        wrong = "a worker needs a name";
    else if (config->rank != MR_RPC_NO_RANK && config->rank >= config->world_size)
        wrong = "the rank must be 0 to world_size - 1";
    else if (!config->is_rendezvous &&
             (config->rendezvous_count == 0 || config->rendezvous_count > MR_RPC_RENDEZVOUS_MAX))
        wrong = "1 to 16 places where the workers may meet";
    else if (config->rank == MR_RPC_NO_RANK && !config->is_rendezvous)
        wrong = "a process that is neither a worker nor the rendezvous has nothing to do";
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
    agent->parameters = agent->config.parameters != NULL ? agent->config.parameters : mr_named_create();
    if (agent->parameters == NULL)
        return MR_NO_MEMORY;
    agent->stepping = mr_named_lock(agent->parameters);
    if (status == MR_OK)
        status = mr_contexts_create(agent, &agent->contexts);
    if (status == MR_OK)
        status = mr_executor_create(&executor, &agent->executor);
    if (status == MR_OK && agent->config.rank != MR_RPC_NO_RANK)
        status = mr_rrefs_create(agent, &agent->rrefs);
    if (status == MR_OK)
        status = mr_gradients_register(&agent->functions);
    if (status == MR_OK)
        status = mr_dist_optimizer_register(agent);
    return status;
}

static void agent_free(struct mr_rpc *agent)
{
    void (*freed)(void *driver) = agent->freed;
    void *driver = agent->config.driver.self;
    mr_agent_run_work(agent); /* ends of contexts, which nobody is notified of any more */
    mr_contexts_free(agent->contexts);
    mr_rrefs_free(agent->rrefs);
    mr_executor_destroy(agent->executor);
    mr_world_fini(agent);
    mr_pool_fini(&agent->executing);
    mr_pool_fini(&agent->results);
    mr_pool_fini(&agent->futures);
    mr_functions_fini(&agent->functions);
    if (agent->config.parameters == NULL)
        mr_named_destroy(agent->parameters);
    pthread_mutex_destroy(&agent->late);
    free(agent);
    if (freed != NULL)
        freed(driver);
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
    snprintf(agent->rendezvous_text, sizeof(agent->rendezvous_text), "%s",
             config->rendezvous_text == NULL ? "elsewhere" : config->rendezvous_text);
    agent->config.rendezvous_text = agent->rendezvous_text;
    agent->served = served;
    agent->died = died;
    agent->free = agent_free;
    atomic_store(&agent->held, config->held);
    mr_functions_init(&agent->functions);
    pthread_mutex_init(&agent->late, NULL);
    atomic_store(&agent->holds, 1);
    mr_pool_init(&agent->futures, sizeof(struct mr_rpc_future), POOL_BLOCKS_MAX);
    mr_pool_init(&agent->results, sizeof(struct mr_rpc_result), POOL_BLOCKS_MAX);
    mr_pool_init(&agent->executing, sizeof(struct mr_rpc_call), POOL_BLOCKS_MAX);
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

void mr_agent_release(struct mr_rpc *agent)
{
    atomic_store(&agent->held, false);
}

enum mr_status mr_rpc_register(struct mr_rpc *agent, const struct mr_rpc_function *function)
{
    char error[MR_RPC_ERROR_BYTES];
    if (mr_agent_is_inherited(agent))
        return mr_agent_check_process(agent, "mr_rpc_register");
    enum mr_status status = mr_functions_add(&agent->functions, function, false, error, sizeof(error));

    return status == MR_OK ? MR_OK : mr_rpc_error(status, "mr_rpc_register: %s", error);
}

struct mr_functions *mr_agent_functions(struct mr_rpc *agent)
{
    return &agent->functions;
}

struct mr_agent_driver *mr_agent_driver(struct mr_rpc *agent)
{
    return &agent->config.driver;
}

/* ---- polled by the driver ---- */

static uint64_t sooner(uint64_t a_us, uint64_t b_us)
{
    return a_us < b_us ? a_us : b_us;
}

/* Tries the answers again for which there was no memory. */
static uint64_t retry_answers(struct mr_rpc *agent, uint64_t now_us)
{
    mr_serving_retry(agent);
    mr_fetch_retry(agent);
    return agent->unanswered == NULL && agent->unanswered_fetches == NULL ? UINT64_MAX : now_us + RETRY_US;
}

uint64_t mr_agent_poll(struct mr_rpc *agent, uint64_t now_us)
{
    mr_agent_run_work(agent);
    if (agent->closing)
        return UINT64_MAX;
    mr_agent_give_jobs(agent);

    uint64_t next_us = mr_world_tick(agent, now_us);

    next_us = sooner(next_us, mr_rpc_future_tick(agent, now_us));
    next_us = sooner(next_us, mr_rrefs_tick(agent->rrefs, now_us));
    next_us = sooner(next_us, mr_longs_tick(agent, now_us));
    next_us = sooner(next_us, retry_answers(agent, now_us));
    next_us = sooner(next_us, mr_agent_nudge_jobs(agent, now_us));
    /* The timers may have submitted more. */
    mr_agent_run_work(agent);
    mr_agent_give_jobs(agent);
    return next_us;
}

/* ---- its end ---- */

void mr_agent_close(struct mr_rpc *agent)
{
    agent->closing = true;
    atomic_store(&agent->left, true);
    MR_MEMBER_EACH(m, agent)
        mr_member_close(agent, m);
    mr_member_close(agent, &agent->rendezvous);
    mr_longs_close(agent);
    mr_rrefs_close(agent->rrefs);
    mr_agent_give_jobs(agent);
}

void mr_agent_join(struct mr_rpc *agent)
{
    /* The executor stays: the thread inside may still give it jobs. */
    if (agent->executor != NULL)
        mr_executor_stop(agent->executor);
}

void mr_agent_destroy(struct mr_rpc *agent, void (*gone)(void *driver))
{
    if (agent == NULL)
        return;
    mr_rrefs_release_named(agent->rrefs);
    pthread_mutex_lock(&agent->late);
    atomic_store(&agent->over, true);
    mr_agent_run_work(agent);
    mr_serving_drop_all(agent);
    mr_contexts_end(agent->contexts);
    mr_agent_run_work(agent);
    mr_fetch_drop_all(agent);
    mr_rrefs_end(agent->rrefs);
    mr_agent_run_work(agent);
    agent->freed = gone;
    pthread_mutex_unlock(&agent->late);
    mr_fence();
    mr_agent_run_late(agent);
    mr_agent_put(agent);
}
