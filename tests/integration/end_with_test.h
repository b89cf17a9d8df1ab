/* A test that is killed, or fails where nobody tears down, leaves no process behind. */
#ifndef END_WITH_TEST_H
#define END_WITH_TEST_H

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

/* In a child that the process `test` has forked: it is killed when the thread that did so ends. */
static inline void end_with_test(pid_t test)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test)
        _exit(127);
}

#endif
