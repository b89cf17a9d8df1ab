/* dataplane/wire/base/log_queue.h: a record has one writer, and is read after it was filled and before its
 * slot is used again. There is one free slot at first, so that one of the two writers finds none, or the slot
 * that was just released.
 */
#include "model.h"

#include "dataplane/wire/base/log_queue.h"

#define FIRST UINT64_C(1) /* record of the queue at the start */
#define FREE  (FIRST + MR_LOG_QUEUE_RECORDS - 1)

static struct mr_log_queue queue;
static uint64_t numbers[2];

static void *write_one(void *arg)
{
    uint64_t *number = arg;
    struct mr_log_record *record = mr_log_queue_claim(&queue, number);
    *number = record != NULL ? *number : 0;
    if (record != NULL) {
        record->time.tv_sec = (long)*number;
        mr_log_queue_publish(&queue, *number);
    }
    return NULL;
}

static void *read_one(void *arg)
{
    const struct mr_log_record *record = mr_log_queue_first(&queue);
    (void)arg;
    assert(record != NULL && record->time.tv_sec == (long)FIRST);
    mr_log_queue_release(&queue);
    return NULL;
}

static void model_run(void)
{
    pthread_t threads[3];
    atomic_store(&queue.put, FREE);
    queue.taken = FIRST;
    for (uint64_t n = FIRST; n < FREE; n++) {
        queue.slots[n % MR_LOG_QUEUE_RECORDS].record.time.tv_sec = (long)n;
        atomic_store(&queue.slots[n % MR_LOG_QUEUE_RECORDS].turn, n + 1);
    }
    atomic_store(&queue.slots[FREE % MR_LOG_QUEUE_RECORDS].turn, FREE);
    threads[0] = model_start(write_one, &numbers[0]);
    threads[1] = model_start(write_one, &numbers[1]);
    threads[2] = model_start(read_one, NULL);
    for (uint32_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert(numbers[0] == FREE || numbers[1] == FREE);
    assert(numbers[0] != numbers[1]);
    const uint64_t end = numbers[0] != 0 && numbers[1] != 0 ? FREE + 2 : FREE + 1;
    for (uint64_t n = FIRST + 1; n < end; n++) {
        const struct mr_log_record *record = mr_log_queue_first(&queue);
        assert(record != NULL && record->time.tv_sec == (long)n);
        mr_log_queue_release(&queue);
    }
    assert(mr_log_queue_first(&queue) == NULL);
}
