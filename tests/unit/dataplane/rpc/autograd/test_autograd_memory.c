/* Every allocation of the program's thread fails once, in turn: a step of training then says so or is right,
 * and nothing is lost. */
#include <stdio.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"

enum { WORKERS = 2, ELEMENTS = 4, ALLOCATIONS_MAX = 400 };

/* Of this thread: 0: none fails. */
static _Thread_local uint32_t fails_in;
static _Thread_local bool failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool fails_now(void)
{
    if (fails_in == 0 || --fails_in != 0)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(old, bytes);
}

static const float xs[ELEMENTS] = {1, 2, 3, 4};

/* sum(square(x) * x), the square on that worker. */
static enum mr_status forward(struct mr_rpc *rpc, uint32_t to, struct mr_autograd *context,
                              struct mr_value *x, struct mr_rpc_result *results[3])
{
    struct mr_rpc_call_options options = {.context = context};
    enum mr_status status = mr_autograd_leaf(context, mr_tensor_1d(MR_F32, ELEMENTS, xs), x);
    if (status == MR_OK)
        status = mr_rpc_sync(rpc, to, "square", x, 1, &options, &results[0]);
    if (status != MR_OK)
        return status;
    struct mr_value both[2] = {*mr_rpc_result_value(results[0], 0), *x};
    status = mr_autograd_apply(context, "mul", both, 2, &results[1]);
    return status == MR_OK
               ? mr_autograd_apply(context, "sum", mr_rpc_result_value(results[1], 0), 1, &results[2])
               : status;
}

static enum mr_status autograd_memory_step(struct mr_rpc *rpc, uint32_t to, bool *right)
{
    struct mr_rpc_result *results[3] = {NULL, NULL, NULL};
    struct mr_autograd *context;
    struct mr_value x;
    struct mr_tensor gradient = {0};
    enum mr_status status = mr_autograd_begin(rpc, &context);
    if (status != MR_OK)
        return status;
    status = forward(rpc, to, context, &x, results);
    if (status == MR_OK)
        status = mr_autograd_backward(context, mr_rpc_result_value(results[2], 0), 1, false);
    if (status == MR_OK)
        status = mr_autograd_gradient(context, &x, &gradient);
    *right = status == MR_OK && gradient.data != NULL;
    for (uint32_t i = 0; *right && i < ELEMENTS; i++) /* 3 x^2 */
        *right = ((const float *)gradient.data)[i] == 3 * xs[i] * xs[i];
    for (uint32_t i = 0; i < 3; i++)
        mr_rpc_result_free(results[i]);
    mr_autograd_end(context);
    return status;
}

TEST(each_allocation_fails_once)
{
    struct net net;
    net_world(&net, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        math_register(net.workers[i].rpc);
    for (uint32_t to = 0; to < WORKERS; to++) {
        uint32_t at = 1;
        do {
            bool right = false;
            assert_true(at < ALLOCATIONS_MAX);
            failed = false;
            fails_in = at++;
            enum mr_status status = autograd_memory_step(net.workers[0].rpc, to, &right);
            fails_in = 0;
            if (status == MR_OK)
                assert_true(right);
            else if (!failed || mr_rpc_last_error()[0] == 0)
                fail_msg("allocation %u: %s: %s", at - 1, mr_status_text(status), mr_rpc_last_error());
        } while (failed);
        assert_true(at > 10); /* something was tried */
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        while (contexts_known(net.workers[i].rpc->contexts) != 0)
            net_skip(&net, 20000);
    net_stop(&net);
    assert_int_equal(math_saved(), 0);
}
