#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/mr_histogram.h"
#include "tests/test.h"

static uint64_t histogram_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

TEST(buckets_follow_each_other)
{
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS; i++) {
        const uint64_t low_ns = mr_histogram_low_ns(i), next_ns = mr_histogram_low_ns(i + 1);
        assert_int_equal(mr_histogram_bucket(low_ns), i);
        assert_int_equal(mr_histogram_bucket(next_ns - 1), i);
        assert_true(next_ns > low_ns);
        if (low_ns >= 32)
            assert_true((next_ns - low_ns) * 32 <= low_ns);
    }
    assert_int_equal(mr_histogram_bucket(UINT64_MAX), MR_HISTOGRAM_BUCKETS - 1);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Spans from 32 ns to some seconds, most of them short. */
TEST(percentiles_are_true_to_two_percent)
{
    enum { COUNT = 50000 };
    static const double shares[] = {0.001, 0.5, 0.9, 0.99, 0.999};
    uint64_t *spans = calloc(COUNT, sizeof(*spans)), seed = 88172645463325252u, written_sum = 0;
    static struct mr_histogram written, h;
    for (uint32_t i = 0; i < COUNT; i++) {
        spans[i] = 32 + (histogram_next(&seed) >> (30 + histogram_next(&seed) % 30));
        written_sum += spans[i];
        mr_histogram_add(&written, spans[i], 1);
    }
    qsort(spans, COUNT, sizeof(*spans), by_value);
    mr_histogram_read(&written, &h);
    assert_int_equal(h.count, COUNT);
    assert_int_equal(h.sum_ns, written_sum);
    assert_int_equal(h.max_ns, spans[COUNT - 1]);
    for (uint32_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
        const double exact = (double)spans[(uint32_t)ceil(shares[i] * COUNT) - 1];
        const double told = (double)mr_histogram_percentile_ns(&h, shares[i]);
        assert_true(fabs(told - exact) <= 0.02 * exact);
    }
    assert_true(mr_histogram_percentile_ns(&h, 1.0) <= h.max_ns);
    assert_true(fabs(mr_histogram_mean_ns(&h) - (double)written_sum / COUNT) < 1e-6 * (double)written_sum);
    free(spans);
}

TEST(nothing_counted_is_zero)
{
    static struct mr_histogram h;
    assert_int_equal(mr_histogram_percentile_ns(&h, 0.99), 0);
    assert_true(mr_histogram_mean_ns(&h) == 0.0);
}

TEST(what_is_beyond_counts_and_shows_as_the_longest)
{
    static struct mr_histogram written, h;
    mr_histogram_add(&written, UINT64_C(100000000000), 1);
    mr_histogram_read(&written, &h);
    assert_int_equal(h.count, 1);
    assert_int_equal(mr_histogram_percentile_ns(&h, 0.5), UINT64_C(100000000000));
}

TEST(windows_subtract_and_cores_add_up)
{
    static struct mr_histogram written, before, now, sum;
    mr_histogram_add(&written, 1000000, 3);
    mr_histogram_read(&written, &before);
    mr_histogram_add(&written, 100, 8);
    mr_histogram_add(&written, 200, 2);
    mr_histogram_read(&written, &now);
    memcpy(&sum, &now, sizeof(sum));
    mr_histogram_subtract(&now, &before);
    assert_int_equal(now.count, 10);
    assert_int_equal(now.sum_ns, 1200);
    assert_int_in_range(now.max_ns, 200,
                        206); /* the longest of all was before: the highest bucket that grew */
    assert_int_in_range(mr_histogram_percentile_ns(&now, 0.5), 98, 102);
    mr_histogram_merge(&sum, &now);
    assert_int_equal(sum.count, 23);
    assert_int_equal(sum.max_ns, 1000000);
    mr_histogram_read(&written, &before);
    mr_histogram_add(&written, 2000001, 1);
    mr_histogram_read(&written, &now);
    mr_histogram_subtract(&now, &before);
    assert_int_equal(now.max_ns, 2000001); /* a new longest is exact */
}

enum { WRITTEN = 200000 };

static void *write_all(void *arg)
{
    for (uint32_t i = 0; i < WRITTEN; i++)
        mr_histogram_add(arg, 1 + i % 1000, 1);
    return NULL;
}

/* Copies taken meanwhile never lose what an earlier one had. */
TEST(another_thread_reads_while_one_writes)
{
    static struct mr_histogram written, h;
    pthread_t writer;
    uint64_t seen = 0;
    assert_int_equal(pthread_create(&writer, NULL, write_all, &written), 0);
    while (seen < WRITTEN) {
        mr_histogram_read(&written, &h);
        assert_true(h.count >= seen && h.count <= WRITTEN);
        seen = h.count;
    }
    pthread_join(writer, NULL);
    mr_histogram_read(&written, &h);
    assert_int_equal(h.sum_ns, (uint64_t)WRITTEN / 1000 * (1000 * 1001 / 2));
}
