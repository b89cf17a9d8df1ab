/* Histograms of spans of time, log-linear: 32 buckets for each power of two, so that a bucket is at most 1/32
 * of its values wide and its middle at most 1.6 % away from any of them. From 0 ns to 68 s; longer spans
 * count in the last bucket, and in max_ns.
 *
 * One thread writes, others read a copy at any time (mr_histogram_read) without a lock. Counts never go back,
 * so the histogram of a window is what its end has more than its beginning (mr_histogram_subtract), and that
 * of several writers is their sum (mr_histogram_merge).
 *
 * Source: G. Tene, HdrHistogram (buckets and what readers do with them).
 */
#ifndef MR_HISTOGRAM_H
#define MR_HISTOGRAM_H

#include <stdint.h>
#include "mr_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_HISTOGRAM_BITS    5 /* 2^5 buckets for each power of two */
#define MR_HISTOGRAM_BUCKETS 1024

struct mr_histogram {
    uint64_t count, sum_ns;
    uint64_t max_ns; /* of all; of a window: the largest it can have had (mr_histogram_subtract) */
    uint64_t buckets[MR_HISTOGRAM_BUCKETS];
};

/* Returns the bucket of a span, and the spans of a bucket: from its low end up to the next one's. */
static inline uint32_t mr_histogram_bucket(uint64_t ns)
{
    if (ns < (1u << MR_HISTOGRAM_BITS))
        return (uint32_t)ns;
    const uint32_t shift = 63u - (uint32_t)__builtin_clzll(ns) - MR_HISTOGRAM_BITS;
    const uint64_t bucket = ((uint64_t)shift << MR_HISTOGRAM_BITS) + (ns >> shift);
    return bucket < MR_HISTOGRAM_BUCKETS ? (uint32_t)bucket : MR_HISTOGRAM_BUCKETS - 1;
}

static inline uint64_t mr_histogram_low_ns(uint32_t bucket)
{
    if (bucket < (1u << MR_HISTOGRAM_BITS))
        return bucket;
    const uint32_t shift = (bucket >> MR_HISTOGRAM_BITS) - 1;
    return ((uint64_t)(bucket & ((1u << MR_HISTOGRAM_BITS) - 1)) + (1u << MR_HISTOGRAM_BITS)) << shift;
}

/* Counts a span `times` times. The writer's thread. */
static inline void mr_histogram_add(struct mr_histogram *h, uint64_t ns, uint32_t times)
{
    uint64_t *bucket = &h->buckets[mr_histogram_bucket(ns)];
    __atomic_store_n(bucket, *bucket + times, __ATOMIC_RELAXED);
    __atomic_store_n(&h->sum_ns, h->sum_ns + ns * times, __ATOMIC_RELAXED);
    if (ns > h->max_ns)
        __atomic_store_n(&h->max_ns, ns, __ATOMIC_RELAXED);
}

/* Copies what another thread writes. `count` is the sum of the copied buckets (the writer keeps none), so
 * that percentiles of the copy are true to themselves; `sum_ns` may be some spans ahead or behind. */
MR_API void mr_histogram_read(const struct mr_histogram *written, struct mr_histogram *out);
/* Adds `other`, a copy, to `to`, another. */
MR_API void mr_histogram_merge(struct mr_histogram *to, const struct mr_histogram *other);
/* Takes what `before` already had away from `now`, both copies of the same. The window's max_ns is `now`'s if
 * that is larger than before, and otherwise the upper end of the highest bucket that has grown. */
MR_API void mr_histogram_subtract(struct mr_histogram *now, const struct mr_histogram *before);
/* Returns the span that `share` (0 to 1) of all counted ones do not exceed: the middle of its bucket, and at
 * most max_ns. 0 if nothing was counted. */
MR_API uint64_t mr_histogram_percentile_ns(const struct mr_histogram *h, double share);
MR_API double mr_histogram_mean_ns(const struct mr_histogram *h);

#ifdef __cplusplus
}
#endif

#endif
