/* What the programs of tests/model/ have in common. Each includes the sources that it checks, and defines
 * model_run(): a few threads on them, and assertions over what these threads may see.
 *
 * Under GenMC (scripts/model.sh) model_run() is one program all of whose executions are explored, under a
 * weak memory model. As tests of the build they run MODEL_RUNS times, in the suite `threads` under the
 * thread sanitizer, too.
 */
#ifndef MODEL_H
#define MODEL_H

#ifdef MODEL_CHECKER
/* GenMC has headers of its own for these, which lack something, and disagree with the system's. */
#define _BITS_PTHREADTYPES_COMMON_H 1
#define __have_pthread_attr_t       1
#define static_assert _Static_assert
#define EOF (-1)
#include <stddef.h>
#include <time.h>
typedef unsigned int gid_t, uid_t;
#endif

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef MODEL_CHECKER
#define MODEL_RUNS 1u
/* A thread that blocks: GenMC reports one that would spin for ever. */
#define MODEL_WAIT_WHILE(condition)                                                                          \
    while (condition) {                                                                                      \
    }
#define sched_yield() 0
#else
#define MODEL_RUNS 200u
#define MODEL_WAIT_WHILE(condition)                                                                          \
    while (condition)                                                                                        \
    (void)sched_yield()
#endif

static void model_run(void);

static inline pthread_t model_start(void *(*run)(void *arg), void *arg)
{
    pthread_t thread;
    const int error = pthread_create(&thread, NULL, run, arg);
    assert(error == 0);
    (void)error;
    return thread;
}

int main(void)
{
    for (uint32_t i = 0; i < MODEL_RUNS; i++)
        model_run();
    return 0;
}

#endif
