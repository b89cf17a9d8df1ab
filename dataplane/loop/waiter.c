#include "dataplane/loop/waiter.h"
#include "dataplane/wire/base/fence.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

bool dp_waiter_init(struct dp_waiter *waiter)
{
    *waiter = (struct dp_waiter){.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    return waiter->bell >= 0;
}

void dp_waiter_destroy(struct dp_waiter *waiter)
{
    if (waiter->bell >= 0)
        close(waiter->bell);
    waiter->bell = -1;
}

void dp_waiter_watch(struct dp_waiter *waiter, int fd)
{
    if (fd < 0 || waiter->fd_count == DP_WAITER_FDS_MAX)
        waiter->blind = true;
    else
        waiter->fds[waiter->fd_count++] = fd;
}

void dp_waiter_announce(struct dp_waiter *waiter)
{
    atomic_store(&waiter->asleep, true);
    mr_fence();
}

void dp_waiter_cancel(struct dp_waiter *waiter)
{
    atomic_store_explicit(&waiter->asleep, false, memory_order_relaxed);
}

void dp_waiter_sleep(struct dp_waiter *waiter, uint64_t us_max)
{
    struct pollfd fds[DP_WAITER_FDS_MAX + 1] = {{.fd = waiter->bell, .events = POLLIN}};
    uint64_t bound_us = waiter->blind ? DP_NAP_BLIND_US : DP_NAP_MAX_US;
    uint64_t nap_us = us_max < bound_us ? us_max : bound_us;
    struct timespec nap = {.tv_nsec = (long)nap_us * 1000};
    for (uint32_t i = 0; i < waiter->fd_count; i++)
        fds[i + 1] = (struct pollfd){.fd = waiter->fds[i], .events = POLLIN};
    (void)ppoll(fds, waiter->fd_count + 1, &nap, NULL);
    dp_waiter_cancel(waiter);
    if (fds[0].revents != 0) {
        uint64_t rung;
        (void)!read(waiter->bell, &rung, sizeof(rung));
    }
}

void dp_waiter_ring(struct dp_waiter *waiter)
{
    static const uint64_t one = 1;
    mr_fence();
    /* Only the first to find it asleep rings. */
    if (atomic_load_explicit(&waiter->asleep, memory_order_relaxed) &&
        atomic_exchange(&waiter->asleep, false))
        (void)!write(waiter->bell, &one, sizeof(one));
}
