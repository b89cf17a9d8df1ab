/* Stages with weights, conv2d and linear: oneDNN's convolution and inner product. */
#include "ps/modules/layers/stage.h"

#include <string.h>
#include "ps/modules/layers/elementwise.h"

/* Where the gradient of a weight lies until it is in the network's layout: at the end of the scratch
 * memory. */
static float *gradient_room(const struct ps_run *run, const struct ps_stage *s)
{
    size_t first = ps_layers_round(ps_format_bytes(s->weights.scratch));
    size_t reorder = ps_layers_round(ps_format_bytes(s->reorder.scratch));
    return (float *)(void *)((uint8_t *)run->scratch + (first > reorder ? first : reorder));
}

static enum mr_status forward(const struct ps_run *run, const struct ps_stage *s, const float *in, float *out)
{
    const float *weight;
    enum mr_status status = ps_layout_as(run->version, run->list, s->weight, s->weight_plain,
                                         s->weight_forward, run->stream, &weight);
    if (status != MR_OK)
        return status;
    struct ps_argument arguments[4] = {{DNNL_ARG_SRC, s->in, in, NULL},
                                       {DNNL_ARG_WEIGHTS, s->weight_forward, weight, NULL},
                                       {DNNL_ARG_DST, s->out, NULL, out}};
    uint32_t count = 3;
    if (s->bias != PS_NO_PARAMETER)
        arguments[count++] = (struct ps_argument){DNNL_ARG_BIAS, s->bias_format,
                                                  ps_layout_plain(run->version, run->list, s->bias), NULL};
    return ps_primitive_run(&s->forward, run->stream, run->scratch, arguments, count);
}

static enum mr_status backward_weights(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                       const float *out_gradient)
{
    const struct ps_parameter_info *info = ps_layer_list_parameter(run->list, s->weight);
    float *gradient = run->parameter_gradients + info->first;
    bool is_plain = ps_format_is(s->weight_plain, s->weight_gradient);
    float *made = is_plain ? gradient : gradient_room(run, s);
    struct ps_argument arguments[4] = {{DNNL_ARG_SRC, s->in, in, NULL},
                                       {DNNL_ARG_DIFF_DST, s->out, out_gradient, NULL},
                                       {DNNL_ARG_DIFF_WEIGHTS, s->weight_gradient, NULL, made}};
    uint32_t count = 3;
    if (s->bias != PS_NO_PARAMETER)
        arguments[count++] = (struct ps_argument){DNNL_ARG_DIFF_BIAS, s->bias_format, NULL,
                                                  run->parameter_gradients +
                                                      ps_layer_list_parameter(run->list, s->bias)->first};
    enum mr_status status = ps_primitive_run(&s->weights, run->stream, run->scratch, arguments, count);
    if (status != MR_OK || is_plain)
        return status;
    const struct ps_argument back[2] = {{DNNL_ARG_FROM, s->weight_gradient, made, NULL},
                                        {DNNL_ARG_TO, s->weight_plain, NULL, gradient}};
    return ps_primitive_run(&s->reorder, run->stream, run->scratch, back, 2);
}

static enum mr_status backward_data(const struct ps_run *run, const struct ps_stage *s,
                                    const float *out_gradient, float *in_gradient)
{
    const float *weight;
    enum mr_status status = ps_layout_as(run->version, run->list, s->weight, s->weight_plain, s->weight_data,
                                         run->stream, &weight);
    if (status != MR_OK)
        return status;
    const struct ps_argument arguments[3] = {{DNNL_ARG_DIFF_DST, s->out, out_gradient, NULL},
                                             {DNNL_ARG_WEIGHTS, s->weight_data, weight, NULL},
                                             {DNNL_ARG_DIFF_SRC, s->in, NULL, in_gradient}};
    return ps_primitive_run(&s->data, run->stream, run->scratch, arguments, 3);
}

static enum mr_status backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                               const float *out, float *out_gradient, float *in_gradient)
{
    enum mr_status status = MR_OK;
    if (s->relu)
        ps_relu_backward(out_gradient, out, ps_format_bytes(s->out) / sizeof(float));
    if (run->parameter_gradients != NULL)
        status = backward_weights(run, s, in, out_gradient);
    if (status == MR_OK && in_gradient != NULL)
        status = backward_data(run, s, out_gradient, in_gradient);
    return status;
}

static const struct ps_stage_ops ops = {forward, backward};

/* The formats of the parameters as they lie in the network. */
static void make_parameter_formats(struct ps_stage *s, const struct ps_layer_list *list)
{
    const struct ps_parameter_info *weight = ps_layer_list_parameter(list, s->weight);
    s->weight_plain = ps_format_of_parameter(s->formats, &weight->shape, dnnl_format_tag_undef);
    if (s->bias != PS_NO_PARAMETER)
        s->bias_format = ps_format_of_parameter(s->formats, &ps_layer_list_parameter(list, s->bias)->shape,
                                                dnnl_format_tag_undef);
}

static void take_forward_formats(struct ps_stage *s)
{
    s->in = ps_primitive_format(&s->forward, dnnl_query_src_md);
    s->out = ps_primitive_format(&s->forward, dnnl_query_dst_md);
    s->weight_forward = ps_primitive_format(&s->forward, dnnl_query_weights_md);
}

/* The formats of the backward's primitives, and the reorder of the weight's gradient. */
static enum mr_status finish_backward(struct ps_stage *s)
{
    s->weight_data = ps_primitive_format(&s->data, dnnl_query_weights_md);
    s->weight_gradient = ps_primitive_format(&s->weights, dnnl_query_diff_weights_md);
    if (ps_format_is(s->weight_gradient, s->weight_plain))
        return MR_OK;
    s->scratch_bytes = ps_layers_round(ps_format_bytes(s->weight_gradient));
    return ps_primitive_reorder(s->weight_gradient, s->weight_plain, &s->reorder);
}

/* `in`, `out`: what oneDNN likes best for its forward, or row-major. */
static enum mr_status make_conv2d(struct ps_stage *s, ps_format any_weight, ps_format in, ps_format out)
{
    const struct ps_layer *l = &s->layer;
    const dnnl_dims_t stride = {l->stride[0], l->stride[1]}, pad = {l->pad[0], l->pad[1]};
    const dnnl_alg_kind_t direct = dnnl_convolution_direct;
    const_dnnl_primitive_attr_t attr = ps_layers_attributes(false);
    dnnl_engine_t cpu = ps_layers_engine();
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t made = dnnl_convolution_forward_primitive_desc_create(
        &desc, cpu, dnnl_forward_training, direct, in, any_weight, s->bias_format, out, stride, NULL, pad,
        pad, ps_layers_attributes(s->relu));
    enum mr_status status = ps_primitive_create(made, desc, &s->forward);
    if (status != MR_OK)
        return status;
    take_forward_formats(s);
    made = dnnl_convolution_backward_data_primitive_desc_create(
        &desc, cpu, direct, s->in, any_weight, s->out, stride, NULL, pad, pad, s->forward.desc, attr);
    status = ps_primitive_create(made, desc, &s->data);
    if (status != MR_OK)
        return status;
    made = dnnl_convolution_backward_weights_primitive_desc_create(&desc, cpu, direct, s->in, any_weight,
                                                                   s->bias_format, s->out, stride, NULL, pad,
                                                                   pad, s->forward.desc, attr);
    status = ps_primitive_create(made, desc, &s->weights);
    return status == MR_OK ? finish_backward(s) : status;
}

enum mr_status ps_stage_conv2d(struct ps_stage *s, const struct ps_layer_list *list,
                               const struct ps_shape *in, const struct ps_shape *out)
{
    struct ps_formats *f = s->formats;
    s->ops = &ops;
    make_parameter_formats(s, list);
    ps_format any_weight =
        ps_format_of_parameter(f, &ps_layer_list_parameter(list, s->weight)->shape, dnnl_format_tag_any);
    enum mr_status status =
        make_conv2d(s, any_weight, ps_format_any(f, s->batch, in), ps_format_any(f, s->batch, out));
    /* Which formats are best goes by the forward; the code of the backward may not know them. The first's
     * input gradient is seldom asked for. */
    bool is_slow = s->forward.is_slow || s->weights.is_slow || (s->data.is_slow && s->weight > 0);
    if (status != MR_OK || !is_slow)
        return status;
    ps_stage_destroy(s);
    s->scratch_bytes = 0;
    return make_conv2d(s, any_weight, ps_format_plain(f, s->batch, in), ps_format_plain(f, s->batch, out));
}

/* All row-major: putting a large weight into another format and its gradient back takes longer than it would
 * save. */
enum mr_status ps_stage_linear(struct ps_stage *s, const struct ps_layer_list *list,
                               const struct ps_shape *in, const struct ps_shape *out)
{
    const_dnnl_primitive_attr_t attr = ps_layers_attributes(false);
    dnnl_engine_t cpu = ps_layers_engine();
    dnnl_primitive_desc_t desc = NULL;
    ps_format from = ps_format_plain(s->formats, s->batch, in);
    ps_format to = ps_format_plain(s->formats, s->batch, out);
    s->ops = &ops;
    make_parameter_formats(s, list);
    dnnl_status_t made = dnnl_inner_product_forward_primitive_desc_create(
        &desc, cpu, dnnl_forward_training, from, s->weight_plain, s->bias_format, to,
        ps_layers_attributes(s->relu));
    enum mr_status status = ps_primitive_create(made, desc, &s->forward);
    if (status != MR_OK)
        return status;
    take_forward_formats(s);
    made = dnnl_inner_product_backward_data_primitive_desc_create(&desc, cpu, from, s->weight_plain, to,
                                                                  s->forward.desc, attr);
    status = ps_primitive_create(made, desc, &s->data);
    if (status != MR_OK)
        return status;
    made = dnnl_inner_product_backward_weights_primitive_desc_create(
        &desc, cpu, from, s->weight_plain, s->bias_format, to, s->forward.desc, attr);
    status = ps_primitive_create(made, desc, &s->weights);
    return status == MR_OK ? finish_backward(s) : status;
}
