#include <stdlib.h>
#include <string.h>
#include "ps/index/slab.h"
#include "table_fixture.h"
#include "tests/test.h"

struct fixture {
    struct ps_arena *arena;
    struct ps_slabs s;
};

static struct fixture *open_slabs(uint32_t row_bytes, size_t limit_bytes)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->arena = ps_arena_create(limit_bytes);
    assert_non_null(f->arena);
    ps_slabs_init(&f->s, f->arena, row_bytes);
    return f;
}

static void close_slabs(struct fixture *f)
{
    ps_slabs_clear(&f->s);
    assert_int_equal(f->s.bytes, 0);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), 0);
    ps_arena_destroy(f->arena);
    free(f);
}

/* Rows of three groups in turn: numbers count within each. */
static void check_rows(uint32_t row_bytes, uint32_t count)
{
    static const uint32_t groups[] = {0, 77, PS_ROW_GROUPS - 1};
    struct fixture *f = open_slabs(row_bytes, FIXTURE_LIMIT_BYTES);
    assert_int_in_range(f->s.stride_bytes, row_bytes, row_bytes + row_bytes / 16 + 3);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row;
        assert_true(ps_slabs_take(&f->s, groups[i % 3], &row));
        assert_int_equal(row, i / 3);
        uint8_t *p = ps_slabs_row(&f->s, groups[i % 3], row);
        assert_int_equal((uintptr_t)p % 4, 0);
        assert_true(p[0] == 0 && memcmp(p, p + 1, row_bytes - 1) == 0);
        memset(p, (int)(i % 255 + 1), row_bytes);
    }
    for (uint32_t i = 0; i < count; i++) { /* each is still what was written: none overlaps another */
        const uint8_t *p = ps_slabs_row(&f->s, groups[i % 3], i / 3);
        assert_int_equal(p[0], i % 255 + 1);
        assert_memory_equal(p, p + 1, row_bytes - 1);
    }
    assert_int_equal(f->s.rows, count);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->s.bytes);
    close_slabs(f);
}

TEST(test_rows_of_all_sizes)
{
    static const uint32_t sizes[] = {4, 8, 12, 36, 64, 72, 100, 128, 1000, 4096, 8192, PS_SLAB_ROW_MAX};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_rows(sizes[i], sizes[i] < 1000 ? 300000 : 3000);
}

/* Up to slabs of the last size, of which there may be any number. */
TEST(test_a_group_of_many_rows)
{
    enum { COUNT = 200000, BYTES = 1028 };
    struct fixture *f = open_slabs(BYTES, (size_t)400 << 20);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t row;
        assert_true(ps_slabs_take(&f->s, 9, &row));
        memcpy(ps_slabs_row(&f->s, 9, row), &i, sizeof(i));
    }
    for (uint32_t i = 0; i < COUNT; i++)
        assert_memory_equal(ps_slabs_row(&f->s, 9, i), &i, sizeof(i));
    assert_true(f->s.groups[9].slab_count > (f->s.last_shift - f->s.first_shift + 1) * PS_SLABS_PER_SIZE);
    close_slabs(f);
}

TEST(test_a_row_given_back_is_taken_again)
{
    struct fixture *f = open_slabs(64, FIXTURE_LIMIT_BYTES);
    uint32_t first, again, second;
    assert_true(ps_slabs_take(&f->s, 3, &first));
    memset(ps_slabs_row(&f->s, 3, first), 0xff, 64);
    ps_slabs_give(&f->s, 3, first);
    assert_int_equal(f->s.rows, 0);
    assert_true(ps_slabs_take(&f->s, 3, &again));
    assert_int_equal(first, again);
    assert_int_equal(ps_slabs_row(&f->s, 3, again)[0], 0);
    assert_true(ps_slabs_take(&f->s, 3, &second));
    assert_int_not_equal(again, second);
    close_slabs(f);
}

/* ---- coming, going, and being brought together ---- */

enum { BYTES = 68, GROUPS = 3 };

struct live {
    uint32_t group, row, mark;
};

static void row_take(struct fixture *f, struct live *l, uint32_t group, uint32_t mark)
{
    *l = (struct live){.group = group, .mark = mark};
    assert_true(ps_slabs_take(&f->s, group, &l->row));
    uint8_t *p = ps_slabs_row(&f->s, group, l->row);
    assert_true(p[0] == 0 && memcmp(p, p + 1, BYTES - 1) == 0);
    memcpy(p + BYTES - sizeof(mark), &mark, sizeof(mark));
}

static void row_check(struct fixture *f, const struct live *l)
{
    assert_memory_equal(ps_slabs_row(&f->s, l->group, l->row) + BYTES - 4, &l->mark, 4);
}

/* One step of a compaction as its caller does it: `at` goes over the live rows. */
static void compact_step(struct fixture *f, struct live *live, uint32_t count, uint32_t *at)
{
    struct ps_slabs *s = &f->s;
    while (ps_slabs_trim(s))
        ;
    if (s->compaction.group == PS_ROW_NONE) {
        *at = 0;
        (void)ps_slabs_compact_begin(s);
        return;
    }
    if (!ps_slabs_compact_sort(s, 10))
        return;
    for (uint32_t i = 0; i < 50 && *at < count; i++, ++*at) {
        struct live *l = &live[*at];
        if (l->group != s->compaction.group || !ps_slabs_is_leaving(s, l->row))
            continue;
        uint32_t row = ps_slabs_move(s, l->row);
        if (row == PS_ROW_NONE)
            *at = count;
        else
            l->row = row;
    }
    if (*at >= count)
        ps_slabs_compact_end(s);
}

/* Rows come and go at random; each holds its own mark as long as it lives, and is zeroed when it is taken. */
TEST(test_rows_come_and_go)
{
    enum { ROWS = 30000, STEPS = 400000 };
    static struct live live[ROWS];
    uint64_t rng = fixture_seed("rows come and go");
    struct fixture *f = open_slabs(BYTES, FIXTURE_LIMIT_BYTES);
    uint32_t count = 0, at = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        bool growing = i / (STEPS / 8) % 2 == 0;
        if (count < ROWS && (count == 0 || random_below(&rng, 8) < (growing ? 6 : 2))) {
            row_take(f, &live[count++], random_below(&rng, GROUPS), i);
        } else {
            uint32_t which = random_below(&rng, count);
            row_check(f, &live[which]);
            ps_slabs_give(&f->s, live[which].group, live[which].row);
            live[which] = live[--count];
        }
        assert_int_equal(f->s.rows, count);
        assert_true(f->s.places >= count);
        assert_int_equal(f->s.bytes, ps_arena_allocated_bytes(f->arena));
        if (i % 50 == 0)
            compact_step(f, live, count, &at);
    }
    for (uint32_t i = 0; i < count; i++)
        row_check(f, &live[i]);
    for (at = 0; ps_slabs_want_upkeep(&f->s);) /* without others coming in between it gets to its end */
        compact_step(f, live, count, &at);
    for (uint32_t i = 0; i < count; i++)
        row_check(f, &live[i]);
    assert_true(f->s.places * 7 <= (uint64_t)count * 8 + 3 * 64 * 7);
    while (count > 0) {
        count--;
        ps_slabs_give(&f->s, live[count].group, live[count].row);
    }
    while (ps_slabs_want_upkeep(&f->s))
        compact_step(f, live, 0, &at);
    assert_int_equal(f->s.bytes, 0);
    row_take(f, &live[0], 0, 1);
    close_slabs(f);
}

/* While a group is compacted, its free places on either side count as room. */
TEST(test_a_group_that_is_compacted_has_room)
{
    enum { COUNT = 4000 };
    struct fixture *f = open_slabs(64, FIXTURE_LIMIT_BYTES);
    uint32_t rows[COUNT], row;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(ps_slabs_take(&f->s, 5, &rows[i]));
    for (uint32_t i = 0; i < COUNT; i += 2)
        ps_slabs_give(&f->s, 5, rows[i]);
    assert_true(ps_slabs_compact_begin(&f->s));
    (void)ps_slabs_compact_sort(&f->s, COUNT / 4);
    size_t bytes = f->s.bytes;
    while (f->s.rows < f->s.places) {
        assert_int_equal(ps_slabs_take_bytes(&f->s, 5), 0);
        assert_true(ps_slabs_take(&f->s, 5, &row));
        assert_int_equal(f->s.bytes, bytes);
    }
    assert_true(ps_slabs_take_bytes(&f->s, 5) > 0);
    assert_true(ps_slabs_compact_sort(&f->s, COUNT));
    ps_slabs_compact_end(&f->s);
    assert_int_equal(f->s.row_ends[5], f->s.places);
    close_slabs(f);
}

/* What is not used is a small share, of a table of some ten thousand rows and more. */
TEST(test_the_room_that_is_not_used_is_a_small_share)
{
    struct fixture *f = open_slabs(64, FIXTURE_LIMIT_BYTES);
    uint32_t row;
    uint64_t rng = fixture_seed("room");
    for (size_t i = 1; i < 1000000; i++) {
        assert_true(ps_slabs_take(&f->s, random_below(&rng, PS_ROW_GROUPS), &row));
        if (i >= 100000)
            assert_true((f->s.bytes - i * 64) * 100 <= i * 64 * 4);
        if (i >= 400000)
            assert_true((f->s.bytes - i * 64) * 1000 <= i * 64 * 20);
    }
    close_slabs(f);
}

TEST(test_the_limit_is_told_and_clearing_starts_again)
{
    struct fixture *f = open_slabs(1024, PS_ARENA_LIMIT_BYTES_MIN);
    uint32_t counts[2] = {0};
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t row;
        while (ps_slabs_take(&f->s, counts[round] % PS_ROW_GROUPS, &row))
            counts[round]++;
        assert_int_equal(f->s.rows, counts[round]);
        assert_true(f->s.bytes <= PS_ARENA_LIMIT_BYTES_MIN);
        ps_slabs_clear(&f->s);
    }
    assert_true(counts[0] > 2048);
    assert_int_equal(counts[0], counts[1]);
    close_slabs(f);
}
