#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/socket/epoll_sleep.h"
#include "tests/test.h"

#define LEFT_US 2500u

int __real_epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *limit,
                        const sigset_t *mask);
int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *limit,
                        const sigset_t *mask);

static uint32_t asked;
static int refuses; /* an errno; 0: the kernel's own */

int __wrap_epoll_pwait2(int fd, struct epoll_event *events, int count, const struct timespec *limit,
                        const sigset_t *mask)
{
    asked++;
    if (refuses == 0)
        return __real_epoll_pwait2(fd, events, count, limit, mask);
    errno = refuses;
    return -1;
}

static void sleeps_out_its_time_and_hears_what_comes(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), fd = eventfd(0, EFD_CLOEXEC);
    uint64_t begin_us = mr_clock_us(), one = 1;
    assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event), 0);
    assert_int_equal(mrc_epoll_sleep(epoll_fd, &event, 1, LEFT_US), 0);
    assert_true(mr_clock_us() - begin_us >= LEFT_US);
    assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
    assert_int_equal(mrc_epoll_sleep(epoll_fd, &event, 1, UINT64_C(3600000000)), 1);
    close(fd);
    close(epoll_fd);
}

/* In this order: what is missing is not asked for again. */
TEST(an_old_kernel_is_asked_once)
{
    struct epoll_event none;
    sleeps_out_its_time_and_hears_what_comes();
    const bool is_there = __real_epoll_pwait2(-1, &none, 1, NULL, NULL) != -1 || errno != ENOSYS;
    if (!is_there)
        printf("skipped: the kernel, or what emulates it, has no epoll_pwait2\n");
    assert_int_equal(asked, is_there ? 2 : 1);
    refuses = ENOSYS;
    sleeps_out_its_time_and_hears_what_comes();
    sleeps_out_its_time_and_hears_what_comes();
    assert_int_equal(asked, is_there ? 3 : 1);
}
