/* Work that threads submit to an agent (dataplane/rpc/base/work.c) runs once each, inside, although a thread
 * that finds another one inside goes away (trainer_client/rpc/rpc_driver.c).
 */
#include "rpc_driver_model.h"

#ifndef IS_OVER
#define IS_OVER false
#endif
#define THREADS 2u

static struct mr_work works[THREADS];
static uint32_t runs[THREADS];
static uint32_t run_count; /* inside */

static void model_receive(void)
{
}

static void run_one(struct mr_rpc *agent, struct mr_work *work)
{
    (void)agent;
    runs[work - works]++;
    run_count++;
}

static void *submit(void *arg)
{
    mr_agent_submit(&model_agent, arg);
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[THREADS];
    model_begin();
    atomic_store(&model_agent.over, IS_OVER);
    run_count = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        works[i].run = run_one;
        runs[i] = 0;
    }
    for (uint32_t i = 0; i < THREADS; i++)
        threads[i] = model_start(submit, &works[i]);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert(!mr_agent_has_work(&model_agent));
    assert(run_count == THREADS);
    for (uint32_t i = 0; i < THREADS; i++)
        assert(runs[i] == 1);
}
