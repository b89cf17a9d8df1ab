#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ps/row/initializer.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"
#include "ps/table/table_internal.h"

static void refused(struct mr_feature f, const char *expected)
{
    struct ps_table *t = NULL;
    const char *what = NULL;
    const struct ps_key_secret secret = {{0}};
    assert_int_equal(ps_table_create(&f, fixture_arena, &secret, &t, &what), MR_UNSUPPORTED);
    assert_string_equal(what, expected);
    assert_null(t);
    assert_int_equal(ps_arena_allocated_bytes(fixture_arena), 0);
}

TEST(test_what_comes_later_is_refused_by_name, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature plain = mr_feature_table("t", 4), f;
#define REFUSED(field, value, expected)                                                                      \
    f = plain;                                                                                               \
    f.field = (value);                                                                                       \
    refused(f, expected);
    REFUSED(dtype, MR_F64, "dtype other than f32, f16 and bf16")
    REFUSED(optimizer, 77, "optimizer of an unknown number")
    REFUSED(initializer, 77, "initializer of an unknown number")
}

TEST(test_a_lookup_without_insert_answers_first_values_and_keeps_nothing, fixture_arena_create,
     fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(8);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint64_t keys[3] = {0, UINT64_MAX, 0};
    float first[24], again[24];
    table_lookup(t, keys, 3, false, first);
    assert_int_equal(ps_table_rows(t), 0);
    assert_int_equal(ps_table_counters(t)->keys_missing, 3);
    assert_memory_equal(first, first + 16, 8 * sizeof(float));
    assert_memory_not_equal(first, first + 8, 8 * sizeof(float));
    table_lookup(t, keys, 3, true, again);
    assert_memory_equal(first, again, sizeof(first));
    assert_int_equal(ps_table_rows(t), 2);
    assert_int_equal(ps_table_counters(t)->rows, 2);
    assert_int_equal(ps_table_counters(t)->rows_created, 2);
    assert_int_equal(ps_table_counters(t)->keys_looked_up, 6);
    assert_int_equal(ps_table_counters(t)->keys_missing, 5);
    table_lookup(t, keys, 1, true, again);
    assert_int_equal(ps_table_counters(t)->keys_looked_up, 7);
    ps_table_destroy(t);
}

TEST(test_no_keys_is_fine, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(8);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint32_t offsets[1] = {0};
    table_lookup(t, NULL, 0, true, NULL);
    table_lookup_bags(t, NULL, offsets, 0, true, NULL);
    table_push(t, NULL, 0, NULL);
    table_push_bags(t, NULL, offsets, 0, NULL);
    assert_int_equal(ps_table_counters(t)->keys_looked_up, 0);
    assert_string_equal(t->feature.name, "table");
    ps_table_destroy(t);
    ps_table_destroy(NULL);
}

TEST(test_rows_of_any_dim_hold_their_values, fixture_arena_create, fixture_arena_destroy)
{
    enum { COUNT = 400 };
    for (uint32_t dim = 1; dim <= MR_DIM_MAX; dim = dim < 20 ? dim + 1 : dim * 2 + (dim < 500)) {
        struct mr_feature f = fixture_adagrad(dim < MR_DIM_MAX ? dim : MR_DIM_MAX);
        struct ps_table *t = fixture_table(&f, fixture_arena);
        uint64_t keys[COUNT];
        float *values = calloc((size_t)COUNT * dim, sizeof(float)), *gradients;
        float *again = calloc((size_t)COUNT * dim, sizeof(float));
        for (uint32_t i = 0; i < COUNT; i++)
            keys[i] = i * 0x123456789u;
        table_lookup(t, keys, COUNT, true, values);
        gradients = calloc((size_t)COUNT * dim, sizeof(float));
        table_push(t, keys, COUNT, gradients);
        table_lookup(t, keys, COUNT, false, again);
        assert_memory_equal(values, again, (size_t)COUNT * dim * sizeof(float));
        assert_int_equal(ps_table_counters(t)->updates, COUNT);
        assert_int_equal(ps_table_stored_row_bytes(t), 2 * dim * sizeof(float));
        ps_table_destroy(t);
        free(values);
        free(again);
        free(gradients);
    }
}

TEST(test_many_rows_and_what_they_cost, fixture_arena_create, fixture_arena_destroy)
{
    enum { COUNT = 200000, CALL = 1000, DIM = 16 };
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint64_t keys[CALL];
    static float out[CALL * DIM], first[DIM];
    struct ps_initializer init;
    const char *what;
    assert_int_equal(ps_initializer_init(&f, &init, &what), MR_OK);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < COUNT; i += CALL) {
            for (uint32_t j = 0; j < CALL; j++)
                keys[j] = (uint64_t)(i + j) << 20;
            table_lookup(t, keys, CALL, pass == 0, out);
            for (uint32_t j = 0; j < CALL; j += 97) {
                ps_initializer_fill(&init, keys[j], first, DIM);
                assert_memory_equal(out + (size_t)j * DIM, first, sizeof(first));
            }
        }
    }
    assert_int_equal(ps_table_rows(t), COUNT);
    assert_int_equal(ps_table_counters(t)->keys_missing, COUNT);
    assert_true(ps_table_row_bytes_total(t) >= (size_t)COUNT * DIM * 8);
    assert_true(ps_table_row_bytes_total(t) <= (size_t)COUNT * DIM * 8 + PS_ARENA_HUGE_PAGE_BYTES);
    assert_true(ps_table_index_bytes(t) < (size_t)COUNT * 20 + (128u << 10));
    ps_table_destroy(t);
}

/* However large the table: a core serves others in between. */
TEST(test_a_table_that_nobody_uses_goes_back_in_slices, fixture_arena_create, fixture_arena_destroy)
{
    enum { COUNT = 100000, CALL = 1000, DIM = 16 };
    struct mr_feature f = fixture_adagrad(DIM);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 2;
    struct ps_arena *tombstone_arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    static float out[CALL * DIM];
    uint64_t keys[CALL];
    ps_table_keep_marks(t, tombstone_arena);
    for (uint32_t i = 0; i < 2 * COUNT; i += CALL) {
        for (uint32_t j = 0; j < CALL; j++)
            keys[j] = (uint64_t)(i % COUNT + j) << 20;
        table_lookup(t, keys, CALL, true, out);
    }
    assert_int_equal(ps_table_rows(t), COUNT);
    uint64_t first = ps_arena_huge_pages_given(fixture_arena), before = first;
    uint32_t slices = 1;
    for (; ps_table_destroy_some(t); slices++) {
        assert_true(ps_arena_huge_pages_given(fixture_arena) - before <= 1);
        before = ps_arena_huge_pages_given(fixture_arena);
        assert_true(slices < 100000);
    }
    assert_true(ps_arena_huge_pages_given(fixture_arena) - before <= 1);
    assert_true(ps_arena_huge_pages_given(fixture_arena) - first >=
                (size_t)COUNT * DIM * 8 / PS_ARENA_HUGE_PAGE_BYTES);
    /* Each partition has buckets and counters of its own. */
    assert_true(slices >= 2 * MR_PARTITION_COUNT / PS_TABLE_SLICE_PIECES);
    assert_true(ps_arena_allocated_bytes(fixture_arena) < 256u << 10); /* the heads are left */
    assert_false(ps_table_destroy_some(t));
    ps_table_destroy(t);
    ps_arena_destroy(tombstone_arena);
}

TEST(test_at_the_capacity_new_keys_get_first_values_only, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(4);
    f.capacity_rows = 10;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint64_t keys[15];
    float out[60], unlimited[60], gradients[60];
    for (uint32_t i = 0; i < 15; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < 60; i++)
        gradients[i] = 1;
    table_lookup(t, keys, 15, false, unlimited);
    table_lookup(t, keys, 15, true, out);
    assert_memory_equal(out, unlimited, sizeof(out));
    assert_int_equal(ps_table_rows(t), 10);
    assert_int_equal(ps_table_counters(t)->rows_refused, 5);
    table_push(t, keys, 15, gradients);
    assert_int_equal(ps_table_counters(t)->updates, 10);
    assert_int_equal(ps_table_counters(t)->gradients_without_row, 5);
    table_lookup(t, keys, 15, true, out);
    assert_true(out[0] != unlimited[0]);
    assert_memory_equal(out + 40, unlimited + 40, 20 * sizeof(float));
    ps_table_destroy(t);
}

TEST(test_at_the_memory_limit_the_table_serves_on, fixture_arena_create, fixture_arena_destroy)
{
    enum { CALL = 512, DIM = 64 };
    struct ps_arena *small = ps_arena_create(6 * PS_ARENA_HUGE_PAGE_BYTES);
    struct mr_feature f = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&f, small);
    static float out[CALL * DIM], again[CALL * DIM];
    uint64_t keys[CALL], next = 0;
    while (ps_table_counters(t)->rows_refused == 0) {
        for (uint32_t i = 0; i < CALL; i++)
            keys[i] = next++;
        table_lookup(t, keys, CALL, true, out);
        assert_true(ps_arena_mapped_bytes(small) <= ps_arena_limit_bytes(small));
    }
    uint64_t rows = ps_table_rows(t);
    /* of the six units the table itself takes two, and its index one */
    assert_true(rows * DIM * 8 > ps_arena_limit_bytes(small) * 2 / 5);
    table_lookup(t, keys, CALL, true, again); /* partly kept, partly refused: the same answer */
    assert_memory_equal(out, again, sizeof(out));
    assert_int_equal(ps_table_rows(t), rows);
    static float gradients[CALL * DIM];
    gradients[0] = 1;
    keys[0] = 0;
    table_push(t, keys, CALL, gradients);
    assert_true(ps_table_counters(t)->updates > 0);
    const uint8_t *stored = (const uint8_t *)out;
    assert_int_equal(ps_table_load(t, UINT64_MAX, stored), MR_OUT_OF_MEMORY);
    ps_table_clear(t);
    assert_int_equal(ps_table_rows(t), 0);
    table_lookup(t, keys, CALL, true, again);
    assert_int_equal(ps_table_rows(t), CALL);
    ps_table_destroy(t);
    assert_int_equal(ps_arena_allocated_bytes(small), 0);
    ps_arena_destroy(small);
}

TEST(test_a_table_that_does_not_fit_is_not_made, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(4);
    struct ps_table *tables[600] = {0};
    struct ps_arena *small = ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN);
    const struct ps_key_secret secret = {{0}};
    const char *what = NULL;
    uint32_t count = 0;
    enum mr_status status = MR_OK;
    while (count < 600 && (status = ps_table_create(&f, small, &secret, &tables[count], &what)) == MR_OK)
        count++;
    assert_int_equal(status, MR_OUT_OF_MEMORY);
    assert_true(count > 10);
    assert_null(tables[count]);
    for (uint32_t i = 0; i < count; i++)
        ps_table_destroy(tables[i]);
    assert_int_equal(ps_arena_allocated_bytes(small), 0);
    ps_arena_destroy(small);
}

TEST(test_loaded_rows_replace_and_continue, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(2);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const float first[4] = {1, 2, 0.5f, 0.5f}, second[4] = {3, 4, 1, 1}, gradient[2] = {1, 0};
    const uint64_t key = 77;
    float out[2];
    assert_int_equal(ps_table_load(t, key, (const uint8_t *)first), MR_OK);
    assert_int_equal(ps_table_load(t, key, (const uint8_t *)second), MR_OK);
    assert_int_equal(ps_table_rows(t), 1);
    table_push(t, &key, 1, gradient);
    table_lookup(t, &key, 1, false, out);
    assert_true(fabsf(out[0] - (3 - 0.1f / sqrtf(2))) < 1e-6f && out[1] == 4);
    ps_table_destroy(t);
}

TEST(test_clear_starts_afresh_and_gives_memory_back, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(16);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint64_t keys[1000];
    static float out[16000], again[16000];
    size_t peak = 0;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 50000; i += 1000) {
            for (uint32_t j = 0; j < 1000; j++)
                keys[j] = i + j;
            table_lookup(t, keys, 1000, true, round == 0 ? out : again);
        }
        if (round > 0)
            assert_memory_equal(out, again, sizeof(out));
        assert_int_equal(ps_table_rows(t), 50000);
        size_t mapped = ps_arena_mapped_bytes(fixture_arena);
        peak = round == 0 ? mapped : peak;
        assert_int_equal(mapped, peak); /* what was cleared is used again */
        ps_table_clear(t);
        assert_int_equal(ps_table_row_bytes_total(t), 0);
        assert_true(ps_arena_mapped_bytes(fixture_arena) + 2 * PS_ARENA_HUGE_PAGE_BYTES <= mapped);
    }
    ps_table_destroy(t);
}
