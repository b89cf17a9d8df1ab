#include "ps/server/rpc_node.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/udp/address.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/base/random.h"
#include "ps/config/config_rules.h"
#include "ps/core/core.h"
#include "ps/ops/ops.h"
#include "ps/server/node_counters.h"
#include "ps/server/rpc_modules.h"

#define SESSIONS_PER_PEER 12u /* to each worker, and from it, also while it restarts */
#define SLEEP_MAX_US      1000000u
#define LOOK_US           1000u
#define LOG_AFTER_US      5000000u /* functions that still run after this time are logged */
#define GOODBYE_US        3000000u
#define DRAIN_US          1000000u /* for the last answers */
#define AGAIN_MS          1000u    /* after joining was refused */
#define ADDRESSES_MAX     16u      /* of the name where the workers meet */

struct ps_rpc {
    /* Set at creation and start. */
    const struct ps_config *config;
    struct mr_named_parameters *parameters;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t incarnation;
    cpu_set_t places; /* of threads that run functions */
    struct dp *dp;
    struct dp_core *core;

    /* Where the workers of the next world meet: set at start, then by the keeper. */
    bool meets_here;
    struct mr_address rendezvous[ADDRESSES_MAX]; /* those of its addresses that this node reaches */
    uint32_t rendezvous_count;

    /* Core 0's; `agent` may also be used by the thread that asked core 0 to make it. */
    struct mr_rpc *agent; /* one after the other, from start to stop */
    uint64_t next_us;     /* when the agent wants to be polled */
    bool stirred;         /* something arrived for it since the last poll */
    bool closed;          /* the agent has been closed */
    bool end_reported;    /* its world has ended, and the keeper knows */
    enum mr_agent_end end;
    char why[MR_RPC_ERROR_BYTES];      /* written before the keeper is notified */
    struct mr_agent_counters counters; /* of the current agent */

    /* Main's, and those of the keeper, the thread that makes the next agent when a world has ended. */
    struct ps_rpc_modules modules;
    pthread_t keeper;
    bool has_keeper;
    bool unstarted;                  /* the modules are loaded, and not started yet */
    char logged[MR_RPC_ERROR_BYTES]; /* why joining was refused last */
    sem_t ended;
    _Atomic bool stopping;
};

/* ---- the driver ---- */

static uint64_t now_us(void *self)
{
    return dp_now_us();
}

/* Core 0 is always inside. */
static bool enter(void *self)
{
    return false;
}

static void leave(void *self, bool more)
{
}

static void rpc_node_wake(void *self)
{
    dp_wake(((struct ps_rpc *)self)->dp, 0);
}

static bool wait_for(void *self, _Atomic uint32_t *done, uint64_t deadline_us)
{
    while ((atomic_load(done) & MR_DONE) == 0) {
        uint64_t now = dp_now_us();
        if (now >= deadline_us)
            return false;
        uint64_t left_us = deadline_us - now < SLEEP_MAX_US ? deadline_us - now : SLEEP_MAX_US;
        struct timespec left = mr_span_us(left_us);
        uint32_t seen = atomic_fetch_or(done, MR_DONE_SLEEPER) | MR_DONE_SLEEPER;
        if ((seen & MR_DONE) == 0)
            (void)syscall(SYS_futex, done, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
    }
    return true;
}

/* Core 0 makes some of the threads, which would otherwise stay on its CPU. */
static void thread_begins(void *self)
{
    const struct ps_rpc *rpc = self;
    (void)pthread_setname_np(pthread_self(), "mr-function");
    (void)pthread_setaffinity_np(pthread_self(), sizeof(rpc->places), &rpc->places);
}

static bool can_reach(void *self, const struct mr_address *to, char *why, size_t why_bytes)
{
    char line[DP_ERROR_BYTES], text[MR_ADDRESS_TEXT_BYTES];
    if (dp_can_reach(((struct ps_rpc *)self)->dp, to, line))
        return true;
    mr_address_text(to, text);
    (void)snprintf(why, why_bytes, "%s: %s", text, line);
    return false;
}

/* ---- main ---- */

/* Finds the CPUs for functions: those of this process except the data cores', if any are left. */
static void find_places(struct ps_rpc *rpc, const struct ps_node *node)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    (void)sched_getaffinity(0, sizeof(all), &all);
    rpc->places = all;
    for (uint32_t i = 0; i < node->cpu_count; i++)
        CPU_CLR((size_t)node->cpus[i], &rpc->places);
    if (CPU_COUNT(&rpc->places) == 0)
        rpc->places = all;
}

struct ps_rpc *ps_rpc_create(const struct ps_node *node)
{
    struct ps_rpc *rpc = calloc(1, sizeof(*rpc));
    if (rpc == NULL)
        return NULL;
    rpc->config = node->config;
    rpc->parameters = node->parameters;
    mr_random_fill(rpc->uuid, sizeof(rpc->uuid));
    find_places(rpc, node);
    sem_init(&rpc->ended, 0, 0);
    return rpc;
}

void ps_rpc_destroy(struct ps_rpc *rpc)
{
    if (rpc != NULL)
        sem_destroy(&rpc->ended);
    free(rpc);
}

void ps_rpc_dp_config(const struct ps_rpc *rpc, struct dp_config *out)
{
    memcpy(out->endpoint.client_uuid, rpc->uuid, sizeof(rpc->uuid));
    out->calling_memory_bytes = rpc->config->rpc_messages_mib * (size_t)MR_MIB;
    out->calling_sessions = (uint32_t)rpc->config->rpc_world_size * SESSIONS_PER_PEER;
}

static void on_reply(void *core_app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct ps_rpc *rpc = ((struct ps_core *)core_app)->rpc;
    rpc->stirred = true;
    mr_agent_on_reply(rpc->agent, call, user, status, reply);
}

static void on_session(void *core_app, struct mr_client_session *session, enum mr_client_session_event event)
{
    struct ps_rpc *rpc = ((struct ps_core *)core_app)->rpc;
    rpc->stirred = true;
    mr_agent_on_session(rpc->agent, session, event);
}

void ps_rpc_dp_app(struct dp_app *app)
{
    app->on_reply = on_reply;
    app->on_session = on_session;
}

/* ---- core 0 ---- */

/* Whether one of the addresses of the place where the workers meet is this node's, or else which of them it
 * has a way to: they are tried in turn. May wait for a name server. When it fails, what was found before
 * stays. */
static enum mr_status find_rendezvous(struct ps_rpc *rpc, char *error, size_t error_bytes)
{
    const struct ps_config *config = rpc->config;
    const char *text = config->rpc_rendezvous;
    struct mr_address all[ADDRESSES_MAX];
    char why[DP_ERROR_BYTES];
    uint32_t count = 0, ways = 0;
    bool meets_here = text[0] == '\0' || strcmp(text, config->cluster_address) == 0;
    enum mr_status status =
        meets_here ? MR_OK : mr_address_resolve_all(text, all, ADDRESSES_MAX, &count, why, sizeof(why));
    for (uint32_t i = 0; !meets_here && status == MR_OK && i < count; i++)
        meets_here = dp_is_own_address(rpc->dp, &all[i]);
    if (meets_here) {
        rpc->meets_here = true;
        return MR_OK;
    }
    for (uint32_t i = 0; status == MR_OK && i < count; i++)
        if (dp_can_reach(rpc->dp, &all[i], why))
            all[ways++] = all[i];
    if (status != MR_OK || ways == 0) {
        (void)snprintf(error, error_bytes, "rpc.rendezvous = %s: %.300s", text, why);
        return MR_INVALID_ARGUMENT;
    }
    rpc->meets_here = false;
    memcpy(rpc->rendezvous, all, ways * sizeof(all[0]));
    rpc->rendezvous_count = ways;
    return MR_OK;
}

/* Makes a new agent, which is held; when that fails the old one stays. */
static enum mr_status make_agent(struct ps_rpc *rpc, char *error, size_t error_bytes)
{
    const struct ps_config *config = rpc->config;
    bool is_worker = config->rpc_name[0] != '\0';
    struct mr_agent_config agent = {.driver = {.self = rpc,
                                               .now_us = now_us,
                                               .enter = enter,
                                               .leave = leave,
                                               .wake = rpc_node_wake,
                                               .wait = wait_for,
                                               .thread_begins = thread_begins,
                                               .can_reach = can_reach},
                                    .endpoint = dp_core_endpoint(rpc->core),
                                    .name = config->rpc_name,
                                    .rank = is_worker ? (uint32_t)config->rpc_rank : MR_RPC_NO_RANK,
                                    .world_size = (uint32_t)config->rpc_world_size,
                                    .incarnation = rpc->incarnation,
                                    .is_node = true,
                                    .is_rendezvous = rpc->meets_here,
                                    .rendezvous_count = rpc->meets_here ? 1 : rpc->rendezvous_count,
                                    .rendezvous_text = config->rpc_rendezvous,
                                    .held = true,
                                    .parameters = rpc->parameters,
                                    .timeout_ms = (uint32_t)config->rpc_timeout_ms,
                                    .dead_after_ms = (uint32_t)config->rpc_dead_after_ms,
                                    .executor_threads = (uint32_t)config->rpc_threads,
                                    .long_bytes_max = config->rpc_message_mib_max * (size_t)MR_MIB,
                                    .long_memory_bytes = config->rpc_long_memory_mib * (size_t)MR_MIB};
    memcpy(agent.uuid, rpc->uuid, sizeof(agent.uuid));
    memcpy(agent.rendezvous, rpc->rendezvous, sizeof(rpc->rendezvous));
    dp_own_addresses(rpc->dp, agent.own);
    struct mr_rpc *made;
    enum mr_status status = mr_agent_create(&agent, &made, error, error_bytes);
    if (status == MR_OK) {
        rpc->agent = made;
        rpc->next_us = 0;
        rpc->closed = rpc->end_reported = false;
    }
    return status;
}

enum mr_status ps_rpc_start(struct ps_rpc *rpc, struct dp *dp, struct dp_core *core, uint32_t incarnation,
                            char error[DP_ERROR_BYTES])
{
    rpc->dp = dp;
    rpc->core = core;
    rpc->incarnation = incarnation;
    enum mr_status status = find_rendezvous(rpc, error, DP_ERROR_BYTES);
    if (status == MR_OK)
        status = make_agent(rpc, error, DP_ERROR_BYTES);
    if (status == MR_OK)
        dp_core_add_counters(core, &ps_rpc_counter_set, (const uint64_t *)&rpc->counters);
    return status;
}

uint64_t ps_rpc_poll(struct ps_rpc *rpc, uint64_t now)
{
    if (!rpc->stirred && now < rpc->next_us && !mr_agent_has_work(rpc->agent))
        return rpc->next_us;
    rpc->stirred = false;
    rpc->next_us = mr_agent_poll(rpc->agent, now);
    return rpc->next_us;
}

void ps_rpc_count(struct ps_rpc *rpc)
{
    if (rpc->closed) /* its threads are ending */
        return;
    mr_agent_count(rpc->agent);
    rpc->counters = *mr_agent_counters(rpc->agent);
    if (rpc->end_reported)
        return;
    rpc->end = mr_agent_end(rpc->agent, rpc->why, sizeof(rpc->why));
    if (rpc->end != MR_AGENT_GOES_ON) {
        rpc->end_reported = true;
        sem_post(&rpc->ended);
    }
}

void ps_op_rpc(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    const struct ps_core *core = core_app;
    struct ps_rpc *rpc = core->rpc;
    if (rpc == NULL) {
        mr_reply_error(
            ep, request->ref, MR_UNKNOWN_OP, "%s",
            core->index != 0
                ? "remote calls go to core 0 of a node: its first port"
                : "this node takes no part in remote calls: set rpc.world_size in its configuration");
        return;
    }
    rpc->stirred = true;
    if (!mr_agent_on_request(rpc->agent, request))
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
}

void ps_rpc_stop(struct ps_rpc *rpc)
{
    if (!rpc->closed) { /* another core did not start */
        mr_agent_close(rpc->agent);
        mr_agent_join(rpc->agent);
    }
    mr_agent_destroy(rpc->agent, NULL);
    rpc->agent = NULL;
}

/* ---- core 0 is asked ---- */

struct order {
    struct dp_task task;
    struct ps_rpc *rpc;
    uint32_t (*run)(struct ps_rpc *rpc);
    uint32_t answer;
    sem_t done;
};

static void run_order(struct dp_task *task, void *core_app, struct dp_core *core)
{
    struct order *order = (struct order *)task;
    order->rpc->stirred = true;
    order->answer = order->run(order->rpc);
    sem_post(&order->done);
}

static void sleep_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

static uint32_t rpc_node_ask(struct ps_rpc *rpc, uint32_t (*run)(struct ps_rpc *rpc))
{
    struct order order = {.task.run = run_order, .rpc = rpc, .run = run};
    sem_init(&order.done, 0, 0);
    while (!dp_post(rpc->dp, 0, &order.task))
        sleep_us(LOOK_US);
    while (sem_wait(&order.done) != 0) {
    }
    sem_destroy(&order.done);
    return order.answer;
}

static uint32_t release(struct ps_rpc *rpc)
{
    mr_agent_release(rpc->agent);
    return 0;
}

static uint32_t retire(struct ps_rpc *rpc)
{
    mr_agent_retire(rpc->agent);
    return 0;
}

static uint32_t unfinished(struct ps_rpc *rpc)
{
    return mr_agent_unfinished(rpc->agent);
}

static uint32_t goodbye(struct ps_rpc *rpc)
{
    return mr_agent_say_goodbye(rpc->agent);
}

static uint32_t close_agent(struct ps_rpc *rpc)
{
    mr_agent_close(rpc->agent);
    rpc->closed = true;
    return 0;
}

/* Replaces an agent that has been joined by the next one. */
static uint32_t replace(struct ps_rpc *rpc)
{
    char error[256];
    struct mr_rpc *old = rpc->agent;
    if (make_agent(rpc, error, sizeof(error)) != MR_OK) {
        mr_log_error("rpc_ended", "remote calls end here: %s; restart the node", error);
        return 0;
    }
    mr_agent_destroy(old, NULL);
    return 1;
}

/* Returns whether segments wait to be sent. */
static uint32_t unsent(struct ps_rpc *rpc)
{
    uint64_t now = dp_now_us();
    return mr_endpoint_poll(dp_core_endpoint(rpc->core), now, 0) <= now;
}

/* Asks until the answer is 0, or for `limit_us`. */
static void ask_until_none(struct ps_rpc *rpc, uint32_t (*run)(struct ps_rpc *rpc), uint64_t limit_us)
{
    uint64_t until_us = dp_now_us() + limit_us;
    while (rpc_node_ask(rpc, run) != 0 && dp_now_us() < until_us)
        sleep_us(LOOK_US);
}

/* False: the node is being stopped in the meantime. */
static bool wait_for_functions(struct ps_rpc *rpc, bool stops)
{
    uint64_t log_us = dp_now_us() + LOG_AFTER_US;
    for (uint32_t left = rpc_node_ask(rpc, unfinished); left > 0; left = rpc_node_ask(rpc, unfinished)) {
        if (!stops && atomic_load(&rpc->stopping))
            return false;
        if (dp_now_us() >= log_us) {
            mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"functions", .number = left}),
                        "rpc_waits_for_functions", "%s: waiting for %u function%s of modules to end",
                        stops ? "stopping" : "the world is over", left, mr_plural(left));
            log_us = UINT64_MAX;
        }
        sleep_us(LOOK_US);
    }
    return true;
}

/* ---- from world to world ---- */

enum mr_status ps_rpc_load(struct ps_rpc *rpc, char *error, size_t error_bytes)
{
    enum mr_status status = ps_rpc_modules_load(rpc->config, &rpc->modules, error, error_bytes);
    if (status != MR_OK)
        rpc->modules.count = 0; /* there is nothing to be ended */
    else
        rpc->unstarted = true;
    return status;
}

enum mr_status ps_rpc_start_modules(struct ps_rpc *rpc, char *error, size_t error_bytes)
{
    enum mr_status status = ps_rpc_modules_start(&rpc->modules, rpc->agent, error, error_bytes);
    rpc->unstarted = false;
    if (status != MR_OK)
        rpc->modules.count = 0; /* there is nothing to be ended */
    return status;
}

static void log_end(struct ps_rpc *rpc)
{
    static const char *const what[] = {
        [MR_AGENT_OVER] = "the world is over: all others have left or died",
        [MR_AGENT_FENCED] = "the world is over, or the other workers have taken this node for dead",
        [MR_AGENT_REFUSED] = "joining was refused"};
    bool has_why = rpc->end == MR_AGENT_REFUSED;
    if (has_why && strcmp(rpc->logged, rpc->why) == 0)
        return; /* once, and not with each try */
    (void)snprintf(rpc->logged, sizeof(rpc->logged), "%s", has_why ? rpc->why : "");
    mr_log_info("rpc_world_ended", "remote calls: %s%s%s; %s", what[rpc->end], has_why ? ": " : "",
                has_why ? rpc->why : "", rpc->meets_here ? "the next may meet here" : "joining again");
}

/* Ends what is left of a world, and begins the next. */
static void renew(struct ps_rpc *rpc)
{
    char error[512];
    bool again = rpc->end == MR_AGENT_REFUSED;
    log_end(rpc);
    (void)rpc_node_ask(rpc, retire);
    if (!wait_for_functions(rpc, false))
        return;
    for (uint32_t ms = 0; again && ms < AGAIN_MS && !atomic_load(&rpc->stopping); ms++)
        sleep_us(1000);
    ps_rpc_modules_exit(&rpc->modules, rpc->agent);
    (void)rpc_node_ask(rpc, close_agent);
    mr_agent_join(rpc->agent);
    if (find_rendezvous(rpc, error, sizeof(error)) != MR_OK)
        mr_log_warning("rpc_no_rendezvous", "%s; joining where it was", error);
    if (rpc_node_ask(rpc, replace) == 0)
        return;
    if (ps_rpc_modules_start(&rpc->modules, rpc->agent, error, sizeof(error)) != MR_OK) {
        rpc->modules.count = 0;
        mr_log_error("rpc_no_modules", "nobody can join: %s; restart the node", error);
        return;
    }
    (void)rpc_node_ask(rpc, release);
}

static void *rpc_node_keep(void *arg)
{
    struct ps_rpc *rpc = arg;
    (void)pthread_setname_np(pthread_self(), "mr-worlds");
    for (;;) {
        while (sem_wait(&rpc->ended) != 0) {
        }
        if (atomic_load(&rpc->stopping))
            return NULL;
        renew(rpc);
    }
}

bool ps_rpc_open(struct ps_rpc *rpc)
{
    rpc->has_keeper = pthread_create(&rpc->keeper, NULL, rpc_node_keep, rpc) == 0;
    if (rpc->has_keeper)
        (void)rpc_node_ask(rpc, release);
    return rpc->has_keeper;
}

void ps_rpc_close(struct ps_rpc *rpc)
{
    if (rpc->has_keeper) {
        atomic_store(&rpc->stopping, true);
        sem_post(&rpc->ended);
        pthread_join(rpc->keeper, NULL);
    }
    if (rpc->closed) /* there was no memory for the next one */
        return;
    (void)rpc_node_ask(rpc, retire);
    (void)wait_for_functions(rpc, true);
    if (!rpc->unstarted)
        ps_rpc_modules_exit(&rpc->modules, rpc->agent);
    (void)wait_for_functions(rpc, true); /* of the modules' last calls */
    ask_until_none(rpc, unsent, DRAIN_US);
    ask_until_none(rpc, goodbye, GOODBYE_US);
    (void)rpc_node_ask(rpc, close_agent);
    mr_agent_join(rpc->agent);
}
