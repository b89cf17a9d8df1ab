/* epoll_pwait2() for wheels, which also run with C libraries older than the one that they are built with:
 * glibc has it from 2.35. */
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *limit,
                 const sigset_t *mask)
{
    return (int)syscall(SYS_epoll_pwait2, fd, events, count, limit, mask, _NSIG / 8);
}
