#include "plain_network.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct window {
    const struct ps_layer *l;
    const struct ps_shape *in, *out;
};

/* The input at output (y, x) and place (ky, kx) of the kernel; NULL: padding. */
static const double *under(const struct window *w, const double *channel, uint32_t y, uint32_t x, uint32_t ky,
                           uint32_t kx)
{
    int64_t row = (int64_t)y * w->l->stride[0] + ky - w->l->pad[0];
    int64_t column = (int64_t)x * w->l->stride[1] + kx - w->l->pad[1];
    if (row < 0 || row >= w->in->dims[1] || column < 0 || column >= w->in->dims[2])
        return NULL;
    return channel + row * w->in->dims[2] + column;
}

static double conv_at(const struct window *w, const double *in, const double *weight, uint32_t y, uint32_t x)
{
    double sum = 0;
    for (uint32_t c = 0; c < w->in->dims[0]; c++)
        for (uint32_t ky = 0; ky < w->l->kernel[0]; ky++)
            for (uint32_t kx = 0; kx < w->l->kernel[1]; kx++, weight++) {
                const double *at = under(w, in + (size_t)c * w->in->dims[1] * w->in->dims[2], y, x, ky, kx);
                sum += at != NULL ? *at * *weight : 0;
            }
    return sum;
}

static double max_at(const struct window *w, const double *channel, uint32_t y, uint32_t x)
{
    double most = -INFINITY;
    for (uint32_t ky = 0; ky < w->l->kernel[0]; ky++)
        for (uint32_t kx = 0; kx < w->l->kernel[1]; kx++) {
            const double *at = under(w, channel, y, x, ky, kx);
            most = at != NULL && *at > most ? *at : most;
        }
    return most;
}

static void windows(const struct window *w, const double *in, const double *weight, const double *bias,
                    double *out)
{
    bool is_conv = w->l->kind == PS_LAYER_CONV2D;
    assert(!is_conv || weight != NULL);
    size_t in_plane = (size_t)w->in->dims[1] * w->in->dims[2];
    size_t each = (size_t)w->in->dims[0] * w->l->kernel[0] * w->l->kernel[1];
    for (uint32_t c = 0; c < w->out->dims[0]; c++)
        for (uint32_t y = 0; y < w->out->dims[1]; y++)
            for (uint32_t x = 0; x < w->out->dims[2]; x++, out++)
                *out = is_conv ? conv_at(w, in, weight + c * each, y, x) + (bias != NULL ? bias[c] : 0)
                               : max_at(w, in + c * in_plane, y, x);
}

static void linear(const struct ps_layer *l, const double *in, const double *weight, const double *bias,
                   double *out)
{
    assert(weight != NULL);
    for (uint32_t o = 0; o < l->outputs; o++) {
        out[o] = bias != NULL ? bias[o] : 0;
        for (uint32_t i = 0; i < l->inputs; i++)
            out[o] += weight[(size_t)o * l->inputs + i] * in[i];
    }
}

static void log_softmax(const double *in, double *out, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += exp(in[i]);
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] - log(sum);
}

static void one_layer(const struct ps_layer *l, const struct ps_shape *in_shape,
                      const struct ps_shape *out_shape, const double *in, const double *weight,
                      const double *bias, double *out)
{
    const struct window w = {l, in_shape, out_shape};
    size_t count = ps_shape_floats(out_shape);
    switch (l->kind) {
    case PS_LAYER_CONV2D:
    case PS_LAYER_MAX_POOL2D:
        windows(&w, in, weight, bias, out);
        break;
    case PS_LAYER_LINEAR:
        linear(l, in, weight, bias, out);
        break;
    case PS_LAYER_LOG_SOFTMAX:
        log_softmax(in, out, count);
        break;
    case PS_LAYER_RELU:
        for (size_t i = 0; i < count; i++)
            out[i] = fmax(in[i], 0);
        break;
    case PS_LAYER_DROPOUT:
    case PS_LAYER_FLATTEN:
        memcpy(out, in, count * sizeof(*out));
        break;
    }
}

static double *one_sample(const struct ps_network *n, const struct ps_layer *layers, uint32_t layer_count,
                          const double *input, const double *parameters)
{
    struct ps_shape shape = *ps_network_input(n), next;
    double *now = malloc(ps_shape_floats(&shape) * sizeof(*now)), *out;
    char error[200];
    memcpy(now, input, ps_shape_floats(&shape) * sizeof(*now));
    for (uint32_t i = 0, p = 0; i < layer_count; i++, shape = next) {
        const double *values[2] = {NULL, NULL};
        for (uint32_t k = 0; k < 2; k++)
            if (ps_layer_parameter(&layers[i], k).count > 0)
                values[k] = parameters + ps_network_parameter(n, p++)->first;
        if (ps_layer_output(&layers[i], &shape, &next, error, sizeof(error)) != MR_OK)
            abort();
        out = calloc(ps_shape_floats(&next), sizeof(*out));
        one_layer(&layers[i], &shape, &next, now, values[0], values[1], out);
        free(now);
        now = out;
    }
    return now;
}

double plain_network(const struct ps_network *n, const struct ps_layer *layers, uint32_t layer_count,
                     uint32_t batch, const double *input, const double *parameters, const double *weights)
{
    size_t in_each = ps_shape_floats(ps_network_input(n)), out_each = ps_shape_floats(ps_network_output(n));
    double sum = 0;
    for (uint32_t b = 0; b < batch; b++) {
        double *out = one_sample(n, layers, layer_count, input + b * in_each, parameters);
        for (size_t i = 0; i < out_each; i++)
            sum += out[i] * weights[b * out_each + i];
        free(out);
    }
    return sum;
}
