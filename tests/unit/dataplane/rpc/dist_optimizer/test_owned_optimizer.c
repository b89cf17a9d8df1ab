/* An optimizer at the owner: its options, and its steps next to torch's formulas in double precision. (To the
 * last bit, and against torch itself: tests/unit/dataplane/optimizer/.) */
#include <math.h>
#include <string.h>
#include "dataplane/rpc/dist_optimizer/owned_optimizer.h"
#include "tests/test.h"

#define PARAMETERS 3u
#define FLOATS_MAX 40u
#define STEPS      30u

static const uint32_t floats_of[PARAMETERS] = {7, 1, FLOATS_MAX};

/* ---- options ---- */

static void expect_refused(struct mr_dist_optimizer_options options, const char *option)
{
    struct mr_rule rule;
    char error[256] = "";
    assert_int_equal(mr_dist_rule(&options, &rule, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_says(error, option);
}

TEST(options_that_make_no_sense_are_refused)
{
    expect_refused((struct mr_dist_optimizer_options){.learning_rate = 1}, "options.kind");
    expect_refused((struct mr_dist_optimizer_options){.kind = 9}, "options.kind");
    expect_refused((struct mr_dist_optimizer_options){.kind = -1}, "options.kind");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_SGD},
                   "options.learning_rate must be given");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = NAN},
                   "options.learning_rate is nan");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = INFINITY},
                   "options.learning_rate is inf");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = -1},
                   "options.learning_rate is -1");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = 1, .momentum = 1},
                   "options.momentum is 1");
    expect_refused(
        (struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = 1, .nesterov = true},
        "options.nesterov needs options.momentum");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_SGD, .learning_rate = 1, .beta1 = 0.9f},
                   "options.beta1 must be 0: SGD has none");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAM, .momentum = 0.9f},
                   "options.momentum must be 0: Adam has none");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAM, .beta2 = 1},
                   "options.beta2 is 1");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAGRAD, .initial_accumulator = -1},
                   "options.initial_accumulator");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAM, .initial_accumulator = 1},
                   "options.initial_accumulator must be 0");
    expect_refused((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAGRAD, .weight_decay = -0.1f},
                   "options.weight_decay");
}

static float rate_of(struct mr_dist_optimizer_options options)
{
    struct mr_rule rule;
    char error[256] = "";
    assert_int_equal(mr_dist_rule(&options, &rule, error, sizeof(error)), MR_OK);
    return mr_rule_learning_rate(&rule, 0, NULL);
}

TEST(a_learning_rate_of_0_is_0_if_it_is_given)
{
    for (int kind = MR_DIST_SGD; kind <= MR_DIST_ADAM; kind++) {
        struct mr_dist_optimizer_options options = {.kind = (enum mr_dist_optimizer_kind)kind,
                                                    .has_learning_rate = true};
        assert_true(rate_of(options) == 0);
        options.learning_rate = 0.5f;
        assert_true(rate_of(options) == 0.5f);
        options.has_learning_rate = false;
        assert_true(rate_of(options) == 0.5f);
    }
    assert_true(rate_of((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAGRAD}) == 1e-2f);
    assert_true(rate_of((struct mr_dist_optimizer_options){.kind = MR_DIST_ADAM}) == 1e-3f);
}

/* ---- steps ---- */

/* Torch's, one element at a time. */
struct plain {
    double value, a, b; /* momentum buffer; sum of squares; both moments */
    uint32_t steps;
};

static void plain_step(const struct mr_dist_optimizer_options *o, struct plain *p, double g)
{
    const double lr = o->learning_rate > 0 ? (double)o->learning_rate : o->kind == MR_DIST_ADAM ? 1e-3 : 1e-2;
    const double beta1 = o->beta1 > 0 ? (double)o->beta1 : (double)0.9f;
    const double beta2 = o->beta2 > 0 ? (double)o->beta2 : (double)0.999f;
    const double epsilon = o->epsilon > 0 ? (double)o->epsilon : o->kind == MR_DIST_ADAM ? 1e-8 : 1e-10;
    p->steps++;
    g += (double)o->weight_decay * p->value;
    switch (o->kind) {
    case MR_DIST_SGD:
        p->a = p->steps == 1 ? g : (double)o->momentum * p->a + g;
        p->value -= lr * (o->nesterov ? g + (double)o->momentum * p->a : p->a);
        break;
    case MR_DIST_ADAGRAD:
        if (p->steps == 1)
            p->a = (double)o->initial_accumulator;
        p->a += g * g;
        p->value -= lr * g / (sqrt(p->a) + epsilon);
        break;
    case MR_DIST_ADAM:
        p->a = beta1 * p->a + (1 - beta1) * g;
        p->b = beta2 * p->b + (1 - beta2) * g * g;
        p->value -=
            lr / (1 - pow(beta1, p->steps)) * p->a / (sqrt(p->b) / sqrt(1 - pow(beta2, p->steps)) + epsilon);
        break;
    }
}

struct fixture {
    struct mr_owned_parameter parameters[PARAMETERS];
    struct plain plain[PARAMETERS][FLOATS_MAX];
    float gradients[PARAMETERS][FLOATS_MAX];
    bool has_gradient[PARAMETERS];
    uint32_t floats[PARAMETERS]; /* of the gradients */
    struct mr_named_parameters *all;
    struct mr_owned_optimizer *optimizer;
};

static float drawn(uint32_t step, uint32_t parameter, uint32_t element)
{
    uint32_t z = (step * 31 + parameter) * 1009 + element;
    z = (z ^ z >> 16) * 0x7feb352du;
    z = (z ^ z >> 15) * 0x846ca68bu;
    return (float)((z ^ z >> 16) >> 8) * 0x1p-23f - 1.0f;
}

static void owned_optimizer_begin(struct fixture *f, const struct mr_dist_optimizer_options *options)
{
    struct mr_rule rule;
    char error[256] = "";
    memset(f, 0, sizeof(*f));
    assert_int_equal(mr_dist_rule(options, &rule, error, sizeof(error)), MR_OK);
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        float values[FLOATS_MAX];
        for (uint32_t i = 0; i < floats_of[p]; i++) {
            values[i] = drawn(1000, p, i);
            f->plain[p][i].value = (double)values[i];
        }
        const struct mr_tensor initial = mr_tensor_1d(MR_F32, floats_of[p], values);
        f->parameters[p] = (struct mr_owned_parameter){.id = 100 + p, .number = 10 + p};
        f->floats[p] = floats_of[p];
        assert_int_equal(mr_versions_create(&initial, &f->parameters[p].versions), MR_OK);
    }
    f->all = mr_named_create();
    assert_non_null(f->all);
    f->optimizer = mr_owned_optimizer_create(&rule, f->all, NULL);
    assert_non_null(f->optimizer);
    for (uint32_t p = 0; p < PARAMETERS; p += 2) /* two, then one */
        assert_int_equal(mr_owned_optimizer_add(f->optimizer, &f->parameters[p], p + 2 > PARAMETERS ? 1 : 2,
                                                error, sizeof(error)),
                         MR_OK);
}

static void owned_optimizer_end(struct fixture *f)
{
    for (uint32_t p = 0; p < PARAMETERS; p++)
        mr_versions_release(f->parameters[p].versions);
    mr_owned_optimizer_destroy(f->optimizer);
    mr_named_destroy(f->all);
}

static bool gradient_of(void *context, uint64_t id, struct mr_tensor *gradient)
{
    struct fixture *f = context;
    assert_true(id >= 100 && id < 100 + PARAMETERS);
    if (!f->has_gradient[id - 100])
        return false;
    *gradient = mr_tensor_1d(MR_F32, f->floats[id - 100], f->gradients[id - 100]);
    return true;
}

static void draw(struct fixture *f, uint32_t step)
{
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        f->has_gradient[p] = p != 1 || step % 3 != 0;
        for (uint32_t i = 0; i < floats_of[p]; i++)
            f->gradients[p][i] = drawn(step, p, i);
    }
}

static void compare(struct fixture *f, uint64_t numbers[PARAMETERS])
{
    for (uint32_t p = 0; p < PARAMETERS; p++) {
        struct mr_parameter_version *v = mr_versions_hold(f->parameters[p].versions);
        assert_int_equal(mr_version_number(v), numbers[p]);
        for (uint32_t i = 0; i < floats_of[p]; i++) {
            double expected = f->plain[p][i].value, got = (double)mr_version_values(v)[i];
            if (!(fabs(got - expected) <= 1e-5 * fmax(1, fabs(expected))))
                fail_msg("parameter %u element %u is %.9g, expected %.9g", p, i, got, expected);
        }
        mr_version_release(v);
    }
}

TEST(steps_are_as_torchs_formulas)
{
    const struct mr_dist_optimizer_options cases[] = {
        {.kind = MR_DIST_SGD, .learning_rate = 0.1f},
        {.kind = MR_DIST_SGD, .learning_rate = 0.05f, .weight_decay = 0.1f},
        {.kind = MR_DIST_SGD, .learning_rate = 0.03f, .momentum = 0.9f},
        {.kind = MR_DIST_SGD,
         .learning_rate = 0.03f,
         .momentum = 0.8f,
         .nesterov = true,
         .weight_decay = 0.01f},
        {.kind = MR_DIST_ADAGRAD},
        {.kind = MR_DIST_ADAGRAD, .learning_rate = 0.2f, .epsilon = 0.1f, .initial_accumulator = 0.5f},
        {.kind = MR_DIST_ADAM},
        {.kind = MR_DIST_ADAM,
         .learning_rate = 0.01f,
         .beta1 = 0.8f,
         .beta2 = 0.9f,
         .epsilon = 0.01f,
         .weight_decay = 0.1f},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct fixture f;
        uint64_t numbers[PARAMETERS] = {1, 1, 1};
        owned_optimizer_begin(&f, &cases[c]);
        for (uint32_t step = 1; step <= STEPS; step++) {
            draw(&f, step);
            assert_int_equal(mr_owned_optimizer_step(f.optimizer, gradient_of, &f, NULL, 0), MR_OK);
            for (uint32_t p = 0; p < PARAMETERS; p++) {
                numbers[p] += f.has_gradient[p];
                for (uint32_t i = 0; i < floats_of[p] && f.has_gradient[p]; i++)
                    plain_step(&cases[c], &f.plain[p][i], (double)f.gradients[p][i]);
            }
            compare(&f, numbers);
        }
        owned_optimizer_end(&f);
    }
}

/* With a name its state outlives it: two halves of a run are, to the bit, the run that was not cut. */
TEST(an_optimizer_of_the_same_name_goes_on)
{
    const struct mr_dist_optimizer_options adam = {.kind = MR_DIST_ADAM};
    struct mr_rule rule;
    char error[256] = "", text[MR_NAMED_TEXT_BYTES];
    struct fixture f;
    owned_optimizer_begin(&f, &adam);
    assert_int_equal(mr_dist_rule(&adam, &rule, error, sizeof(error)), MR_OK);
    struct mr_owned_optimizer *halves = NULL;
    struct mr_versions *named;
    struct mr_parameter_version *first = mr_versions_hold(f.parameters[2].versions);
    assert_int_equal(mr_named_open(f.all, "p", mr_version_tensor(first), &named, text), MR_OK);
    mr_version_release(first);
    const struct mr_owned_parameter parameter = {.id = 102, .number = 7, .versions = named};
    for (uint32_t step = 1; step <= STEPS; step++) {
        if (step == 1 || step == STEPS / 2) {
            mr_owned_optimizer_destroy(halves);
            halves = mr_owned_optimizer_create(&rule, f.all, "trainer");
            assert_non_null(halves);
            assert_int_equal(mr_owned_optimizer_steps(halves), step - 1);
            assert_int_equal(mr_owned_optimizer_add(halves, &parameter, 1, error, sizeof(error)), MR_OK);
        }
        draw(&f, step);
        assert_int_equal(mr_owned_optimizer_step(halves, gradient_of, &f, error, sizeof(error)), MR_OK);
        assert_int_equal(mr_owned_optimizer_step(f.optimizer, gradient_of, &f, error, sizeof(error)), MR_OK);
    }
    struct mr_parameter_version *whole = mr_versions_hold(f.parameters[2].versions);
    struct mr_parameter_version *twice = mr_versions_hold(named);
    assert_memory_equal(mr_version_values(whole), mr_version_values(twice), FLOATS_MAX * sizeof(float));
    mr_version_release(whole);
    mr_version_release(twice);
    assert_int_equal(mr_owned_optimizer_add(halves, &f.parameters[0], 1, error, sizeof(error)),
                     MR_INVALID_ARGUMENT);
    assert_string_equal(error, "parameter 10 has no name, which an optimizer with a name needs: make it with "
                               "mr_parameter_open()");
    mr_owned_optimizer_destroy(halves);
    mr_versions_release(named);
    owned_optimizer_end(&f);
}

/* One bad gradient leaves its parameter as it is, and no other. */
TEST(bad_gradients_are_named)
{
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 0.1f};
    struct fixture f;
    char error[256];
    for (uint32_t bad = 0; bad < 3; bad++) {
        owned_optimizer_begin(&f, &sgd);
        draw(&f, 1);
        if (bad == 0)
            f.gradients[0][3] = NAN;
        else if (bad == 1)
            f.gradients[0][6] = -INFINITY;
        else
            f.floats[0]--;
        assert_int_equal(mr_owned_optimizer_step(f.optimizer, gradient_of, &f, error, sizeof(error)),
                         MR_INVALID_ARGUMENT);
        assert_string_equal(error, bad < 2
                                       ? "parameter 10 has NaN or Inf in its gradient: it stays as it was"
                                       : "parameter 10 has a gradient of another shape: it stays as it was");
        for (uint32_t p = 1; p < PARAMETERS; p++)
            for (uint32_t i = 0; i < floats_of[p]; i++)
                plain_step(&sgd, &f.plain[p][i], (double)f.gradients[p][i]);
        struct mr_parameter_version *v = mr_versions_hold(f.parameters[0].versions);
        uint64_t numbers[PARAMETERS] = {mr_version_number(v), 2, 2};
        mr_version_release(v);
        compare(&f, numbers);
        owned_optimizer_end(&f);
    }
}

/* Who reads a version sees nothing of a step. */
TEST(readers_keep_their_version)
{
    const struct mr_dist_optimizer_options adam = {.kind = MR_DIST_ADAM, .learning_rate = 0.1f};
    struct fixture f;
    owned_optimizer_begin(&f, &adam);
    struct mr_parameter_version *v = mr_versions_hold(f.parameters[2].versions);
    draw(&f, 1);
    assert_int_equal(mr_owned_optimizer_step(f.optimizer, gradient_of, &f, NULL, 0), MR_OK);
    for (uint32_t i = 0; i < floats_of[2]; i++)
        assert_true(mr_version_values(v)[i] == drawn(1000, 2, i));
    mr_version_release(v);
    owned_optimizer_end(&f);
}

TEST(a_parameter_comes_once)
{
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 0.1f};
    struct fixture f;
    char error[256];
    owned_optimizer_begin(&f, &sgd);
    struct mr_owned_parameter again = f.parameters[0];
    again.number = 17;
    assert_int_equal(mr_owned_optimizer_add(f.optimizer, &again, 1, error, sizeof(error)),
                     MR_INVALID_ARGUMENT);
    assert_string_equal(error, "parameters 10 and 17 are the same");
    owned_optimizer_end(&f);
    mr_owned_optimizer_destroy(NULL);
}
