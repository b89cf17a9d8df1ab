#include "ps/modules/layers/elementwise.h"

#include <math.h>
#include "ps/modules/layers/vector_sets.h"

INLINE void relu_forward_body(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] < 0 ? 0 : x[i];
}

INLINE void relu_backward_body(float *gradient, const float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        gradient[i] = out[i] > 0 ? gradient[i] : 0;
}

/* A bijection of 32 bits in which each bit of x moves about half of the others (Wellons, "hash
 * prospector"). */
INLINE uint32_t mixed(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* One element's 32 random bits: mixed with one half of the key, then with the other. */
INLINE uint32_t drawn(struct ps_drop_key key, uint32_t element)
{
    return mixed(mixed(element ^ key.first) + key.second);
}

INLINE void dropout_forward_body(struct ps_drop_key key, uint32_t threshold, float scale, float *restrict x,
                                 uint8_t *restrict kept, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t keep = drawn(key, (uint32_t)i) >= threshold;
        kept[i] = keep;
        x[i] = keep ? x[i] * scale : 0;
    }
}

INLINE void dropout_backward_body(float *restrict gradient, const uint8_t *restrict kept, float scale,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++)
        gradient[i] = kept[i] ? gradient[i] * scale : 0;
}

PS_VECTOR_SETS(relu_forward_body, (float *x, size_t count), (x, count))
PS_VECTOR_SETS(relu_backward_body, (float *gradient, const float *out, size_t count), (gradient, out, count))
PS_VECTOR_SETS(dropout_forward_body,
               (struct ps_drop_key key, uint32_t threshold, float scale, float *x, uint8_t *kept,
                size_t count),
               (key, threshold, scale, x, kept, count))
PS_VECTOR_SETS(dropout_backward_body, (float *gradient, const uint8_t *kept, float scale, size_t count),
               (gradient, kept, scale, count))

void ps_relu_forward(float *x, size_t count)
{
    PS_VECTOR_CALL(relu_forward_body, (x, count));
}

void ps_relu_backward(float *gradient, const float *out, size_t count)
{
    PS_VECTOR_CALL(relu_backward_body, (gradient, out, count));
}

void ps_dropout_forward(struct ps_drop_key key, uint32_t threshold, float scale, float *x, uint8_t *kept,
                        size_t count)
{
    PS_VECTOR_CALL(dropout_forward_body, (key, threshold, scale, x, kept, count));
}

void ps_dropout_backward(float *gradient, const uint8_t *kept, float scale, size_t count)
{
    PS_VECTOR_CALL(dropout_backward_body, (gradient, kept, scale, count));
}

/* The finalizer of splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t mixed64(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

struct ps_drop_key ps_drop_key(uint64_t seed, uint64_t step, uint32_t layer_number, uint32_t sample)
{
    uint64_t z = mixed64(mixed64(mixed64(seed) ^ step) ^ ((uint64_t)layer_number << 32 | sample));
    return (struct ps_drop_key){(uint32_t)z, (uint32_t)(z >> 32)};
}

void ps_log_softmax_forward(const float *in, float *out, uint32_t rows, uint32_t classes)
{
    for (uint32_t r = 0; r < rows; r++, in += classes, out += classes) {
        float most = in[0];
        for (uint32_t c = 1; c < classes; c++)
            most = in[c] > most ? in[c] : most;
        double sum = (double)expf(in[0] - most);
        for (uint32_t c = 1; c < classes; c++)
            sum += (double)expf(in[c] - most);
        const float log_sum = (float)log(sum);
        for (uint32_t c = 0; c < classes; c++)
            out[c] = in[c] - most - log_sum;
    }
}

void ps_log_softmax_backward(const float *out, const float *gradient, float *in_gradient, uint32_t rows,
                             uint32_t classes)
{
    for (uint32_t r = 0; r < rows; r++) {
        const size_t first = (size_t)r * classes;
        double sum = 0;
        for (uint32_t c = 0; c < classes; c++)
            sum += (double)gradient[first + c];
        for (uint32_t c = 0; c < classes; c++)
            in_gradient[first + c] = gradient[first + c] - expf(out[first + c]) * (float)sum;
    }
}
