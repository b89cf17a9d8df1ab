/* The estimate of a peer's clock: however the delays divide, the truth is within the error. */
#include "dataplane/wire/base/clock_offset.h"
#include "tests/test.h"

static void clock_offset_check(uint64_t begin_ns, int64_t ahead_ns, uint64_t there_ns, uint64_t back_ns)
{
    int64_t offset_ns;
    uint64_t error_ns;
    mr_clock_exchange(begin_ns, (uint64_t)((int64_t)(begin_ns + there_ns) + ahead_ns),
                      begin_ns + there_ns + back_ns, &offset_ns, &error_ns);
    const int64_t wrong_ns = offset_ns - ahead_ns;
    assert_true((uint64_t)(wrong_ns < 0 ? -wrong_ns : wrong_ns) <= error_ns);
    assert_int_equal(error_ns, (there_ns + back_ns + 1) / 2);
}

TEST(the_error_bounds_asymmetric_delays)
{
    static const uint64_t delays_ns[] = {0, 1, 20, 15001, 7000000};
    static const int64_t ahead_ns[] = {0, 1, -1, 5000000000, -86400000000000};
    for (int a = 0; a < 5; a++)
        for (int there = 0; there < 5; there++)
            for (int back = 0; back < 5; back++)
                clock_offset_check(UINT64_C(100000000000000), ahead_ns[a], delays_ns[there], delays_ns[back]);
}

TEST(equal_ways_give_the_offset_itself)
{
    int64_t offset_ns;
    uint64_t error_ns;
    mr_clock_exchange(1000, 51000 + 40, 1080, &offset_ns, &error_ns);
    assert_int_equal(offset_ns, 50000);
    assert_int_equal(error_ns, 40);
}
