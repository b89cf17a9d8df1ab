/* What a driver is made of: rpc_driver.c has the lock and what is done under it, rpc_wait.c the threads that
 * wait. */
#ifndef MRC_RPC_DRIVER_INTERNAL_H
#define MRC_RPC_DRIVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include "trainer_client/rpc/rpc_driver.h"
#include "trainer_client/socket/udp_receive.h"
#include "trainer_client/socket/udp_send.h"

struct mrc_rpc_sleeper {
    _Atomic uint32_t *done;
    struct mrc_rpc_sleeper *next;
};

struct mrc_rpc_driver {
    struct mrc_udp_socket socket;
    struct mrc_udp_sender *sender;
    struct mrc_udp_receiver *receiver; /* of who has the role */
    struct mr_endpoint *ep;
    struct mr_rpc *agent;
    uint32_t forks; /* mrc_forks() when it was made */
    uint32_t busy_poll_us;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t incarnation;
    int epoll_fd, wake_fd; /* of who has the role: the socket and wake_fd */
    int own_fd;            /* wakes our own thread when it keeps out of the way */

    pthread_mutex_t inside;
    uint64_t flushed_us; /* inside */
    uint32_t unsent;     /* calls since then */

    _Atomic uint64_t next_us;        /* when the agent or the endpoint wants to be called; written inside */
    pthread_mutex_t role;            /* to receive */
    _Atomic uint64_t sleep_until_us; /* of who has the role; 0: does not sleep */
    _Atomic uint64_t waited_us;      /* when a thread of the program waited last */
    _Atomic uint32_t waiters;        /* of the program's threads */
    _Atomic bool has_unsent;         /* `unsent` is not 0 */
    _Atomic bool awake;              /* who has the role is, and will look at the agent before he sleeps */
    _Atomic bool keeps_out;          /* our own thread does, for long */
    _Atomic bool stopping;
    _Atomic bool closed; /* no thread and no socket any more: what is submitted waits for the end */
    pthread_mutex_t sleepers_lock;
    struct mrc_rpc_sleeper *sleepers;
    bool has_thread;
    pthread_t thread;
};

/* The same if nobody is inside. */
void mrc_rpc_settle(struct mrc_rpc_driver *d);
/* By who has the role: one round. Receives for up to `spin_us`, sleeps then, until `deadline_us` at the
 * latest; ends early when *done has MR_DONE. done may be NULL. */
void mrc_rpc_round(struct mrc_rpc_driver *d, _Atomic uint32_t *done, uint32_t spin_us, uint64_t deadline_us);
void mrc_rpc_signal(int event_fd);

/* mr_agent_driver.wait */
bool mrc_rpc_wait(void *self, _Atomic uint32_t *done, uint64_t deadline_us);
/* The worker's own thread; arg: the driver. */
void *mrc_rpc_thread(void *arg);

#endif
