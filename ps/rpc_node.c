#include "ps/rpc_node.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "ps/config_rules.h"
#include "ps/core.h"
#include "ps/log.h"
#include "ps/rpc_modules.h"

#define MIB               ((size_t)1 << 20)
#define SESSIONS_PER_PEER 4u /* to each worker, and from it while it is restarted */
#define SLEEP_MAX_US      1000000u
#define CLOSE_LOOK_US     1000u
#define CLOSE_TELL_US     5000000u /* functions that run so long after a stop are said */
#define FAREWELL_US       3000000u
#define DRAIN_US          1000000u /* for the last answers */

struct ps_rpc {
    const struct ps_config *config;
    uint8_t uuid[MR_UUID_BYTES];
    cpu_set_t places; /* of threads that run functions */
    struct dp *dp;
    struct dp_core *core;
    struct mr_rpc *agent; /* from start to stop */
    struct ps_rpc_modules modules;
    uint64_t next_us; /* when the agent wants its turn */
    bool stirred;     /* something came for it since its last one */
    bool closed;
};

/* ---- the driver ---- */

static uint64_t now_us(void *self)
{
    (void)self;
    return dp_now_us();
}

/* Core 0 is always inside. */
static bool enter(void *self)
{
    (void)self;
    return false;
}

static void leave(void *self, bool more)
{
    (void)self;
    (void)more;
}

static void wake(void *self)
{
    dp_wake(((struct ps_rpc *)self)->dp, 0);
}

static bool wait_for(void *self, _Atomic uint32_t *done, uint64_t deadline_us)
{
    (void)self;
    while ((atomic_load(done) & MR_DONE) == 0) {
        uint64_t now = dp_now_us();
        if (now >= deadline_us) {
            return false;
        }
        uint64_t left_us = deadline_us - now < SLEEP_MAX_US ? deadline_us - now : SLEEP_MAX_US;
        struct timespec left = {.tv_sec = (time_t)(left_us / 1000000),
                                .tv_nsec = (long)(left_us % 1000000) * 1000};
        uint32_t seen = atomic_fetch_or(done, MR_DONE_SLEEPER) | MR_DONE_SLEEPER;
        if ((seen & MR_DONE) == 0) {
            (void)syscall(SYS_futex, done, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
        }
    }
    return true;
}

/* Some threads are made by core 0, and would stay with it. */
static void thread_begins(void *self)
{
    const struct ps_rpc *rpc = self;
    (void)pthread_setname_np(pthread_self(), "mr-function");
    (void)pthread_setaffinity_np(pthread_self(), sizeof(rpc->places), &rpc->places);
}

/* ---- main ---- */

/* Where this process may run, without the data cores' CPUs as far as there are others. */
static void find_places(struct ps_rpc *rpc)
{
    int cpus[DP_CORES_MAX];
    int cpu_count = ps_cpus_parse(rpc->config->cores_cpus, cpus, DP_CORES_MAX);
    cpu_set_t all;
    CPU_ZERO(&all);
    (void)sched_getaffinity(0, sizeof(all), &all);
    rpc->places = all;
    for (int i = 0; i < cpu_count && i < (int)rpc->config->cores_count; i++) {
        CPU_CLR((size_t)cpus[i], &rpc->places);
    }
    if (CPU_COUNT(&rpc->places) == 0) {
        rpc->places = all;
    }
}

struct ps_rpc *ps_rpc_create(const struct ps_config *config)
{
    struct ps_rpc *rpc = calloc(1, sizeof(*rpc));
    if (rpc == NULL) {
        return NULL;
    }
    rpc->config = config;
    while (getrandom(rpc->uuid, sizeof(rpc->uuid), 0) != (ssize_t)sizeof(rpc->uuid)) {
    }
    find_places(rpc);
    return rpc;
}

void ps_rpc_destroy(struct ps_rpc *rpc)
{
    free(rpc);
}

void ps_rpc_dp_config(const struct ps_rpc *rpc, struct dp_config *out)
{
    memcpy(out->endpoint.client_uuid, rpc->uuid, sizeof(rpc->uuid));
    out->calling_memory_bytes = rpc->config->rpc_messages_mib * MIB;
    out->calling_sessions = (uint32_t)rpc->config->rpc_world_size * SESSIONS_PER_PEER;
}

static struct ps_rpc *of_core(void *core_app)
{
    return ((struct ps_core *)core_app)->rpc;
}

static void on_reply(void *core_app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    ps_rpc_reply(of_core(core_app), call, user, status, reply);
}

static void on_session(void *core_app, struct mr_session *session, enum mr_session_event event)
{
    ps_rpc_session(of_core(core_app), session, event);
}

void ps_rpc_dp_app(struct dp_app *app)
{
    app->on_reply = on_reply;
    app->on_session = on_session;
}

enum mr_status ps_rpc_load_modules(struct ps_rpc *rpc, char error[DP_ERROR_BYTES])
{
    return ps_rpc_modules_load(rpc->config, rpc->agent, &rpc->modules, error, DP_ERROR_BYTES);
}

/* ---- main asks core 0 ---- */

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
    (void)core_app;
    (void)core;
    order->rpc->stirred = true;
    order->answer = order->run(order->rpc);
    sem_post(&order->done);
}

static void sleep_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

static uint32_t ask(struct ps_rpc *rpc, uint32_t (*run)(struct ps_rpc *rpc))
{
    struct order order = {.task.run = run_order, .rpc = rpc, .run = run};
    sem_init(&order.done, 0, 0);
    while (!dp_post(rpc->dp, 0, &order.task)) {
        sleep_us(CLOSE_LOOK_US);
    }
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

void ps_rpc_open(struct ps_rpc *rpc)
{
    (void)ask(rpc, release);
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

static uint32_t farewell(struct ps_rpc *rpc)
{
    return mr_agent_say_farewell(rpc->agent);
}

static uint32_t close_agent(struct ps_rpc *rpc)
{
    mr_agent_close(rpc->agent);
    return 0;
}

/* Segments that wait for their turn. */
static uint32_t unsent(struct ps_rpc *rpc)
{
    uint64_t now = dp_now_us();
    return mr_endpoint_poll(dp_core_endpoint(rpc->core), now, 0) <= now;
}

/* Asks until the answer is 0, or for `limit_us`. */
static void ask_until_none(struct ps_rpc *rpc, uint32_t (*run)(struct ps_rpc *rpc), uint64_t limit_us)
{
    uint64_t until_us = dp_now_us() + limit_us;
    while (ask(rpc, run) != 0 && dp_now_us() < until_us) {
        sleep_us(CLOSE_LOOK_US);
    }
}

static void wait_for_functions(struct ps_rpc *rpc)
{
    uint64_t tell_us = dp_now_us() + CLOSE_TELL_US;
    for (uint32_t left = ask(rpc, unfinished); left > 0; left = ask(rpc, unfinished)) {
        if (dp_now_us() >= tell_us) {
            ps_log("stopping: %u functions of modules still run; waiting for them to end", left);
            tell_us = UINT64_MAX;
        }
        sleep_us(CLOSE_LOOK_US);
    }
}

void ps_rpc_close(struct ps_rpc *rpc)
{
    (void)ask(rpc, retire);
    wait_for_functions(rpc);
    ps_rpc_modules_exit(&rpc->modules, rpc->agent);
    wait_for_functions(rpc); /* of the modules' last calls */
    ask_until_none(rpc, unsent, DRAIN_US);
    ask_until_none(rpc, farewell, FAREWELL_US);
    (void)ask(rpc, close_agent);
    mr_agent_join(rpc->agent);
    rpc->closed = true;
}

/* ---- core 0 ---- */

#define COUNTER_NAME(name, help) #name,
static const char *const counter_names[] = {MR_AGENT_COUNTER_LIST(COUNTER_NAME)};
#undef COUNTER_NAME

enum mr_status ps_rpc_start(struct ps_rpc *rpc, struct dp *dp, struct dp_core *core, uint32_t incarnation,
                            char error[DP_ERROR_BYTES])
{
    const struct ps_config *config = rpc->config;
    bool is_worker = config->rpc_name[0] != '\0';
    struct mr_agent_config agent = {.driver = {.self = rpc,
                                               .now_us = now_us,
                                               .enter = enter,
                                               .leave = leave,
                                               .wake = wake,
                                               .wait = wait_for,
                                               .thread_begins = thread_begins},
                                    .endpoint = dp_core_endpoint(core),
                                    .name = config->rpc_name,
                                    .rank = is_worker ? (uint32_t)config->rpc_rank : MR_RPC_NO_RANK,
                                    .world_size = (uint32_t)config->rpc_world_size,
                                    .incarnation = incarnation,
                                    .is_node = true,
                                    .is_rendezvous = true,
                                    .held = true,
                                    .timeout_ms = (uint32_t)config->rpc_timeout_ms,
                                    .dead_after_ms = (uint32_t)config->rpc_dead_after_ms,
                                    .executor_threads = (uint32_t)config->rpc_threads};
    memcpy(agent.uuid, rpc->uuid, sizeof(agent.uuid));
    if (ps_ipv4_port_parse(config->rpc_rendezvous, agent.rendezvous.ip + 12, &agent.rendezvous.port)) {
        agent.rendezvous.ip[10] = agent.rendezvous.ip[11] = 0xff;
        agent.is_rendezvous = false;
    }
    rpc->dp = dp;
    rpc->core = core;
    enum mr_status status = mr_agent_create(&agent, &rpc->agent, error, DP_ERROR_BYTES);
    if (status == MR_OK) {
        dp_core_add_counters(core, "rpc", counter_names, (const uint64_t *)mr_agent_counters(rpc->agent),
                             sizeof(counter_names) / sizeof(counter_names[0]));
    }
    return status;
}

void ps_rpc_turn(struct ps_rpc *rpc, uint64_t now)
{
    if (!rpc->stirred && now < rpc->next_us && !mr_agent_has_work(rpc->agent)) {
        return;
    }
    rpc->stirred = false;
    rpc->next_us = mr_agent_turn(rpc->agent, now);
    dp_core_due(rpc->core, rpc->next_us);
}

void ps_rpc_count(struct ps_rpc *rpc)
{
    mr_agent_count(rpc->agent);
}

void ps_rpc_request(struct ps_rpc *rpc, struct mr_endpoint *ep, const struct mr_request *request)
{
    rpc->stirred = true;
    if (!mr_agent_on_request(rpc->agent, request)) {
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
    }
}

void ps_rpc_reply(struct ps_rpc *rpc, struct mr_call *call, void *user, enum mr_status status,
                  const struct mr_message *reply)
{
    rpc->stirred = true;
    mr_agent_on_reply(rpc->agent, call, user, status, reply);
}

void ps_rpc_session(struct ps_rpc *rpc, struct mr_session *session, enum mr_session_event event)
{
    rpc->stirred = true;
    mr_agent_on_session(rpc->agent, session, event);
}

void ps_rpc_stop(struct ps_rpc *rpc)
{
    if (!rpc->closed) { /* another core did not start */
        mr_agent_close(rpc->agent);
        mr_agent_join(rpc->agent);
    }
    mr_agent_destroy(rpc->agent);
    rpc->agent = NULL;
}
