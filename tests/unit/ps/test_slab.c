#include <string.h>
#include "ps/slab.h"
#include "table_fixture.h"

static void check_rows(uint32_t row_bytes, uint32_t count)
{
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    ps_slabs_init(&s, arena, row_bytes);
    assert_in_range(s.stride_bytes, row_bytes, row_bytes + row_bytes / 16 + 3);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row;
        assert_true(ps_slabs_take(&s, &row));
        uint8_t *p = ps_slabs_row(&s, row);
        assert_int_equal((uintptr_t)p % 4, 0);
        assert_true(p[0] == 0 && memcmp(p, p + 1, row_bytes - 1) == 0);
        memset(p, (int)(i % 255 + 1), row_bytes);
    }
    /* Each row is still what was written: none overlaps another. Slabs double, so the numbers run through them. */
    uint32_t i = 0;
    for (uint32_t slab = 0; slab < s.slab_count; slab++) {
        uint32_t row = slab << s.index_bits;
        for (; i < count && ps_slabs_row(&s, row)[0] != 0; i++, row++) {
            const uint8_t *p = ps_slabs_row(&s, row);
            assert_int_equal(p[0], i % 255 + 1);
            assert_memory_equal(p, p + 1, row_bytes - 1);
            if ((size_t)((row & ((1u << s.index_bits) - 1)) + 2) * s.stride_bytes >
                (slab < 7 ? PS_SLAB_BYTES_MIN << slab : PS_SLAB_BYTES_MAX)) {
                i++;
                break;
            }
        }
    }
    assert_int_equal(i, count);
    assert_int_equal(s.rows, count);
    ps_slabs_clear(&s);
    assert_int_equal(ps_arena_allocated_bytes(arena), 0);
    ps_arena_destroy(arena);
}

static void test_rows_of_all_sizes(void **state)
{
    static const uint32_t sizes[] = {4, 8, 12, 36, 64, 72, 100, 128, 1000, 4096, 8192, PS_SLAB_BYTES_MIN};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_rows(sizes[i], sizes[i] < 1000 ? 100000 : 2000);
}

static void test_an_undone_take_is_taken_again(void **state)
{
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    uint32_t first, again, second;
    ps_slabs_init(&s, arena, 64);
    assert_true(ps_slabs_take(&s, &first));
    ps_slabs_untake(&s);
    assert_int_equal(s.rows, 0);
    assert_true(ps_slabs_take(&s, &again));
    assert_int_equal(first, again);
    assert_true(ps_slabs_take(&s, &second));
    assert_int_not_equal(again, second);
    ps_slabs_clear(&s);
    ps_arena_destroy(arena);
}

static void test_the_limit_is_told_and_clearing_starts_again(void **state)
{
    struct ps_arena *arena = ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN);
    struct ps_slabs s;
    ps_slabs_init(&s, arena, 1024);
    uint32_t counts[2] = {0};
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t row;
        while (ps_slabs_take(&s, &row))
            counts[round]++;
        assert_int_equal(s.rows, counts[round]);
        assert_true(s.bytes <= PS_ARENA_LIMIT_BYTES_MIN);
        ps_slabs_clear(&s);
    }
    assert_true(counts[0] > 2048);
    assert_int_equal(counts[0], counts[1]);
    ps_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_all_sizes),
        cmocka_unit_test(test_an_undone_take_is_taken_again),
        cmocka_unit_test(test_the_limit_is_told_and_clearing_starts_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
