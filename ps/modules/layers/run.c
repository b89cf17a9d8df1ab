/* Forward and backward of a network: the stages of a plan, one after the other. */
#include <stdlib.h>
#include <string.h>
#include "ps/modules/layers/network_internal.h"
#include "ps/modules/layers/plan.h"

struct ps_saved {
    struct ps_network *network;
    dnnl_stream_t stream;
    uint8_t *memory;
    size_t memory_bytes;
    /* Of the forward that was done; plan NULL: none. */
    struct ps_plan *plan;
    struct mr_parameter_version *version;
    struct ps_forward how;
};

enum mr_status ps_saved_create(struct ps_network *network, struct ps_saved **out)
{
    struct ps_saved *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return MR_NO_MEMORY;
    s->network = network;
    if (dnnl_stream_create(&s->stream, ps_layers_engine(), dnnl_stream_default_flags) != dnnl_success) {
        free(s);
        return MR_NO_MEMORY;
    }
    *out = s;
    return MR_OK;
}

void ps_saved_reset(struct ps_saved *s)
{
    if (s->plan != NULL)
        ps_network_give_plan_back(s->network, s->plan);
    mr_version_release(s->version);
    s->plan = NULL;
    s->version = NULL;
}

void ps_saved_destroy(struct ps_saved *s)
{
    if (s == NULL)
        return;
    ps_saved_reset(s);
    dnnl_stream_destroy(s->stream);
    free(s->memory);
    free(s);
}

size_t ps_saved_bytes(const struct ps_saved *s)
{
    return s->memory_bytes;
}

static enum mr_status run_grow(struct ps_saved *s, size_t bytes)
{
    if (bytes <= s->memory_bytes)
        return MR_OK;
    free(s->memory);
    s->memory_bytes = 0;
    s->memory = aligned_alloc(PS_LAYERS_ALIGN, ps_layers_round(bytes));
    if (s->memory == NULL)
        return MR_NO_MEMORY;
    s->memory_bytes = bytes;
    return MR_OK;
}

static struct ps_run run_of(struct ps_saved *s)
{
    return (struct ps_run){.list = &s->network->list,
                           .version = s->version,
                           .stream = s->stream,
                           .memory = s->memory,
                           .scratch = s->memory + s->plan->scratch_at,
                           .how = s->how,
                           .batch = s->plan->batch};
}

static float *floats_at(const struct ps_run *run, size_t at)
{
    return (float *)(void *)(run->memory + at);
}

static enum mr_status run_forward(struct ps_saved *s, const float *input, float *output)
{
    const struct ps_plan *plan = s->plan;
    const struct ps_run run = run_of(s);
    enum mr_status status = MR_OK;
    memcpy(run.memory, input, ps_format_bytes(plan->input));
    for (uint32_t i = 0; i < plan->stage_count && status == MR_OK; i++) {
        const struct ps_stage *stage = &plan->stages[i];
        status =
            stage->ops->forward(&run, stage, floats_at(&run, stage->in_at), floats_at(&run, stage->out_at));
    }
    if (status == MR_OK)
        memcpy(output, run.memory + plan->output_at, ps_format_bytes(plan->output));
    return status;
}

enum mr_status ps_network_forward(struct ps_network *network, struct mr_parameter_version *version,
                                  const struct ps_forward *how, const float *input, uint32_t batch,
                                  struct ps_saved *s, float *output)
{
    ps_saved_reset(s);
    if (batch < 1 || batch > PS_BATCH_MAX ||
        mr_version_floats(version) != ps_network_parameter_floats(network) || s->network != network)
        return MR_INVALID_ARGUMENT;
    int before = ps_layers_threads_take(network->threads);
    enum mr_status status = ps_network_take_plan(network, batch, &s->plan);
    if (status == MR_OK)
        status = run_grow(s, s->plan->memory_bytes);
    if (status == MR_OK) {
        mr_version_retain(version);
        s->version = version;
        s->how = *how;
        status = run_forward(s, input, output);
    }
    ps_layers_threads_give_back(before);
    if (status != MR_OK)
        ps_saved_reset(s);
    return status;
}

/* The last stage of a backward: no gradient is wanted beyond it. */
static uint32_t last_of(const struct ps_plan *plan, bool wants_parameters, bool wants_input)
{
    if (wants_input)
        return 0;
    return wants_parameters ? plan->first_trained : plan->stage_count;
}

static enum mr_status run_backward(const struct ps_plan *plan, const struct ps_run *run,
                                   const float *output_gradient, float *input_gradient)
{
    const uint32_t last = last_of(plan, run->parameter_gradients != NULL, input_gradient != NULL);
    enum mr_status status = MR_OK;
    uint32_t room = 0;
    memcpy(run->memory + plan->gradients_at[room], output_gradient, ps_format_bytes(plan->output));
    for (uint32_t i = plan->stage_count; i > last && status == MR_OK; i--) {
        const struct ps_stage *stage = &plan->stages[i - 1];
        float *from = floats_at(run, plan->gradients_at[room]), *to = from;
        bool is_end = i - 1 == last && input_gradient == NULL;
        if (!stage->back_in_place) {
            room ^= 1;
            to = floats_at(run, plan->gradients_at[room]);
        }
        status = stage->ops->backward(run, stage, floats_at(run, stage->in_at), floats_at(run, stage->out_at),
                                      from, is_end ? NULL : to);
    }
    if (status == MR_OK && input_gradient != NULL)
        memcpy(input_gradient, run->memory + plan->gradients_at[room], ps_format_bytes(plan->input));
    return status;
}

enum mr_status ps_network_backward(struct ps_network *network, struct ps_saved *s,
                                   const float *output_gradient, float *input_gradient,
                                   float *parameter_gradients)
{
    if (s->plan == NULL || s->network != network)
        return MR_NOT_READY;
    struct ps_run run = run_of(s);
    run.parameter_gradients = parameter_gradients;
    if (parameter_gradients != NULL) /* the padding between them */
        for (uint32_t i = 0; i < ps_network_parameter_count(network); i++) {
            const struct ps_parameter_info *info = ps_network_parameter(network, i);
            size_t end = ps_layers_round(info->shape.count * sizeof(float)) / sizeof(float);
            memset(parameter_gradients + info->first + info->shape.count, 0,
                   (end - info->shape.count) * sizeof(float));
        }
    int before = ps_layers_threads_take(network->threads);
    enum mr_status status = run_backward(s->plan, &run, output_gradient, input_gradient);
    ps_layers_threads_give_back(before);
    ps_saved_reset(s);
    return status;
}
