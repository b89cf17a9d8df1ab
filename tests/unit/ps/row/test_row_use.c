#include <string.h>
#include "ps/row/row_use.h"
#include "table_fixture.h"
#include "tests/test.h"

#define ROW_BYTES 64u

static struct ps_row_use use_of(enum mr_eviction eviction, float arg, uint64_t rows_max)
{
    struct mr_feature f = mr_feature_table("t", 4);
    struct ps_row_use u;
    f.eviction = (uint32_t)eviction;
    f.eviction_arg = arg;
    struct ps_row_layout layout = ps_row_layout_of(&f, 0);
    assert_true(layout.bytes <= ROW_BYTES);
    ps_row_use_init(&u, &f, &layout, rows_max);
    return u;
}

TEST(ages_are_seconds_or_steps_and_never_go_back)
{
    uint8_t row[ROW_BYTES] = {0};
    struct ps_row_use u = use_of(MR_EVICT_AGE, 100, 1000);
    assert_int_equal(ps_row_use_set_now(&u, 5000, 7), 5000);
    ps_row_use_start(&u, row);
    assert_int_equal(ps_row_seen(&u, row), 5000);
    assert_int_equal(ps_row_use_set_now(&u, 5100, 9), 100);
    assert_false(ps_row_is_over_age(&u, row));
    assert_int_equal(ps_row_use_set_now(&u, 5101, 9), 1);
    assert_true(ps_row_is_over_age(&u, row));
    assert_int_equal(ps_row_use_set_now(&u, 4000, 9), 0);
    assert_int_equal(u.now, 5101);
    ps_row_used(&u, row);
    assert_false(ps_row_is_over_age(&u, row));

    u = use_of(MR_EVICT_STEPS, 10, 1000);
    ps_row_use_set_now(&u, 5000, 7);
    ps_row_use_start(&u, row);
    assert_int_equal(ps_row_seen(&u, row), 7);
    ps_row_use_set_now(&u, 6000, 17);
    assert_false(ps_row_is_over_age(&u, row));
    ps_row_use_set_now(&u, 6000, 18);
    assert_true(ps_row_is_over_age(&u, row));
    ps_row_use_set_now(&u, 6000, 3); /* another trainer, behind */
    assert_int_equal(u.now, 18);
}

TEST(steps_wrap)
{
    uint8_t row[ROW_BYTES] = {0};
    struct ps_row_use u = use_of(MR_EVICT_STEPS, 10, 1000);
    ps_row_use_set_now(&u, 0, (UINT64_C(1) << 32) - 5);
    ps_row_use_start(&u, row);
    ps_row_use_set_now(&u, 0, (UINT64_C(1) << 32) + 5);
    assert_int_equal(u.now, 5);
    assert_int_equal(ps_age(&u, ps_row_seen(&u, row)), 10);
    assert_false(ps_row_is_over_age(&u, row));
    ps_row_use_set_now(&u, 0, (UINT64_C(1) << 32) + 6);
    assert_true(ps_row_is_over_age(&u, row));
}

TEST(stamps_from_the_future_are_of_age_0)
{
    struct ps_row_use u = use_of(MR_EVICT_AGE, 1, 1000);
    ps_row_use_set_now(&u, 100, 0);
    assert_int_equal(ps_age(&u, 5000), 0);
}

TEST(loaded_rows_bring_the_clock_along_where_it_is_the_tables_own)
{
    static const enum mr_eviction own[] = {MR_EVICT_STEPS, MR_EVICT_LRU, MR_EVICT_LFU};
    uint8_t row[ROW_BYTES] = {0};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        struct ps_row_use u = use_of(own[i], 5, 1 << 20);
        uint32_t seen = 12345;
        memcpy(row + u.seen_offset, &seen, sizeof(seen));
        ps_row_use_loaded(&u, row);
        assert_int_equal(u.now, 12345);
        seen = 12000;
        memcpy(row + u.seen_offset, &seen, sizeof(seen));
        ps_row_use_loaded(&u, row);
        assert_int_equal(u.now, 12345);
        ps_row_use_advance(&u, 0);
        assert_int_equal(u.now, 12345);
    }
    struct ps_row_use u = use_of(MR_EVICT_AGE, 5, 100);
    ps_row_use_loaded(&u, row);
    assert_int_equal(u.now, 0);
    u = use_of(MR_EVICT_NEVER, 0, 100);
    ps_row_use_loaded(&u, row);
    assert_int_equal(u.now, 0);
}

static uint32_t loaded_age(struct ps_row_use *u, uint32_t seen)
{
    uint8_t row[ROW_BYTES] = {0};
    memcpy(row + u->seen_offset, &seen, sizeof(seen));
    ps_row_use_loaded(u, row);
    return ps_age(u, ps_row_seen(u, row));
}

/* A row is as old as it was when it was saved, wherever the clock that goes on stands. */
TEST(rows_that_are_loaded_keep_their_age)
{
    static const uint32_t clocks[] = {0, 10, 7000, 500000000};
    for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
        struct ps_row_use u = use_of(i % 2 ? MR_EVICT_AGE : MR_EVICT_NORM, 5000, 100);
        ps_row_use_load_from(&u, 7000, clocks[i]);
        assert_int_equal(u.now, clocks[i]);
        assert_int_equal(loaded_age(&u, 7000), 0);
        assert_int_equal(loaded_age(&u, 6000), 1000);
        assert_int_equal(loaded_age(&u, 0), 7000);
        assert_int_equal(loaded_age(&u, 7000 + PS_CLOCK_AHEAD_S), 0); /* used while it was cut */
        assert_int_equal(loaded_age(&u, UINT32_MAX - 99), 7100);      /* it came from a younger node */
    }
}

/* Stamps of the wall clock, in checkpoints of older versions: such a row is as old as the clock that came
 * after. */
TEST(stamps_of_another_clock_count_from_its_beginning)
{
    struct ps_row_use u = use_of(MR_EVICT_AGE, 1000, 100);
    ps_row_use_load_from(&u, 0, 0);
    assert_int_equal(loaded_age(&u, 217000000), 0);
    ps_row_use_load_from(&u, 900, 900); /* a full of version 3, and a delta on it 900 s later */
    assert_int_equal(loaded_age(&u, 217000000), 900);
    assert_int_equal(loaded_age(&u, 800), 100);
    ps_row_use_load_from(&u, 900, 50000);
    assert_int_equal(loaded_age(&u, 217000000), 900);
    u = use_of(MR_EVICT_STEPS, 1000, 100);
    ps_row_use_load_from(&u, 900, 50000);
    assert_int_equal(u.now, 0);
}

TEST(a_tick_is_a_1024th_of_the_table)
{
    assert_int_equal(use_of(MR_EVICT_LRU, 0, 100).tick_shift, 0);
    assert_int_equal(use_of(MR_EVICT_LRU, 0, 2047).tick_shift, 0);
    assert_int_equal(use_of(MR_EVICT_LRU, 0, 2048).tick_shift, 1);
    assert_int_equal(use_of(MR_EVICT_LRU, 0, 50000000).tick_shift, 15);
    assert_int_equal(use_of(MR_EVICT_STEPS, 1, 50000000).tick_shift, 0);
    struct ps_row_use u = use_of(MR_EVICT_LRU, 0, 4096);
    ps_row_use_advance(&u, 3);
    assert_int_equal(u.now, 0);
    ps_row_use_advance(&u, 1);
    assert_int_equal(u.now, 1);
    assert_int_equal(ps_row_use_set_now(&u, 1000, 1000), 0);
    assert_int_equal(u.now, 1);
}

TEST(uses_are_halved_once_per_half_life)
{
    uint8_t row[ROW_BYTES] = {0};
    struct ps_row_use u = use_of(MR_EVICT_LFU, 0, 100);
    ps_row_use_start(&u, row);
    for (uint32_t i = 0; i < 7; i++)
        ps_row_used(&u, row);
    assert_int_equal(ps_row_uses(&u, row), 8 * PS_LFU_USE);
    ps_row_use_advance(&u, PS_LFU_HALF_LIFE_TICKS);
    assert_int_equal(ps_uses_now(&u, ps_row_seen(&u, row), ps_row_uses(&u, row)), 4 * PS_LFU_USE);
    ps_row_used(&u, row); /* also of rows that are always in use */
    assert_int_equal(ps_row_uses(&u, row), 5 * PS_LFU_USE);
    ps_row_use_advance(&u, 2 * PS_LFU_HALF_LIFE_TICKS);
    assert_int_equal(ps_uses_now(&u, ps_row_seen(&u, row), ps_row_uses(&u, row)), 5 * PS_LFU_USE / 4);
    ps_row_use_advance(&u, 100 * PS_LFU_HALF_LIFE_TICKS);
    assert_int_equal(ps_uses_now(&u, ps_row_seen(&u, row), ps_row_uses(&u, row)), 0);
    uint32_t most = UINT32_MAX - 1;
    memcpy(row + u.uses_offset, &most, sizeof(most));
    memcpy(row + u.seen_offset, &u.now, sizeof(u.now));
    ps_row_used(&u, row);
    assert_int_equal(ps_row_uses(&u, row), UINT32_MAX);
}

TEST(the_idlest_row_goes_first)
{
    struct ps_row_use lru = use_of(MR_EVICT_LRU, 0, 100), lfu = use_of(MR_EVICT_LFU, 0, 100);
    ps_row_use_advance(&lru, 1000);
    ps_row_use_advance(&lfu, 1000);
    assert_true(ps_row_idleness(&lru, 100, 0) > ps_row_idleness(&lru, 101, 0));
    assert_true(ps_row_idleness(&lfu, 900, 256) > ps_row_idleness(&lfu, 100, 512));
    assert_true(ps_row_idleness(&lfu, 100, 256) > ps_row_idleness(&lfu, 900, 256));
    assert_false(ps_row_is_released(&lru, 1000));
    assert_false(ps_row_is_released(&lru, 1000 - PS_USES_HELD));
    assert_true(ps_row_is_released(&lru, 1000 - PS_USES_HELD - 2));
}
