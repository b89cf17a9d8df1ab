/* dataplane/loop/waiter.c: a core that sleeps until its bell rings does not sleep with something before it.
 * The sleeper does as dataplane/loop/poll.c does, and those who wake it as dataplane/loop/steer.c: put, then
 * ring. Without the time-out of the real sleep a bell that was not rung would be a sleep for ever.
 */
#include "model.h"

#include <poll.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint32_t bell;

static int model_eventfd(void)
{
    atomic_store(&bell, 0);
    return 0;
}

/* System calls order nothing. */
static int model_ppoll(struct pollfd *fds, const struct timespec *nap)
{
    (void)nap;
    MODEL_WAIT_WHILE(atomic_load_explicit(&bell, memory_order_relaxed) == 0);
    fds[0].revents = POLLIN;
    return 1;
}

static long model_read(uint64_t *rung)
{
    *rung = 1;
    atomic_store_explicit(&bell, 0, memory_order_relaxed);
    return 8;
}

static long model_write(const uint64_t *one)
{
    atomic_store_explicit(&bell, (uint32_t)*one, memory_order_relaxed);
    return 8;
}

#undef read
#undef write
#undef close
#define eventfd(...)                 model_eventfd()
#define ppoll(fds, count, nap, mask) model_ppoll(fds, nap)
#define read(fd, rung, bytes)        model_read(rung)
#define write(fd, one, bytes)        model_write(one)
#define close(fd)                    ((void)(fd))

#include "dataplane/loop/waiter.c" // NOLINT(bugprone-suspicious-include)

#define WAKERS 2u

static struct dp_waiter waiter;
static _Atomic uint32_t put[WAKERS]; /* rings, or dp_core.woken */

static void *waiter_wake(void *arg)
{
    atomic_store_explicit((_Atomic uint32_t *)arg, 1, memory_order_release);
    dp_waiter_ring(&waiter);
    return NULL;
}

static uint32_t take_all(void)
{
    uint32_t taken = 0;
    for (uint32_t i = 0; i < WAKERS; i++)
        if (atomic_load_explicit(&put[i], memory_order_relaxed) != 0)
            taken += atomic_exchange(&put[i], 0);
    return taken;
}

static bool nothing_waits(void)
{
    for (uint32_t i = 0; i < WAKERS; i++)
        if (atomic_load_explicit(&put[i], memory_order_relaxed) != 0)
            return false;
    return true;
}

static void *poll_core(void *arg)
{
    uint32_t taken = 0;
    (void)arg;
    while (taken < WAKERS) {
        taken += take_all();
        if (taken == WAKERS)
            break;
        dp_waiter_announce(&waiter);
        if (nothing_waits())
            dp_waiter_sleep(&waiter, UINT64_MAX);
        else
            dp_waiter_cancel(&waiter);
    }
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[WAKERS + 1];
    const bool is_made = dp_waiter_init(&waiter);
    assert(is_made);
    for (uint32_t i = 0; i < WAKERS; i++)
        atomic_store(&put[i], 0);
    threads[WAKERS] = model_start(poll_core, NULL);
    for (uint32_t i = 0; i < WAKERS; i++)
        threads[i] = model_start(waiter_wake, &put[i]);
    for (uint32_t i = 0; i <= WAKERS; i++)
        pthread_join(threads[i], NULL);
    dp_waiter_destroy(&waiter);
}
