#include "ps/modules/model/functions.h"

#include <stdlib.h>
#include <string.h>
#include "ps/modules/model/model.h"
#include "ps/modules/model/text.h"

#define ERROR_BYTES 320u
#define NAME_BYTES  63u /* as names of parameters */

/* A forward in a context, and what its backward needs to know besides. */
struct saved {
    struct ps_forward_pass *forward_pass;
    bool wants_input;
    struct mr_tensor input; /* its shape, without data */
};

/* ---- arguments ---- */

/* Held. NULL: the call has failed, with a text. */
static struct ps_model *model_of(struct mr_rpc_call *call, const struct mr_value *argument)
{
    const struct mr_value *value;
    struct ps_model *model = NULL;
    if (!mr_rref_is_owner(argument->rref)) {
        (void)mr_rpc_fail(call, "the network lies on rank %u: call it there", mr_rref_owner(argument->rref));
        return NULL;
    }
    if (mr_rref_local_value(argument->rref, 0, &value) != MR_OK) {
        (void)mr_rpc_fail(call, "the network: %s", mr_rpc_last_error());
        return NULL;
    }
    if (value->kind == MR_VALUE_OBJECT)
        model = ps_model_find(value->object);
    if (model == NULL)
        (void)mr_rpc_fail(call, "the first argument refers to no network of layers.network");
    return model;
}

/* 0: the call has failed, with a text. */
static uint32_t batch_of(struct mr_rpc_call *call, const struct ps_model *model,
                         const struct mr_tensor *input)
{
    const struct ps_shape *sample = ps_network_input(ps_model_network(model));
    uint32_t batch = input->rank == 0 ? 0 : input->dims[0];
    if (batch < 1 || batch > PS_BATCH_MAX ||
        input->bytes != batch * ps_shape_floats(sample) * sizeof(float)) {
        (void)mr_rpc_fail(
            call, "the input has %llu floats in %u samples; the network takes 1 to %u samples of %llu floats",
            (unsigned long long)(input->bytes / sizeof(float)), batch, PS_BATCH_MAX,
            (unsigned long long)ps_shape_floats(sample));
        return 0;
    }
    return batch;
}

static enum mr_status return_output(struct mr_rpc_call *call, const struct ps_model *model, uint32_t batch,
                                    void **data)
{
    const struct ps_shape *sample = ps_network_output(ps_model_network(model));
    uint32_t dims[MR_RANK_MAX] = {batch};
    memcpy(dims + 1, sample->dims, sample->rank * sizeof(dims[0]));
    return mr_rpc_return_tensor(call, MR_F32, sample->rank + 1, dims, data);
}

/* ---- functions ---- */

static bool is_text(const struct mr_value *value, uint32_t bytes_max)
{
    return value->kind == MR_VALUE_STRING && value->string.bytes <= bytes_max &&
           strlen(value->string.text) == value->string.bytes;
}

static enum mr_status run_network(struct mr_rpc_call *call, const struct mr_value *arguments,
                                  uint32_t argument_count)
{
    uint32_t parts = (uint32_t)(uintptr_t)mr_rpc_user(call);
    struct ps_model *model;
    char error[ERROR_BYTES];
    if (!is_text(&arguments[0], PS_MODEL_TEXT_BYTES))
        return mr_rpc_fail(call, "the network's text is no text of up to %u bytes", PS_MODEL_TEXT_BYTES);
    if (argument_count > 3 || (argument_count == 3 && !is_text(&arguments[2], NAME_BYTES)))
        return mr_rpc_fail(call, "the third argument is no name of up to %u bytes", NAME_BYTES);
    const char *name = argument_count == 3 ? arguments[2].string.text : NULL;
    if (ps_model_create(mr_rpc_of(call), arguments[0].string.text, (uint64_t)arguments[1].i64, parts, name,
                        &model, error, sizeof(error)) != MR_OK)
        return mr_rpc_fail(call, "%s", error);
    return mr_rpc_return_object(call, model, ps_model_release);
}

static enum mr_status run_parameter(struct mr_rpc_call *call, const struct mr_value *arguments,
                                    uint32_t argument_count)
{
    struct ps_model *model = model_of(call, &arguments[0]);
    if (model == NULL)
        return MR_FUNCTION_FAILED;
    enum mr_status status = mr_rpc_return(call, mr_value_rref(ps_model_parameter(model)));
    ps_model_release(model);
    return status;
}

static enum mr_status run_evaluate(struct mr_rpc_call *call, const struct mr_value *arguments,
                                   uint32_t argument_count)
{
    const struct mr_tensor *input = &arguments[1].tensor;
    struct ps_model *model = model_of(call, &arguments[0]);
    void *output;
    if (model == NULL)
        return MR_FUNCTION_FAILED;
    uint32_t batch = batch_of(call, model, input);
    enum mr_status status = batch == 0 ? MR_FUNCTION_FAILED : return_output(call, model, batch, &output);
    if (batch != 0 && status == MR_OK)
        status = ps_model_evaluate(model, input->data, batch, output);
    ps_model_release(model);
    return status;
}

static void saved_destroy(void *p)
{
    struct saved *saved = p;
    ps_forward_pass_destroy(saved->forward_pass);
    free(saved);
}

static enum mr_status functions_save(struct mr_rpc_call *call, struct ps_forward_pass *forward_pass,
                                     const struct mr_value *input)
{
    struct saved *saved = malloc(sizeof(*saved));
    if (saved == NULL) {
        ps_forward_pass_destroy(forward_pass);
        return MR_NO_MEMORY;
    }
    *saved = (struct saved){
        .forward_pass = forward_pass, .wants_input = input->gradient != 0, .input = input->tensor};
    saved->input.data = NULL;
    enum mr_status status = mr_rpc_save(call, saved, saved_destroy);
    if (status != MR_OK)
        saved_destroy(saved);
    return status;
}

static enum mr_status run_forward(struct mr_rpc_call *call, const struct mr_value *arguments,
                                  uint32_t argument_count)
{
    const struct mr_tensor *input = &arguments[2].tensor;
    struct ps_model *model = model_of(call, &arguments[0]);
    struct ps_forward_pass *forward_pass;
    void *output;
    if (model == NULL)
        return MR_FUNCTION_FAILED;
    uint32_t batch = batch_of(call, model, input);
    enum mr_status status = batch == 0 ? MR_FUNCTION_FAILED : return_output(call, model, batch, &output);
    if (batch != 0 && status == MR_OK)
        status =
            ps_model_forward(model, (uint64_t)arguments[1].i64, input->data, batch, output, &forward_pass);
    if (batch != 0 && status == MR_OK)
        status = functions_save(call, forward_pass, &arguments[2]);
    ps_model_release(model);
    return status;
}

static enum mr_status add_gradient(void *call, struct mr_rref *parameter, const struct mr_tensor *gradient)
{
    return mr_autograd_add_gradient(call, parameter, gradient);
}

static enum mr_status back(struct mr_rpc_call *call, void *p, const struct mr_tensor *gradients,
                           uint32_t gradient_count)
{
    const struct saved *saved = p;
    void *input_gradient = NULL;
    enum mr_status status = mr_rpc_return(call, mr_value_none()); /* the network */
    if (status == MR_OK)
        status = mr_rpc_return(call, mr_value_none()); /* the step */
    if (status == MR_OK && saved->wants_input && gradients[0].data != NULL)
        status = mr_rpc_return_tensor(call, MR_F32, saved->input.rank, saved->input.dims, &input_gradient);
    else if (status == MR_OK)
        status = mr_rpc_return(call, mr_value_none());
    if (status == MR_OK && gradients[0].data != NULL)
        status =
            ps_model_backward(saved->forward_pass, gradients[0].data, input_gradient, add_gradient, call);
    return status;
}

void ps_model_functions(uint32_t parts, struct mr_rpc_function out[PS_MODEL_FUNCTIONS])
{
    out[0] = (struct mr_rpc_function){
        .name = "layers.network", .arguments = "string, i64, ...", .results = "object", .run = run_network};
    out[0].user = (void *)(uintptr_t)parts; // NOLINT(performance-no-int-to-ptr): a number, not a place
    out[1] = (struct mr_rpc_function){
        .name = "layers.parameter", .arguments = "ref", .results = "ref", .run = run_parameter};
    out[2] = (struct mr_rpc_function){.name = "layers.forward",
                                      .arguments = "ref, i64, f32[...]",
                                      .results = "f32[...]",
                                      .run = run_forward,
                                      .backward = back};
    out[3] = (struct mr_rpc_function){
        .name = "layers.evaluate", .arguments = "ref, f32[...]", .results = "f32[...]", .run = run_evaluate};
}

enum mr_status ps_model_register(struct mr_rpc *rpc, uint32_t parts)
{
    struct mr_rpc_function functions[PS_MODEL_FUNCTIONS];
    enum mr_status status = MR_OK;
    ps_model_functions(parts, functions);
    for (uint32_t i = 0; i < PS_MODEL_FUNCTIONS && status == MR_OK; i++)
        status = mr_rpc_register(rpc, &functions[i]);
    return status;
}
