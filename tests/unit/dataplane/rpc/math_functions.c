#include "math_functions.h"

#include <stdlib.h>
#include <string.h>
#include "tests/test.h"

static _Atomic uint32_t saved_alive, backwards;

uint32_t math_saved(void)
{
    return atomic_load(&saved_alive);
}

uint32_t math_backwards(void)
{
    return atomic_load(&backwards);
}

struct saved {
    uint32_t count;
    struct mr_tensor tensors[2];
};

static void saved_free(void *arg)
{
    struct saved *saved = arg;
    for (uint32_t i = 0; i < saved->count; i++)
        free(saved->tensors[i].data);
    free(saved);
    atomic_fetch_sub(&saved_alive, 1);
}

static enum mr_status math_functions_save(struct mr_rpc_call *call, const struct mr_value *arguments,
                                          uint32_t count)
{
    struct saved *saved = calloc(1, sizeof(*saved));
    if (saved == NULL)
        return MR_NO_MEMORY;
    atomic_fetch_add(&saved_alive, 1);
    for (uint32_t i = 0; i < count; i++) {
        saved->tensors[i] = arguments[i].tensor;
        saved->tensors[i].data = malloc(arguments[i].tensor.bytes + 1);
        if (saved->tensors[i].data == NULL) {
            saved_free(saved);
            return MR_NO_MEMORY;
        }
        memcpy(saved->tensors[i].data, arguments[i].tensor.data, arguments[i].tensor.bytes);
        saved->count++;
    }
    return mr_rpc_save(call, saved, saved_free);
}

static uint64_t elements(const struct mr_tensor *t)
{
    return t->bytes / sizeof(float);
}

/* A result of the shape of `like`. */
static float *result_like(struct mr_rpc_call *call, const struct mr_tensor *like)
{
    void *data = NULL;
    return mr_rpc_return_tensor(call, MR_F32, like->rank, like->dims, &data) == MR_OK ? data : NULL;
}

/* Gives back factor * gradient, or factor alone where there is none for a whole tensor. */
static enum mr_status gradient_scaled(struct mr_rpc_call *call, const struct mr_tensor *gradient,
                                      const struct mr_tensor *other, float factor)
{
    const float *g = gradient->data, *o = other == NULL ? NULL : other->data;
    float *out = result_like(call, gradient);
    if (out == NULL)
        return MR_NO_MEMORY;
    for (uint64_t i = 0; i < elements(gradient); i++)
        out[i] = factor * g[i] * (o == NULL ? 1 : o[i]);
    return MR_OK;
}

/* ---- forward ---- */

static enum mr_status both(struct mr_rpc_call *call, const struct mr_value *a, bool multiply)
{
    const float *x = a[0].tensor.data, *y = a[1].tensor.data;
    if (a[0].tensor.bytes != a[1].tensor.bytes)
        return mr_rpc_fail(call, "the shapes differ");
    float *out = result_like(call, &a[0].tensor);
    if (out == NULL)
        return MR_NO_MEMORY;
    for (uint64_t i = 0; i < elements(&a[0].tensor); i++)
        out[i] = multiply ? x[i] * y[i] : x[i] + y[i];
    return math_functions_save(call, a, 2);
}

static enum mr_status mul(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return both(call, a, true);
}

static enum mr_status math_functions_add(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return both(call, a, false);
}

static enum mr_status square(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    const float *x = a[0].tensor.data;
    float *out = result_like(call, &a[0].tensor);
    if (out == NULL)
        return MR_NO_MEMORY;
    for (uint64_t i = 0; i < elements(&a[0].tensor); i++)
        out[i] = x[i] * x[i];
    return math_functions_save(call, a, 1);
}

static enum mr_status sum(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    const float *x = a[0].tensor.data;
    struct mr_tensor scalar = mr_tensor_0d(MR_F32, NULL);
    float *out = result_like(call, &scalar);
    if (out == NULL)
        return MR_NO_MEMORY;
    *out = 0;
    for (uint64_t i = 0; i < elements(&a[0].tensor); i++)
        *out += x[i];
    return math_functions_save(call, a, 1);
}

static enum mr_status twice(struct mr_rpc_call *call, const struct mr_value *a)
{
    const float *x = a[0].tensor.data;
    float *out = result_like(call, &a[0].tensor);
    if (out == NULL)
        return MR_NO_MEMORY;
    for (uint64_t i = 0; i < elements(&a[0].tensor); i++)
        out[i] = 2 * x[i];
    return MR_OK;
}

static enum mr_status math_functions_split(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    enum mr_status status = mr_rpc_return(call, a[0]);
    return status == MR_OK ? twice(call, a) : status;
}

static enum mr_status plain(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return twice(call, a);
}

static enum mr_status same(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return mr_rpc_return(call, a[0]);
}

/* The one result of a call within ours is ours. */
static enum mr_status pass_on(struct mr_rpc_call *call, uint32_t to, const char *name,
                              const struct mr_value *arguments, uint32_t count)
{
    struct mr_rpc_call_options options = {.context = mr_rpc_context(call)};
    struct mr_rpc_result *result;
    enum mr_status status = mr_rpc_sync(mr_rpc_of(call), to, name, arguments, count, &options, &result);
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    status = mr_rpc_return(call, *mr_rpc_result_value(result, 0));
    mr_rpc_result_free(result);
    return status;
}

static enum mr_status on(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return pass_on(call, (uint32_t)a[0].i64, a[1].string.text, a + 2, count - 2);
}

static enum mr_status bounce(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    struct mr_value pair[2] = {a[1], a[1]};
    struct mr_rpc_result *doubled;
    if (a[0].i64 == 0)
        return mr_rpc_return(call, a[1]);
    if (mr_autograd_apply(mr_rpc_context(call), "add", pair, 2, &doubled) != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    struct mr_value next[2] = {mr_value_i64(a[0].i64 - 1), *mr_rpc_result_value(doubled, 0)};
    enum mr_status status = pass_on(call, mr_rpc_caller(call), "bounce", next, 2);
    mr_rpc_result_free(doubled);
    return status;
}

/* ---- backward ---- */

static enum mr_status mul_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                   uint32_t count)
{
    struct saved *saved = arg;
    atomic_fetch_add(&backwards, 1);
    enum mr_status status = gradient_scaled(call, &gradients[0], &saved->tensors[1], 1);
    return status == MR_OK ? gradient_scaled(call, &gradients[0], &saved->tensors[0], 1) : status;
}

static enum mr_status add_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                   uint32_t count)
{
    atomic_fetch_add(&backwards, 1);
    enum mr_status status = gradient_scaled(call, &gradients[0], NULL, 1);
    return status == MR_OK ? gradient_scaled(call, &gradients[0], NULL, 1) : status;
}

static enum mr_status square_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                      uint32_t count)
{
    struct saved *saved = arg;
    atomic_fetch_add(&backwards, 1);
    return gradient_scaled(call, &gradients[0], &saved->tensors[0], 2);
}

static enum mr_status sum_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                   uint32_t count)
{
    struct saved *saved = arg;
    float *out = result_like(call, &saved->tensors[0]);
    atomic_fetch_add(&backwards, 1);
    if (out == NULL)
        return MR_NO_MEMORY;
    for (uint64_t i = 0; i < elements(&saved->tensors[0]); i++)
        out[i] = *(const float *)gradients[0].data;
    return MR_OK;
}

/* Either may be missing. */
static enum mr_status split_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                     uint32_t count)
{
    const struct mr_tensor *like = gradients[0].data != NULL ? &gradients[0] : &gradients[1];
    const float *first = gradients[0].data, *second = gradients[1].data;
    float *out = result_like(call, like);
    atomic_fetch_add(&backwards, 1);
    if (out == NULL)
        return MR_NO_MEMORY;
    for (uint64_t i = 0; i < elements(like); i++)
        out[i] = (first == NULL ? 0 : first[i]) + (second == NULL ? 0 : 2 * second[i]);
    return MR_OK;
}

static enum mr_status wrong_shape_backward(struct mr_rpc_call *call, void *arg,
                                           const struct mr_tensor *gradients, uint32_t count)
{
    static const float one = 1;
    return mr_rpc_return(call, mr_value_tensor(mr_tensor_2d(MR_F32, 1, 1, &one)));
}

static enum mr_status wrong_count_backward(struct mr_rpc_call *call, void *arg,
                                           const struct mr_tensor *gradients, uint32_t count)
{
    return MR_OK;
}

static enum mr_status failing_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                       uint32_t count)
{
    return mr_rpc_fail(call, "the matrix is singular");
}

void math_register(struct mr_rpc *rpc)
{
    static const struct mr_rpc_function functions[] = {
        {.name = "mul",
         .arguments = "f32[...], f32[...]",
         .results = "f32[...]",
         .run = mul,
         .backward = mul_backward},
        {.name = "add",
         .arguments = "f32[...], f32[...]",
         .results = "f32[...]",
         .run = math_functions_add,
         .backward = add_backward},
        {.name = "square",
         .arguments = "f32[...]",
         .results = "f32[...]",
         .run = square,
         .backward = square_backward},
        {.name = "sum", .arguments = "f32[...]", .results = "f32[]", .run = sum, .backward = sum_backward},
        {.name = "split",
         .arguments = "f32[...]",
         .results = "f32[...], f32[...]",
         .run = math_functions_split,
         .backward = split_backward},
        {.name = "plain", .arguments = "f32[...]", .results = "f32[...]", .run = plain},
        {.name = "same", .arguments = "tensor", .results = "tensor", .run = same},
        {.name = "on", .arguments = "i64, string, ...", .results = "tensor", .run = on},
        {.name = "bounce", .arguments = "i64, f32[...]", .results = "f32[...]", .run = bounce},
        {.name = "wrong_shape",
         .arguments = "tensor",
         .results = "tensor",
         .run = same,
         .backward = wrong_shape_backward},
        {.name = "wrong_count",
         .arguments = "tensor",
         .results = "tensor",
         .run = same,
         .backward = wrong_count_backward},
        {.name = "failing",
         .arguments = "tensor",
         .results = "tensor",
         .run = same,
         .backward = failing_backward},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
        if (mr_rpc_register(rpc, &functions[i]) != MR_OK)
            abort();
}

int math_world(void **state, uint32_t workers)
{
    struct net *net = malloc(sizeof(*net));
    *state = net;
    assert_non_null(net);
    net_world(net, workers);
    for (uint32_t i = 0; i < workers; i++)
        math_register(net->workers[i].rpc);
    return 0;
}

int math_world_end(void **state)
{
    net_stop(*state);
    free(*state);
    assert_int_equal(math_saved(), 0);
    return 0;
}
