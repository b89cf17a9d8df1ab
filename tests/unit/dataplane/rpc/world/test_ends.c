/* Ends in any order: a worker is destroyed while futures, results, references, contexts, versions and
 * optimizers of it are out, which are released afterwards. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#include "tests/test.h"

enum {
    SMALL = 4,     /* floats: copied */
    LARGE = 20000, /* they stay where they were received */
};

static _Atomic uint32_t saved_alive;

static void drop_saved(void *saved)
{
    free(saved);
    atomic_fetch_sub(&saved_alive, 1);
}

static enum mr_status ends_save(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    atomic_fetch_add(&saved_alive, 1);
    (void)mr_rpc_save(call, malloc(1), drop_saved);
    return mr_rpc_return(call, arguments[0]);
}

static enum mr_status save_backward(struct mr_rpc_call *call, void *saved, const struct mr_tensor *gradients,
                                    uint32_t count)
{
    return mr_rpc_return(call, mr_value_tensor(gradients[0]));
}

/* ---- what a program may hold ---- */

enum handle {
    FUTURE,
    SMALL_RESULT,
    LARGE_RESULT,
    OWN_RREF,
    MADE_RREF,
    REMOTE_RREF,
    CONTEXT,
    VERSION,
    OPTIMIZER,
    HANDLES
};

struct held {
    struct mr_rpc_future *future;
    struct mr_rpc_result *small, *large;
    struct mr_rref *own, *made, *remote;
    struct mr_autograd *context;
    struct mr_parameter_version *version;
    struct mr_dist_optimizer *optimizer;
};

static struct mr_rpc_result *mirrored(struct mr_rpc *rpc, uint32_t floats)
{
    float *data = calloc(floats, sizeof(*data));
    struct mr_rpc_result *result;
    data[floats - 1] = 7;
    struct mr_value argument = mr_value_tensor(mr_tensor_1d(MR_F32, floats, data));

    made(mr_rpc_sync(rpc, 1, "mirror", &argument, 1, NULL, &result));
    free(data);
    return result;
}

static void record_something(struct mr_autograd *context)
{
    float one = 1;
    struct mr_value leaf;
    made(mr_autograd_leaf(context, mr_tensor_1d(MR_F32, 1, &one), &leaf));
    made(mr_autograd_apply(context, "save", &leaf, 1, NULL));
}

static struct mr_rref *parameter(struct mr_rpc *rpc)
{
    float two = 2;
    struct mr_tensor initial = mr_tensor_1d(MR_F32, 1, &two);
    struct mr_rref *rref;
    made(mr_parameter_create(rpc, &initial, &rref));
    return rref;
}

static void hold(struct mr_rpc *rpc, enum handle kind, struct held *held)
{
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 1};
    struct mr_value seven = mr_value_i64(7);
    const struct mr_value *value;
    struct mr_rref *rref;
    switch (kind) {
    case FUTURE:
        made(mr_rpc_async(rpc, 1, "mirror", &seven, 1, NULL, &held->future));
        break;
    case SMALL_RESULT:
        held->small = mirrored(rpc, SMALL);
        break;
    case LARGE_RESULT:
        held->large = mirrored(rpc, LARGE);
        break;
    case OWN_RREF:
        made(mr_rref_create(rpc, seven, NULL, &held->own));
        break;
    case MADE_RREF:
        made(mr_remote(rpc, 0, "mirror", &seven, 1, NULL, &held->made));
        made(mr_rref_local_value(held->made, 0, &value));
        break;
    case REMOTE_RREF:
        made(mr_remote(rpc, 1, "mirror", &seven, 1, NULL, &held->remote));
        break;
    case CONTEXT:
        made(mr_autograd_begin(rpc, &held->context));
        record_something(held->context);
        break;
    case VERSION:
        rref = parameter(rpc);
        made(mr_parameter_read(rref, &held->version));
        mr_rref_release(rref);
        break;
    default:
        rref = parameter(rpc);
        made(mr_dist_optimizer_create(rpc, &sgd, &rref, 1, &held->optimizer));
        mr_rref_release(rref);
    }
}

static void expect_floats(const struct mr_rpc_result *result, uint32_t floats)
{
    const struct mr_tensor *tensor = &mr_rpc_result_value(result, 0)->tensor;
    assert_int_equal(tensor->bytes, floats * sizeof(float));
    assert_true(((const float *)tensor->data)[floats - 1] == 7);
}

/* What it brought is there until now. */
static void let_go(struct held *held, enum handle kind)
{
    switch (kind) {
    case FUTURE:
        mr_rpc_cancel(held->future);
        mr_rpc_future_destroy(held->future);
        break;
    case SMALL_RESULT:
        expect_floats(held->small, SMALL);
        mr_rpc_result_free(held->small);
        break;
    case LARGE_RESULT:
        expect_floats(held->large, LARGE);
        mr_rpc_result_free(held->large);
        break;
    case OWN_RREF:
        mr_rref_release(held->own);
        break;
    case MADE_RREF:
        mr_rref_release(held->made);
        break;
    case REMOTE_RREF:
        assert_int_equal(mr_rref_owner(held->remote), 1);
        mr_rref_release(held->remote);
        break;
    case CONTEXT:
        mr_autograd_end(held->context);
        break;
    case VERSION:
        assert_true(*(const float *)mr_parameter_tensor(held->version)->data == 2);
        mr_parameter_done(held->version);
        break;
    default:
        mr_dist_optimizer_destroy(held->optimizer);
    }
}

/* ---- worlds ---- */

static void ends_begin(struct net *net)
{
    net_world(net, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct mr_rpc_function saves = {.name = "save",
                                        .arguments = "f32[?]",
                                        .results = "f32[?]",
                                        .run = ends_save,
                                        .backward = save_backward};
        net_function(net->workers[i].rpc, "mirror", "...", "...", net_mirror, NULL, 0);
        made(mr_rpc_register(net->workers[i].rpc, &saves));
    }
}

/* The other worker may believe that the one that went without a word still holds something of it. */
static void ends_end(struct net *net)
{
    net_silence(net, 1, true);
    net_stop(net);
}

TEST(each_kind_of_handle_outlives_its_worker)
{
    for (uint32_t kind = 0; kind < HANDLES; kind++) {
        struct held held = {.future = NULL};
        struct net net;
        ends_begin(&net);
        hold(net.workers[0].rpc, kind, &held);
        net_end(&net, 0);
        assert_int_equal(net_is_gone(&net, 0), kind == VERSION); /* which was never the worker's */
        let_go(&held, kind);
        assert_true(net_is_gone(&net, 0));
        assert_int_equal(atomic_load(&saved_alive), 0);
        ends_end(&net);
    }
}

/* All permutations, by Heap's algorithm, of releasing these and destroying the worker. */
enum { ORDER = 6 };
static const enum handle ordered[ORDER] = {FUTURE, LARGE_RESULT, MADE_RREF, REMOTE_RREF, CONTEXT, HANDLES};

static void end_in_order(const uint32_t *order)
{
    struct held held = {.future = NULL};
    struct net net;
    ends_begin(&net);
    for (uint32_t i = 0; i < ORDER; i++)
        if (ordered[i] != HANDLES)
            hold(net.workers[0].rpc, ordered[i], &held);
    for (uint32_t i = 0; i < ORDER; i++) {
        assert_false(net_is_gone(&net, 0));
        if (ordered[order[i]] == HANDLES)
            net_end(&net, 0);
        else
            let_go(&held, ordered[order[i]]);
    }
    assert_true(net_is_gone(&net, 0));
    assert_int_equal(atomic_load(&saved_alive), 0);
    ends_end(&net);
}

static void permute(uint32_t *order, uint32_t count)
{
    if (count == 1) {
        end_in_order(order);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = count % 2 == 0 ? i : 0, kept;
        permute(order, count - 1);
        kept = order[other];
        order[other] = order[count - 1];
        order[count - 1] = kept;
    }
}

TEST(every_order_of_ends_is_safe)
{
    uint32_t order[ORDER] = {0, 1, 2, 3, 4, 5};
    permute(order, ORDER);
}

/* ---- together ---- */

struct releasing {
    struct held *held;
    enum handle kind;
    pthread_barrier_t *together;
};

static void *release(void *arg)
{
    struct releasing *r = arg;
    (void)pthread_barrier_wait(r->together);
    let_go(r->held, r->kind);
    return NULL;
}

TEST(threads_release_while_the_worker_ends)
{
    enum { ROUNDS = 30, THREADS = 5 };

    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct held held = {.future = NULL};
        struct releasing releasing[THREADS];
        pthread_t threads[THREADS];
        pthread_barrier_t together;
        struct net net;
        ends_begin(&net);
        pthread_barrier_init(&together, NULL, THREADS + 1);
        for (uint32_t i = 0; i < THREADS; i++) {
            hold(net.workers[0].rpc, ordered[i], &held);
            releasing[i] = (struct releasing){.held = &held, .kind = ordered[i], .together = &together};
            assert_int_equal(pthread_create(&threads[i], NULL, release, &releasing[i]), 0);
        }
        (void)pthread_barrier_wait(&together);
        for (uint32_t i = 0; i < round; i++)
            sched_yield();
        net_end(&net, 0);
        for (uint32_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_true(net_is_gone(&net, 0));
        pthread_barrier_destroy(&together);
        ends_end(&net);
    }
}

/* ---- what else is asked of them ---- */

TEST(a_call_under_way_ends_with_the_worker)
{
    struct mr_value seven = mr_value_i64(7);
    struct mr_rpc_future *future;
    struct net net;
    ends_begin(&net);
    net_silence(&net, 1, true);
    made(mr_rpc_async(net.workers[0].rpc, 1, "mirror", &seven, 1, NULL, &future));
    net_end(&net, 0);
    assert_true(mr_rpc_done(future));
    expect_error(MR_SHUTTING_DOWN, mr_rpc_wait(future, NULL), "mirror");
    assert_false(net_is_gone(&net, 0));
    mr_rpc_future_destroy(future);
    assert_true(net_is_gone(&net, 0));
    ends_end(&net);
}

TEST(handles_can_only_be_released_then)
{
    struct held held = {.future = NULL};
    struct mr_rref *own;
    const struct mr_value *value;
    struct mr_parameter_version *version;
    struct mr_rpc_result *result;
    struct mr_value loss = mr_value_none();
    struct net net;
    ends_begin(&net);
    hold(net.workers[0].rpc, MADE_RREF, &held);
    hold(net.workers[0].rpc, REMOTE_RREF, &held);
    hold(net.workers[0].rpc, CONTEXT, &held);
    hold(net.workers[0].rpc, OPTIMIZER, &held);
    own = parameter(net.workers[0].rpc);
    net_end(&net, 0);
    expect_error(MR_SHUTTING_DOWN, mr_rref_local_value(held.made, 0, &value), "destroyed");
    expect_error(MR_SHUTTING_DOWN, mr_rref_to_here(held.made, 0, &result), "destroyed");
    expect_error(MR_SHUTTING_DOWN, mr_rref_to_here(held.remote, 0, &result), "destroyed");
    expect_error(MR_SHUTTING_DOWN, mr_rref_confirm(held.remote, 0), "destroyed");
    expect_error(MR_SHUTTING_DOWN, mr_parameter_read(own, &version), "destroyed");
    expect_error(MR_INVALID_ARGUMENT, mr_autograd_backward(held.context, &loss, 1, false), "it has ended");
    expect_error(MR_SHUTTING_DOWN, mr_dist_optimizer_step(held.optimizer, held.context, 0), "has left");
    mr_rref_release(own);
    let_go(&held, MADE_RREF);
    let_go(&held, REMOTE_RREF);
    let_go(&held, OPTIMIZER);
    assert_false(net_is_gone(&net, 0));
    let_go(&held, CONTEXT);
    assert_true(net_is_gone(&net, 0));
    ends_end(&net);
}
