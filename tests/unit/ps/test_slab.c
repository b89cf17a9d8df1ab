#include <stdlib.h>
#include <string.h>
#include "ps/slab.h"
#include "table_fixture.h"

static void check_rows(uint32_t row_bytes, uint32_t count)
{
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    ps_slabs_init(&s, arena, row_bytes);
    uint32_t *rows = calloc(count, sizeof(*rows));
    assert_non_null(rows);
    assert_in_range(s.stride_bytes, row_bytes, row_bytes + row_bytes / 16 + 3);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(ps_slabs_take(&s, &rows[i]));
        uint8_t *p = ps_slabs_row(&s, rows[i]);
        assert_int_equal((uintptr_t)p % 4, 0);
        assert_true(p[0] == 0 && memcmp(p, p + 1, row_bytes - 1) == 0);
        memset(p, (int)(i % 255 + 1), row_bytes);
    }
    for (uint32_t i = 0; i < count; i++) { /* each is still what was written: none overlaps another */
        const uint8_t *p = ps_slabs_row(&s, rows[i]);
        assert_int_equal(p[0], i % 255 + 1);
        assert_memory_equal(p, p + 1, row_bytes - 1);
    }
    free(rows);
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

static void test_a_row_given_back_is_taken_again(void **state)
{
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    uint32_t first, again, second;
    ps_slabs_init(&s, arena, 64);
    assert_true(ps_slabs_take(&s, &first));
    memset(ps_slabs_row(&s, first), 0xff, 64);
    ps_slabs_give(&s, first);
    assert_int_equal(s.rows, 0);
    assert_true(ps_slabs_take(&s, &again));
    assert_int_equal(first, again);
    assert_int_equal(ps_slabs_row(&s, again)[0], 0);
    assert_true(ps_slabs_take(&s, &second));
    assert_int_not_equal(again, second);
    ps_slabs_clear(&s);
    ps_arena_destroy(arena);
}

/* Rows come and go at random; each holds its own mark as long as it lives, and is zeroed when it is taken. */
static void test_rows_come_and_go(void **state)
{
    enum { ROWS = 30000, STEPS = 400000, BYTES = 68 };
    static uint32_t rows[ROWS], marks[ROWS];
    uint64_t rng = fixture_seed("rows come and go");
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    ps_slabs_init(&s, arena, BYTES);
    uint32_t count = 0, most = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        bool growing = i / (STEPS / 4) % 2 == 0;
        if (count < ROWS && (count == 0 || random_below(&rng, 4) < (growing ? 3 : 1))) {
            assert_true(ps_slabs_take(&s, &rows[count]));
            uint8_t *p = ps_slabs_row(&s, rows[count]);
            assert_true(p[0] == 0 && memcmp(p, p + 1, BYTES - 1) == 0);
            marks[count] = i;
            memcpy(p + BYTES - sizeof(i), &i, sizeof(i));
            count++;
        } else {
            uint32_t which = random_below(&rng, count);
            assert_memory_equal(ps_slabs_row(&s, rows[which]) + BYTES - 4, &marks[which], 4);
            ps_slabs_give(&s, rows[which]);
            rows[which] = rows[--count];
            marks[which] = marks[count];
        }
        most = count > most ? count : most;
        assert_int_equal(s.rows, count);
        assert_true(s.places >= count);
        if (i % 1000 == 0)
            ps_slabs_trim(&s);
    }
    assert_true(s.bytes <= (size_t)most * s.stride_bytes + PS_SLAB_BYTES_MAX); /* places were used again */
    while (count > 0)
        ps_slabs_give(&s, rows[--count]);
    while (ps_slabs_trim(&s))
        ;
    assert_int_equal(s.empty_count, 1);
    assert_true(s.bytes <= PS_SLAB_BYTES_MAX);
    assert_true(ps_slabs_take(&s, &rows[0]));
    ps_slabs_clear(&s);
    assert_int_equal(ps_arena_allocated_bytes(arena), 0);
    ps_arena_destroy(arena);
}

/* A table of a few thousand rows has little room of no use. */
static void test_the_room_that_is_not_used_is_a_small_share(void **state)
{
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    uint32_t row;
    ps_slabs_init(&s, arena, 64);
    for (uint32_t i = 1; i < 700000; i++) {
        assert_true(ps_slabs_take(&s, &row));
        if (i >= 2048)
            assert_true((s.bytes - (size_t)i * 64) * 100 <= (size_t)i * 64 * 13);
    }
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

/* While slabs are being emptied their places count as room: a table at its memory limit refuses no row for want of a slab. */
static void test_slabs_that_leave_have_room(void **state)
{
    enum { COUNT = 4000 };
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_slabs s;
    uint32_t rows[COUNT], row;
    ps_slabs_init(&s, arena, 64);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(ps_slabs_take(&s, &rows[i]));
    for (uint32_t i = 0; i < COUNT; i++)
        if (i % 2 == 0)
            ps_slabs_give(&s, rows[i]);
    assert_true(ps_slabs_compact_begin(&s));
    size_t bytes = s.bytes;
    while (s.rows < s.places) {
        assert_int_equal(ps_slabs_take_bytes(&s), 0);
        assert_true(ps_slabs_take(&s, &row));
        assert_int_equal(s.bytes, bytes);
    }
    assert_true(ps_slabs_take_bytes(&s) > 0);
    assert_int_equal(s.leaving_count, 0);
    ps_slabs_clear(&s);
    ps_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_all_sizes),
        cmocka_unit_test(test_a_row_given_back_is_taken_again),
        cmocka_unit_test(test_rows_come_and_go),
        cmocka_unit_test(test_the_room_that_is_not_used_is_a_small_share),
        cmocka_unit_test(test_the_limit_is_told_and_clearing_starts_again),
        cmocka_unit_test(test_slabs_that_leave_have_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
