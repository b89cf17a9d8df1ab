#include "trainer_client/rpc/rpc_driver.h"
#include "dataplane/wire/base/fence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include "trainer_client/socket/clock.h"
#include "trainer_client/socket/epoll_sleep.h"
#include "trainer_client/socket/environment.h"
#include "trainer_client/call/forks.h"
#include "trainer_client/rpc/rpc_driver_internal.h"

#define SEGMENT_BUDGET    128u
#define SEND_RETRY_US     1000u /* when the socket's buffer was full */
#define SLEEP_MAX_US      1000000u
#define FLUSH_US          20u /* calls that follow each other faster are sent together, */
#define FLUSH_CALLS       32u /* but no more than these */
#define BURSTS_MAX        4u
#define SETTLE_ROUNDS_MAX 64u
#define SESSIONS_PER_PEER 24u
#define SESSIONS_SPARE    64u
#define CALLS_MAX         16384u

/* ---- inside ---- */

/* Work, timers, and what is to be sent. */
static void settle_inside(struct mrc_rpc_driver *d)
{
    for (uint32_t i = 0; i < SETTLE_ROUNDS_MAX; i++) {
        uint64_t now_us = mrc_now_us();
        uint64_t next_us = mr_agent_poll(d->agent, now_us);
        uint64_t endpoint_us = mr_endpoint_poll(d->ep, now_us, SEGMENT_BUDGET);

        d->unsent = 0;
        atomic_store(&d->has_unsent, false);
        d->flushed_us = now_us;
        next_us = endpoint_us < next_us ? endpoint_us : next_us;
        if (!mrc_udp_send_flush(d->sender)) {
            atomic_store(&d->next_us, now_us + SEND_RETRY_US);
            return;
        }
        atomic_store(&d->next_us, next_us);
        if (next_us > now_us && !mr_agent_has_work(d->agent))
            return;
    }
}

/* The timers may have moved forward: who sleeps must not sleep past them. */
static void wake_early(struct mrc_rpc_driver *d)
{
    if (atomic_load(&d->next_us) < atomic_load(&d->sleep_until_us))
        mrc_rpc_signal(d->wake_fd);
}

/* Whoever submits pushes first and tries the lock then: either he gets it, or it is seen here. */
static void leave(struct mrc_rpc_driver *d)
{
    for (;;) {
        pthread_mutex_unlock(&d->inside);
        mr_fence();
        if (!mr_agent_has_work(d->agent) || pthread_mutex_trylock(&d->inside) != 0)
            break;
        settle_inside(d);
    }
    wake_early(d);
}

static void settle_and_leave(struct mrc_rpc_driver *d)
{
    settle_inside(d);
    leave(d);
}

void mrc_rpc_settle(struct mrc_rpc_driver *d)
{
    if (pthread_mutex_trylock(&d->inside) != 0)
        return;
    if (atomic_load(&d->closed))
        pthread_mutex_unlock(&d->inside);
    else
        settle_and_leave(d);
}

/* ---- what the agent asks of its driver ---- */

static uint64_t now_us_of(void *self)
{
    (void)self;
    return mrc_now_us();
}

static bool is_inherited(void *self)
{
    const struct mrc_rpc_driver *d = self;

    return d->forks != mrc_forks();
}

static bool enter(void *self)
{
    struct mrc_rpc_driver *d = self;

    return pthread_mutex_trylock(&d->inside) == 0;
}

static void leave_with_call(void *self, bool more)
{
    struct mrc_rpc_driver *d = self;

    d->unsent++;
    if (!more && (d->unsent >= FLUSH_CALLS || mrc_now_us() - d->flushed_us >= FLUSH_US)) {
        settle_and_leave(d);
        return;
    }
    /* Sent by this thread, which waits soon or calls on, or by who has the role; our own thread, when it
     * keeps out of the way, looks after a moment. Only one that sleeps for longer must be told, once. */
    bool first = !atomic_exchange(&d->has_unsent, true);

    pthread_mutex_unlock(&d->inside);
    mr_fence();
    if (mr_agent_has_work(d->agent))
        mrc_rpc_settle(d);
    else if (!more && first && atomic_load(&d->sleep_until_us) != 0)
        mrc_rpc_signal(d->wake_fd);
}

static void wake(void *self)
{
    struct mrc_rpc_driver *d = self;

    if (!atomic_load(&d->awake))
        mrc_rpc_settle(d);
}

/* ---- what the endpoint says ---- */

static void on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct mrc_rpc_driver *d = app;

    if (!mr_agent_on_request(d->agent, request))
        mr_reply_status(ep, request->ref, MR_UNKNOWN_OP);
}

static void on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply)
{
    mr_agent_on_reply(((struct mrc_rpc_driver *)app)->agent, call, user, status, reply);
}

static void on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event)
{
    mr_agent_on_session(((struct mrc_rpc_driver *)app)->agent, session, event);
}

/* ---- who has the role ---- */

void mrc_rpc_signal(int event_fd)
{
    uint64_t one = 1;

    (void)!write(event_fd, &one, sizeof(one));
}

static void drain(int event_fd)
{
    uint64_t count;

    (void)!read(event_fd, &count, sizeof(count));
}

/* What was received: requests and answers. */
static void process(struct mrc_rpc_driver *d)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t bytes;

    pthread_mutex_lock(&d->inside);
    for (uint32_t i = 0; i < BURSTS_MAX; i++) {
        uint64_t now_us = mrc_now_us();

        while (mrc_udp_receive_next(d->receiver, &from, &datagram, &bytes))
            mr_endpoint_receive(d->ep, now_us, &from, datagram, bytes);
        if (i + 1 == BURSTS_MAX || !mrc_udp_receive(d->receiver))
            break;
    }
    settle_and_leave(d);
}

static bool is_done(_Atomic uint32_t *done)
{
    return done != NULL && (atomic_load(done) & MR_DONE) != 0;
}

static bool something_to_do(struct mrc_rpc_driver *d, uint64_t now_us)
{
    return mr_agent_has_work(d->agent) || atomic_load(&d->has_unsent) || atomic_load(&d->next_us) <= now_us;
}

static void sleep_until(struct mrc_rpc_driver *d, _Atomic uint32_t *done, uint64_t until_us)
{
    struct epoll_event events[2];
    uint64_t now_us = mrc_now_us();

    if (until_us > now_us + SLEEP_MAX_US)
        until_us = now_us + SLEEP_MAX_US;
    atomic_store(&d->sleep_until_us, until_us);
    atomic_store(&d->awake, false);
    mr_fence();
    uint64_t next_us = atomic_load(&d->next_us);

    if (next_us < until_us)
        until_us = next_us;
    if (until_us > now_us && !something_to_do(d, now_us) && !is_done(done) && !atomic_load(&d->stopping)) {
        if (mrc_epoll_sleep(d->epoll_fd, events, 2, until_us - now_us) > 0)
            drain(d->wake_fd);
    }
    atomic_store(&d->awake, true);
    atomic_store(&d->sleep_until_us, 0);
}

void mrc_rpc_round(struct mrc_rpc_driver *d, _Atomic uint32_t *done, uint32_t spin_us, uint64_t deadline_us)
{
    uint64_t now_us = mrc_now_us();

    if (something_to_do(d, now_us)) {
        pthread_mutex_lock(&d->inside);
        settle_and_leave(d);
    }
    uint64_t spin_until_us = now_us + spin_us;
    bool got;

    for (;;) {
        got = mrc_udp_receive(d->receiver);
        if (got || is_done(done))
            break;
        now_us = mrc_now_us();
        if (something_to_do(d, now_us) || now_us >= deadline_us)
            return;
        if (now_us >= spin_until_us) {
            sleep_until(d, done, deadline_us);
            got = mrc_udp_receive(d->receiver);
            break;
        }
    }
    if (got)
        process(d);
}

/* ---- made and destroyed ---- */

static enum mr_status create_endpoint(struct mrc_rpc_driver *d, const struct mrc_rpc_driver_options *options)
{
    struct mr_endpoint_config config;

    mr_endpoint_config_default(&config);
    if (options->has_psk) {
        memcpy(config.psk[0], options->psk, MR_PSK_BYTES);
        config.psk_count = 1;
    }
    config.io = mrc_udp_io(d->sender);
    config.app = d;
    config.on_request = on_request;
    config.on_reply = on_reply;
    config.on_session = on_session;
    memcpy(config.client_uuid, d->uuid, MR_UUID_BYTES);
    config.incarnation = d->incarnation;
    config.core_count = 1;
    config.map_version = 1;
    config.sessions_max = SESSIONS_PER_PEER * options->world_size + SESSIONS_SPARE;
    config.sessions_per_address = config.sessions_max;
    config.hellos_per_address = 100000;
    config.calls_max = CALLS_MAX;
    config.udp_bytes_max = d->socket.udp_bytes_max;
    config.receive_window_bytes = d->socket.receive_window_bytes;
    config.memory_bytes = options->memory_bytes;
    return mr_endpoint_create(&config, &d->ep);
}

static enum mr_status watch(struct mrc_rpc_driver *d, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? MR_OK : MR_NO_MEMORY;
}

static enum mr_status create_parts(struct mrc_rpc_driver *d, const struct mrc_rpc_driver_options *options)
{
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->own_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    d->receiver = mrc_udp_receiver_create(&d->socket);
    d->sender = mrc_udp_sender_create(&d->socket, !mrc_env_is_off(MRC_ENV_GSO));
    if (d->epoll_fd < 0 || d->wake_fd < 0 || d->own_fd < 0 || d->receiver == NULL || d->sender == NULL ||
        watch(d, d->socket.fd) != MR_OK || watch(d, d->wake_fd) != MR_OK)
        return MR_NO_MEMORY;
    if (getrandom(d->uuid, sizeof(d->uuid), 0) != (ssize_t)sizeof(d->uuid) ||
        getrandom(&d->incarnation, sizeof(d->incarnation), 0) != (ssize_t)sizeof(d->incarnation))
        return MR_INTERNAL;
    d->incarnation |= 1u;
    return create_endpoint(d, options);
}

enum mr_status mrc_rpc_driver_create(const struct mrc_rpc_driver_options *options,
                                     struct mrc_rpc_driver **out, char *error, size_t error_bytes)
{
    struct mrc_udp_options socket_options = {.udp_bytes_max = options->udp_bytes_max};
    struct mrc_rpc_driver *d = calloc(1, sizeof(*d));

    if (d == NULL) {
        snprintf(error, error_bytes, "no memory for a worker");
        return MR_NO_MEMORY;
    }
    d->forks = mrc_forks();
    d->epoll_fd = d->wake_fd = d->own_fd = -1;
    d->busy_poll_us = options->busy_poll_us;
    atomic_store(&d->next_us, 0);
    pthread_mutex_init(&d->inside, NULL);
    pthread_mutex_init(&d->role, NULL);
    pthread_mutex_init(&d->sleepers_lock, NULL);
    enum mr_status status = mrc_udp_bind(&options->local, &socket_options, &d->socket, error, error_bytes);

    if (status != MR_OK) {
        d->socket.fd = -1;
    } else {
        status = create_parts(d, options);
        if (status != MR_OK)
            snprintf(error, error_bytes, "a worker's socket and memory: %s", mr_status_text(status));
    }
    if (status != MR_OK) {
        mrc_rpc_driver_destroy(d);
        return status;
    }
    *out = d;
    return MR_OK;
}

void mrc_rpc_driver_configure(struct mrc_rpc_driver *d, struct mr_agent_config *config)
{
    config->driver = (struct mr_agent_driver){.self = d,
                                              .now_us = now_us_of,
                                              .enter = enter,
                                              .leave = leave_with_call,
                                              .wake = wake,
                                              .wait = mrc_rpc_wait,
                                              .is_inherited = is_inherited};
    config->endpoint = d->ep;
    memcpy(config->uuid, d->uuid, MR_UUID_BYTES);
    config->incarnation = d->incarnation;
}

enum mr_status mrc_rpc_driver_start(struct mrc_rpc_driver *d, struct mr_rpc *agent)
{
    d->agent = agent;
    if (pthread_create(&d->thread, NULL, mrc_rpc_thread, d) != 0) {
        d->agent = NULL;
        return MR_NO_MEMORY;
    }
    d->has_thread = true;
    return MR_OK;
}

static void close_agent(struct mrc_rpc_driver *d)
{
    pthread_mutex_lock(&d->inside);
    mr_agent_close(d->agent);
    settle_and_leave(d);
    mr_agent_join(d->agent);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void mrc_rpc_driver_close(struct mrc_rpc_driver *d)
{
    if (atomic_load(&d->closed) || is_inherited(d))
        return;
    if (d->agent != NULL)
        close_agent(d);
    if (d->has_thread) {
        atomic_store(&d->stopping, true);
        mrc_rpc_signal(d->wake_fd);
        mrc_rpc_signal(d->own_fd);
        pthread_join(d->thread, NULL);
    }
    pthread_mutex_lock(&d->inside);
    atomic_store(&d->closed, true);
    mrc_udp_close(&d->socket);
    pthread_mutex_unlock(&d->inside);
    close_fd(&d->epoll_fd);
    close_fd(&d->wake_fd);
    close_fd(&d->own_fd);
}

/* Nothing of the agent is left that lies in the endpoint's memory, or wakes us. */
static void driver_free(void *self)
{
    struct mrc_rpc_driver *d = self;

    mr_endpoint_destroy(d->ep);
    mrc_udp_sender_destroy(d->sender);
    mrc_udp_receiver_destroy(d->receiver);
    pthread_mutex_destroy(&d->sleepers_lock);
    pthread_mutex_destroy(&d->role);
    pthread_mutex_destroy(&d->inside);
    free(d);
}

void mrc_rpc_driver_destroy(struct mrc_rpc_driver *d)
{
    if (d == NULL || is_inherited(d))
        return;
    mrc_rpc_driver_close(d);
    if (d->agent == NULL)
        driver_free(d);
    else
        mr_agent_destroy(d->agent, driver_free);
}
