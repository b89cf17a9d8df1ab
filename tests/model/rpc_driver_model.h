/* dataplane/rpc/base/work.c and trainer_client/rpc/rpc_driver.c, with models of what is below them: no
 * packets but those of model_packet, no clock, and system calls that order nothing. Sleeps have no
 * time-out: one that ends only by it would last for ever.
 */
#ifndef RPC_DRIVER_MODEL_H
#define RPC_DRIVER_MODEL_H

#include "model.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/udp/udp_endpoint.h"
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/forks.h"
#include "trainer_client/socket/epoll_sleep.h"

enum { MODEL_WAKE_FD = 1, MODEL_OWN_FD = 2 };

static _Atomic uint32_t model_events[3]; /* of each eventfd */
static _Atomic uint32_t model_packet;    /* 1: a packet waits in the socket */

/* ---- the system ---- */

static long model_futex(_Atomic uint32_t *word, int operation, uint32_t seen)
{
    if (operation == FUTEX_WAIT_PRIVATE)
        MODEL_WAIT_WHILE(atomic_load_explicit(word, memory_order_relaxed) == seen);
    return 0;
}

static long model_write(int fd)
{
    atomic_store_explicit(&model_events[fd], 1, memory_order_relaxed);
    return 8;
}

static long model_read(int fd, uint64_t *count)
{
    *count = 1;
    atomic_store_explicit(&model_events[fd], 0, memory_order_relaxed);
    return 8;
}

#undef read
#undef write
#undef close
#define syscall(number, word, operation, value, timeout, word2, value3)                                      \
    ((void)(timeout), model_futex(word, operation, (uint32_t)(value)))
#define write(fd, value, bytes) ((void)(value), model_write(fd))
#define read(fd, count, bytes)  model_read(fd, count)
#define mr_clock_us()           UINT64_C(1)

int mrc_epoll_sleep(int epoll_fd, struct epoll_event *events, int count, uint64_t left_us)
{
    (void)epoll_fd;
    (void)events;
    (void)count;
    (void)left_us;
    MODEL_WAIT_WHILE(atomic_load_explicit(&model_packet, memory_order_relaxed) != 1 &&
                     atomic_load_explicit(&model_events[MODEL_WAKE_FD], memory_order_relaxed) == 0);
    return 1;
}

uint32_t mrc_forks(void)
{
    return 0;
}

/* ---- packets ---- */

static void model_receive(void); /* the packet of model_packet, inside */

bool mr_udp_receive(struct mr_udp_receiver *receiver)
{
    (void)receiver;
    return atomic_load_explicit(&model_packet, memory_order_relaxed) == 1;
}

uint32_t mr_udp_endpoint_take(struct mr_udp_endpoint *e)
{
    (void)e;
    uint32_t count = 0;
    for (; mr_udp_receive(NULL); count++) {
        atomic_store_explicit(&model_packet, 2, memory_order_relaxed);
        model_receive();
    }
    return count;
}

bool mr_udp_endpoint_send(struct mr_udp_endpoint *e, uint64_t now_us, uint32_t segments)
{
    (void)now_us;
    (void)segments;
    e->next_us = UINT64_MAX;
    return true;
}

/* ---- the agent ---- */

uint64_t mr_agent_poll(struct mr_rpc *agent, uint64_t now_us)
{
    (void)now_us;
    mr_agent_run_work(agent);
    return UINT64_MAX;
}

void mr_executor_blocks(void)
{
}

void mr_executor_unblocks(void)
{
}

/* ---- what is checked ---- */

#include "dataplane/rpc/base/work.c"       // NOLINT(bugprone-suspicious-include)
#include "trainer_client/rpc/rpc_driver.c" // NOLINT(bugprone-suspicious-include)

static struct mr_rpc model_agent;
static struct mrc_rpc_driver model_driver;

static void model_agent_free(struct mr_rpc *agent)
{
    (void)agent;
    assert(!"the agent is held");
}

/* Nobody is inside, and nobody has the role. */
static void model_begin(void)
{
    struct mrc_rpc_driver *d = &model_driver;
    d->agent = &model_agent;
    d->wake_fd = MODEL_WAKE_FD;
    d->own_fd = MODEL_OWN_FD;
    d->unsent = 0;
    d->flushed_us = d->called_us = 0;
    d->sleepers = NULL;
    pthread_mutex_init(&d->inside, NULL);
    pthread_mutex_init(&d->role, NULL);
    pthread_mutex_init(&d->sleepers_lock, NULL);
    atomic_store(&d->next_us, UINT64_MAX);
    atomic_store(&d->sleep_until_us, 0);
    atomic_store(&d->sleeps_in_wait, false);
    atomic_store(&d->waiters, 0);
    atomic_store(&d->has_unsent, false);
    atomic_store(&d->awake, false);
    atomic_store(&d->keeps_out, false);
    atomic_store(&d->stopping, false);
    atomic_store(&d->closed, false);
    atomic_store(&model_packet, 0);
    atomic_store(&model_events[MODEL_WAKE_FD], 0);
    atomic_store(&model_events[MODEL_OWN_FD], 0);
    model_agent.free = model_agent_free;
    model_agent.config.driver.self = d;
    model_agent.config.driver.wake = rpc_driver_wake;
    pthread_mutex_init(&model_agent.late, NULL);
    atomic_store(&model_agent.holds, 1);
    atomic_store(&model_agent.work, NULL);
    atomic_store(&model_agent.over, false);
}

#endif
