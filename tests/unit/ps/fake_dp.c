#include "fake_dp.h"

#include "dataplane/capture/capture.h"
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_endpoint.h"
#include "dataplane/wire/base/tick_clock.h"

#include <assert.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "tests/wait.h"

#define UDP_PORT      7700
#define COUNTER_SETS  8
#define SEGMENTS_TURN 64
#define BURSTS_TURN   16
#define IDLE_MS       1

struct datagram {
    struct datagram *next;
    uint32_t core, bytes;
    uint8_t data[MR_UDP_BYTES_MAX];
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct datagram *first, **last;
};

#define TASKS_MAX 64

struct dp_core {
    struct dp *dp;
    uint32_t index;
    pthread_t thread;
    struct mr_endpoint *ep;
    void *app;
    struct queue in;
    struct mr_udp_endpoint udp; /* with the driver SOCKET */
    int woken;                  /* an eventfd beside the socket; -1: there is no socket */
    bool is_cut_off;
    struct dp_task *tasks[TASKS_MAX]; /* under in.lock */
    uint32_t task_count;
    _Atomic uint32_t posted_count; /* tasks, ever */
    bool stop, started;
    struct datagram *open;
    struct mr_address open_to;
    struct dp_capture *capture;
    struct {
        const struct mr_counter_set *set;
        const uint64_t *values;
    } sets[COUNTER_SETS];
    uint32_t set_count;
    char error[DP_ERROR_BYTES];
};

struct dp {
    struct dp_config config;
    struct dp_app app;
    struct fake_dp_front front;
    struct dp_core cores[DP_CORES_MAX];
};

static struct dp *the_dp;
static struct queue to_client = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, &to_client.first};
static struct datagram *client_open;

/* ---- queues ---- */

static void fake_dp_put(struct queue *q, struct datagram *d)
{
    d->next = NULL;
    pthread_mutex_lock(&q->lock);
    *q->last = d;
    q->last = &d->next;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

static struct datagram *take_all(struct queue *q)
{
    struct datagram *all = q->first;
    q->first = NULL;
    q->last = &q->first;
    return all;
}

static void free_all(struct datagram *d)
{
    while (d != NULL) {
        struct datagram *next = d->next;
        free(d);
        d = next;
    }
}

/* ---- both sides' output ---- */

static struct datagram *new_datagram(uint32_t core)
{
    struct datagram *d = malloc(sizeof(*d));
    assert(d != NULL);
    d->core = core;
    return d;
}

static void capture(struct dp_core *core, bool is_sent, const struct mr_address *peer,
                    const struct datagram *d)
{
    const struct mr_address local = fake_dp_address(core->index);
    if (core->capture != NULL)
        dp_capture_datagram(core->capture, dp_capture_time_ns(), is_sent, &local, peer, d->data, d->bytes);
}

static uint8_t *core_tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    struct dp_core *core = self;
    (void)bytes_max;
    core->open = new_datagram(core->index);
    core->open_to = *to;
    return core->open->data;
}

static void core_tx_end(void *self, uint32_t bytes)
{
    struct dp_core *core = self;
    core->open->bytes = bytes;
    if (bytes > 0)
        capture(core, true, &core->open_to, core->open);
    if (bytes == 0)
        free(core->open);
    else
        fake_dp_put(&to_client, core->open);
}

static void fill_random(void *self, void *out, size_t n)
{
    (void)self;
    while (getrandom(out, n, 0) != (ssize_t)n) {
    }
}

struct mr_address fake_dp_address(uint32_t core)
{
    struct mr_address address = {.port = (uint16_t)(UDP_PORT + core)};
    address.ip[15] = 1;
    return address;
}

uint8_t *fake_dp_client_tx_begin(void *self, const struct mr_address *to, uint32_t bytes_max)
{
    (void)self;
    (void)bytes_max;
    client_open = new_datagram((uint32_t)(to->port - UDP_PORT));
    return client_open->data;
}

void fake_dp_client_tx_end(void *self, uint32_t bytes)
{
    (void)self;
    client_open->bytes = bytes;
    if (bytes == 0 || the_dp == NULL || client_open->core >= the_dp->config.core_count)
        free(client_open);
    else
        fake_dp_put(&the_dp->cores[client_open->core].in, client_open);
}

bool fake_dp_client_receive(struct mr_endpoint *ep)
{
    pthread_mutex_lock(&to_client.lock);
    if (to_client.first == NULL) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&to_client.filled, &to_client.lock, &until);
    }
    struct datagram *all = take_all(&to_client);
    pthread_mutex_unlock(&to_client.lock);
    for (struct datagram *d = all; d != NULL; d = d->next) {
        struct mr_address from = fake_dp_address(d->core);
        mr_endpoint_receive(ep, dp_now_us(), &from, d->data, d->bytes);
    }
    free_all(all);
    return all != NULL;
}

/* ---- a core ---- */

void fake_dp_handle(struct dp_core *core, const struct mr_request *request)
{
    uint8_t op = request->message->preamble.op;
    dp_handler handler = op < MR_OP_COUNT ? core->dp->app.dispatch[op] : NULL;
    if (handler == NULL)
        mr_reply_status(core->ep, request->ref, MR_UNKNOWN_OP);
    else
        handler(core->app, core->ep, request);
}

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct dp_core *core = app;
    if (core->dp->front.on_request != NULL)
        core->dp->front.on_request(core->dp->front.self, core, request);
    else
        fake_dp_handle(core, request);
}

static void on_arriving(void *app, struct mr_call_ref ref, const uint8_t *message, uint32_t received_bytes,
                        uint32_t message_bytes)
{
    struct dp_core *core = app;
    core->dp->app.arriving(core->app, ref, message, received_bytes, message_bytes);
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    struct dp_core *core = app;
    core->dp->app.on_reply(core->app, call, user, status, reply);
}

static void on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event)
{
    struct dp_core *core = app;
    core->dp->app.on_session(core->app, session, event);
}

static uint64_t last_step(void *app, const uint8_t *client_uuid)
{
    struct dp_core *core = app;
    return core->dp->app.last_push_step(core->app, client_uuid);
}

static uint16_t arrived_at(void *app, const struct mr_address *from)
{
    const struct dp_core *core = app;
    return core->dp->front.arrived_at(core->dp->front.self, core->index, from);
}

void fake_dp_cut_off(struct dp_core *core)
{
    core->is_cut_off = true;
}

/* Whoever waits for work of this core looks again. The caller has its lock. */
static void wake_locked(struct dp_core *core)
{
    pthread_cond_signal(&core->in.filled);
    if (core->woken >= 0)
        (void)eventfd_write(core->woken, 1);
}

/* Waits a millisecond at most for datagrams at the socket, tasks, or timers. */
static void wait_for_socket(struct dp_core *core)
{
    struct pollfd fds[2] = {{.fd = core->woken, .events = POLLIN},
                            {.fd = core->is_cut_off ? -1 : core->udp.socket.fd, .events = POLLIN}};
    eventfd_t count;
    if (core->is_cut_off || core->udp.next_us > dp_now_us())
        (void)poll(fds, 2, IDLE_MS);
    (void)eventfd_read(core->woken, &count);
}

/* Waits a millisecond at most for work; false when told to stop and nothing is left. */
static bool take_work(struct dp_core *core, bool idle, struct datagram **datagrams, struct dp_task **tasks,
                      uint32_t *task_count)
{
    struct queue *q = &core->in;
    if (core->woken >= 0 && idle)
        wait_for_socket(core);
    pthread_mutex_lock(&q->lock);
    if (core->woken < 0 && idle && q->first == NULL && core->task_count == 0 && !core->stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += IDLE_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&q->filled, &q->lock, &until);
    }
    *datagrams = take_all(q);
    *task_count = core->task_count;
    for (uint32_t i = 0; i < core->task_count; i++)
        tasks[i] = core->tasks[i];
    core->task_count = 0;
    bool go_on = !core->stop || *task_count > 0;
    pthread_mutex_unlock(&q->lock);
    return go_on;
}

/* Returns whether there is more to do. */
static bool drive_endpoint(struct dp_core *core)
{
    if (core->woken < 0) {
        mr_endpoint_flush(core->ep, dp_now_us());
        return mr_endpoint_poll(core->ep, dp_now_us(), SEGMENTS_TURN) <= dp_now_us();
    }
    if (core->is_cut_off)
        return false;
    const uint32_t received = mr_udp_endpoint_receive(&core->udp, BURSTS_TURN);
    (void)mr_udp_endpoint_send(&core->udp, dp_now_us(), SEGMENTS_TURN);
    return received > 0 || core->udp.next_us <= dp_now_us();
}

static void *run_core(void *arg)
{
    struct dp_core *core = arg;
    const struct dp_app *app = &core->dp->app;
    struct datagram *datagrams;
    struct dp_task *tasks[TASKS_MAX];
    uint32_t task_count;
    bool more = false;
    while (take_work(core, !more, &datagrams, tasks, &task_count)) {
        for (uint32_t i = 0; i < task_count; i++)
            tasks[i]->run(tasks[i], core->app, core);
        struct mr_address from = {.port = 9};
        from.ip[15] = 2;
        for (struct datagram *d = datagrams; d != NULL; d = d->next) {
            capture(core, false, &from, d);
            mr_endpoint_receive(core->ep, dp_now_us(), &from, d->data, d->bytes);
        }
        free_all(datagrams);
        if (core->dp->front.poll != NULL)
            core->dp->front.poll(core->dp->front.self, core, core->app);
        more = app->core_poll(core->app, dp_now_us());
        more |= drive_endpoint(core);
    }
    free_all(datagrams);
    app->core_stop(core->app);
    return NULL;
}

/* ---- dataplane/dataplane.h ---- */

void dp_config_default(struct dp_config *config)
{
    memset(config, 0, sizeof(*config));
    config->core_count = 1;
    mr_endpoint_config_default(&config->endpoint);
}

static struct fake_dp_front front_of_next;

void fake_dp_set_front(const struct fake_dp_front *front)
{
    front_of_next = *front;
}

enum mr_status dp_create(const struct dp_config *config, struct dp **out, char error[DP_ERROR_BYTES])
{
    struct dp *dp = calloc(1, sizeof(*dp));
    error[0] = '\0';
    assert(dp != NULL);
    dp->config = *config;
    dp->front = front_of_next;
    for (uint32_t i = 0; i < DP_CORES_MAX; i++)
        dp->cores[i].woken = -1;
    front_of_next = (struct fake_dp_front){.self = NULL};
    if (config->driver != DP_DRIVER_SOCKET) {
        assert(the_dp == NULL);
        the_dp = dp;
    }
    *out = dp;
    return MR_OK;
}

/* Opens the core's socket, where it is to have one. */
static enum mr_status open_socket(struct dp_core *core, char *error)
{
    static const uint8_t loopback[4] = {127, 0, 0, 1};
    const struct mr_udp_options options = {.buffer_bytes = 0};
    struct mr_address local;
    if (core->dp->config.driver != DP_DRIVER_SOCKET)
        return MR_OK;
    mr_address_from_ipv4(loopback, &local);
    local.port = (uint16_t)(core->dp->config.udp_port + core->index);
    const enum mr_status status =
        mr_udp_endpoint_open(&core->udp, &local, &options, true, error, DP_ERROR_BYTES);
    if (status != MR_OK)
        return status;
    if (core->dp->front.arrived_at != NULL)
        core->udp.arrived_at = arrived_at;
    core->udp.app = core;
    core->woken = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert(core->woken >= 0);
    return MR_OK;
}

static enum mr_status create_endpoint(struct dp_core *core, struct mr_endpoint_config *config)
{
    if (core->dp->front.configure != NULL)
        core->dp->front.configure(core->dp->front.self, config);
    if (core->woken < 0)
        return mr_endpoint_create(config, &core->ep);
    const enum mr_status status = mr_udp_endpoint_create(&core->udp, config);
    core->ep = core->udp.ep;
    return status;
}

static uint64_t read_clock(void)
{
    return mr_tick_ns();
}

static enum mr_status start_core(struct dp *dp, uint32_t index, char *error)
{
    struct dp_core *core = &dp->cores[index];
    struct mr_endpoint_config config = dp->config.endpoint;
    core->dp = dp;
    core->index = index;
    pthread_mutex_init(&core->in.lock, NULL);
    pthread_cond_init(&core->in.filled, NULL);
    core->in.last = &core->in.first;
    config.io = (struct mr_endpoint_io){core, core_tx_begin, core_tx_end, fill_random};
    config.app = core;
    config.on_request = on_request;
    config.clock_ns = read_clock;
    config.on_arriving = dp->app.arriving != NULL ? on_arriving : NULL;
    config.core = (uint16_t)index;
    config.core_count = (uint16_t)dp->config.core_count;
    config.udp_bytes_max = MR_UDP_BYTES_MAX;
    if (index == 0 && dp->app.on_reply != NULL) {
        config.on_reply = on_reply;
        config.on_session = on_session;
        config.sessions_max += dp->config.calling_sessions;
        config.memory_bytes += dp->config.calling_memory_bytes;
    }
    enum mr_status status = open_socket(core, error);
    if (status != MR_OK)
        return status;
    status = create_endpoint(core, &config);
    assert(status == MR_OK);
    mr_endpoint_set_last_step_hook(core->ep, last_step);
    core->app = dp->app.core_start(dp->app.self, core, error);
    if (core->app == NULL)
        return MR_NO_MEMORY;
    core->started = pthread_create(&core->thread, NULL, run_core, core) == 0;
    assert(core->started);
    return status;
}

enum mr_status dp_start(struct dp *dp, const struct dp_app *app, char error[DP_ERROR_BYTES])
{
    dp->app = *app;
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        enum mr_status status = start_core(dp, i, error);
        if (status != MR_OK) {
            dp_stop(dp);
            return status;
        }
    }
    return MR_OK;
}

void dp_stop(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++) {
        struct dp_core *core = &dp->cores[i];
        if (core->started) {
            pthread_mutex_lock(&core->in.lock);
            core->stop = true;
            wake_locked(core);
            pthread_mutex_unlock(&core->in.lock);
            pthread_join(core->thread, NULL);
            core->started = false;
        }
        if (core->woken >= 0) {
            mr_udp_endpoint_close(&core->udp);
            (void)close(core->woken);
            core->woken = -1;
        } else {
            mr_endpoint_destroy(core->ep);
        }
        core->ep = NULL;
    }
}

/* What is still on its way to the test is lost, as it would be with a port. */
void dp_destroy(struct dp *dp)
{
    for (uint32_t i = 0; i < dp->config.core_count; i++)
        free_all(dp->cores[i].in.first);
    pthread_mutex_lock(&to_client.lock);
    free_all(take_all(&to_client));
    pthread_mutex_unlock(&to_client.lock);
    if (dp == the_dp)
        the_dp = NULL;
    free(dp);
}

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
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t dp_core_turns(const struct dp_core *core)
{
    (void)core;
    return 0;
}

uint32_t dp_core_busy_ppm(const struct dp_core *core)
{
    (void)core;
    return 250000;
}

bool dp_post(struct dp *dp, uint32_t index, struct dp_task *task)
{
    struct dp_core *core = &dp->cores[index];
    pthread_mutex_lock(&core->in.lock);
    bool room = core->task_count < TASKS_MAX;
    if (room) {
        core->tasks[core->task_count++] = task;
        core->posted_count++;
        wake_locked(core);
    }
    pthread_mutex_unlock(&core->in.lock);
    return room;
}

void dp_wake(struct dp *dp, uint32_t index)
{
    pthread_mutex_lock(&dp->cores[index].in.lock);
    wake_locked(&dp->cores[index]);
    pthread_mutex_unlock(&dp->cores[index].in.lock);
}

/* It is polled every millisecond. */
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

void dp_core_set_capture(struct dp_core *core, struct dp_capture *capture_now)
{
    core->capture = capture_now;
}

void dp_core_add_counters(struct dp_core *core, const struct mr_counter_set *set, const uint64_t *values)
{
    assert(core->set_count < COUNTER_SETS);
    core->sets[core->set_count].set = set;
    core->sets[core->set_count++].values = values;
}

void dp_core_each_counter(const struct dp_core *core, dp_visit_counter *visit, void *arg)
{
    for (uint32_t s = 0; s < core->set_count; s++) {
        for (uint32_t i = 0; i < core->sets[s].set->count; i++) {
            visit(arg, core->sets[s].set, &core->sets[s].set->counters[i],
                  mr_counter_read(&core->sets[s].values[i]));
        }
    }
}

/* ---- holding a core ---- */

struct dp_core *fake_dp_core(uint32_t core)
{
    return &the_dp->cores[core];
}

static sem_t releases[DP_CORES_MAX];
static _Atomic bool is_held[DP_CORES_MAX];
static _Atomic uint32_t hold_count[DP_CORES_MAX];
/* By the test's thread: the holds among the tasks posted, and what was posted beside them when the core stood
 * still. */
static uint32_t holds_posted[DP_CORES_MAX], others_before[DP_CORES_MAX];
static pthread_once_t releases_once = PTHREAD_ONCE_INIT;

static void make_releases(void)
{
    for (uint32_t i = 0; i < DP_CORES_MAX; i++)
        sem_init(&releases[i], 0, 0);
}

void *fake_dp_app(uint32_t core)
{
    return the_dp->cores[core].app;
}

static void wait_for_release(struct dp_task *task, void *core_app, struct dp_core *core)
{
    (void)core_app;
    free(task);
    is_held[core->index] = true;
    hold_count[core->index]++;
    while (sem_wait(&releases[core->index]) != 0) {
    }
    is_held[core->index] = false;
}

void fake_dp_hold(uint32_t core)
{
    pthread_once(&releases_once, make_releases);
    struct dp_task *task = malloc(sizeof(*task));
    assert(task != NULL);
    task->run = wait_for_release;
    bool posted = dp_post(the_dp, core, task);
    assert(posted);
    (void)posted;
    holds_posted[core]++;
}

/* Tasks of the control thread, ever. */
static uint32_t others_posted(uint32_t core)
{
    return the_dp->cores[core].posted_count - holds_posted[core];
}

void fake_dp_release(uint32_t core)
{
    sem_post(&releases[core]);
}

/* Not by an assertion of cmocka: programs that are no tests use this file, too. */
static void fake_dp_check(bool holds)
{
    if (holds)
        return;
    (void)fprintf(stderr, "fake_dp: a core does not come to its next turn\n");
    abort();
}

void fake_dp_wait_held(uint32_t core)
{
    fake_dp_check(WAIT_WITHIN(WAIT_LIMIT_S, is_held[core]));
    others_before[core] = others_posted(core);
}

void fake_dp_turn(uint32_t core)
{
    uint32_t before = hold_count[core];
    fake_dp_hold(core);
    fake_dp_release(core);
    fake_dp_check(WAIT_WITHIN(WAIT_LIMIT_S, hold_count[core] != before));
}

void fake_dp_wait_posted(uint32_t core, uint32_t count)
{
    fake_dp_check(WAIT_WITHIN(WAIT_LIMIT_S, others_posted(core) - others_before[core] >= count));
}
