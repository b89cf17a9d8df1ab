/* A data plane of fibers: what dataplane/dataplane.h declares, over the simulated network. Each core is one,
 * which polls as the real loop does: tasks, packets, the application's turn, the endpoint's. One node at a
 * time. */
#include <assert.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "cuts_net.h"
#include "dataplane/dataplane.h"
#include "fiber.h"
#include "tests/property/random.h"

#define TASKS_MAX     64u
#define SETS_MAX      8u
#define PACKETS_TURN  32u
#define SEGMENTS_TURN 64u
#define TURN_NS       500u
#define PACKET_NS     300u
#define IDLE_NS       2000000u

struct dp_core {
    struct dp *dp;
    uint32_t index;
    struct fiber *fiber;
    struct mr_endpoint *ep;
    void *app;
    struct net_packet *first, **last;
    struct dp_task *tasks[TASKS_MAX];
    uint32_t task_count;
    bool stop;
    struct mr_address open_to;
    uint8_t open[NET_UDP_BYTES + 8];
    struct {
        const struct mr_counter_set *set;
        const uint64_t *values;
    } sets[SETS_MAX];
    uint32_t set_count;
};

struct dp {
    struct dp_config config;
    struct dp_app app;
    struct dp_core cores[DP_CORES_MAX];
};

static struct dp *the_dp; /* NULL: none runs */

/* ---- packets ---- */

void net_to_core(struct net_packet *packet)
{
    if (the_dp == NULL || packet->core >= the_dp->config.core_count ||
        the_dp->cores[packet->core].ep == NULL) {
        free(packet);
        return;
    }
    struct dp_core *core = &the_dp->cores[packet->core];

    packet->next = NULL;
    *core->last = packet;
    core->last = &packet->next;
    fiber_wake(core);
}

static uint8_t *tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct dp_core *core = self;
    assert(bytes_max <= NET_UDP_BYTES);
    (void)bytes_max;
    core->open_to = *to;
    return core->open;
}

static void tx_end(void *self, uint32_t bytes)
{
    struct dp_core *core = self;
    if (bytes > 0)
        net_from_core(core->index, &core->open_to, core->open, bytes);
}

static void fill_random(void *self, void *out, size_t bytes)
{
    uint8_t *to = out;
    (void)self;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)random_next(fiber_random());
}

/* ---- a core ---- */

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct dp_core *core = app;
    const uint8_t op = request->message->preamble.op;
    dp_handler handler = op < MR_OP_COUNT ? core->dp->app.dispatch[op] : NULL;
    if (handler == NULL)
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
    else
        handler(core->app, ep, request);
}

static uint64_t last_step(void *app, const uint8_t *client_uuid)
{
    struct dp_core *core = app;
    return core->dp->app.last_push_step(core->app, client_uuid);
}

static void run_tasks(struct dp_core *core)
{
    while (core->task_count > 0) {
        struct dp_task *task = core->tasks[0];
        core->task_count--;
        for (uint32_t i = 0; i < core->task_count; i++)
            core->tasks[i] = core->tasks[i + 1];
        task->run(task, core->app, core);
    }
}

static struct net_packet *take_packet(struct dp_core *core)
{
    struct net_packet *packet = core->first;
    if (packet != NULL && (core->first = packet->next) == NULL)
        core->last = &core->first;
    return packet;
}

static bool receive(struct dp_core *core)
{
    uint32_t taken = 0;
    for (; taken < PACKETS_TURN; taken++) {
        struct net_packet *packet = take_packet(core);
        if (packet == NULL)
            break;
        mr_endpoint_receive(core->ep, dp_now_us(), &packet->from, packet->data, packet->bytes);
        free(packet);
    }
    if (taken > 0)
        fiber_sleep_ns((uint64_t)taken * PACKET_NS);
    return taken > 0;
}

static void *run_core(void *arg)
{
    struct dp_core *core = arg;
    for (;;) {
        run_tasks(core);
        if (core->stop)
            break;
        bool more = receive(core);

        mr_endpoint_flush(core->ep, dp_now_us());
        more |= core->dp->app.core_poll(core->app, dp_now_us());
        uint64_t due_ns = mr_endpoint_poll(core->ep, dp_now_us(), SEGMENTS_TURN);
        uint64_t latest_ns = fiber_now_ns() + IDLE_NS;

        due_ns = due_ns > latest_ns / 1000 ? latest_ns : due_ns * 1000;
        if (more || core->first != NULL || core->task_count > 0 || due_ns <= fiber_now_ns())
            fiber_sleep_ns(TURN_NS);
        else
            (void)fiber_wait(core, due_ns);
    }
    core->dp->app.core_stop(core->app);
    return NULL;
}

/* ---- life ---- */

void dp_config_default(struct dp_config *config)
{
    memset(config, 0, sizeof(*config));
    config->core_count = 1;
    mr_endpoint_config_default(&config->endpoint);
}

enum mr_status dp_create(const struct dp_config *config, struct dp **out, char error[DP_ERROR_BYTES])
{
    error[0] = '\0';
    assert(the_dp == NULL);
    the_dp = calloc(1, sizeof(*the_dp));
    assert(the_dp != NULL);
    the_dp->config = *config;
    *out = the_dp;
    return MR_OK;
}

static enum mr_status start_core(struct dp *dp, uint32_t index, char *error)
{
    struct dp_core *core = &dp->cores[index];
    struct mr_endpoint_config config = dp->config.endpoint;
    core->dp = dp;
    core->index = index;
    core->last = &core->first;
    config.io = (struct mr_endpoint_io){core, tx_begin, tx_end, fill_random};
    config.app = core;
    config.on_request = on_request;
    config.core = (uint16_t)index;
    config.core_count = (uint16_t)dp->config.core_count;
    config.udp_bytes_max = NET_UDP_BYTES;
    enum mr_status status = mr_endpoint_create(&config, &core->ep);

    if (status != MR_OK)
        return status;
    mr_endpoint_set_last_step_hook(core->ep, last_step);
    core->app = dp->app.core_start(dp->app.self, core, error);
    if (core->app == NULL)
        return MR_NO_MEMORY;
    core->fiber = fiber_start("core", run_core, core);
    return MR_OK;
}

enum mr_status dp_start(struct dp *dp, const struct dp_app *app, char error[DP_ERROR_BYTES])
{
    enum mr_status status = MR_OK;
    dp->app = *app;
    for (uint32_t i = 0; i < dp->config.core_count && status == MR_OK; i++)
        status = start_core(dp, i, error);
    if (status != MR_OK)
        dp_stop(dp);
    return status;
}

void dp_stop(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        struct dp_core *core = &dp->cores[i];
        core->stop = true;
        fiber_wake(core);
        if (core->fiber != NULL)
            (void)fiber_join(core->fiber);
        core->fiber = NULL;
        mr_endpoint_destroy(core->ep);
        core->ep = NULL;
        for (struct net_packet *p = take_packet(core); p != NULL; p = take_packet(core))
            free(p);
    }
}

void dp_destroy(struct dp *dp)
{
    assert(dp == the_dp);
    the_dp = NULL;
    free(dp);
}

/* ---- what else there is to ask ---- */

uint32_t dp_core_index(const struct dp_core *core)
{
    return core->index;
}

struct mr_endpoint *dp_core_endpoint(struct dp_core *core)
{
    return core->ep;
}

uint64_t dp_now_us(void)
{
    return fiber_look_us();
}

uint64_t dp_core_turns(const struct dp_core *core)
{
    (void)core;
    return 0;
}

uint32_t dp_core_busy_ppm(const struct dp_core *core)
{
    (void)core;
    return 0;
}

bool dp_post(struct dp *dp, uint32_t index, struct dp_task *task)
{
    struct dp_core *core = &dp->cores[index];
    if (core->task_count == TASKS_MAX)
        return false;
    core->tasks[core->task_count++] = task;
    fiber_wake(core);
    fiber_sleep_ns(0); /* the machine may have something else to do before the next one is posted */
    return true;
}

/* Nobody takes part in remote calls here. */
void dp_wake(struct dp *dp, uint32_t index)
{
    fiber_wake(&dp->cores[index]);
}

void dp_core_due(struct dp_core *core, uint64_t due_us)
{
    (void)core;
    (void)due_us;
}

int dp_core_bell(const struct dp_core *core)
{
    (void)core;
    return -1;
}

/* Nobody captures packets here. */
void dp_core_set_capture(struct dp_core *core, struct dp_capture *capture)
{
    (void)core;
    (void)capture;
}

void dp_core_add_counters(struct dp_core *core, const struct mr_counter_set *set, const uint64_t *values)
{
    assert(core->set_count < SETS_MAX);
    core->sets[core->set_count].set = set;
    core->sets[core->set_count++].values = values;
}

void dp_core_each_counter(const struct dp_core *core, dp_visit_counter *visit, void *arg)
{
    for (uint32_t s = 0; s < core->set_count; s++)
        for (uint32_t i = 0; i < core->sets[s].set->count; i++)
            visit(arg, core->sets[s].set, &core->sets[s].set->counters[i], core->sets[s].values[i]);
}
