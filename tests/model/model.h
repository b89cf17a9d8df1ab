/* What the programs of tests/model/ have in common. Each includes the sources that it checks, and defines
 * model_run(): a few threads on them, and assertions over what these threads may see.
 *
 * Under GenMC (scripts/model.sh) model_run() is one program all of whose executions are explored, under a
 * weak memory model. As tests of the build they run MODEL_RUNS times, in the suite `threads` under the
 * thread sanitizer, too.
 */
#ifndef MODEL_H
#define MODEL_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef MODEL_CHECKER
#define MODEL_RUNS 1u
/* A thread that blocks: GenMC reports one that would spin for ever. */
#define MODEL_WAIT_WHILE(condition)                                                                          \
    while (condition) {                                                                                      \
    }
#define sched_yield() ((void)0)
#else
#include <sched.h>
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
