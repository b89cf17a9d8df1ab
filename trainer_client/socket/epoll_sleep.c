#include "trainer_client/socket/epoll_sleep.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"

#define US_PER_MS 1000u

static int sleep_ms(int epoll_fd, struct epoll_event *events, int count, uint64_t left_us)
{
    uint64_t left_ms = (left_us + US_PER_MS - 1) / US_PER_MS;
    return epoll_wait(epoll_fd, events, count, left_ms < INT_MAX ? (int)left_ms : INT_MAX);
}

int mrc_epoll_sleep(int epoll_fd, struct epoll_event *events, int count, uint64_t left_us)
{
    static _Atomic bool missing; /* older kernels, and sandboxes that refuse unknown calls (EPERM) */
    if (atomic_load_explicit(&missing, memory_order_relaxed))
        return sleep_ms(epoll_fd, events, count, left_us);
    struct timespec left = mr_span_us(left_us);
    int ready = epoll_pwait2(epoll_fd, events, count, &left, NULL);

    if (ready >= 0 || (errno != ENOSYS && errno != EPERM))
        return ready;
    atomic_store_explicit(&missing, true, memory_order_relaxed);
    return sleep_ms(epoll_fd, events, count, left_us);
}
