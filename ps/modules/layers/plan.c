#include "ps/modules/layers/plan.h"

#include <assert.h>
#include <stdlib.h>

struct planner {
    const struct ps_layer_list *list;
    struct ps_plan *plan;
    ps_format now; /* of the newest output */
    size_t now_at; /* where it lies */
    bool is_kept;  /* it may not be changed in place */
    size_t bytes;  /* of memory, so far */
    size_t gradient_bytes, scratch_bytes;
    uint32_t threads;
    uint32_t parameter; /* the next */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t take_room(struct planner *p, size_t bytes)
{
    size_t at = p->bytes;
    p->bytes += ps_layers_round(bytes);
    return at;
}

static size_t scratch_of(const struct ps_stage *s)
{
    size_t bytes = larger(ps_format_bytes(s->forward.scratch), ps_format_bytes(s->data.scratch));
    bytes = larger(bytes, ps_format_bytes(s->weights.scratch));
    return ps_layers_round(larger(bytes, ps_format_bytes(s->reorder.scratch))) + s->scratch_bytes;
}

/* The stage is complete but for where things lie. */
static void append(struct planner *p, const struct ps_stage *made)
{
    struct ps_stage *s = &p->plan->stages[p->plan->stage_count++];
    *s = *made;
    s->in_place = s->in_place && !p->is_kept;
    s->in_at = p->now_at;
    s->out_at = s->in_place ? p->now_at : take_room(p, ps_format_bytes(s->out));
    s->extra_at = take_room(p, s->extra_bytes);
    if (s->weight != PS_NO_PARAMETER && p->plan->first_trained == UINT32_MAX)
        p->plan->first_trained = p->plan->stage_count - 1;
    p->gradient_bytes = larger(p->gradient_bytes, ps_format_bytes(s->out));
    p->scratch_bytes = larger(p->scratch_bytes, scratch_of(s));
    p->now = s->out;
    p->now_at = s->out_at;
    p->is_kept = s->keeps_out;
}

static enum mr_status append_reorder(struct planner *p, ps_format to)
{
    struct ps_stage s = {.weight = PS_NO_PARAMETER, .bias = PS_NO_PARAMETER};
    if (ps_format_is(p->now, to))
        return MR_OK;
    enum mr_status status = ps_stage_reorder(&s, p->now, to);
    append(p, &s); /* also what was half made: the plan takes it down */
    return status;
}

static enum mr_status make_stage(struct planner *p, struct ps_stage *s, const struct ps_shape *in,
                                 const struct ps_shape *out)
{
    switch (s->layer.kind) {
    case PS_LAYER_CONV2D:
        return ps_stage_conv2d(s, p->list, in, out);
    case PS_LAYER_LINEAR:
        return ps_stage_linear(s, p->list, in, out);
    case PS_LAYER_MAX_POOL2D:
        return ps_stage_max_pool2d(s, p->now, in, out);
    case PS_LAYER_RELU:
        ps_stage_relu(s, p->now);
        return MR_OK;
    case PS_LAYER_DROPOUT:
        ps_stage_dropout(s, in);
        return MR_OK;
    case PS_LAYER_LOG_SOFTMAX:
        ps_stage_log_softmax(s, in);
        return MR_OK;
    case PS_LAYER_FLATTEN:
        break;
    }
    return MR_INTERNAL;
}

static bool has_parameters(const struct ps_layer *layer)
{
    return layer->kind == PS_LAYER_CONV2D || layer->kind == PS_LAYER_LINEAR;
}

/* Whether layer `index` is there, and of that kind. */
static bool is_kind(const struct planner *p, uint32_t index, enum ps_layer_kind kind)
{
    return index < p->list->layer_count && p->list->layers[index].kind == kind;
}

/* The stage of convolution, relu and pool where they can go together, else MR_UNSUPPORTED and *s is as it
 * was. */
static enum mr_status make_pooled(struct planner *p, uint32_t index, struct ps_stage *s)
{
    struct ps_stage made = *s;
    if (p->threads > 1 || s->layer.kind != PS_LAYER_CONV2D || !s->relu ||
        !is_kind(p, index + 2, PS_LAYER_MAX_POOL2D))
        return MR_UNSUPPORTED;
    enum mr_status status = ps_stage_pooled(&made, p->list, &p->list->layers[index + 2],
                                            &p->list->shapes[index], &p->list->shapes[index + 3]);
    if (status == MR_OK)
        *s = made;
    else
        ps_stage_destroy(&made);
    return status;
}

/* The stage of layer `index` and of the layers after it that are computed with it; *taken: how many
 * layers. */
static enum mr_status append_layer(struct planner *p, uint32_t index, uint32_t *taken)
{
    const struct ps_layer *layer = &p->list->layers[index];
    struct ps_stage s = {.layer = *layer,
                         .number = p->list->first_number + index,
                         .batch = p->plan->batch,
                         .formats = &p->plan->formats,
                         .weight = PS_NO_PARAMETER,
                         .bias = PS_NO_PARAMETER};
    if (has_parameters(layer)) {
        s.relu = is_kind(p, index + 1, PS_LAYER_RELU);
        s.weight = p->parameter++;
        if (!layer->no_bias)
            s.bias = p->parameter++;
    }
    *taken = 3;
    enum mr_status status = make_pooled(p, index, &s);
    if (status == MR_UNSUPPORTED) {
        *taken = s.relu ? 2 : 1;
        status = make_stage(p, &s, &p->list->shapes[index], &p->list->shapes[index + *taken]);
    }
    if (status == MR_OK)
        status = append_reorder(p, s.in);
    append(p, &s);
    return status;
}

/* The same floats, row-major, under another shape. */
static enum mr_status flatten(struct planner *p, uint32_t index)
{
    const struct ps_shape *shapes = &p->list->shapes[index];
    enum mr_status status = append_reorder(p, ps_format_plain(&p->plan->formats, p->plan->batch, &shapes[0]));
    p->now = ps_format_plain(&p->plan->formats, p->plan->batch, &shapes[1]);
    return status;
}

static enum mr_status append_layers(struct planner *p)
{
    uint32_t count = p->list->layer_count, taken = 1;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < count && status == MR_OK; i += taken) {
        taken = 1;
        if (p->list->layers[i].kind == PS_LAYER_FLATTEN)
            status = flatten(p, i);
        else
            status = append_layer(p, i, &taken);
    }
    if (status != MR_OK)
        return status;
    return append_reorder(p, p->plan->output);
}

enum mr_status ps_plan_create(const struct ps_layer_list *list, uint32_t threads, uint32_t batch,
                              struct ps_plan **out)
{
    uint32_t layer_count = list->layer_count;
    struct ps_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return MR_NO_MEMORY;
    plan->stages =
        calloc(2 * (size_t)layer_count + 1, sizeof(*plan->stages)); /* each with a reorder, and the last */
    if (plan->stages == NULL) {
        free(plan);
        return MR_NO_MEMORY;
    }
    plan->batch = batch;
    plan->first_trained = UINT32_MAX;
    plan->input = ps_format_plain(&plan->formats, batch, &list->shapes[0]);
    plan->output = ps_format_plain(&plan->formats, batch, &list->shapes[layer_count]);
    struct planner p = {.list = list, .threads = threads, .plan = plan, .now = plan->input};
    p.gradient_bytes = ps_format_bytes(plan->input);
    (void)take_room(&p, p.gradient_bytes);
    enum mr_status status = append_layers(&p);
    if (plan->formats.is_short)
        status = MR_NO_MEMORY;
    if (status != MR_OK) {
        ps_plan_destroy(plan);
        return status;
    }
    assert(plan->stage_count <= 2 * layer_count + 1);
    if (plan->first_trained == UINT32_MAX)
        plan->first_trained = plan->stage_count;
    plan->output_at = p.now_at;
    for (int i = 0; i < 2; i++)
        plan->gradients_at[i] = take_room(&p, p.gradient_bytes);
    plan->scratch_at = take_room(&p, p.scratch_bytes);
    plan->memory_bytes = p.bytes;
    *out = plan;
    return MR_OK;
}

void ps_plan_destroy(struct ps_plan *plan)
{
    if (plan == NULL)
        return;
    for (uint32_t i = 0; i < plan->stage_count; i++)
        ps_stage_destroy(&plan->stages[i]);
    ps_formats_destroy(&plan->formats);
    free(plan->stages);
    free(plan);
}
