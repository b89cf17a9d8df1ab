/* The loops over floats that no primitive of oneDNN does as well: compiled for several vector widths, chosen
 * at run time. Pointers need the alignment of a float. Any thread. */
#ifndef PS_LAYERS_ELEMENTWISE_H
#define PS_LAYERS_ELEMENTWISE_H

#include <stddef.h>
#include <stdint.h>

/* x = max(x, 0); NaN stays. */
void ps_relu_forward(float *x, size_t count);
/* gradient = 0 where out is not above 0. */
void ps_relu_backward(float *gradient, const float *out, size_t count);

/* Which elements of a sample dropout drops: a function of these alone, whatever the machine and the batch. */
struct ps_drop_key {
    uint32_t first, second;
};
struct ps_drop_key ps_drop_key(uint64_t seed, uint64_t step, uint32_t layer_number, uint32_t sample);

/* x *= scale where kept[i] is set to 1, and = 0 where to 0. An element is kept with the probability 1 -
 * threshold / 2^32. */
void ps_dropout_forward(struct ps_drop_key key, uint32_t threshold, float scale, float *x, uint8_t *kept,
                        size_t count);
void ps_dropout_backward(float *gradient, const uint8_t *kept, float scale, size_t count);

/* Over rows of `classes`. The backward may have gradient and in_gradient in one place. */
void ps_log_softmax_forward(const float *in, float *out, uint32_t rows, uint32_t classes);
void ps_log_softmax_backward(const float *out, const float *gradient, float *in_gradient, uint32_t rows,
                             uint32_t classes);

#endif
