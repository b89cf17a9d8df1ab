/* Stages without weights: relu, dropout, log-softmax, max-pool, and changes of format. */
#include "ps/modules/layers/stage.h"

#include <math.h>
#include <string.h>
#include "ps/modules/layers/elementwise.h"

static size_t floats_of(ps_format format)
{
    return ps_format_bytes(format) / sizeof(float);
}

/* ---- relu: what is beside the elements in a format of blocks is 0, and stays so ---- */

static enum mr_status relu_forward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                   float *out)
{
    if (!s->in_place)
        memcpy(out, in, ps_format_bytes(s->out));
    ps_relu_forward(out, floats_of(s->out));
    return MR_OK;
}

static enum mr_status relu_backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                    const float *out, float *out_gradient, float *in_gradient)
{
    ps_relu_backward(out_gradient, out, floats_of(s->out));
    return MR_OK;
}

void ps_stage_relu(struct ps_stage *s, ps_format now)
{
    static const struct ps_stage_ops ops = {relu_forward, relu_backward};
    s->ops = &ops;
    s->in = s->out = now;
    s->in_place = s->back_in_place = true;
}

/* ---- dropout: row-major, so that an element's place does not depend on the machine ---- */

static float scale_of(const struct ps_stage *s)
{
    return s->layer.probability < 1 ? 1 / (1 - s->layer.probability) : 0;
}

static enum mr_status dropout_forward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                      float *out)
{
    const size_t bytes = ps_format_bytes(s->out), each = bytes / sizeof(float) / run->batch;
    uint8_t *kept = run->memory + s->extra_at;
    if (!s->in_place)
        memcpy(out, in, bytes);
    if (!run->how.training || s->layer.probability <= 0)
        return MR_OK;
    double threshold = ldexp((double)s->layer.probability, 32);
    if (threshold >= 0x1p32) {
        memset(out, 0, bytes);
        memset(kept, 0, s->extra_bytes);
        return MR_OK;
    }
    for (uint32_t i = 0; i < run->batch; i++)
        ps_dropout_forward(ps_drop_key(run->how.seed, run->how.step, s->number, i), (uint32_t)threshold,
                           scale_of(s), out + i * each, kept + i * each, each);
    return MR_OK;
}

static enum mr_status dropout_backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                       const float *out, float *out_gradient, float *in_gradient)
{
    if (run->how.training && s->layer.probability > 0)
        ps_dropout_backward(out_gradient, run->memory + s->extra_at, scale_of(s), floats_of(s->out));
    return MR_OK;
}

void ps_stage_dropout(struct ps_stage *s, const struct ps_shape *in)
{
    static const struct ps_stage_ops ops = {dropout_forward, dropout_backward};
    s->ops = &ops;
    s->in = s->out = ps_format_plain(s->formats, s->batch, in);
    s->in_place = s->back_in_place = true;
    s->extra_bytes = floats_of(s->out);
}

/* ---- log-softmax ---- */

static uint32_t classes_of(const struct ps_stage *s)
{
    return (uint32_t)(floats_of(s->out) / s->batch);
}

static enum mr_status log_softmax_forward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                          float *out)
{
    ps_log_softmax_forward(in, out, run->batch, classes_of(s));
    return MR_OK;
}

static enum mr_status log_softmax_backward(const struct ps_run *run, const struct ps_stage *s,
                                           const float *in, const float *out, float *out_gradient,
                                           float *in_gradient)
{
    if (in_gradient != NULL)
        ps_log_softmax_backward(out, out_gradient, in_gradient, run->batch, classes_of(s));
    return MR_OK;
}

void ps_stage_log_softmax(struct ps_stage *s, const struct ps_shape *in)
{
    static const struct ps_stage_ops ops = {log_softmax_forward, log_softmax_backward};
    s->ops = &ops;
    s->in = s->out = ps_format_plain(s->formats, s->batch, in);
    s->keeps_out = true;
}

/* ---- max-pool: any format; what comes out has the same ---- */

static enum mr_status pool_forward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                   float *out)
{
    const struct ps_argument arguments[3] = {
        {DNNL_ARG_SRC, s->in, in, NULL},
        {DNNL_ARG_DST, s->out, NULL, out},
        {DNNL_ARG_WORKSPACE, s->extra_format, NULL, run->memory + s->extra_at}};
    return ps_primitive_run(&s->forward, run->stream, run->scratch, arguments, 3);
}

static enum mr_status pool_backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                    const float *out, float *out_gradient, float *in_gradient)
{
    const struct ps_argument arguments[3] = {
        {DNNL_ARG_DIFF_DST, s->out, NULL, out_gradient},
        {DNNL_ARG_DIFF_SRC, s->in, NULL, in_gradient},
        {DNNL_ARG_WORKSPACE, s->extra_format, NULL, run->memory + s->extra_at}};
    return in_gradient == NULL ? MR_OK : ps_primitive_run(&s->data, run->stream, run->scratch, arguments, 3);
}

/* Padding at the end, so that the last window ends there: input that is left over is ignored. */
static int64_t pad_after(const struct ps_layer *l, uint32_t axis, uint32_t in_size, uint32_t out_size)
{
    return (int64_t)(out_size - 1) * l->stride[axis] + l->kernel[axis] - in_size - l->pad[axis];
}

enum mr_status ps_stage_max_pool2d(struct ps_stage *s, ps_format now, const struct ps_shape *in,
                                   const struct ps_shape *out)
{
    static const struct ps_stage_ops ops = {pool_forward, pool_backward};
    const struct ps_layer *l = &s->layer;
    const dnnl_dims_t kernel = {l->kernel[0], l->kernel[1]}, stride = {l->stride[0], l->stride[1]};
    const dnnl_dims_t before = {l->pad[0], l->pad[1]}, undilated = {0};
    const dnnl_dims_t after = {pad_after(l, 0, in->dims[1], out->dims[1]),
                               pad_after(l, 1, in->dims[2], out->dims[2])};
    dnnl_engine_t cpu = ps_layers_engine();
    const_dnnl_primitive_attr_t attr = ps_layers_attributes(false);
    ps_format any_out = ps_format_any(s->formats, s->batch, out);
    dnnl_primitive_desc_t desc = NULL;
    s->ops = &ops;
    s->in = now;
    dnnl_status_t made =
        dnnl_pooling_forward_primitive_desc_create(&desc, cpu, dnnl_forward_training, dnnl_pooling_max, now,
                                                   any_out, stride, kernel, undilated, before, after, attr);
    enum mr_status status = ps_primitive_create(made, desc, &s->forward);
    if (status != MR_OK)
        return status;
    s->out = ps_primitive_format(&s->forward, dnnl_query_dst_md);
    s->extra_format = ps_primitive_format(&s->forward, dnnl_query_workspace_md);
    s->extra_bytes = ps_format_bytes(s->extra_format);
    made =
        dnnl_pooling_backward_primitive_desc_create(&desc, cpu, dnnl_pooling_max, now, s->out, stride, kernel,
                                                    undilated, before, after, s->forward.desc, attr);
    return ps_primitive_create(made, desc, &s->data);
}

/* ---- another format ---- */

static enum mr_status reorder_forward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                      float *out)
{
    const struct ps_argument arguments[2] = {{DNNL_ARG_FROM, s->in, in, NULL},
                                             {DNNL_ARG_TO, s->out, NULL, out}};
    return ps_primitive_run(&s->forward, run->stream, run->scratch, arguments, 2);
}

static enum mr_status reorder_backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                                       const float *out, float *out_gradient, float *in_gradient)
{
    const struct ps_argument arguments[2] = {{DNNL_ARG_FROM, s->out, NULL, out_gradient},
                                             {DNNL_ARG_TO, s->in, NULL, in_gradient}};
    return in_gradient == NULL ? MR_OK : ps_primitive_run(&s->data, run->stream, run->scratch, arguments, 2);
}

enum mr_status ps_stage_reorder(struct ps_stage *s, ps_format from, ps_format to)
{
    static const struct ps_stage_ops ops = {reorder_forward, reorder_backward};
    s->ops = &ops;
    s->in = from;
    s->out = to;
    enum mr_status status = ps_primitive_reorder(from, to, &s->forward);
    return status == MR_OK ? ps_primitive_reorder(to, from, &s->data) : status;
}

void ps_stage_destroy(struct ps_stage *s)
{
    ps_primitive_destroy(&s->forward);
    ps_primitive_destroy(&s->data);
    ps_primitive_destroy(&s->weights);
    ps_primitive_destroy(&s->reorder);
}
