/* The clocks of this machine, and spans of time in the kernel's form. The transport itself is passed
 * the time; this is for the code that drives it. Any thread. */
#ifndef MR_CLOCK_H
#define MR_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t mr_clock_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t mr_clock_us(void)
{
    return mr_clock_ns() / 1000u;
}

/* A clock that goes on while the machine sleeps. */
static inline uint64_t mr_clock_boot_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* Returns the CPU time of the calling thread. Takes a system call. */
static inline uint64_t mr_clock_thread_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns the time of day in milliseconds since 1970, which people may set. */
static inline uint64_t mr_clock_unix_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static inline struct timespec mr_span_us(uint64_t us)
{
    return (struct timespec){.tv_sec = (time_t)(us / 1000000u), .tv_nsec = (long)(us % 1000000u) * 1000};
}

/* Returns the time `us` later than now, for waits until a time of CLOCK_MONOTONIC. */
static inline struct timespec mr_clock_after_us(uint64_t us)
{
    return mr_span_us(mr_clock_us() + us);
}

#endif
