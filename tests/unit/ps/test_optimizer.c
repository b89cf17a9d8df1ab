#include <float.h>
#include <math.h>
#include <string.h>
#include "ps/optimizer.h"
#include "table_fixture.h"

#define STEPS 200u
#define DIM   37u

/* Rows of values with their state behind them. */
static uint32_t apply(const struct ps_optimizer *o, float *const *rows, const float *const *gradients,
                      uint32_t row_count, size_t dim)
{
    float *states[2];
    assert_true(row_count <= 2);
    for (uint32_t r = 0; r < row_count; r++)
        states[r] = rows[r] + dim;
    return ps_optimizer_apply(o, ps_optimizer_learning_rate(o, 0, 0), rows, states, gradients, row_count,
                              dim);
}

static struct ps_optimizer make(const struct mr_feature *f)
{
    struct ps_optimizer o;
    const char *what = NULL;
    assert_null(mr_feature_check(f));
    assert_int_equal(ps_optimizer_init(f, &o, &what), MR_OK);
    return o;
}

/* The same step in double precision, straight from the definition in the header. */
static void reference_step(const struct mr_feature *f, double *w, double *state, const float *gradient)
{
    double g[DIM], norm = 0;
    for (uint32_t i = 0; i < DIM; i++) {
        g[i] = (double)gradient[i];
        if (f->clip_value > 0)
            g[i] = fmax(fmin(g[i], (double)f->clip_value), -(double)f->clip_value);
        norm += g[i] * g[i];
    }
    norm = sqrt(norm);
    for (uint32_t i = 0; i < DIM; i++) {
        if (f->clip_norm > 0 && norm > (double)f->clip_norm)
            g[i] *= (double)f->clip_norm / norm;
        g[i] += (double)f->weight_decay * w[i];
        double step = (double)f->learning_rate * g[i];
        if (f->optimizer == MR_OPT_ADAGRAD) {
            state[i] += g[i] * g[i];
            step /= sqrt(state[i]) + (double)f->optimizer_args[1];
        }
        w[i] -= step;
    }
}

static void compare_with_reference(const struct mr_feature *f, uint64_t rng)
{
    struct ps_optimizer o = make(f);
    float row[2 * DIM], gradient[DIM];
    double w[DIM], state[DIM];
    for (uint32_t i = 0; i < DIM; i++) {
        row[i] = random_float(&rng);
        w[i] = (double)row[i];
        state[i] = (double)f->optimizer_args[0];
    }
    ps_optimizer_state_init(&o, row, row + DIM, DIM);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < DIM; i++)
            gradient[i] = random_float(&rng) * (step % 10 == 0 ? 10.0f : 1.0f);
        float *rows[] = {row};
        const float *gradients[] = {gradient};
        assert_int_equal(apply(&o, rows, gradients, 1, DIM), 1);
        reference_step(f, w, state, gradient);
    }
    for (uint32_t i = 0; i < DIM; i++) {
        /* Each step rounds a handful of times at the size of the value or of the step. */
        double tolerance = STEPS * 4 * (double)FLT_EPSILON * (1 + fabs(w[i]));
        assert_true(fabs((double)row[i] - w[i]) <= tolerance);
        if (f->optimizer == MR_OPT_ADAGRAD)
            assert_true(fabs((double)row[DIM + i] / state[i] - 1) <= STEPS * 4 * (double)FLT_EPSILON);
    }
}

static void test_against_double_precision(void **state)
{
    uint64_t rng = fixture_seed("optimizer");
    for (uint32_t i = 0; i < 16; i++) {
        struct mr_feature f = fixture_adagrad(DIM);
        if (i & 8)
            f.optimizer = MR_OPT_SGD;
        f.learning_rate = 0.05f;
        f.weight_decay = i & 1 ? 0.01f : 0;
        f.clip_value = i & 2 ? 0.8f : 0;
        f.clip_norm = i & 4 ? 1.5f : 0;
        compare_with_reference(&f, rng + i);
    }
}

static void test_others_are_refused_by_name(void **state)
{
    static const struct {
        uint32_t optimizer;
        const char *what;
    } others[] = {
        {MR_OPT_MOMENTUM, "optimizer momentum"}, {MR_OPT_ROWWISE_ADAGRAD, "optimizer rowwise_adagrad"},
        {MR_OPT_ADAM, "optimizer adam"},         {MR_OPT_ADAMW, "optimizer adamw"},
        {MR_OPT_FTRL, "optimizer ftrl"},         {MR_OPT_GROUP_FTRL, "optimizer group_ftrl"},
        {77, "optimizer of an unknown number"}};
    for (uint32_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct mr_feature f = mr_feature_table("t", 4);
        struct ps_optimizer o;
        const char *what = NULL;
        f.optimizer = others[i].optimizer;
        assert_int_equal(ps_optimizer_init(&f, &o, &what), MR_UNSUPPORTED);
        assert_string_equal(what, others[i].what);
    }
}

static void test_state_sizes_and_first_values(void **state)
{
    struct mr_feature f = fixture_adagrad(3);
    struct ps_optimizer adagrad = make(&f);
    f.optimizer = MR_OPT_SGD;
    struct ps_optimizer sgd = make(&f);
    float values[3] = {-1, -1, -1};
    assert_int_equal(ps_optimizer_state_floats(&adagrad, 3), 3);
    assert_int_equal(ps_optimizer_state_floats(&sgd, 3), 0);
    ps_optimizer_state_init(&sgd, NULL, values, 3);
    assert_true(values[0] == -1 && values[2] == -1);
    ps_optimizer_state_init(&adagrad, NULL, values, 3);
    assert_true(values[0] == 0.1f && values[2] == 0.1f);
}

static void test_a_bad_gradient_changes_nothing(void **state)
{
    struct mr_feature f = fixture_adagrad(4);
    struct ps_optimizer o = make(&f);
    float good[8] = {1, 2, 3, 4, 1, 1, 1, 1}, spared[8];
    float other[8] = {1, 2, 3, 4, 1, 1, 1, 1};
    const float bad_gradient[4] = {0, 0, 0, NAN}, good_gradient[4] = {1, 0, 0, 0};
    memcpy(spared, good, sizeof(spared));
    float *rows[] = {good, other};
    const float *gradients[] = {bad_gradient, good_gradient};
    assert_int_equal(apply(&o, rows, gradients, 2, 4), 1);
    assert_memory_equal(good, spared, sizeof(good));
    assert_true(other[0] < 1 && other[4] == 2);
}

static void test_state_does_not_overflow(void **state)
{
    struct mr_feature f = fixture_adagrad(1);
    struct ps_optimizer o = make(&f);
    float row[2] = {1, 0.1f};
    const float gradient[1] = {1e30f};
    float *rows[] = {row};
    const float *gradients[] = {gradient};
    assert_int_equal(apply(&o, rows, gradients, 1, 1), 1);
    assert_true(row[1] == FLT_MAX && isfinite(row[0]) && row[0] < 1);
}

static void test_norm_clipping_keeps_the_direction(void **state)
{
    struct mr_feature f = mr_feature_table("t", 2);
    f.learning_rate = 1;
    f.clip_norm = 1;
    struct ps_optimizer o = make(&f);
    float row[2] = {0, 0};
    const float gradient[2] = {3, 4}, small[2] = {0.5f, 0};
    float *rows[] = {row};
    const float *gradients[] = {gradient};
    apply(&o, rows, gradients, 1, 2);
    assert_true(fabsf(row[0] + 0.6f) < 1e-6f && fabsf(row[1] + 0.8f) < 1e-6f);
    row[0] = row[1] = 0;
    gradients[0] = small;
    apply(&o, rows, gradients, 1, 2);
    assert_true(row[0] == -0.5f && row[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double_precision),
        cmocka_unit_test(test_others_are_refused_by_name),
        cmocka_unit_test(test_state_sizes_and_first_values),
        cmocka_unit_test(test_a_bad_gradient_changes_nothing),
        cmocka_unit_test(test_state_does_not_overflow),
        cmocka_unit_test(test_norm_clipping_keeps_the_direction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
