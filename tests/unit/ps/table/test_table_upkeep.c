#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM 16u

static void add_keys(struct ps_table *t, uint64_t first, uint64_t end)
{
    float out[64 * DIM];
    uint64_t keys[64];
    for (uint64_t key = first; key < end; key += 64) {
        uint32_t count = end - key < 64 ? (uint32_t)(end - key) : 64;
        for (uint32_t i = 0; i < count; i++)
            keys[i] = key + i;
        table_lookup(t, keys, count, true, out);
    }
}

static void remove_key(struct ps_table *t, uint64_t key)
{
    uint64_t hash = ps_index_hash(&t->index, key);
    struct ps_place place = ps_index_find(&t->index, hash);
    assert_non_null(place.bucket);
    ps_table_row_remove(t, place, hash);
}

static void maintain_to_the_end(struct ps_table *t, uint64_t budget_bytes)
{
    while (ps_table_maintain(t, budget_bytes))
        ;
    assert_false(ps_table_maintain(t, budget_bytes));
}

static bool is_kept(uint64_t key, uint32_t one_in)
{
    return mr_key_hash(key, 77) % one_in == 0;
}

/* Bytes of the arena that are in memory, as the kernel says. */
static size_t resident_bytes(const struct ps_table *t)
{
    static unsigned char pages[PS_HUGE_PAGE_BYTES / 4096];
    size_t bytes = 0;
    for (size_t at = 0; at < FIXTURE_LIMIT_BYTES; at += PS_HUGE_PAGE_BYTES) {
        if (mincore(t->slabs.base + at, PS_HUGE_PAGE_BYTES, pages) != 0)
            continue;
        for (size_t page = 0; page < sizeof(pages); page++)
            bytes += (pages[page] & 1) != 0 ? 4096 : 0;
    }
    return bytes;
}

/* The check that all rows are right after any number of moves: their values follow from their keys, their
 * state from a push. */
static void check_rows(struct ps_table *t, uint64_t count, uint32_t one_in)
{
    float out[DIM], expected[DIM];
    for (uint64_t key = 0; key < count; key++) {
        struct ps_place place = ps_index_find(&t->index, ps_index_hash(&t->index, key));
        assert_int_equal(place.bucket != NULL, is_kept(key, one_in));
        if (place.bucket == NULL)
            continue;
        ps_initializer_fill(&t->initializer, key, expected, DIM);
        table_lookup(t, &key, 1, false, out);
        assert_memory_equal(out, expected, sizeof(out));
    }
}

static void evict_and_give_back(uint64_t count, uint32_t one_in, uint64_t budget_bytes)
{
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    add_keys(t, 0, count);
    size_t mapped = ps_arena_mapped_bytes(fixture_arena), resident = resident_bytes(t);
    size_t bytes = ps_table_row_bytes_total(t) + t->index.bytes;
    for (uint64_t key = 0; key < count; key++) {
        if (!is_kept(key, one_in))
            remove_key(t, key);
        if (key % 1000 == 0)
            ps_table_maintain(t, budget_bytes);
    }
    maintain_to_the_end(t, budget_bytes);
    check_rows(t, count, one_in);
    size_t left_bytes = ps_table_row_bytes_total(t) + t->index.bytes;
    assert_true(left_bytes < bytes / one_in + bytes / 10 + PS_HUGE_PAGE_BYTES);
    /* units that are shared, one per kind of thing, may stay in part */
    assert_true(ps_arena_mapped_bytes(fixture_arena) <=
                mapped / one_in + mapped / 10 + 4 * PS_HUGE_PAGE_BYTES);
    assert_true(resident_bytes(t) <= resident / one_in + resident / 10 + 4 * PS_HUGE_PAGE_BYTES);
    assert_true(t->slabs.bytes <= t->slabs.rows * t->slabs.stride_bytes * 9 / 8 + 2 * PS_HUGE_PAGE_BYTES);
    ps_table_destroy(t);
}

TEST(test_memory_of_removed_rows_goes_back, fixture_arena_create, fixture_arena_destroy)
{
    evict_and_give_back(400000, 2, 16 << 10);
    evict_and_give_back(400000, 20, UINT64_MAX);
    evict_and_give_back(3000, 2, 1);
}

/* Everything at once: rows come, go and move while a model says what must be there. */
TEST(test_random_operations_with_upkeep, fixture_arena_create, fixture_arena_destroy)
{
    enum { KEYS = 60000, STEPS = 400000 };
    static bool there[KEYS];
    uint64_t rng = fixture_seed("upkeep");
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint32_t count = 0;
    float out[DIM], expected[DIM];
    memset(there, 0, sizeof(there));
    for (uint32_t i = 0; i < STEPS; i++) {
        uint64_t key = random_below(&rng, KEYS);
        bool shrinking = i / 50000 % 2 == 1;
        if (!there[key] && (!shrinking || random_below(&rng, 8) == 0)) {
            table_lookup(t, &key, 1, true, out);
            there[key] = true;
            count++;
        } else if (there[key] && (shrinking || random_below(&rng, 8) == 0)) {
            remove_key(t, key);
            there[key] = false;
            count--;
        } else {
            table_lookup(t, &key, 1, false, out);
            ps_initializer_fill(&t->initializer, key, expected, DIM);
            assert_memory_equal(out, expected, sizeof(out));
        }
        assert_int_equal(ps_table_rows(t), count);
        if (random_below(&rng, 20) == 0)
            ps_table_maintain(t, random_below(&rng, 20000));
    }
    for (uint64_t key = 0; key < KEYS; key++)
        assert_int_equal(ps_index_find(&t->index, ps_index_hash(&t->index, key)).bucket != NULL, there[key]);
    ps_table_destroy(t);
}

/* A partition needs buckets for the high row numbers that it was given beside a large one of its group: until
 * they are low. It loses a row before. */
TEST(test_low_row_numbers_need_few_buckets, fixture_arena_create, fixture_arena_destroy)
{
    enum { LARGE = 5 * PS_GROUP_PARTITIONS, BESIDE = LARGE + 1, ROWS = 5000, ROWS_BESIDE = 5 };
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    float out[DIM];
    for (uint32_t i = 0; i < ROWS + ROWS_BESIDE; i++) {
        uint64_t key = fixture_key_of(t, i < ROWS ? LARGE : BESIDE, i);
        table_lookup(t, &key, 1, true, out);
    }
    assert_true(t->index.partitions[BESIDE].bucket_count > 1);
    for (uint32_t i = 0; i < ROWS; i++)
        remove_key(t, fixture_key_of(t, LARGE, i));
    remove_key(t, fixture_key_of(t, BESIDE, ROWS));
    maintain_to_the_end(t, 10000);
    assert_int_equal(ps_table_rows(t), ROWS_BESIDE - 1);
    assert_int_equal(ps_table_counters(t)->rows, ROWS_BESIDE - 1);
    assert_int_equal(t->index.bytes, sizeof(struct ps_bucket));
    ps_table_destroy(t);
}

TEST(test_an_idle_table_has_no_upkeep, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    assert_false(ps_table_maintain(t, 1));
    add_keys(t, 0, 100000);
    assert_false(ps_table_maintain(t, 1));
    uint64_t rewrites = t->index.rewrites;
    assert_false(ps_table_maintain(t, UINT64_MAX));
    assert_int_equal(t->index.rewrites, rewrites);
    ps_table_clear(t);
    assert_false(ps_table_maintain(t, 1));
    ps_table_destroy(t);
}

/* While calls are running, their new keys make partitions grow, and others' buckets move in memory: rows
 * are found all the same. */
TEST(test_rows_are_found_while_buckets_move, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 700000, CALL_KEYS = 256 };
    struct mr_feature feature = mr_feature_table("growing", 1);
    feature.initializer = MR_INIT_UNIFORM;
    feature.init_a = -1.0f;
    feature.init_b = 1.0f;
    struct ps_table *t = fixture_table(&feature, fixture_arena),
                    *empty = fixture_table(&feature, fixture_arena);
    uint64_t rng = fixture_seed("buckets move"), keys[CALL_KEYS];
    float out[CALL_KEYS], wanted[CALL_KEYS];
    uint32_t gathered = 0;
    for (uint64_t rows = 0; rows < ROWS; rows += CALL_KEYS / 2) {
        for (uint32_t i = 0; i < CALL_KEYS; i += 2) {
            keys[i] = rows + i / 2;
            keys[i + 1] = random_next(&rng) % (rows + i / 2 + 1);
        }
        table_lookup(t, keys, CALL_KEYS, true, out);
        table_lookup(empty, keys, CALL_KEYS, false, wanted); /* first values follow from the key */
        assert_memory_equal(out, wanted, sizeof(out));
        assert_int_equal(ps_table_rows(t), rows + CALL_KEYS / 2);
        gathered = t->index.gather_count;
    }
    assert_true(gathered > 2);
    ps_table_destroy(t);
    ps_table_destroy(empty);
}
