/* Waiting on an epoll descriptor, in microseconds. Any thread. */
#ifndef MRC_EPOLL_SLEEP_H
#define MRC_EPOLL_SLEEP_H

#include <stdint.h>
#include <sys/epoll.h>

/* As epoll_wait, for `left_us` at most: to the microsecond where the kernel can (epoll_pwait2, Linux 5.11),
 * else to the millisecond above. */
int mrc_epoll_sleep(int epoll_fd, struct epoll_event *events, int count, uint64_t left_us);

#endif
