/* Linked with --wrap=aligned_alloc, so that the heap can be made to fail. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/wire/format/convert.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

static bool heap_is_short;

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return heap_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

static int set_up(void **state)
{
    heap_is_short = false;
    return fixture_arena_create(state);
}

static struct ps_table *sgd_table(uint32_t dim, uint32_t pooling)
{
    struct mr_feature f = mr_feature_table("t", dim);
    f.learning_rate = 1;
    f.pooling = pooling;
    return fixture_table(&f, fixture_arena);
}

static float value_of(struct ps_table *t, uint64_t key)
{
    float out[MR_DIM_MAX];
    table_lookup(t, &key, 1, false, out);
    return out[0];
}

static void make_rows(struct ps_table *t, const uint64_t *keys, uint32_t count)
{
    float out[MR_DIM_MAX];
    for (uint32_t i = 0; i < count; i++)
        table_lookup(t, &keys[i], 1, true, out);
}

TEST(test_repeated_keys_are_summed_and_stepped_once, set_up, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(1);
    f.initializer = MR_INIT_CONSTANT;
    f.init_a = 0;
    f.optimizer_args[0] = 1;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint64_t keys[5] = {4, 9, 4, 4, 9};
    const float gradients[5] = {1, 10, 2, 3, -10};
    make_rows(t, keys, 5);
    table_push(t, keys, 5, gradients);
    assert_true(fabs((double)value_of(t, 4) + 0.1 * 6 / sqrt(1 + 36)) < 1e-7);
    assert_true(value_of(t, 9) == 0);
    assert_int_equal(ps_table_counters(t)->updates, 2);
    assert_int_equal(ps_table_counters(t)->keys_pushed, 5);
    ps_table_destroy(t);
}

static struct ps_table *set_table(uint32_t dim, enum mr_dtype dtype)
{
    struct mr_feature f = fixture_adagrad(dim);
    mr_feature_set_optimizer(&f, MR_OPT_ASSIGN);
    f.dtype = (uint32_t)dtype;
    return fixture_table(&f, fixture_arena);
}

/* Of a key that is in a push of set rows several times the last finite row counts, however the push
 * travels. */
TEST(test_of_repeated_rows_the_last_is_set, set_up, fixture_arena_destroy)
{
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_BF16};
    const uint64_t keys[] = {1, 2, 1, 3, 3, 4, 4, 4, 5, 5, 1};
    const float rows[] = {1, 1, 2, 2, 3, 3, NAN, 0, 4, 4, 5, 5, 6, 6, 0, INFINITY, NAN, 0, 0, NAN, 7, -7};
    uint16_t narrow[22];
    for (uint32_t i = 0; i < 3; i++) {
        struct ps_table *t = set_table(2, MR_F32);
        struct ps_table_push p = {.in.keys = keys,
                                  .in.key_count = 11,
                                  .gradients_dtype = dtypes[i],
                                  .gradients = i == 0 ? (const void *)rows : narrow,
                                  .at_once = true,
                                  .insert = true};
        uint64_t budget_bytes = UINT64_MAX;
        make_rows(t, keys, 11);
        const float first = value_of(t, 5);
        if (i > 0)
            mr_convert_from_f32(dtypes[i], narrow, NULL, rows, 11, 2);
        assert_true(ps_table_push_step(t, &p, &budget_bytes));
        assert_true(value_of(t, 1) == 7 && value_of(t, 2) == 2 && value_of(t, 3) == 4);
        assert_true(value_of(t, 4) == 6 && value_of(t, 5) == first);
        assert_int_equal(ps_table_counters(t)->updates, 4);
        assert_int_equal(ps_table_counters(t)->gradients_skipped, 1 + 1 + 2);
        assert_int_equal(ps_table_counters(t)->gradients_without_row, 0);
        ps_table_destroy(t);
    }
}

/* As a bag's keys would get their gradient: its row to each of them, over its divisor, times its weight. */
TEST(test_a_bag_sets_the_rows_of_its_keys, set_up, fixture_arena_destroy)
{
    struct ps_table *t = set_table(1, MR_F32);
    const uint64_t keys[] = {1, 2, 2, 3};
    const uint32_t offsets[] = {0, 2, 4};
    const float rows[] = {10, 20}, weights[] = {1, 2, 0.5f, -1};
    struct ps_table_push p = {.in.keys = keys,
                              .in.key_count = 4,
                              .in.offsets = offsets,
                              .in.bag_count = 2,
                              .gradients = rows,
                              .in.weights = weights,
                              .at_once = true};
    uint64_t budget_bytes = UINT64_MAX;
    make_rows(t, keys, 4);
    table_push_bags(t, keys, offsets, 2, rows);
    assert_true(value_of(t, 1) == 10 && value_of(t, 2) == 20 && value_of(t, 3) == 20);
    assert_true(ps_table_push_step(t, &p, &budget_bytes));
    assert_true(value_of(t, 1) == 10 && value_of(t, 2) == 10 && value_of(t, 3) == -20);
    ps_table_destroy(t);
}

TEST(test_keys_without_a_row_are_left_out, set_up, fixture_arena_destroy)
{
    struct ps_table *t = sgd_table(1, MR_POOL_SUM);
    const uint64_t keys[4] = {1, 2, 3, 2};
    const float gradients[4] = {1, 1, 1, 1};
    make_rows(t, keys, 1);
    table_push(t, keys, 4, gradients);
    assert_int_equal(ps_table_rows(t), 1);
    assert_int_equal(ps_table_counters(t)->gradients_without_row, 2);
    assert_true(value_of(t, 1) == -1);
    ps_table_destroy(t);
}

TEST(test_bad_gradients_are_left_out_and_no_others, set_up, fixture_arena_destroy)
{
    struct ps_table *t = sgd_table(2, MR_POOL_SUM);
    const uint64_t keys[] = {1, 1, 1, 2, 2, 3, 4, 4, 5, 5, 5};
    const float gradients[] = {1,   0,        NAN,      0,         2, 0,  /* 1: the second is left out */
                               NAN, 0,        5,        0,                /* 2: the first */
                               0,   INFINITY,                             /* 3: its only one */
                               NAN, 0,        0,        -INFINITY,        /* 4: both */
                               NAN, 0,        INFINITY, 0,         7, 0}; /* 5: two of three */
    make_rows(t, keys, 11);
    table_push(t, keys, 11, gradients);
    assert_true(value_of(t, 1) == -3);
    assert_true(value_of(t, 2) == -5);
    assert_true(value_of(t, 3) == 0);
    assert_true(value_of(t, 4) == 0);
    assert_true(value_of(t, 5) == -7);
    assert_int_equal(ps_table_counters(t)->updates, 3);
    assert_int_equal(ps_table_counters(t)->gradients_skipped, 1 + 1 + 1 + 2 + 2);
    ps_table_destroy(t);
}

TEST(test_a_sum_that_overflows_is_left_out, set_up, fixture_arena_destroy)
{
    struct ps_table *t = sgd_table(1, MR_POOL_SUM);
    const uint64_t keys[2] = {1, 1};
    const float gradients[2] = {FLT_MAX, FLT_MAX};
    make_rows(t, keys, 1);
    table_push(t, keys, 2, gradients);
    assert_true(value_of(t, 1) == 0);
    assert_int_equal(ps_table_counters(t)->gradients_skipped, 1);
    ps_table_destroy(t);
}

enum { MIXED_KEYS = 200, MIXED_DISTINCT = 12 };

static float mixed_value(uint64_t *seed)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX};
    uint64_t draw = random_below(seed, 100);
    return draw < 5 ? bad[draw] : random_float(seed);
}

/* Keys are brought together in groups where each has a gradient of its own, and one by one where gradients
 * are of bags: with the same result, whatever is bad and wherever. */
static void check_groups_as_bags(uint32_t dim, uint64_t seed)
{
    struct ps_table *groups = sgd_table(dim, MR_POOL_SUM), *bags = sgd_table(dim, MR_POOL_SUM);
    uint64_t keys[MIXED_KEYS];
    uint32_t offsets[MIXED_KEYS + 1];
    float *gradients = malloc((size_t)MIXED_KEYS * dim * sizeof(float));
    float a[MIXED_DISTINCT * MR_DIM_MAX], b[MIXED_DISTINCT * MR_DIM_MAX];
    for (uint32_t i = 0; i < MIXED_KEYS; i++) {
        keys[i] = i < MIXED_DISTINCT ? i : random_below(&seed, MIXED_DISTINCT);
        for (uint32_t j = 0; j < dim; j++)
            gradients[i * dim + j] = random_float(&seed);
        gradients[i * dim + random_below(&seed, dim)] = mixed_value(&seed);
        offsets[i] = i;
    }
    offsets[MIXED_KEYS] = MIXED_KEYS;
    gradients[(MIXED_KEYS - 1) * dim] = NAN; /* one at least */
    make_rows(groups, keys, MIXED_DISTINCT);
    make_rows(bags, keys, MIXED_DISTINCT);
    table_push(groups, keys, MIXED_KEYS, gradients);
    table_push_bags(bags, keys, offsets, MIXED_KEYS, gradients);
    table_lookup(groups, keys, MIXED_DISTINCT, false, a);
    table_lookup(bags, keys, MIXED_DISTINCT, false, b);
    assert_memory_equal(a, b, (size_t)MIXED_DISTINCT * dim * sizeof(float));
    assert_int_equal(ps_table_counters(groups)->updates, ps_table_counters(bags)->updates);
    assert_int_equal(ps_table_counters(groups)->gradients_skipped,
                     ps_table_counters(bags)->gradients_skipped);
    assert_true(ps_table_counters(groups)->gradients_skipped > 0);
    free(gradients);
    ps_table_destroy(groups);
    ps_table_destroy(bags);
}

TEST(test_groups_are_summed_as_keys_one_by_one, set_up, fixture_arena_destroy)
{
    static const uint32_t dims[] = {1, 16, 19};
    uint64_t seed = fixture_seed("groups");
    for (uint32_t k = 0; mr_kernels_at(k) != NULL; k++) {
        mr_kernels_force(mr_kernels_at(k));
        for (uint32_t i = 0; i < 60; i++)
            check_groups_as_bags(dims[i % 3], seed + i);
    }
    mr_kernels_force(NULL);
}

/* A bag's gradient reaches each of its keys, divided as its sum was; a key in two bags, or twice in one, gets
 * all. */
TEST(test_gradients_of_bags, set_up, fixture_arena_destroy)
{
    static const uint32_t poolings[] = {MR_POOL_SUM, MR_POOL_MEAN, MR_POOL_SQRTN};
    const uint64_t keys[] = {1, 2, 3, 3, 1, 5, 6};
    const uint32_t offsets[] = {0, 4, 4, 5, 7};
    const float gradients[] = {8, 100, 2, NAN};
    for (uint32_t p = 0; p < 3; p++) {
        struct ps_table *t = sgd_table(1, poolings[p]);
        float part = p == 0 ? 8 : p == 1 ? 2 : 4; /* of a bag of four */
        make_rows(t, keys, 7);
        table_push_bags(t, keys, offsets, 4, gradients);
        assert_true(value_of(t, 1) == -part - 2);
        assert_true(value_of(t, 2) == -part);
        assert_true(value_of(t, 3) == -2 * part);
        assert_true(value_of(t, 5) == 0 && value_of(t, 6) == 0);
        assert_int_equal(ps_table_counters(t)->updates, 3);
        assert_int_equal(ps_table_counters(t)->gradients_skipped, 2);
        assert_int_equal(ps_table_counters(t)->keys_pushed, 7);
        ps_table_destroy(t);
    }
}

enum { BIG_KEYS = 6000, BIG_DIM = 64, BIG_BAG = 3 };

static void push_narrow(struct ps_table *t, const uint64_t *keys, uint32_t key_count,
                        const uint16_t *gradients)
{
    uint64_t budget_bytes = UINT64_MAX;
    struct ps_table_push p = {.in.keys = keys,
                              .in.key_count = key_count,
                              .gradients_dtype = MR_F16,
                              .gradients = gradients,
                              .at_once = true};
    assert_true(ps_table_push_step(t, &p, &budget_bytes));
}

/* A push too large for the scratch memory there is, into tables that take it whole and in parts. */
static void check_split(uint32_t pooling, uint64_t seed)
{
    struct mr_feature f = fixture_adagrad(BIG_DIM);
    f.pooling = pooling;
    struct ps_arena *other_arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_table *split = fixture_table(&f, fixture_arena), *whole = fixture_table(&f, other_arena);
    uint64_t *keys = malloc(BIG_KEYS * sizeof(*keys));
    float *gradients = malloc((size_t)BIG_KEYS * BIG_DIM * sizeof(float));
    float *a = malloc((size_t)BIG_KEYS * BIG_DIM * sizeof(float));
    float *b = malloc((size_t)BIG_KEYS * BIG_DIM * sizeof(float));
    uint16_t *narrow = malloc((size_t)BIG_KEYS * BIG_DIM * sizeof(*narrow));
    uint32_t offsets[BIG_KEYS / BIG_BAG + 1];
    for (uint32_t i = 0; i < BIG_KEYS; i++)
        keys[i] = random_below(&seed, BIG_KEYS * 2);
    for (uint32_t i = 0; i < BIG_KEYS * BIG_DIM; i++)
        gradients[i] = i % 10007 == 5 ? NAN : random_float(&seed);
    mr_convert_from_f32(MR_F16, narrow, NULL, gradients, BIG_KEYS, BIG_DIM);
    for (uint32_t i = 0; i <= BIG_KEYS / BIG_BAG; i++)
        offsets[i] = i * BIG_BAG;
    table_lookup(split, keys, BIG_KEYS / 2, true, a);
    table_lookup(whole, keys, BIG_KEYS / 2, true, a);
    heap_is_short = true;
    table_push(split, keys, BIG_KEYS, gradients);
    push_narrow(split, keys, BIG_KEYS, narrow);
    table_push_bags(split, keys, offsets, BIG_KEYS / BIG_BAG, gradients);
    heap_is_short = false;
    table_push(whole, keys, BIG_KEYS, gradients);
    push_narrow(whole, keys, BIG_KEYS, narrow);
    table_push_bags(whole, keys, offsets, BIG_KEYS / BIG_BAG, gradients);
    table_lookup(split, keys, BIG_KEYS, false, a);
    table_lookup(whole, keys, BIG_KEYS, false, b);
    assert_memory_equal(a, b, (size_t)BIG_KEYS * BIG_DIM * sizeof(float));
    assert_memory_equal(ps_table_counters(split), ps_table_counters(whole), sizeof(struct ps_table_counters));
    assert_true(ps_table_counters(whole)->gradients_without_row > 0);
    ps_table_destroy(split);
    ps_table_destroy(whole);
    ps_arena_destroy(other_arena);
    free(keys);
    free(gradients);
    free(narrow);
    free(a);
    free(b);
}

TEST(test_a_push_the_heap_has_no_room_for_is_done_in_parts, set_up, fixture_arena_destroy)
{
    uint64_t seed = fixture_seed("split");
    check_split(MR_POOL_SUM, seed);
    fixture_arena_destroy(state);
    set_up(state);
    check_split(MR_POOL_MEAN, seed);
}

/* The rows that a push makes are those of a lookup before it, also where the index grows on the way, at once
 * and in steps. */
static void check_making_rows(uint64_t budget_bytes)
{
    enum { COUNT = 60000 };
    struct mr_feature f = fixture_adagrad(2);
    struct ps_table *made = fixture_table(&f, fixture_arena), *looked_up = fixture_table(&f, fixture_arena);
    uint64_t *keys = malloc(COUNT * sizeof(*keys)), left, random = 5;
    float *gradients = malloc(COUNT * 2 * sizeof(*gradients)), *a = malloc(COUNT * 2 * sizeof(*a));
    float *b = malloc(COUNT * 2 * sizeof(*b));
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = random_below(&random, COUNT);
        gradients[2 * i] = gradients[2 * i + 1] = random_float(&random);
    }
    table_lookup(made, keys, COUNT / 8, true, a); /* some are there */
    table_lookup(looked_up, keys, COUNT, true, a);
    table_push(looked_up, keys, COUNT, gradients);
    struct ps_table_push push = {.in.keys = keys,
                                 .in.key_count = COUNT,
                                 .gradients = gradients,
                                 .at_once = budget_bytes == UINT64_MAX,
                                 .insert = true};
    do {
        left = budget_bytes;
    } while (!ps_table_push_step(made, &push, &left));
    assert_int_equal(ps_table_rows(made), ps_table_rows(looked_up));
    assert_int_equal(ps_table_counters(made)->gradients_without_row, 0);
    table_lookup(made, keys, COUNT, false, a);
    table_lookup(looked_up, keys, COUNT, false, b);
    assert_memory_equal(a, b, COUNT * 2 * sizeof(*a));
    ps_table_destroy(made);
    ps_table_destroy(looked_up);
    free(keys);
    free(gradients);
    free(a);
    free(b);
}

TEST(test_a_push_makes_rows_when_told_to, set_up, fixture_arena_destroy)
{
    check_making_rows(UINT64_MAX);
    check_making_rows(20000);
}

TEST(test_a_row_that_cannot_be_made_is_left_out, set_up, fixture_arena_destroy)
{
    struct mr_feature f = mr_feature_table("t", 1);
    f.learning_rate = 1;
    f.capacity_rows = 2;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint64_t keys[3] = {1, 2, 3};
    const float gradients[3] = {1, 1, 1};
    struct ps_table_push push = {
        .in.keys = keys, .in.key_count = 3, .gradients = gradients, .at_once = true, .insert = true};
    uint64_t budget_bytes = UINT64_MAX;
    assert_true(ps_table_push_step(t, &push, &budget_bytes));
    assert_int_equal(ps_table_rows(t), 2);
    assert_int_equal(ps_table_counters(t)->gradients_without_row, 1);
    assert_true(value_of(t, 1) == -1 && value_of(t, 2) == -1 && value_of(t, 3) == 0);
    ps_table_destroy(t);
}
