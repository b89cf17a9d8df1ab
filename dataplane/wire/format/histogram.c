/* Histograms of spans of time (mr_histogram.h), and the quantiles that readers compute. */
#include "dataplane/wire/format/mr_histogram.h"

static uint64_t high_ns(uint32_t bucket)
{
    return mr_histogram_low_ns(bucket + 1) - 1;
}

void mr_histogram_read(const struct mr_histogram *written, struct mr_histogram *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++) {
        out->buckets[i] = __atomic_load_n(&written->buckets[i], __ATOMIC_RELAXED);
        out->count += out->buckets[i];
    }
    out->sum_ns = __atomic_load_n(&written->sum_ns, __ATOMIC_RELAXED);
    out->max_ns = __atomic_load_n(&written->max_ns, __ATOMIC_RELAXED);
}

void mr_histogram_merge(struct mr_histogram *to, const struct mr_histogram *other)
{
    to->count += other->count;
    to->sum_ns += other->sum_ns;
    if (other->max_ns > to->max_ns)
        to->max_ns = other->max_ns;
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++)
        to->buckets[i] += other->buckets[i];
}

void mr_histogram_subtract(struct mr_histogram *now, const struct mr_histogram *before)
{
    uint64_t highest_ns = 0;
    now->count = 0;
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++) {
        now->buckets[i] -= before->buckets[i];
        now->count += now->buckets[i];
        if (now->buckets[i] > 0)
            highest_ns = high_ns(i);
    }
    now->sum_ns -= before->sum_ns;
    if (now->max_ns == before->max_ns && highest_ns < now->max_ns)
        now->max_ns = highest_ns;
}

uint64_t mr_histogram_percentile_ns(const struct mr_histogram *h, double share)
{
    if (h->count == 0)
        return 0;
    const double rank = share * (double)h->count;
    uint64_t below = 0;
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++) {
        below += h->buckets[i];
        if (below > 0 && (double)below >= rank) {
            const uint64_t middle_ns = (mr_histogram_low_ns(i) + high_ns(i)) / 2;
            return i == MR_HISTOGRAM_BUCKETS - 1 || middle_ns > h->max_ns ? h->max_ns : middle_ns;
        }
    }
    return h->max_ns;
}

double mr_histogram_mean_ns(const struct mr_histogram *h)
{
    return h->count > 0 ? (double)h->sum_ns / (double)h->count : 0.0;
}
