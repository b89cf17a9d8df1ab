#include "tests/integration/rpc/node_network.h"

#include "trainer_client/examples/common/nll_loss.h"
#include "tests/test.h"

enum { BATCH = 8, INPUTS = 4, CLASSES = 3 };
#define NETWORK_TEXT "input 4; linear 4 16; relu; dropout 0.25; linear 16 3; log_softmax"

void node_network_make(struct node_network *n, struct mr_rpc *rpc, uint32_t rank, const char *name)
{
    const struct mr_value arguments[] = {mr_value_string(NETWORK_TEXT), mr_value_i64(1),
                                         mr_value_string(name == NULL ? "" : name)};
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD,
                                                  .learning_rate = 0.1f,
                                                  .momentum = 0.9f,
                                                  .name = name == NULL ? NULL : "trainer_1"};
    *n = (struct node_network){.rpc = rpc, .rank = rank};
    (void)mr_rpc_register(rpc, &example_nll_loss); /* it may be there from another network */
    if (mr_remote(rpc, rank, "layers.network", arguments, name == NULL ? 2 : 3, NULL, &n->network) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    const struct mr_value network = mr_value_rref(n->network);
    if (mr_rpc_sync(rpc, rank, "layers.parameter", &network, 1, NULL, &n->parameter) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    struct mr_rref *parameter = mr_rpc_result_value(n->parameter, 0)->rref;
    if (mr_dist_optimizer_create(rpc, &sgd, &parameter, 1, &n->optimizer) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
}

float node_network_train(struct node_network *n, int64_t step)
{
    float input[BATCH][INPUTS] = {{0}}, value;
    uint32_t labels[BATCH];
    struct mr_autograd *context;
    struct mr_rpc_result *output, *loss;
    for (uint32_t i = 0; i < BATCH; i++) {
        labels[i] = i % CLASSES;
        input[i][labels[i]] = 1;
    }
    if (mr_autograd_begin(n->rpc, &context) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    const struct mr_rpc_call_options options = {.context = context};
    const struct mr_value forward[] = {mr_value_rref(n->network), mr_value_i64(step),
                                       mr_value_tensor(mr_tensor_2d(MR_F32, BATCH, INPUTS, input))};
    if (mr_rpc_sync(n->rpc, n->rank, "layers.forward", forward, 3, &options, &output) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    const struct mr_value arguments[] = {*mr_rpc_result_value(output, 0),
                                         mr_value_tensor(mr_tensor_1d(MR_U32, BATCH, labels))};
    if (mr_autograd_apply(context, "nll_loss", arguments, 2, &loss) != MR_OK ||
        mr_autograd_backward(context, mr_rpc_result_value(loss, 0), 1, false) != MR_OK ||
        mr_dist_optimizer_step(n->optimizer, context, 0) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    value = *(const float *)mr_rpc_result_value(loss, 0)->tensor.data;
    mr_rpc_result_free(loss);
    mr_rpc_result_free(output);
    mr_autograd_end(context);
    return value;
}

void node_network_let_go(struct node_network *n)
{
    mr_dist_optimizer_destroy(n->optimizer);
    mr_rpc_result_free(n->parameter);
    mr_rref_release(n->network);
}
