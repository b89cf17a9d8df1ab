/* The functions layers.*, called by a worker on itself over loopback: outputs and gradients are those of the
 * network run without them, in whatever parts; and what is wrong is reported. */
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/ps/modules/layers/training.h"
#include "ps/modules/model/functions.h"
#include "ps/modules/model/text.h"
#include "rpc_processes.h"
#include "trainer_client/examples/common/nll_loss.h"

enum { BATCH = 13, INPUTS = 6, CLASSES = 4, SEED = 5 };

static const char text[] = "input 6; linear 6 9; relu; linear 9 4; log_softmax";

struct world {
    struct mr_rpc *rpc;
    struct mr_rref *network;
    float input[BATCH][INPUTS];
    uint32_t labels[BATCH];
};

static void rpc_layers_join(struct world *w, uint32_t parts)
{
    struct mr_rpc_function functions[PS_MODEL_FUNCTIONS + 1];
    struct mr_rpc_options options = {.functions = functions, .function_count = PS_MODEL_FUNCTIONS + 1};
    const struct mr_value arguments[] = {mr_value_string(text), mr_value_i64(SEED)};
    char address[32];
    uint64_t state = 1;
    ps_model_functions(parts, functions);
    functions[PS_MODEL_FUNCTIONS] = example_nll_loss;
    rpc_free_address(address);
    w->rpc = rpc_join(0, 1, address, &options);
    assert_non_null(w->rpc);
    assert_int_equal(mr_remote(w->rpc, 0, "layers.network", arguments, 2, NULL, &w->network), MR_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        w->labels[i] = i % CLASSES;
        for (uint32_t j = 0; j < INPUTS; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            w->input[i][j] = (float)(state >> 40) / (float)(1 << 23) - 1;
        }
    }
}

static void leave(struct world *w)
{
    mr_rref_release(w->network);
    assert_int_equal(mr_rpc_shutdown(w->rpc, 0), MR_OK);
    mr_rpc_destroy(w->rpc);
}

static struct mr_rpc_result *rpc_layers_call(struct world *w, const char *function,
                                             const struct mr_value *arguments, uint32_t count,
                                             struct mr_autograd *context)
{
    const struct mr_rpc_call_options options = {.context = context};
    struct mr_rpc_result *result;
    if (mr_rpc_sync(w->rpc, 0, function, arguments, count, &options, &result) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    return result;
}

/* What it should be: the same network, run here. */
struct direct {
    float output[BATCH][CLASSES], input_gradient[BATCH][INPUTS], *gradient;
    uint64_t floats;
};

static void run_direct(const struct world *w, struct direct *d)
{
    static struct ps_model_text read;
    char error[320];
    struct ps_network *network;
    struct parameters *parameters;
    struct ps_saved *saved;
    float loss, back[BATCH][CLASSES];
    assert_int_equal(ps_model_read(text, &read, error, sizeof(error)), MR_OK);
    assert_int_equal(
        ps_network_create(read.layers, read.layer_count, &read.sample, NULL, &network, error, sizeof(error)),
        MR_OK);
    assert_int_equal(parameters_create(network, SEED, &parameters), MR_OK);
    assert_int_equal(ps_saved_create(network, &saved), MR_OK);
    struct mr_parameter_version *version = parameters_hold(parameters);
    const struct ps_forward how = {.training = true};
    d->floats = ps_network_parameter_floats(network);
    d->gradient = calloc(d->floats, sizeof(float));
    assert_non_null(d->gradient);
    assert_int_equal(ps_network_forward(network, version, &how, w->input[0], BATCH, saved, d->output[0]),
                     MR_OK);
    assert_int_equal(nll_loss(d->output[0], w->labels, BATCH, CLASSES, &loss, back[0]), MR_OK);
    assert_int_equal(ps_network_backward(network, saved, back[0], d->input_gradient[0], d->gradient), MR_OK);
    mr_version_release(version);
    ps_saved_destroy(saved);
    parameters_destroy(parameters);
    ps_network_destroy(network);
}

static void assert_close(const float *a, const float *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        assert_float_equal(a[i], b[i], 1e-6f);
}

static void check_training(struct world *w, const struct direct *d)
{
    struct mr_autograd *context;
    struct mr_value leaf;
    struct mr_tensor gradient;
    struct mr_rpc_result *pairs;
    assert_int_equal(mr_autograd_begin(w->rpc, &context), MR_OK);
    assert_int_equal(mr_autograd_leaf(context, mr_tensor_2d(MR_F32, BATCH, INPUTS, w->input), &leaf), MR_OK);
    const struct mr_value forward[] = {mr_value_rref(w->network), mr_value_i64(3), leaf};
    struct mr_rpc_result *output = rpc_layers_call(w, "layers.forward", forward, 3, context), *loss;
    assert_close(mr_rpc_result_value(output, 0)->tensor.data, d->output[0], BATCH * CLASSES);
    const struct mr_value arguments[] = {*mr_rpc_result_value(output, 0),
                                         mr_value_tensor(mr_tensor_1d(MR_U32, BATCH, w->labels))};
    assert_int_equal(mr_autograd_apply(context, "nll_loss", arguments, 2, &loss), MR_OK);
    assert_int_equal(mr_autograd_backward(context, mr_rpc_result_value(loss, 0), 1, false), MR_OK);
    assert_int_equal(mr_autograd_gradient(context, &leaf, &gradient), MR_OK);
    assert_close(gradient.data, d->input_gradient[0], BATCH * INPUTS);
    assert_int_equal(mr_autograd_gradients(context, 0, &pairs), MR_OK);
    assert_int_equal(mr_rpc_result_count(pairs), 2);
    assert_int_equal(mr_rpc_result_value(pairs, 1)->tensor.bytes, d->floats * sizeof(float));
    assert_close(mr_rpc_result_value(pairs, 1)->tensor.data, d->gradient, d->floats);
    mr_rpc_result_free(pairs);
    mr_rpc_result_free(loss);
    mr_rpc_result_free(output);
    mr_autograd_end(context);
}

/* A batch in several parts is the batch; also without a context, and evaluated. */
TEST(parts_make_no_difference)
{
    for (uint32_t parts = 1; parts <= 3; parts += 2) {
        struct world w;
        struct direct d;
        rpc_layers_join(&w, parts);
        run_direct(&w, &d);
        check_training(&w, &d);
        check_training(&w, &d);
        const struct mr_value input = mr_value_tensor(mr_tensor_2d(MR_F32, BATCH, INPUTS, w.input));
        const struct mr_value forward[] = {mr_value_rref(w.network), mr_value_i64(3), input},
                              evaluate[] = {mr_value_rref(w.network), input};
        struct mr_rpc_result *outputs[] = {rpc_layers_call(&w, "layers.forward", forward, 3, NULL),
                                           rpc_layers_call(&w, "layers.evaluate", evaluate, 2, NULL)};
        for (int i = 0; i < 2; i++) {
            const struct mr_tensor *t = &mr_rpc_result_value(outputs[i], 0)->tensor;
            assert_int_equal(t->rank, 2);
            assert_int_equal(t->dims[0], BATCH);
            assert_int_equal(t->dims[1], CLASSES);
            assert_close(t->data, d.output[0], BATCH * CLASSES);
            mr_rpc_result_free(outputs[i]);
        }
        free(d.gradient);
        leave(&w);
    }
}

static void refused(struct world *w, const char *function, const struct mr_value *arguments, uint32_t count,
                    const char *says)
{
    assert_int_equal(mr_rpc_sync(w->rpc, 0, function, arguments, count, NULL, NULL), MR_FUNCTION_FAILED);
    if (strstr(mr_rpc_last_error(), says) == NULL)
        fail_msg("%s", mr_rpc_last_error());
}

TEST(what_is_wrong_is_told)
{
    struct world w;
    struct mr_rref *broken, *number;
    rpc_layers_join(&w, 1);
    const struct mr_value network = mr_value_rref(w.network);
    struct mr_rpc_result *parameter = rpc_layers_call(&w, "layers.parameter", &network, 1, NULL);
    const struct mr_value no_network[] = {*mr_rpc_result_value(parameter, 0),
                                          mr_value_tensor(mr_tensor_2d(MR_F32, BATCH, INPUTS, w.input))};
    refused(&w, "layers.evaluate", no_network, 2,
            "the first argument refers to no network of layers.network");
    assert_int_equal(mr_rref_create(w.rpc, mr_value_i64(4), NULL, &number), MR_OK);
    const struct mr_value refers = mr_value_rref(number);
    refused(&w, "layers.parameter", &refers, 1, "the first argument refers to no network of layers.network");
    const struct mr_value wrong_shape[] = {network,
                                           mr_value_tensor(mr_tensor_2d(MR_F32, BATCH, INPUTS - 1, w.input))};
    refused(&w, "layers.evaluate", wrong_shape, 2,
            "the input has 65 floats in 13 samples; the network takes 1 to 65536 samples of 6 floats");
    const struct mr_value empty[] = {network, mr_value_i64(0),
                                     mr_value_tensor(mr_tensor_2d(MR_F32, 0, INPUTS, w.input))};
    refused(&w, "layers.forward", empty, 3, "the input has 0 floats in 0 samples");
    const struct mr_value bad[] = {mr_value_string("input 6; linear 5 4"), mr_value_i64(1)};
    assert_int_equal(mr_remote(w.rpc, 0, "layers.network", bad, 2, NULL, &broken), MR_OK);
    const struct mr_value refers_to_none = mr_value_rref(broken);
    refused(&w, "layers.parameter", &refers_to_none, 1, "layer 0");
    mr_rref_release(broken);
    mr_rref_release(number);
    mr_rpc_result_free(parameter);
    leave(&w);
}
