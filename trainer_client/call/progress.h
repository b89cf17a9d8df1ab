/* The threads that wait move the packets.
 *
 * One waiting thread at a time drives the client: it receives without the lock, and then handles the packets
 * and runs the timers with it. The others sleep, each on its own condition, and are woken when what they wait
 * for has come true; a driver that leaves wakes one of them to take its place. A thread that sends does so
 * itself, under the lock, and interrupts a sleeping driver only when the new timer is due before the driver
 * would wake up.
 */
#ifndef MRC_PROGRESS_H
#define MRC_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/call/answer_time.h"

struct mr_client;
struct mrc_link;
struct mrc_waiter;

struct mrc_progress {
    int epoll_fd; /* every link's socket, and wake_fd */
    int wake_fd;
    bool driving;            /* a thread is the driver */
    bool sleeping;           /* ... and it sleeps until sleep_until_us */
    uint64_t sleep_until_us; /* valid while sleeping */
    uint64_t calls_ended;    /* since the start */
    /* those of them that senders ended, and that mrc_progress_once() has not reported yet */
    uint64_t ended_beside;
    /* the caller's own loop may sleep until then, as mr_client_timeout_ms() reported; 0 = it is awake */
    uint64_t reported_us;
    struct mrc_waiter *waiters;
    struct mrc_answer_times answers;
};

/* Opens two descriptors. MR_NO_MEMORY when there are none. */
enum mr_status mrc_progress_init(struct mrc_progress *p);
void mrc_progress_fini(struct mrc_progress *p);
/* What is readable at `fd` wakes the driver; link: whose socket it is, NULL: nobody's. MR_NO_MEMORY. */
enum mr_status mrc_progress_watch(struct mrc_progress *p, int fd, struct mrc_link *link);
/* Sets whether room in the send buffer of the link's socket wakes the driver, too. */
void mrc_progress_watch_room(struct mrc_progress *p, struct mrc_link *link, bool wanted);

/* All functions below need the client's lock, which waits give up meanwhile. */

/* Waits until done(arg), which is called under the lock, returns true, or until deadline_us. Returns
 * done(arg). */
bool mrc_wait(struct mr_client *client, bool (*done)(const void *arg), const void *arg, uint64_t deadline_us);
/* Makes one round without waiting. Returns the number of calls that ended in it or were ended by senders
 * before. */
uint32_t mrc_progress_once(struct mr_client *client);
/* Wakes the driver, or the caller's own loop, if it would sleep past the link's timer. */
void mrc_wake_driver(struct mr_client *client, const struct mrc_link *link);
/* Makes all waiting threads check again, including a driver that sleeps. */
void mrc_wake_all(struct mr_client *client);
/* Returns when the next round is due at the latest. */
uint64_t mrc_progress_next_us(const struct mr_client *client);

/* Does what mrc_link_poll() does, at any time. */
void mrc_progress_poll(struct mr_client *client, struct mrc_link *link);

#endif
