/* Messages of a backward that no right worker sends: each is refused, and does no harm. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/rpc/autograd/backward.h"
#include "graph.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"

enum { WORKERS = 3, ELEMENTS = 4 };

static const float xs[ELEMENTS] = {1, 2, 3, 4};

static int setup(void **state)
{
    return math_world(state, WORKERS);
}

/* ---- one message from w0 to w1 ---- */

struct raw {
    struct mr_work work;
    struct mr_agent_call call;
    struct mr_tensor tensors[3];
    uint32_t count;
    enum mr_status status;
    _Atomic uint32_t done;
};

static char said[MR_RPC_ERROR_BYTES]; /* by the last error that was answered */

static bool raw_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                      const struct mr_message *reply)
{
    struct raw *raw = MR_CONTAINER(call, struct raw, call);
    raw->status = status;
    if (status != MR_OK && reply != NULL && reply->preamble.tensor_count > 0)
        (void)snprintf(said, sizeof(said), "%.*s", (int)reply->tensors[0].bytes,
                       (const char *)reply->tensors[0].data);
    (void)mr_agent_done(&raw->done);
    return false;
}

static void raw_send(struct mr_rpc *agent, struct mr_work *work)
{
    struct raw *raw = MR_CONTAINER(work, struct raw, work);
    assert_int_equal(mr_agent_begin(agent, &raw->call, raw->tensors, raw->count), MR_OK);
    mr_agent_send(agent, &raw->call);
}

static enum mr_status send_op(struct mr_rpc *rpc, uint8_t op, uint32_t to, const void *first, uint32_t bytes,
                              const struct mr_tensor *more, uint32_t more_count)
{
    struct mr_agent_driver *driver = mr_agent_driver(rpc);
    struct raw raw = {
        .work = {.run = raw_send},
        .call = {.to = to, .op = op, .control = true, .deadline_us = UINT64_MAX, .ended = raw_ended},
        .tensors = {mr_tensor_1d(MR_U8, bytes, first)},
        .count = 1 + more_count};
    for (uint32_t i = 0; i < more_count; i++)
        raw.tensors[1 + i] = more[i];
    mr_agent_submit(rpc, &raw.work);
    assert_true(driver->wait(driver->self, &raw.done, UINT64_MAX));
    return raw.status;
}

static enum mr_status message_send(struct mr_rpc *rpc, const void *first, uint32_t bytes,
                                   const struct mr_tensor *more, uint32_t more_count)
{
    return send_op(rpc, MR_OP_RPC_BACKWARD, 1, first, bytes, more, more_count);
}

/* Sends a REACH that engages w1. It says NOT_READY, or OK if it is at rest again before it answers. */
static void send_reach(struct mr_rpc *rpc, const void *first, uint32_t bytes)
{
    enum mr_status status = message_send(rpc, first, bytes, NULL, 0);
    assert_true(status == MR_NOT_READY || status == MR_OK);
}

/* A head, and a byte for each of its values. */
struct message {
    struct mr_backward_wire head;
    uint8_t present[4];
};

TEST(malformed_ones, setup, net_teardown)
{
    struct mr_rpc *rpc = ((struct net *)*state)->workers[0].rpc;
    struct message m = {.head = {.context = 1, .pass = 9, .invocation = 1, .kind = MR_BACKWARD_RESULTS},
                        .present = {1}};
    struct mr_tensor f32 = mr_tensor_1d(MR_F32, ELEMENTS, xs), i32 = mr_tensor_1d(MR_I32, ELEMENTS, xs);
    struct mr_tensor two[2] = {f32, f32};
    uint8_t many[sizeof(m.head) + MR_RPC_ARGUMENTS_MAX + 1] = {0};
    uint32_t head = sizeof(m.head);
    assert_int_equal(message_send(rpc, &m, head - 1, NULL, 0), MR_BAD_MESSAGE);
    assert_int_equal(message_send(rpc, many, sizeof(many), NULL, 0), MR_BAD_MESSAGE);
    assert_int_equal(message_send(rpc, &m, head + 1, NULL, 0), MR_BAD_MESSAGE); /* its gradient is missing */
    assert_int_equal(message_send(rpc, &m, head + 1, &i32, 1), MR_BAD_MESSAGE);
    assert_int_equal(message_send(rpc, &m, head + 1, two, 2), MR_BAD_MESSAGE);
    m.head.kind = 0;
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_BAD_MESSAGE);
    m.head.kind = MR_BACKWARD_DONE + 1;
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_BAD_MESSAGE);
    m.head.kind = MR_BACKWARD_REACH_RESULTS;
    assert_int_equal(message_send(rpc, &m, head + 1, NULL, 0), MR_BAD_MESSAGE);
    assert_int_equal(message_send(rpc, &m, head, &f32, 1), MR_BAD_MESSAGE);
    m.head.kind = MR_BACKWARD_DONE;
    assert_int_equal(message_send(rpc, &m, head, &f32, 1), MR_BAD_MESSAGE);
    assert_int_equal(message_send(rpc, &m, head, two, 2), MR_BAD_MESSAGE);
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_OK); /* of a context that has ended: late */
}

TEST(ones_that_do_not_fit, setup, net_teardown)
{
    struct mr_rpc *rpc = ((struct net *)*state)->workers[0].rpc;
    struct graph *g = graph_new(rpc);
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_call1(g, 1, "square", x);
    struct message m = {
        .head = {.context = 77, .pass = 9, .invocation = 1, .kind = MR_BACKWARD_REACH_RESULTS},
        .present = {1, 1}};
    struct mr_tensor f32 = mr_tensor_1d(MR_F32, ELEMENTS, xs), small = mr_tensor_1d(MR_F32, 2, xs);
    struct mr_tensor two[2] = {f32, f32};
    uint32_t head = sizeof(m.head);
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_INVALID_ARGUMENT); /* no such context */
    m.head.context = mr_autograd_id(g->context);
    m.head.invocation = 5;
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_BAD_MESSAGE); /* no such call */
    m.head.invocation = 1;
    m.head.kind = MR_BACKWARD_REACH_ARGUMENTS; /* w1 called nobody; */
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_BAD_MESSAGE);
    struct mr_value by_way[] = {mr_value_i64(2), mr_value_string("square"), x};
    (void)graph_call_n(g, 1, "on", by_way, 3, 0); /* or another one */
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_BAD_MESSAGE);
    m.head.kind = MR_BACKWARD_RESULTS; /* nothing was reached before */
    assert_int_equal(message_send(rpc, &m, head + 1, &f32, 1), MR_INVALID_ARGUMENT);
    m.head.kind = MR_BACKWARD_REACH_RESULTS;
    m.head.pass = (UINT64_C(1) << MR_RPC_ID_SHIFT) | 5; /* in w1's name */
    send_reach(rpc, &m, head);
    m.head.kind = MR_BACKWARD_RESULTS;
    m.head.pass--; /* one that was before */
    assert_int_equal(message_send(rpc, &m, head + 1, &f32, 1), MR_INVALID_ARGUMENT);
    m.head.pass++;
    for (;;) { /* until it is at rest, so that the answer tells */
        m.head.kind = MR_BACKWARD_RESULTS;
        enum mr_status status = message_send(rpc, &m, head + 1, &small, 1);
        if (status == MR_BAD_MESSAGE)
            break;
        assert_int_equal(status, MR_OK);
    }
    assert_int_equal(message_send(rpc, &m, head + 2, two, 2), MR_BAD_MESSAGE);
    m.head.kind = MR_BACKWARD_REACH_RESULTS;
    m.head.pass--; /* late */
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_INVALID_ARGUMENT);
    /* And the program goes back as if nothing had been. */
    graph_backward(g, graph_call1(g, 1, "sum", y));
    graph_expect(g, x, (float[]){2, 4, 6, 8}, ELEMENTS);
    graph_end(g);
}

/* ---- what a thread still does once its answer has gone ---- */

void __real_mr_backward_drain(struct mr_autograd *c, uint64_t pass);
void __wrap_mr_backward_drain(struct mr_autograd *c, uint64_t pass);

enum { HELD_PASS = 9 };

static pthread_mutex_t held =
    PTHREAD_MUTEX_INITIALIZER; /* by the test, as long as that pass is not to go on */

void __wrap_mr_backward_drain(struct mr_autograd *c, uint64_t pass)
{
    if ((uint32_t)pass == HELD_PASS) {
        pthread_mutex_lock(&held);
        pthread_mutex_unlock(&held);
    }
    __real_mr_backward_drain(c, pass);
}

/* Once a backward is reported over, the next one may begin, whatever the thread that reported it still
 * does. */
TEST(one_right_after_another, setup, net_teardown)
{
    struct net *net = *state;
    struct graph *g = graph_new(net->workers[0].rpc);
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_call1(g, 1, "square", x),
                    loss = graph_call1(g, 1, "sum", y);
    struct message m = {.head = {.context = mr_autograd_id(g->context),
                                 .pass = (UINT64_C(1) << MR_RPC_ID_SHIFT) | HELD_PASS,
                                 .invocation = 1,
                                 .kind = MR_BACKWARD_REACH_ARGUMENTS}};
    pthread_mutex_lock(&held);
    enum mr_status told = send_op(net->workers[1].rpc, MR_OP_RPC_BACKWARD, 0, &m, sizeof(m.head), NULL, 0);
    enum mr_status next = mr_autograd_backward(g->context, &loss, 1, false);
    pthread_mutex_unlock(&held);
    assert_int_equal(told, MR_OK);
    assert_int_equal(next, MR_OK);
    graph_expect(g, x, (float[]){2, 4, 6, 8}, ELEMENTS);
    graph_end(g);
}

/* square(a), passed to the caller by a call, and returned: two ways to one run. */
static enum mr_status two_ways(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_rpc_call_options options = {.context = mr_rpc_context(call)};
    struct mr_rpc_result *r;
    assert_int_equal(mr_autograd_apply(options.context, "square", arguments, 1, &r), MR_OK);
    const struct mr_value *square = mr_rpc_result_value(r, 0);
    enum mr_status status = mr_rpc_sync(mr_rpc_of(call), 0, "same", square, 1, &options, NULL);
    if (status == MR_OK)
        status = mr_rpc_return(call, *square);
    mr_rpc_result_free(r);
    return status;
}

/* Nothing is reached once gradients flow: what has run, and let go of what it had saved, would run again. */
TEST(ones_out_of_order, setup, net_teardown)
{
    struct mr_rpc *rpc = ((struct net *)*state)->workers[0].rpc;
    struct graph *g = graph_new(rpc);
    net_function(((struct net *)*state)->workers[1].rpc, "two_ways", "tensor", "tensor", two_ways, NULL, 0);
    (void)graph_call1(g, 1, "two_ways", graph_leaf(g, xs, ELEMENTS));
    struct message m = {.head = {.context = mr_autograd_id(g->context),
                                 .pass = 9,
                                 .invocation = 1,
                                 .kind = MR_BACKWARD_REACH_RESULTS},
                        .present = {1}};
    struct mr_tensor f32 = mr_tensor_1d(MR_F32, ELEMENTS, xs);
    uint32_t head = sizeof(m.head), before = math_backwards();
    send_reach(rpc, &m, head);
    m.head.kind = MR_BACKWARD_RESULTS;
    enum mr_status status = message_send(rpc, &m, head + 1, &f32, 1);
    assert_true(status == MR_NOT_READY || status == MR_OK);
    m.head.kind = MR_BACKWARD_REACH_ARGUMENTS;
    assert_int_equal(message_send(rpc, &m, head, NULL, 0), MR_BAD_MESSAGE);
    m.head.kind = MR_BACKWARD_ARGUMENTS;
    status = message_send(rpc, &m, head + 1, &f32, 1);
    assert_true(status == MR_BAD_MESSAGE || status == MR_OK); /* which may be told later */
    graph_end(g);
    net_skip(*state, 20000);
    assert_true(math_backwards() <= before + 1);
}

static enum mr_status call_square(struct mr_rpc *rpc, uint32_t to, uint64_t context, uint64_t invocation)
{
    struct mr_rpc_head head = {
        .number = 1, .context = context, .invocation = invocation, .time_left_us = UINT64_MAX};
    struct mr_value x = mr_value_tensor(mr_tensor_1d(MR_F32, ELEMENTS, xs));
    _Alignas(8) uint8_t first[256];
    uint32_t bytes = (uint32_t)mr_values_head_bytes("square", &x, 1);
    x.gradient = 1;
    assert_true(bytes <= sizeof(first));
    mr_values_write(first, &head, "square", &x, 1, NULL);
    return send_op(rpc, MR_OP_RPC_CALL, to, first, bytes, &x.tensor, 1);
}

static int setup_four(void **state)
{
    return math_world(state, 4);
}

/* A worker cannot take the place of another one's call. */
TEST(ones_that_name_anothers_call, setup_four, net_teardown)
{
    struct net *net = *state;
    struct mr_rpc *rpc = net->workers[1].rpc;
    struct graph *g = graph_new(net->workers[3].rpc);
    struct mr_value x = graph_leaf(g, xs, ELEMENTS), y = graph_call1(g, 0, "square", x);
    uint64_t of_3 = (UINT64_C(2) << MR_RPC_ID_SHIFT) | 1; /* with rank 1 before it, rank 3's first */
    struct message m = {.head = {.context = mr_autograd_id(g->context),
                                 .pass = (UINT64_C(1) << MR_RPC_ID_SHIFT) | 9,
                                 .invocation = of_3,
                                 .kind = MR_BACKWARD_REACH_RESULTS}};
    assert_int_equal(send_op(rpc, MR_OP_RPC_BACKWARD, 0, &m, sizeof(m.head), NULL, 0), MR_BAD_MESSAGE);
    said[0] = 0;
    assert_int_equal(call_square(rpc, 0, mr_autograd_id(g->context), of_3 + 1), MR_BAD_MESSAGE);
    assert_non_null(strstr(said, "its arguments cannot be recorded"));
    y = graph_call1(g, 0, "sum", y); /* rank 3's second */
    graph_backward(g, y);
    graph_expect(g, x, (float[]){2, 4, 6, 8}, ELEMENTS);
    graph_end(g);
}
