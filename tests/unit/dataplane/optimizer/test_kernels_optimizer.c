/* Every optimizer in all vector widths that this processor runs, against each other, bit for bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/rule.h"
#include "random_fixture.h"
#include "tests/test.h"

#define ROWS  3u
#define STEPS 4u

/* Weight decay, clipping, dampening and Nesterov by the bits of `options`. */
static struct mr_rule optimizer(uint32_t kind, uint32_t options)
{
    struct mr_feature f = mr_feature_table("t", 8);
    const char *what;
    mr_feature_set_optimizer(&f, (enum mr_optimizer)kind);
    f.learning_rate = 0.1f;
    if (kind == MR_OPT_ASSIGN)
        options = 0; /* it has none */
    f.weight_decay = options & 1 ? 0.01f : 0;
    f.clip_value = options & 2 ? 0.5f : 0;
    f.clip_norm = options & 4 ? 0.7f : 0;
    if (kind == MR_OPT_MOMENTUM)
        f.optimizer_args[options & 1 ? 1 : 2] = options & 1 ? 0.25f : 1.0f;
    if (kind == MR_OPT_ADAM || kind == MR_OPT_ADAMW)
        f.optimizer_args[3] = (float)(options & 1);
    if (kind == MR_OPT_FTRL || kind == MR_OPT_GROUP_FTRL) {
        f.optimizer_args[2] = 0.05f;
        f.optimizer_args[3] = 0.5f;
        f.optimizer_args[4] = kind == MR_OPT_GROUP_FTRL ? 0.3f : 0;
    }
    assert_null(mr_feature_check(&f));
    struct mr_rule o;
    assert_int_equal(mr_rule_init(&f, &o, &what), MR_OK);
    return o;
}

/* Rows that are aligned to a float and no more: values, state, gradient each. Returns how many floats. */
static size_t kernels_optimizer_run(const struct mr_kernels *k, const struct mr_rule *o, size_t dim,
                                    uint64_t seed, float **memory)
{
    size_t state_floats = mr_rule_state_floats(o, dim), stride = dim + state_floats + dim;
    size_t floats = 1 + ROWS * stride;
    *memory = calloc(floats, sizeof(float));
    assert_non_null(*memory);
    float *values[ROWS], *states[ROWS];
    const float *gradients[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) {
        values[r] = *memory + 1 + r * stride;
        states[r] = values[r] + dim;
        gradients[r] = states[r] + state_floats;
        for (size_t i = 0; i < dim; i++)
            values[r][i] = random_float(&seed);
        mr_rule_state_init(o, values[r], states[r], dim);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < dim; i++)
                states[r][state_floats + i] = random_float(&seed) * (i % 7 == 0 ? 1e-3f : 3.0f);
        const struct mr_rule_push push = {.learning_rate = 0.1f / (float)(step + 1), .step = step};
        assert_int_equal(k->optimize[o->kind](o, &push, values, states, gradients, ROWS, dim),
                         (1u << ROWS) - 1);
    }
    return floats;
}

static void compare_widths(const struct mr_rule *o, size_t dim, uint64_t seed)
{
    float *reference, *other;
    size_t floats = kernels_optimizer_run(mr_kernels_at(0), o, dim, seed, &reference);
    for (uint32_t i = 1; mr_kernels_at(i) != NULL; i++) {
        assert_int_equal(kernels_optimizer_run(mr_kernels_at(i), o, dim, seed, &other), floats);
        assert_memory_equal(other, reference, floats * sizeof(float));
        free(other);
    }
    free(reference);
}

TEST(test_all_widths_give_the_same_bits)
{
    uint64_t seed = fixture_seed("widths");
    for (uint32_t kind = MR_OPT_SGD; kind < MR_OPTIMIZER_KINDS; kind++)
        for (uint32_t options = 0; options < 8; options++) {
            struct mr_rule o = optimizer(kind, options);
            for (size_t dim = 1; dim <= 1024; dim = dim < 70 ? dim + 1 : dim == 1023 ? 1024 : dim + 136)
                compare_widths(&o, dim, seed + dim);
            compare_widths(&o, 1024, seed);
        }
}

/* Extreme gradients, too: what is held at the ends of the range is held there by all. */
TEST(test_all_widths_agree_at_the_ends)
{
    static const float extremes[] = {3e38f, -3e38f, 1e-45f, 0.0f, -0.0f, 1e19f, -1e-20f};
    for (uint32_t kind = MR_OPT_SGD; kind < MR_OPTIMIZER_KINDS; kind++) {
        struct mr_rule o = optimizer(kind, 1);
        float row[3][7 + 15], gradient[7];
        uint32_t sets = 0;
        for (; mr_kernels_at(sets) != NULL; sets++) {
            memset(row[sets], 0, sizeof(row[sets]));
            for (uint32_t step = 0; step < 6; step++) {
                for (uint32_t i = 0; i < 7; i++) {
                    gradient[i] = extremes[(i + step) % 7];
                    if (step == 0)
                        row[sets][i] = i % 2 == 0 ? 1e-3f : -2.0f;
                }
                float *values = row[sets], *s = row[sets] + 7;
                const float *g = gradient;
                if (step == 0)
                    mr_rule_state_init(&o, values, s, 7);
                const struct mr_rule_push push = {.learning_rate = 1e-3f, .step = step};
                mr_kernels_at(sets)->optimize[kind](&o, &push, &values, &s, &g, 1, 7);
            }
            for (size_t i = 0; i < mr_rule_state_floats(&o, 7); i++)
                assert_true(isfinite(row[sets][7 + i]));
            assert_memory_equal(row[sets], row[0], sizeof(row[0]));
        }
        assert_int_in_range(sets, 1, 3);
    }
}

/* Of two rows the first would come to hold NaN or Inf because of its i-th value, and stays as it is. */
static void push_bad_row(const struct mr_kernels *k, uint32_t options, uint32_t dim, uint32_t i, float bad,
                         float value, float rate)
{
    struct mr_rule o = optimizer(MR_OPT_ADAGRAD, options);
    float rows[2][32] = {{0}}, before[32], gradients[2][16];
    float *values[2] = {rows[0], rows[1]}, *states[2] = {rows[0] + dim, rows[1] + dim};
    const float *in[2] = {gradients[0], gradients[1]};
    for (uint32_t j = 0; j < dim; j++) {
        rows[0][j] = rows[1][j] = 0.25f;
        gradients[0][j] = gradients[1][j] = 1.0f;
        rows[0][dim + j] = rows[1][dim + j] = 1.0f;
    }
    gradients[0][i] = bad;
    rows[0][i] = value;
    memcpy(before, rows[0], sizeof(before));
    const struct mr_rule_push push = {.learning_rate = rate};
    assert_int_equal(k->optimize[MR_OPT_ADAGRAD](&o, &push, values, states, in, 2, dim), 1u << 1);
    assert_memory_equal(rows[0], before, sizeof(before));
    assert_true(rows[1][i] < 0.25f);
}

TEST(test_all_widths_leave_bad_rows_as_they_are)
{
    static const uint32_t dims[] = {16, 9, 5};
    for (uint32_t set = 0; mr_kernels_at(set) != NULL; set++)
        for (uint32_t options = 0; options < 8; options++)
            for (uint32_t d = 0; d < 3; d++)
                for (uint32_t dim = dims[d], i = 0; i < dim; i++) {
                    const struct mr_kernels *k = mr_kernels_at(set);
                    push_bad_row(k, options, dim, i, NAN, 0.25f, 0.1f);
                    push_bad_row(k, options, dim, i, -INFINITY, 0.25f, 0.1f);
                    push_bad_row(k, options, dim, i, 1.0f, -3e38f, 3e38f); /* the value leaves its range */
                }
}
