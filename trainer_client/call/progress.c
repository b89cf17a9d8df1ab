#include "trainer_client/call/progress.h"
#include "trainer_client/call/call_hooks.h"

#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include "trainer_client/call/client.h"
#include "trainer_client/call/core_link.h"
#include "trainer_client/call/future.h"
#include "trainer_client/call/keys.h"
#include "trainer_client/call/node.h"
#include "dataplane/wire/base/clock.h"
#include "trainer_client/socket/epoll_sleep.h"

#define SPIN_ROUND_US  1000u /* timers are checked at least this often while spinning */
#define WATCH_ROUND_US 100u  /* others' conditions are checked at least this often while an answer is due */
#define NAP_US_MIN     200u  /* for less than this it is not worth going to sleep before an answer is due */
#define SLEEP_MAX_US   1000000u
#define EVENTS_MAX     64
#define BLIND_LINKS    2u /* so many sockets are read without asking which of them have something */

struct mrc_waiter {
    bool (*done)(const void *arg);
    const void *arg;
    uint64_t deadline_us;
    pthread_cond_t ready;
    struct mrc_waiter *next;
};

enum mr_status mrc_progress_init(struct mrc_progress *p)
{
    *p = (struct mrc_progress){.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                               .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (p->epoll_fd >= 0 && p->wake_fd >= 0 && mrc_progress_watch(p, p->wake_fd, NULL) == MR_OK)
        return MR_OK;
    mrc_progress_fini(p);
    return MR_NO_MEMORY;
}

void mrc_progress_fini(struct mrc_progress *p)
{
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    if (p->wake_fd >= 0)
        close(p->wake_fd);
    p->epoll_fd = -1;
    p->wake_fd = -1;
}

enum mr_status mrc_progress_watch(struct mrc_progress *p, int fd, struct mrc_link *link)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    return epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? MR_OK : MR_NO_MEMORY;
}

void mrc_progress_watch_room(struct mrc_progress *p, struct mrc_link *link, bool wanted)
{
    struct epoll_event event = {.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = link};
    (void)epoll_ctl(p->epoll_fd, EPOLL_CTL_MOD, link->socket.fd, &event);
}

static void interrupt_driver(struct mrc_progress *p)
{
    uint64_t one = 1;
    p->sleeping = false;
    (void)!write(p->wake_fd, &one, sizeof(one));
}

void mrc_wake_driver(struct mr_client *client, const struct mrc_link *link)
{
    if (client->progress.sleeping && link->next_us < client->progress.sleep_until_us)
        interrupt_driver(&client->progress);
    if (!client->progress.driving && link->next_us < client->progress.reported_us) {
        client->progress.reported_us = 0;
        interrupt_driver(&client->progress);
    }
}

uint64_t mrc_progress_next_us(const struct mr_client *client)
{
    uint64_t hooks = mrc_call_hooks.next_us(client), keys = mrc_keys_next_us(client);
    uint64_t next = mrc_cluster_next_us(client), notify = mrc_futures_next_us(client);
    next = notify < next ? notify : next;
    next = hooks < next ? hooks : next;
    next = keys < next ? keys : next;

    for (uint32_t n = 0; n < client->node_count; n++) {
        uint64_t node = mrc_node_next_us(client->nodes[n]);
        next = node < next ? node : next;
    }
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        if (link->unsent)
            return 0;
        if (link->next_us < next)
            next = link->next_us;
        if (link->port_us < next)
            next = link->port_us;
    }
    return next;
}

/* Returns the earliest timer or deadline of a waiting thread. */
static uint64_t due_us(const struct mr_client *client)
{
    uint64_t due = mrc_progress_next_us(client);
    for (const struct mrc_waiter *w = client->progress.waiters; w != NULL; w = w->next)
        if (w->deadline_us < due)
            due = w->deadline_us;
    return due;
}

/* Receives on the sockets that have something, of many: a call over several nodes has answers on a few at a
 * time. */
static bool receive_ready(struct mr_client *client)
{
    struct epoll_event events[EVENTS_MAX];
    const int count = epoll_wait(client->progress.epoll_fd, events, EVENTS_MAX, 0);
    bool any = false;
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr != NULL) /* not wake_fd */
            any |= mrc_link_receive(events[i].data.ptr);
    return any;
}

/* The driver alone changes the set of links, so it may read it here without the lock. */
static bool receive_links(struct mr_client *client, uint32_t links)
{
    bool any = false;
    if (links > BLIND_LINKS)
        return receive_ready(client);
    for (uint32_t i = 0; i < links; i++)
        any |= mrc_link_receive(client->links[i]);
    return any;
}

static bool over(const struct mrc_waiter *w, uint64_t now_us)
{
    return w->done(w->arg) || now_us >= w->deadline_us;
}

/* Wakes the threads whose condition has come true. */
static void wake_waiters(struct mr_client *client)
{
    uint64_t now_us = mr_clock_us();
    for (struct mrc_waiter *w = client->progress.waiters; w != NULL; w = w->next)
        if (over(w, now_us))
            pthread_cond_signal(&w->ready);
}

/* A sender receives what arrived while nobody drove. Others wait for that, on a condition or in their own
 * loop. */
static void catch_up_beside(struct mr_client *client, struct mrc_link *link, uint64_t now_us)
{
    struct mrc_progress *p = &client->progress;
    uint64_t before = p->calls_ended;
    mrc_link_catch_up(link, now_us);
    if (p->calls_ended == before)
        return;
    p->ended_beside += p->calls_ended - before;
    p->reported_us = 0;
    interrupt_driver(p);
    wake_waiters(client);
}

void mrc_progress_poll(struct mr_client *client, struct mrc_link *link)
{
    uint64_t now_us = mr_clock_us();
    if (!client->progress.driving)
        catch_up_beside(client, link, now_us);
    mrc_link_poll(link, now_us);
}

static void poll_links(struct mr_client *client, uint64_t now_us)
{
    for (uint32_t i = 0; i < client->link_count; i++) {
        struct mrc_link *link = client->links[i];
        if (link->unsent || link->next_us <= now_us) {
            mrc_link_catch_up(link, now_us);
            mrc_link_poll(link, now_us);
        }
    }
}

/* Handles what was received, and then the timers that are due: an answer may have made room for the next
 * request. */
static void process_links(struct mr_client *client)
{
    uint64_t now_us = mr_clock_us();
    uint32_t links = client->link_count;
    for (uint32_t i = 0; i < links; i++)
        mrc_link_process(client->links[i], now_us);
    mrc_cluster_poll(client);
    mrc_nodes_poll(client);
    mrc_call_hooks.poll(client);
    mrc_keys_poll(client);
    mrc_futures_notify_pending(client);
    for (uint32_t i = 0; i < client->link_count; i++) {
        struct mrc_link *link = client->links[i];
        if (!mrc_link_is_due(link, now_us))
            continue;
        link->received = false;
        mrc_link_choose_port(link, now_us);
        mrc_link_poll(link, now_us);
    }
}

/* Returns whether a condition came true while nobody had the lock: the thread that made it true found no
 * sleeping driver to wake. */
static bool somebody_is_done(const struct mr_client *client)
{
    uint64_t now_us = mr_clock_us();
    for (const struct mrc_waiter *w = client->progress.waiters; w != NULL; w = w->next)
        if (over(w, now_us))
            return true;
    return false;
}

static void sleep_for_packets(struct mr_client *client, uint64_t until_us)
{
    struct mrc_progress *p = &client->progress;
    struct epoll_event events[EVENTS_MAX];
    uint64_t now_us = mr_clock_us(), count;
    if (until_us <= now_us)
        return;
    uint64_t left_us = until_us - now_us > SLEEP_MAX_US ? SLEEP_MAX_US : until_us - now_us;

    p->sleeping = true;
    p->sleep_until_us = now_us + left_us;
    pthread_mutex_unlock(&client->lock);
    (void)mrc_epoll_sleep(p->epoll_fd, events, EVENTS_MAX, left_us);
    pthread_mutex_lock(&client->lock);
    p->sleeping = false;
    (void)!read(p->wake_fd, &count, sizeof(count));
}

/* When the answer to the oldest call in flight is due on one of the links; until_us 0: nobody knows. */
static struct mrc_answer_watch next_watch(const struct mr_client *client)
{
    struct mrc_answer_watch next = {UINT64_MAX, 0};
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mr_link *requests = &client->links[i]->requests, *first = requests->next;
        if (first == requests)
            continue;
        const struct mrc_shard_request *request = MR_CONTAINER(first, struct mrc_shard_request, in_flight);
        if (!request->future->sent)
            continue;
        struct mrc_answer_watch watch = mrc_answer_watch(
            &client->progress.answers, request->future->options.op, request->bytes, request->future->sent_us);
        if (watch.until_us != 0 && watch.from_us < next.from_us)
            next = watch;
    }
    return next;
}

/* How often another thread has had the processor instead of this one. A virtual machine's host takes it
 * without a switch. */
static long thread_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw + usage.ru_nivcsw : 0;
}

/* Spins while an answer is due, unless somebody else is found to want the processor. */
static void spin_for_answer(struct mr_client *client, uint32_t links, uint64_t until_us)
{
    uint64_t away_us = 0, now_us = mr_clock_us();
    bool got = false;
    if (now_us >= until_us)
        return;
    pthread_mutex_unlock(&client->lock);
    long switches = thread_switches();
    while (!got && now_us < until_us && away_us <= MRC_ANSWER_YIELD_US_MAX) {
        const uint64_t before_us = now_us;
        const long switches_before = switches;
        (void)sched_yield();
        now_us = mr_clock_us();
        switches = thread_switches();
        away_us = switches != switches_before ? now_us - before_us : 0;
        got = receive_links(client, links);
    }
    pthread_mutex_lock(&client->lock);
    mrc_answer_yielded(&client->progress.answers, now_us, away_us);
}

/* Whether others want the processor, and the program leaves it to the library what to do then. */
static bool is_crowded(const struct mr_client *client, uint64_t now_us)
{
    return client->watches && mrc_answer_crowded(&client->progress.answers, now_us);
}

/* Nothing came while the driver spun, and so it sleeps, but not while an answer is due. */
static void wait_for_packets(struct mr_client *client, uint32_t links)
{
    uint64_t now_us = mr_clock_us(),
             due = due_us(client); /* others may have sent or begun to wait meanwhile */
    struct mrc_answer_watch watch = {0, 0};
    if (client->watches && !is_crowded(client, now_us))
        watch = next_watch(client);
    if (now_us < watch.until_us && watch.from_us < now_us + NAP_US_MIN) {
        uint64_t until_us = now_us + WATCH_ROUND_US;
        spin_for_answer(client, links, until_us < due ? until_us : due);
        return;
    }
    sleep_for_packets(client, now_us < watch.until_us && watch.from_us < due ? watch.from_us : due);
    (void)receive_links(client, links);
}

/* Makes one round of the driver: does whatever can be done now, and waits otherwise. */
static void drive(struct mr_client *client)
{
    uint64_t now_us = mr_clock_us();
    poll_links(client, now_us);

    uint64_t next_us = due_us(client);
    uint32_t links = client->link_count;
    uint32_t spin_us = client->busy_poll_us < SPIN_ROUND_US ? client->busy_poll_us : SPIN_ROUND_US;
    spin_us = is_crowded(client, now_us) ? 0 : spin_us;
    uint64_t spin_until_us = now_us + spin_us < next_us ? now_us + spin_us : next_us;
    bool got;

    pthread_mutex_unlock(&client->lock);
    do {
        got = receive_links(client, links);
    } while (!got && mr_clock_us() < spin_until_us);
    pthread_mutex_lock(&client->lock);

    if (!got && client->busy_poll_us != UINT32_MAX && !somebody_is_done(client))
        wait_for_packets(client, links);
    process_links(client);
}

static void remove_waiter(struct mr_client *client, struct mrc_waiter *waiter)
{
    struct mrc_waiter **at = &client->progress.waiters;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
}

void mrc_wake_all(struct mr_client *client)
{
    if (client->progress.sleeping)
        interrupt_driver(&client->progress);
    wake_waiters(client);
}

/* Lets another waiting thread take over from the driver, which leaves. */
static void hand_over(struct mr_client *client)
{
    if (client->progress.waiters != NULL)
        pthread_cond_signal(&client->progress.waiters->ready);
}

static void send_unsent(struct mr_client *client)
{
    for (uint32_t i = 0; i < client->link_count; i++)
        if (client->links[i]->unsent)
            mrc_progress_poll(client, client->links[i]);
}

bool mrc_wait(struct mr_client *client, bool (*done)(const void *arg), const void *arg, uint64_t deadline_us)
{
    struct mrc_progress *p = &client->progress;
    if (done(arg))
        return true;
    send_unsent(client);
    struct mrc_waiter self = {.done = done, .arg = arg, .deadline_us = deadline_us, .next = p->waiters};

    pthread_cond_init(&self.ready, NULL);
    p->waiters = &self;
    while (!over(&self, mr_clock_us())) {
        if (p->driving) {
            if (p->sleeping && deadline_us < p->sleep_until_us)
                interrupt_driver(p);
            pthread_cond_wait(&self.ready, &client->lock);
            continue;
        }
        p->driving = true;
        drive(client);
        p->driving = false;
        if (self.next != NULL || p->waiters != &self)
            wake_waiters(client);
    }
    remove_waiter(client, &self);
    if (!p->driving)
        hand_over(client);
    pthread_cond_destroy(&self.ready);
    return done(arg);
}

uint32_t mrc_progress_once(struct mr_client *client)
{
    struct mrc_progress *p = &client->progress;
    uint64_t ended = p->calls_ended - p->ended_beside, count;
    p->reported_us = 0;
    send_unsent(client);
    if (p->driving)
        return 0;
    p->driving = true;
    (void)!read(p->wake_fd, &count, sizeof(count));
    p->ended_beside = 0;
    uint32_t links = client->link_count;

    pthread_mutex_unlock(&client->lock);
    (void)receive_links(client, links);
    pthread_mutex_lock(&client->lock);
    process_links(client);
    p->driving = false;
    wake_waiters(client);
    hand_over(client);
    return (uint32_t)(p->calls_ended - ended);
}
