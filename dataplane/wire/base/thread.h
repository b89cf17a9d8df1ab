/* Threads that a library or a service starts for itself. */
#ifndef MR_THREAD_H
#define MR_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a thread that handles no signals: those are for the program's own threads. 0 or an errno, as
 * pthread_create() returns it. */
static inline int mr_thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
