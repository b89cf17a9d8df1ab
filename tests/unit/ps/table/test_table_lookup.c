#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "table_fixture.h"
#include "dataplane/optimizer/kernels.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

/* Random bags, some empty, against single lookups summed up in order. */
static void check_bags(uint32_t pooling, uint32_t dim, bool insert, uint64_t seed)
{
    enum { BAGS = 60, KEYS_MAX = BAGS * 40 };
    struct mr_feature f = fixture_adagrad(dim);
    f.pooling = pooling;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint64_t keys[KEYS_MAX];
    uint32_t offsets[BAGS + 1] = {0};
    float *out = malloc(BAGS * dim * sizeof(float)), *row = malloc(dim * sizeof(float));
    float *sum = malloc(dim * sizeof(float));
    for (uint32_t b = 0; b < BAGS; b++) {
        offsets[b + 1] = offsets[b] + (random_below(&seed, 3) == 0 ? 0 : random_below(&seed, 40));
        for (uint32_t k = offsets[b]; k < offsets[b + 1]; k++)
            keys[k] = random_below(&seed, 300);
    }
    memset(out, 0xff, BAGS * dim * sizeof(float));
    table_lookup_bags(t, keys, offsets, BAGS, insert, out);
    assert_int_equal(ps_table_rows(t) > 0, insert);
    for (uint32_t b = 0; b < BAGS; b++) {
        float count = (float)(offsets[b + 1] - offsets[b]);
        float divisor = pooling == MR_POOL_MEAN ? count : pooling == MR_POOL_SQRTN ? sqrtf(count) : 1;
        memset(sum, 0, dim * sizeof(float));
        for (uint32_t k = offsets[b]; k < offsets[b + 1]; k++) {
            table_lookup(t, &keys[k], 1, insert, row);
            for (uint32_t i = 0; i < dim; i++)
                sum[i] += row[i];
        }
        for (uint32_t i = 0; i < dim; i++)
            assert_true(out[b * dim + i] == (count > 0 ? sum[i] / divisor : 0));
    }
    ps_table_destroy(t);
    free(out);
    free(row);
    free(sum);
}

TEST(test_bags_of_every_pooling_and_dim, fixture_arena_create, fixture_arena_destroy)
{
    uint64_t seed = fixture_seed("bags");
    static const uint32_t poolings[] = {MR_POOL_SUM, MR_POOL_MEAN, MR_POOL_SQRTN};
    static const uint32_t dims[] = {1, 3, 8, 9, 16, 33, 128, 1024};
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
            for (uint32_t insert = 0; insert < 2; insert++)
                check_bags(poolings[p], dims[d], insert != 0, seed + d);
}

TEST(test_only_empty_bags_give_zeros, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(4);
    f.pooling = MR_POOL_MEAN;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint32_t offsets[4] = {0, 0, 0, 0};
    const float zero[12] = {0};
    float out[12];
    memset(out, 0xff, sizeof(out));
    table_lookup_bags(t, NULL, offsets, 3, true, out);
    assert_memory_equal(out, zero, sizeof(out));
    ps_table_destroy(t);
}

/* One bag of many groups, and groups of many bags: the sums do not depend on how the keys fall into
 * groups. */
TEST(test_sums_do_not_depend_on_grouping, fixture_arena_create, fixture_arena_destroy)
{
    enum { COUNT = 500, DIM = 7 };
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint64_t keys[COUNT];
    float out[3 * DIM], parts[DIM];
    for (uint32_t i = 0; i < COUNT; i++)
        keys[i] = i;
    const uint32_t one[2] = {0, COUNT};
    table_lookup_bags(t, keys, one, 1, true, parts);
    for (uint32_t shift = 0; shift < 20; shift++) {
        uint64_t shifted[20 + COUNT] = {0};
        const uint32_t offsets[4] = {0, shift, shift + COUNT, shift + COUNT};
        memcpy(shifted + shift, keys, sizeof(keys));
        table_lookup_bags(t, shifted, offsets, 3, false, out);
        assert_memory_equal(out + DIM, parts, sizeof(parts));
    }
    ps_table_destroy(t);
}

/* Keys made one by one, and absent ones between them, are found in groups of any size by any set. */
static void check_kernels(const struct mr_kernels *kernels, uint32_t dim, uint64_t table_seed)
{
    enum { KEYS = 4000, CALL_KEYS = 100 };
    struct mr_feature f = fixture_adagrad(dim);
    f.seed = table_seed;
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -1;
    f.init_b = 1;
    mr_kernels_force(kernels);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    float *rows = malloc((size_t)KEYS * dim * sizeof(float));
    float *out = malloc(CALL_KEYS * dim * sizeof(float)), *gradients = calloc(CALL_KEYS, dim * sizeof(float));
    for (uint64_t key = 0; key < KEYS; key++)
        table_lookup(t, &key, 1, key % 7 != 0, rows + key * dim);
    for (uint32_t count = 1; count <= CALL_KEYS; count++) {
        uint64_t keys[CALL_KEYS];
        for (uint32_t i = 0; i < count; i++)
            keys[i] = (uint64_t)(i * 1013 + count * 77) % KEYS;
        table_lookup(t, keys, count, false, out);
        for (uint32_t i = 0; i < count; i++)
            assert_memory_equal(out + i * dim, rows + keys[i] * dim, dim * sizeof(float));
        uint64_t applied = ps_table_counters(t)->updates, expected = 0;
        table_push(t, keys, count, gradients);
        for (uint32_t i = 0; i < count; i++)
            expected += keys[i] % 7 != 0;
        assert_int_equal(ps_table_counters(t)->updates - applied, expected);
    }
    ps_table_destroy(t);
    mr_kernels_force(NULL);
    free(rows);
    free(out);
    free(gradients);
}

TEST(test_every_set_of_kernels_finds_all_keys, fixture_arena_create, fixture_arena_destroy)
{
    static const uint32_t dims[] = {1, 3, 16, 33};
    const struct mr_kernels *kernels;
    for (uint32_t n = 0; (kernels = mr_kernels_at(n)) != NULL; n++)
        for (uint32_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++)
            check_kernels(kernels, dims[d], (uint64_t)d * 0xfedcba9876543210);
}
