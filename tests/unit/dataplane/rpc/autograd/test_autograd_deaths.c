/* A worker dies at some moment while all of them train: everybody who waits gets an answer, the others go on,
 * and nothing is left. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "graph.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { WORKERS = 4, VICTIM = 3, ELEMENTS = 4, TRAINERS = 6, WORLDS = 6, SECOND_US = 1000000 };

static const float xs[ELEMENTS] = {1, 2, 3, 4};

struct trainer {
    struct mr_rpc *rpc;
    pthread_t thread;
    _Atomic bool *stop;
    _Atomic uint32_t right, died; /* died: or something was wrong */
    char wrong[512];
};

/* sum(square(square(x))) on w1 by w3, and x again; whoever dies. */
static enum mr_status autograd_deaths_step(struct trainer *t, struct mr_autograd *context, struct mr_value *x)
{
    struct mr_rpc_call_options options = {.context = context};
    struct mr_rpc_result *far = NULL, *near = NULL, *loss = NULL;
    struct mr_value arguments[] = {mr_value_i64(1), mr_value_string("on"), mr_value_i64(2),
                                   mr_value_string("square"), *x};
    enum mr_status status = mr_rpc_sync(t->rpc, VICTIM, "on", arguments, 5, &options, &far);
    if (status == MR_OK)
        status = mr_rpc_sync(t->rpc, 2, "square", mr_rpc_result_value(far, 0), 1, &options, &near);
    if (status == MR_OK)
        status = mr_autograd_apply(context, "sum", mr_rpc_result_value(near, 0), 1, &loss);
    if (status == MR_OK)
        status = mr_autograd_backward(context, mr_rpc_result_value(loss, 0), 1, false);
    mr_rpc_result_free(far);
    mr_rpc_result_free(near);
    mr_rpc_result_free(loss);
    return status;
}

static void *train(void *arg)
{
    struct trainer *t = arg;
    while (!atomic_load(t->stop) && t->wrong[0] == 0) {
        struct mr_autograd *context;
        struct mr_value x;
        struct mr_tensor gradient;
        assert_int_equal(mr_autograd_begin(t->rpc, &context), MR_OK);
        assert_int_equal(mr_autograd_leaf(context, mr_tensor_1d(MR_F32, ELEMENTS, xs), &x), MR_OK);
        enum mr_status status = autograd_deaths_step(t, context, &x);
        if (status == MR_OK) { /* x^4 */
            static const float expected[ELEMENTS] = {4, 32, 108, 256};
            t->right++;
            assert_int_equal(mr_autograd_gradient(context, &x, &gradient), MR_OK);
            for (uint32_t i = 0; i < ELEMENTS; i++)
                if (gradient.data == NULL || ((const float *)gradient.data)[i] != expected[i])
                    snprintf(t->wrong, sizeof(t->wrong), "a gradient is wrong");
        } else if (strstr(mr_rpc_last_error(), "died") != NULL ||
                   strstr(mr_rpc_last_error(), "taken for dead") != NULL ||
                   strstr(mr_rpc_last_error(), "time-out") !=
                       NULL) { /* time goes by faster than threads may run */
            t->died++;
        } else {
            snprintf(t->wrong, sizeof(t->wrong), "%s", mr_rpc_last_error());
        }
        mr_autograd_end(context);
    }
    atomic_fetch_add(&t->died, t->wrong[0] != 0);
    return NULL;
}

static uint32_t all_right(struct trainer *trainers)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < TRAINERS; i++)
        right += atomic_load(&trainers[i].right);
    return right;
}

/* Each has met it, or found something wrong. */
static bool all_met_death(struct trainer *trainers)
{
    bool met = true;
    for (uint32_t i = 0; i < TRAINERS; i++)
        met = met && atomic_load(&trainers[i].died) > 0;
    return met;
}

static void one_world(uint32_t steps_before)
{
    struct net *net = malloc(sizeof(*net));
    struct trainer trainers[TRAINERS];
    _Atomic bool stop = false;
    assert_non_null(net);
    net_world(net, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        math_register(net->workers[i].rpc);
    for (uint32_t i = 0; i < TRAINERS; i++) { /* also on the one that dies */
        trainers[i] = (struct trainer){.rpc = net->workers[i % WORKERS].rpc, .stop = &stop};
        assert_int_equal(pthread_create(&trainers[i].thread, NULL, train, &trainers[i]), 0);
    }
    WAIT_UNTIL(all_right(trainers) >= steps_before);
    net_silence(net, VICTIM, true);
    net_skip(net, 25 * SECOND_US);
    WAIT_UNTIL(net_skip(net, SECOND_US / 10), all_met_death(trainers));
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < TRAINERS; i++) {
        pthread_join(trainers[i].thread, NULL);
        if (trainers[i].wrong[0] != 0)
            fail_msg("trainer %u: %s", i, trainers[i].wrong);
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        WAIT_UNTIL(i == VICTIM || contexts_known(net->workers[i].rpc->contexts) == 0);
    net_stop(net);
    free(net);
    assert_int_equal(math_saved(), 0);
}

TEST(at_some_moment)
{
    for (uint32_t i = 0; i < WORLDS; i++)
        one_world(i * 7);
}
