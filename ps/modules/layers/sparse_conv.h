/* Max-pool after a convolution, and the convolution's backward from it. A pool's gradient is 0 except where a
 * maximum was, and relu and dropout add zeros of their own: about one in seven values is left after a pool of
 * 2 x 2. So the backward visits these values only. For kernels of 3 x 3 at stride 1 without padding.
 *
 * Planes are [height, width, block] of `block` channels (8 or 16): oneDNN's formats of blocked channels. Any
 * thread.
 */
#ifndef PS_LAYERS_SPARSE_CONV_H
#define PS_LAYERS_SPARSE_CONV_H

#include <stdint.h>

#define PS_SPARSE_WINDOW 9u /* 3 x 3 */

/* A pool over planes of [height, width] to [out_height, out_width], without padding. */
struct ps_pool {
    uint32_t height, width, out_height, out_width;
    uint32_t kernel[2], stride[2];
    uint32_t pitch; /* of places: a maximum at (y, x) has the place y * pitch + x, below 2^16 */
};
/* out, places: [block, out_height, out_width]. The first of equals counts. */
void ps_pool_plane(const struct ps_pool *pool, const float *plane, uint32_t block, float *out,
                   uint16_t *places);

/* What is left of the gradient of one channel: values and where they are. Room for PS_SPARSE_ROOM more than
 * can be left. */
#define PS_SPARSE_ROOM 16u
struct ps_sparse {
    uint32_t count;
    uint32_t *at; /* first float of the window within a plane of the input */
    float *values;
};
/* Those of `count` gradients whose output is above 0 and that are not 0 themselves. */
void ps_sparse_take(struct ps_sparse *out, const float *gradients, const float *outputs,
                    const uint16_t *places, uint32_t count, uint32_t block);

/* weights[9, block] += value * window of the plane, for each; `row`: floats of a row of the plane. */
void ps_sparse_weights(const struct ps_sparse *s, const float *plane, uint32_t row, uint32_t block,
                       float *weights);
/* Window of the plane += value * weights[9, block], for each. */
void ps_sparse_data(const struct ps_sparse *s, float *plane, uint32_t row, uint32_t block,
                    const float *weights);

#endif
