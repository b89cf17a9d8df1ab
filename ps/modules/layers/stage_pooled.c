/* A convolution, its relu and the max-pool after it in one stage: oneDNN's convolution some samples at a
 * time, so that what it gives is still in the cache when it is pooled, and ps/modules/layers/sparse_conv.h
 * for the way back. Of the convolution's output only the maxima are kept, and where they were. */
#include "ps/modules/layers/stage.h"

#include <string.h>

#define CHUNK_MAX  8u     /* samples convolved at a time */
#define PART_BYTES 24576u /* of a plane */

/* The scratch memory after that of the primitives. */
static uint8_t *room(const struct ps_run *run, const struct ps_stage *s)
{
    size_t first = ps_layers_round(ps_format_bytes(s->forward.scratch));
    size_t reorder = ps_layers_round(ps_format_bytes(s->reorder.scratch));
    return (uint8_t *)run->scratch + (first > reorder ? first : reorder);
}

static uint32_t in_plane_floats(const struct ps_stage *s)
{
    return (s->pool.height + s->layer.kernel[0] - 1) * s->pool.pitch * s->block;
}

static uint32_t in_floats(const struct ps_stage *s)
{
    return in_plane_floats(s) / s->block * s->layer.inputs;
}

static uint32_t out_plane(const struct ps_stage *s)
{
    return s->pool.out_height * s->pool.out_width;
}

/* ---- forward ---- */

static enum mr_status convolve(const struct ps_run *run, const struct ps_stage *s, const float *in,
                               const float *weight, float *out)
{
    struct ps_argument arguments[4] = {{DNNL_ARG_SRC, s->chunk_in, in, NULL},
                                       {DNNL_ARG_WEIGHTS, s->weight_forward, weight, NULL},
                                       {DNNL_ARG_DST, s->chunk_out, NULL, out}};
    uint32_t count = 3;
    if (s->bias != PS_NO_PARAMETER)
        arguments[count++] = (struct ps_argument){DNNL_ARG_BIAS, s->bias_format,
                                                  ps_layout_plain(run->version, run->list, s->bias), NULL};
    return ps_primitive_run(&s->forward, run->stream, run->scratch, arguments, count);
}

static enum mr_status forward(const struct ps_run *run, const struct ps_stage *s, const float *in, float *out)
{
    const uint32_t chunk = s->chunk, planes = s->layer.outputs / s->block * chunk;
    const uint32_t plane = s->pool.height * s->pool.width * s->block, pooled = out_plane(s) * s->block;
    uint16_t *places = (uint16_t *)(void *)(run->memory + s->extra_at);
    float *convolved = (float *)(void *)room(run, s);
    const float *weight;
    enum mr_status status = ps_layout_as(run->version, run->list, s->weight, s->weight_plain,
                                         s->weight_forward, run->stream, &weight);
    for (uint32_t first = 0; first < run->batch && status == MR_OK; first += chunk) {
        status = convolve(run, s, in + (size_t)first * in_floats(s), weight, convolved);
        for (uint32_t i = 0; i < planes && status == MR_OK; i++, out += pooled, places += pooled)
            ps_pool_plane(&s->pool, convolved + (size_t)i * plane, s->block, out, places);
    }
    return status;
}

/* ---- backward ---- */

/* What a backward works with, in the scratch memory. A plane is gone through in parts of some rows, for all
 * outputs each, such that a part stays in the first cache. */
struct work {
    float *weights;         /* [outputs, inputs / block, 9, block]: the gradient */
    struct ps_sparse *left; /* [parts, outputs]: of one sample */
};

static uint32_t parts_of(const struct ps_stage *s)
{
    uint32_t parts = (uint32_t)(in_plane_floats(s) * sizeof(float) / PART_BYTES + 1);
    return parts < s->pool.out_height ? parts : s->pool.out_height;
}

/* Of the pool's rows, the first of part `part`. */
static uint32_t first_row(const struct ps_stage *s, uint32_t part)
{
    return (uint32_t)((uint64_t)s->pool.out_height * part / parts_of(s));
}

static size_t lists_bytes(const struct ps_stage *s)
{
    return ps_layers_round((size_t)parts_of(s) * s->layer.outputs * sizeof(struct ps_sparse));
}

static size_t work_bytes(const struct ps_stage *s)
{
    size_t places = (size_t)s->layer.outputs * out_plane(s) + PS_SPARSE_ROOM * parts_of(s) * s->layer.outputs;
    return ps_layers_round(ps_format_bytes(s->weight_data)) + lists_bytes(s) +
           places * (sizeof(uint32_t) + sizeof(float));
}

static struct work work_of(const struct ps_run *run, const struct ps_stage *s)
{
    uint8_t *at = room(run, s);
    struct work w = {.weights = (float *)(void *)at};
    at += ps_layers_round(ps_format_bytes(s->weight_data));
    w.left = (struct ps_sparse *)(void *)at;
    at += lists_bytes(s);
    for (uint32_t part = 0, i = 0; part < parts_of(s); part++) {
        uint32_t rows = first_row(s, part + 1) - first_row(s, part);
        uint32_t places = rows * s->pool.out_width + PS_SPARSE_ROOM;
        for (uint32_t c = 0; c < s->layer.outputs;
             c++, i++, at += places * (sizeof(uint32_t) + sizeof(float))) {
            w.left[i].at = (uint32_t *)(void *)at;
            w.left[i].values = (float *)(void *)(w.left[i].at + places);
        }
    }
    return w;
}

static void take_sample(const struct ps_run *run, const struct ps_stage *s, const struct work *w,
                        uint32_t sample, const float *out, const float *out_gradient)
{
    const uint32_t outputs = s->layer.outputs, width = s->pool.out_width;
    size_t first = (size_t)sample * outputs * out_plane(s);
    const uint16_t *places = (const uint16_t *)(const void *)(run->memory + s->extra_at);
    for (uint32_t c = 0; c < outputs; c++, first += out_plane(s))
        for (uint32_t part = 0; part < parts_of(s); part++) {
            uint32_t from = first_row(s, part) * width, to = first_row(s, part + 1) * width;
            ps_sparse_take(&w->left[(size_t)part * outputs + c], out_gradient + first + from,
                           out + first + from, places + first + from, to - from, s->block);
        }
}

static void add_bias(const struct ps_run *run, const struct ps_stage *s, const struct work *w)
{
    float *gradient = run->parameter_gradients + ps_layer_list_parameter(run->list, s->bias)->first;
    for (uint32_t i = 0; i < parts_of(s) * s->layer.outputs; i++) {
        float sum = 0;
        for (uint32_t k = 0; k < w->left[i].count; k++)
            sum += w->left[i].values[k];
        gradient[i % s->layer.outputs] += sum;
    }
}

static void add_weights(const struct ps_stage *s, const struct work *w, const float *in)
{
    const uint32_t blocks = s->layer.inputs / s->block, row = s->pool.pitch * s->block;
    const uint32_t outputs = s->layer.outputs;
    const size_t window = (size_t)PS_SPARSE_WINDOW * s->block;
    for (uint32_t b = 0; b < blocks; b++, in += in_plane_floats(s))
        for (uint32_t i = 0; i < parts_of(s) * outputs; i++)
            ps_sparse_weights(&w->left[i], in, row, s->block,
                              w->weights + (i % outputs * blocks + b) * window);
}

static void make_data(const struct ps_stage *s, const struct work *w, const float *weight, float *in_gradient)
{
    const uint32_t blocks = s->layer.inputs / s->block, row = s->pool.pitch * s->block;
    const uint32_t outputs = s->layer.outputs;
    const size_t window = (size_t)PS_SPARSE_WINDOW * s->block;
    for (uint32_t b = 0; b < blocks; b++, in_gradient += in_plane_floats(s)) {
        memset(in_gradient, 0, in_plane_floats(s) * sizeof(float));
        for (uint32_t i = 0; i < parts_of(s) * outputs; i++)
            ps_sparse_data(&w->left[i], in_gradient, row, s->block,
                           weight + (i % outputs * blocks + b) * window);
    }
}

static enum mr_status give_weights(const struct ps_run *run, const struct ps_stage *s, const struct work *w)
{
    const struct ps_parameter_info *info = ps_layer_list_parameter(run->list, s->weight);
    const struct ps_argument back[2] = {
        {DNNL_ARG_FROM, s->weight_data, w->weights, NULL},
        {DNNL_ARG_TO, s->weight_plain, NULL, run->parameter_gradients + info->first}};
    return ps_primitive_run(&s->reorder, run->stream, run->scratch, back, 2);
}

static enum mr_status backward(const struct ps_run *run, const struct ps_stage *s, const float *in,
                               const float *out, float *out_gradient, float *in_gradient)
{
    const bool wants_bias = run->parameter_gradients != NULL && s->bias != PS_NO_PARAMETER;
    const struct work w = work_of(run, s);
    const float *weight;
    enum mr_status status = ps_layout_as(run->version, run->list, s->weight, s->weight_plain, s->weight_data,
                                         run->stream, &weight);
    if (status != MR_OK)
        return status;
    memset(w.weights, 0, ps_format_bytes(s->weight_data));
    if (wants_bias)
        memset(run->parameter_gradients + ps_layer_list_parameter(run->list, s->bias)->first, 0,
               s->layer.outputs * sizeof(float));
    for (uint32_t i = 0; i < run->batch; i++) {
        take_sample(run, s, &w, i, out, out_gradient);
        if (wants_bias)
            add_bias(run, s, &w);
        if (run->parameter_gradients != NULL)
            add_weights(s, &w, in + (size_t)i * in_floats(s));
        if (in_gradient != NULL)
            make_data(s, &w, weight, in_gradient + (size_t)i * in_floats(s));
    }
    return run->parameter_gradients != NULL ? give_weights(run, s, &w) : MR_OK;
}

/* ---- which there are ---- */

static bool is_fit(const struct ps_layer *conv, const struct ps_layer *pool, const struct ps_shape *in)
{
    for (uint32_t axis = 0; axis < 2; axis++)
        if (conv->kernel[axis] != 3 || conv->stride[axis] != 1 || conv->pad[axis] != 0 ||
            pool->pad[axis] != 0)
            return false;
    if ((uint64_t)pool->stride[0] * pool->stride[1] < 4) /* more than a quarter may be left */
        return false;
    return (uint64_t)in->dims[1] * in->dims[2] <= UINT16_MAX;
}

/* The largest number of samples that divides the batch. */
static uint32_t chunk_of(uint32_t batch)
{
    uint32_t chunk = batch < CHUNK_MAX ? batch : CHUNK_MAX;
    while (batch % chunk != 0)
        chunk--;
    return chunk;
}

/* The block of a format of [chunk, channels / block, height, width, block]; 0 when it is another, or has
 * channels besides. */
static uint32_t block_of(const struct ps_stage *s, const struct ps_shape *sample, ps_format format)
{
    static const struct {
        uint32_t block;
        dnnl_format_tag_t tag;
    } blocked[] = {{16, dnnl_nChw16c}, {8, dnnl_nChw8c}};
    for (uint32_t i = 0; i < 2; i++) {
        ps_format same = ps_format_tagged(s->formats, s->chunk, sample, blocked[i].tag);
        if (ps_format_is(same, format) && sample->dims[0] % blocked[i].block == 0)
            return blocked[i].block;
    }
    return 0;
}

static enum mr_status make_forward(struct ps_stage *s, const struct ps_shape *in,
                                   const struct ps_shape *convolved, const struct ps_layer_list *list)
{
    struct ps_stage part = *s;
    part.batch = s->chunk;
    enum mr_status status = ps_stage_conv2d(&part, list, in, convolved);
    s->forward = part.forward;
    s->weight_forward = part.weight_forward;
    s->weight_plain = part.weight_plain;
    s->bias_format = part.bias_format;
    s->chunk_in = part.in;
    s->chunk_out = part.out;
    ps_primitive_destroy(&part.data);
    ps_primitive_destroy(&part.weights);
    ps_primitive_destroy(&part.reorder);
    return status;
}

static enum mr_status make_formats(struct ps_stage *s, const struct ps_shape *in,
                                   const struct ps_layer_parameter *weight)
{
    s->in = ps_format_tagged(s->formats, s->batch, in, s->block == 16 ? dnnl_nChw16c : dnnl_nChw8c);
    s->weight_data = ps_format_of_parameter(s->formats, weight, s->block == 16 ? dnnl_aBcd16b : dnnl_aBcd8b);
    return ps_primitive_reorder(s->weight_data, s->weight_plain, &s->reorder);
}

enum mr_status ps_stage_pooled(struct ps_stage *s, const struct ps_layer_list *list,
                               const struct ps_layer *pool, const struct ps_shape *in,
                               const struct ps_shape *out)
{
    static const struct ps_stage_ops ops = {forward, backward};
    struct ps_shape convolved;
    char error[8];
    s->ops = &ops;
    s->chunk = chunk_of(s->batch);
    if (!is_fit(&s->layer, pool, in) ||
        ps_layer_output(&s->layer, in, &convolved, error, sizeof(error)) != MR_OK)
        return MR_UNSUPPORTED;
    enum mr_status status = make_forward(s, in, &convolved, list);
    if (status != MR_OK)
        return status;
    s->block = block_of(s, in, s->chunk_in);
    if (s->block == 0 || block_of(s, &convolved, s->chunk_out) != s->block)
        return MR_UNSUPPORTED;
    s->pool = (struct ps_pool){convolved.dims[1],
                               convolved.dims[2],
                               out->dims[1],
                               out->dims[2],
                               {pool->kernel[0], pool->kernel[1]},
                               {pool->stride[0], pool->stride[1]},
                               in->dims[2]};
    s->out = ps_format_plain(s->formats, s->batch, out);
    s->extra_bytes = ps_format_bytes(s->out) / sizeof(float) * sizeof(uint16_t);
    status = make_formats(s, in, &ps_layer_list_parameter(list, s->weight)->shape);
    s->scratch_bytes = ps_layers_round(ps_format_bytes(s->chunk_out));
    if (s->scratch_bytes < work_bytes(s))
        s->scratch_bytes = ps_layers_round(work_bytes(s));
    return status;
}
