/* A limit on the lines of one place in the code: so many in a second, and a count of the others. Pure; any
 * thread, without locks. Zero is a place that has not logged yet.
 */
#ifndef MR_LOG_BURST_H
#define MR_LOG_BURST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MR_LOG_BURST_MS   1000u  /* a second of lines */
#define MR_LOG_BURST_LONG 60000u /* a burst that goes on is reported after so many milliseconds */

struct mr_log_burst {
    _Atomic uint64_t second; /* when it began, and how many lines it has: MR_LOG_BURST_COUNT_BITS of them */
    _Atomic uint32_t suppressed;
    _Atomic uint64_t first_ms, last_ms; /* of those left out */
};

#define MR_LOG_BURST_COUNT_BITS 24u
#define MR_LOG_BURST_COUNT_MASK ((UINT64_C(1) << MR_LOG_BURST_COUNT_BITS) - 1)

/* True: the line is to be written. now_ms: monotonic, not 0. rate_per_s 0: no limit. */
static inline bool mr_log_burst_admits(struct mr_log_burst *b, uint64_t now_ms, uint32_t rate_per_s)
{
    uint64_t old = atomic_load_explicit(&b->second, memory_order_relaxed), next;
    if (rate_per_s == 0)
        return true;
    do {
        const uint64_t began_ms = old >> MR_LOG_BURST_COUNT_BITS;
        if (old == 0 || now_ms >= began_ms + MR_LOG_BURST_MS) {
            next = now_ms << MR_LOG_BURST_COUNT_BITS | 1;
        } else if ((old & MR_LOG_BURST_COUNT_MASK) < rate_per_s) {
            next = old + 1;
        } else {
            /* The times come before the count: who sees the count sees them. */
            if (atomic_load_explicit(&b->suppressed, memory_order_relaxed) == 0)
                atomic_store_explicit(&b->first_ms, now_ms, memory_order_relaxed);
            atomic_store_explicit(&b->last_ms, now_ms, memory_order_relaxed);
            if (atomic_fetch_add_explicit(&b->suppressed, 1, memory_order_release) == 0)
                atomic_store_explicit(&b->first_ms, now_ms, memory_order_relaxed);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&b->second, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

/* How many lines were left out, once a second has passed without one, or a minute since the first; they
 * are forgotten then. 0: none, or the burst goes on. *lasted_ms is the time from the first to the last.
 * is_last: it is over now. */
static inline uint32_t mr_log_burst_over(struct mr_log_burst *b, uint64_t now_ms, bool is_last,
                                         uint64_t *lasted_ms)
{
    const uint32_t suppressed = atomic_load_explicit(&b->suppressed, memory_order_acquire);
    const uint64_t first_ms = atomic_load_explicit(&b->first_ms, memory_order_relaxed);
    const uint64_t last_ms = atomic_load_explicit(&b->last_ms, memory_order_relaxed);
    if (suppressed == 0 ||
        (!is_last && now_ms < last_ms + MR_LOG_BURST_MS && now_ms < first_ms + MR_LOG_BURST_LONG))
        return 0;
    *lasted_ms = last_ms > first_ms ? last_ms - first_ms : 0;
    return atomic_exchange_explicit(&b->suppressed, 0, memory_order_relaxed);
}

#endif
