#include "dataplane/wire/call/rtt.h"
#include "tests/test.h"

TEST(waits_long_before_the_first_sample)
{
    struct mr_rtt rtt = {0};
    assert_int_equal(mr_rtt_pto_us(&rtt, 0), MR_PTO_FIRST_US);
    assert_int_equal(mr_rtt_pto_us(&rtt, 1), 2 * MR_PTO_FIRST_US);
}

TEST(first_sample_is_taken_as_it_is)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 4000);
    assert_int_equal(rtt.smoothed_us, 4000);
    assert_int_equal(rtt.variation_us, 2000);
    assert_int_equal(mr_rtt_pto_us(&rtt, 0), 4000 + 4 * 2000);
}

TEST(smooths_as_rfc_9002_says)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 4000);
    mr_rtt_sample(&rtt, 8000);
    assert_int_equal(rtt.variation_us, (3 * 2000 + 4000) / 4);
    assert_int_equal(rtt.smoothed_us, (7 * 4000 + 8000 + 4) / 8);
}

TEST(settles_on_a_steady_time)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 100000);
    for (int i = 0; i < 200; i++)
        mr_rtt_sample(&rtt, 50);
    assert_int_in_range(rtt.smoothed_us, 50, 60);
    assert_int_in_range(mr_rtt_pto_us(&rtt, 0), MR_PTO_GRANULARITY_US + 50, MR_PTO_GRANULARITY_US + 60);
}

TEST(never_measures_zero)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 0);
    assert_int_equal(rtt.smoothed_us, 1);
}

TEST(ignores_the_impossible)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, MR_RTT_SAMPLE_MAX_US + 1);
    assert_int_equal(rtt.smoothed_us, 0);
}

TEST(backs_off_up_to_the_bound)
{
    struct mr_rtt rtt = {0};
    mr_rtt_sample(&rtt, 100);
    uint32_t first = mr_rtt_pto_us(&rtt, 0);
    assert_int_equal(mr_rtt_pto_us(&rtt, 3), 8 * first);
    assert_int_equal(mr_rtt_pto_us(&rtt, 20), MR_PTO_MAX_US);
    assert_int_equal(mr_rtt_pto_us(&rtt, UINT32_MAX), MR_PTO_MAX_US);
}
