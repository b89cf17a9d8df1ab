/* Fibers behind pthread.h, semaphore.h and the clocks, for code that is linked with --wrap; what is in a
 * semaphore, a lock or a condition is then ours. And the machine: how many processors there are, and that
 * there is no io_uring, whose answers come when they like. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include "fiber.h"
#include "tests/property/random.h"

#define EPOCH_S    1800000000 /* what the wall clock shows at the beginning */
#define WALL_S_MAX 1000000
#define NS_PER_S   UINT64_C(1000000000)
#define YIELD_NS   1000u
#define PROCESSORS 3

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
int __wrap_sched_yield(void);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
time_t __wrap_time(time_t *now);
int __wrap_sem_init(sem_t *sem, int shared, unsigned value);
int __wrap_sem_destroy(sem_t *sem);
int __wrap_sem_post(sem_t *sem);
int __wrap_sem_wait(sem_t *sem);
int __wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr);
int __wrap_pthread_cond_destroy(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, void *ring, unsigned flags);

/* Of the virtual clock. Somebody sets it time and again, mostly back. */
static int64_t wall_ahead_s = EPOCH_S;

void fiber_set_wall_clock(uint32_t random)
{
    wall_ahead_s = EPOCH_S - random % WALL_S_MAX;
}

/* ---- threads ---- */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    (void)attr;
    *thread = (pthread_t)fiber_start("thread", run, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    void *got = fiber_join((struct fiber *)thread);
    if (result != NULL)
        *result = got;
    return 0;
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return 0;
}

int __wrap_pthread_getaffinity_np(pthread_t thread, size_t bytes, cpu_set_t *set)
{
    (void)thread;
    (void)bytes;
    (void)set;
    return ENOSYS;
}

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid;
    memset(set, 0, bytes);
    for (size_t i = 0; i < PROCESSORS; i++)
        CPU_SET_S(i, bytes, set);
    return 0;
}

/* ---- time ---- */

int __wrap_sched_yield(void)
{
    fiber_sleep_ns(YIELD_NS);
    return 0;
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)left;
    fiber_sleep_ns((uint64_t)wanted->tv_sec * NS_PER_S + (uint64_t)wanted->tv_nsec);
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    uint64_t ns = fiber_look_ns();
    now->tv_sec = (time_t)(ns / NS_PER_S) + (clock == CLOCK_REALTIME ? wall_ahead_s : 0);
    now->tv_nsec = (long)(ns % NS_PER_S);
    return 0;
}

time_t __wrap_time(time_t *now)
{
    time_t seconds = (time_t)(fiber_look_ns() / NS_PER_S) + wall_ahead_s;
    if (now != NULL)
        *now = seconds;
    return seconds;
}

/* ---- semaphores ---- */

struct semaphore {
    uint32_t count;
};
_Static_assert(sizeof(struct semaphore) <= sizeof(sem_t), "it lies in one");

static struct semaphore *in(sem_t *sem)
{
    return (struct semaphore *)(void *)sem;
}

int __wrap_sem_init(sem_t *sem, int shared, unsigned value)
{
    (void)shared;
    in(sem)->count = value;
    return 0;
}

int __wrap_sem_destroy(sem_t *sem)
{
    (void)sem;
    return 0;
}

int __wrap_sem_post(sem_t *sem)
{
    in(sem)->count++;
    fiber_wake(sem);
    return 0;
}

int __wrap_sem_wait(sem_t *sem)
{
    while (in(sem)->count == 0)
        (void)fiber_wait(sem, FIBER_NEVER);
    in(sem)->count--;
    return 0;
}

int __wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until)
{
    while (in(sem)->count == 0) {
        /* Whoever waits by the wall clock waits on when it is set back. */
        const int64_t ahead_s = clock == CLOCK_REALTIME ? wall_ahead_s : 0;
        const uint64_t until_ns = (uint64_t)(until->tv_sec - ahead_s) * NS_PER_S + (uint64_t)until->tv_nsec;

        if (fiber_now_ns() >= until_ns) {
            errno = ETIMEDOUT;
            return -1;
        }
        (void)fiber_wait(sem, until_ns);
    }
    in(sem)->count--;
    return 0;
}

/* ---- locks and conditions ---- */

struct lock {
    bool is_taken;
};
_Static_assert(sizeof(struct lock) <= sizeof(pthread_mutex_t), "it lies in one");

static struct lock *of(pthread_mutex_t *mutex)
{
    return (struct lock *)(void *)mutex;
}

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    (void)attr;
    of(mutex)->is_taken = false;
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    (void)mutex;
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    while (of(mutex)->is_taken)
        (void)fiber_wait(mutex, FIBER_NEVER);
    of(mutex)->is_taken = true;
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    of(mutex)->is_taken = false;
    fiber_wake(mutex);
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr)
{
    (void)cond;
    (void)attr;
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond)
{
    (void)cond;
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    fiber_wake(cond);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    fiber_wake(cond);
    return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    of(mutex)->is_taken = false;
    fiber_wake(mutex);
    (void)fiber_wait(cond, FIBER_NEVER);
    return __wrap_pthread_mutex_lock(mutex);
}

/* ---- the machine ---- */

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags)
{
    uint8_t *to = out;
    (void)flags;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)random_next(fiber_random());
    return (ssize_t)bytes;
}

int __wrap_io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
    (void)entries;
    (void)ring;
    (void)flags;
    return -EPERM;
}
