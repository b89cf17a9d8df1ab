/* How an idle core sleeps, and how others wake it.
 *
 * A sleeping core blocks on the sockets of its queues and on a bell (an eventfd). A thread that puts
 * something on one of its rings rings the bell if the core sleeps. The order is what makes it safe: the
 * sleeper announces itself, then looks at its rings once more, then blocks; the other side puts its item
 * first and looks for the announcement then, with a full fence between the two steps on both sides, so one of
 * them sees the other.
 */
#ifndef DP_WAITER_H
#define DP_WAITER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DP_WAITER_FDS_MAX 8u
/* The longest sleep: bounds what a lost wake-up could cost, and the background work's pause. */
#define DP_NAP_MAX_US 1000u
/* The same where the driver has nothing to block on. */
#define DP_NAP_BLIND_US 50u

struct dp_waiter {
    int bell;
    int fds[DP_WAITER_FDS_MAX];
    uint32_t fd_count;
    bool blind; /* packets may come without a sign */
    _Atomic bool asleep;
};

/* False when the system has no eventfd left. */
bool dp_waiter_init(struct dp_waiter *waiter);
void dp_waiter_destroy(struct dp_waiter *waiter);
/* A queue's socket; -1 for a queue that gives no sign. */
void dp_waiter_watch(struct dp_waiter *waiter, int fd);

/* Announce; then check the rings; then dp_waiter_sleep or dp_waiter_cancel. */
void dp_waiter_announce(struct dp_waiter *waiter);
void dp_waiter_cancel(struct dp_waiter *waiter);
/* Blocks for at most `us_max` and the bounds above. */
void dp_waiter_sleep(struct dp_waiter *waiter, uint64_t us_max);

/* Any thread, after putting something where the core will find it. */
void dp_waiter_ring(struct dp_waiter *waiter);

#endif
