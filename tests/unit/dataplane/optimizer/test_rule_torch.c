/* The optimizers that torch has, next to torch's: the same first values, the same gradients, up to 400 steps.
 * What torch makes of them lies in data/rule_torch.txt, which data/rule_torch.py writes.
 *
 * Errors are in units in the last place (ULP) of a float, at the largest weight that the element has had:
 * where a weight crosses zero its own last place says nothing about the steps that brought it there. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/rule.h"
#include "random_fixture.h"
#include "tests/test.h"

#define ELEMENTS     24u
#define FIRST_VALUES (UINT64_C(1) << 32)
#define STATE_MAX    (2 * ELEMENTS + 1)

/* As data/rule_torch.py. */
static float drawn(uint64_t step, uint64_t element)
{
    uint64_t place = (step * ELEMENTS + element) * 0x9e3779b97f4a7c15u;
    uint64_t z = random_next(&place);
    float x = ((float)(z >> 40) - 0x1p23f) * 0x1p-22f;
    if (step == FIRST_VALUES)
        return x;
    return (z & 15) == 0 ? 0.0f : (z & 15) == 1 ? x * 16.0f : x;
}

/* The most that any element of a case may be off, in ULP: from double precision, and from torch in single
 * precision. */
static const struct bound {
    const char *name;
    double exact, torch;
} bounds[] = {
    {"sgd", 19, 6},
    {"sgd_decay_clip", 15, 9},
    {"momentum", 19, 8},
    {"momentum_decay", 10, 10},
    {"momentum_dampening", 24.5, 13},
    {"nesterov", 16, 6},
    {"nesterov_decay_clip", 7, 4},
    {"adagrad", 12, 4},
    {"adagrad_start_decay", 12, 2},
    {"adam", 14, 1},
    {"adam_decay_clip", 13, 7},
    {"adam_short_memory", 9, 2},
    {"adamw", 12, 111}, /* torch multiplies by 1 - lr * decay, which it rounds to single precision first */
    {"adamw_strong", 9, 22},
};

static struct bound bound_of(const char *name)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (strcmp(bounds[i].name, name) == 0)
            return bounds[i];
    if (!getenv("X"))
        fail_msg("no bound for case %s", name);
    return bounds[0];
}

static double ulp(double x)
{
    int exponent;
    (void)frexp(fmax(fabs(x), (double)FLT_MIN), &exponent);
    return ldexp(1.0, exponent - FLT_MANT_DIG);
}

struct run {
    struct mr_rule optimizer;
    float values[ELEMENTS], state[STATE_MAX];
    double largest[ELEMENTS];
    uint64_t steps;
    double worst_exact, worst_torch;
};

static void run_begin(struct run *r, const struct mr_feature *f)
{
    const char *what;
    assert_null(mr_feature_check(f));
    *r = (struct run){.steps = 0};
    assert_int_equal(mr_rule_init(f, &r->optimizer, &what), MR_OK);
    assert_true(mr_rule_state_floats(&r->optimizer, ELEMENTS) <= STATE_MAX);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        r->values[i] = drawn(FIRST_VALUES, i);
        r->largest[i] = fabs((double)r->values[i]);
    }
    mr_rule_state_init(&r->optimizer, r->values, r->state, ELEMENTS);
}

static void run_to(struct run *r, uint64_t step)
{
    float gradient[ELEMENTS], *values = r->values, *state = r->state;
    const float *gradients = gradient;
    const struct mr_rule_push push = {.learning_rate = mr_rule_learning_rate(&r->optimizer, 0, 0)};
    while (r->steps < step) {
        r->steps++;
        for (uint32_t i = 0; i < ELEMENTS; i++)
            gradient[i] = drawn(r->steps, i);
        assert_int_equal(mr_rule_apply(&r->optimizer, &push, &values, &state, &gradients, 1, ELEMENTS), 1);
    }
}

static void run_compare(struct run *r, FILE *file)
{
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        double exact, torch;
        assert_int_equal(fscanf(file, "%la %la", &exact, &torch), 2);
        r->largest[i] = fmax(r->largest[i], fabs(exact));
        double unit = ulp(r->largest[i]);
        r->worst_exact = fmax(r->worst_exact, fabs((double)r->values[i] - exact) / unit);
        r->worst_torch = fmax(r->worst_torch, fabs((double)r->values[i] - torch) / unit);
    }
}

static void run_end(const struct run *r, const char *name)
{
    struct bound bound = bound_of(name);
    printf("%-20s %4.1f ULP from double, %4.1f from torch\n", name, r->worst_exact, r->worst_torch);
    assert_true(r->steps > 0);
    if (getenv("X"))
        return;
    assert_true(r->worst_exact <= bound.exact);
    assert_true(r->worst_torch <= bound.torch);
}

static bool read_case(FILE *file, char name[32], struct mr_feature *f)
{
    *f = mr_feature_table("t", ELEMENTS);
    if (fscanf(file, "case %31s %u %a %a %a", name, &f->optimizer, &f->learning_rate, &f->weight_decay,
               &f->clip_value) != 5)
        return false;
    for (uint32_t i = 0; i < MR_OPTIMIZER_ARGS; i++)
        assert_int_equal(fscanf(file, "%a ", &f->optimizer_args[i]), 1);
    return true;
}

TEST(test_as_torch)
{
    FILE *file = fopen(RULE_TORCH, "r");
    assert_non_null(file);
    struct mr_feature f;
    char name[32];
    uint32_t cases = 0;
    for (; read_case(file, name, &f); cases++) {
        struct run r;
        uint64_t step;
        run_begin(&r, &f);
        while (fscanf(file, "step %" SCNu64 " ", &step) == 1) {
            run_to(&r, step);
            run_compare(&r, file);
            (void)fscanf(file, " ");
        }
        run_end(&r, name);
    }
    assert_true(feof(file));
    assert_int_equal(cases, sizeof(bounds) / sizeof(bounds[0]));
    fclose(file);
}
