/* The polling thread: receive, serve, answer, a little background work, and sleep when there is nothing of
 * it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_lcore.h>
#include "dataplane/loop/core.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/random.h"
#include "dataplane/wire/base/tick_clock.h"

/* Segments of large messages between two looks at what has come. While small calls keep coming, 6 to 8 us of
 * them, so that a poll, with a slice of a long call, takes no longer than a small call alone; else up to
 * 25 us, which the first of the next ones may have to wait. The kernel's copy path takes 1.5 to 2 us for one,
 * and a burst out costs a system call. A socket sends a run of datagrams in little more time than one of
 * them: while small calls keep coming, a run, else several. */
#define SEGMENTS_PER_POLL_KERNEL_BUSY 4u
#define SEGMENTS_PER_POLL_KERNEL      16u
#define SEGMENTS_PER_POLL             32u
#define RUNS_PER_POLL_SOCKET          3u
#define CALLS_KEEP_COMING_US          200u
#define TASKS_PER_POLL                16u
#define WINDOW_US                     1000000u
#define YIELD_AFTER_IDLE_US           1000u
#define DP_SESSIONS_MAX               65536u /* of an endpoint */

static uint32_t run_tasks(struct dp_core *core)
{
    void *tasks[TASKS_PER_POLL];
    uint32_t count = rte_ring_dequeue_burst(core->tasks, tasks, TASKS_PER_POLL, NULL);
    if (count == 0)
        return 0;
    enum dp_phase before = dp_phase_enter(&core->phases, DP_PHASE_tasks);
    for (uint32_t i = 0; i < count; i++) {
        struct dp_task *task = tasks[i];
        task->run(task, core->app, core);
    }
    dp_phase_leave(&core->phases, before);
    return count;
}

static uint32_t segments_per_poll(struct dp_core *core, uint64_t now_us)
{
    uint64_t replies_short = mr_endpoint_counters(core->endpoint)->replies_short;
    if (!core->dp->port.kernel_driven)
        return SEGMENTS_PER_POLL;
    if (core->replies_short != replies_short) {
        core->replies_short = replies_short;
        core->calls_until_us = now_us + CALLS_KEEP_COMING_US;
    }
    bool keep_coming = now_us < core->calls_until_us;
    if (core->socket != NULL)
        return dp_socket_port_run_datagrams(core->socket) * (keep_coming ? 1 : RUNS_PER_POLL_SOCKET);
    return keep_coming ? SEGMENTS_PER_POLL_KERNEL_BUSY : SEGMENTS_PER_POLL_KERNEL;
}

static bool poll_once(struct dp_core *core, uint64_t now_us)
{
    const struct dp_app *app = &core->dp->app;
    struct dp_phases *phases = &core->phases;
    uint32_t work = dp_receive(core, now_us);
    work += run_tasks(core);
    if (work > 0)
        dp_transmit_answers(core, now_us); /* answers leave before the background work */
    /* Before core_poll looks: who wakes it later is found by the next poll, or by nothing_waits(). */
    if (atomic_load_explicit(&core->woken, memory_order_relaxed))
        (void)atomic_exchange(&core->woken, false);
    enum dp_phase before = dp_phase_enter(phases, DP_PHASE_upkeep);
    if (app->core_poll != NULL && app->core_poll(core->app, now_us))
        work++;
    (void)dp_phase_enter(phases, DP_PHASE_transmit);
    core->tx_refused = false;
    core->endpoint_due_us = mr_endpoint_poll(core->endpoint, now_us, segments_per_poll(core, now_us));
    if (core->app_due_us < core->endpoint_due_us)
        core->endpoint_due_us = core->app_due_us;
    if (unlikely(core->rx_fault != NULL || core->tx_fault != NULL)) {
        uint64_t due_us = dp_fault_port_due_us(core);
        core->endpoint_due_us = due_us < core->endpoint_due_us ? due_us : core->endpoint_due_us;
    }
    work += dp_transmit_handed(core);
    work += dp_transmit_flush(core);
    dp_phase_leave(phases, before);
    return work > 0 || core->tx_refused || core->endpoint_due_us <= now_us;
}

static bool nothing_waits(const struct dp_core *core)
{
    return core->tx_count == 0 && rte_ring_empty(core->steered) && rte_ring_empty(core->tx_handed) &&
           rte_ring_empty(core->tasks) && !atomic_load_explicit(&core->woken, memory_order_relaxed) &&
           !atomic_load_explicit(&core->dp->stop, memory_order_relaxed);
}

static void sleep_a_little(struct dp_core *core, uint64_t now_us)
{
    dp_waiter_announce(&core->waiter);
    if (!nothing_waits(core)) {
        dp_waiter_cancel(&core->waiter);
        return;
    }
    core->counters.sleeps++;
    dp_sleep_enter(&core->phases);
    dp_waiter_sleep(&core->waiter, core->endpoint_due_us > now_us ? core->endpoint_due_us - now_us : 0);
    dp_sleep_leave(&core->phases);
}

static void account(struct dp_core *core, uint64_t now_us, bool busy)
{
    core->counters.loops++;
    core->counters.loops_busy += busy;
    if (busy)
        core->window_busy_us += now_us - core->poll_us;
    core->poll_us = now_us;
    uint64_t window_us = now_us - core->window_start_us;
    if (window_us >= WINDOW_US) {
        atomic_store_explicit(&core->busy_ppm, (uint32_t)(core->window_busy_us * 1000000u / window_us),
                              memory_order_relaxed);
        core->window_start_us = now_us;
        core->window_busy_us = 0;
    }
}

/* The kernel's half of a DPDK port may wait for this processor. A socket's does not: there a core goes on
 * between the calls of a client, as whoever shares the processor would keep it for some 4 ms. */
static bool makes_way(const struct dp_core *core, uint64_t now_us)
{
    return core->dp->port.kernel_driven &&
           (core->socket == NULL || now_us - core->idle_since_us >= YIELD_AFTER_IDLE_US);
}

static uint64_t tsc(void)
{
    return rte_rdtsc();
}

static void start_phases(struct dp_core *core)
{
    dp_phases_init(&core->phases, tsc, rte_get_tsc_hz(), core->dp->config.measured_turns, core->index + 1);
    dp_phases_read_events(&core->phases, dp_cpu_read_op_events, &core->cpu);
}

static void loop(struct dp_core *core)
{
    const struct dp_config *config = &core->dp->config;
    uint64_t now_us = mr_clock_us();
    core->poll_us = core->window_start_us = now_us;
    start_phases(core);
    while (!atomic_load_explicit(&core->dp->stop, memory_order_relaxed)) {
        dp_turn_begin(&core->phases);
        bool busy = poll_once(core, now_us);
        if (busy)
            core->idle_since_us = 0;
        else if (core->idle_since_us == 0)
            core->idle_since_us = now_us;
        else if (config->poll_mode == DP_POLL_ADAPTIVE &&
                 now_us - core->idle_since_us >= config->adaptive_idle_us)
            sleep_a_little(core, now_us);
        else if (makes_way(core, now_us))
            (void)sched_yield();
        now_us = mr_clock_us();
        account(core, now_us, busy);
        dp_turn_end(&core->phases, busy);
    }
}

/* ---- start and end ---- */

static void fill_random(void *self, void *out, size_t bytes)
{
    mr_random_fill(out, bytes);
}

static void on_reply(void *arg, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    const struct dp_core *core = arg;
    core->dp->app.on_reply(core->app, call, user, status, reply);
}

static void on_session(void *arg, struct mr_client_session *session, enum mr_client_session_event event)
{
    const struct dp_core *core = arg;
    core->dp->app.on_session(core->app, session, event);
}

static uint64_t last_push_step(void *arg, const uint8_t *client_uuid)
{
    const struct dp_core *core = arg;
    return core->dp->app.last_push_step(core->app, client_uuid);
}

static uint64_t read_clock(void)
{
    return mr_tick_ns();
}

static void let_it_call(const struct dp *dp, struct mr_endpoint_config *config)
{
    uint32_t sessions = config->sessions_max + dp->config.calling_sessions;
    config->on_reply = on_reply;
    config->on_session = on_session;
    config->sessions_max = sessions < DP_SESSIONS_MAX ? sessions : DP_SESSIONS_MAX;
    config->memory_bytes += dp->config.calling_memory_bytes;
}

static bool make_endpoint(struct dp_core *core, char error[DP_ERROR_BYTES])
{
    const struct dp *dp = core->dp;
    struct mr_endpoint_config config = dp->config.endpoint;
    config.io = (struct mr_endpoint_io){
        .self = core, .tx_begin = dp_transmit_begin, .tx_end = dp_transmit_end, .random = fill_random};
    config.app = core;
    config.on_request = dp_serve_request;
    config.on_prefetch = dp->app.prefetch != NULL ? dp_prefetch_requests : NULL;
    config.on_arriving = dp->app.arriving != NULL ? dp_request_arriving : NULL;
    mr_tick_clock_init();
    config.clock_ns = read_clock;
    config.core = (uint16_t)core->index;
    config.core_count = (uint16_t)dp->config.core_count;
    config.udp_bytes_max = dp_net_udp_bytes_max(&dp->net);
    if (core->socket != NULL)
        dp_socket_port_configure(core->socket, &config);
    if (dp->port.driver == DP_DRIVER_MEMIF)
        config.bundle_bytes_max = mr_min_u32(config.bundle_bytes_max, DP_BUNDLE_BYTES_MAX);
    if (core->index == 0 && dp->app.on_reply != NULL)
        let_it_call(dp, &config);
    core->app_due_us = UINT64_MAX;
    enum mr_status status = mr_endpoint_create(&config, &core->endpoint);
    explicit_bzero(config.psk, sizeof(config.psk));
    if (status != MR_OK) {
        snprintf(error, DP_ERROR_BYTES,
                 "core %u: the transport does not start with %zu MiB of message memory: %s", core->index,
                 config.memory_bytes >> 20, mr_status_text(status));
        return false;
    }
    if (dp->app.last_push_step != NULL)
        mr_endpoint_set_last_step_hook(core->endpoint, last_push_step);
    return true;
}

static void report_start(struct dp_core *core, const char *error)
{
    struct dp *dp = core->dp;
    pthread_mutex_lock(&dp->lock);
    dp->cores_ready++;
    if (error != NULL && !dp->start_failed) {
        dp->start_failed = true;
        snprintf(dp->start_error, sizeof(dp->start_error), "%s", error);
    }
    pthread_cond_broadcast(&dp->changed);
    pthread_mutex_unlock(&dp->lock);
}

static bool wait_until_all_are_ready(struct dp *dp)
{
    pthread_mutex_lock(&dp->lock);
    while (dp->cores_ready < dp->config.core_count && !dp->start_failed)
        pthread_cond_wait(&dp->changed, &dp->lock);
    bool good = !dp->start_failed;
    pthread_mutex_unlock(&dp->lock);
    return good;
}

void *dp_core_run(void *arg)
{
    struct dp_core *core = arg;
    const struct dp_app *app = &core->dp->app;
    char error[DP_ERROR_BYTES] = "";
    char name[16];
    snprintf(name, sizeof(name), "data-core-%u", core->index);
    core->tid = gettid();
    (void)prctl(PR_SET_NAME, name);
    (void)prctl(PR_SET_TIMERSLACK, 1000ul); /* naps of tens of microseconds mean what they say */
    /* An id of its own gives the thread a cache in each packet pool. */
    if (rte_thread_register() != 0)
        snprintf(error, sizeof(error), "core %u: DPDK has no thread id left", core->index);
    else if (make_endpoint(core, error)) {
        dp_core_add_own_counters(core);
        core->app = app->core_start(app->self, core, error);
        if (core->app == NULL && error[0] == '\0')
            snprintf(error, sizeof(error), "core %u does not start", core->index);
    }
    report_start(core, core->app == NULL ? error : NULL);
    if (core->app != NULL) {
        if (wait_until_all_are_ready(core->dp))
            loop(core);
        while (run_tasks(core) > 0) { /* those posted before the stop own memory */
        }
        if (app->core_stop != NULL)
            app->core_stop(core->app);
    }
    dp_transmit_drop_all(core);
    mr_endpoint_destroy(core->endpoint);
    core->endpoint = NULL;
    rte_thread_unregister();
    return NULL;
}
