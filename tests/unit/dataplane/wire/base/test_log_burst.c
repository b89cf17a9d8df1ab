/* A limit on lines of one place, with a clock of the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <pthread.h>
#include "dataplane/wire/base/log_burst.h"

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

static void so_many_go_in_a_second(void **state)
{
    struct mr_log_burst b = {0};
    assert_int_equal(admitted(&b, 3, 1000), 3);
    assert_int_equal(admitted(&b, 10, 1999), 2);
    assert_int_equal(admitted(&b, 10, 2000), RATE);
    assert_int_equal(admitted(&b, 10, 1000000), RATE);
}

static void zero_is_no_limit(void **state)
{
    struct mr_log_burst b = {0};
    uint64_t lasted_ms;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(mr_log_burst_admits(&b, 1, 0));
    assert_int_equal(mr_log_burst_over(&b, 10000, true, &lasted_ms), 0);
}

static void what_was_suppressed_is_told_once_and_late(void **state)
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

static void a_burst_without_end_is_told_each_minute(void **state)
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

static void the_end_tells_at_once(void **state)
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
static void threads_share_a_burst(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_go_in_a_second),
        cmocka_unit_test(zero_is_no_limit),
        cmocka_unit_test(what_was_suppressed_is_told_once_and_late),
        cmocka_unit_test(a_burst_without_end_is_told_each_minute),
        cmocka_unit_test(the_end_tells_at_once),
        cmocka_unit_test(threads_share_a_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
