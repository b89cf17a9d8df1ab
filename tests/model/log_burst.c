/* dataplane/wire/base/log_burst.h: lines that are left out now are not reported as a burst that is over. */
#include "model.h"

#include "dataplane/wire/base/log_burst.h"

#define NOW_MS UINT64_C(100000)

static struct mr_log_burst burst;

static void *log_one(void *arg)
{
    (void)arg;
    const bool is_admitted = mr_log_burst_admits(&burst, NOW_MS, 1);
    assert(!is_admitted);
    return NULL;
}

static void *log_burst_look(void *arg)
{
    uint64_t lasted_ms;
    (void)arg;
    const uint32_t suppressed = mr_log_burst_over(&burst, NOW_MS, false, &lasted_ms);
    assert(suppressed == 0);
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[3];
    uint64_t lasted_ms = 0;
    atomic_store(&burst.second, NOW_MS << MR_LOG_BURST_COUNT_BITS | 1); /* the line that there may be */
    atomic_store(&burst.suppressed, 0);
    atomic_store(&burst.first_ms, 1); /* of another burst, long ago */
    atomic_store(&burst.last_ms, 1);
    threads[0] = model_start(log_one, NULL);
    threads[1] = model_start(log_one, NULL);
    threads[2] = model_start(log_burst_look, NULL);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    const uint32_t suppressed = mr_log_burst_over(&burst, NOW_MS + MR_LOG_BURST_MS, false, &lasted_ms);
    assert(suppressed == 2 && lasted_ms == 0);
}
