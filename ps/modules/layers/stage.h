/* A stage of a plan: a layer, or more (a relu goes with the convolution or linear that it follows, and a
 * max-pool with both), or a change of format between two. Inside ps/modules/layers/ only.
 */
#ifndef PS_LAYERS_STAGE_H
#define PS_LAYERS_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/modules/layers/engine.h"
#include "ps/modules/layers/layer_list.h"
#include "ps/modules/layers/memory_layouts.h"
#include "ps/modules/layers/sparse_conv.h"

struct ps_stage;

/* A forward or backward that is running. */
struct ps_run {
    const struct ps_layer_list *list;
    struct mr_parameter_version *version;
    dnnl_stream_t stream;
    uint8_t *memory; /* plan->memory_bytes */
    void *scratch;   /* within it: plan->scratch_bytes */
    struct ps_forward how;
    uint32_t batch;
    float *parameter_gradients; /* of the whole network; NULL: not wanted */
};

struct ps_stage_ops {
    enum mr_status (*forward)(const struct ps_run *run, const struct ps_stage *stage, const float *in,
                              float *out);
    /* out_gradient may be changed. in_gradient: NULL when not wanted; out_gradient itself with
     * back_in_place. */
    enum mr_status (*backward)(const struct ps_run *run, const struct ps_stage *stage, const float *in,
                               const float *out, float *out_gradient, float *in_gradient);
};

struct ps_stage {
    const struct ps_stage_ops *ops;
    struct ps_layer layer;
    uint32_t number; /* of the layer */
    uint32_t batch;
    struct ps_formats *formats; /* the plan's: what the formats below are made in */
    bool relu;                  /* follows, and is done with it */
    bool in_place;              /* its output takes the place of its input */
    bool back_in_place;         /* its input's gradient takes the place of its output's */
    bool keeps_out;             /* its backward reads its output: that may not be changed in place */
    ps_format in, out;
    size_t in_at, out_at;         /* within the saved memory */
    size_t extra_at, extra_bytes; /* besides, from forward to backward: a mask, places of maxima */
    size_t scratch_bytes;         /* besides what the primitives want */
    uint32_t weight, bias;        /* parameters of the network; PS_NO_PARAMETER: none */
    ps_format weight_forward, weight_data, weight_gradient; /* as the primitives take them */
    ps_format weight_plain, bias_format, extra_format;      /* bias_format NULL: no bias */
    struct ps_primitive forward, data, weights, reorder;
    /* Of a convolution with its pool: */
    uint32_t chunk, block; /* samples convolved at a time; channels of a plane */
    struct ps_pool pool;
    ps_format chunk_in, chunk_out; /* of the convolution of a chunk */
};
#define PS_NO_PARAMETER UINT32_MAX

/* Each kind's own part: `stage` has layer, number, batch, formats, relu, weight and bias; `now` is the format
 * of the input, `in` and `out` the shapes of input and output. Sets the rest, except offsets in memory. If
 * stage->in differs from the format of the input, a reorder comes before the stage. */
enum mr_status ps_stage_conv2d(struct ps_stage *stage, const struct ps_layer_list *list,
                               const struct ps_shape *in, const struct ps_shape *out);
enum mr_status ps_stage_linear(struct ps_stage *stage, const struct ps_layer_list *list,
                               const struct ps_shape *in, const struct ps_shape *out);
enum mr_status ps_stage_max_pool2d(struct ps_stage *stage, ps_format now, const struct ps_shape *in,
                                   const struct ps_shape *out);
/* A convolution with the relu and the pool after it. MR_UNSUPPORTED: not for these layers; the caller
 * destroys what was made. */
enum mr_status ps_stage_pooled(struct ps_stage *stage, const struct ps_layer_list *list,
                               const struct ps_layer *pool, const struct ps_shape *in,
                               const struct ps_shape *out);
void ps_stage_destroy(struct ps_stage *stage); /* its primitives */
void ps_stage_relu(struct ps_stage *stage, ps_format now);
void ps_stage_dropout(struct ps_stage *stage, const struct ps_shape *in);
void ps_stage_log_softmax(struct ps_stage *stage, const struct ps_shape *in);
enum mr_status ps_stage_reorder(struct ps_stage *stage, ps_format from, ps_format to);

#endif
