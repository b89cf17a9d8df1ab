/* Tables of f16 and bf16 rows next to a plain model: the values of a row go through f32 and are rounded by
 * the row's own random numbers; the optimizer's state stays f32. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "ps/base/key_hash.h"
#include "dataplane/optimizer/rounding.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

enum { DIM_MAX = 40, UNIVERSE = 50, KEYS_MAX = 120 };

static int tear_down(void **state)
{
    mr_kernels_force(NULL);
    return fixture_arena_destroy(state);
}

static const enum mr_dtype types[] = {MR_F16, MR_BF16};

static float value(uint32_t dtype, uint16_t x)
{
    return dtype == MR_F16 ? mr_f32_from_f16(x) : mr_f32_from_bf16(x);
}

static struct mr_feature half_table(enum mr_dtype dtype, uint32_t dim, uint32_t optimizer)
{
    struct mr_feature f = fixture_adagrad(dim);
    f.dtype = (uint32_t)dtype;
    f.optimizer = optimizer;
    if (optimizer == MR_OPT_SGD)
        memset(f.optimizer_args, 0, sizeof(f.optimizer_args));
    return f;
}

/* ---- the model ---- */

struct half_row {
    bool exists;
    uint16_t values[DIM_MAX];
    uint32_t updates;
    float state[DIM_MAX];
};

struct half_model {
    struct mr_feature feature;
    struct half_row rows[UNIVERSE];
};

/* As an f32 table of the same descriptor begins, rounded to nearest. */
static void model_init_rows(struct half_model *m, uint32_t count)
{
    struct mr_feature f = m->feature;
    f.dtype = MR_F32;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < count; key++) {
        struct half_row *row = &m->rows[key];
        float initial[DIM_MAX];
        table_lookup(t, &key, 1, false, initial);
        memset(row, 0, sizeof(*row));
        row->exists = true;
        mr_convert_from_f32((enum mr_dtype)m->feature.dtype, row->values, NULL, initial, 1, f.dims[0]);
        for (uint32_t i = 0; i < f.dims[0]; i++)
            row->state[i] = f.optimizer_args[0];
    }
    ps_table_destroy(t);
}

static void model_step(struct half_model *m, uint64_t key, const float *gradient)
{
    struct half_row *row = &m->rows[key];
    const struct mr_feature *f = &m->feature;
    uint64_t seed = mr_rounding_seed(ps_key_hash(key, f->seed), row->updates++);
    for (uint32_t i = 0; i < f->dims[0]; i++) {
        volatile float step = f->learning_rate * gradient[i];
        if (f->optimizer == MR_OPT_ADAGRAD) {
            volatile float square = gradient[i] * gradient[i];
            row->state[i] = row->state[i] + square;
            volatile float root = sqrtf(row->state[i]);
            volatile float divisor = root + f->optimizer_args[1];
            step = step / divisor;
        }
        volatile float exact = value(f->dtype, row->values[i]) - step;
        uint32_t bits = mr_rounding_bits(seed, i);
        row->values[i] = f->dtype == MR_F16 ? mr_f16_round(exact, bits) : mr_bf16_round(exact, bits);
    }
}

/* Repeated keys are summed first; a gradient with NaN changes nothing. */
static void model_push_all(struct half_model *m, const uint64_t *keys, uint32_t key_count,
                           const float *gradients)
{
    uint32_t dim = m->feature.dims[0];
    for (uint64_t key = 0; key < UNIVERSE; key++) {
        float sum[DIM_MAX];
        bool any = false;
        for (uint32_t k = 0; k < key_count; k++) {
            const float *g = gradients + (size_t)k * dim;
            if (keys[k] != key || !m->rows[key].exists || isnan(g[0]))
                continue;
            for (uint32_t i = 0; i < dim; i++)
                sum[i] = any ? sum[i] + g[i] : g[i];
            any = true;
        }
        if (any)
            model_step(m, key, sum);
    }
}

/* values | padding | updates | state */
static void check_row(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                      uint32_t count)
{
    const struct half_model *m = self;
    uint32_t dim = m->feature.dims[0], values_bytes = dim * 2, at = (values_bytes + 3) / 4 * 4;
    uint32_t state_bytes = m->feature.optimizer == MR_OPT_ADAGRAD ? dim * (uint32_t)sizeof(float) : 0;
    assert_int_equal(ps_table_stored_row_bytes(t), at + sizeof(uint32_t) + state_bytes);
    for (uint32_t i = 0; i < count; i++) {
        const struct half_row *row = &m->rows[keys[i]];
        assert_true(row->exists);
        assert_memory_equal(rows[i], row->values, values_bytes);
        assert_memory_equal(rows[i] + at, &row->updates, sizeof(row->updates));
        assert_memory_equal(rows[i] + at + sizeof(uint32_t), row->state, state_bytes);
    }
}

static void check_rows(struct half_model *m, struct ps_table *t)
{
    struct ps_cut cut = {.self = m, .emit = check_row};
    ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    while (!ps_table_cut_step(t, 1000)) {
    }
}

static uint32_t random_push(uint64_t *rng, uint32_t dim, uint64_t *keys, float *gradients)
{
    uint32_t count = random_below(rng, KEYS_MAX);
    for (uint32_t k = 0; k < count; k++) {
        keys[k] = random_below(rng, UNIVERSE);
        for (uint32_t i = 0; i < dim; i++)
            gradients[k * dim + i] = random_float(rng) * (random_below(rng, 2) == 0 ? 1.0f : 1e-3f);
        if (random_below(rng, 20) == 0)
            gradients[k * dim] = NAN;
    }
    return count;
}

static void check_pushes(const struct mr_feature *f, uint64_t rng)
{
    static struct half_model m;
    uint64_t keys[KEYS_MAX], all[UNIVERSE];
    static float gradients[KEYS_MAX * DIM_MAX], out[UNIVERSE * DIM_MAX];
    struct ps_table *t = fixture_table(f, fixture_arena);
    uint32_t with_row = UNIVERSE - 5, dim = f->dims[0]; /* the last keys are never there */
    memset(&m, 0, sizeof(m));
    m.feature = *f;
    model_init_rows(&m, with_row);
    for (uint64_t key = 0; key < UNIVERSE; key++)
        all[key] = key;
    table_lookup(t, all, with_row, true, out);
    check_rows(&m, t);
    for (uint32_t turn = 0; turn < 25; turn++) {
        uint32_t count = random_push(&rng, dim, keys, gradients);
        table_push(t, keys, count, gradients);
        model_push_all(&m, keys, count, gradients);
    }
    check_rows(&m, t);
    table_lookup(t, all, with_row, false, out);
    for (uint32_t key = 0; key < with_row; key++)
        for (uint32_t i = 0; i < dim; i++)
            assert_true(out[key * dim + i] == value(f->dtype, m.rows[key].values[i]));
    ps_table_destroy(t);
}

TEST(rows_are_the_models_on_every_width, fixture_arena_create, tear_down)
{
    uint64_t seed = fixture_seed("half rows");
    static const uint32_t dims[] = {1, 3, 16, 17, DIM_MAX};
    const struct mr_kernels *kernels;
    for (uint32_t n = 0; (kernels = mr_kernels_at(n)) != NULL; n++) {
        mr_kernels_force(kernels);
        for (uint32_t d = 0; d < 5; d++)
            for (uint32_t type = 0; type < 2; type++)
                for (uint32_t optimizer = 0; optimizer < 2; optimizer++) {
                    struct mr_feature f =
                        half_table(types[type], dims[d], optimizer ? MR_OPT_ADAGRAD : MR_OPT_SGD);
                    check_pushes(&f, seed + d);
                }
    }
}

/* To nearest, so that the same row is the same bits each time; beyond the end of the range at its end. */
TEST(rows_that_are_set_are_rounded_to_nearest, fixture_arena_create, tear_down)
{
    enum { DIM = 19, TURNS = 6 };
    uint64_t rng = fixture_seed("set rows");
    const uint64_t key = 3;
    const struct mr_kernels *kernels;
    for (uint32_t n = 0; (kernels = mr_kernels_at(n)) != NULL; n++) {
        mr_kernels_force(kernels);
        for (uint32_t type = 0; type < 2; type++) {
            struct mr_feature f = half_table(types[type], DIM, MR_OPT_SGD);
            mr_feature_set_optimizer(&f, MR_OPT_ASSIGN);
            struct ps_table *t = fixture_table(&f, fixture_arena);
            float row[DIM], out[DIM], expected[DIM];
            uint16_t nearest[DIM];
            table_lookup(t, &key, 1, true, out);
            for (uint32_t i = 0; i < DIM; i++)
                row[i] = random_float(&rng);
            mr_convert_from_f32(types[type], nearest, NULL, row, 1, DIM);
            for (uint32_t i = 0; i < DIM; i++)
                expected[i] = value(f.dtype, nearest[i]);
            row[0] = FLT_MAX;
            row[1] = -FLT_MAX;
            expected[0] = value(f.dtype, types[type] == MR_F16 ? 0x7bff : 0x7f7f);
            expected[1] = -expected[0];
            for (uint32_t turn = 0; turn < TURNS; turn++) {
                table_push(t, &key, 1, row);
                table_lookup(t, &key, 1, false, out);
                assert_memory_equal(out, expected, sizeof(out));
                assert_int_equal(ps_table_counters(t)->rows_saturated, turn + 1);
            }
            row[0] = row[1] = 1; /* no more */
            table_push(t, &key, 1, row);
            assert_int_equal(ps_table_counters(t)->rows_saturated, TURNS);
            assert_int_equal(ps_table_counters(t)->gradients_skipped, 0);
            ps_table_destroy(t);
        }
    }
}

/* As on two cores: each has half of the keys, and its calls come in another order. */
TEST(rows_do_not_depend_on_other_rows, fixture_arena_create, tear_down)
{
    enum { DIM = 7, COUNT = 40, TURNS = 10 };
    struct mr_feature f = half_table(MR_BF16, DIM, MR_OPT_ADAGRAD);
    struct ps_table *whole = fixture_table(&f, fixture_arena), *parts[2];
    uint64_t keys[COUNT], rng = fixture_seed("cores");
    float gradients[COUNT * DIM], expected[DIM], out[DIM];
    for (uint32_t p = 0; p < 2; p++)
        parts[p] = fixture_table(&f, fixture_arena);
    for (uint32_t k = 0; k < COUNT; k++)
        keys[k] = random_next(&rng);
    for (uint32_t k = 0; k < COUNT; k++) {
        table_lookup(whole, &keys[k], 1, true, out);
        table_lookup(parts[k % 2], &keys[COUNT - 2 + k % 2 - k / 2 * 2], 1, true, out);
    }
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t i = 0; i < COUNT * DIM; i++)
            gradients[i] = random_float(&rng);
        table_push(whole, keys, COUNT, gradients);
        for (uint32_t k = COUNT; k-- > 0;)
            table_push(parts[k % 2], &keys[k], 1, gradients + (size_t)k * DIM);
    }
    for (uint32_t k = 0; k < COUNT; k++) {
        table_lookup(whole, &keys[k], 1, false, expected);
        table_lookup(parts[k % 2], &keys[k], 1, false, out);
        assert_memory_equal(out, expected, sizeof(out));
    }
    ps_table_destroy(whole);
    ps_table_destroy(parts[0]);
    ps_table_destroy(parts[1]);
}

/* 2560 steps of 1/64 of what the type can tell apart: rounded to nearest, nothing would ever move. The mean
 * way of 1,024 elements is 40 such units; an element's own deviates by 6.3, their mean by 0.2, and five times
 * that is allowed. */
TEST(small_steps_add_up, fixture_arena_create, tear_down)
{
    enum { DIM = 16, KEYS = 64, STEPS = 2560 };
    for (uint32_t type = 0; type < 2; type++) {
        struct mr_feature f = half_table(types[type], DIM, MR_OPT_SGD);
        float unit = types[type] == MR_F16 ? 0x1p-10f : 0x1p-7f; /* between 1 and 2 */
        f.initializer = MR_INIT_CONSTANT;
        f.init_a = 1.0f;
        f.learning_rate = 1.0f;
        struct ps_table *t = fixture_table(&f, fixture_arena);
        uint64_t keys[KEYS];
        static float gradients[KEYS * DIM], out[KEYS * DIM];
        for (uint64_t k = 0; k < KEYS; k++)
            keys[k] = k;
        for (uint32_t i = 0; i < KEYS * DIM; i++)
            gradients[i] = -unit / 64;
        table_lookup(t, keys, KEYS, true, out);
        for (uint32_t step = 0; step < STEPS; step++)
            table_push(t, keys, KEYS, gradients);
        table_lookup(t, keys, KEYS, false, out);
        double sum = 0, squares = 0;
        for (uint32_t i = 0; i < KEYS * DIM; i++) {
            double way = ((double)out[i] - 1) / (double)unit - STEPS / 64.0;
            sum += way;
            squares += way * way;
        }
        double variance = STEPS * (1 / 64.0) * (63 / 64.0);
        double mean_bound = 5 * sqrt(variance / (KEYS * DIM));
        assert_true(fabs(sum / (KEYS * DIM)) < mean_bound);
        /* and they spread as independent ones do: the variance's own deviation is sqrt(2 / n) of it */
        assert_true(fabs(squares / (KEYS * DIM) / variance - 1) < 5 * sqrt(2.0 / (KEYS * DIM)));
        ps_table_destroy(t);
    }
}

struct counted {
    uint32_t updates_at, updates;
};

static void note_updates(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                         uint32_t count)
{
    struct counted *c = self;
    assert_int_equal(count, 1);
    memcpy(&c->updates, rows[0] + c->updates_at, sizeof(c->updates));
}

/* How often the table's only row was changed: what its random bits go by. */
static uint32_t updates_of(struct ps_table *t, uint32_t dim)
{
    struct counted c = {.updates_at = (dim * 2 + 3) / 4 * 4, .updates = UINT32_MAX};
    struct ps_cut cut = {.self = &c, .emit = note_updates};
    (void)ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    while (!ps_table_cut_step(t, 64))
        ;
    return c.updates;
}

/* First values beyond the type's largest number stop there. A step that leads beyond it is not made: the row,
 * its state and its random bits are as they were, and it counts with the gradients that were skipped. */
TEST(a_row_does_not_leave_its_type, fixture_arena_create, tear_down)
{
    for (uint32_t i = 0; i < 2 * 2 * 2; i++) {
        enum mr_dtype type = types[i % 2];
        uint32_t dim = i / 4 == 0 ? 3 : 16;
        struct mr_feature f = half_table(type, dim, i / 2 % 2 == 0 ? MR_OPT_SGD : MR_OPT_ADAGRAD);
        float largest = value(f.dtype, type == MR_F16 ? MR_F16_LARGEST_BITS : MR_BF16_LARGEST_BITS);
        uint64_t keys[2] = {5, 6};
        float gradients[32] = {0}, out[32], before[32];
        f.initializer = MR_INIT_CONSTANT;
        f.init_a = -FLT_MAX;
        f.learning_rate = type == MR_F16 ? 256.0f : 0x1p119f;
        struct ps_table *t = fixture_table(&f, fixture_arena);
        table_lookup(t, keys, 1, true, before);
        assert_true(before[0] == -largest);
        /* the last value would go too far, alone, or with those of another row that learns */
        gradients[dim - 1] = 1;
        table_push(t, keys, 1, gradients);
        table_push(t, keys, 1, gradients);
        table_lookup(t, keys, 1, false, out);
        assert_memory_equal(out, before, dim * sizeof(float));
        assert_int_equal(updates_of(t, dim), 0);
        assert_int_equal(ps_table_counters(t)->updates, 0);
        assert_int_equal(ps_table_counters(t)->gradients_skipped, 2);
        table_lookup(t, keys, 2, true, out);
        for (uint32_t k = 0; k < dim; k++)
            gradients[dim + k] = -64;
        table_push(t, keys, 2, gradients);
        table_lookup(t, keys, 2, false, out);
        assert_memory_equal(out, before, dim * sizeof(float));
        assert_true(type == MR_BF16 ||
                    (out[dim] > -largest && out[dim] != before[0])); /* half a step of bf16 may not show */
        assert_int_equal(ps_table_counters(t)->updates, 1);
        assert_int_equal(ps_table_counters(t)->gradients_skipped, 3);
        ps_table_destroy(t);
    }
}

/* Steps up to the type's largest number are made. */
TEST(finite_values_stay_finite, fixture_arena_create, tear_down)
{
    for (uint32_t type = 0; type < 2; type++)
        for (int sign = -1; sign <= 1; sign += 2) {
            struct mr_feature f = half_table(types[type], 3, MR_OPT_SGD);
            uint16_t bits = types[type] == MR_F16 ? MR_F16_LARGEST_BITS : MR_BF16_LARGEST_BITS;
            float limit = (float)sign * value(f.dtype, bits);
            uint64_t key = 5;
            float out[3], gradient[3] = {0, 0, 0}, away[3] = {-limit / 512, 0, 0};
            f.initializer = MR_INIT_CONSTANT;
            f.init_a = (float)sign * FLT_MAX;
            f.learning_rate = 1.0f;
            struct ps_table *t = fixture_table(&f, fixture_arena);
            for (uint32_t turn = 0; turn < 40; turn++) { /* at first without a row */
                table_lookup(t, &key, 1, turn > 0, out);
                assert_true(out[0] == limit && out[1] == limit && out[2] == limit);
                table_push(t, &key, 1, gradient);
            }
            assert_int_equal(ps_table_counters(t)->updates, 39);
            table_push(t, &key, 1, away);
            table_lookup(t, &key, 1, false, out);
            assert_true(out[0] == limit);
            assert_int_equal(ps_table_counters(t)->updates, 39);
            ps_table_destroy(t);
        }
}

struct copy {
    struct ps_table *to;
};

static void load_rows(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                      uint32_t count)
{
    struct copy *copy = self;
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(ps_table_load(copy->to, keys[i], rows[i]), MR_OK);
}

/* Saved rows go on where they were: also the random numbers, which count the row's updates. */
TEST(loaded_rows_go_on_as_before, fixture_arena_create, tear_down)
{
    enum { DIM = 5, COUNT = 200 };
    struct mr_feature f = half_table(MR_F16, DIM, MR_OPT_ADAGRAD);
    struct ps_table *t = fixture_table(&f, fixture_arena), *other = fixture_table(&f, fixture_arena);
    uint64_t keys[COUNT], rng = fixture_seed("load");
    float gradients[COUNT * DIM], expected[COUNT * DIM], out[COUNT * DIM];
    for (uint32_t k = 0; k < COUNT; k++)
        keys[k] = random_next(&rng);
    table_lookup(t, keys, COUNT, true, out);
    for (uint32_t turn = 0; turn < 6; turn++) {
        for (uint32_t i = 0; i < COUNT * DIM; i++)
            gradients[i] = random_float(&rng);
        table_push(t, keys, COUNT, gradients);
        if (turn > 2)
            table_push(other, keys, COUNT, gradients);
        if (turn == 2) {
            struct copy copy = {.to = other};
            struct ps_cut cut = {.self = &copy, .emit = load_rows};
            ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
            while (!ps_table_cut_step(t, 1000)) {
            }
        }
    }
    table_lookup(t, keys, COUNT, false, expected);
    table_lookup(other, keys, COUNT, false, out);
    assert_memory_equal(out, expected, sizeof(out));
    ps_table_destroy(t);
    ps_table_destroy(other);
}
