/* Who moves the packets: the threads that wait.
 *
 * One waiting thread at a time drives the client: it receives, without the lock, and then handles what came
 * and runs the timers, with it. The others sleep, each on a condition of its own, and are woken when what
 * they wait for has come true; a driver that leaves wakes one of them to take its place. A thread that sends
 * does it itself, under the lock, and interrupts a sleeping driver only when the new timer is due before the
 * driver would wake up.
 */
#ifndef MRC_PROGRESS_H
#define MRC_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

struct mr_client;
struct mrc_link;
struct mrc_waiter;

struct mrc_progress {
    int epoll_fd; /* every link's socket, and wake_fd */
    int wake_fd;
    bool driving;            /* somebody is the driver */
    bool sleeping;           /* ... and sleeps, until sleep_until_us */
    uint64_t sleep_until_us; /* valid while sleeping */
    uint64_t calls_ended;    /* since the start */
    uint64_t ended_beside;   /* of these: by senders, and mrc_progress_once() has not reported them yet */
    /* the caller's own loop may sleep until then, as mr_client_timeout_ms() reported; 0 = it is awake */
    uint64_t reported_us;
    struct mrc_waiter *waiters;
};

/* Two descriptors. MR_NO_MEMORY when there are none. */
enum mr_status mrc_progress_init(struct mrc_progress *p);
void mrc_progress_fini(struct mrc_progress *p);
enum mr_status mrc_progress_watch(struct mrc_progress *p, int fd);
/* Wake up when that socket's send buffer has room, too, or no longer. */
void mrc_progress_watch_room(struct mrc_progress *p, int fd, bool wanted);

/* All below: under the client's lock, which waits give up meanwhile. */

/* Until done(arg) holds (it is asked under the lock) or deadline_us has come. Returns done(arg). */
bool mrc_wait(struct mr_client *client, bool (*done)(const void *arg), const void *arg, uint64_t deadline_us);
/* One round without waiting. Returns the calls that ended in it, and those that senders ended before. */
uint32_t mrc_progress_once(struct mr_client *client);
/* A link's timer may have moved forward: the driver, or the caller's own loop, must not sleep past it. */
void mrc_wake_driver(struct mr_client *client, const struct mrc_link *link);
/* Everybody looks again: the driver, too, if it sleeps. */
void mrc_wake_all(struct mr_client *client);
/* When the next round is due at the latest. */
uint64_t mrc_progress_next_us(const struct mr_client *client);

/* mrc_link_poll() at any time, under the lock. */
void mrc_progress_poll(struct mr_client *client, struct mrc_link *link);

#endif
