#include "graph.h"

#include <stdlib.h>
#include "tests/test.h"

struct graph *graph_new(struct mr_rpc *rpc)
{
    struct graph *g = calloc(1, sizeof(*g));
    assert_non_null(g);
    g->rpc = rpc;
    assert_int_equal(mr_autograd_begin(rpc, &g->context), MR_OK);
    return g;
}

void graph_end(struct graph *g)
{
    mr_autograd_end(g->context);
    for (uint32_t i = 0; i < g->count; i++)
        mr_rpc_result_free(g->results[i]);
    free(g);
}

struct mr_value graph_leaf(struct graph *g, const float *data, uint32_t count)
{
    struct mr_value v;
    assert_int_equal(mr_autograd_leaf(g->context, mr_tensor_1d(MR_F32, count, data), &v), MR_OK);
    assert_true(v.gradient != 0);
    return v;
}

struct mr_value graph_call_n(struct graph *g, uint32_t to, const char *name, const struct mr_value *arguments,
                             uint32_t count, uint32_t result)
{
    struct mr_rpc_call_options options = {.context = g->context};
    struct mr_rpc_result *r = NULL;
    if (mr_rpc_sync(g->rpc, to, name, arguments, count, &options, &r) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    g->results[g->count++] = r;
    return *mr_rpc_result_value(r, result);
}

struct mr_value graph_call1(struct graph *g, uint32_t to, const char *name, struct mr_value a)
{
    return graph_call_n(g, to, name, &a, 1, 0);
}

struct mr_value graph_call2(struct graph *g, uint32_t to, const char *name, struct mr_value a,
                            struct mr_value b)
{
    return graph_call_n(g, to, name, (struct mr_value[]){a, b}, 2, 0);
}

void graph_backward(struct graph *g, struct mr_value loss)
{
    if (mr_autograd_backward(g->context, &loss, 1, false) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
}

const float *graph_gradient_of(struct graph *g, struct mr_value v)
{
    struct mr_tensor t;
    assert_int_equal(mr_autograd_gradient(g->context, &v, &t), MR_OK);
    assert_int_equal(t.bytes, v.tensor.bytes);
    return t.data;
}

void graph_expect(struct graph *g, struct mr_value v, const float *expected, uint32_t count)
{
    const float *data = graph_gradient_of(g, v);
    assert_non_null(data);
    for (uint32_t i = 0; i < count; i++)
        if (data[i] != expected[i])
            fail_msg("gradient %u is %g, not %g", i, (double)data[i], (double)expected[i]);
}
