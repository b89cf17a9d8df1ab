/* The one way in which a test waits for something that another thread or program does: a condition is asked
 * again and again until it holds. A test never sleeps in the hope that something has happened by then. */
#ifndef MR_TEST_WAIT_H
#define MR_TEST_WAIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#define WAIT_LIMIT_S 60u /* it only ends a test that would hang: a starved machine does not reach it */
/* Between two looks at a condition: longer when it has been a while, so that who waits for seconds leaves the
 * processor to others. */
#define WAIT_PAUSE_US     500u
#define WAIT_PAUSE_MAX_US 20000u

static inline uint64_t wait_clock_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Between two looks, where the condition is in a loop of its own. */
static inline void wait_pause(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_PAUSE_US * 1000L}, NULL);
}

static inline void wait_pause_since(uint64_t began_us)
{
    uint64_t us = (wait_clock_us() - began_us) / 16;
    us = us < WAIT_PAUSE_US ? WAIT_PAUSE_US : us > WAIT_PAUSE_MAX_US ? WAIT_PAUSE_MAX_US : us;
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* Whether a thread of this process sleeps, for whatever it waits. */
static inline bool thread_sleeps(pid_t thread)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
    FILE *f = fopen(path, "r");
    const bool sleeps = f != NULL && fgets(text, sizeof(text), f) != NULL && strstr(text, ") S ") != NULL;
    if (f != NULL)
        (void)fclose(f);
    return sleeps;
}

/* Whether a condition comes true within `limit_s` seconds, on any thread. It is asked once more when they are
 * over, as the thread may have had no processor. Calls before it, with commas, are made each time. */
#define WAIT_WITHIN(limit_s, ...)                                                                            \
    ({                                                                                                       \
        const uint64_t wait_began_us_ = wait_clock_us();                                                     \
        bool wait_is_over_, wait_holds_;                                                                     \
        while (wait_is_over_ = wait_clock_us() - wait_began_us_ > (uint64_t)(limit_s)*1000000,               \
               wait_holds_ = (__VA_ARGS__), !wait_holds_ && !wait_is_over_)                                  \
            wait_pause_since(wait_began_us_);                                                                \
        wait_holds_;                                                                                         \
    })

/* Waits until a condition holds; the test fails otherwise, and says which. After <cmocka.h>. */
#define WAIT_UNTIL(...)                                                                                      \
    do {                                                                                                     \
        if (!WAIT_WITHIN(WAIT_LIMIT_S, __VA_ARGS__))                                                         \
            fail_msg("not within %u s: %s", WAIT_LIMIT_S, #__VA_ARGS__);                                     \
    } while (0)

#endif
