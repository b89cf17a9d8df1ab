#include "tests/integration/rpc/rpc_node_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"

const char *rpc_node_module, *rpc_node_no_module, *rpc_node_millrace;
uint32_t rpc_node_cores;

bool rpc_node_arguments(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: %s MILLRACED MODULE NO_MODULE MILLRACE CORES\n", argv[0]);
        return false;
    }
    node_fixture_server = argv[1];
    rpc_node_module = argv[2];
    rpc_node_no_module = argv[3];
    rpc_node_millrace = argv[4];
    rpc_node_cores = (uint32_t)strtoul(argv[5], NULL, 10);
    netns_require_root();
    return true;
}

void rpc_node_start(struct rpc_node *x, const char *const *settings, uint32_t world_size)
{
    *x = (struct rpc_node){.workers = {.world_size = world_size}};
    node_fixture_start(&x->node, rpc_node_cores, settings);
    x->workers.rendezvous = x->node.address;
    snprintf(x->gate, sizeof(x->gate), "%s/gate", x->node.directory);
}

void rpc_node_start_worker(struct rpc_node *x, const char *world_size, const char *more)
{
    static char with_module[1024];
    const char *const settings[] = {world_size, "rpc.name=server", "rpc.rank=0", with_module, more, NULL};
    snprintf(with_module, sizeof(with_module), "rpc.module=%s 2.5", rpc_node_module);
    rpc_node_start(x, settings, (uint32_t)strtoul(strchr(world_size, '=') + 1, NULL, 10));
}

void rpc_node_open_gate(const struct rpc_node *x)
{
    FILE *file = fopen(x->gate, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

int rpc_node_tear_down(void **state)
{
    struct rpc_node *x = *state;
    if (x->workers.world_size > 0) { /* else it was skipped */
        rpc_node_open_gate(x);
        node_fixture_stop(&x->node);
    }
    free(x);
    return 0;
}

int rpc_node_set_up(void **state)
{
    *state = calloc(1, sizeof(struct rpc_node));
    return *state == NULL;
}

void rpc_node_scale(struct mr_rpc *rpc, uint32_t elements)
{
    float *in = calloc(elements, sizeof(*in));
    struct mr_value argument = mr_value_tensor(mr_tensor_1d(MR_F32, elements, in));
    struct mr_rpc_result *result;
    assert_non_null(in);
    for (uint32_t i = 0; i < elements; i++)
        in[i] = (float)i;
    if (mr_rpc_sync(rpc, RPC_NODE_RANK, "scale", &argument, 1, NULL, &result) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());

    const struct mr_tensor *out = &mr_rpc_result_value(result, 0)->tensor;

    assert_int_equal(out->bytes, elements * sizeof(float));
    for (uint32_t i = 0; i < elements; i++)
        assert_float_equal(((const float *)out->data)[i], 2.5F * (float)i, 0);
    mr_rpc_result_free(result);
    free(in);
}

void rpc_node_hold(struct rpc_node *x, uint32_t count, struct mr_rpc_future **futures)
{
    const struct mr_rpc_call_options options = {.timeout_ms = UINT32_MAX};
    struct mr_value gate = mr_value_string(x->gate);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(
            mr_rpc_async(x->workers.rpcs[0], RPC_NODE_RANK, "hold", &gate, 1, &options, &futures[i]), MR_OK);
    while (rpc_workers_i64(x->workers.rpcs[0], RPC_NODE_RANK, "held", NULL, 0) < count)
        ;
}

void rpc_node_let_go(uint32_t count, struct mr_rpc_future **futures)
{
    for (uint32_t i = 0; i < count; i++) {
        struct mr_rpc_result *result;
        if (mr_rpc_wait(futures[i], &result) != MR_OK)
            fail_msg("%s", mr_rpc_last_error());
        assert_string_equal(mr_rpc_result_value(result, 0)->string.text, "let go");
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
}
