/* A queue of log records between any threads and one that takes them. Lock-free, no allocation, never blocks.
 * mr_log_queue_init() first.
 */
#ifndef MR_LOG_QUEUE_H
#define MR_LOG_QUEUE_H

#include <stdatomic.h>
#include <stdint.h>
#include "dataplane/wire/base/log_line.h"

#define MR_LOG_QUEUE_RECORDS 128u /* a power of two */

struct mr_log_slot {
    /* n: free for the record with the number n; n + 1: that record is in it */
    _Atomic uint64_t turn;
    struct mr_log_record record;
};

struct mr_log_queue {
    _Atomic uint64_t put; /* the number of the next record */
    uint64_t taken;       /* of the taking thread */
    struct mr_log_slot slots[MR_LOG_QUEUE_RECORDS];
};

static inline void mr_log_queue_init(struct mr_log_queue *q)
{
    atomic_store(&q->put, 0);
    q->taken = 0;
    for (uint64_t i = 0; i < MR_LOG_QUEUE_RECORDS; i++)
        atomic_store(&q->slots[i].turn, i);
}

/* A record to fill, and its number; NULL: the queue is full. */
static inline struct mr_log_record *mr_log_queue_claim(struct mr_log_queue *q, uint64_t *number)
{
    uint64_t n = atomic_load_explicit(&q->put, memory_order_relaxed);
    for (;;) {
        struct mr_log_slot *slot = &q->slots[n % MR_LOG_QUEUE_RECORDS];
        const uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        if (turn < n)
            return NULL;
        if (turn > n) {
            n = atomic_load_explicit(&q->put, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&q->put, &n, n + 1, memory_order_relaxed,
                                                         memory_order_relaxed)) {
            *number = n;
            return &slot->record;
        }
    }
}

/* The record is filled. */
static inline void mr_log_queue_publish(struct mr_log_queue *q, uint64_t number)
{
    atomic_store_explicit(&q->slots[number % MR_LOG_QUEUE_RECORDS].turn, number + 1, memory_order_release);
}

/* The oldest record, until mr_log_queue_release(); NULL: it is not filled yet, or there is none. */
static inline const struct mr_log_record *mr_log_queue_first(const struct mr_log_queue *q)
{
    const struct mr_log_slot *slot = &q->slots[q->taken % MR_LOG_QUEUE_RECORDS];
    return atomic_load_explicit(&slot->turn, memory_order_acquire) == q->taken + 1 ? &slot->record : NULL;
}

static inline void mr_log_queue_release(struct mr_log_queue *q)
{
    atomic_store_explicit(&q->slots[q->taken % MR_LOG_QUEUE_RECORDS].turn, q->taken + MR_LOG_QUEUE_RECORDS,
                          memory_order_release);
    q->taken++;
}

#endif
