/* Lookups and pushes in steps, with other calls in between: the same bits as at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

enum { KEYS = 3000, UNIVERSE = 1500, BAGS = 400 };

struct call {
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1]; /* some bags are empty, at both ends too */
};

static void fill_call(struct call *c, uint64_t *rng)
{
    for (uint32_t i = 0; i < KEYS; i++)
        c->keys[i] = random_below(rng, UNIVERSE);
    c->offsets[0] = 0;
    for (uint32_t b = 1; b <= BAGS; b++) {
        uint32_t left = KEYS - c->offsets[b - 1];
        uint32_t size = b < 4 || random_below(rng, 2) == 0 ? 0 : random_below(rng, 60);
        c->offsets[b] = c->offsets[b - 1] + (size < left ? size : left);
    }
    for (uint32_t b = BAGS - 3; b <= BAGS; b++)
        c->offsets[b] = KEYS;
}

static uint64_t some_bytes(uint64_t *rng)
{
    return 1 + random_below(rng, 40000);
}

/* In steps; what is said to be final does not change any more. */
static uint32_t lookup_in_steps(struct ps_table *t, struct ps_table_lookup *l, uint32_t dim, uint64_t *rng)
{
    uint32_t rows = l->in.offsets != NULL ? l->in.bag_count : l->in.key_count, final = 0, steps = 0;
    float *seen = malloc((size_t)rows * dim * sizeof(float));
    bool whole = false;
    while (!whole) {
        uint64_t budget = some_bytes(rng), key = UNIVERSE + random_below(rng, 4000);
        float row[64];
        whole = ps_table_lookup_step(t, l, &budget);
        assert_true(l->rows_done >= final && l->rows_done <= rows);
        assert_memory_equal(seen, l->out, (size_t) final * dim * sizeof(float));
        final = l->rows_done;
        memcpy(seen, l->out, (size_t) final * dim * sizeof(float));
        table_lookup(t, &key, 1, true, row); /* the table grows under the call */
        steps++;
    }
    assert_int_equal(final, rows);
    free(seen);
    return steps;
}

static void check_lookup(uint32_t pooling, bool bags, bool insert, uint64_t rng)
{
    enum { DIM = 5 };
    struct mr_feature f = fixture_adagrad(DIM);
    f.pooling = pooling;
    struct ps_table *t = fixture_table(&f, fixture_arena), *model = fixture_table(&f, fixture_arena);
    struct call *c = malloc(sizeof(*c));
    uint32_t rows = bags ? BAGS : KEYS;
    float *out = malloc((size_t)rows * DIM * sizeof(float));
    float *expected = malloc((size_t)rows * DIM * sizeof(float));
    fill_call(c, &rng);
    struct ps_table_lookup l = {.in.keys = c->keys, .in.key_count = KEYS, .insert = insert, .out = out};
    if (bags) {
        l.in.offsets = c->offsets;
        l.in.bag_count = BAGS;
        table_lookup_bags(model, c->keys, c->offsets, BAGS, insert, expected);
    } else {
        table_lookup(model, c->keys, KEYS, insert, expected);
    }
    memset(out, 0xff, (size_t)rows * DIM * sizeof(float));
    assert_true(lookup_in_steps(t, &l, DIM, &rng) > 5);
    assert_memory_equal(out, expected, (size_t)rows * DIM * sizeof(float));
    ps_table_destroy(t);
    ps_table_destroy(model);
    free(c);
    free(out);
    free(expected);
}

TEST(lookups_in_steps_give_the_same, fixture_arena_create, fixture_arena_destroy)
{
    uint64_t rng = fixture_seed("lookups");
    static const uint32_t poolings[] = {MR_POOL_SUM, MR_POOL_MEAN, MR_POOL_SQRTN};
    for (uint32_t i = 0; i < 3; i++) {
        check_lookup(poolings[i], true, true, rng + i);
        check_lookup(poolings[i], true, false, rng + i);
    }
    check_lookup(MR_POOL_SUM, false, true, rng);
    check_lookup(MR_POOL_SUM, false, false, rng);
}

TEST(bags_without_keys_are_bounded_in_a_step, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(16);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    static uint32_t offsets[KEYS + 1];
    static float out[KEYS * 16];
    uint64_t budget = 100 * 16 * sizeof(float);
    struct ps_table_lookup l = {.in.offsets = offsets, .in.bag_count = KEYS, .out = out};
    assert_false(ps_table_lookup_step(t, &l, &budget));
    assert_int_in_range(l.rows_done, 1, 100);
    assert_true(budget < 16 * 16 * sizeof(float));
    budget = UINT64_MAX;
    assert_true(ps_table_lookup_step(t, &l, &budget));
    ps_table_destroy(t);
}

/* A push in steps into one table, with lookups that make rows and pushes at once of other keys in between,
 * against the same pushes one after the other. */
static void check_push(uint32_t pooling, bool bags, uint64_t rng)
{
    enum { DIM = 7 };
    struct mr_feature f = fixture_adagrad(DIM);
    f.pooling = pooling;
    struct ps_table *t = fixture_table(&f, fixture_arena), *model = fixture_table(&f, fixture_arena);
    struct call *c = malloc(sizeof(*c));
    uint32_t rows = bags ? BAGS : KEYS;
    float *gradients = malloc((size_t)rows * DIM * sizeof(float));
    float *out = malloc((size_t)KEYS * DIM * sizeof(float));
    float *expected = malloc((size_t)KEYS * DIM * sizeof(float));
    fill_call(c, &rng);
    for (uint32_t i = 0; i < rows * DIM; i++)
        gradients[i] = i % 1009 == 5 ? NAN : random_float(&rng);
    table_lookup(t, c->keys, KEYS / 2, true, out);
    table_lookup(model, c->keys, KEYS / 2, true, expected);
    struct ps_table_push p = {.in.keys = c->keys, .in.key_count = KEYS, .gradients = gradients};
    if (bags) {
        p.in.offsets = c->offsets;
        p.in.bag_count = BAGS;
        table_push_bags(model, c->keys, c->offsets, BAGS, gradients);
    } else {
        table_push(model, c->keys, KEYS, gradients);
    }
    uint32_t steps = 0;
    for (bool whole = false; !whole; steps++) {
        uint64_t budget = some_bytes(&rng), others[20];
        float row[20 * DIM], gradient[20 * DIM];
        whole = ps_table_push_step(t, &p, &budget);
        for (uint32_t i = 0; i < 20; i++)
            others[i] = UNIVERSE + random_below(&rng, 4000);
        for (uint32_t i = 0; i < 20 * DIM; i++)
            gradient[i] = random_float(&rng);
        table_lookup(t, others, 20, true, row);
        table_push(t, others, 20, gradient);
    }
    assert_true(steps > 5);
    table_lookup(t, c->keys, KEYS, false, out);
    table_lookup(model, c->keys, KEYS, false, expected);
    assert_memory_equal(out, expected, (size_t)KEYS * DIM * sizeof(float));
    assert_int_equal(ps_table_counters(t)->gradients_skipped, ps_table_counters(model)->gradients_skipped);
    assert_int_equal(ps_table_counters(t)->gradients_without_row,
                     ps_table_counters(model)->gradients_without_row);
    ps_table_destroy(t);
    ps_table_destroy(model);
    free(c);
    free(gradients);
    free(out);
    free(expected);
}

TEST(pushes_in_steps_give_the_same, fixture_arena_create, fixture_arena_destroy)
{
    uint64_t rng = fixture_seed("pushes");
    check_push(MR_POOL_SUM, false, rng);
    check_push(MR_POOL_SUM, true, rng + 1);
    check_push(MR_POOL_MEAN, true, rng + 2);
    check_push(MR_POOL_SQRTN, true, rng + 3);
}
