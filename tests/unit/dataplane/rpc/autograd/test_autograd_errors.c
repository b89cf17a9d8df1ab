/* What goes wrong with contexts and backward. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "graph.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"

enum { WORKERS = 3, ELEMENTS = 4, SECOND_US = 1000000 };

static const float xs[ELEMENTS] = {1, 2, 3, 4};

/* ---- a function whose forward or backward waits until the test lets it go ---- */

static struct gate gate;

static enum mr_status same(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return mr_rpc_return(call, arguments[0]);
}

static enum mr_status slow_backward(struct mr_rpc_call *call, void *saved, const struct mr_tensor *gradients,
                                    uint32_t count)
{
    gate_pass(&gate);
    return mr_rpc_return(call, mr_value_tensor(gradients[0]));
}

/* When it is let go, its context has ended: what a nested call, and one here, say of that. */
static enum mr_status late(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_rpc_call_options options = {.context = mr_rpc_context(call)};
    gate_pass(&gate);
    enum mr_status status = mr_rpc_sync(mr_rpc_of(call), 2, "same", arguments, 1, &options, NULL);
    assert_int_equal(status, MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_rpc_last_error(), "context 1 of worker \"w0\" (rank 0) has ended"));
    status = mr_autograd_apply(mr_rpc_context(call), "same", arguments, 1, NULL);
    assert_int_equal(status, MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_rpc_last_error(), "has ended"));
    return mr_rpc_return(call, arguments[0]);
}

/* Backward from here, in the caller's context: through its argument. */
static enum mr_status goes_back(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_autograd *context = mr_rpc_context(call);
    struct mr_rpc_call_options options = {.context = context};
    struct mr_rpc_result *r, *s;
    assert_int_equal(mr_rpc_sync(mr_rpc_of(call), 2, "slow", arguments, 1, &options, &r), MR_OK);
    assert_int_equal(mr_autograd_apply(context, "sum", mr_rpc_result_value(r, 0), 1, &s), MR_OK);
    enum mr_status status = mr_autograd_backward(context, mr_rpc_result_value(s, 0), 1, false);
    mr_rpc_result_free(r);
    mr_rpc_result_free(s);
    return status == MR_OK ? mr_rpc_return(call, arguments[0]) : mr_rpc_fail(call, "%s", mr_rpc_last_error());
}

static enum mr_status saves_wrongly(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t count)
{
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_save(call, NULL, free), "mr_rpc_save", "saves_wrongly", "NULL");
    assert_int_equal(mr_rpc_save(call, malloc(1), free), MR_OK);
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_save(call, &gate, free), "before");
    return mr_rpc_return(call, arguments[0]);
}

static enum mr_status saves_wrongly_backward(struct mr_rpc_call *call, void *saved,
                                             const struct mr_tensor *gradients, uint32_t count)
{
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_save(call, &gate, free), "a backward");
    return mr_rpc_return(call, mr_value_tensor(gradients[0]));
}

/* It counts on being called in a context. */
static enum mr_status needs_one(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_autograd *context = mr_rpc_context(call);
    struct mr_value leaf = arguments[0];
    struct mr_tensor gradient;
    static const char says[] = "called in none";
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_leaf(context, leaf.tensor, &leaf), says);
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(context, &leaf, 1, false), says);
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_gradient(context, &leaf, &gradient), says);
    return mr_autograd_apply(context, "same", arguments, 1, NULL) == MR_OK
               ? mr_rpc_return(call, leaf)
               : mr_rpc_fail(call, "%s", mr_rpc_last_error());
}

static void register_more(struct mr_rpc *rpc)
{
    static const struct mr_rpc_function functions[] = {
        {.name = "slow", .arguments = "tensor", .results = "tensor", .run = same, .backward = slow_backward},
        {.name = "late", .arguments = "tensor", .results = "tensor", .run = late},
        {.name = "needs_one", .arguments = "tensor", .results = "tensor", .run = needs_one},
        {.name = "goes_back", .arguments = "tensor", .results = "tensor", .run = goes_back},
        {.name = "saves_wrongly",
         .arguments = "tensor",
         .results = "tensor",
         .run = saves_wrongly,
         .backward = saves_wrongly_backward},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        assert_int_equal(mr_rpc_register(rpc, &functions[i]), MR_OK);
}

static int setup(void **state)
{
    gate_init(&gate);
    (void)math_world(state, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        register_more(worker(state, i));
    return 0;
}

static int teardown(void **state)
{
    gate_open(&gate);
    return math_world_end(state);
}

/* ---- the program's mistakes ---- */

TEST(losses_that_are_none, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0)), *other = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), theirs = graph_leaf(other, xs, 1);
    struct mr_value constant = mr_value_tensor(mr_tensor_0d(MR_F32, xs)), number = mr_value_f64(1);
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, NULL, 0, false), "no loss");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &x, 1, false), "loss 0 is f32[4]",
                 "one element");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &number, 1, false), "loss 0 is f64");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &constant, 1, false), "loss 0",
                 "not computed in this context");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &theirs, 1, false),
                 "not computed in this context");
    graph_backward(g, graph_call1(g, 1, "sum", x)); /* none of this did any harm */
    graph_expect(g, x, (float[]){1, 1, 1, 1}, ELEMENTS);
    graph_end(other);
    graph_end(g);
}

TEST(gradients_of_no_leaf, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_call1(g, 1, "square", x), none = x, f16;
    struct mr_tensor t;
    none.gradient = 0;
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_gradient(g->context, &y, &t), "no leaf");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_gradient(g->context, &none, &t), "no leaf");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_leaf(g->context, mr_tensor_1d(MR_F16, 4, xs), &f16), "f16");
    graph_end(g);
}

TEST(applying_wrongly, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), pair[2] = {x, graph_leaf(g, xs, 2)};
    expect_error(MR_UNKNOWN_FUNCTION, mr_autograd_apply(g->context, "none", &x, 1, NULL), "none");
    expect_error(MR_WRONG_SIGNATURE, mr_autograd_apply(g->context, "mul", &x, 1, NULL), "f32[4]",
                 "f32[...], f32[...]");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_apply(g->context, "mul", NULL, 2, NULL), "arguments");
    expect_error(MR_FUNCTION_FAILED, mr_autograd_apply(g->context, "mul", pair, 2, NULL), "mul",
                 "the shapes differ");
    graph_end(g);
}

TEST(saving_wrongly, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    graph_backward(g, graph_call1(g, 0, "sum", graph_call1(g, 1, "saves_wrongly", x)));
    graph_expect(g, x, (float[]){1, 1, 1, 1}, ELEMENTS);
    graph_end(g);
}

/* A worker that others call must not break where they forgot the context. */
TEST(called_in_no_context, setup, teardown)
{
    struct mr_value x = mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, xs));
    expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(worker(state, 0), 1, "needs_one", &x, 1, NULL, NULL),
                 "needs_one on worker \"w1\" (rank 1): mr_autograd_apply: same: the context is NULL");
}

/* ---- a function's backward ---- */

TEST(a_wrong_backward_is_named, setup, teardown)
{
    static const struct {
        const char *function;
        enum mr_status status;
        const char *text;
    } cases[] = {
        {"wrong_shape", MR_WRONG_SHAPE, "gradient 0 is f32[1,1], and argument 0 is f32[4]"},
        {"wrong_count", MR_WRONG_SHAPE, "it gave back 0 gradients for 1 argument"},
        {"failing", MR_FUNCTION_FAILED, "the matrix is singular"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t to = 0; to < 2; to++) {
            char who[128];
            struct graph *g = graph_new(worker(state, 0));
            struct mr_value x = graph_leaf(g, xs, ELEMENTS);
            struct mr_value y = graph_call1(g, 2, "square", graph_call1(g, to, cases[i].function, x));
            struct mr_value loss = graph_call1(g, 0, "sum", y);
            snprintf(who, sizeof(who), "backward of \"%s\" on worker \"w%u\" (rank %u)", cases[i].function,
                     to, to);
            /* All are at rest afterwards: the same nodes may be tried again, until a pass uses them up. */
            for (uint32_t tries = 0; tries < 3; tries++)
                expect_error(cases[i].status, mr_autograd_backward(g->context, &loss, 1, tries < 2), who,
                             cases[i].text);
            expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(g->context, &loss, 1, false),
                         "an earlier backward pass used this run");
            loss = graph_call1(g, 0, "sum", x);
            graph_backward(g, loss);
            graph_expect(g, x, (float[]){1, 1, 1, 1}, ELEMENTS);
            graph_end(g);
        }
    }
}

/* An error two calls away. */
TEST(an_error_far_away_is_told, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("failing"), x};
    struct mr_value loss = graph_call1(g, 0, "sum", graph_call_n(g, 1, "on", arguments, 3, 0));
    expect_error(
        MR_FUNCTION_FAILED, mr_autograd_backward(g->context, &loss, 1, false),
        "mr_autograd_backward: backward of \"failing\" on worker \"w2\" (rank 2): the matrix is singular");
    graph_end(g);
}

/* ---- backward that does not end by itself ---- */

struct back {
    struct graph *g;
    struct mr_value loss;
    enum mr_status status;
    char error[512];
};

static void *run_back(void *arg)
{
    struct back *b = arg;
    b->status = mr_autograd_backward(b->g->context, &b->loss, 1, false);
    snprintf(b->error, sizeof(b->error), "%s", mr_rpc_last_error());
    return NULL;
}

/* One that waits in the slow function's backward on that worker. */
static pthread_t start_slow(void **state, struct back *b, uint32_t to)
{
    pthread_t thread;
    b->g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(b->g, xs, ELEMENTS);
    b->loss = graph_call1(b->g, 0, "sum", graph_call1(b->g, to, "slow", x));
    assert_int_equal(pthread_create(&thread, NULL, run_back, b), 0);
    gate_wait_begun(&gate, 1);
    return thread;
}

TEST(two_at_once, setup, teardown)
{
    struct back b;
    pthread_t thread = start_slow(state, &b, 1);
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(b.g->context, &b.loss, 1, false),
                 "another backward pass runs");
    gate_open(&gate);
    pthread_join(thread, NULL);
    assert_int_equal(b.status, MR_OK);
    graph_end(b.g);
}

TEST(the_time_out, setup, teardown)
{
    struct back b;
    pthread_t thread = start_slow(state, &b, 1);
    net_skip(*state, 70 * SECOND_US);
    pthread_join(thread, NULL);
    assert_int_equal(b.status, MR_DEADLINE_EXCEEDED);
    assert_says(b.error, "time-out");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(b.g->context, &b.loss, 1, false),
                 "an earlier backward pass in it timed out");
    gate_open(&gate);
    graph_end(b.g);
}

TEST(the_callee_dies_in_its_backward, setup, teardown)
{
    struct back b;
    pthread_t thread = start_slow(state, &b, 2);
    uint64_t begun_us = mr_agent_now(worker(state, 0));
    net_silence(*state, 2, true);
    net_skip(*state, 25 * SECOND_US);
    pthread_join(thread, NULL);
    assert_int_equal(b.status, MR_WORKER_DIED);
    assert_true(mr_agent_now(worker(state, 0)) - begun_us <
                55 * SECOND_US); /* by the death, not by the time-out */
    assert_says(b.error, "worker \"w2\" (rank 2) died");
    gate_open(&gate);
    graph_end(b.g);
}

TEST(the_callee_dies_before_backward, setup, teardown)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value x = graph_leaf(g, xs, ELEMENTS);
    struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("square"), x};
    struct mr_value direct = graph_call1(g, 0, "sum", graph_call1(g, 2, "square", x));
    struct mr_value nested = graph_call1(g, 0, "sum", graph_call_n(g, 1, "on", arguments, 3, 0));
    struct mr_value without = graph_call1(g, 1, "sum", x);
    net_silence(*state, 2, true);
    net_skip(*state, 25 * SECOND_US);
    expect_error(MR_WORKER_DIED, mr_autograd_backward(g->context, &direct, 1, false),
                 "worker \"w2\" (rank 2) died", "\"square\"");
    expect_error(MR_WORKER_DIED, mr_autograd_backward(g->context, &nested, 1, false),
                 "worker \"w2\" (rank 2) died", "\"square\"");
    graph_backward(g, without); /* nothing had flowed, and this needs nothing of the dead one */
    graph_expect(g, x, (float[]){1, 1, 1, 1}, ELEMENTS);
    graph_end(g);
}

static void *call_late(void *arg)
{
    struct back *b = arg;
    (void)graph_call1(b->g, 1, "late", b->loss);
    return NULL;
}

TEST(the_context_ends_while_a_function_runs, setup, teardown)
{
    struct back b = {.g = graph_new(worker(state, 0))};
    pthread_t thread;
    b.loss = graph_leaf(b.g, xs, ELEMENTS);
    assert_int_equal(pthread_create(&thread, NULL, call_late, &b), 0);
    gate_wait_begun(&gate, 1);
    mr_autograd_end(b.g->context);
    b.g->context = NULL;
    while (contexts_known(worker(state, 1)->contexts) != 0)
        net_skip(*state, 20000);
    gate_open(&gate);
    pthread_join(thread, NULL);
    graph_end(b.g);
}

static void *call_goes_back(void *arg)
{
    struct back *b = arg;
    struct mr_rpc_call_options options = {.context = b->g->context};
    b->status = mr_rpc_sync(b->g->rpc, 1, "goes_back", &b->loss, 1, &options, NULL);
    snprintf(b->error, sizeof(b->error), "%s", mr_rpc_last_error());
    return NULL;
}

/* w1 goes back in w0's context: that works, and ends when the context does. */
TEST(backward_by_another_worker, setup, teardown)
{
    for (uint32_t ends = 0; ends < 2; ends++) {
        struct back b = {.g = graph_new(worker(state, 0))};
        pthread_t thread;
        gate_close(&gate);
        b.loss = graph_leaf(b.g, xs, ELEMENTS);
        if (ends == 0)
            gate_open(&gate);
        assert_int_equal(pthread_create(&thread, NULL, call_goes_back, &b), 0);
        if (ends == 1) {
            gate_wait_begun(&gate, 1);
            mr_autograd_end(b.g->context);
            b.g->context = NULL;
        }
        pthread_join(thread, NULL);
        assert_int_equal(b.status, ends == 0 ? MR_OK : MR_FUNCTION_FAILED);
        if (ends == 0)
            graph_expect(b.g, b.loss, (float[]){1, 1, 1, 1}, ELEMENTS);
        else
            assert_says(b.error, "the context has ended");
        graph_end(b.g);
    }
}
