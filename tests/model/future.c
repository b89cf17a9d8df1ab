/* A call's word (dataplane/rpc/call/call.h): a call ends while one thread waits for it, or gives it a
 * function to run. The waiter sees the outcome and does not sleep on; the function runs once, whichever
 * comes first.
 */
#include "rpc_driver_model.h"

#include "dataplane/rpc/call/call.h"

static _Atomic uint32_t word;
static enum mr_status status; /* of the call */
static uint32_t begun[2];     /* `then`, by each thread */

static void model_receive(void)
{
}

static void *end_call(void *arg)
{
    (void)arg;
    status = MR_CANCELLED;
    begun[0] = (mr_agent_done(&word) & MR_RPC_FUTURE_THEN) != 0;
    return NULL;
}

/* Another thread has the role all the time. */
static void *wait_for_call(void *arg)
{
    (void)arg;
    (void)sleep_on(&model_driver, &word, UINT64_MAX);
    if (is_done(&word))
        assert(status == MR_CANCELLED);
    return NULL;
}

static void *give_then(void *arg)
{
    (void)arg;
    begun[1] = (atomic_fetch_or(&word, MR_RPC_FUTURE_THEN) & MR_DONE) != 0;
    assert(!begun[1] || status == MR_CANCELLED);
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[3];
    model_begin();
    status = MR_OK;
    atomic_store(&word, 0);
    begun[0] = begun[1] = 0;
    pthread_mutex_lock(&model_driver.role);
    threads[0] = model_start(end_call, NULL);
    threads[1] = model_start(wait_for_call, NULL);
    threads[2] = model_start(give_then, NULL);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert(begun[0] + begun[1] == 1);
}
