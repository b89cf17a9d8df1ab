/* Two threads wait on one worker (trainer_client/rpc/rpc_driver.c). What the one waits for is ended by a
 * third thread; the answer for the other is in the socket, for whichever thread has the role. The worker's
 * own thread keeps out of the way, and no timer is due. The first does not sleep on when its wait is over,
 * and the second does not sleep with nobody to receive.
 */
#include "rpc_driver_model.h"

static _Atomic uint32_t words[2];

static void model_receive(void)
{
    (void)mr_agent_done(&words[1]);
}

static void *wait_one(void *arg)
{
    const bool is_done = wait_for(&model_driver, arg, UINT64_MAX);
    assert(is_done);
    return NULL;
}

static struct mr_work ending;

static void end_inside(struct mr_rpc *agent, struct mr_work *work)
{
    (void)agent;
    (void)work;
    (void)mr_agent_done(&words[0]);
}

static void *end_first(void *arg)
{
    mr_agent_submit(&model_agent, arg);
    return NULL;
}

static void model_run(void)
{
    model_begin();
    ending.run = end_inside;
    atomic_store(&model_packet, 1);
    for (uint32_t i = 0; i < 2; i++)
        atomic_store(&words[i], 0);
    const pthread_t first = model_start(wait_one, &words[0]), second = model_start(wait_one, &words[1]),
                    third = model_start(end_first, &ending);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    pthread_join(third, NULL);
}
