/* Versions of parameters: who sees which values, and when they are copied. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "layers_fixture.h"
#include "dataplane/optimizer/rule.h"
#include "tests/test.h"

static const struct ps_shape sample = {3, {2, 6, 6}};

static void parameters_init(struct machine *m)
{
    const struct ps_layer layers[] = {ps_conv2d(2, 16, 3), ps_relu(), ps_flatten(), ps_linear(256, 3)};
    machine_init(m, layers, COUNT_OF(layers), &sample, 4);
    machine_draw_input(m, 1);
    machine_draw_output_gradient(m, 1);
}

static struct parameters_optimizer *optimizer_of(struct machine *m, enum mr_optimizer kind, float rate)
{
    const uint32_t one = 1;
    struct mr_feature f = mr_feature_variable("v", 1, &one);
    struct parameters_optimizer *o = NULL;
    const char *what = "";
    mr_feature_set_optimizer(&f, kind);
    f.learning_rate = rate;
    assert_int_equal(parameters_optimizer_create(m->parameters, &f, &o, &what), MR_OK);
    return o;
}

static float *copy_of(const float *values, size_t count)
{
    float *copy = zeros(count, sizeof(*copy));
    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

TEST(test_changed_in_place)
{
    struct machine m;
    parameters_init(&m);
    struct parameters_optimizer *o = optimizer_of(&m, MR_OPT_SGD, 0.1f);
    struct mr_parameter_version *v = parameters_hold(m.parameters);
    uint64_t number = mr_version_number(v);
    const float *values = mr_version_values(v);
    mr_version_release(v);
    machine_forward(&m, true, 1);
    machine_backward(&m);
    assert_int_equal(parameters_step(o, m.gradients, 1, 0, NULL), MR_OK);
    v = parameters_hold(m.parameters);
    assert_ptr_equal(mr_version_values(v), values);
    assert_int_equal(mr_version_number(v), number + 1);
    mr_version_release(v);
    parameters_optimizer_destroy(o);
    machine_free(&m);
}

/* A forward's backward gives the same gradients, whatever steps are taken in between. */
TEST(test_saved_keeps_version)
{
    struct machine m;
    parameters_init(&m);
    struct parameters_optimizer *o = optimizer_of(&m, MR_OPT_ADAM, 0.1f);
    machine_forward(&m, true, 1);
    float *output = copy_of(m.output, m.out_floats);
    machine_backward(&m);
    float *gradients = copy_of(m.gradients, m.parameter_floats);
    float *input_gradient = copy_of(m.input_gradient, m.in_floats);

    machine_forward(&m, true, 1);
    struct mr_parameter_version *held = parameters_hold(m.parameters);
    float *values = copy_of(mr_version_values(held), m.parameter_floats);
    for (uint64_t step = 1; step <= 3; step++)
        assert_int_equal(parameters_step(o, gradients, step, 0, NULL), MR_OK);
    assert_memory_equal(mr_version_values(held), values, m.parameter_floats * sizeof(float));
    machine_backward(&m);
    assert_memory_equal(m.gradients, gradients, m.parameter_floats * sizeof(float));
    assert_memory_equal(m.input_gradient, input_gradient, m.in_floats * sizeof(float));

    /* With the old version the old output, with the newest another. */
    const struct ps_forward how = {.training = true, .seed = DROP_SEED, .step = 1};
    assert_int_equal(ps_network_forward(m.network, held, &how, m.input, m.batch, m.saved, m.output), MR_OK);
    assert_memory_equal(m.output, output, m.out_floats * sizeof(float));
    mr_version_release(held);
    machine_forward(&m, true, 1);
    assert_memory_not_equal(m.output, output, m.out_floats * sizeof(float));
    free(output);
    free(gradients);
    free(input_gradient);
    free(values);
    parameters_optimizer_destroy(o);
    machine_free(&m);
}

/* Values changed in place are those that the next forward computes with, in every format. */
TEST(test_change_is_seen)
{
    struct machine m;
    parameters_init(&m);
    machine_forward(&m, false, 1);
    machine_backward(&m);
    float *twice = zeros(m.parameter_floats, sizeof(float)), *output = copy_of(m.output, m.out_floats);
    struct mr_parameter_version *v = parameters_hold(m.parameters);
    for (size_t i = 0; i < m.parameter_floats; i++)
        twice[i] = 2 * mr_version_values(v)[i];
    mr_version_release(v);
    assert_int_equal(parameters_set(m.parameters, twice), MR_OK);
    const struct ps_parameter_info *bias = ps_network_parameter(m.network, 3);
    machine_forward(&m, false, 1);
    for (size_t i = 0; i < m.out_floats; i++) { /* conv and weight doubled: four times; the last bias twice */
        double b = (double)twice[bias->first + i % 3] / 2, expected = 4 * ((double)output[i] - b) + 2 * b;
        assert_true(fabs((double)m.output[i] - expected) < 1e-4);
    }
    free(twice);
    free(output);
    machine_free(&m);
}

/* Versions that are not of ps_parameters, as those of remote calls: two networks share what was made of
 * them. */
TEST(test_versions_of_others)
{
    struct machine m, twin;
    struct mr_versions *versions = NULL;
    const struct ps_forward how = {.training = false};
    parameters_init(&m);
    parameters_init(&twin);
    float *values = zeros(m.parameter_floats, sizeof(float));
    ps_parameters_first_values(m.network, 7, values);
    const struct mr_tensor tensor = ps_parameters_tensor(m.network, values);
    assert_int_equal(tensor.bytes, m.parameter_floats * sizeof(float));
    assert_int_equal(mr_versions_create(&tensor, &versions), MR_OK);
    assert_int_equal(parameters_set(m.parameters, values), MR_OK);
    machine_forward(&m, false, 1);
    for (uint32_t round = 0; round < 2; round++) {
        struct mr_parameter_version *v = mr_versions_hold(versions);
        assert_int_equal(ps_network_forward(twin.network, v, &how, m.input, m.batch, twin.saved, twin.output),
                         MR_OK);
        assert_memory_equal(twin.output, m.output, m.out_floats * sizeof(float));
        assert_int_equal(ps_network_forward(m.network, v, &how, m.input, m.batch, m.saved, m.output), MR_OK);
        assert_memory_equal(twin.output, m.output, m.out_floats * sizeof(float));
        mr_version_release(v);
        for (size_t i = 0; i < m.parameter_floats; i++)
            values[i] *= 0.5f;
        ps_saved_reset(twin.saved);
        ps_saved_reset(m.saved);
        assert_int_equal(versions_set(versions, values), MR_OK);
        assert_int_equal(parameters_set(m.parameters, values), MR_OK);
        machine_forward(&m, false, 1);
    }
    mr_versions_release(versions);
    free(values);
    machine_free(&m);
    machine_free(&twin);
}

TEST(test_optimizers_as_rows)
{
    static const enum mr_optimizer kinds[] = {MR_OPT_SGD, MR_OPT_MOMENTUM, MR_OPT_ADAGRAD, MR_OPT_ADAM};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        struct machine m;
        parameters_init(&m);
        machine_forward(&m, true, 1);
        machine_backward(&m);
        struct parameters_optimizer *o = optimizer_of(&m, kinds[k], 0.05f);
        struct mr_feature f = mr_feature_table("t", 1);
        struct mr_rule rule;
        const char *what;
        mr_feature_set_optimizer(&f, kinds[k]);
        assert_int_equal(mr_rule_init(&f, &rule, &what), MR_OK);
        const struct ps_parameter_info *info = ps_network_parameter(m.network, 2);
        struct mr_parameter_version *v = parameters_hold(m.parameters);
        float *row = copy_of(mr_version_values(v) + info->first, info->shape.count);
        float *kept = zeros(mr_rule_state_floats(&rule, info->shape.count), sizeof(float));
        const float *gradient = m.gradients + info->first;
        mr_version_release(v);
        mr_rule_state_init(&rule, row, kept, info->shape.count);
        for (uint64_t step = 1; step <= 3; step++) {
            float rate = step == 3 ? 0.01f : 0.05f;
            assert_int_equal(parameters_step(o, m.gradients, step, step == 3 ? &rate : NULL, NULL), MR_OK);
            const struct mr_rule_push push = {.learning_rate = rate};
            assert_int_equal(mr_rule_apply(&rule, &push, &row, &kept, &gradient, 1, info->shape.count), 1);
        }
        v = parameters_hold(m.parameters);
        assert_memory_equal(mr_version_values(v) + info->first, row, info->shape.count * sizeof(float));
        mr_version_release(v);
        free(row);
        free(kept);
        parameters_optimizer_destroy(o);
        machine_free(&m);
    }
}

TEST(test_bad_gradients_are_skipped)
{
    struct machine m;
    parameters_init(&m);
    struct parameters_optimizer *o = optimizer_of(&m, MR_OPT_SGD, 1);
    const struct ps_parameter_info *bad = ps_network_parameter(m.network, 1),
                                   *good = ps_network_parameter(m.network, 3);
    struct mr_parameter_version *v = parameters_hold(m.parameters);
    uint32_t skipped = 0;
    m.gradients[bad->first] = NAN;
    m.gradients[bad->first + 1] = m.gradients[good->first] = 1;
    assert_int_equal(parameters_step(o, m.gradients, 1, 0, &skipped), MR_OK);
    assert_int_equal(skipped, 1);
    struct mr_parameter_version *next = parameters_hold(m.parameters);
    const float *before = mr_version_values(v), *after = mr_version_values(next);
    assert_true(after[bad->first + 1] == before[bad->first + 1]);
    assert_true(after[good->first] == before[good->first] - 1);
    mr_version_release(v);
    mr_version_release(next);
    parameters_optimizer_destroy(o);
    machine_free(&m);
}

TEST(test_wrong_optimizer)
{
    struct machine m;
    const uint32_t one = 1;
    struct mr_feature f = mr_feature_variable("v", 1, &one);
    struct parameters_optimizer *o = NULL;
    const char *what = NULL;
    parameters_init(&m);
    f.learning_rate = -1;
    assert_int_equal(parameters_optimizer_create(m.parameters, &f, &o, &what), MR_INVALID_ARGUMENT);
    assert_string_equal(what, "learning_rate");
    assert_null(o);
    machine_free(&m);
}

/* As torch.nn's: uniform in +-1 / sqrt(fan_in). */
TEST(test_first_values)
{
    struct ps_layer layers[CONV_NET_LAYERS];
    struct machine m;
    struct parameters *same, *other;
    conv_net_layers(layers);
    machine_init(&m, layers, CONV_NET_LAYERS, &conv_net_sample, 1);
    assert_int_equal(parameters_create(m.network, 5, &same), MR_OK);
    assert_int_equal(parameters_create(m.network, 6, &other), MR_OK);
    struct mr_parameter_version *a = parameters_hold(same), *b = parameters_hold(other);
    assert_int_equal(mr_version_number(a), 1);
    for (uint32_t i = 0; i < ps_network_parameter_count(m.network); i++) {
        const struct ps_parameter_info *info = ps_network_parameter(m.network, i);
        const float *values = mr_version_values(a) + info->first;
        const double bound = 1 / sqrt((double)info->shape.fan_in), n = (double)info->shape.count;
        double sum = 0, squares = 0;
        for (uint64_t e = 0; e < info->shape.count; e++) {
            assert_true(fabs((double)values[e]) <= bound * (1 + 1e-6));
            sum += (double)values[e] / bound;
            squares += (double)values[e] * (double)values[e] / (bound * bound);
        }
        assert_true(fabs(sum / n) < 5 * sqrt(1.0 / 3 / n)); /* five standard deviations */
        assert_true(fabs(squares / n - 1.0 / 3) < 5 * sqrt(4.0 / 45 / n));
        assert_memory_not_equal(values, mr_version_values(b) + info->first,
                                info->shape.count * sizeof(float));
    }
    mr_version_release(a);
    mr_version_release(b);
    parameters_destroy(same);
    parameters_destroy(other);
    machine_free(&m);
}
