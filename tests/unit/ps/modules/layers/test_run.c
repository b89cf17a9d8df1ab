/* Runs of a network: dropout, halves of a network, sizes of batch, what is refused, and many threads at
 * once. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "layers_fixture.h"
#include "ps/modules/layers/elementwise.h"
#include "tests/test.h"

TEST(test_dropout)
{
    const struct ps_layer layer = ps_dropout(0.25f);
    const struct ps_shape sample = {1, {4096}};
    struct machine m;
    machine_init(&m, &layer, 1, &sample, 16);
    for (size_t i = 0; i < m.in_floats; i++)
        m.input[i] = m.output_gradient[i] = 3;
    machine_forward(&m, true, 5);
    float *first = zeros(m.out_floats, sizeof(float));
    memcpy(first, m.output, m.out_floats * sizeof(float));
    machine_backward(&m);
    assert_memory_equal(m.input_gradient, first, m.out_floats * sizeof(float));
    size_t dropped = 0, both = 0, runs = 0;
    for (size_t i = 0; i < m.out_floats; i++) {
        assert_true(first[i] == 0 || fabs((double)first[i] - 4) < 1e-6);
        dropped += first[i] == 0;
        runs += i > 0 && first[i] == 0 && first[i - 1] == 0;
    }
    machine_forward(&m, true, 6);
    for (size_t i = 0; i < m.out_floats; i++)
        both += first[i] == 0 && m.output[i] == 0;
    const double n = (double)m.out_floats; /* each within five standard deviations */
    assert_true(fabs((double)dropped / n - 0.25) < 5 * sqrt(0.25 * 0.75 / n));
    assert_true(fabs((double)both / n - 0.0625) < 5 * sqrt(0.0625 * 0.9375 / n));
    assert_true(fabs((double)runs / n - 0.0625) < 7 * sqrt(0.0625 * 0.9375 / n)); /* neighbours overlap */
    machine_forward(&m, true, 5);
    assert_memory_equal(m.output, first, m.out_floats * sizeof(float));
    machine_forward(&m, false, 5);
    assert_memory_equal(m.output, m.input, m.out_floats * sizeof(float));
    free(first);
    machine_free(&m);
}

/* The same keys and elements on any machine: fixed numbers. */
TEST(test_dropped_elements)
{
    float x[64];
    uint8_t kept[64];
    uint64_t bits = 0;
    for (uint32_t i = 0; i < 64; i++)
        x[i] = 1;
    ps_dropout_forward(ps_drop_key(7, 3, 5, 2), 1u << 31, 2, x, kept, 64);
    for (uint32_t i = 0; i < 64; i++) {
        bits |= (uint64_t)kept[i] << i;
        assert_true(x[i] == (kept[i] ? 2 : 0));
    }
    assert_int_equal(bits, 0x8447c31e19179e89);
}

/* Cut in two anywhere, with the same parameters, a network is the same network. */
TEST(test_halves)
{
    struct ps_layer layers[CONV_NET_LAYERS];
    struct machine whole, front, back;
    conv_net_layers(layers);
    machine_init(&whole, layers, CONV_NET_LAYERS, &conv_net_sample, 3);
    machine_draw_input(&whole, 1);
    machine_draw_output_gradient(&whole, 1);
    machine_forward(&whole, true, 1);
    machine_backward(&whole);
    const uint32_t cuts[] = {1, 3, 6, 9, 11};
    for (size_t c = 0; c < COUNT_OF(cuts); c++) {
        const struct ps_network_options options = {.first_number = cuts[c]};
        char error[200];
        machine_init(&front, layers, cuts[c], &conv_net_sample, 3);
        const struct ps_shape middle = *ps_network_output(front.network);
        machine_init(&back, layers + cuts[c], CONV_NET_LAYERS - cuts[c], &middle, 3);
        struct ps_network *numbered;
        struct parameters *parameters;
        struct ps_saved *saved;
        assert_int_equal(ps_network_create(layers + cuts[c], CONV_NET_LAYERS - cuts[c], &middle, &options,
                                           &numbered, error, sizeof(error)),
                         MR_OK);
        assert_int_equal(parameters_create(numbered, 1, &parameters), MR_OK);
        assert_int_equal(ps_saved_create(numbered, &saved), MR_OK);
        uint32_t front_parameters = ps_network_parameter_count(front.network);
        uint64_t cut = front_parameters == 0 ? 0 : ps_network_parameter_floats(front.network);
        struct mr_parameter_version *v = parameters_hold(whole.parameters);
        assert_int_equal(parameters_set(front.parameters, mr_version_values(v)), MR_OK);
        assert_int_equal(parameters_set(parameters, mr_version_values(v) + cut), MR_OK);
        mr_version_release(v);

        memcpy(front.input, whole.input, whole.in_floats * sizeof(float));
        machine_forward(&front, true, 1);
        const struct ps_forward how = {.training = true, .seed = DROP_SEED, .step = 1};
        v = parameters_hold(parameters);
        assert_int_equal(ps_network_forward(numbered, v, &how, front.output, 3, saved, back.output), MR_OK);
        mr_version_release(v);
        assert_memory_equal(back.output, whole.output, whole.out_floats * sizeof(float));
        assert_int_equal(
            ps_network_backward(numbered, saved, whole.output_gradient, back.input_gradient, back.gradients),
            MR_OK);
        memcpy(front.output_gradient, back.input_gradient, back.in_floats * sizeof(float));
        machine_backward(&front);
        for (size_t i = 0; i < whole.in_floats; i++)
            assert_true(fabs((double)front.input_gradient[i] - (double)whole.input_gradient[i]) < 1e-5);
        for (size_t i = 0; i < back.parameter_floats; i++)
            assert_true(fabs((double)back.gradients[i] - (double)whole.gradients[cut + i]) < 1e-5);
        ps_saved_destroy(saved);
        parameters_destroy(parameters);
        ps_network_destroy(numbered);
        machine_free(&front);
        machine_free(&back);
    }
    machine_free(&whole);
}

/* More sizes than plans are kept, in a saved that is used again; each sample's result does not depend on the
 * others. */
TEST(test_batches)
{
    const struct ps_layer layers[] = {ps_conv2d(1, 16, 3), ps_relu(), ps_max_pool2d(2), ps_flatten(),
                                      ps_linear(144, 4)};
    const struct ps_shape sample = {3, {1, 8, 8}};
    struct machine m;
    machine_init(&m, layers, COUNT_OF(layers), &sample, 24);
    machine_draw_input(&m, 1);
    machine_forward(&m, false, 1);
    float *all = zeros(m.out_floats, sizeof(float));
    memcpy(all, m.output, m.out_floats * sizeof(float));
    size_t bytes = ps_saved_bytes(m.saved);
    assert_true(bytes > m.in_floats * sizeof(float));
    for (m.batch = 24; m.batch > 0; m.batch--) {
        machine_forward(&m, false, 1);
        for (uint32_t i = 0; i < 4 * m.batch; i++)
            assert_true(fabs((double)m.output[i] - (double)all[i]) < 1e-5);
    }
    assert_int_equal(ps_saved_bytes(m.saved), bytes);
    free(all);
    machine_free(&m);
}

TEST(test_refusals)
{
    const struct ps_layer layer = ps_linear(4, 2), wider = ps_linear(4, 20);
    const struct ps_shape sample = {1, {4}};
    const struct ps_forward how = {0};
    struct machine m, other;
    machine_init(&m, &layer, 1, &sample, 1);
    machine_init(&other, &wider, 1, &sample, 1);
    struct mr_parameter_version *v = parameters_hold(m.parameters);
    assert_int_equal(ps_network_backward(m.network, m.saved, m.output_gradient, NULL, NULL), MR_NOT_READY);
    assert_int_equal(ps_network_forward(m.network, v, &how, m.input, 0, m.saved, m.output),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(ps_network_forward(m.network, v, &how, m.input, PS_BATCH_MAX + 1, m.saved, m.output),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(ps_network_forward(other.network, v, &how, m.input, 1, other.saved, other.output),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(ps_network_forward(m.network, v, &how, m.input, 1, m.saved, m.output), MR_OK);
    assert_int_equal(ps_network_backward(m.network, m.saved, m.output_gradient, NULL, m.gradients), MR_OK);
    assert_int_equal(ps_network_backward(m.network, m.saved, m.output_gradient, NULL, m.gradients),
                     MR_NOT_READY);
    assert_int_equal(ps_network_forward(m.network, v, &how, m.input, 1, m.saved, m.output), MR_OK);
    ps_saved_reset(m.saved);
    assert_int_equal(ps_network_backward(m.network, m.saved, m.output_gradient, NULL, m.gradients),
                     MR_NOT_READY);
    mr_version_release(v);
    machine_free(&other);
    machine_free(&m);
}

TEST(test_nll_loss)
{
    float values[6] = {-1, -2, -3, -4, -5, -6}, gradient[6], loss = 9;
    const uint32_t labels[2] = {2, 0}, wrong[2] = {0, 3};
    assert_int_equal(nll_loss(values, wrong, 2, 3, &loss, gradient), MR_INVALID_ARGUMENT);
    assert_int_equal(nll_loss(values, labels, 0, 3, &loss, gradient), MR_INVALID_ARGUMENT);
    assert_true(loss == 9);
    assert_int_equal(nll_loss(values, labels, 2, 3, &loss, gradient), MR_OK);
    const float expected[6] = {0, 0, -0.5f, -0.5f, 0, 0};
    assert_true(loss == 3.5f);
    assert_memory_equal(gradient, expected, sizeof(expected));
    assert_int_equal(nll_loss(values, labels, 2, 3, &loss, values), MR_OK);
    assert_true(loss == 3.5f);
    assert_memory_equal(values, expected, sizeof(expected));
}

/* ---- many trainers on one network ---- */

#define TRAINERS 4u
#define ROUNDS   12u

struct trainer {
    pthread_t thread;
    struct machine *shared;
    struct parameters_optimizer *optimizer;
    uint64_t number;
    uint32_t wrong;
};

/* A forward, steps of the others, and a backward: the gradients must be those of the version held, computed
 * again. */
static void *train(void *context)
{
    struct trainer *t = context;
    struct machine *m = t->shared;
    const struct ps_forward how = {.training = true, .seed = t->number, .step = 1};
    struct ps_saved *saved[2];
    float *outputs[2], *gradients[2];
    for (int i = 0; i < 2; i++) {
        outputs[i] = zeros(m->out_floats, sizeof(float));
        gradients[i] = zeros(m->parameter_floats, sizeof(float));
        t->wrong += ps_saved_create(m->network, &saved[i]) != MR_OK;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct mr_parameter_version *v = parameters_hold(m->parameters);
        for (int i = 0; i < 2; i++)
            t->wrong +=
                ps_network_forward(m->network, v, &how, m->input, m->batch, saved[i], outputs[i]) != MR_OK;
        mr_version_release(v);
        for (int i = 0; i < 2; i++) {
            t->wrong +=
                ps_network_backward(m->network, saved[i], m->output_gradient, NULL, gradients[i]) != MR_OK;
            t->wrong += parameters_step(t->optimizer, gradients[i], round, 0, NULL) != MR_OK;
        }
        t->wrong += memcmp(outputs[0], outputs[1], m->out_floats * sizeof(float)) != 0;
        t->wrong += memcmp(gradients[0], gradients[1], m->parameter_floats * sizeof(float)) != 0;
    }
    for (int i = 0; i < 2; i++) {
        ps_saved_destroy(saved[i]);
        free(outputs[i]);
        free(gradients[i]);
    }
    return NULL;
}

TEST(test_many_trainers)
{
    const struct ps_layer layers[] = {ps_conv2d(1, 16, 3), ps_relu(),          ps_conv2d(16, 32, 3),
                                      ps_relu(),           ps_max_pool2d(2),   ps_dropout(0.5f),
                                      ps_flatten(),        ps_linear(512, 10), ps_log_softmax()};
    const struct ps_shape sample = {3, {1, 12, 12}};
    const uint32_t one = 1;
    struct mr_feature f = mr_feature_variable("v", 1, &one);
    struct trainer trainers[TRAINERS];
    struct machine m;
    const char *what;
    machine_init(&m, layers, COUNT_OF(layers), &sample, 5);
    machine_draw_input(&m, 1);
    machine_draw_output_gradient(&m, 1);
    for (uint64_t i = 0; i < TRAINERS; i++) {
        trainers[i] = (struct trainer){.shared = &m, .number = i};
        assert_int_equal(parameters_optimizer_create(m.parameters, &f, &trainers[i].optimizer, &what), MR_OK);
        assert_int_equal(pthread_create(&trainers[i].thread, NULL, train, &trainers[i]), 0);
    }
    for (uint32_t i = 0; i < TRAINERS; i++) {
        assert_int_equal(pthread_join(trainers[i].thread, NULL), 0);
        assert_int_equal(trainers[i].wrong, 0);
        parameters_optimizer_destroy(trainers[i].optimizer);
    }
    struct mr_parameter_version *v = parameters_hold(m.parameters);
    assert_int_equal(mr_version_number(v),
                     2 + TRAINERS * ROUNDS * 2); /* first values, drawn ones, and every step */
    mr_version_release(v);
    machine_free(&m);
}
