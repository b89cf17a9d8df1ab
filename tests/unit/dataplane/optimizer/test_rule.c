#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/rule.h"
#include "tests/test.h"

static uint32_t apply_at(const struct mr_rule *o, float learning_rate, float *const *values,
                         float *const *states, const float *const *gradients, uint32_t row_count, size_t dim)
{
    const struct mr_rule_push push = {.learning_rate = learning_rate};
    return mr_rule_apply(o, &push, values, states, gradients, row_count, dim);
}

/* Rows of values with their state behind them. */
static uint32_t rule_apply(const struct mr_rule *o, float *const *rows, const float *const *gradients,
                           uint32_t row_count, size_t dim)
{
    float *states[2];
    assert_true(row_count <= 2);
    for (uint32_t r = 0; r < row_count; r++)
        states[r] = rows[r] + dim;
    return apply_at(o, mr_rule_learning_rate(o, 0, 0), rows, states, gradients, row_count, dim);
}

static struct mr_rule rule_make(const struct mr_feature *f)
{
    struct mr_rule o;
    const char *what = NULL;
    assert_null(mr_feature_check(f));
    assert_int_equal(mr_rule_init(f, &o, &what), MR_OK);
    return o;
}

TEST(test_an_unknown_number_is_refused)
{
    struct mr_feature f = mr_feature_table("t", 4);
    struct mr_rule o;
    const char *what = NULL;
    for (uint32_t i = 0; i < 2; i++) {
        f.optimizer = i == 0 ? 0 : 77;
        assert_int_equal(mr_rule_init(&f, &o, &what), MR_UNSUPPORTED);
        assert_string_equal(what, "optimizer of an unknown number");
    }
}

static struct mr_feature of_kind(uint32_t kind, uint32_t dim)
{
    struct mr_feature f = mr_feature_table("t", dim);
    mr_feature_set_optimizer(&f, (enum mr_optimizer)kind);
    return f;
}

TEST(test_state_sizes_and_first_values)
{
    static const size_t floats[] = {[MR_OPT_SGD] = 0,  [MR_OPT_MOMENTUM] = 3,        [MR_OPT_ADAGRAD] = 3,
                                    [MR_OPT_ADAM] = 7, [MR_OPT_ROWWISE_ADAGRAD] = 1, [MR_OPT_ADAMW] = 7,
                                    [MR_OPT_FTRL] = 7, [MR_OPT_GROUP_FTRL] = 7,      [MR_OPT_ASSIGN] = 0};
    const float values[3] = {0};
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_LAST; kind++) {
        struct mr_feature f = of_kind(kind, 3);
        bool squares = kind == MR_OPT_ADAGRAD || kind == MR_OPT_ROWWISE_ADAGRAD;
        if (squares)
            f.optimizer_args[0] = 0.1f;
        struct mr_rule o = rule_make(&f);
        float first[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
        assert_int_equal(mr_rule_state_floats(&o, 3), floats[kind]);
        mr_rule_state_init(&o, values, first, 3);
        for (size_t i = 0; i < 8; i++) {
            bool rate = kind >= MR_OPT_FTRL && i == 6;
            float expected = i >= floats[kind] ? -1 : squares ? 0.1f : rate ? f.learning_rate : 0;
            assert_true(first[i] == expected);
        }
    }
    struct mr_feature f = of_kind(MR_OPT_MOMENTUM, 3);
    f.optimizer_args[1] = 0.5f;
    struct mr_rule o = rule_make(&f);
    assert_int_equal(mr_rule_state_floats(&o, 3), 4);
}

TEST(test_a_bad_gradient_changes_nothing)
{
    const float bad_gradient[4] = {0, 0, 0, NAN}, good_gradient[4] = {0.5f, 0, 0, 0};
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_LAST; kind++) {
        struct mr_feature f = of_kind(kind, 4);
        struct mr_rule o = rule_make(&f);
        float good[13] = {1, 2, 3, 4}, other[13] = {1, 2, 3, 4}, spared[13];
        mr_rule_state_init(&o, good, good + 4, 4);
        memcpy(spared, good, sizeof(spared));
        memcpy(other, good, sizeof(other));
        float *rows[] = {good, other};
        const float *gradients[] = {bad_gradient, good_gradient};
        assert_int_equal(rule_apply(&o, rows, gradients, 2, 4), 2); /* the second */
        assert_memory_equal(good, spared, sizeof(good));
        assert_true(other[0] < 1);
    }
}

TEST(test_state_does_not_overflow)
{
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_GROUP_FTRL; kind++) {
        struct mr_feature f = of_kind(kind, 2);
        f.learning_rate = 1e-3f;
        struct mr_rule o = rule_make(&f);
        float row[7] = {1, -1};
        mr_rule_state_init(&o, row, row + 2, 2);
        for (uint32_t step = 0; step < 4; step++) {
            const float gradient[2] = {FLT_MAX, step % 2 == 0 ? -FLT_MAX : 1e30f};
            float *rows[] = {row};
            const float *gradients[] = {gradient};
            assert_int_equal(rule_apply(&o, rows, gradients, 1, 2), 1);
            assert_true(isfinite(row[0]) && isfinite(row[1]) && row[0] < 1);
            for (size_t i = 0; i < mr_rule_state_floats(&o, 2); i++)
                assert_true(isfinite(row[2 + i]));
        }
    }
}

/* The step of a whole row may be too large for a float; a gradient of 0 changes nothing all the same. */
TEST(test_a_zero_gradient_and_the_least_epsilon)
{
    const uint32_t kinds[] = {MR_OPT_ADAGRAD, MR_OPT_ROWWISE_ADAGRAD};
    for (uint32_t i = 0; i < 2; i++) {
        struct mr_feature f = of_kind(kinds[i], 2);
        f.optimizer_args[1] = FLT_TRUE_MIN;
        struct mr_rule o = rule_make(&f);
        const float gradient[2] = {0, 0};
        float row[4] = {1, -1};
        float *rows[] = {row};
        const float *gradients[] = {gradient};
        mr_rule_state_init(&o, row, row + 2, 2);
        assert_int_equal(rule_apply(&o, rows, gradients, 1, 2), 1);
        assert_true(row[0] == 1 && row[1] == -1);
    }
}

/* A row's bias correction goes by the row's own updates: one that is touched later goes the way of one
 * touched before. */
TEST(test_adam_counts_per_row)
{
    struct mr_feature f = of_kind(MR_OPT_ADAM, 1);
    struct mr_rule o = rule_make(&f);
    float early[4] = {0.5f}, late[4] = {0.5f};
    const float gradient[1] = {0.25f};
    float *rows[] = {early, late};
    const float *gradients[] = {gradient, gradient};
    for (uint32_t step = 0; step < 5; step++)
        rule_apply(&o, &rows[0], gradients, 1, 1);
    assert_true(late[0] == 0.5f && late[1] == 0 && late[3] == 0);
    for (uint32_t step = 0; step < 5; step++)
        rule_apply(&o, &rows[1], gradients, 1, 1);
    assert_memory_equal(early, late, sizeof(early));
    uint32_t count;
    memcpy(&count, &early[3], sizeof(count));
    assert_int_equal(count, 5);
    /* with one and the same gradient each step is the learning rate, or a little less */
    assert_true(fabsf(early[0] - (0.5f - 5 * f.learning_rate)) < 1e-6f);
}

TEST(test_adam_after_very_many_updates)
{
    struct mr_feature f = of_kind(MR_OPT_ADAMW, 1);
    struct mr_rule o = rule_make(&f);
    float row[4] = {0.5f, 0.25f, 0.0625f};
    const uint32_t many = UINT32_MAX;
    memcpy(&row[3], &many, sizeof(many));
    const float gradient[1] = {0.25f};
    float *rows[] = {row};
    const float *gradients[] = {gradient};
    rule_apply(&o, rows, gradients, 1, 1);
    assert_memory_equal(&row[3], &many, sizeof(many));
    assert_true(fabsf(row[0] - (0.5f - f.learning_rate)) < 1e-6f);
}

/* As torch.optim.SparseAdam: a row that comes late is corrected by the training's steps, not by its own. */
TEST(test_adam_by_the_steps_of_pushes)
{
    for (uint32_t kind = MR_OPT_ADAM; kind <= MR_OPT_ADAMW; kind++) {
        struct mr_feature f = of_kind(kind, 1);
        f.optimizer_args[3] = 1;
        struct mr_rule o = rule_make(&f);
        const float gradient[1] = {0.25f}, *gradients[] = {gradient};
        const uint64_t steps[] = {1, 2, 1000, UINT32_MAX, UINT64_MAX};
        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
            float row[4] = {0.5f}, own[4] = {0.5f}, *values[] = {row}, *states[] = {row + 1};
            const struct mr_rule_push push = {.learning_rate = 0.1f, .step = steps[i]};
            assert_int_equal(mr_rule_apply(&o, &push, values, states, gradients, 1, 1), 1);
            uint32_t count = steps[i] < UINT32_MAX ? (uint32_t)steps[i] - 1 : UINT32_MAX;
            memcpy(&own[3], &count,
                   sizeof(count)); /* a row that has had all the steps, with gradients of 0 */
            values[0] = own;
            states[0] = own + 1;
            assert_int_equal(apply_at(&o, 0.1f, values, states, gradients, 1, 1), 1);
            assert_memory_equal(row, own, 3 * sizeof(*row));
            memcpy(&count, &row[3], sizeof(count));
            assert_int_equal(count, 1);
        }
    }
}

TEST(test_powers)
{
    struct mr_feature f = of_kind(MR_OPT_ADAM, 1);
    struct mr_rule o = rule_make(&f);
    for (uint32_t n = 0; n < 100000; n += n < 100 ? 1 : 997) {
        double expected = pow((double)o.beta2, n);
        assert_true(fabs(mr_powers_at(&o.beta2_powers, n) - expected) <=
                    expected * (1e-15 * (n + 1)) + 0x1p-60);
    }
    assert_true(mr_powers_at(&o.beta1_powers, UINT32_MAX) == 0);
}

/* z is made for the first values: a gradient of 0 leaves them, whatever the learning rate has become. */
TEST(test_ftrl_keeps_first_values)
{
    for (uint32_t kind = MR_OPT_FTRL; kind <= MR_OPT_GROUP_FTRL; kind++) {
        struct mr_feature f = of_kind(kind, 4);
        f.optimizer_args[2] = 0.5f;
        f.optimizer_args[3] = 0.25f;
        f.optimizer_args[4] = kind == MR_OPT_GROUP_FTRL ? 0.3f : 0;
        struct mr_rule o = rule_make(&f);
        const float first[4] = {0.01f, -2.5f, 0, 1e-4f}, gradient[4] = {0};
        float row[13], *values = row, *s = row + 4;
        const float *gradients = gradient;
        memcpy(row, first, sizeof(first));
        mr_rule_state_init(&o, row, row + 4, 4);
        assert_int_equal(apply_at(&o, f.learning_rate, &values, &s, &gradients, 1, 4), 1);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(fabsf(row[i] - first[i]) <= 4e-7f * fabsf(first[i]) + 1e-8f); /* a last place of z */
        assert_true(row[2] == 0);
    }
}

/* What FTRL has learnt stays when the learning rate changes; weights do not shrink with it. */
TEST(test_ftrl_weights_stay_when_rates_change)
{
    struct mr_feature f = of_kind(MR_OPT_FTRL, 2);
    f.learning_rate = 0.1f;
    struct mr_rule o = rule_make(&f);
    float row[7] = {0.3f, -0.7f}, *values = row, *s = row + 2;
    const float gradient[2] = {1, -2}, none[2] = {0, 0};
    const float *gradients = gradient;
    mr_rule_state_init(&o, row, row + 2, 2);
    assert_int_equal(apply_at(&o, 0.1f, &values, &s, &gradients, 1, 2), 1);
    const float before[2] = {row[0], row[1]};
    assert_true(before[0] < 0.3f && before[1] > -0.7f);
    gradients = none;
    float rate = 0.1f;
    for (uint32_t i = 0; i < 10; i++) {
        rate /= 2;
        assert_int_equal(apply_at(&o, rate, &values, &s, &gradients, 1, 2), 1);
    }
    assert_true(fabsf(row[0] - before[0]) < 1e-5f && fabsf(row[1] - before[1]) < 1e-5f);
}

/* A group is 0 as a whole or not at all. */
TEST(test_groups_vanish_as_a_whole)
{
    struct mr_feature f = of_kind(MR_OPT_GROUP_FTRL, 4);
    f.optimizer_args[4] = 1; /* times sqrt 4: |z| must be above 2 */
    struct mr_rule o = rule_make(&f);
    float weak[13] = {0}, strong[13] = {0};
    const float little[4] = {1, 1, 1, 0.9f}, much[4] = {1, 1, 1, 1.1f};
    float *rows[] = {weak, strong}, *states[] = {weak + 4, strong + 4};
    const float *gradients[] = {little, much};
    for (uint32_t r = 0; r < 2; r++)
        mr_rule_state_init(&o, rows[r], states[r], 4);
    assert_int_equal(apply_at(&o, 0.1f, rows, states, gradients, 2, 4), 3);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(weak[i] == 0 && strong[i] < 0);
    assert_true(weak[4] == 1 && weak[8] == 1);
}

TEST(test_pushed_rates_win)
{
    struct mr_feature f = of_kind(MR_OPT_SGD, 1);
    f.learning_rate = 0.5f;
    f.schedule = MR_SCHEDULE_LINEAR;
    f.schedule_steps = 10;
    struct mr_rule o = rule_make(&f);
    assert_true(mr_rule_learning_rate(&o, 0, 0) == 0.5f);
    assert_true(mr_rule_learning_rate(&o, 5, 0) == 0.25f);
    assert_true(mr_rule_learning_rate(&o, 99, 0) == 0);
    assert_true(mr_rule_learning_rate(&o, 5, &(float){0.125f}) == 0.125f);
    assert_true(mr_rule_learning_rate(&o, 5, &(float){0}) == 0);
}

/* A finite gradient that would take a row beyond the largest float leaves it as it was, state as well, and
 * others learn. In short rows with straight code, in others, and in some too long for the stack. */
static void check_overflow(uint32_t kind, uint32_t dim)
{
    struct mr_feature f = of_kind(kind, MR_DIM_MAX < dim ? MR_DIM_MAX : dim);
    struct mr_rule o = rule_make(&f);
    size_t floats = dim + mr_rule_state_floats(&o, dim);
    float *rows[3], *states[3], *befores[3];
    float *wild = calloc(dim, sizeof(*wild)), *tame = calloc(dim, sizeof(*tame));
    const float *gradients[3] = {tame, wild, tame};
    for (uint32_t i = 0; i < dim; i++)
        wild[i] = i == dim - 1 ? 100.0f : 0;
    for (uint32_t r = 0; r < 3; r++) {
        rows[r] = calloc(floats, sizeof(**rows));
        befores[r] = calloc(floats, sizeof(**rows));
        states[r] = rows[r] + dim;
        for (uint32_t i = 0; i < dim; i++)
            rows[r][i] = -3.4e38f;
        mr_rule_state_init(&o, rows[r], states[r], dim);
        memcpy(befores[r], rows[r], floats * sizeof(**rows));
    }
    assert_int_equal(apply_at(&o, 1e37f, rows, states, gradients, 3, dim), 5); /* the first and the last */
    assert_memory_equal(rows[1], befores[1], floats * sizeof(**rows));
    for (uint32_t r = 0; r < 3; r++) {
        for (uint32_t i = 0; i < dim; i++)
            assert_true(isfinite(rows[r][i]));
        free(rows[r]);
        free(befores[r]);
    }
    free(wild);
    free(tame);
}

TEST(test_rows_that_would_overflow_stay)
{
    static const uint32_t dims[] = {1, 5, 16, 17, 33, 600};
    const struct mr_kernels *kernels;
    for (uint32_t k = 0; (kernels = mr_kernels_at(k)) != NULL; k++) {
        mr_kernels_force(kernels);
        for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_ADAMW; kind++)
            for (size_t d = 0; d < sizeof(dims) / sizeof(*dims); d++)
                check_overflow(kind, dims[d]);
    }
    mr_kernels_force(NULL);
}

/* FTRL divides by the rate: at 0 its weights, and what they are worked out from, stay, and it goes on from
 * there. */
TEST(test_ftrl_at_no_rate_keeps_its_weights)
{
    for (uint32_t kind = MR_OPT_FTRL; kind <= MR_OPT_GROUP_FTRL; kind++) {
        struct mr_feature f = of_kind(kind, 4);
        struct mr_rule o = rule_make(&f);
        float row[4] = {1, -2, 0.5f, 3}, stored[9], before[4], plain[4], first[9];
        const float gradient[4] = {0.5f, -1, 2, 0.25f};
        float *rows[] = {row}, *states[] = {stored};
        const float *gradients[] = {gradient};
        memcpy(before, row, sizeof(row));
        mr_rule_state_init(&o, row, stored, 4);
        memcpy(first, stored, sizeof(stored));
        assert_int_equal(apply_at(&o, 0, rows, states, gradients, 1, 4), 1);
        assert_memory_equal(row, before, sizeof(row));
        for (uint32_t i = 0; i < 4; i++)
            assert_true(stored[4 + i] == first[4 + i] + gradient[i] * gradient[i]);
        assert_true(stored[8] == first[8]);
        memcpy(plain, row, sizeof(row));
        assert_int_equal(apply_at(&o, 0.1f, rows, states, gradients, 1, 4), 1);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(row[i] != plain[i] && fabsf(row[i] - plain[i]) < 0.2f);
    }
}

/* Also where the feature itself has a rate of 0: values stay until a push brings another. */
TEST(test_a_feature_at_no_rate_keeps_its_values)
{
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_GROUP_FTRL; kind++) {
        struct mr_feature f = of_kind(kind, 4);
        f.learning_rate = 0;
        struct mr_rule o = rule_make(&f);
        float row[4] = {1, -2, 0.5f, 3}, stored[10] = {0};
        const float before[4] = {1, -2, 0.5f, 3}, gradient[4] = {0.5f, -1, 2, 0.25f};
        float *rows[] = {row}, *states[] = {stored};
        const float *gradients[] = {gradient};
        assert_true(mr_rule_learning_rate(&o, 5, NULL) == 0);
        mr_rule_state_init(&o, row, stored, 4);
        for (uint32_t step = 0; step < 3; step++)
            assert_int_equal(
                apply_at(&o, mr_rule_learning_rate(&o, step, NULL), rows, states, gradients, 1, 4), 1);
        assert_memory_equal(row, before, sizeof(row));
        assert_int_equal(apply_at(&o, 0.1f, rows, states, gradients, 1, 4), 1);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(row[i] != before[i] && fabsf(row[i] - before[i]) < 1);
    }
}

TEST(test_norm_clipping_keeps_the_direction)
{
    struct mr_feature f = mr_feature_table("t", 2);
    f.learning_rate = 1;
    f.clip_norm = 1;
    struct mr_rule o = rule_make(&f);
    float row[2] = {0, 0};
    const float gradient[2] = {3, 4}, small[2] = {0.5f, 0};
    float *rows[] = {row};
    const float *gradients[] = {gradient};
    rule_apply(&o, rows, gradients, 1, 2);
    assert_true(fabsf(row[0] + 0.6f) < 1e-6f && fabsf(row[1] + 0.8f) < 1e-6f);
    row[0] = row[1] = 0;
    gradients[0] = small;
    rule_apply(&o, rows, gradients, 1, 2);
    assert_true(row[0] == -0.5f && row[1] == 0);
}

/* Bit for bit, whatever the rate, also at the ends of the range. */
TEST(test_what_is_set_is_the_row)
{
    struct mr_feature f = of_kind(MR_OPT_ASSIGN, 5);
    struct mr_rule o = rule_make(&f);
    const float first[5] = {FLT_MAX, -FLT_MAX, FLT_TRUE_MIN, -0.0f, 1.1f}, next[5] = {-1, 2, -3, 0, 5};
    const float bad[5] = {1, 2, INFINITY, 4, 5};
    float row[6] = {9, 9, 9, 9, 9, 9}, *values = row, *s = row + 5;
    const float *pushed = first;
    assert_true(mr_rule_sets(&o));
    assert_int_equal(apply_at(&o, 0.01f, &values, &s, &pushed, 1, 5), 1);
    assert_memory_equal(row, first, sizeof(first));
    pushed = bad;
    assert_int_equal(apply_at(&o, 1.0f, &values, &s, &pushed, 1, 5), 0);
    assert_memory_equal(row, first, sizeof(first));
    pushed = next;
    assert_int_equal(apply_at(&o, 1e30f, &values, &s, &pushed, 1, 5), 1);
    assert_memory_equal(row, next, sizeof(next));
    assert_true(row[5] == 9);
}
