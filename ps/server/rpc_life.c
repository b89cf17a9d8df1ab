/* A node's worker from world to world: its modules are started, others are let in, and when all of them have
 * gone, or the node is stopped, all of it ends. On main's thread and the keeper's, which ask core 0. */
#include <stdio.h>
#include <time.h>
#include "dataplane/wire/base/plural.h"
#include "ps/base/log.h"
#include "ps/server/rpc_internal.h"

#define LOOK_US      1000u
#define LOG_AFTER_US 5000000u /* functions that run so long after an end are said */
#define GOODBYE_US   3000000u
#define DRAIN_US     1000000u /* for the last answers */
#define AGAIN_MS     1000u    /* after joining was refused */

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
        sleep_us(LOOK_US);
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

/* The agent has been joined: the next one takes its place. */
static uint32_t replace(struct ps_rpc *rpc)
{
    char error[256];
    struct mr_rpc *old = rpc->agent;
    if (ps_rpc_make_agent(rpc, error, sizeof(error)) != MR_OK) {
        ps_log("remote calls end here: %s; restart the node", error);
        return 0;
    }
    mr_agent_destroy(old, NULL);
    return 1;
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
        sleep_us(LOOK_US);
    }
}

/* False: the node is to stop meanwhile. */
static bool wait_for_functions(struct ps_rpc *rpc, bool stops)
{
    uint64_t log_us = dp_now_us() + LOG_AFTER_US;
    for (uint32_t left = ask(rpc, unfinished); left > 0; left = ask(rpc, unfinished)) {
        if (!stops && atomic_load(&rpc->stopping)) {
            return false;
        }
        if (dp_now_us() >= log_us) {
            ps_log("%s: waiting for %u function%s of modules to end",
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
    if (status == MR_OK) {
        status = ps_rpc_modules_start(&rpc->modules, rpc->agent, error, error_bytes);
    }
    if (status != MR_OK) {
        rpc->modules.count = 0; /* there is nothing to be ended */
    }
    return status;
}

static void log_end(const struct ps_rpc *rpc)
{
    static const char *const what[] = {[MR_AGENT_OVER] = "the world is over: all others have left or died",
                                       [MR_AGENT_FENCED] = "the other workers have taken this node for dead",
                                       [MR_AGENT_REFUSED] = "joining was refused"};
    bool has_why = rpc->end == MR_AGENT_REFUSED;
    ps_log("remote calls: %s%s%s; %s", what[rpc->end], has_why ? ": " : "", has_why ? rpc->why : "",
           rpc->config->rpc_rendezvous[0] == '\0' ? "the next may meet here" : "joining again");
}

/* Ends what is left of a world, and begins the next. */
static void renew(struct ps_rpc *rpc)
{
    char error[512];
    bool again = rpc->end == MR_AGENT_REFUSED;
    log_end(rpc);
    (void)ask(rpc, retire);
    if (!wait_for_functions(rpc, false)) {
        return;
    }
    for (uint32_t ms = 0; again && ms < AGAIN_MS && !atomic_load(&rpc->stopping); ms++) {
        sleep_us(1000);
    }
    ps_rpc_modules_exit(&rpc->modules, rpc->agent);
    (void)ask(rpc, close_agent);
    mr_agent_join(rpc->agent);
    if (ask(rpc, replace) == 0) {
        return;
    }
    if (ps_rpc_modules_start(&rpc->modules, rpc->agent, error, sizeof(error)) != MR_OK) {
        rpc->modules.count = 0;
        ps_log("nobody can join: %s; restart the node", error);
        return;
    }
    (void)ask(rpc, release);
}

static void *keep(void *arg)
{
    struct ps_rpc *rpc = arg;
    (void)pthread_setname_np(pthread_self(), "mr-worlds");
    for (;;) {
        while (sem_wait(&rpc->ended) != 0) {
        }
        if (atomic_load(&rpc->stopping)) {
            return NULL;
        }
        renew(rpc);
    }
}

bool ps_rpc_open(struct ps_rpc *rpc)
{
    rpc->has_keeper = pthread_create(&rpc->keeper, NULL, keep, rpc) == 0;
    if (rpc->has_keeper) {
        (void)ask(rpc, release);
    }
    return rpc->has_keeper;
}

void ps_rpc_close(struct ps_rpc *rpc)
{
    if (rpc->has_keeper) {
        atomic_store(&rpc->stopping, true);
        sem_post(&rpc->ended);
        pthread_join(rpc->keeper, NULL);
    }
    if (rpc->closed) { /* there was no memory for the next one */
        return;
    }
    (void)ask(rpc, retire);
    (void)wait_for_functions(rpc, true);
    ps_rpc_modules_exit(&rpc->modules, rpc->agent);
    (void)wait_for_functions(rpc, true); /* of the modules' last calls */
    ask_until_none(rpc, unsent, DRAIN_US);
    ask_until_none(rpc, goodbye, GOODBYE_US);
    (void)ask(rpc, close_agent);
    mr_agent_join(rpc->agent);
}
