/* Every optimizer next to a plain one in double precision, over some hundred steps. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "random_fixture.h"
#include "tests/test.h"

#define STEPS     400u
#define DIM       37u
#define STATE_MAX (2 * DIM + 1)

static struct mr_rule rule_double_make(const struct mr_feature *f)
{
    struct mr_rule o;
    const char *what = NULL;
    assert_null(mr_feature_check(f));
    assert_int_equal(mr_rule_init(f, &o, &what), MR_OK);
    return o;
}

/* A row in double precision; sums of squares, moments, ... as the optimizer's state has them. */
struct reference {
    double w[DIM], first[DIM], second[DIM];
    double sum, rate; /* row-wise Adagrad: n; FTRL: the last learning rate */
    uint64_t count;
};

static void reference_begin(struct reference *r, const struct mr_feature *f, const float *values)
{
    *r = (struct reference){.sum = (double)f->optimizer_args[0], .rate = (double)f->learning_rate};
    for (uint32_t i = 0; i < DIM; i++) {
        r->w[i] = (double)values[i];
        r->second[i] = (double)f->optimizer_args[0];
        if (f->optimizer == MR_OPT_ADAM || f->optimizer == MR_OPT_ADAMW)
            r->second[i] = 0;
    }
}

static void reference_transform(const struct mr_feature *f, const struct reference *r, const float *gradient,
                                double *g)
{
    double norm = 0;
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
        if (f->optimizer != MR_OPT_ADAMW)
            g[i] += (double)f->weight_decay * r->w[i];
    }
}

static void reference_adam(const struct mr_feature *f, struct reference *r, double rate, const double *g,
                           uint64_t step)
{
    double beta1 = (double)f->optimizer_args[0], beta2 = (double)f->optimizer_args[1];
    double epsilon = (double)f->optimizer_args[2];
    r->count = f->optimizer_args[3] > 0 ? step : r->count + 1;
    if (f->optimizer_args[3] > 0)
        epsilon /= sqrt(1 - pow(beta2, (double)r->count));
    for (uint32_t i = 0; i < DIM; i++) {
        if (f->optimizer == MR_OPT_ADAMW)
            r->w[i] *= 1 - rate * (double)f->weight_decay;
        r->first[i] = beta1 * r->first[i] + (1 - beta1) * g[i];
        r->second[i] = beta2 * r->second[i] + (1 - beta2) * g[i] * g[i];
        double m = r->first[i] / (1 - pow(beta1, (double)r->count)),
               v = r->second[i] / (1 - pow(beta2, (double)r->count));
        r->w[i] -= rate * m / (sqrt(v) + epsilon);
    }
}

/* McMahan et al., algorithm 1, with rates that may change; the group's share as Yue et al. have it. */
static void reference_ftrl(const struct mr_feature *f, struct reference *r, double rate, const double *g)
{
    double beta = (double)f->optimizer_args[1], l1 = (double)f->optimizer_args[2], norm = 0, share = 1;
    for (uint32_t i = 0; i < DIM; i++) {
        double before = (beta + sqrt(r->second[i])) / r->rate;
        r->second[i] += g[i] * g[i];
        r->first[i] += g[i] - ((beta + sqrt(r->second[i])) / rate - before) * r->w[i];
        r->w[i] = fabs(r->first[i]) <= l1 ? 0 : copysign(l1, r->first[i]) - r->first[i];
        norm += r->w[i] * r->w[i];
    }
    norm = sqrt(norm);
    if (f->optimizer == MR_OPT_GROUP_FTRL && norm > 0)
        share = fmax(0, 1 - (double)f->optimizer_args[4] * sqrt(DIM) / norm);
    for (uint32_t i = 0; i < DIM; i++)
        r->w[i] *= share / ((beta + sqrt(r->second[i])) / rate + (double)f->optimizer_args[3]);
    r->rate = rate;
}

static void reference_momentum(const struct mr_feature *f, struct reference *r, double rate, const double *g)
{
    double momentum = (double)f->optimizer_args[0];
    double take = r->count++ == 0 ? 1 : 1 - (double)f->optimizer_args[1];
    for (uint32_t i = 0; i < DIM; i++) {
        r->first[i] = momentum * r->first[i] + take * g[i];
        r->w[i] -= rate * (f->optimizer_args[2] > 0 ? g[i] + momentum * r->first[i] : r->first[i]);
    }
}

static void reference_adagrad(const struct mr_feature *f, struct reference *r, double rate, const double *g)
{
    double epsilon = (double)f->optimizer_args[1];
    for (uint32_t i = 0; i < DIM; i++)
        r->sum += g[i] * g[i] / DIM;
    for (uint32_t i = 0; i < DIM; i++) {
        r->second[i] += g[i] * g[i];
        double n = f->optimizer == MR_OPT_ADAGRAD ? r->second[i] : r->sum;
        r->w[i] -= rate * g[i] / (sqrt(n) + epsilon);
    }
}

/* The same step in double precision, straight from the definition in the header. */
static void reference_step(const struct mr_feature *f, struct reference *r, double rate,
                           const float *gradient, uint64_t step)
{
    double g[DIM];
    reference_transform(f, r, gradient, g);
    switch (f->optimizer) {
    case MR_OPT_MOMENTUM:
        reference_momentum(f, r, rate, g);
        break;
    case MR_OPT_ADAGRAD:
    case MR_OPT_ROWWISE_ADAGRAD:
        reference_adagrad(f, r, rate, g);
        break;
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        reference_adam(f, r, rate, g, step);
        break;
    case MR_OPT_FTRL:
    case MR_OPT_GROUP_FTRL:
        reference_ftrl(f, r, rate, g);
        break;
    case MR_OPT_ASSIGN:
        memcpy(r->w, g, sizeof(g));
        break;
    default:
        for (uint32_t i = 0; i < DIM; i++)
            r->w[i] -= rate * g[i];
    }
}

/* In units in the last place of a float at `size`. */
static double error_ulp(float found, double expected, double size)
{
    int exponent;
    (void)frexp(size, &exponent);
    return fabs((double)found - expected) / ldexp(1.0, exponent - FLT_MANT_DIG);
}

/* Returns the worst error of an element, at the largest weight that it had, or at the learning rate if that
 * is more: about a step. `rates`: the learning rate goes up and down. */
static double compare_with_reference(const struct mr_feature *f, bool rates, uint64_t rng)
{
    struct mr_rule o = rule_double_make(f);
    float row[DIM + STATE_MAX], gradient[DIM];
    double size[DIM], worst = 0;
    struct reference reference;
    for (uint32_t i = 0; i < DIM; i++) {
        row[i] = f->optimizer >= MR_OPT_FTRL ? 0 : random_float(&rng);
        size[i] = fmax(fabs((double)row[i]), (double)f->learning_rate);
    }
    assert_true(mr_rule_state_floats(&o, DIM) <= STATE_MAX);
    mr_rule_state_init(&o, row, row + DIM, DIM);
    reference_begin(&reference, f, row);
    for (uint32_t step = 0; step < STEPS; step++) {
        for (uint32_t i = 0; i < DIM; i++)
            gradient[i] = random_float(&rng) * (step % 10 == 0 ? 10.0f : 1.0f);
        float *values = row, *state = row + DIM;
        const float *gradients = gradient;
        float rate = f->learning_rate * (rates ? 1.0f + 0.5f * random_float(&rng) : 1.0f);
        const struct mr_rule_push push = {.learning_rate = rate, .step = 1 + 3 * step / 2};
        assert_int_equal(mr_rule_apply(&o, &push, &values, &state, &gradients, 1, DIM), 1);
        reference_step(f, &reference, (double)rate, gradient, push.step);
        for (uint32_t i = 0; i < DIM; i++) {
            size[i] = fmax(size[i], fabs(reference.w[i]));
            worst = fmax(worst, error_ulp(row[i], reference.w[i], size[i]));
        }
    }
    return worst;
}

/* The gradients are the same in every run, so that what is allowed is what is found. */
TEST(test_against_double_precision)
{
    static const double allowed[][2] = {
        [MR_OPT_SGD] = {18, 17},     [MR_OPT_MOMENTUM] = {14, 12},
        [MR_OPT_ADAGRAD] = {20, 19}, [MR_OPT_ROWWISE_ADAGRAD] = {22, 18.5},
        [MR_OPT_ADAM] = {20, 23},    [MR_OPT_ADAMW] = {22, 22},
        [MR_OPT_FTRL] = {27, 53},    [MR_OPT_GROUP_FTRL] = {31, 76},
        [MR_OPT_ASSIGN] = {0, 0},
    };
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_LAST; kind++) {
        double worst[2] = {0, 0};
        for (uint32_t i = 0; i < 32; i++) {
            struct mr_feature f = mr_feature_table("t", DIM);
            mr_feature_set_optimizer(&f, (enum mr_optimizer)kind);
            f.learning_rate = 0.05f;
            bool transforms = kind != MR_OPT_ASSIGN;
            f.weight_decay = transforms && i & 1 ? 0.01f : 0;
            f.clip_value = transforms && i & 2 ? 0.8f : 0;
            f.clip_norm = transforms && i & 4 ? 1.5f : 0;
            if (kind == MR_OPT_MOMENTUM)
                f.optimizer_args[i & 8 ? 1 : 2] = i & 8 ? 0.3f : 1.0f;
            if (kind == MR_OPT_ADAM || kind == MR_OPT_ADAMW)
                f.optimizer_args[3] = i & 8 ? 1.0f : 0.0f;
            if (kind == MR_OPT_FTRL || kind == MR_OPT_GROUP_FTRL) {
                f.optimizer_args[2] = i & 8 ? 0.5f : 0;
                f.optimizer_args[3] = 0.1f;
                f.optimizer_args[4] = kind == MR_OPT_GROUP_FTRL ? 0.4f : 0;
            }
            bool rates = (i & 16) != 0;
            worst[rates] = fmax(worst[rates], compare_with_reference(&f, rates, 1000 * kind + i));
        }
        printf("%-16s %6.1f ULP, with changing rates %6.1f\n", mr_optimizer_name(kind), worst[0], worst[1]);
        assert_true(worst[0] <= allowed[kind][0] && worst[1] <= allowed[kind][1]);
    }
}
