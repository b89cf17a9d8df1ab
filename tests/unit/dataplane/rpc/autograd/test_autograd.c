/* Autograd over two and three workers: contexts, and backward through calls. */
#include <stdio.h>
#include <string.h>
#include "graph.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { WORKERS = 3, ELEMENTS = 4, TRAINERS = 8, ROUNDS = 10, DEPTH = GRAPH_DEPTH };

static int setup(void **state)
{
    return math_world(state, WORKERS);
}

static const float xs[ELEMENTS] = {1, 2, 3, 4}, ys[ELEMENTS] = {5, 6, 7, 8};

/* ---- graphs ---- */

TEST(through_one_call, setup, math_world_end)
{
    for (uint32_t to = 0; to < 2; to++) { /* our own function, and another worker's */
        struct graph *g = graph_new(worker(state, 0));
        struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_leaf(g, ys, ELEMENTS);
        graph_backward(g, graph_call1(g, to, "sum", graph_call2(g, to, "mul", x, y)));
        graph_expect(g, x, ys, ELEMENTS);
        graph_expect(g, y, xs, ELEMENTS);
        graph_end(g);
    }
}

TEST(applied_here, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 2));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_rpc_result *r, *s;
    assert_int_equal(mr_autograd_apply(g->context, "square", &x, 1, &r), MR_OK);
    assert_int_equal(mr_autograd_apply(g->context, "sum", mr_rpc_result_value(r, 0), 1, &s), MR_OK);
    assert_true(*(float *)mr_rpc_result_value(s, 0)->tensor.data == 30);
    graph_backward(g, *mr_rpc_result_value(s, 0));
    graph_expect(g, x, (float[]){2, 4, 6, 8}, ELEMENTS);
    mr_rpc_result_free(r);
    mr_rpc_result_free(s);
    graph_end(g);
}

TEST(values_used_more_than_once, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value y = graph_call2(g, 1, "mul", x, x);                          /* x^2 */
    struct mr_value z = graph_call2(g, 2, "mul", y, x);                          /* x^3 */
    struct mr_value w = graph_call2(g, 1, "add", z, y);                          /* x^3 + x^2 */
    graph_backward(g, graph_call1(g, 2, "sum", graph_call2(g, 2, "add", w, y))); /* x^3 + 2 x^2 */
    graph_expect(g, x, (float[]){3 + 4, 12 + 8, 27 + 12, 48 + 16}, ELEMENTS);
    graph_end(g);
}

TEST(results_that_the_loss_does_not_use, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_leaf(g, ys, ELEMENTS);
    struct mr_value used = graph_call1(g, 1, "square", x);
    struct mr_value aside = graph_call2(g, 1, "mul", used, y); /* what the loss uses is used there, too */
    (void)graph_call1(g, 2, "square", aside);
    struct mr_value one_of_two = graph_call_n(g, 1, "split", &used, 1, 1);
    graph_backward(g, graph_call1(g, 1, "sum", one_of_two));
    graph_expect(g, x, (float[]){4, 8, 12, 16}, ELEMENTS);
    assert_null(graph_gradient_of(g, y));
    graph_end(g);
}

TEST(both_results, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value first = graph_call_n(g, 1, "split", &x, 1, 0);
    struct mr_value second = *mr_rpc_result_value(g->results[g->count - 1], 1);
    graph_backward(g, graph_call1(g, 0, "sum", graph_call2(g, 2, "mul", first, second))); /* 2 x^2 */
    graph_expect(g, x, (float[]){4, 8, 12, 16}, ELEMENTS);
    graph_end(g);
}

/* w0 -> w1 -> w2, and w0 -> w1 -> w0; w1 has no backward for that, only what it calls. */
TEST(nested_calls, setup, math_world_end)
{
    for (int64_t via = 0; via <= 2; via += 2) {
        struct graph *g = graph_new(worker(state, 0));
        struct mr_value x = graph_leaf(g, xs, ELEMENTS);
        struct mr_value arguments[] = {mr_value_i64(via), mr_value_string("square"), x};
        struct mr_value y = graph_call_n(g, 1, "on", arguments, 3, 0);
        struct mr_value deeper[] = {
            mr_value_i64(2), mr_value_string("on"), mr_value_i64(via), mr_value_string("mul"), y, x};
        graph_backward(g, graph_call1(g, 2, "sum", graph_call_n(g, 1, "on", deeper, 6, 0))); /* x^3 */
        graph_expect(g, x, (float[]){3, 12, 27, 48}, ELEMENTS);
        graph_end(g);
    }
}

TEST(back_and_forth, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), arguments[2] = {mr_value_i64(7), x};
    graph_backward(g, graph_call1(g, 0, "sum", graph_call_n(g, 1, "bounce", arguments, 2, 0)));
    graph_expect(g, x, (float[]){128, 128, 128, 128}, ELEMENTS);
    graph_end(g);
}

/* More calls, one after the other, than may be in flight at a time. */
TEST(a_long_chain, setup, math_world_end)
{
    static const float ones[ELEMENTS] = {1, 1, 1, 1};
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = x,
                    one = mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, ones));
    for (uint32_t i = 0; i < DEPTH; i++)
        y = graph_call2(g, 1 + i % 2, i % 3 == 0 ? "mul" : "add", y, one);
    graph_backward(g, graph_call1(g, 1, "sum", y));
    graph_expect(g, x, ones, ELEMENTS);
    graph_end(g);
}

TEST(a_function_that_records_nothing_is_a_constant, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), plain = graph_call1(g, 1, "plain", x),
                    same = graph_call1(g, 1, "same", x);
    assert_int_equal(plain.gradient, 0);
    assert_true(same.gradient != 0 && same.gradient != x.gradient);
    graph_backward(g, graph_call1(g, 1, "sum",
                                  graph_call2(g, 1, "mul", plain, same))); /* 2x * x, the first a constant */
    graph_expect(g, x, (float[]){2, 4, 6, 8}, ELEMENTS);
    graph_end(g);
}

TEST(several_losses, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value y = graph_call1(g, 1, "square", x);
    struct mr_value losses[3] = {graph_call1(g, 1, "sum", y), graph_call1(g, 2, "sum", x),
                                 graph_call1(g, 0, "sum", y)};
    assert_int_equal(mr_autograd_backward(g->context, losses, 3, false), MR_OK);
    graph_expect(g, x, (float[]){5, 9, 13, 17}, ELEMENTS);
    graph_end(g);
}

TEST(again_when_retained, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value y = graph_call1(g, 1, "square", x), loss = graph_call1(g, 1, "sum", y),
                    other = graph_call1(g, 0, "sum", y);
    assert_int_equal(mr_autograd_backward(g->context, &loss, 1, true), MR_OK);
    assert_int_equal(mr_autograd_backward(g->context, &loss, 1, false), MR_OK);
    graph_expect(g, x, (float[]){4, 8, 12, 16}, ELEMENTS); /* they add up */
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &loss, 1, false),
                 "mr_autograd_backward", "\"sum\"", "retain");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &other, 1, false), "\"square\"",
                 "retain");
    graph_expect(g, x, (float[]){4, 8, 12, 16}, ELEMENTS);
    graph_backward(g, graph_call1(g, 2, "sum", x)); /* what is new may be gone through */
    graph_expect(g, x, (float[]){5, 9, 13, 17}, ELEMENTS);
    graph_end(g);
}

/* What was saved goes as soon as it has been used. */
TEST(saved_values_go_early, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value loss = graph_call1(g, 1, "sum", graph_call1(g, 2, "square", x));
    assert_int_equal(math_saved(), 2);
    assert_int_equal(mr_autograd_backward(g->context, &loss, 1, true), MR_OK);
    assert_int_equal(math_saved(), 2);
    graph_backward(g, loss);
    assert_int_equal(math_saved(), 0);
    (void)graph_call1(g, 1, "square", x);
    assert_int_equal(math_saved(), 1);
    graph_end(g); /* teardown finds none */
}

/* ---- recorded by the program ---- */

static enum mr_status thrice_backward(struct mr_rpc_call *call, void *saved,
                                      const struct mr_tensor *gradients, uint32_t count)
{
    const float *factor = saved, *from = gradients[0].data;
    float *to;
    (void)count;
    if (mr_rpc_return_tensor(call, MR_F32, 1, gradients[0].dims, (void **)&to) != MR_OK)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < gradients[0].dims[0]; i++)
        to[i] = *factor * from[i];
    return MR_OK;
}

static enum mr_status not_called(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    (void)arguments;
    (void)count;
    return mr_rpc_fail(call, "nobody calls it");
}

static _Atomic uint32_t destroyed;

static void autograd_destroy(void *saved)
{
    (void)saved;
    destroyed++;
}

TEST(recorded_by_the_program, setup, math_world_end)
{
    const struct mr_rpc_function thrice = {.name = "thrice",
                                           .arguments = "...",
                                           .results = "...",
                                           .run = not_called,
                                           .backward = thrice_backward};
    static float factor = 3;
    struct mr_rpc *rpc = worker(state, 0);
    assert_int_equal(mr_rpc_register(rpc, &thrice), MR_OK);
    struct graph *g = graph_new(rpc);
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_call1(g, 1, "square", x);
    struct mr_value z =
        mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, NULL)); /* 3 x^2: only its shape counts */
    destroyed = 0;
    assert_int_equal(mr_autograd_record(g->context, "thrice", &y, 1, &z, 1, &factor, autograd_destroy),
                     MR_OK);
    assert_int_not_equal(z.gradient, 0);
    float values[ELEMENTS] = {0};
    z.tensor.data = values;
    graph_backward(g, graph_call1(g, 2, "sum", z));
    graph_expect(g, x, (float[]){6, 12, 18, 24}, ELEMENTS);
    assert_int_equal(destroyed, 1);
    /* Without values: kept until the context's end. */
    assert_int_equal(mr_autograd_record(g->context, "thrice", NULL, 0, NULL, 0, &factor, autograd_destroy),
                     MR_OK);
    assert_int_equal(destroyed, 1);
    graph_end(g);
    WAIT_UNTIL(destroyed == 2); /* by a thread of the library */
}

TEST(what_cannot_be_recorded, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value values[MR_RPC_ARGUMENTS_MAX + 1] = {{.kind = MR_VALUE_NONE}};
    int saved;
    destroyed = 0;
    assert_int_equal(mr_autograd_record(g->context, "unknown", NULL, 0, NULL, 0, &saved, autograd_destroy),
                     MR_UNKNOWN_FUNCTION);
    assert_int_equal(mr_autograd_record(g->context, "plain", NULL, 0, NULL, 0, &saved, autograd_destroy),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(mr_autograd_record(g->context, "square", values, MR_RPC_ARGUMENTS_MAX + 1, NULL, 0,
                                        &saved, autograd_destroy),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(mr_autograd_record(NULL, "square", NULL, 0, NULL, 0, &saved, autograd_destroy),
                     MR_INVALID_ARGUMENT);
    assert_int_equal(destroyed, 4);
    graph_end(g);
}

TEST(nothing_is_kept_outside_of_a_context, setup, math_world_end)
{
    struct mr_value x = mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, xs));
    struct mr_rpc_result *r;
    x.gradient = 5; /* means nothing there */
    for (uint32_t to = 0; to < 2; to++) {
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "square", &x, 1, NULL, &r), MR_OK);
        assert_int_equal(mr_rpc_result_value(r, 0)->gradient, 0);
        mr_rpc_result_free(r);
        assert_int_equal(math_saved(), 0);
    }
    assert_int_equal(mr_rpc_sync(worker(state, 0), 1, "same", &x, 1, NULL, &r), MR_OK);
    assert_int_equal(mr_rpc_result_value(r, 0)->gradient, 0);
    mr_rpc_result_free(r);
}

/* ---- many at a time ---- */

struct trainer {
    struct mr_rpc *rpc;
    float factor;
    bool right;
};

static void *train(void *arg)
{
    struct trainer *t = arg;
    t->right = true;
    for (uint32_t round = 0; round < ROUNDS && t->right; round++) {
        float own[ELEMENTS] = {t->factor, t->factor, t->factor, t->factor};
        struct graph *g = graph_new(t->rpc);
        struct mr_value x = graph_leaf(g, own, ELEMENTS), y = graph_leaf(g, ys, ELEMENTS);
        struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("mul"), x, y};
        struct mr_value z = graph_call_n(g, 1, "on", arguments, 4, 0);
        graph_backward(g, graph_call1(g, 2, "sum", graph_call2(g, 1, "mul", z, x))); /* x^2 y */
        const float *dx = graph_gradient_of(g, x), *dy = graph_gradient_of(g, y);
        for (uint32_t i = 0; i < ELEMENTS; i++)
            t->right = t->right && dx[i] == 2 * t->factor * ys[i] && dy[i] == t->factor * t->factor;
        graph_end(g);
    }
    return NULL;
}

TEST(many_trainers_on_one_model, setup, math_world_end)
{
    pthread_t threads[TRAINERS];
    struct trainer trainers[TRAINERS];
    for (uint32_t i = 0; i < TRAINERS; i++) {
        trainers[i] = (struct trainer){.rpc = worker(state, i % WORKERS), .factor = (float)(i + 1)};
        assert_int_equal(pthread_create(&threads[i], NULL, train, &trainers[i]), 0);
    }
    for (uint32_t i = 0; i < TRAINERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(trainers[i].right);
    }
}
