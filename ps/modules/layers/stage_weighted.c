/* Stages with weights, conv2d and linear: oneDNN's convolution and inner product. */
#include "ps/modules/layers/stage.h"

#include <string.h>
#include "ps/modules/layers/elementwise.h"

/* Where the gradient of a weight lies until it is in the network's layout: at the end of the scratch
 * memory. */
static float *gradient_room(const struct ps_run *run, const struct ps_stage *s)
{
    size_t first = ps_layers_round(ps_format_bytes(&s->weights.scratch));
    size_t reorder = ps_layers_round(ps_format_bytes(&s->reorder.scratch));
    return (float *)(void *)((uint8_t *)run->scratch + (first > reorder ? first : reorder));
}

static enum mr_status forward(const struct ps_run *run, const struct ps_stage *s, const float *in, float *out)
{
    const float *weight;
    enum mr_status status =
        ps_layout_as(run->version, run->list, s->weight, &s->weight_forward, run->stream, &weight);
    if (status != MR_OK)
        return status;
    struct ps_argument arguments[4] = {{DNNL_ARG_SRC, &s->in, in, NULL},
                                       {DNNL_ARG_WEIGHTS, &s->weight_forward, weight, NULL},
                                       {DNNL_ARG_DST, &s->out, NULL, out}};
    uint32_t count = 3;
    if (s->bias != PS_NO_PARAMETER)
        arguments[count++] = (struct ps_argument){DNNL_ARG_BIAS, &s->bias_format,
                                                  ps_layout_plain(run->version, run->list, s->bias), NULL};
    return ps_primitive_run(&s->forward, run->stream, run->scratch, arguments, count);
}

static enum mr_status backward_weights(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                       const float *out_gradient)
{
    const struct ps_parameter_info *info = ps_layer_list_parameter(run->list, s->weight);
    ps_format plain = ps_format_of_parameter(&info->shape);
    float *gradient = run->parameter_gradients + info->first;
    bool is_plain = ps_format_is(&plain, &s->weight_gradient);
    float *made = is_plain ? gradient : gradient_room(run, s);
    struct ps_argument arguments[4] = {{DNNL_ARG_SRC, &s->in, in, NULL},
                                       {DNNL_ARG_DIFF_DST, &s->out, out_gradient, NULL},
                                       {DNNL_ARG_DIFF_WEIGHTS, &s->weight_gradient, NULL, made}};
    uint32_t count = 3;
    if (s->bias != PS_NO_PARAMETER)
        arguments[count++] = (struct ps_argument){DNNL_ARG_DIFF_BIAS, &s->bias_format, NULL,
                                                  run->parameter_gradients +
                                                      ps_layer_list_parameter(run->list, s->bias)->first};
    enum mr_status status = ps_primitive_run(&s->weights, run->stream, run->scratch, arguments, count);
    if (status != MR_OK || is_plain)
        return status;
    const struct ps_argument back[2] = {{DNNL_ARG_FROM, &s->weight_gradient, made, NULL},
                                        {DNNL_ARG_TO, &plain, NULL, gradient}};
    return ps_primitive_run(&s->reorder, run->stream, run->scratch, back, 2);
}

static enum mr_status backward_data(const struct ps_run *run, const struct ps_stage *s,
                                    const float *out_gradient, float *in_gradient)
{
    const float *weight;
    enum mr_status status =
        ps_layout_as(run->version, run->list, s->weight, &s->weight_data, run->stream, &weight);
    if (status != MR_OK)
        return status;
    const struct ps_argument arguments[3] = {{DNNL_ARG_DIFF_DST, &s->out, out_gradient, NULL},
                                             {DNNL_ARG_WEIGHTS, &s->weight_data, weight, NULL},
                                             {DNNL_ARG_DIFF_SRC, &s->in, NULL, in_gradient}};
    return ps_primitive_run(&s->data, run->stream, run->scratch, arguments, 3);
}

static enum mr_status backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                               const float *out, float *out_gradient, float *in_gradient)
{
    enum mr_status status = MR_OK;
    if (s->relu)
        ps_relu_backward(out_gradient, out, ps_format_bytes(&s->out) / sizeof(float));
    if (run->parameter_gradients != NULL)
        status = backward_weights(run, s, in, out_gradient);
    if (status == MR_OK && in_gradient != NULL)
        status = backward_data(run, s, out_gradient, in_gradient);
    return status;
}

static const struct ps_stage_ops ops = {forward, backward};

/* The attributes of a forward: with a relu after it, or none. */
static enum mr_status attributes_of(const struct ps_stage *s, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t after = NULL;
    *out = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (status != dnnl_success || !s->relu)
        return ps_layers_status(status);
    status = dnnl_post_ops_create(&after);
    if (status == dnnl_success)
        status = dnnl_post_ops_append_eltwise(after, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out, after);
    if (after != NULL)
        dnnl_post_ops_destroy(after);
    if (status != dnnl_success)
        dnnl_primitive_attr_destroy(*out);
    return ps_layers_status(status);
}

/* oneDNN's descriptions of the three primitives, whichever operation they are of. */
struct operation {
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_inner_product_desc_t product;
    } forward, data, weights;
};

/* Makes the forward's primitive, and takes its formats over. *hint is the caller's to destroy. */
static enum mr_status make_forward(struct ps_stage *s, const struct operation *o, dnnl_primitive_desc_t *hint)
{
    dnnl_primitive_attr_t attributes;
    enum mr_status status = attributes_of(s, &attributes);
    if (status == MR_OK)
        status = ps_primitive_create(&o->forward, attributes, NULL, &s->forward, hint);
    if (status != MR_OK)
        return status;
    s->in = *dnnl_primitive_desc_query_md(*hint, dnnl_query_src_md, 0);
    s->out = *dnnl_primitive_desc_query_md(*hint, dnnl_query_dst_md, 0);
    s->weight_forward = *dnnl_primitive_desc_query_md(*hint, dnnl_query_weights_md, 0);
    return MR_OK;
}

static enum mr_status make_backward(struct ps_stage *s, const struct operation *o, dnnl_primitive_desc_t hint,
                                    const ps_format *plain_weight)
{
    dnnl_primitive_desc_t desc = NULL;
    enum mr_status status = ps_primitive_create(&o->data, NULL, hint, &s->data, &desc);
    if (status != MR_OK)
        return status;
    s->weight_data = *dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    dnnl_primitive_desc_destroy(desc);
    status = ps_primitive_create(&o->weights, NULL, hint, &s->weights, &desc);
    if (status != MR_OK)
        return status;
    s->weight_gradient = *dnnl_primitive_desc_query_md(desc, dnnl_query_diff_weights_md, 0);
    dnnl_primitive_desc_destroy(desc);
    if (ps_format_is(&s->weight_gradient, plain_weight))
        return MR_OK;
    s->scratch_bytes = ps_layers_round(ps_format_bytes(&s->weight_gradient));
    return ps_primitive_reorder(&s->weight_gradient, plain_weight, &s->reorder);
}

static const ps_format *bias_of(struct ps_stage *s, const struct ps_layer_list *list)
{
    if (s->bias == PS_NO_PARAMETER)
        return NULL;
    s->bias_format = ps_format_of_parameter(&ps_layer_list_parameter(list, s->bias)->shape);
    return &s->bias_format;
}

/* What a convolution takes and gives: whatever oneDNN likes best for its forward, or row-major. */
struct conv_formats {
    ps_format in, out;
};

static enum mr_status make_conv2d(struct ps_stage *s, const struct ps_layer_list *list,
                                  const struct conv_formats *f)
{
    const struct ps_layer *l = &s->layer;
    const dnnl_dims_t stride = {l->stride[0], l->stride[1]}, pad = {l->pad[0], l->pad[1]};
    ps_format plain = ps_format_of_parameter(&ps_layer_list_parameter(list, s->weight)->shape);
    ps_format any_weight = ps_format_any_of(plain);
    const ps_format *bias = bias_of(s, list);
    struct operation o;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t outcome = dnnl_convolution_forward_desc_init(&o.forward.convolution, dnnl_forward_training,
                                                               dnnl_convolution_direct, &f->in, &any_weight,
                                                               bias, &f->out, stride, pad, pad);
    if (outcome != dnnl_success)
        return ps_layers_status(outcome);
    enum mr_status status = make_forward(s, &o, &hint);
    if (status != MR_OK)
        return status;
    outcome = dnnl_convolution_backward_data_desc_init(&o.data.convolution, dnnl_convolution_direct, &s->in,
                                                       &any_weight, &s->out, stride, pad, pad);
    if (outcome == dnnl_success)
        outcome =
            dnnl_convolution_backward_weights_desc_init(&o.weights.convolution, dnnl_convolution_direct,
                                                        &s->in, &any_weight, bias, &s->out, stride, pad, pad);
    status = outcome == dnnl_success ? make_backward(s, &o, hint, &plain) : ps_layers_status(outcome);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

enum mr_status ps_stage_conv2d(struct ps_stage *s, const struct ps_layer_list *list, const ps_format *now,
                               const struct ps_shape *in, const struct ps_shape *out)
{
    const uint32_t batch = (uint32_t)now->dims[0];
    const struct conv_formats best = {ps_format_any(batch, in), ps_format_any(batch, out)};
    const struct conv_formats plain = {ps_format_plain(batch, in), ps_format_plain(batch, out)};
    s->ops = &ops;
    enum mr_status status = make_conv2d(s, list, &best);
    /* Which formats are best goes by the forward; the code of the backward may not know them. The first's
     * input gradient is seldom asked for. */
    bool is_slow = s->forward.is_slow || s->weights.is_slow || (s->data.is_slow && s->weight > 0);
    if (status != MR_OK || !is_slow)
        return status;
    ps_stage_destroy(s);
    s->scratch_bytes = 0;
    return make_conv2d(s, list, &plain);
}

/* All row-major: putting a large weight into another format and its gradient back takes longer than it would
 * save. */
enum mr_status ps_stage_linear(struct ps_stage *s, const struct ps_layer_list *list, const ps_format *now,
                               const struct ps_shape *in, const struct ps_shape *out)
{
    const uint32_t batch = (uint32_t)now->dims[0];
    ps_format weight = ps_format_of_parameter(&ps_layer_list_parameter(list, s->weight)->shape);
    ps_format from = ps_format_plain(batch, in), to = ps_format_plain(batch, out);
    const ps_format *bias = bias_of(s, list);
    struct operation o;
    dnnl_primitive_desc_t hint = NULL;
    s->ops = &ops;
    dnnl_status_t outcome = dnnl_inner_product_forward_desc_init(&o.forward.product, dnnl_forward_training,
                                                                 &from, &weight, bias, &to);
    if (outcome == dnnl_success)
        outcome = dnnl_inner_product_backward_data_desc_init(&o.data.product, &from, &weight, &to);
    if (outcome == dnnl_success)
        outcome =
            dnnl_inner_product_backward_weights_desc_init(&o.weights.product, &from, &weight, bias, &to);
    if (outcome != dnnl_success)
        return ps_layers_status(outcome);
    enum mr_status status = make_forward(s, &o, &hint);
    if (status != MR_OK)
        return status;
    status = make_backward(s, &o, hint, &weight);
    dnnl_primitive_desc_destroy(hint);
    return status;
}
