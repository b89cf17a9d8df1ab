/* Descriptions of layers: shapes, and how a wrong one is reported. */
#include <string.h>
#include "layers_fixture.h"
#include "tests/test.h"

static struct ps_shape output_of(struct ps_layer layer, struct ps_shape in)
{
    struct ps_shape out = {0};
    char error[200] = "";
    if (ps_layer_output(&layer, &in, &out, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return out;
}

static void assert_shape(struct ps_shape shape, uint32_t rank, uint32_t d0, uint32_t d1, uint32_t d2)
{
    assert_int_equal(shape.rank, rank);
    assert_int_equal(shape.dims[0], d0);
    assert_int_equal(shape.dims[1], d1);
    assert_int_equal(shape.dims[2], d2);
}

static const struct ps_shape picture = {3, {4, 10, 7}}, flat = {1, {12}};

TEST(test_shapes)
{
    struct ps_layer strided = ps_conv2d(4, 6, 3), pooled = ps_max_pool2d(3);
    strided.stride[0] = 2;
    strided.pad[1] = 2;
    pooled.stride[0] = 2;
    pooled.pad[0] = 1;
    assert_shape(output_of(ps_conv2d(4, 6, 3), picture), 3, 6, 8, 5);
    assert_shape(output_of(strided, picture), 3, 6, 4, 9);
    assert_shape(output_of(ps_max_pool2d(3), picture), 3, 4, 3, 2);
    assert_shape(output_of(pooled, picture), 3, 4, 5, 2);
    assert_shape(output_of(ps_linear(12, 5), flat), 1, 5, 0, 0);
    assert_shape(output_of(ps_relu(), picture), 3, 4, 10, 7);
    assert_shape(output_of(ps_dropout(0.5f), flat), 1, 12, 0, 0);
    assert_shape(output_of(ps_flatten(), picture), 1, 280, 0, 0);
    assert_shape(output_of(ps_log_softmax(), flat), 1, 12, 0, 0);
}

static void assert_refused(struct ps_layer layer, struct ps_shape in, enum mr_status status, const char *why)
{
    struct ps_shape out = {1, {77}};
    char error[200] = "";
    assert_int_equal(ps_layer_output(&layer, &in, &out, error, sizeof(error)), status);
    assert_string_equal(error, why);
    assert_shape(out, 1, 77, 0, 0);
}

TEST(test_refusals)
{
    struct ps_layer still = ps_conv2d(4, 6, 3), padded = ps_max_pool2d(2),
                    unknown = {.kind = (enum ps_layer_kind)99};
    still.stride[1] = 0;
    padded.pad[0] = 2;
    assert_refused(ps_conv2d(3, 6, 3), picture, MR_WRONG_SHAPE,
                   "conv2d takes samples of shape [3, height, width], gets [4, 10, 7]");
    assert_refused(ps_conv2d(4, 6, 3), flat, MR_WRONG_SHAPE,
                   "conv2d takes samples of shape [4, height, width], gets [12]");
    assert_refused(ps_conv2d(4, 6, 8), picture, MR_WRONG_SHAPE,
                   "conv2d: a kernel of 8 x 8 does not fit into 10 x 7 with padding 0, 0");
    assert_refused(ps_linear(9216, 128), flat, MR_WRONG_SHAPE,
                   "linear takes samples of shape [9216], gets [12]");
    assert_refused(ps_linear(12, 0), flat, MR_INVALID_ARGUMENT, "linear: inputs and outputs are 1..65536");
    assert_refused(ps_max_pool2d(2), flat, MR_WRONG_SHAPE,
                   "max_pool2d takes samples of shape [channels, height, width], gets [12]");
    assert_refused(still, picture, MR_INVALID_ARGUMENT,
                   "conv2d: kernel and stride are 1..65536, padding is at most 65536");
    assert_refused(padded, picture, MR_INVALID_ARGUMENT,
                   "max_pool2d: kernel and stride are 1..65536, padding is at most 1");
    assert_refused(ps_dropout(1.5f), flat, MR_INVALID_ARGUMENT, "dropout: the probability is 0..1, not 1.5");
    assert_refused(ps_log_softmax(), picture, MR_WRONG_SHAPE,
                   "log_softmax takes samples of shape [classes], gets [4, 10, 7]");
    assert_refused(unknown, flat, MR_UNSUPPORTED, "there is no layer of kind 99");
}

TEST(test_too_large)
{
    struct ps_shape wide = {3, {65536, 64, 64}};
    struct ps_layer large = ps_conv2d(65536, 65536, 1), deep = ps_conv2d(1, 65536, 1);
    struct ps_shape one = {3, {1, 65536, 65536}};
    assert_refused(large, wide, MR_INVALID_ARGUMENT, "conv2d: what comes out, or its weight, is too large");
    assert_refused(deep, one, MR_INVALID_ARGUMENT, "conv2d: what comes out, or its weight, is too large");
}

TEST(test_parameters)
{
    struct ps_layer conv = ps_conv2d(4, 6, 3), linear = ps_linear(12, 5);
    struct ps_layer_parameter p = ps_layer_parameter(&conv, 0);
    assert_int_equal(p.rank, 4);
    assert_int_equal(p.count, 6 * 4 * 3 * 3);
    assert_int_equal(p.fan_in, 4 * 3 * 3);
    p = ps_layer_parameter(&linear, 1);
    assert_int_equal(p.rank, 1);
    assert_int_equal(p.count, 5);
    assert_int_equal(p.fan_in, 12);
    linear.no_bias = true;
    assert_int_equal(ps_layer_parameter(&linear, 1).count, 0);
    struct ps_layer relu = ps_relu();
    assert_int_equal(ps_layer_parameter(&relu, 0).count, 0);
    assert_string_equal(ps_layer_name(PS_LAYER_LOG_SOFTMAX), "log_softmax");
    assert_string_equal(ps_layer_name((enum ps_layer_kind)99), "?");
}

TEST(test_network)
{
    struct ps_layer layers[CONV_NET_LAYERS];
    struct ps_network_options options = {.first_number = 3};
    struct ps_network *n = NULL;
    char error[200] = "";
    conv_net_layers(layers);
    assert_int_equal(
        ps_network_create(layers, CONV_NET_LAYERS, &conv_net_sample, &options, &n, error, sizeof(error)),
        MR_OK);
    assert_shape(*ps_network_output(n), 1, 10, 0, 0);
    assert_int_equal(ps_network_parameter_count(n), 8);
    assert_string_equal(ps_network_parameter(n, 0)->name, "3.weight");
    assert_string_equal(ps_network_parameter(n, 7)->name, "13.bias");
    assert_null(ps_network_parameter(n, 8));
    uint64_t end = 0;
    for (uint32_t i = 0; i < 8; i++) {
        const struct ps_parameter_info *info = ps_network_parameter(n, i);
        assert_true(info->first >= end && info->first % 16 == 0);
        end = info->first + info->shape.count;
    }
    assert_true(ps_network_parameter_floats(n) >= end);
    ps_network_destroy(n);
    n = NULL;
    layers[7].inputs = 9000;
    assert_int_equal(
        ps_network_create(layers, CONV_NET_LAYERS, &conv_net_sample, NULL, &n, error, sizeof(error)),
        MR_WRONG_SHAPE);
    assert_string_equal(error, "layer 7: linear takes samples of shape [9000], gets [9216]");
    assert_null(n);
    assert_int_equal(ps_network_create(layers, 0, &conv_net_sample, NULL, &n, error, sizeof(error)),
                     MR_INVALID_ARGUMENT);
    assert_string_equal(error, "a network has 1..256 layers");
    struct ps_shape empty = {3, {1, 0, 5}};
    assert_int_equal(ps_network_create(layers, 1, &empty, NULL, &n, error, sizeof(error)),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "a sample has 1..3 dims"));
}
