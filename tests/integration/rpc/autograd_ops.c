#include "tests/integration/rpc/autograd_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is kept for the way back: copies of up to two tensors ---- */

struct kept {
    struct mr_tensor tensors[2];
};

static void kept_free(void *arg)
{
    struct kept *kept = arg;
    free(kept->tensors[0].data);
    free(kept->tensors[1].data);
    free(kept);
}

static enum mr_status autograd_ops_keep(struct mr_rpc_call *call, const struct mr_tensor *first,
                                        const struct mr_tensor *second)
{
    struct kept *kept = calloc(1, sizeof(*kept));
    const struct mr_tensor *both[2] = {first, second};
    for (uint32_t i = 0; kept != NULL && i < 2; i++) {
        if (both[i] == NULL)
            continue;
        kept->tensors[i] = *both[i];
        kept->tensors[i].data = malloc(both[i]->bytes);
        if (kept->tensors[i].data == NULL) {
            kept_free(kept);
            return MR_NO_MEMORY;
        }
        memcpy(kept->tensors[i].data, both[i]->data, both[i]->bytes);
    }
    return kept == NULL ? MR_NO_MEMORY : mr_rpc_save(call, kept, kept_free);
}

static uint64_t elements(const struct mr_tensor *t)
{
    return t->bytes / sizeof(float);
}

static enum mr_status result_like(struct mr_rpc_call *call, const struct mr_tensor *like, float **out)
{
    void *data;
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, like->rank, like->dims, &data);
    *out = data;
    return status;
}

/* ---- element by element ---- */

static enum mr_status autograd_ops_add(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    const float *x = a[0].tensor.data, *y = a[1].tensor.data;
    float *out;
    enum mr_status status = result_like(call, &a[0].tensor, &out);
    for (uint64_t i = 0; status == MR_OK && i < elements(&a[0].tensor); i++)
        out[i] = x[i] + y[i];
    return status;
}

static enum mr_status add_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                               uint32_t count)
{
    enum mr_status status = mr_rpc_return(call, mr_value_tensor(g[0]));
    return status == MR_OK ? mr_rpc_return(call, mr_value_tensor(g[0])) : status;
}

static enum mr_status product(struct mr_rpc_call *call, const struct mr_tensor *a, const struct mr_tensor *b)
{
    const float *x = a->data, *y = b->data;
    float *out;
    enum mr_status status = result_like(call, a, &out);
    for (uint64_t i = 0; status == MR_OK && i < elements(a); i++)
        out[i] = x[i] * y[i];
    return status;
}

static enum mr_status mul(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    enum mr_status status = product(call, &a[0].tensor, &a[1].tensor);
    return status == MR_OK ? autograd_ops_keep(call, &a[0].tensor, &a[1].tensor) : status;
}

static enum mr_status mul_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                               uint32_t count)
{
    const struct kept *kept = saved;
    enum mr_status status = product(call, &g[0], &kept->tensors[1]);
    return status == MR_OK ? product(call, &g[0], &kept->tensors[0]) : status;
}

static enum mr_status squash(struct mr_rpc_call *call, const struct mr_tensor *a, bool is_tanh)
{
    const float *x = a->data;
    struct mr_tensor result = *a;
    float *out;
    enum mr_status status = result_like(call, a, &out);
    for (uint64_t i = 0; status == MR_OK && i < elements(a); i++)
        out[i] = is_tanh ? tanhf(x[i]) : 1 / (1 + expf(-x[i]));
    result.data = out;
    return status == MR_OK ? autograd_ops_keep(call, &result, NULL) : status;
}

static enum mr_status squash_back(struct mr_rpc_call *call, const struct kept *kept,
                                  const struct mr_tensor *g, bool is_tanh)
{
    const float *y = kept->tensors[0].data, *gradient = g->data;
    float *out;
    enum mr_status status = result_like(call, g, &out);
    for (uint64_t i = 0; status == MR_OK && i < elements(g); i++)
        out[i] = gradient[i] * (is_tanh ? 1 - y[i] * y[i] : y[i] * (1 - y[i]));
    return status;
}

static enum mr_status tanh_(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return squash(call, &a[0].tensor, true);
}

static enum mr_status tanh_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                                uint32_t count)
{
    return squash_back(call, saved, g, true);
}

static enum mr_status sigmoid(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return squash(call, &a[0].tensor, false);
}

static enum mr_status sigmoid_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                                   uint32_t count)
{
    return squash_back(call, saved, g, false);
}

/* ---- matrices ---- */

/* out[i, j] = sum over k of a[i, k] * b[k, j], either as it is or transposed. */
static enum mr_status multiply(struct mr_rpc_call *call, const struct mr_tensor *a, bool a_turned,
                               const struct mr_tensor *b, bool b_turned)
{
    uint32_t rows = a->dims[a_turned], inner = a->dims[!a_turned], cols = b->dims[!b_turned];
    struct mr_tensor shape = mr_tensor_2d(MR_F32, rows, cols, NULL);
    const float *x = a->data, *y = b->data;
    float *out;
    enum mr_status status = result_like(call, &shape, &out);
    for (uint32_t i = 0; status == MR_OK && i < rows; i++) {
        for (uint32_t j = 0; j < cols; j++) {
            double sum = 0;
            for (uint32_t k = 0; k < inner; k++)
                sum += (double)x[a_turned ? k * rows + i : i * inner + k] *
                       (double)y[b_turned ? j * inner + k : k * cols + j];
            out[i * cols + j] = (float)sum;
        }
    }
    return status;
}

static enum mr_status matmul(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    if (a[0].tensor.dims[1] != a[1].tensor.dims[0])
        return mr_rpc_fail(call, "the matrices do not fit");
    enum mr_status status = multiply(call, &a[0].tensor, false, &a[1].tensor, false);

    return status == MR_OK ? autograd_ops_keep(call, &a[0].tensor, &a[1].tensor) : status;
}

static enum mr_status matmul_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                                  uint32_t count)
{
    const struct kept *kept = saved;
    enum mr_status status = multiply(call, &g[0], false, &kept->tensors[1], true);
    return status == MR_OK ? multiply(call, &kept->tensors[0], true, &g[0], false) : status;
}

/* The upper half of the rows, and the lower. */
static enum mr_status halves(struct mr_rpc_call *call, const struct mr_tensor *a)
{
    struct mr_tensor upper = mr_tensor_2d(MR_F32, a->dims[0] / 2, a->dims[1], a->data), lower = upper;
    lower.data = (float *)a->data + elements(&upper);
    enum mr_status status = mr_rpc_return(call, mr_value_tensor(upper));

    return status == MR_OK ? mr_rpc_return(call, mr_value_tensor(lower)) : status;
}

/* The second under the first; what is missing is 0. */
static enum mr_status autograd_ops_join(struct mr_rpc_call *call, const struct mr_tensor *a,
                                        const struct mr_tensor *b)
{
    struct mr_tensor shape = mr_tensor_2d(MR_F32, 2 * a->dims[0], a->dims[1], NULL);
    float *out;
    enum mr_status status = result_like(call, &shape, &out);
    if (status != MR_OK)
        return status;
    memset(out, 0, shape.bytes);
    if (a->data != NULL)
        memcpy(out, a->data, a->bytes);
    if (b->data != NULL)
        memcpy(out + elements(a), b->data, b->bytes);
    return MR_OK;
}

static enum mr_status chunk(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return halves(call, &a[0].tensor);
}

static enum mr_status chunk_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                                 uint32_t count)
{
    return autograd_ops_join(call, &g[0], &g[1]);
}

static enum mr_status concat(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    return autograd_ops_join(call, &a[0].tensor, &a[1].tensor);
}

static enum mr_status concat_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                                  uint32_t count)
{
    return halves(call, &g[0]);
}

static enum mr_status mean(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    const float *x = a[0].tensor.data;
    struct mr_tensor shape = mr_tensor_0d(MR_F32, NULL);
    double sum = 0;
    float *out;
    enum mr_status status = result_like(call, &shape, &out);
    if (status != MR_OK)
        return status;
    for (uint64_t i = 0; i < elements(&a[0].tensor); i++)
        sum += (double)x[i];
    *out = (float)(sum / (double)elements(&a[0].tensor));
    return autograd_ops_keep(call, &a[0].tensor, NULL);
}

static enum mr_status mean_back(struct mr_rpc_call *call, void *saved, const struct mr_tensor *g,
                                uint32_t count)
{
    const struct kept *kept = saved;
    const struct mr_tensor *like = &kept->tensors[0];
    float *out;
    enum mr_status status = result_like(call, like, &out);
    for (uint64_t i = 0; status == MR_OK && i < elements(like); i++)
        out[i] = *(const float *)g[0].data / (float)elements(like);
    return status;
}

/* ---- without a way back of their own ---- */

static enum mr_status return_all(struct mr_rpc_call *call, enum mr_status status,
                                 struct mr_rpc_result *result)
{
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    for (uint32_t i = 0; i < mr_rpc_result_count(result) && status == MR_OK; i++)
        status = mr_rpc_return(call, *mr_rpc_result_value(result, i));
    mr_rpc_result_free(result);
    return status;
}

static enum mr_status autograd_ops_apply(struct mr_rpc_call *call, const char *name, const struct mr_value *a,
                                         uint32_t count)
{
    struct mr_rpc_result *result = NULL;
    enum mr_status status = mr_autograd_apply(mr_rpc_context(call), name, a, count, &result);
    return return_all(call, status, result);
}

static enum mr_status pair(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    enum mr_status status = autograd_ops_apply(call, "tanh", a, 1);
    return status == MR_OK ? autograd_ops_apply(call, "sigmoid", a + 1, 1) : status;
}

static enum mr_status here(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    struct mr_value values[MR_RPC_ARGUMENTS_MAX];
    for (uint32_t i = 1; i < count; i++) {
        const struct mr_value *kept;
        values[i - 1] = a[i];
        if (a[i].kind != MR_VALUE_RREF)
            continue;
        if (mr_rref_local_value(a[i].rref, 0, &kept) != MR_OK)
            return mr_rpc_fail(call, "%s", mr_rpc_last_error());
        values[i - 1] = *kept;
    }
    return autograd_ops_apply(call, a[0].string.text, values, count - 1);
}

static enum mr_status on(struct mr_rpc_call *call, const struct mr_value *a, uint32_t count)
{
    struct mr_rpc_call_options options = {.context = mr_rpc_context(call)};
    struct mr_rpc_result *result = NULL;
    enum mr_status status =
        mr_rpc_sync(mr_rpc_of(call), (uint32_t)a[0].i64, "here", a + 1, count - 1, &options, &result);
    return return_all(call, status, result);
}

#define MATRIX "f32[?,?]"

const struct mr_rpc_function autograd_ops[AUTOGRAD_OPS] = {
    {.name = "add",
     .arguments = MATRIX ", " MATRIX,
     .results = MATRIX,
     .run = autograd_ops_add,
     .backward = add_back},
    {.name = "mul", .arguments = MATRIX ", " MATRIX, .results = MATRIX, .run = mul, .backward = mul_back},
    {.name = "tanh", .arguments = MATRIX, .results = MATRIX, .run = tanh_, .backward = tanh_back},
    {.name = "sigmoid", .arguments = MATRIX, .results = MATRIX, .run = sigmoid, .backward = sigmoid_back},
    {.name = "matmul",
     .arguments = MATRIX ", " MATRIX,
     .results = MATRIX,
     .run = matmul,
     .backward = matmul_back},
    {.name = "chunk",
     .arguments = MATRIX,
     .results = MATRIX ", " MATRIX,
     .run = chunk,
     .backward = chunk_back},
    {.name = "concat",
     .arguments = MATRIX ", " MATRIX,
     .results = MATRIX,
     .run = concat,
     .backward = concat_back},
    {.name = "mean", .arguments = MATRIX, .results = "f32[]", .run = mean, .backward = mean_back},
    {.name = "pair", .arguments = MATRIX ", " MATRIX, .results = MATRIX ", " MATRIX, .run = pair},
    {.name = "here", .arguments = "string, ...", .results = "tensor, ...", .run = here},
    {.name = "on", .arguments = "i64, string, ...", .results = "tensor, ...", .run = on},
};
