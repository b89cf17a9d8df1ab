/* Tables with a dense optimizer, against rows that go through each step as it comes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "table_fixture.h"
#include "ps/table/table_internal.h"
#include "tests/test.h"

enum { DIM = 6, KEYS = 70, STEPS = 60, STATE_MAX = 2 * DIM + 2, BAG_KEYS = 7 };

struct row {
    float values[DIM], state[STATE_MAX];
};

struct world {
    struct ps_table *table;
    struct mr_rule rule;
    struct row rows[KEYS]; /* of keys 0, 1, .. */
    uint64_t step;         /* the next */
    uint64_t seed;
};

static struct mr_feature dense(uint32_t optimizer, float weight_decay)
{
    struct mr_feature f = mr_feature_table("t", DIM);
    mr_feature_set_optimizer(&f, (enum mr_optimizer)optimizer);
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    f.weight_decay = weight_decay;
    f.learning_rate = 0.05f;
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -1;
    f.init_b = 1;
    return f;
}

static void lookup(struct world *w, const uint64_t *keys, uint32_t count, const uint32_t *offsets,
                   uint32_t bags, uint64_t step, float *out)
{
    struct ps_table_lookup l = {
        .in = {.keys = keys, .key_count = count, .offsets = offsets, .bag_count = bags},
        .insert = random_below(&w->seed, 2) == 0,
        .step = step};
    uint64_t budget_bytes = UINT64_MAX;
    l.out = out;
    assert_true(ps_table_lookup_step(w->table, &l, &budget_bytes));
}

static void table_dense_push(struct world *w, const uint64_t *keys, uint32_t count, const float *gradients,
                             const float *rate)
{
    struct ps_table_push p = {.in = {.keys = keys, .key_count = count},
                              .gradients = gradients,
                              .at_once = true,
                              .insert = true,
                              .step = w->step,
                              .learning_rate = rate};
    uint64_t budget_bytes = UINT64_MAX;
    assert_true(ps_table_push_step(w->table, &p, &budget_bytes));
    assert_int_equal(p.counts.applied, count);
}

static void world_begin(struct world *w, const struct mr_feature *f, uint64_t seed)
{
    const char *what;
    *w = (struct world){.table = fixture_table(f, fixture_arena), .step = 1, .seed = seed};
    assert_int_equal(mr_rule_init(f, &w->rule, &what), MR_OK);
    for (uint64_t key = 0; key < KEYS; key++) {
        struct ps_table_lookup l = {.in = {.keys = &key, .key_count = 1}, .out = w->rows[key].values};
        uint64_t budget_bytes = UINT64_MAX;
        assert_true(ps_table_lookup_step(w->table, &l, &budget_bytes)); /* its first values */
        mr_rule_state_init(&w->rule, w->rows[key].values, w->rows[key].state, DIM);
    }
}

static void world_end(struct world *w)
{
    ps_table_destroy(w->table);
}

/* A training step: few keys have gradients. */
static void train(struct world *w)
{
    uint64_t keys[KEYS];
    float gradients[KEYS][DIM];
    const float zeros[DIM] = {0};
    const float pushed = 0.01f * (float)random_below(&w->seed, 9);
    const float *rate = w->step % 3 == 0 ? &pushed : NULL; /* now and then its own */
    const float applied = mr_rule_learning_rate(&w->rule, w->step, rate);
    uint32_t count = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        float *values = w->rows[key].values, *state = w->rows[key].state;
        const float *gradient = zeros;
        if (random_below(&w->seed, 16) == 0) {
            for (uint32_t i = 0; i < DIM; i++)
                gradients[count][i] = (float)random_below(&w->seed, 1000) / 500 - 1;
            gradient = gradients[count];
            keys[count++] = key;
        }
        const struct mr_rule_push p = {.learning_rate = applied, .step = w->step};
        (void)mr_rule_apply(&w->rule, &p, &values, &state, &gradient, 1, DIM);
    }
    if (count == 0) { /* the table must hear of the step's rate */
        keys[count++] = 0;
        memset(gradients[0], 0, sizeof(gradients[0]));
    }
    table_dense_push(w, keys, count, gradients[0], rate);
    w->step++;
}

/* Rows, one row, and bags. */
static void check_lookups(struct world *w)
{
    uint64_t keys[KEYS];
    uint32_t offsets[KEYS / BAG_KEYS + 1];
    float rows[KEYS][DIM], sums[KEYS / BAG_KEYS][DIM];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i <= KEYS / BAG_KEYS; i++)
        offsets[i] = i * BAG_KEYS;
    lookup(w, keys, KEYS, NULL, 0, w->step, rows[0]);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_memory_equal(rows[i], w->rows[i].values, sizeof(rows[i]));
    lookup(w, keys + w->step % KEYS, 1, NULL, 0, w->step, rows[0]);
    assert_memory_equal(rows[0], w->rows[w->step % KEYS].values, sizeof(rows[0]));
    lookup(w, keys, KEYS, offsets, KEYS / BAG_KEYS, w->step, sums[0]);
    for (uint32_t b = 0; b < KEYS / BAG_KEYS; b++)
        for (uint32_t i = 0; i < DIM; i++) {
            float sum = 0;
            for (uint32_t k = 0; k < BAG_KEYS; k++)
                sum += w->rows[b * BAG_KEYS + k].values[i];
            assert_true(sums[b][i] == sum);
        }
}

static void table_dense_check(const struct mr_feature *f, uint64_t seed)
{
    struct world w;
    world_begin(&w, f, seed);
    for (uint32_t i = 0; i < STEPS; i++) {
        train(&w);
        check_lookups(&w);
    }
    world_end(&w);
}

TEST(test_rows_are_those_of_torch, fixture_arena_create, fixture_arena_destroy)
{
    static const uint32_t optimizers[] = {MR_OPT_SGD, MR_OPT_MOMENTUM, MR_OPT_ADAGRAD, MR_OPT_ADAM,
                                          MR_OPT_ADAMW};
    const uint64_t seed = fixture_seed("dense");
    for (uint32_t i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++)
        for (uint32_t decays = 0; decays < 2; decays++) {
            const struct mr_feature f = dense(optimizers[i], decays ? 0.02f : 0);
            table_dense_check(&f, seed + i);
        }
    struct mr_feature f = dense(MR_OPT_MOMENTUM, 0);
    f.optimizer_args[1] = 0.3f;
    f.schedule = MR_SCHEDULE_LINEAR;
    f.schedule_steps = STEPS / 2;
    table_dense_check(&f, seed);
}

/* They are as they were when they last had a gradient. */
TEST(test_lookups_without_a_step, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature f = dense(MR_OPT_MOMENTUM, 0);
    const float gradient[DIM] = {1, 1, 1, 1, 1, 1};
    const uint64_t keys[2] = {3, 4};
    float before[DIM], stored[DIM], later[DIM];
    struct world w;
    world_begin(&w, &f, fixture_seed("no step"));
    table_dense_push(&w, &keys[0], 1, gradient, NULL);
    lookup(&w, &keys[0], 1, NULL, 0, 0, before);
    for (w.step = 2; w.step < 10; w.step++)
        table_dense_push(&w, &keys[1], 1, gradient, NULL);
    lookup(&w, &keys[0], 1, NULL, 0, 0, stored);
    lookup(&w, &keys[0], 1, NULL, 0, 10, later);
    assert_memory_equal(stored, before, sizeof(before));
    assert_true(later[0] < stored[0]);
    world_end(&w);
}

/* Gradients that are not finite are left out: then the step is one of those without a gradient. */
TEST(test_a_step_whose_gradient_is_not_finite, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature f = dense(MR_OPT_MOMENTUM, 0.01f);
    float gradient[DIM] = {1, 1, 1, 1, 1, 1};
    const float *const zeros = (const float[DIM]){0};
    const uint64_t key = 3;
    float is[DIM];
    struct world w;
    world_begin(&w, &f, fixture_seed("not finite"));
    table_dense_push(&w, &key, 1, gradient, NULL);
    w.step = 5;
    gradient[2] = NAN;
    struct ps_table_push p = {.in = {.keys = &key, .key_count = 1},
                              .gradients = gradient,
                              .at_once = true,
                              .insert = true,
                              .step = w.step};
    uint64_t budget_bytes = UINT64_MAX;
    assert_true(ps_table_push_step(w.table, &p, &budget_bytes));
    assert_int_equal(p.counts.not_finite, 1);
    gradient[2] = 1;
    float *values = w.rows[key].values, *states = w.rows[key].state;
    for (uint64_t step = 1; step <= 8; step++) {
        const float *const pushed = step == 1 ? gradient : zeros;
        const struct mr_rule_push each = {.learning_rate = f.learning_rate, .step = step};
        (void)mr_rule_apply(&w.rule, &each, &values, &states, &pushed, 1, DIM);
    }
    lookup(&w, &key, 1, NULL, 0, 9, is);
    assert_memory_equal(is, values, sizeof(is));
    world_end(&w);
}

/* ---- slices ---- */

enum { SLICE_BYTES = 32 << 10 };

/* Rows that have missed many steps are few to a slice, once the first ones have shown it. */
TEST(test_slices_are_short_where_many_steps_were_missed, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature f = dense(MR_OPT_ADAMW, 0.01f);
    uint64_t keys[KEYS], step = 100000, budget_bytes;
    float rows[KEYS][DIM], at_once[KEYS][DIM], soon[KEYS][DIM];
    uint32_t slices = 0;
    struct world w;
    world_begin(&w, &f, fixture_seed("slices"));
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    assert_true(ps_table_lookup_cost_bytes(w.table, KEYS, 0) < SLICE_BYTES);
    struct ps_table_lookup l = {.in = {.keys = keys, .key_count = KEYS}, .step = step, .out = rows};
    for (bool is_whole = false; !is_whole; slices++) {
        const uint32_t before = l.keys_done;
        budget_bytes = SLICE_BYTES;
        is_whole = ps_table_lookup_step(w.table, &l, &budget_bytes);
        assert_true(l.keys_done - before <= (slices == 0 ? PS_GROUP_KEYS : 1));
    }
    assert_true(ps_table_lookup_cost_bytes(w.table, 2, 0) > SLICE_BYTES);
    assert_true(ps_table_read_cost_bytes(w.table, 2) > SLICE_BYTES);
    assert_true(ps_table_push_cost_bytes(w.table, 2) > SLICE_BYTES);
    lookup(&w, keys, KEYS, NULL, 0, step, at_once[0]);
    assert_memory_equal(rows, at_once, sizeof(rows));

    float *read = malloc(KEYS * (DIM + 1) * sizeof(*read));
    struct ps_table_read r = {.keys = keys, .key_count = KEYS, .step = step, .out = read};
    budget_bytes = SLICE_BYTES;
    assert_false(ps_table_read_step(w.table, &r, &budget_bytes));
    assert_int_equal(r.keys_done, 1);
    free(read);

    const float gradient[KEYS][DIM] = {{1}};
    struct ps_table_push p = {.in = {.keys = keys, .key_count = KEYS},
                              .gradients = gradient,
                              .at_once = true,
                              .insert = true,
                              .step = step};
    for (slices = 0; budget_bytes = SLICE_BYTES, !ps_table_push_step(w.table, &p, &budget_bytes);)
        slices++;
    assert_true(slices >= KEYS / 2);
    for (uint32_t i = 0; i < 3; i++) /* nobody has missed any now */
        lookup(&w, keys, KEYS, NULL, 0, step + 1, soon[0]);
    assert_true(ps_table_lookup_cost_bytes(w.table, KEYS, 0) < SLICE_BYTES);
    world_end(&w);
}

/* ---- rows as they are stored ---- */

static void read_rows(struct world *w, const uint64_t *keys, uint32_t count, bool has_state, float *out)
{
    struct ps_table_read r = {.keys = keys, .key_count = count, .has_state = has_state, .step = w->step};
    uint64_t budget_bytes = UINT64_MAX;
    r.out = out;
    assert_true(ps_table_read_step(w->table, &r, &budget_bytes));
}

static void set_rows(struct world *w, const uint64_t *keys, uint32_t count, bool has_state, const float *rows)
{
    struct ps_table_push p = {.in = {.keys = keys, .key_count = count},
                              .gradients = rows,
                              .at_once = true,
                              .insert = true,
                              .sets = true,
                              .has_state = has_state,
                              .step = w->step};
    uint64_t budget_bytes = UINT64_MAX;
    assert_true(ps_table_push_step(w->table, &p, &budget_bytes));
}

/* What is read, with its state, goes on elsewhere as it would have here. */
TEST(test_rows_that_are_read_and_set, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature f = dense(MR_OPT_ADAM, 0.01f);
    struct world w, other;
    world_begin(&w, &f, fixture_seed("set rows"));
    world_begin(&other, &f, 1);
    const uint32_t floats = DIM + ps_table_state_floats(w.table);
    float *rows = malloc(KEYS * (floats + 1) * sizeof(*rows)), *set = malloc(KEYS * floats * sizeof(*set));
    uint64_t keys[KEYS];
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < STEPS; i++)
        train(&w);
    read_rows(&w, keys, KEYS, true, rows);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_memory_equal(rows + i * (floats + 1), w.rows[i].values, sizeof(w.rows[i].values));
        memcpy(set + i * floats, rows + i * (floats + 1), floats * sizeof(*set));
    }
    memcpy(other.rows, w.rows, sizeof(w.rows));
    other.step = w.step;
    set_rows(&other, keys, KEYS, true, set);
    for (uint32_t i = 0; i < STEPS; i++) {
        train(&other);
        check_lookups(&other);
    }
    free(rows);
    free(set);
    world_end(&w);
    world_end(&other);
}

/* Without state they are what they are set to in the step that sets them. */
TEST(test_rows_that_are_set_late, fixture_arena_create, fixture_arena_destroy)
{
    const struct mr_feature f = dense(MR_OPT_SGD, 0.5f);
    const uint64_t key = 5;
    const float row[DIM] = {1, 2, 3, 4, 5, 6};
    float is[DIM];
    struct world w;
    world_begin(&w, &f, 1);
    w.step = 1000;
    set_rows(&w, &key, 1, false, row);
    lookup(&w, &key, 1, NULL, 0, 1000, is);
    assert_memory_equal(is, row, sizeof(row));
    lookup(&w, &key, 1, NULL, 0, 1001, is);
    assert_true(is[0] < row[0]);
    world_end(&w);
}
