/* Linked in by --wrap=pthread_mutex_unlock: nobody unlocks what he has not locked. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (mutex->__data.__owner != gettid()) { /* glibc notes it for every kind of mutex */
        (void)fprintf(stderr, "a mutex is unlocked by a thread that has not locked it\n");
        abort();
    }
    return __real_pthread_mutex_unlock(mutex);
}
