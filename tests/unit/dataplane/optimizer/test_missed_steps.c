/* Rows that make up for the steps that they have missed, against rows that go through each. */
#include <math.h>
#include <string.h>
#include "dataplane/optimizer/missed_steps.h"
#include "random_fixture.h"
#include "tests/test.h"

enum { DIM = 5, STATE_MAX = 2 * DIM + 2 };

/* ---- learning rates ---- */

static struct mr_rates schedule(void)
{
    struct mr_feature f = mr_feature_table("t", DIM);
    f.learning_rate = 1;
    f.schedule = MR_SCHEDULE_LINEAR;
    f.schedule_steps = 100;
    f.learning_rate_end = 0.5f;
    return mr_rates_of(&f);
}

TEST(test_rates_that_nobody_noted_are_the_schedules)
{
    const struct mr_rates s = schedule();
    static struct mr_step_rates r;
    assert_true(mr_step_rates_at(&r, &s, 7) == mr_rates_at(&s, 7));
    mr_step_rates_note(&r, &s, 20, mr_rates_at(&s, 20));
    assert_true(mr_step_rates_at(&r, &s, 20) == mr_rates_at(&s, 20));
    assert_true(mr_step_rates_at(&r, &s, 30) == mr_rates_at(&s, 30));
    assert_true(mr_step_rates_at(&r, &s, 10) == mr_rates_at(&s, 10));
    mr_step_rates_note(&r, &s, 40, mr_rates_at(&s, 40));
    assert_true(mr_step_rates_at(&r, &s, 30) == mr_rates_at(&s, 30)); /* had no push */
    mr_step_rates_note(&r, &s, 50, 0.125f);
    assert_true(mr_step_rates_at(&r, &s, 45) == 0.125f);
}

TEST(test_rates_of_pushes)
{
    const struct mr_rates s = schedule();
    static struct mr_step_rates r;
    mr_step_rates_note(&r, &s, 5, 0.25f);
    assert_true(mr_step_rates_at(&r, &s, 4) == 0.25f); /* the nearest */
    assert_true(mr_step_rates_at(&r, &s, 9) == 0.25f);
    mr_step_rates_note(&r, &s, 8, 0.125f);
    assert_true(mr_step_rates_at(&r, &s, 5) == 0.25f);
    assert_true(mr_step_rates_at(&r, &s, 6) == 0.125f); /* had no push */
    mr_step_rates_note(&r, &s, 8, 0.0625f);
    assert_true(mr_step_rates_at(&r, &s, 7) == 0.125f);
    assert_true(mr_step_rates_at(&r, &s, 8) == 0.0625f);
    mr_step_rates_note(&r, &s, 6, 3); /* late */
    assert_true(mr_step_rates_at(&r, &s, 6) == 3);
    assert_true(mr_step_rates_at(&r, &s, 7) == 0.125f);
    mr_step_rates_note(&r, &s, 4, 3); /* of before those that are known */
    assert_true(mr_step_rates_at(&r, &s, 4) == 0.25f);
    assert_true(mr_step_rates_at(&r, &s, 9) == 0.0625f);
}

TEST(test_old_rates_are_forgotten)
{
    const struct mr_rates s = schedule();
    static struct mr_step_rates r;
    for (uint32_t i = 1; i <= MR_MISSED_STEPS_MAX + 10; i++)
        mr_step_rates_note(&r, &s, i, (float)i);
    assert_true(mr_step_rates_at(&r, &s, 11) == 11);
    assert_true(mr_step_rates_at(&r, &s, 10) == 11);
    mr_step_rates_note(&r, &s, UINT64_C(1) << 40, 2);
    assert_true(mr_step_rates_at(&r, &s, 11) == 2);
    assert_int_equal(r.count, MR_MISSED_STEPS_MAX);
    mr_step_rates_note(&r, &s, 12, 4); /* that step was a mistake, or training begins again */
    assert_true(mr_step_rates_at(&r, &s, 12) == 4);
    mr_step_rates_note(&r, &s, 13, 5);
    assert_true(mr_step_rates_at(&r, &s, 12) == 4);
    assert_true(mr_step_rates_at(&r, &s, 13) == 5);
}

/* ---- rows ---- */

struct row {
    float values[DIM], state[STATE_MAX];
};

static struct mr_feature dense(uint32_t optimizer)
{
    struct mr_feature f = mr_feature_table("t", DIM);
    mr_feature_set_optimizer(&f, (enum mr_optimizer)optimizer);
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    f.learning_rate = 0.1f;
    return f;
}

static struct mr_rule rule_of(const struct mr_feature *f)
{
    struct mr_rule o;
    const char *what;
    assert_null(mr_feature_check(f));
    assert_int_equal(mr_rule_init(f, &o, &what), MR_OK);
    assert_true(mr_rule_state_floats(&o, DIM) <= STATE_MAX);
    return o;
}

static struct row new_row(const struct mr_rule *o)
{
    struct row r = {.values = {1, -2, 0.5f, 0, 3}};
    mr_rule_state_init(o, r.values, r.state, DIM);
    return r;
}

static void missed_steps_apply(const struct mr_rule *o, struct row *r, uint64_t step, float rate,
                               const float *gradient)
{
    float *values = r->values, *state = r->state;
    const struct mr_rule_push push = {.learning_rate = rate, .step = step};
    assert_int_equal(mr_rule_apply(o, &push, &values, &state, &gradient, 1, DIM), 1);
}

/* One row goes through each step as it comes, one only when it gets a gradient, with random pauses. */
static void missed_steps_check(const struct mr_feature *f, uint64_t seed)
{
    static const float zeros[DIM];
    const struct mr_rule o = rule_of(f);
    const size_t own_state = mr_rule_state_floats(&o, DIM) - 1;
    struct row each = new_row(&o), late = each;
    static struct mr_step_rates rates;
    memset(&rates, 0, sizeof(rates));
    uint64_t next = 1 + random_below(&seed, 20);
    for (uint64_t step = 1; step <= 600; step++) {
        const float rate = 0.01f * (float)(1 + random_below(&seed, 10));
        float gradient[DIM];
        for (uint32_t i = 0; i < DIM; i++)
            gradient[i] = (float)random_below(&seed, 1000) / 500 - 1;
        mr_step_rates_note(&rates, &o.schedule, step, rate);
        missed_steps_apply(&o, &each, step, rate, step == next ? gradient : zeros);
        if (step != next)
            continue;
        mr_rule_catch_up(&o, &rates, step - 1, late.values, late.state, DIM);
        missed_steps_apply(&o, &late, step, rate, gradient);
        mr_rule_went_through(&o, step, late.state, DIM);
        assert_memory_equal(late.values, each.values, sizeof(each.values));
        assert_memory_equal(late.state, each.state, own_state * sizeof(float));
        next += 1 + random_below(&seed, 30);
    }
    mr_rule_catch_up(&o, &rates, 600, late.values, late.state, DIM);
    assert_memory_equal(late.values, each.values, sizeof(each.values));
    const struct row before = late;
    mr_rule_catch_up(&o, &rates, 599, late.values, late.state, DIM); /* it has been there */
    assert_memory_equal(&late, &before, sizeof(late));
}

TEST(test_rows_are_as_if_they_had_gone_through_each_step)
{
    static const uint32_t optimizers[] = {MR_OPT_SGD, MR_OPT_MOMENTUM, MR_OPT_ADAGRAD, MR_OPT_ADAM,
                                          MR_OPT_ADAMW};
    uint64_t seed = 7;
    for (uint32_t i = 0; i < sizeof(optimizers) / sizeof(*optimizers); i++)
        for (uint32_t decays = 0; decays < 2; decays++) {
            struct mr_feature f = dense(optimizers[i]);
            f.weight_decay = decays ? 0.01f : 0;
            missed_steps_check(&f, seed++);
        }
    struct mr_feature f = dense(MR_OPT_MOMENTUM);
    f.optimizer_args[1] = 0.5f;
    missed_steps_check(&f, seed++);
    f.optimizer_args[1] = 0;
    f.optimizer_args[2] = 1;
    missed_steps_check(&f, seed++);
    f = dense(MR_OPT_ADAM);
    f.optimizer_args[3] = 1;
    missed_steps_check(&f, seed++);
    f = dense(MR_OPT_ADAGRAD);
    f.optimizer_args[0] = 0.1f; /* of sums, not of the last step */
    f.weight_decay = 0.01f;
    missed_steps_check(&f, seed++);
}

/* What is left of 0.9^1000 changes nothing: the steps are not gone through one by one. */
TEST(test_rows_come_to_rest)
{
    static const float gradient[DIM] = {1, 1, 1, 1, 1};
    static struct mr_step_rates rates;
    const uint64_t far = UINT64_C(3000000000);
    struct mr_feature f = dense(MR_OPT_MOMENTUM);
    struct mr_rule o = rule_of(&f);
    struct row r = new_row(&o), soon;
    missed_steps_apply(&o, &r, 1, 0.1f, gradient);
    mr_rule_went_through(&o, 1, r.state, DIM);
    soon = r;
    mr_rule_catch_up(&o, &rates, 2000, soon.values, soon.state, DIM);
    mr_rule_catch_up(&o, &rates, far, r.values, r.state, DIM);
    assert_memory_equal(r.values, soon.values, sizeof(r.values));
    assert_true(fabsf(r.state[0]) < 1e-37f);

    f = dense(MR_OPT_ADAM);
    o = rule_of(&f);
    r = new_row(&o);
    missed_steps_apply(&o, &r, 1, 0.1f, gradient);
    mr_rule_went_through(&o, 1, r.state, DIM);
    mr_rule_catch_up(&o, &rates, 2001, r.values, r.state, DIM);
    uint32_t updates;
    memcpy(&updates, r.state + 2 * DIM, sizeof(updates));
    assert_int_equal(updates, 2001);
    assert_true(fabsf(r.state[DIM] / (0.001f * powf(0.999f, 2000)) - 1) < 1e-3f);
}

/* With weight decay there is no rest, but an end. */
TEST(test_no_row_takes_long)
{
    static struct mr_step_rates rates;
    struct mr_feature f = dense(MR_OPT_ADAMW);
    f.weight_decay = 0.001f;
    f.learning_rate = 0.01f;
    const struct mr_rule o = rule_of(&f);
    struct row r = new_row(&o), most = r;
    mr_rule_catch_up(&o, &rates, MR_MISSED_STEPS_MAX, most.values, most.state, DIM);
    mr_rule_catch_up(&o, &rates, UINT64_C(3000000000), r.values, r.state, DIM);
    assert_true(most.values[0] < 1);
    assert_memory_equal(r.values, most.values, sizeof(r.values));
}

/* The last step that a row can know. */
TEST(test_steps_beyond_32_bits)
{
    static struct mr_step_rates rates;
    struct mr_feature f = dense(MR_OPT_SGD);
    f.weight_decay = 0.01f;
    const struct mr_rule o = rule_of(&f);
    struct row r = new_row(&o), at_end;
    mr_rule_went_through(&o, UINT32_MAX - 10, r.state, DIM);
    at_end = r;
    mr_rule_catch_up(&o, &rates, UINT32_MAX, at_end.values, at_end.state, DIM);
    assert_true(at_end.values[0] < r.values[0] * powf(0.999f, 9));
    for (uint32_t i = 0; i < 2; i++) {
        mr_rule_catch_up(&o, &rates, UINT32_MAX + UINT64_C(10000) * (i + 1), r.values, r.state, DIM);
        assert_memory_equal(&r, &at_end, sizeof(r));
    }
}

TEST(test_no_row_has_more_state)
{
    size_t most = 0;
    for (uint32_t optimizer = 0; optimizer <= MR_OPT_LAST; optimizer++) {
        for (uint32_t is_dense = 0; is_dense < 2; is_dense++) {
            struct mr_feature f = mr_feature_table("t", MR_DIM_MAX);
            struct mr_rule o;
            const char *what;
            mr_feature_set_optimizer(&f, (enum mr_optimizer)optimizer);
            if (is_dense)
                f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
            if (mr_feature_check(&f) != NULL || mr_rule_init(&f, &o, &what) != MR_OK)
                continue;
            const size_t floats = mr_rule_state_floats(&o, MR_DIM_MAX);
            most = floats > most ? floats : most;
        }
    }
    assert_int_equal(most, MR_RULE_STATE_FLOATS_MAX);
}

TEST(test_which_features_are_dense)
{
    struct mr_feature f = dense(MR_OPT_MOMENTUM);
    assert_true(mr_feature_is_dense(&f));
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 2;
    assert_string_equal(mr_feature_check(&f), "optimizer_args");
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    f.dtype = MR_F16;
    assert_string_equal(mr_feature_check(&f), "optimizer_args");
    f = dense(MR_OPT_SGD); /* whose other arguments may be any */
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 0.5f;
    assert_string_equal(mr_feature_check(&f), "optimizer_args");
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    f.dtype = MR_F16;
    assert_string_equal(mr_feature_check(&f), "optimizer_args");
    f = dense(MR_OPT_ROWWISE_ADAGRAD);
    assert_string_equal(mr_feature_check(&f), "optimizer_args");
    const uint32_t shape = DIM;
    f = mr_feature_variable("v", 1, &shape);
    mr_feature_set_optimizer(&f, MR_OPT_ADAM);
    f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    assert_string_equal(mr_feature_check(&f), "optimizer_args");
}
