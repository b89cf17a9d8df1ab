/* A node that loads the module of layers: a worker makes a network there, has it computed and trains it; the
 * node ends well with a network that is still referred to. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/integration/rpc/rpc_workers.h"
#include "trainer_client/examples/common/nll_loss.h"

enum { BATCH = 8, INPUTS = 4, CLASSES = 3, STEPS = 30 };

static const char *module;

struct fixture {
    struct node_fixture node;
    struct rpc_workers workers;
    struct mr_rref *network;
    struct mr_rpc_result *parameter;
    struct mr_dist_optimizer *optimizer;
};

static void start(struct fixture *x)
{
    static char with_module[1024];
    const char *const settings[] = {"rpc.world_size=2", "rpc.name=server", "rpc.rank=0", with_module, NULL};
    snprintf(with_module, sizeof(with_module), "rpc.module=%s parts 2", module);
    *x = (struct fixture){.workers = {.world_size = 2}};
    node_fixture_start(&x->node, 1, settings);
    x->workers.rendezvous = x->node.address;
    rpc_workers_join(&x->workers, 1, 1);
    assert_int_equal(mr_rpc_register(x->workers.rpcs[0], &example_nll_loss), MR_OK);
}

static void make_network(struct fixture *x)
{
    const struct mr_value arguments[] = {
        mr_value_string("input 4; linear 4 16; relu; linear 16 3; log_softmax"), mr_value_i64(1)};
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 0.5f};
    struct mr_rpc *rpc = x->workers.rpcs[0];
    if (mr_remote(rpc, 0, "layers.network", arguments, 2, NULL, &x->network) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    const struct mr_value network = mr_value_rref(x->network);
    if (mr_rpc_sync(rpc, 0, "layers.parameter", &network, 1, NULL, &x->parameter) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    struct mr_rref *parameter = mr_rpc_result_value(x->parameter, 0)->rref;
    if (mr_dist_optimizer_create(rpc, &sgd, &parameter, 1, &x->optimizer) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
}

/* The class of a sample is where its one stands. */
static float train(struct fixture *x, int64_t step)
{
    float input[BATCH][INPUTS] = {{0}}, value;
    uint32_t labels[BATCH];
    struct mr_autograd *context;
    struct mr_rpc_result *output, *loss;
    for (uint32_t i = 0; i < BATCH; i++) {
        labels[i] = i % CLASSES;
        input[i][labels[i]] = 1;
    }
    if (mr_autograd_begin(x->workers.rpcs[0], &context) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    const struct mr_rpc_call_options options = {.context = context};
    const struct mr_value forward[] = {mr_value_rref(x->network), mr_value_i64(step),
                                       mr_value_tensor(mr_tensor_2d(MR_F32, BATCH, INPUTS, input))};
    if (mr_rpc_sync(x->workers.rpcs[0], 0, "layers.forward", forward, 3, &options, &output) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    const struct mr_value arguments[] = {*mr_rpc_result_value(output, 0),
                                         mr_value_tensor(mr_tensor_1d(MR_U32, BATCH, labels))};
    if (mr_autograd_apply(context, "nll_loss", arguments, 2, &loss) != MR_OK ||
        mr_autograd_backward(context, mr_rpc_result_value(loss, 0), 1, false) != MR_OK ||
        mr_dist_optimizer_step(x->optimizer, context, 0) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    value = *(const float *)mr_rpc_result_value(loss, 0)->tensor.data;
    mr_rpc_result_free(loss);
    mr_rpc_result_free(output);
    mr_autograd_end(context);
    return value;
}

static void let_go(struct fixture *x)
{
    mr_dist_optimizer_destroy(x->optimizer);
    mr_rpc_result_free(x->parameter);
    mr_rref_release(x->network);
}

static void a_node_trains_a_network(void **state)
{
    struct fixture x;
    float first, last = 0;
    start(&x);
    make_network(&x);
    first = train(&x, 0);
    for (int64_t step = 1; step < STEPS; step++)
        last = train(&x, step);
    if (!(last < first / 4))
        fail_msg("the loss went from %f to %f", (double)first, (double)last);
    let_go(&x);
    node_fixture_stop(&x.node);
    mr_rpc_destroy(x.workers.rpcs[0]);
}

static void a_node_ends_with_a_network(void **state)
{
    struct fixture x;
    start(&x);
    make_network(&x);
    (void)train(&x, 0);
    node_fixture_stop(&x.node); /* checks that it ends well */
    let_go(&x);
    mr_rpc_destroy(x.workers.rpcs[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_trains_a_network),
        cmocka_unit_test(a_node_ends_with_a_network),
    };
    if (argc != 3) {
        fprintf(stderr, "usage: test_rpc_layers_node MILLRACED MODULE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    module = argv[2];
    netns_require_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
