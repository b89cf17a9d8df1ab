#include "layers_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const struct ps_shape conv_net_sample = {3, {1, 28, 28}};

void conv_net_layers(struct ps_layer layers[CONV_NET_LAYERS])
{
    const struct ps_layer made[CONV_NET_LAYERS] = {
        ps_conv2d(1, 32, 3), ps_relu(),         ps_conv2d(32, 64, 3), ps_relu(),
        ps_max_pool2d(2),    ps_dropout(0.25f), ps_flatten(),         ps_linear(9216, 128),
        ps_relu(),           ps_dropout(0.5f),  ps_linear(128, 10),   ps_log_softmax()};
    for (uint32_t i = 0; i < CONV_NET_LAYERS; i++)
        layers[i] = made[i];
}

float drawn(uint64_t stream, uint64_t element)
{
    uint64_t z = (element ^ stream) + 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ((float)(z >> 40) - 0x1p23f) * 0x1p-23f;
}

void *zeros(size_t count, size_t bytes)
{
    void *p = calloc(count + 1, bytes);
    assert_non_null(p);
    return p;
}

static void draw_parameters(struct machine *m)
{
    float *values = zeros(m->parameter_floats, sizeof(float));
    double scale = 1;
    for (uint32_t i = 0; i < ps_network_parameter_count(m->network); i++) {
        const struct ps_parameter_info *info = ps_network_parameter(m->network, i);
        scale = ldexp(1.0, -(int)rint(log2((double)info->shape.fan_in) / 2));
        for (uint64_t e = 0; e < info->shape.count; e++)
            values[info->first + e] = (float)((double)drawn(DRAWN_PARAMETER + i, e) * scale);
    }
    assert_int_equal(parameters_set(m->parameters, values), MR_OK);
    free(values);
}

void machine_init(struct machine *m, const struct ps_layer *layers, uint32_t layer_count,
                  const struct ps_shape *sample, uint32_t batch)
{
    char error[200] = "";
    *m = (struct machine){.batch = batch};
    if (ps_network_create(layers, layer_count, sample, NULL, &m->network, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    m->in_floats = batch * ps_shape_floats(ps_network_input(m->network));
    m->out_floats = batch * ps_shape_floats(ps_network_output(m->network));
    m->parameter_floats = ps_network_parameter_floats(m->network);
    m->input = zeros(m->in_floats, sizeof(float));
    m->output = zeros(m->out_floats, sizeof(float));
    m->input_gradient = zeros(m->in_floats, sizeof(float));
    m->output_gradient = zeros(m->out_floats, sizeof(float));
    m->gradients = zeros(m->parameter_floats, sizeof(float));
    assert_int_equal(parameters_create(m->network, 1, &m->parameters), MR_OK);
    assert_int_equal(ps_saved_create(m->network, &m->saved), MR_OK);
    draw_parameters(m);
}

void machine_free(struct machine *m)
{
    ps_saved_destroy(m->saved);
    parameters_destroy(m->parameters);
    ps_network_destroy(m->network);
    free(m->input);
    free(m->output);
    free(m->input_gradient);
    free(m->output_gradient);
    free(m->gradients);
}

void machine_draw_input(struct machine *m, uint64_t step)
{
    for (size_t i = 0; i < m->in_floats; i++)
        m->input[i] = drawn(DRAWN_INPUT + step, i);
}

void machine_draw_output_gradient(struct machine *m, uint64_t step)
{
    for (size_t i = 0; i < m->out_floats; i++)
        m->output_gradient[i] = drawn(DRAWN_GRADIENT + step, i);
}

void machine_forward(struct machine *m, bool training, uint64_t step)
{
    const struct ps_forward how = {.training = training, .seed = DROP_SEED, .step = step};
    struct mr_parameter_version *version = parameters_hold(m->parameters);
    assert_int_equal(ps_network_forward(m->network, version, &how, m->input, m->batch, m->saved, m->output),
                     MR_OK);
    mr_version_release(version);
}

void machine_backward(struct machine *m)
{
    assert_int_equal(
        ps_network_backward(m->network, m->saved, m->output_gradient, m->input_gradient, m->gradients),
        MR_OK);
}
