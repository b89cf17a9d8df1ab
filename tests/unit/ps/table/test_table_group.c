/* The stages of a group, by each set of vectors, against what the index says of each key. */
#include <stdlib.h>
#include <string.h>
#include "table_fixture.h"
#include "dataplane/optimizer/kernels.h"
#include "ps/table/table_group.h"
#include "tests/test.h"

enum { KEYS = 20000 };

static struct ps_table *make_table(const struct mr_kernels *kernels, uint32_t dim)
{
    struct mr_feature f = mr_feature_table("groups", dim);
    mr_kernels_force(kernels);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    mr_kernels_force(NULL);
    return t;
}

/* ---- keys of a table ---- */

/* Half of the keys have no row. Partitions differ in their numbers of buckets, and some have none. */
static void check_table(const struct mr_kernels *kernels)
{
    struct ps_table *t = make_table(kernels, 16);
    uint64_t seed = fixture_seed("groups"), keys[PS_GROUP_KEYS + 64]; /* some are prefetched past the end */
    uint32_t late = 0;
    memset(keys, 0, sizeof(keys));
    for (uint64_t key = 0; key < KEYS; key++)
        fixture_insert(t, key * 2);
    for (uint32_t run = 0; run < 5000; run++) {
        const uint32_t count = 1 + random_below(&seed, PS_GROUP_KEYS);
        struct ps_group g;
        for (uint32_t i = 0; i < count; i++)
            keys[i] = random_below(&seed, KEYS * 2);
        ps_group_hash(t, g.hashes, keys, count);
        ps_group_seek(t, &g, count);
        ps_group_find(t, &g, count, t->layout.values_bytes);
        assert_int_equal(g.late >> count, 0);
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t hash = ps_index_hash(&t->index, keys[i]);
            const struct ps_partition *p = &t->index.partitions[mr_partition_of(hash)];
            struct ps_bucket *home = p->buckets + ps_home_number(hash, p->bucket_count);
            struct ps_place place = ps_bucket_find(home, hash, p->limit, false);
            assert_int_equal(g.hashes[i], hash);
            assert_int_equal(g.limits[i], p->limit);
            assert_int_equal(g.late >> i & 1, place.bucket == NULL);
            late += g.late >> i & 1;
            if (place.bucket == NULL) {
                place = ps_group_find_late(t, &g, i);
                assert_int_equal(place.bucket != NULL, keys[i] % 2 == 0);
            } else {
                assert_ptr_equal(g.buckets[i], home);
                assert_int_equal(g.matches[i], 1u << place.slot);
                assert_ptr_equal(g.rows[i], ps_table_row(t, place));
            }
        }
    }
    assert_true(late > 0);
    ps_table_destroy(t);
}

TEST(test_groups_of_a_table, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_kernels *kernels;
    for (uint32_t n = 0; (kernels = mr_kernels_at(n)) != NULL; n++)
        check_table(kernels);
}

/* ---- row numbers of any size ---- */

/* Numbers on either side of each power of two, where the size of slabs may change, and any. */
static uint32_t draw_row(const struct ps_slabs *s, uint64_t *seed)
{
    const uint32_t biased = (1u << (1 + random_below(seed, 28))) - 2 + random_below(seed, 4);
    const uint32_t any = random_below(seed, PS_GROUP_ROWS_MAX / 2);
    return random_below(seed, 4) == 0 || biased < s->row_bias ? any : biased - s->row_bias;
}

/* A bucket of entries of other keys, of which one slot may be the key's. */
static void fill_bucket(struct ps_bucket *b, uint64_t hash, uint32_t limit, uint32_t slot, uint32_t row,
                        uint64_t *seed)
{
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++) {
        const uint64_t other = hash ^ (uint64_t)(1 + random_below(seed, 1000)) << 20;
        b->entries[i] =
            random_below(seed, 4) == 0
                ? 0
                : ps_entry_of_hash(other, limit) + (uint64_t)(1 + random_below(seed, 100)) * PS_ENTRY_STATES;
    }
    if (slot < PS_BUCKET_KEYS)
        b->entries[slot] = ps_entry_of_hash(hash, limit) + (uint64_t)(row + 1) * PS_ENTRY_STATES +
                           random_below(seed, PS_ENTRY_STATES);
}

/* Slabs of a full group, which are nowhere: each is as many lines from the base as its number says. */
static uint32_t *number_slabs(struct ps_slabs *s)
{
    const uint32_t slabs = (PS_GROUP_ROWS_MAX >> s->last_shift) + 32 * PS_SLABS_PER_SIZE;
    uint32_t *directory = malloc(slabs * sizeof(*directory));
    assert_non_null(directory);
    for (uint32_t i = 0; i < slabs; i++)
        directory[i] = i;
    for (uint32_t i = 0; i < PS_ROW_GROUPS; i++)
        s->directories[i] = directory;
    return directory;
}

static void check_rows(const struct mr_kernels *kernels, uint32_t dim)
{
    struct ps_table *t = make_table(kernels, dim);
    uint64_t seed = fixture_seed("rows of groups");
    uint32_t *directory = number_slabs(&t->slabs);
    const uint32_t limit = ps_entry_limit(PS_PARTITION_BUCKETS_MAX);
    struct ps_bucket buckets[PS_GROUP_KEYS];
    for (uint32_t run = 0; run < 20000; run++) {
        const uint32_t count = run % 2 == 0 ? PS_GROUP_KEYS : 1 + random_below(&seed, PS_GROUP_KEYS);
        uint32_t rows[PS_GROUP_KEYS], slots[PS_GROUP_KEYS];
        struct ps_group g;
        for (uint32_t i = 0; i < count; i++) {
            g.hashes[i] = random_next(&seed);
            g.limits[i] = limit;
            g.buckets[i] = &buckets[i];
            rows[i] = draw_row(&t->slabs, &seed);
            slots[i] = random_below(&seed, PS_BUCKET_KEYS + 1);
            fill_bucket(&buckets[i], g.hashes[i], limit, slots[i], rows[i], &seed);
        }
        if (count == PS_GROUP_KEYS)
            t->group_stages->find(t, &g);
        else
            t->group_stages->find_some(t, &g, count);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(g.late >> i & 1, slots[i] == PS_BUCKET_KEYS);
            if (slots[i] == PS_BUCKET_KEYS)
                continue;
            assert_int_equal(g.matches[i], 1u << slots[i]);
            assert_ptr_equal(g.rows[i], ps_slabs_row_in(&t->slabs, directory, rows[i]));
        }
    }
    memset(t->slabs.directories, 0, sizeof(t->slabs.directories));
    free(directory);
    ps_table_destroy(t);
}

TEST(test_rows_of_any_number, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_kernels *kernels;
    for (uint32_t n = 0; (kernels = mr_kernels_at(n)) != NULL; n++)
        for (uint32_t dim = 1; dim <= 64; dim *= 4) /* rows of 4 bytes are the shortest */
            if (ps_group_stages_of(kernels->vectors) != NULL)
                check_rows(kernels, dim);
}
