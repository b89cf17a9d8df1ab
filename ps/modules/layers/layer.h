/* Layers of a network, as a description: what kind, how large, and what shape comes out of what goes in.
 * Pure, any thread.
 *
 * Tensors are f32, row-major, [batch, channels, height, width] or [batch, features]. Shapes here are of one
 * sample, without the batch. Formulas, defaults and the shapes of parameters are torch.nn's. docs/layers.md
 * shows a network.
 */
#ifndef PS_LAYER_H
#define PS_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define PS_SAMPLE_RANK_MAX      3u
#define PS_LAYER_SIZE_MAX       65536u              /* channels, features, height, width, kernel, stride */
#define PS_SAMPLE_FLOATS_MAX    (UINT64_C(1) << 28) /* of one sample between two layers */
#define PS_PARAMETER_FLOATS_MAX (UINT64_C(1) << 30) /* of one parameter */

/* Of one sample: [channels, height, width] or [features]. dims[rank..] are 0. */
struct ps_shape {
    uint32_t rank;
    uint32_t dims[PS_SAMPLE_RANK_MAX];
};

enum ps_layer_kind {
    PS_LAYER_CONV2D =
        1, /* [in, h, w] -> [out, h', w'], cross-correlation; weight [out, in, kh, kw], bias [out] */
    PS_LAYER_LINEAR,     /* [in] -> [out]; weight [out, in], bias [out] */
    PS_LAYER_RELU,       /* any shape */
    PS_LAYER_MAX_POOL2D, /* [c, h, w] -> [c, h', w']; padding counts as -Inf */
    PS_LAYER_DROPOUT, /* any shape; when training, 0 with `probability`, else times 1 / (1 - probability) */
    PS_LAYER_FLATTEN, /* any shape -> [features] */
    PS_LAYER_LOG_SOFTMAX, /* [classes] -> [classes] */
};

/* Fields without a meaning for the kind are 0. [2] is {height, width}. */
struct ps_layer {
    enum ps_layer_kind kind;
    uint32_t inputs, outputs;              /* conv2d: channels; linear: features */
    uint32_t kernel[2], stride[2], pad[2]; /* conv2d, max-pool; pad: on each side */
    bool no_bias;                          /* conv2d, linear */
    float probability;                     /* dropout: [0, 1] */
};

/* Stride 1, no padding, a bias. */
struct ps_layer ps_conv2d(uint32_t in_channels, uint32_t out_channels, uint32_t kernel);
struct ps_layer ps_linear(uint32_t in_features, uint32_t out_features);
struct ps_layer ps_relu(void);
/* The stride is the kernel. */
struct ps_layer ps_max_pool2d(uint32_t kernel);
struct ps_layer ps_dropout(float probability);
struct ps_layer ps_flatten(void);
struct ps_layer ps_log_softmax(void);

/* *out: the shape that comes out of `layer` for `in`. Else MR_INVALID_ARGUMENT, MR_WRONG_SHAPE or
 * MR_UNSUPPORTED, `error` (of `error_bytes`) holds a line that says why, and *out is as it was. */
enum mr_status ps_layer_output(const struct ps_layer *layer, const struct ps_shape *in, struct ps_shape *out,
                               char *error, size_t error_bytes);
/* Product of the dims; 1 for rank 0. */
uint64_t ps_shape_floats(const struct ps_shape *shape);
const char *ps_layer_name(enum ps_layer_kind kind); /* "conv2d"; "?" when unknown */

/* Weight (index 0) and bias (1) of a layer. count 0: it has none. */
struct ps_layer_parameter {
    uint32_t rank, dims[4]; /* dims[rank..] are 0 */
    uint64_t count;         /* floats */
    uint64_t fan_in;        /* inputs that an output is made of */
};
struct ps_layer_parameter ps_layer_parameter(const struct ps_layer *layer, uint32_t index);

#define PS_NETWORK_LAYERS_MAX 256u

/* A parameter of a network. */
struct ps_parameter_info {
    char name[32]; /* "0.weight", "0.bias", "2.weight": as of torch.nn.Sequential */
    struct ps_layer_parameter shape;
    uint64_t first; /* float of it within the parameters of the network, which lie one after the other */
};

/* How a forward runs. */
struct ps_forward {
    bool training; /* dropout drops; else it does nothing */
    /* Which elements dropout drops follows from these, the layer's number, and the element's place. */
    uint64_t seed, step;
};

#endif
