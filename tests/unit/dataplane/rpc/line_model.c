#include "line_model.h"

#include <stdlib.h>
#include <string.h>

struct saved {
    struct mr_parameter_version *version;
    double off; /* w . x - t */
    uint32_t floats;
    float x[];
};

static void saved_free(void *arg)
{
    struct saved *saved = arg;
    mr_parameter_done(saved->version);
    free(saved);
}

static enum mr_status run_loss(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    const struct line_model *model = mr_rpc_user(call);
    const struct mr_tensor *x = &arguments[0].tensor;
    struct saved *saved = malloc(sizeof(*saved) + x->bytes);
    if (saved == NULL)
        return MR_NO_MEMORY;
    enum mr_status status = mr_parameter_read(model->parameter, &saved->version);
    if (status != MR_OK) {
        free(saved);
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    }
    const float *w = mr_parameter_tensor(saved->version)->data;
    saved->off = -arguments[1].f64;
    saved->floats = (uint32_t)(x->bytes / sizeof(float));
    memcpy(saved->x, x->data, x->bytes);
    for (uint32_t i = 0; i < saved->floats; i++)
        saved->off += (double)w[i] * (double)saved->x[i];
    float result = (float)(saved->off * saved->off);
    status = mr_rpc_return(call, mr_value_tensor(mr_tensor_0d(MR_F32, &result)));
    if (status != MR_OK) {
        saved_free(saved);
        return status;
    }
    return mr_rpc_save(call, saved, saved_free);
}

static enum mr_status run_backward(struct mr_rpc_call *call, void *arg, const struct mr_tensor *gradients,
                                   uint32_t count)
{
    const struct line_model *model = mr_rpc_user(call);
    const struct saved *saved = arg;
    const double by = 2 * saved->off * (double)*(const float *)gradients[0].data;
    const float *w = mr_parameter_tensor(saved->version)->data;
    float *of_w = malloc(saved->floats * sizeof(*of_w) + 1);
    void *of_x;
    if (of_w == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < saved->floats; i++)
        of_w[i] = (float)(by * (double)saved->x[i]);
    const struct mr_tensor gradient = mr_tensor_1d(MR_F32, saved->floats, of_w);
    enum mr_status status = mr_autograd_add_gradient(call, model->parameter, &gradient);
    free(of_w);
    if (status == MR_OK)
        status = mr_rpc_return_tensor(call, MR_F32, 1, &saved->floats, &of_x);
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    for (uint32_t i = 0; i < saved->floats; i++)
        ((float *)of_x)[i] = (float)(by * (double)w[i]);
    return mr_rpc_return(call, mr_value_none());
}

static enum mr_status parameter(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    const struct line_model *model = mr_rpc_user(call);
    return mr_rpc_return(call, mr_value_rref(model->parameter));
}

void line_functions(struct line_model *model, struct mr_rpc_function functions[LINE_FUNCTIONS])
{
    functions[0] = (struct mr_rpc_function){.name = "line.loss",
                                            .arguments = "f32[?], f64",
                                            .results = "f32[]",
                                            .run = run_loss,
                                            .backward = run_backward,
                                            .user = model};
    functions[1] = (struct mr_rpc_function){
        .name = "line.parameter", .arguments = "", .results = "ref", .run = parameter, .user = model};
}

float line_drawn(uint32_t stream, uint32_t element)
{
    uint32_t z = stream * 1009u + element;
    z = (z ^ z >> 16) * 0x7feb352du;
    z = (z ^ z >> 15) * 0x846ca68bu;
    return (float)((z ^ z >> 16) >> 8) * 0x1p-23f - 1.0f;
}

enum mr_status line_backward(struct mr_rpc *rpc, uint32_t first, uint32_t end, struct mr_tensor x, double t,
                             struct mr_autograd *context, double *loss)
{
    const struct mr_rpc_call_options options = {.context = context};
    struct mr_rpc_result *results[16] = {NULL};
    struct mr_value losses[16], input;
    enum mr_status status = mr_autograd_leaf(context, x, &input);
    const struct mr_value arguments[2] = {input, mr_value_f64(t)};
    *loss = 0;
    for (uint32_t to = first; to < end && status == MR_OK; to++) {
        status = mr_rpc_sync(rpc, to, "line.loss", arguments, 2, &options, &results[to - first]);
        if (status != MR_OK)
            break;
        losses[to - first] = *mr_rpc_result_value(results[to - first], 0);
        *loss += (double)*(const float *)losses[to - first].tensor.data;
    }
    if (status == MR_OK)
        status = mr_autograd_backward(context, losses, end - first, false);
    for (uint32_t i = 0; i < end - first; i++)
        mr_rpc_result_free(results[i]);
    return status;
}
