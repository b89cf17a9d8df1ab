#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataplane/wire/call/rtt.h"

static void waits_long_before_the_first_sample(void **state)
{
    struct mr_rtt rtt = {0};
    assert_int_equal(mr_rtt_pto_us(&rtt, 0), MR_PTO_FIRST_US);
    assert_int_equal(mr_rtt_pto_us(&rtt, 1), 2 * MR_PTO_FIRST_US);
}

static void first_sample_is_taken_as_it_is(void **state)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 4000);
    assert_int_equal(rtt.smoothed_us, 4000);
    assert_int_equal(rtt.variation_us, 2000);
    assert_int_equal(mr_rtt_pto_us(&rtt, 0), 4000 + 4 * 2000);
}

static void smooths_as_rfc_9002_says(void **state)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 4000);
    mr_rtt_sample(&rtt, 8000);
    assert_int_equal(rtt.variation_us, (3 * 2000 + 4000) / 4);
    assert_int_equal(rtt.smoothed_us, (7 * 4000 + 8000 + 4) / 8);
}

static void settles_on_a_steady_time(void **state)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 100000);
    for (int i = 0; i < 200; i++)
        mr_rtt_sample(&rtt, 50);
    assert_int_in_range(rtt.smoothed_us, 50, 60);
    assert_int_in_range(mr_rtt_pto_us(&rtt, 0), MR_PTO_GRANULARITY_US + 50, MR_PTO_GRANULARITY_US + 60);
}

static void never_measures_zero(void **state)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 0);
    assert_int_equal(rtt.smoothed_us, 1);
}

static void ignores_the_impossible(void **state)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, MR_RTT_SAMPLE_MAX_US + 1);
    assert_int_equal(rtt.smoothed_us, 0);
}

static void backs_off_up_to_the_bound(void **state)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 100);
    uint32_t first = mr_rtt_pto_us(&rtt, 0);
    assert_int_equal(mr_rtt_pto_us(&rtt, 3), 8 * first);
    assert_int_equal(mr_rtt_pto_us(&rtt, 20), MR_PTO_MAX_US);
    assert_int_equal(mr_rtt_pto_us(&rtt, UINT32_MAX), MR_PTO_MAX_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_long_before_the_first_sample),
        cmocka_unit_test(first_sample_is_taken_as_it_is),
        cmocka_unit_test(smooths_as_rfc_9002_says),
        cmocka_unit_test(settles_on_a_steady_time),
        cmocka_unit_test(never_measures_zero),
        cmocka_unit_test(ignores_the_impossible),
        cmocka_unit_test(backs_off_up_to_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
