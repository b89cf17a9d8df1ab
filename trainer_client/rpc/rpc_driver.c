#include "trainer_client/rpc/rpc_driver.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/fence.h"
#include "trainer_client/call/forks.h"
#include "trainer_client/socket/environment.h"
#include "trainer_client/socket/epoll_sleep.h"
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_endpoint.h"

#define SEGMENT_BUDGET    128u
#define SLEEP_MAX_US      1000000u
#define FLUSH_US          20u  /* calls that follow each other faster are sent together */
#define FLUSH_MAX_US      200u /* but none is held for longer */
#define FLUSH_CALLS       32u  /* and no more than these */
#define BURSTS_MAX        4u
#define YIELD_AFTER_US    20u /* of waiting: an answer that needs no other thread has come by then */
#define SETTLE_ROUNDS_MAX 64u
#define SESSIONS_PER_PEER 24u
#define SESSIONS_SPARE    64u
#define CALLS_MAX         16384u
#define POKED             0x80000000u /* bit of the word waited for: look again */
#define OUT_US            500u /* the worker's own thread keeps out of the way after a wait of the program */
#define OUT_LONG_US       100000u /* and while another thread has the role, which wakes it when it leaves */

struct sleeper {
    _Atomic uint32_t *done;
    struct sleeper *next;
    bool is_next; /* it was woken to take the role */
};

struct mrc_rpc_driver {
    struct mr_udp_endpoint udp; /* inside, but for receiving, which the thread does that has the role */
    struct mr_rpc *agent;
    uint32_t forks; /* mrc_forks() when it was made */
    uint32_t busy_poll_us;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t incarnation;
    int epoll_fd, wake_fd; /* of the thread that has the role: waits for the socket and wake_fd */
    int own_fd;            /* wakes the worker's own thread when it keeps out of the way */

    pthread_mutex_t inside;
    uint64_t flushed_us, called_us; /* inside */
    uint32_t unsent;                /* calls since the flush */

    _Atomic uint64_t next_us;        /* when the agent or the endpoint wants to be called; written inside */
    pthread_mutex_t role;            /* to receive */
    _Atomic uint64_t sleep_until_us; /* of the thread that has the role; 0: it does not sleep */
    _Atomic bool sleeps_in_wait;     /* it is a thread of the program, and what it waits for may end */
    _Atomic uint64_t waited_us;      /* when a thread of the program waited last */
    _Atomic uint32_t waiters;        /* of the program's threads */
    _Atomic bool has_unsent;         /* `unsent` is not 0 */
    _Atomic bool awake;     /* the thread that has the role will look at the agent before it sleeps */
    _Atomic bool keeps_out; /* the worker's own thread keeps out of the way for long */
    _Atomic bool stopping;
    _Atomic bool closed; /* there are no threads and no socket: submitted work waits for the end */
    pthread_mutex_t sleepers_lock;
    struct sleeper *sleepers;
    bool has_thread;
    pthread_t thread;
};

static void signal_fd(int event_fd)
{
    uint64_t one = 1;
    (void)!write(event_fd, &one, sizeof(one));
}

/* ---- inside ---- */

/* Work, timers, and what is to be sent. */
static void settle_inside(struct mrc_rpc_driver *d)
{
    for (uint32_t i = 0; i < SETTLE_ROUNDS_MAX; i++) {
        uint64_t now_us = mr_clock_us();
        const uint64_t agent_us = mr_agent_poll(d->agent, now_us);
        const bool is_sent = mr_udp_endpoint_send(&d->udp, now_us, SEGMENT_BUDGET);
        const uint64_t next_us = is_sent && agent_us < d->udp.next_us ? agent_us : d->udp.next_us;
        d->unsent = 0;
        atomic_store(&d->has_unsent, false);
        d->flushed_us = now_us;
        atomic_store(&d->next_us, next_us);
        if (!is_sent || (next_us > now_us && !mr_agent_has_work(d->agent)))
            return;
    }
}

/* The timers may have moved forward, and what the thread that has the role waits for may have ended: it must
 * not sleep past either. */
static void wake_early(struct mrc_rpc_driver *d)
{
    const uint64_t until_us = atomic_load(&d->sleep_until_us);
    if (until_us != 0 && (atomic_load(&d->sleeps_in_wait) || atomic_load(&d->next_us) < until_us))
        signal_fd(d->wake_fd);
}

/* A thread that submits work pushes it, passes a fence (mr_agent_submit_quietly()), and then tries the lock:
 * either that succeeds, or the work is seen here. */
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

/* The same, if nobody is inside. */
static void settle(struct mrc_rpc_driver *d)
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
    return mr_clock_us();
}

static bool is_inherited(void *self)
{
    const struct mrc_rpc_driver *d = self;
    return d->forks != mrc_forks();
}

static bool can_reach(void *self, const struct mr_address *to, char *why, size_t why_bytes)
{
    const struct mrc_rpc_driver *d = self;
    char there[MR_ADDRESS_TEXT_BYTES], here[MR_ADDRESS_TEXT_BYTES];
    struct mr_address local;
    mr_udp_local(&d->udp.socket, &local);
    mr_address_text(to, there);
    mr_address_text(&local, here);
    bool is_other_family = !mr_address_is_any(&local) && mr_address_is_ipv4(&local) != mr_address_is_ipv4(to);
    if (!is_other_family && mr_address_has_route(to))
        return true;
    if (is_other_family)
        snprintf(why, why_bytes,
                 "%s: this worker listens at %s only; name an address of each family (listen)", there, here);
    else
        snprintf(why, why_bytes, "%s: this machine has no route there: %s", there, strerror(errno));
    return false;
}

static bool enter(void *self)
{
    struct mrc_rpc_driver *d = self;
    return pthread_mutex_trylock(&d->inside) == 0;
}

/* One call after a pause is sent at once. */
static bool is_to_flush(struct mrc_rpc_driver *d)
{
    uint64_t now_us = mr_clock_us(), before_us = d->called_us > d->flushed_us ? d->called_us : d->flushed_us;
    d->called_us = now_us;
    return d->unsent >= FLUSH_CALLS || now_us - before_us >= FLUSH_US ||
           now_us - d->flushed_us >= FLUSH_MAX_US;
}

static void leave_with_call(void *self, bool more)
{
    struct mrc_rpc_driver *d = self;
    d->unsent++;
    if (!more && is_to_flush(d)) {
        settle_and_leave(d);
        return;
    }
    /* It is sent by this thread, which waits or calls again soon, or by the one that has the role; the
     * worker's own thread looks after a moment when it keeps out of the way. Only a thread that sleeps for
     * longer must be woken, once. */
    bool first = !atomic_exchange(&d->has_unsent, true);

    pthread_mutex_unlock(&d->inside);
    mr_fence();
    if (mr_agent_has_work(d->agent))
        settle(d);
    else if (!more && first && atomic_load(&d->sleep_until_us) != 0)
        signal_fd(d->wake_fd);
}

static void rpc_driver_wake(void *self)
{
    struct mrc_rpc_driver *d = self;
    if (!atomic_load(&d->awake))
        settle(d);
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

static void drain(int event_fd)
{
    uint64_t count;
    (void)!read(event_fd, &count, sizeof(count));
}

/* What was received: requests and answers. */
static void process(struct mrc_rpc_driver *d)
{
    pthread_mutex_lock(&d->inside);
    for (uint32_t i = 0; i < BURSTS_MAX; i++) {
        (void)mr_udp_endpoint_take(&d->udp);
        if (i + 1 == BURSTS_MAX || !mr_udp_receive(d->udp.receiver))
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
    uint64_t now_us = mr_clock_us();
    if (until_us > now_us + SLEEP_MAX_US)
        until_us = now_us + SLEEP_MAX_US;
    atomic_store(&d->sleeps_in_wait, done != NULL);
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

/* On the thread that has the role: receives for up to `spin_us`, and then sleeps until `deadline_us` at the
 * latest. Ends early when *done has MR_DONE; done may be NULL. */
static void run_round(struct mrc_rpc_driver *d, _Atomic uint32_t *done, uint32_t spin_us,
                      uint64_t deadline_us)
{
    uint64_t now_us = mr_clock_us();
    if (something_to_do(d, now_us)) {
        pthread_mutex_lock(&d->inside);
        settle_and_leave(d);
    }
    uint64_t spin_until_us = now_us + spin_us, yield_from_us = now_us + YIELD_AFTER_US;
    bool got;

    for (;;) {
        got = mr_udp_receive(d->udp.receiver);
        if (got || is_done(done))
            break;
        now_us = mr_clock_us();
        if (something_to_do(d, now_us) || now_us >= deadline_us)
            return;
        if (now_us >= yield_from_us) /* on few CPUs what it waits for may need this one */
            sched_yield();
        if (now_us >= spin_until_us) {
            sleep_until(d, done, deadline_us);
            got = mr_udp_receive(d->udp.receiver);
            break;
        }
    }
    if (got)
        process(d);
}

/* ---- sleeping while another receives ---- */

static void add_sleeper(struct mrc_rpc_driver *d, struct sleeper *sleeper)
{
    pthread_mutex_lock(&d->sleepers_lock);
    sleeper->next = d->sleepers;
    d->sleepers = sleeper;
    pthread_mutex_unlock(&d->sleepers_lock);
}

/* Returns whether the sleeper was woken to take the role. */
static bool remove_sleeper(struct mrc_rpc_driver *d, struct sleeper *sleeper)
{
    pthread_mutex_lock(&d->sleepers_lock);
    struct sleeper **at = &d->sleepers;

    while (*at != sleeper)
        at = &(*at)->next;
    *at = sleeper->next;
    const bool is_next = sleeper->is_next;
    pthread_mutex_unlock(&d->sleepers_lock);
    return is_next;
}

/* Wakes a sleeper whose wait is not over, so that it takes the role. Under the lock, so that its word still
 * exists. */
static void poke_sleeper(struct mrc_rpc_driver *d)
{
    pthread_mutex_lock(&d->sleepers_lock);
    struct sleeper *sleeper = d->sleepers;

    while (sleeper != NULL && is_done(sleeper->done))
        sleeper = sleeper->next;
    if (sleeper != NULL) {
        sleeper->is_next = true;
        atomic_fetch_or(sleeper->done, POKED);
        (void)syscall(SYS_futex, sleeper->done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&d->sleepers_lock);
}

/* Returns whether this thread is to take the role: nobody else may be awake to do so. */
static bool sleep_on(struct mrc_rpc_driver *d, _Atomic uint32_t *done, uint64_t deadline_us)
{
    struct sleeper sleeper = {.done = done};
    uint64_t now_us = mr_clock_us();
    struct timespec left;
    if (deadline_us <= now_us) /* it has passed since the caller looked */
        return false;
    left = mr_span_us(deadline_us > now_us + SLEEP_MAX_US ? SLEEP_MAX_US : deadline_us - now_us);
    add_sleeper(d, &sleeper);
    uint32_t seen = atomic_fetch_or(done, MR_DONE_SLEEPER) | MR_DONE_SLEEPER;
    bool is_next = false;

    /* A thread that gave up the role before this one was in the list has not seen it. One that wants the role
     * while this one holds it goes to sleep. */
    if ((seen & (MR_DONE | POKED)) == 0 && pthread_mutex_trylock(&d->role) == 0) {
        pthread_mutex_unlock(&d->role);
        is_next = true;
    } else if ((seen & (MR_DONE | POKED)) == 0) {
        (void)syscall(SYS_futex, done, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
    }
    is_next |= remove_sleeper(d, &sleeper);
    if (!is_done(done))
        atomic_fetch_and(done, ~POKED);
    return is_next;
}

/* ---- the role ---- */

static bool take_role(struct mrc_rpc_driver *d)
{
    if (pthread_mutex_trylock(&d->role) != 0)
        return false;
    atomic_store(&d->awake, true);
    return true;
}

static void give_role(struct mrc_rpc_driver *d)
{
    atomic_store(&d->awake, false);
    pthread_mutex_unlock(&d->role);
    mr_fence();
    if (mr_agent_has_work(d->agent) || atomic_load(&d->has_unsent))
        settle(d);
    poke_sleeper(d);
}

static bool wait_for(void *self, _Atomic uint32_t *done, uint64_t deadline_us)
{
    struct mrc_rpc_driver *d = self;
    if (is_done(done))
        return true;
    bool is_next = false;
    atomic_fetch_add(&d->waiters, 1);
    while (!is_done(done) && mr_clock_us() < deadline_us) {
        if (take_role(d)) {
            while (!is_done(done) && mr_clock_us() < deadline_us)
                run_round(d, done, d->busy_poll_us, deadline_us);
            give_role(d);
            is_next = false;
            continue;
        }
        if (atomic_load(&d->has_unsent))
            settle(d);
        is_next |= sleep_on(d, done, deadline_us);
    }
    if (is_next) /* what it waited for ended before it took the role: another one is to */
        poke_sleeper(d);
    atomic_store(&d->waited_us, mr_clock_us());
    atomic_fetch_sub(&d->waiters, 1);
    if (atomic_load(&d->keeps_out))
        signal_fd(d->own_fd);
    return is_done(done);
}

/* ---- our own thread ---- */

static void keep_out(struct mrc_rpc_driver *d, uint64_t us)
{
    struct pollfd own = {.fd = d->own_fd, .events = POLLIN};
    struct timespec left = mr_span_us(us);
    uint64_t count;
    if (ppoll(&own, 1, &left, NULL) > 0)
        (void)!read(d->own_fd, &count, sizeof(count));
    if (mr_agent_has_work(d->agent) || atomic_load(&d->has_unsent) ||
        atomic_load(&d->next_us) <= mr_clock_us())
        settle(d);
}

static void *run_thread(void *arg)
{
    struct mrc_rpc_driver *d = arg;
    while (!atomic_load(&d->stopping)) {
        if (mr_clock_us() - atomic_load(&d->waited_us) < OUT_US) {
            keep_out(d, OUT_US);
            continue;
        }
        if (!take_role(d)) {
            /* Set before the check whether any thread waits: one that stops waiting after that wakes this
             * thread. */
            atomic_store(&d->keeps_out, true);
            mr_fence();
            if (atomic_load(&d->waiters) > 0)
                keep_out(d, OUT_LONG_US);
            atomic_store(&d->keeps_out, false);
            continue;
        }
        while (!atomic_load(&d->stopping) && atomic_load(&d->waiters) == 0)
            run_round(d, NULL, 0, UINT64_MAX);
        give_role(d);
        /* A sleeping thread has been woken, and takes the role. */
        if (atomic_load(&d->waiters) > 0)
            keep_out(d, OUT_US);
    }
    return NULL;
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
    config.memory_bytes = options->memory_bytes;
    return mr_udp_endpoint_create(&d->udp, &config);
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
    if (d->epoll_fd < 0 || d->wake_fd < 0 || d->own_fd < 0 || watch(d, d->udp.socket.fd) != MR_OK ||
        watch(d, d->wake_fd) != MR_OK)
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
    struct mr_udp_options socket_options = {.udp_bytes_max = options->udp_bytes_max};
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
    enum mr_status status = mr_udp_endpoint_open(&d->udp, &options->local, &socket_options,
                                                 !mrc_env_is_off(MRC_ENV_GSO), error, error_bytes);
    if (status == MR_OK) {
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
    struct mr_address local;
    mr_udp_local(&d->udp.socket, &local);
    config->driver = (struct mr_agent_driver){.self = d,
                                              .now_us = now_us_of,
                                              .enter = enter,
                                              .leave = leave_with_call,
                                              .wake = rpc_driver_wake,
                                              .wait = wait_for,
                                              .is_inherited = is_inherited,
                                              .can_reach = can_reach};
    for (uint32_t i = 0; i < 2; i++) /* they were given without it */
        if (!mr_address_is_any(&config->own[i]))
            config->own[i].port = local.port;
    config->endpoint = d->udp.ep;
    memcpy(config->uuid, d->uuid, MR_UUID_BYTES);
    config->incarnation = d->incarnation;
}

enum mr_status mrc_rpc_driver_start(struct mrc_rpc_driver *d, struct mr_rpc *agent)
{
    d->agent = agent;
    if (pthread_create(&d->thread, NULL, run_thread, d) != 0) {
        d->agent = NULL;
        return MR_NO_MEMORY;
    }
    d->has_thread = true;
    return MR_OK;
}

static void close_agent(struct mrc_rpc_driver *d)
{
    mr_agent_part(d->agent);
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
        signal_fd(d->wake_fd);
        signal_fd(d->own_fd);
        pthread_join(d->thread, NULL);
    }
    pthread_mutex_lock(&d->inside);
    atomic_store(&d->closed, true);
    mr_udp_close(&d->udp.socket);
    pthread_mutex_unlock(&d->inside);
    close_fd(&d->epoll_fd);
    close_fd(&d->wake_fd);
    close_fd(&d->own_fd);
}

/* Nothing of the agent is left that uses the endpoint's memory, or wakes the driver. */
static void driver_free(void *self)
{
    struct mrc_rpc_driver *d = self;
    mr_udp_endpoint_close(&d->udp);
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
