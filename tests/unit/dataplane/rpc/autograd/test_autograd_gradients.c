/* Gradients of parameters, and references in functions that have a way back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"
#include "graph.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"

enum { WORKERS = 3, ELEMENTS = 4, PARAMETERS = 110 };

static const float xs[ELEMENTS] = {1, 2, 3, 4}, ws[ELEMENTS] = {5, 6, 7, 8};

/* ---- scaled(w, x) = w x, of a parameter of the worker ---- */

struct kept {
    struct mr_rref *w;
    float x[ELEMENTS];
};

static void kept_free(void *arg)
{
    struct kept *kept = arg;
    mr_rref_release(kept->w);
    free(kept);
}

static enum mr_status scaled(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    const struct mr_value *w;
    float out[ELEMENTS];
    struct kept *kept;
    if (mr_rref_local_value(arguments[0].rref, 0, &w) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    kept = malloc(sizeof(*kept));
    assert_non_null(kept);
    kept->w = arguments[0].rref;
    mr_rref_retain(kept->w);
    memcpy(kept->x, arguments[1].tensor.data, sizeof(kept->x));
    for (uint32_t i = 0; i < ELEMENTS; i++)
        out[i] = ((const float *)w->tensor.data)[i] * kept->x[i];
    assert_int_equal(mr_rpc_save(call, kept, kept_free), MR_OK);
    return mr_rpc_return(call, mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, out)));
}

/* The one that knows the parameter's gradient says so. */
static enum mr_status scaled_backward(struct mr_rpc_call *call, void *saved,
                                      const struct mr_tensor *gradients, uint32_t count)
{
    const struct kept *kept = saved;
    const float *g = gradients[0].data;
    const struct mr_value *w;
    float dw[ELEMENTS] = {0}, dx[ELEMENTS];
    struct mr_tensor dw_tensor = mr_tensor_1d(MR_F32, ELEMENTS, dw);
    assert_int_equal(mr_rref_local_value(kept->w, 0, &w), MR_OK);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        dw[i] = g[i] * kept->x[i];
        dx[i] = g[i] * ((const float *)w->tensor.data)[i];
    }
    if (mr_autograd_add_gradient(call, kept->w, &dw_tensor) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    enum mr_status status = mr_rpc_return(call, mr_value_none());
    return status == MR_OK ? mr_rpc_return(call, mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, dx)))
                           : status;
}

/* The same of a value that was computed in the context: it gives back the value's gradient, as of any
 * argument. */
static enum mr_status computed_backward(struct mr_rpc_call *call, void *saved,
                                        const struct mr_tensor *gradients, uint32_t count)
{
    const struct kept *kept = saved;
    const float *g = gradients[0].data;
    float dw[ELEMENTS];
    for (uint32_t i = 0; i < ELEMENTS; i++)
        dw[i] = g[i] * kept->x[i];
    enum mr_status status = mr_rpc_return(call, mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, dw)));
    return status == MR_OK ? mr_rpc_return(call, mr_value_none()) : status;
}

/* push(w, gradient): without any backward, as a program does that computes gradients itself. */
static enum mr_status autograd_gradients_push(struct mr_rpc_call *call, const struct mr_value *arguments,
                                              uint32_t count)
{
    enum mr_status status = mr_autograd_add_gradient(call, arguments[0].rref, &arguments[1].tensor);
    if (status == MR_OK)
        return MR_OK;
    (void)mr_rpc_fail(call, "%s", mr_rpc_last_error());
    return status;
}

static struct mr_rref *parameter_new(struct mr_rpc *rpc);

/* The mistake of a function that holds its parameter no longer. */
static enum mr_status push_released(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t count)
{
    struct mr_rref *released = parameter_new(mr_rpc_of(call));
    mr_rref_release(released);
    enum mr_status status = mr_autograd_add_gradient(call, released, &arguments[0].tensor);
    (void)mr_rpc_fail(call, "%s", mr_rpc_last_error());
    return status;
}

static struct mr_rref *parameter_new(struct mr_rpc *rpc)
{
    struct mr_rref *rref;
    assert_int_equal(mr_rref_create(rpc, mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, ws)), NULL, &rref),
                     MR_OK);
    return rref;
}

/* read(ref) is the value as it is. */
static enum mr_status read_value(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    const struct mr_value *value;
    if (mr_rref_local_value(arguments[0].rref, 0, &value) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    return mr_rpc_return(call, *value);
}

/* A reference to a new parameter of that worker. */
static enum mr_status gradients_create(struct mr_rpc_call *call, const struct mr_value *arguments,
                                       uint32_t count)
{
    struct mr_rref *rref = parameter_new(mr_rpc_of(call));
    enum mr_status status = mr_rpc_return(call, mr_value_rref(rref));
    mr_rref_release(rref);
    return status;
}

static void register_more(struct mr_rpc *rpc)
{
    static const struct mr_rpc_function functions[] = {
        {.name = "scaled",
         .arguments = "ref, f32[4]",
         .results = "f32[4]",
         .run = scaled,
         .backward = scaled_backward},
        {.name = "computed",
         .arguments = "ref, f32[4]",
         .results = "f32[4]",
         .run = scaled,
         .backward = computed_backward},
        {.name = "push", .arguments = "ref, tensor", .run = autograd_gradients_push},
        {.name = "read", .arguments = "ref", .results = "tensor", .run = read_value},
        {.name = "push_released", .arguments = "tensor", .run = push_released},
        {.name = "create", .results = "ref", .run = gradients_create},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        assert_int_equal(mr_rpc_register(rpc, &functions[i]), MR_OK);
}

static int setup(void **state)
{
    (void)math_world(state, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        register_more(worker(state, i));
    return 0;
}

static int teardown(void **state)
{
    struct net *net = *state;
    for (uint32_t i = 0; i < WORKERS;
         i++) /* contexts hold parameters; their ends are reported in the background */
        while (contexts_known(net->workers[i].rpc->contexts) != 0)
            net_skip(net, 20000);
    return math_world_end(state);
}

static void expect_pair(const struct mr_rpc_result *pairs, uint32_t i, const struct mr_rref *parameter,
                        const float *expected)
{
    const struct mr_value *reference = mr_rpc_result_value(pairs, 2 * i);
    const struct mr_value *gradient = mr_rpc_result_value(pairs, 2 * i + 1);
    assert_int_equal(reference->kind, MR_VALUE_RREF);
    assert_int_equal(mr_rref_id(reference->rref), mr_rref_id(parameter));
    assert_int_equal(gradient->tensor.bytes, ELEMENTS * sizeof(float));
    assert_memory_equal(gradient->tensor.data, expected, ELEMENTS * sizeof(float));
}

TEST(add_up_where_the_parameter_lives, setup, teardown)
{
    for (uint32_t owner = 0; owner < 2; owner++) { /* asked by the owner, and by another */
        struct graph *g = graph_new(worker(state, 0));
        struct mr_value x = graph_leaf(g, xs, ELEMENTS);
        struct mr_value w = graph_call_n(g, owner, "create", NULL, 0, 0);
        struct mr_value y = graph_call2(g, owner, "scaled", w, x), z = graph_call2(g, owner, "scaled", w, y);
        struct mr_rpc_result *pairs;
        graph_backward(g, graph_call1(g, 2, "sum", z)); /* w^2 x */
        graph_expect(g, x, (float[]){25, 36, 49, 64}, ELEMENTS);
        assert_int_equal(mr_autograd_gradients(g->context, owner, &pairs), MR_OK);
        assert_int_equal(mr_rpc_result_count(pairs), 2);
        expect_pair(pairs, 0, w.rref, (float[]){10, 24, 42, 64}); /* 2 w x */
        mr_rpc_result_free(pairs);
        assert_int_equal(mr_autograd_gradients(g->context, 2, &pairs), MR_OK);
        assert_int_equal(mr_rpc_result_count(pairs), 0);
        mr_rpc_result_free(pairs);
        graph_end(g);
    }
}

/* Two trainers on one parameter: each has its own sums. */
TEST(by_context, setup, teardown)
{
    struct graph *a = graph_new(worker(state, 0)), *b = graph_new(worker(state, 2));
    struct mr_value w = graph_call_n(a, 1, "create", NULL, 0, 0);
    struct mr_value pushed[2] = {w, mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, xs))};
    struct mr_rpc_call_options options = {.context = a->context};
    struct mr_autograd *there;
    struct mr_tensor gradient;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(mr_rpc_sync(a->rpc, 1, "push", pushed, 2, &options, NULL), MR_OK);
    struct mr_contexts *contexts = worker(state, 1)->contexts;
    assert_int_equal(mr_context_get(contexts, mr_autograd_id(a->context), MR_RPC_NO_RANK, &there), MR_OK);
    assert_true(mr_context_gradient(there, mr_rref_id(w.rref), &gradient));
    assert_memory_equal(gradient.data, ((float[]){3, 6, 9, 12}), sizeof(xs));
    /* Who looks at it goes on to see that, whatever a program that does not wait adds. */
    struct mr_tensor later;
    assert_int_equal(mr_rpc_sync(a->rpc, 1, "push", pushed, 2, &options, NULL), MR_OK);
    assert_memory_equal(gradient.data, ((float[]){3, 6, 9, 12}), sizeof(xs));
    assert_true(mr_context_gradient(there, mr_rref_id(w.rref), &later));
    assert_memory_equal(later.data, ((float[]){4, 8, 12, 16}), sizeof(xs));
    assert_false(mr_context_gradient(there, mr_rref_id(w.rref) + 1, &gradient));
    mr_context_put(there, false);
    (void)graph_call1(b, 1, "square", graph_leaf(b, xs, ELEMENTS));
    assert_int_equal(mr_context_get(contexts, mr_autograd_id(b->context), MR_RPC_NO_RANK, &there), MR_OK);
    assert_false(mr_context_gradient(there, mr_rref_id(w.rref), &gradient));
    mr_context_put(there, false);
    graph_end(a);
    graph_end(b);
}

/* More than one answer holds. */
TEST(of_many_parameters, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value w[PARAMETERS];
    struct mr_rpc_call_options options = {.context = g->context};
    struct mr_rpc_result *pairs;
    for (uint32_t i = 0; i < PARAMETERS; i++) {
        float value[ELEMENTS] = {(float)i, 1, 2, 3};
        w[i] = graph_call_n(g, 1, "create", NULL, 0, 0);
        struct mr_value pushed[2] = {w[i], mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, value))};
        assert_int_equal(mr_rpc_sync(g->rpc, 1, "push", pushed, 2, &options, NULL), MR_OK);
    }
    assert_int_equal(mr_autograd_gradients(g->context, 1, &pairs), MR_OK);
    assert_int_equal(mr_rpc_result_count(pairs), 2 * PARAMETERS);
    for (uint32_t i = 0; i < PARAMETERS; i++)
        expect_pair(pairs, i, w[i].rref, (float[]){(float)i, 1, 2, 3});
    mr_rpc_result_free(pairs);
    graph_end(g);
}

TEST(of_a_value_behind_a_reference, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), kept = mr_value_rref(NULL);
    struct mr_rpc_call_options options = {.context = g->context};
    static const float twos[ELEMENTS] = {2, 2, 2, 2};
    assert_int_equal(mr_remote(g->rpc, 1, "square", &x, 1, &options, &kept.rref), MR_OK);
    struct mr_value two = mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, twos));
    graph_backward(g, graph_call1(g, 2, "sum", graph_call2(g, 1, "computed", kept, two)));
    graph_expect(g, x, (float[]){4, 8, 12, 16}, ELEMENTS); /* 2 x^2 */
    /* In another context the same value is a constant. */
    struct graph *other = graph_new(worker(state, 0));
    struct mr_value y = graph_leaf(other, xs, ELEMENTS);
    assert_int_equal(graph_call1(other, 1, "read", kept).gradient, 0);
    assert_true(graph_call1(g, 1, "read", kept).gradient != 0);
    struct mr_value z = graph_call2(other, 1, "computed", kept, two);
    graph_backward(other, graph_call1(other, 1, "sum", graph_call2(other, 1, "mul", z, y)));
    graph_expect(other, y, (float[]){2, 8, 18, 32}, ELEMENTS);
    graph_end(other);
    mr_rref_release(kept.rref);
    graph_end(g);
}

TEST(errors, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value w = graph_call_n(g, 1, "create", NULL, 0, 0);
    struct mr_value pushed[2] = {w, mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, xs))};
    struct mr_rpc_call_options options = {.context = g->context};
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(g->rpc, 1, "push", pushed, 2, NULL, NULL),
                 "mr_autograd_add_gradient: push was called in no context");
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(g->rpc, 2, "push", pushed, 2, &options, NULL),
                 "the parameter lives on rank 1");
    pushed[1].tensor = mr_tensor_1d(MR_I32, ELEMENTS, xs);
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(g->rpc, 1, "push", pushed, 2, &options, NULL),
                 "no tensor of f32 or f64");
    pushed[1].tensor = mr_tensor_2d(MR_F32, 2, 2, xs);
    expect_error(MR_WRONG_SHAPE, mr_rpc_sync(g->rpc, 1, "push", pushed, 2, &options, NULL),
                 "the gradient is f32[2,2], and the parameter is f32[4]");
    /* One in versions has a shape, too, also when there are as many bytes. */
    struct mr_rref *versions;
    const struct mr_tensor initial = mr_tensor_1d(MR_F32, ELEMENTS, ws);
    assert_int_equal(mr_parameter_create(g->rpc, &initial, &versions), MR_OK);
    pushed[0] = mr_value_rref(versions);
    expect_error(MR_WRONG_SHAPE, mr_rpc_sync(g->rpc, 0, "push", pushed, 2, &options, NULL),
                 "the gradient is f32[2,2], and the parameter is f32[4]");
    pushed[1].tensor = mr_tensor_1d(MR_F32, ELEMENTS, xs);
    assert_int_equal(mr_rpc_sync(g->rpc, 0, "push", pushed, 2, &options, NULL), MR_OK);
    mr_rref_release(versions);
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(g->rpc, 0, "push_released", pushed + 1, 1, &options, NULL),
                 "mr_autograd_add_gradient: this reference was released before");
    struct mr_rpc_result *pairs;
    expect_error(MR_UNKNOWN_WORKER, mr_autograd_gradients(g->context, 7, &pairs), "no rank 7");
    graph_end(g);
}

/* What a worker says of its gradients that is not one of ours. */
static enum mr_status says_anything(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t count)
{
    static _Atomic uint32_t calls;
    static const int64_t all[] = {1, 1, 0, -1, 2};
    struct mr_value gradient = mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, xs));
    uint32_t n = calls++;
    if (n == 0)
        return MR_OK; /* not even how many */
    enum mr_status status = mr_rpc_return(call, mr_value_i64(all[n % 5]));
    if (status == MR_OK && (n == 2 || n == 4)) /* more than there are; and one that has no reference */
        status = mr_rpc_return(call, gradient);
    return status == MR_OK && n == 4 ? mr_rpc_return(call, gradient) : status;
}

TEST(anything_instead_of_pairs, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_function *page = mr_functions_find(mr_agent_functions(worker(state, 1)), "mr.gradients");
    struct mr_rpc_result *pairs;
    char error[256];
    page->run = says_anything;
    mr_signature_free(&page->results);
    assert_int_equal(mr_signature_read("...", &page->results, error, sizeof(error)), MR_OK);
    for (uint32_t i = 0; i < 5; i++)
        expect_error(MR_BAD_MESSAGE, mr_autograd_gradients(g->context, 1, &pairs), "rank 1 gave none");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_gradients(NULL, 1, &pairs), "the context is NULL");
    graph_end(g);
}
