#include "ps/modules/layers/layer.h"

#include <inttypes.h>
#include <stdio.h>

struct ps_layer ps_conv2d(uint32_t in_channels, uint32_t out_channels, uint32_t kernel)
{
    return (struct ps_layer){.kind = PS_LAYER_CONV2D,
                             .inputs = in_channels,
                             .outputs = out_channels,
                             .kernel = {kernel, kernel},
                             .stride = {1, 1}};
}

struct ps_layer ps_linear(uint32_t in_features, uint32_t out_features)
{
    return (struct ps_layer){.kind = PS_LAYER_LINEAR, .inputs = in_features, .outputs = out_features};
}

struct ps_layer ps_relu(void)
{
    return (struct ps_layer){.kind = PS_LAYER_RELU};
}

struct ps_layer ps_max_pool2d(uint32_t kernel)
{
    return (struct ps_layer){
        .kind = PS_LAYER_MAX_POOL2D, .kernel = {kernel, kernel}, .stride = {kernel, kernel}};
}

struct ps_layer ps_dropout(float probability)
{
    return (struct ps_layer){.kind = PS_LAYER_DROPOUT, .probability = probability};
}

struct ps_layer ps_flatten(void)
{
    return (struct ps_layer){.kind = PS_LAYER_FLATTEN};
}

struct ps_layer ps_log_softmax(void)
{
    return (struct ps_layer){.kind = PS_LAYER_LOG_SOFTMAX};
}

const char *ps_layer_name(enum ps_layer_kind kind)
{
    static const char *const names[] = {"?",          "conv2d",  "linear",  "relu",
                                        "max_pool2d", "dropout", "flatten", "log_softmax"};
    return kind >= PS_LAYER_CONV2D && kind <= PS_LAYER_LOG_SOFTMAX ? names[kind] : names[0];
}

uint64_t ps_shape_floats(const struct ps_shape *shape)
{
    uint64_t floats = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        floats *= shape->dims[i];
    return floats;
}

static bool is_size(uint32_t x)
{
    return x >= 1 && x <= PS_LAYER_SIZE_MAX;
}

static enum mr_status refuse_shape(const struct ps_layer *layer, const char *wants, const struct ps_shape *in,
                                   char *error, size_t error_bytes)
{
    char dims[64] = "", *p = dims;
    for (uint32_t i = 0; i < in->rank; i++)
        p += snprintf(p, 16, "%s%" PRIu32, i > 0 ? ", " : "", in->dims[i]);
    snprintf(error, error_bytes, "%s takes samples of shape [%s], gets [%s]", ps_layer_name(layer->kind),
             wants, dims);
    return MR_WRONG_SHAPE;
}

/* Height (axis 0) or width (1) of what a window that slides over in->dims[1 + axis] gives; 0 when it does not
 * fit. */
static uint32_t slid(const struct ps_layer *layer, const struct ps_shape *in, uint32_t axis)
{
    uint32_t size = in->dims[1 + axis] + 2 * layer->pad[axis];
    return size < layer->kernel[axis] ? 0 : (size - layer->kernel[axis]) / layer->stride[axis] + 1;
}

static enum mr_status check_window(const struct ps_layer *layer, const struct ps_shape *in, char *error,
                                   size_t error_bytes)
{
    for (uint32_t axis = 0; axis < 2; axis++) {
        bool is_pool = layer->kind == PS_LAYER_MAX_POOL2D;
        uint32_t pad_max = is_pool ? layer->kernel[axis] / 2 : PS_LAYER_SIZE_MAX;
        if (!is_size(layer->kernel[axis]) || !is_size(layer->stride[axis]) || layer->pad[axis] > pad_max) {
            snprintf(error, error_bytes, "%s: kernel and stride are 1..%u, padding is at most %u",
                     ps_layer_name(layer->kind), PS_LAYER_SIZE_MAX, pad_max);
            return MR_INVALID_ARGUMENT;
        }
        if (slid(layer, in, axis) == 0) {
            snprintf(error, error_bytes,
                     "%s: a kernel of %" PRIu32 " x %" PRIu32 " does not fit into %" PRIu32 " x %" PRIu32
                     " with padding %" PRIu32 ", %" PRIu32,
                     ps_layer_name(layer->kind), layer->kernel[0], layer->kernel[1], in->dims[1], in->dims[2],
                     layer->pad[0], layer->pad[1]);
            return MR_WRONG_SHAPE;
        }
    }
    return MR_OK;
}

static enum mr_status window_output(const struct ps_layer *layer, const struct ps_shape *in,
                                    struct ps_shape *out, char *error, size_t error_bytes)
{
    if (in->rank != 3)
        return refuse_shape(layer, "channels, height, width", in, error, error_bytes);
    enum mr_status status = check_window(layer, in, error, error_bytes);
    if (status != MR_OK)
        return status;
    uint32_t channels = layer->kind == PS_LAYER_CONV2D ? layer->outputs : in->dims[0];
    *out = (struct ps_shape){3, {channels, slid(layer, in, 0), slid(layer, in, 1)}};
    return MR_OK;
}

static enum mr_status weighted_output(const struct ps_layer *layer, const struct ps_shape *in,
                                      struct ps_shape *out, char *error, size_t error_bytes)
{
    char wants[64];
    bool is_linear = layer->kind == PS_LAYER_LINEAR;
    if (!is_size(layer->inputs) || !is_size(layer->outputs)) {
        snprintf(error, error_bytes, "%s: inputs and outputs are 1..%u", ps_layer_name(layer->kind),
                 PS_LAYER_SIZE_MAX);
        return MR_INVALID_ARGUMENT;
    }
    snprintf(wants, sizeof(wants), "%" PRIu32 "%s", layer->inputs, is_linear ? "" : ", height, width");
    if (in->rank != (is_linear ? 1 : 3) || in->dims[0] != layer->inputs)
        return refuse_shape(layer, wants, in, error, error_bytes);
    if (!is_linear)
        return window_output(layer, in, out, error, error_bytes);
    *out = (struct ps_shape){1, {layer->outputs}};
    return MR_OK;
}

static enum mr_status output_of(const struct ps_layer *layer, const struct ps_shape *in, struct ps_shape *out,
                                char *error, size_t error_bytes)
{
    *out = *in;
    switch (layer->kind) {
    case PS_LAYER_CONV2D:
    case PS_LAYER_LINEAR:
        return weighted_output(layer, in, out, error, error_bytes);
    case PS_LAYER_MAX_POOL2D:
        return window_output(layer, in, out, error, error_bytes);
    case PS_LAYER_RELU:
        return MR_OK;
    case PS_LAYER_DROPOUT:
        if (layer->probability >= 0 && layer->probability <= 1)
            return MR_OK;
        snprintf(error, error_bytes, "dropout: the probability is 0..1, not %g", (double)layer->probability);
        return MR_INVALID_ARGUMENT;
    case PS_LAYER_FLATTEN:
        *out = (struct ps_shape){1, {(uint32_t)ps_shape_floats(in)}};
        return MR_OK;
    case PS_LAYER_LOG_SOFTMAX:
        return in->rank == 1 ? MR_OK : refuse_shape(layer, "classes", in, error, error_bytes);
    }
    snprintf(error, error_bytes, "there is no layer of kind %d", (int)layer->kind);
    return MR_UNSUPPORTED;
}

/* Floats of weights, without overflow: each factor is at most PS_LAYER_SIZE_MAX = 2^16. */
static bool parameters_fit(const struct ps_layer *layer)
{
    if (layer->kind != PS_LAYER_CONV2D)
        return true;
    uint64_t window = (uint64_t)layer->kernel[0] * layer->kernel[1];
    return window <= PS_PARAMETER_FLOATS_MAX &&
           (uint64_t)layer->inputs * layer->outputs <= PS_PARAMETER_FLOATS_MAX / window;
}

enum mr_status ps_layer_output(const struct ps_layer *layer, const struct ps_shape *in, struct ps_shape *out,
                               char *error, size_t error_bytes)
{
    struct ps_shape shape;
    enum mr_status status = output_of(layer, in, &shape, error, error_bytes);
    if (status != MR_OK)
        return status;
    if (ps_shape_floats(&shape) > PS_SAMPLE_FLOATS_MAX || !parameters_fit(layer)) {
        snprintf(error, error_bytes, "%s: what comes out, or its weight, is too large",
                 ps_layer_name(layer->kind));
        return MR_INVALID_ARGUMENT;
    }
    *out = shape;
    return MR_OK;
}

struct ps_layer_parameter ps_layer_parameter(const struct ps_layer *layer, uint32_t index)
{
    struct ps_layer_parameter p = {0};
    bool has_parameters = layer->kind == PS_LAYER_CONV2D || layer->kind == PS_LAYER_LINEAR;
    if (!has_parameters || index > 1 || (index == 1 && layer->no_bias))
        return p;
    p.fan_in = layer->inputs;
    if (layer->kind == PS_LAYER_CONV2D)
        p.fan_in *= (uint64_t)layer->kernel[0] * layer->kernel[1];
    p.dims[0] = layer->outputs;
    p.rank = 1;
    p.count = layer->outputs;
    if (index == 1)
        return p;
    p.dims[1] = layer->inputs;
    p.rank = 2;
    if (layer->kind == PS_LAYER_CONV2D) {
        p.dims[2] = layer->kernel[0];
        p.dims[3] = layer->kernel[1];
        p.rank = 4;
    }
    p.count *= p.fan_in;
    return p;
}
