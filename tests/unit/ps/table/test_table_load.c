/* Rows of a checkpoint into a table, many at a time and in whatever order. */
#include <stdlib.h>
#include <string.h>
#include "ps/index/index.h"
#include "ps/memory/arena.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"
#include "ps/table/table_internal.h"

#define DIM       4u
#define ROW_BYTES (DIM * 2 * (uint32_t)sizeof(float)) /* with Adagrad's state */

struct loaded {
    struct ps_arena *arena;
    struct ps_table *table;
    uint32_t count;
    uint64_t *keys;
    uint8_t *bytes;
    struct ps_stored_row *rows;
};

static struct loaded table_load_begin(uint32_t count, size_t limit_bytes)
{
    struct mr_feature f = fixture_adagrad(DIM);
    struct loaded l = {.arena = ps_arena_create(limit_bytes), .count = count};
    assert_non_null(l.arena);
    l.table = fixture_table(&f, l.arena);
    assert_int_equal(ps_table_stored_row_bytes(l.table), ROW_BYTES);
    l.keys = calloc(count, sizeof(*l.keys));
    l.bytes = calloc(count, ROW_BYTES);
    l.rows = calloc(count, sizeof(*l.rows));
    return l;
}

/* Values that tell the key and the round. */
static void fill_rows(struct loaded *l, float round)
{
    for (uint32_t i = 0; i < l->count; i++) {
        const float row[2 * DIM] = {(float)(l->keys[i] % 100003), round, 2, 3, 4, 5, 6, 7};
        memcpy(l->bytes + (size_t)i * ROW_BYTES, row, ROW_BYTES);
        l->rows[i] = (struct ps_stored_row){l->keys[i], l->bytes + (size_t)i * ROW_BYTES};
    }
}

static void check_rows(struct loaded *l, float round)
{
    assert_int_equal(ps_table_rows(l->table), l->count);
    for (uint32_t i = 0; i < l->count; i++) {
        float values[DIM];
        table_lookup(l->table, &l->keys[i], 1, false, values);
        assert_float_equal(values[0], (float)(l->keys[i] % 100003), 0);
        assert_float_equal(values[1], round, 0);
    }
}

static void table_load_end(struct loaded *l)
{
    ps_table_destroy(l->table);
    ps_arena_destroy(l->arena);
    free(l->keys);
    free(l->bytes);
    free(l->rows);
}

TEST(each_row_is_loaded_once)
{
    static const uint32_t counts[] = {1, 2, 3, 15, 16, 17, 100, 4097};
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
        struct loaded l = table_load_begin(counts[c], FIXTURE_LIMIT_BYTES);
        for (uint32_t i = 0; i < l.count; i++)
            l.keys[i] = UINT64_C(0x9E3779B97F4A7C15) * i;
        assert_int_equal(ps_table_load_rows(l.table, l.rows, 0, c % 2 == 0), MR_OK);
        fill_rows(&l, 1);
        assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, c % 2 == 0), MR_OK);
        check_rows(&l, 1);
        fill_rows(&l, 2); /* in their places */
        assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, false), MR_OK);
        check_rows(&l, 2);
        table_load_end(&l);
    }
}

static uint64_t seed_of_sort;

static int by_hash(const void *a, const void *b)
{
    uint64_t x = mr_key_hash(*(const uint64_t *)a, seed_of_sort),
             y = mr_key_hash(*(const uint64_t *)b, seed_of_sort);
    return x < y ? -1 : x > y;
}

/* As a cut gives rows out: partition by partition, and within one in the order of hashes. Here they are of
 * few partitions, as many in each as a table of 6 million rows has. */
TEST(rows_in_the_order_of_a_cut)
{
    const uint32_t first_partition = 1234, partitions = 6;
    struct loaded l = table_load_begin(partitions * 1500, FIXTURE_LIMIT_BYTES);
    seed_of_sort = l.table->feature.seed;
    uint64_t key = 0;
    for (uint32_t i = 0; i < l.count; key++)
        if (mr_partition_of(mr_key_hash(key, seed_of_sort)) - first_partition < partitions)
            l.keys[i++] = key;
    qsort(l.keys, l.count, sizeof(*l.keys), by_hash);
    fill_rows(&l, 1);
    assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, false), MR_OK);
    check_rows(&l, 1);
    ps_table_clear(l.table);
    for (uint32_t i = 0; i < l.count; i++) /* and one by one, as they come */
        assert_int_equal(ps_table_load(l.table, l.keys[i], l.rows[i].bytes), MR_OK);
    check_rows(&l, 1);
    /* New ones, in parts that end anywhere: neither much less room than they need, nor much more. */
    for (uint32_t part = 700; part <= 5600; part *= 2) {
        ps_table_clear(l.table);
        for (uint32_t i = 0; i < l.count; i += part) {
            uint32_t count = l.count - i < part ? l.count - i : part;
            assert_int_equal(ps_table_load_rows(l.table, l.rows + i, count, true), MR_OK);
        }
        check_rows(&l, 1);
        size_t index_bytes = ps_table_index_bytes(l.table) - sizeof(((struct ps_index *)NULL)->partitions);
        assert_int_in_range(index_bytes, l.count * sizeof(uint64_t), l.count * sizeof(uint64_t) * 5 / 4);
    }
    table_load_end(&l);
}

/* The table may have some of them after all. */
TEST(rows_said_to_be_new_may_be_there)
{
    struct loaded l = table_load_begin(20000, FIXTURE_LIMIT_BYTES);
    for (uint32_t i = 0; i < l.count; i++)
        l.keys[i] = i;
    fill_rows(&l, 1);
    assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count / 2, true), MR_OK);
    fill_rows(&l, 2);
    assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, true), MR_OK);
    check_rows(&l, 2);
    table_load_end(&l);
}

TEST(no_memory_is_told)
{
    struct loaded l = table_load_begin(400000, (size_t)8 << 20);
    for (uint32_t i = 0; i < l.count; i++)
        l.keys[i] = i;
    fill_rows(&l, 1);
    assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, false), MR_OUT_OF_MEMORY);
    assert_true(ps_table_rows(l.table) < l.count);
    ps_table_clear(l.table);
    assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, true), MR_OUT_OF_MEMORY);
    assert_true(ps_table_rows(l.table) < l.count);
    table_load_end(&l);
}

/* Keys until none of so many in a row finds room; those that did are the rows. */
#define REFUSED_IN_A_ROW 20000u

static void fill_to_the_last_place(struct loaded *l, uint32_t rows_max)
{
    uint64_t key = 0;
    l->count = 0;
    for (uint32_t refused = 0; refused < REFUSED_IN_A_ROW; refused++) {
        float values[DIM];
        uint64_t rows = ps_table_rows(l->table);
        key += UINT64_C(0x9E3779B97F4A7C15);
        table_lookup(l->table, &key, 1, true, values);
        if (ps_table_rows(l->table) == rows)
            continue;
        assert_true(l->count < rows_max);
        l->keys[l->count++] = key;
        refused = 0;
    }
}

/* A table that has used up its memory fits into as much again where no room is made ahead: its index takes no
 * more than then. */
TEST(a_full_table_fits_again)
{
    const size_t limit_bytes = (size_t)48 << 20;
    const uint32_t rows_max = (uint32_t)(limit_bytes / ROW_BYTES);
    struct loaded l = table_load_begin(rows_max, limit_bytes);
    seed_of_sort = l.table->feature.seed;
    fill_to_the_last_place(&l, rows_max);
    size_t index_bytes = ps_table_index_bytes(l.table), row_bytes = ps_table_row_bytes_total(l.table);
    qsort(l.keys, l.count, sizeof(*l.keys), by_hash);
    fill_rows(&l, 1);
    ps_table_clear(l.table);
    for (uint32_t i = 0; i < l.count; i += 4096) {
        uint32_t count = l.count - i < 4096 ? l.count - i : 4096;
        assert_int_equal(ps_table_load_rows(l.table, l.rows + i, count, false), MR_OK);
    }
    check_rows(&l, 1);
    assert_int_in_range(ps_table_index_bytes(l.table), 1, index_bytes);
    assert_int_in_range(ps_table_row_bytes_total(l.table), 1, row_bytes);
    table_load_end(&l);
}

/* What the node keeps of its limit for restores is theirs, and kept again after them. */
TEST(what_is_kept_of_the_limit_is_for_loading)
{
    const size_t limit_bytes = (size_t)16 << 20, kept_bytes = limit_bytes / 4 * 3;
    struct loaded l = table_load_begin(100000, limit_bytes);
    for (uint32_t i = 0; i < l.count; i++)
        l.keys[i] = i;
    fill_rows(&l, 1);
    assert_int_equal(ps_arena_keep(l.arena, kept_bytes), 0);
    assert_int_equal(ps_table_load_rows(l.table, l.rows, l.count, false), MR_OK);
    assert_true(ps_arena_mapped_bytes(l.arena) > limit_bytes - kept_bytes);
    assert_int_equal(ps_arena_keep(l.arena, 0), kept_bytes);
    check_rows(&l, 1);
    table_load_end(&l);
}

/* Rows that are loaded without room ahead leave nothing that new rows are short of later. */
TEST(the_index_grows_ahead_again_after_loading)
{
    const uint32_t later = 200000;
    size_t index_bytes[2];
    for (uint32_t together = 0; together < 2; together++) {
        struct loaded l = table_load_begin(1, FIXTURE_LIMIT_BYTES);
        fill_rows(&l, 1);
        if (together != 0)
            assert_int_equal(ps_table_load_rows(l.table, l.rows, 1, false), MR_OK);
        else
            assert_int_equal(ps_table_load(l.table, l.keys[0], l.bytes), MR_OK);
        for (uint64_t key = 1; key <= later; key++) {
            float values[DIM];
            table_lookup(l.table, &key, 1, true, values);
        }
        index_bytes[together] = ps_table_index_bytes(l.table);
        table_load_end(&l);
    }
    assert_int_equal(index_bytes[1], index_bytes[0]);
}

/* As in the partition before, unless the table has used more than a share of its own memory. */
TEST(no_room_is_made_ahead_of_a_limit)
{
    enum { PARTITION = 7, BEFORE = 300, OTHERS = 10000 };
    const uint8_t row[ROW_BYTES] = {0};
    struct ps_arena *arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    for (uint32_t is_limited = 0; is_limited < 2; is_limited++) {
        struct mr_feature f = fixture_adagrad(DIM);
        f.memory_bytes = is_limited != 0 ? MR_MEMORY_BYTES_MIN : 0;
        struct ps_table *t = fixture_table(&f, arena);
        for (uint64_t i = 0; i < BEFORE; i++)
            assert_int_equal(ps_table_load(t, fixture_key_of(t, PARTITION - 1, i), row), MR_OK);
        for (uint64_t i = 0; i < OTHERS; i++)
            assert_int_equal(ps_table_load(t, i, row), MR_OK);
        assert_int_in_range(ps_table_memory_bytes(t), MR_MEMORY_BYTES_MIN / 3, MR_MEMORY_BYTES_MIN);
        const size_t index_bytes = ps_table_index_bytes(t);
        struct ps_stored_row next = {fixture_key_of(t, PARTITION, 0), row};
        assert_int_equal(ps_table_load_rows(t, &next, 1, true), MR_OK);
        if (is_limited != 0)
            assert_int_in_range(ps_table_index_bytes(t) - index_bytes, 0, 4 * sizeof(struct ps_bucket));
        else
            assert_true(ps_table_index_bytes(t) - index_bytes >= BEFORE * sizeof(uint64_t));
        ps_table_destroy(t);
    }
    ps_arena_destroy(arena);
}
