/* A limit on lines of one place, with a clock of the test's. */
#include <pthread.h>
#include "dataplane/wire/base/log_burst.h"
#include "tests/test.h"

#define RATE    5u
#define THREADS 4u
#define LINES   20000u

static uint32_t admitted(struct mr_log_burst *b, uint32_t lines, uint64_t now_ms)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < lines; i++)
        count += mr_log_burst_admits(b, now_ms, RATE);
    return count;
}

TEST(so_many_go_in_a_second)
{
    struct mr_log_burst b = {0};
    assert_int_equal(admitted(&b, 3, 1000), 3);
    assert_int_equal(admitted(&b, 10, 1999), 2);
    assert_int_equal(admitted(&b, 10, 2000), RATE);
    assert_int_equal(admitted(&b, 10, 1000000), RATE);
}

TEST(zero_is_no_limit)
{
    struct mr_log_burst b = {0};
    uint64_t lasted_ms;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(mr_log_burst_admits(&b, 1, 0));
    assert_int_equal(mr_log_burst_over(&b, 10000, true, &lasted_ms), 0);
}

TEST(what_was_suppressed_is_told_once_and_late)
{
    struct mr_log_burst b = {0};
    uint64_t lasted_ms = 7;
    assert_int_equal(admitted(&b, RATE + 4, 1000), RATE);
    assert_int_equal(mr_log_burst_over(&b, 1500, false, &lasted_ms), 0);
    assert_int_equal(admitted(&b, 3, 1900), 0); /* it goes on */
    assert_int_equal(mr_log_burst_over(&b, 2899, false, &lasted_ms), 0);
    assert_int_equal(mr_log_burst_over(&b, 2900, false, &lasted_ms), 7);
    assert_int_equal(lasted_ms, 900);
    assert_int_equal(mr_log_burst_over(&b, 9000, false, &lasted_ms), 0);
    assert_int_equal(admitted(&b, RATE + 1, 10000), RATE);
    assert_int_equal(mr_log_burst_over(&b, 11000, false, &lasted_ms), 1);
    assert_int_equal(lasted_ms, 0);
}

TEST(a_burst_without_end_is_told_each_minute)
{
    struct mr_log_burst b = {0};
    uint64_t lasted_ms, told_ms = 0;
    for (uint64_t now_ms = 1000; now_ms <= 62000 && told_ms == 0; now_ms += 100) {
        admitted(&b, RATE, now_ms);
        if (mr_log_burst_over(&b, now_ms, false, &lasted_ms) > 0)
            told_ms = now_ms;
    }
    assert_int_in_range(told_ms, 61000, 61200);
}

TEST(the_end_tells_at_once)
{
    struct mr_log_burst b = {0};
    uint64_t lasted_ms;
    admitted(&b, RATE + 2, 1000);
    assert_int_equal(mr_log_burst_over(&b, 1000, true, &lasted_ms), 2);
}

static struct mr_log_burst shared;
static _Atomic uint32_t shared_admitted;

static void *log_a_lot(void *arg)
{
    (void)arg;
    atomic_fetch_add(&shared_admitted, admitted(&shared, LINES, 5000));
    return NULL;
}

/* No line is counted twice, and none is forgotten. */
TEST(threads_share_a_burst)
{
    pthread_t threads[THREADS];
    uint64_t lasted_ms;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_a_lot, NULL), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&shared_admitted), RATE);
    assert_int_equal(mr_log_burst_over(&shared, 6000, false, &lasted_ms), THREADS * LINES - RATE);
}
