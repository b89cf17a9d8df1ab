#include "ps/server/rpc_internal.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "ps/config/config_rules.h"
#include "ps/core/core.h"
#include "ps/ops/ops.h"

#define MIB               ((size_t)1 << 20)
#define SESSIONS_PER_PEER 12u /* to each worker, and from it while it is restarted */
#define SLEEP_MAX_US      1000000u

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
        struct timespec left = mr_span_us(left_us);
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
    sem_init(&rpc->ended, 0, 0);
    return rpc;
}

void ps_rpc_destroy(struct ps_rpc *rpc)
{
    if (rpc != NULL) {
        sem_destroy(&rpc->ended);
    }
    free(rpc);
}

void ps_rpc_dp_config(const struct ps_rpc *rpc, struct dp_config *out)
{
    memcpy(out->endpoint.client_uuid, rpc->uuid, sizeof(rpc->uuid));
    out->calling_memory_bytes = rpc->config->rpc_messages_mib * MIB;
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

#define COUNTER_NAME(name, help) #name,
static const char *const counter_names[] = {MR_AGENT_COUNTER_LIST(COUNTER_NAME)};
#undef COUNTER_NAME

enum mr_status ps_rpc_make_agent(struct ps_rpc *rpc, char *error, size_t error_bytes)
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
                                    .endpoint = dp_core_endpoint(rpc->core),
                                    .name = config->rpc_name,
                                    .rank = is_worker ? (uint32_t)config->rpc_rank : MR_RPC_NO_RANK,
                                    .world_size = (uint32_t)config->rpc_world_size,
                                    .incarnation = rpc->incarnation,
                                    .is_node = true,
                                    .is_rendezvous = true,
                                    .held = true,
                                    .timeout_ms = (uint32_t)config->rpc_timeout_ms,
                                    .dead_after_ms = (uint32_t)config->rpc_dead_after_ms,
                                    .executor_threads = (uint32_t)config->rpc_threads,
                                    .long_bytes_max = config->rpc_message_mib_max * MIB,
                                    .long_memory_bytes = config->rpc_long_memory_mib * MIB};
    memcpy(agent.uuid, rpc->uuid, sizeof(agent.uuid));
    if (ps_ipv4_port_parse(config->rpc_rendezvous, agent.rendezvous.ip + 12, &agent.rendezvous.port)) {
        agent.rendezvous.ip[10] = agent.rendezvous.ip[11] = 0xff;
        agent.is_rendezvous = false;
    }
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
    enum mr_status status = ps_rpc_make_agent(rpc, error, DP_ERROR_BYTES);
    if (status == MR_OK) {
        dp_core_add_counters(core, "rpc", counter_names, (const uint64_t *)&rpc->counters,
                             sizeof(counter_names) / sizeof(counter_names[0]));
    }
    return status;
}

void ps_rpc_poll(struct ps_rpc *rpc, uint64_t now)
{
    if (!rpc->stirred && now < rpc->next_us && !mr_agent_has_work(rpc->agent)) {
        return;
    }
    rpc->stirred = false;
    rpc->next_us = mr_agent_poll(rpc->agent, now);
    dp_core_due(rpc->core, rpc->next_us);
}

void ps_rpc_count(struct ps_rpc *rpc)
{
    if (rpc->closed) { /* its threads are going */
        return;
    }
    mr_agent_count(rpc->agent);
    rpc->counters = *mr_agent_counters(rpc->agent);
    if (rpc->end_reported) {
        return;
    }
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
    if (!mr_agent_on_request(rpc->agent, request)) {
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
    }
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
