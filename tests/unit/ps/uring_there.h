/* Whether tests can expect io_uring. */
#ifndef TESTS_URING_THERE_H
#define TESTS_URING_THERE_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* False, and says so: the kernel has no such call, as emulation of single programs has not. What forbids it,
 * such as a container, does not count. */
static inline bool uring_there(void)
{
    if (syscall(SYS_io_uring_setup, 0, NULL) != -1 || errno != ENOSYS)
        return true;
    printf("skipped: the kernel, or what emulates it, has no io_uring\n");
    return false;
}

#endif
