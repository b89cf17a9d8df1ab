#include "ps/base/byte_rate.h"
#include "tests/test.h"

#define BLOCK (1u << 20)

/* Bytes taken by one who asks every microsecond. */
static uint64_t taken(struct ps_byte_rate *r, uint64_t from_us, uint64_t to_us)
{
    uint64_t bytes = 0;
    for (uint64_t now_us = from_us; now_us < to_us; now_us++)
        while (ps_byte_rate_take(r, BLOCK, now_us))
            bytes += BLOCK;
    return bytes;
}

TEST(test_the_rate_holds)
{
    static const uint64_t rates[] = {BLOCK, 10ull * BLOCK + 7, 1000ull * BLOCK};
    for (size_t i = 0; i < 3; i++) {
        struct ps_byte_rate r = {.bytes_per_s_max = rates[i]};
        uint64_t burst = rates[i] * PS_BYTE_RATE_PAUSE_US / 1000000 + 2ull * BLOCK;
        uint64_t bytes = taken(&r, 1000000, 4000000);
        assert_int_in_range(bytes, 3 * rates[i] - BLOCK, 3 * rates[i] + burst);
    }
}

TEST(test_a_pause_counts_for_a_moment_only)
{
    struct ps_byte_rate r = {.bytes_per_s_max = 100ull * BLOCK};
    taken(&r, 1000000, 1100000);
    assert_int_in_range(taken(&r, 90000000, 90000001), 5ull * BLOCK, 6ull * BLOCK);
}

TEST(test_none_is_no_limit)
{
    struct ps_byte_rate r = {0};
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(ps_byte_rate_take(&r, BLOCK, 5));
}

TEST(test_less_than_a_block_a_second)
{
    struct ps_byte_rate r = {.bytes_per_s_max = 1};
    assert_true(ps_byte_rate_take(&r, BLOCK, 7));
    assert_false(ps_byte_rate_take(&r, BLOCK, 1000000ull * (BLOCK - 1)));
    assert_true(ps_byte_rate_take(&r, BLOCK, 1000000ull * BLOCK + 7));
}
