/* The threads that wait, and the worker's own. */
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/fence.h"
#include "trainer_client/rpc/rpc_driver_internal.h"
#include "trainer_client/socket/clock.h"

#define POKED        0x80000000u /* bit of the word waited for: look again */
#define OUT_US       500u    /* our own thread keeps out of the way so long after a wait of the program's, */
#define OUT_LONG_US  100000u /* and while somebody else has the role; it is told when he leaves */
#define SLEEP_MAX_US 1000000u

static bool is_done(_Atomic uint32_t *done)
{
    return (atomic_load(done) & MR_DONE) != 0;
}

/* ---- sleeping while another receives ---- */

static void add_sleeper(struct mrc_rpc_driver *d, struct mrc_rpc_sleeper *sleeper)
{
    pthread_mutex_lock(&d->sleepers_lock);
    sleeper->next = d->sleepers;
    d->sleepers = sleeper;
    pthread_mutex_unlock(&d->sleepers_lock);
}

static void remove_sleeper(struct mrc_rpc_driver *d, struct mrc_rpc_sleeper *sleeper)
{
    pthread_mutex_lock(&d->sleepers_lock);
    struct mrc_rpc_sleeper **at = &d->sleepers;

    while (*at != sleeper)
        at = &(*at)->next;
    *at = sleeper->next;
    pthread_mutex_unlock(&d->sleepers_lock);
}

/* Under the lock of the sleepers, so that the word is still there. One whose wait is over takes no role. */
static void poke_sleeper(struct mrc_rpc_driver *d)
{
    pthread_mutex_lock(&d->sleepers_lock);
    struct mrc_rpc_sleeper *sleeper = d->sleepers;

    while (sleeper != NULL && is_done(sleeper->done))
        sleeper = sleeper->next;
    if (sleeper != NULL) {
        atomic_fetch_or(sleeper->done, POKED);
        (void)syscall(SYS_futex, sleeper->done, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&d->sleepers_lock);
}

static void sleep_on(struct mrc_rpc_driver *d, _Atomic uint32_t *done, uint64_t deadline_us)
{
    struct mrc_rpc_sleeper sleeper = {.done = done};
    uint64_t now_us = mrc_now_us();
    struct timespec left;

    if (deadline_us <= now_us) /* it has passed since the caller looked */
        return;
    left = mr_span_us(deadline_us > now_us + SLEEP_MAX_US ? SLEEP_MAX_US : deadline_us - now_us);
    add_sleeper(d, &sleeper);
    uint32_t seen = atomic_fetch_or(done, MR_DONE_SLEEPER) | MR_DONE_SLEEPER;

    /* Who gave the role up before we were in the list did not see us. */
    if ((seen & (MR_DONE | POKED)) == 0 && pthread_mutex_trylock(&d->role) == 0)
        pthread_mutex_unlock(&d->role);
    else if ((seen & (MR_DONE | POKED)) == 0)
        (void)syscall(SYS_futex, done, FUTEX_WAIT_PRIVATE, seen, &left, NULL, 0);
    remove_sleeper(d, &sleeper);
    if (!is_done(done))
        atomic_fetch_and(done, ~POKED);
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
        mrc_rpc_settle(d);
    poke_sleeper(d);
}

bool mrc_rpc_wait(void *self, _Atomic uint32_t *done, uint64_t deadline_us)
{
    struct mrc_rpc_driver *d = self;

    if (is_done(done))
        return true;
    atomic_fetch_add(&d->waiters, 1);
    while (!is_done(done) && mrc_now_us() < deadline_us) {
        if (take_role(d)) {
            while (!is_done(done) && mrc_now_us() < deadline_us)
                mrc_rpc_round(d, done, d->busy_poll_us, deadline_us);
            give_role(d);
            continue;
        }
        if (atomic_load(&d->has_unsent))
            mrc_rpc_settle(d);
        sleep_on(d, done, deadline_us);
    }
    atomic_store(&d->waited_us, mrc_now_us());
    atomic_fetch_sub(&d->waiters, 1);
    if (atomic_load(&d->keeps_out))
        mrc_rpc_signal(d->own_fd);
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
        atomic_load(&d->next_us) <= mrc_now_us())
        mrc_rpc_settle(d);
}

void *mrc_rpc_thread(void *arg)
{
    struct mrc_rpc_driver *d = arg;

    while (!atomic_load(&d->stopping)) {
        if (mrc_now_us() - atomic_load(&d->waited_us) < OUT_US) {
            keep_out(d, OUT_US);
            continue;
        }
        if (!take_role(d)) {
            /* Said before it is looked whether anybody waits: who leaves afterwards tells. */
            atomic_store(&d->keeps_out, true);
            mr_fence();
            if (atomic_load(&d->waiters) > 0)
                keep_out(d, OUT_LONG_US);
            atomic_store(&d->keeps_out, false);
            continue;
        }
        while (!atomic_load(&d->stopping) && atomic_load(&d->waiters) == 0)
            mrc_rpc_round(d, NULL, 0, UINT64_MAX);
        give_role(d);
        /* Who waits and sleeps has been poked, and takes the role. */
        if (atomic_load(&d->waiters) > 0)
            keep_out(d, OUT_US);
    }
    return NULL;
}
