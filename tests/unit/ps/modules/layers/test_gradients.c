/* Gradients next to central differences of a plain network in double precision: of every input and every
 * parameter. */
#include <math.h>
#include <stdlib.h>
#include "layers_fixture.h"
#include "plain_network.h"
#include "tests/test.h"

#define DIFFERENCE 1e-5 /* so small that hardly a maximum or a sign changes within it */
#define BOUND      1e-5 /* by the largest gradient of the input or of all parameters */

struct check {
    struct machine m;
    const struct ps_layer *layers;
    uint32_t layer_count;
    double *input, *parameters, *weights;
};

static double *doubles_of(const float *from, size_t count)
{
    double *out = zeros(count, sizeof(*out));
    for (size_t i = 0; i < count; i++)
        out[i] = (double)from[i];
    return out;
}

static double value(const struct check *c)
{
    return plain_network(c->m.network, c->layers, c->layer_count, c->m.batch, c->input, c->parameters,
                         c->weights);
}

static double difference(const struct check *c, double *at)
{
    const double before = *at;
    *at = before + DIFFERENCE;
    double above = value(c);
    *at = before - DIFFERENCE;
    double below = value(c);
    *at = before;
    return (above - below) / (2 * DIFFERENCE);
}

static void compare(const struct check *c, const char *name, double *values, const float *gradients,
                    size_t count)
{
    double largest = 1e-3;
    for (size_t i = 0; i < count; i++) {
        double size = fabs((double)gradients[i]);
        largest =
            size > largest ? size : largest; /* fmax() here is an internal error of GCC 12 for aarch64 */
    }
    for (size_t i = 0; i < count; i++) {
        double expected = difference(c, &values[i]);
        if (!(fabs((double)gradients[i] - expected) <= BOUND * largest))
            fail_msg("%s %zu: the gradient is %g, by differences %g", name, i, (double)gradients[i],
                     expected);
    }
}

static void check_network(const struct ps_layer *layers, uint32_t layer_count, struct ps_shape sample,
                          uint32_t batch)
{
    struct check c = {.layers = layers, .layer_count = layer_count};
    machine_init(&c.m, layers, layer_count, &sample, batch);
    machine_draw_input(&c.m, 1);
    machine_draw_output_gradient(&c.m, 1);
    struct mr_parameter_version *v = parameters_hold(c.m.parameters);
    c.input = doubles_of(c.m.input, c.m.in_floats);
    c.weights = doubles_of(c.m.output_gradient, c.m.out_floats);
    c.parameters = doubles_of(mr_version_values(v), c.m.parameter_floats);
    mr_version_release(v);
    machine_forward(&c.m, false, 1);
    double sum = 0;
    for (size_t i = 0; i < c.m.out_floats; i++)
        sum += (double)c.m.output[i] * c.weights[i];
    assert_true(fabs(sum - value(&c)) <= 1e-5 * (1 + fabs(sum)));
    machine_backward(&c.m);
    compare(&c, "input", c.input, c.m.input_gradient, c.m.in_floats);
    compare(&c, "parameter", c.parameters, c.m.gradients, c.m.parameter_floats);
    free(c.input);
    free(c.weights);
    free(c.parameters);
    machine_free(&c.m);
}

TEST(test_conv2d)
{
    struct ps_layer conv = ps_conv2d(3, 5, 3);
    check_network(&conv, 1, (struct ps_shape){3, {3, 6, 5}}, 2);
    conv.stride[0] = 2;
    conv.pad[0] = 2;
    conv.pad[1] = 1;
    check_network(&conv, 1, (struct ps_shape){3, {3, 5, 6}}, 2);
    conv.no_bias = true;
    check_network(&conv, 1, (struct ps_shape){3, {3, 3, 3}}, 1);
}

TEST(test_linear)
{
    const struct ps_layer layers[] = {ps_linear(17, 9), ps_relu(), ps_linear(9, 4)};
    check_network(layers, 1, (struct ps_shape){1, {17}}, 3);
    check_network(layers, COUNT_OF(layers), (struct ps_shape){1, {17}}, 3);
}

TEST(test_max_pool2d)
{
    struct ps_layer pool = ps_max_pool2d(2);
    check_network(&pool, 1, (struct ps_shape){3, {3, 7, 6}}, 2);
    pool.kernel[0] = 3;
    pool.pad[0] = pool.pad[1] = 1;
    pool.stride[1] = 1;
    check_network(&pool, 1, (struct ps_shape){3, {3, 7, 6}}, 2);
}

TEST(test_elementwise)
{
    const struct ps_layer relu = ps_relu(), softmax = ps_log_softmax();
    const struct ps_layer odd[] = {ps_log_softmax(), ps_linear(4, 4), ps_log_softmax(), ps_relu(), ps_relu()};
    const struct ps_layer shifted[] = {ps_linear(6, 5), ps_log_softmax(), ps_dropout(0.5f), ps_linear(5, 3),
                                       ps_relu()};
    check_network(&relu, 1, (struct ps_shape){3, {2, 3, 4}}, 2);
    check_network(&softmax, 1, (struct ps_shape){1, {10}}, 3);
    check_network(odd, COUNT_OF(odd), (struct ps_shape){1, {4}}, 2);
    check_network(shifted, COUNT_OF(shifted), (struct ps_shape){1, {6}}, 2);
}

/* Channels that fill no block, pools and relus in any order, and formats that change between. */
TEST(test_networks)
{
    const struct ps_layer first[] = {ps_conv2d(1, 16, 3), ps_relu(),       ps_conv2d(16, 16, 3), ps_relu(),
                                     ps_max_pool2d(2),    ps_flatten(),    ps_linear(64, 12),    ps_relu(),
                                     ps_linear(12, 5),    ps_log_softmax()};
    const struct ps_layer second[] = {ps_relu(),    ps_conv2d(2, 20, 2), ps_max_pool2d(2),
                                      ps_relu(),    ps_dropout(0.4f),    ps_conv2d(20, 3, 2),
                                      ps_flatten(), ps_linear(3, 2)};
    check_network(first, COUNT_OF(first), (struct ps_shape){3, {1, 8, 8}}, 1);
    check_network(second, COUNT_OF(second), (struct ps_shape){3, {2, 5, 6}}, 2);
}
