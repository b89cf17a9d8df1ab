/* Networks as text: what is read, and the line that says what cannot be. */
#include <stdio.h>
#include <string.h>
#include "ps/modules/model/text.h"
#include "tests/test.h"

static struct ps_model_text read_text;
static char error_text[320];

TEST(every_layer_is_read)
{
    assert_int_equal(
        ps_model_read("input 3 32 16; number 7 ; conv2d 3 8 5 stride 2 pad 1;relu\n; max_pool2d 2;\t"
                      "max_pool2d 3 pad 1 stride 1; dropout 0.25; flatten; linear 10 4; log_softmax;",
                      &read_text, error_text, sizeof(error_text)),
        MR_OK);
    assert_int_equal(read_text.sample.rank, 3);
    assert_int_equal(read_text.sample.dims[0], 3);
    assert_int_equal(read_text.sample.dims[1], 32);
    assert_int_equal(read_text.sample.dims[2], 16);
    assert_int_equal(read_text.first_number, 7);
    assert_int_equal(read_text.layer_count, 8);
    struct ps_layer conv = ps_conv2d(3, 8, 5), overlapping = ps_max_pool2d(3);
    conv.stride[0] = conv.stride[1] = 2;
    conv.pad[0] = conv.pad[1] = 1;
    overlapping.stride[0] = overlapping.stride[1] = 1;
    overlapping.pad[0] = overlapping.pad[1] = 1;
    const struct ps_layer expected[] = {
        conv,         ps_relu(),        ps_max_pool2d(2), overlapping, ps_dropout(0.25f),
        ps_flatten(), ps_linear(10, 4), ps_log_softmax()};
    for (uint32_t i = 0; i < 8; i++) {
        const struct ps_layer *a = &read_text.layers[i], *b = &expected[i];
        assert_int_equal(a->kind, b->kind);
        assert_int_equal(a->inputs, b->inputs);
        assert_int_equal(a->outputs, b->outputs);
        assert_memory_equal(a->kernel, b->kernel, sizeof(a->kernel));
        assert_memory_equal(a->stride, b->stride, sizeof(a->stride));
        assert_memory_equal(a->pad, b->pad, sizeof(a->pad));
        assert_float_equal(a->probability, b->probability, 0);
    }
}

TEST(the_named_network_is_torchs)
{
    struct ps_network *network;
    assert_int_equal(ps_model_read("convnet", &read_text, error_text, sizeof(error_text)), MR_OK);
    assert_int_equal(read_text.layer_count, 12);
    assert_int_equal(ps_network_create(read_text.layers, read_text.layer_count, &read_text.sample, NULL,
                                       &network, error_text, sizeof(error_text)),
                     MR_OK);
    assert_int_equal(ps_shape_floats(ps_network_input(network)), 784);
    assert_int_equal(ps_network_output(network)->dims[0], 10);
    uint64_t count = 0;
    for (uint32_t i = 0; i < ps_network_parameter_count(network); i++)
        count += ps_network_parameter(network, i)->shape.count;
    assert_int_equal(count, 1199882); /* as torch counts them */
    ps_network_destroy(network);
}

static void refused(const char *text, const char *says)
{
    error_text[0] = 0;
    assert_int_equal(ps_model_read(text, &read_text, error_text, sizeof(error_text)), MR_INVALID_ARGUMENT);
    if (strstr(error_text, says) == NULL || strchr(error_text, '\n') != NULL)
        fail_msg("\"%s\": %s", text, error_text);
}

TEST(what_cannot_be_read_is_told)
{
    refused("", "statement 1 of the network, \"\": expected input with one to three numbers");
    refused(";relu", "statement 1 ");
    refused("relu", "statement 1 of the network, \"relu\": expected input with one to three numbers");
    refused("input", "statement 1 ");
    refused("input 1 2 3 4", "statement 1 ");
    refused("input 1 -2", "statement 1 ");
    refused("input 1 2x", "statement 1 ");
    refused("input 65537", "statement 1 ");
    refused("input 4; number", "statement 2 of the network, \"number\": expected number N");
    refused("input 4; relu; number 3",
            "statement 3 of the network, \"number 3\": expected conv2d, linear, relu, ");
    refused("input 4;; relu", "statement 2 of the network, \"\": expected conv2d, linear, relu, ");
    refused("input 4; relu 1", "\"relu 1\": expected a name and nothing else");
    refused("input 4; rely", "\"rely\": expected conv2d, linear, relu, ");
    refused("input 4; linear 4", "\"linear 4\": expected linear IN OUT");
    refused("input 4; linear 4 5 6", "expected linear IN OUT");
    refused("input 4; linear 4 5.5", "expected linear IN OUT");
    refused("input 4; conv2d 1 2", "expected conv2d IN OUT KERNEL [stride N] [pad N]");
    refused("input 4; conv2d 1 2 3 stride", "expected conv2d IN OUT KERNEL");
    refused("input 4; conv2d 1 2 3 step 1", "expected conv2d IN OUT KERNEL");
    refused("input 4; conv2d 1 2 3 stride 1 pad 1 pad 1 pad 1 pad 1", "expected conv2d IN OUT KERNEL");
    refused("input 4; max_pool2d", "expected max_pool2d KERNEL");
    refused("input 4; max_pool2d 2 pad 1 pad 1 pad 1 pad 1 pad 1", "expected max_pool2d KERNEL");
    refused("input 4; dropout", "expected dropout PROBABILITY");
    refused("input 4; dropout 1.5", "expected dropout PROBABILITY, from 0 to 1");
    refused("input 4; dropout nan", "expected dropout PROBABILITY");
    refused("input 4; dropout 0.5x", "expected dropout PROBABILITY");
}

TEST(sizes_have_limits)
{
    static char text[PS_MODEL_TEXT_BYTES];
    char *at = text;
    at += sprintf(at, "input 4");
    for (uint32_t i = 0; i < PS_NETWORK_LAYERS_MAX; i++)
        at += sprintf(at, ";relu");
    assert_int_equal(ps_model_read(text, &read_text, error_text, sizeof(error_text)), MR_OK);
    assert_int_equal(read_text.layer_count, PS_NETWORK_LAYERS_MAX);
    sprintf(at, ";relu");
    refused(text, "statement 258 of the network, \"relu\": expected fewer layers");
    sprintf(text, "input 4;%200s", "relu");
    assert_int_equal(ps_model_read(text, &read_text, error_text, sizeof(error_text)),
                     MR_OK); /* blanks before it do not count */
    sprintf(text, "input 4;relu%200s;", "");
    refused(text, "expected fewer characters");
}
