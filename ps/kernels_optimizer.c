/* The optimizers' steps, compiled for several vector widths like the rest of the kernels (ps/kernels.h). */
#include <float.h>
#include <math.h>
#include "ps/kernels_internal.h"
#include "ps/optimizer.h"

INLINE float clip(float g, float bound)
{
    g = g < bound ? g : bound;
    return g > -bound ? g : -bound;
}

/* By how much to scale a gradient (after clipping by value) so that its norm is at most clip_norm. */
INLINE float norm_scale(const struct ps_optimizer *o, const float *gradient, size_t dim)
{
    double lanes[8] = {0};
    float bound = o->clip_value > 0 ? o->clip_value : FLT_MAX;
    size_t i = 0;
    for (; i + 8 <= dim; i += 8)
        for (uint32_t lane = 0; lane < 8; lane++) {
            double g = (double)clip(gradient[i + lane], bound);
            lanes[lane] += g * g;
        }
    for (uint32_t lane = 0; i < dim; i++, lane++) {
        double g = (double)clip(gradient[i], bound);
        lanes[lane] += g * g;
    }
    double norm = sqrt(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                       ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
    return norm > (double)o->clip_norm ? (float)((double)o->clip_norm / norm) : 1.0f;
}

INLINE void sgd_row(const struct ps_optimizer *o, float lr, float *restrict w, float *restrict state,
                    const float *restrict gradient, size_t dim, bool transforms)
{
    (void)state;
    const float decay = o->weight_decay;
    const float bound = o->clip_value > 0 ? o->clip_value : FLT_MAX;
    const float scale = transforms && o->clip_norm > 0 ? norm_scale(o, gradient, dim) : 1.0f;
    for (size_t i = 0; i < dim; i++) {
        float g = gradient[i];
        if (transforms)
            g = clip(g, bound) * scale + decay * w[i];
        w[i] -= lr * g;
    }
}

INLINE void adagrad_row(const struct ps_optimizer *o, float lr, float *restrict w, float *restrict state,
                        const float *restrict gradient, size_t dim, bool transforms)
{
    const float decay = o->weight_decay, epsilon = o->epsilon;
    const float bound = o->clip_value > 0 ? o->clip_value : FLT_MAX;
    const float scale = transforms && o->clip_norm > 0 ? norm_scale(o, gradient, dim) : 1.0f;
    for (size_t i = 0; i < dim; i++) {
        float g = gradient[i];
        if (transforms)
            g = clip(g, bound) * scale + decay * w[i];
        float s = state[i] + g * g;
        s = s < FLT_MAX ? s : FLT_MAX;
        state[i] = s;
        w[i] -= lr * g / (sqrtf(s) + epsilon);
    }
}

/* Row after row through `name`_row(), in one set. */
#define KERNEL(set, name, ...)                                                                               \
    __VA_ARGS__ static uint32_t name##_##set(const struct ps_optimizer *o, float lr, float *const *values,   \
                                             float *const *states, const float *const *gradients,            \
                                             uint32_t row_count, size_t dim)                                 \
    {                                                                                                        \
        uint32_t changed = 0;                                                                                \
        for (uint32_t r = 0; r < row_count; r++) {                                                           \
            if (!all_finite_body(gradients[r], dim))                                                         \
                continue;                                                                                    \
            if (o->transforms)                                                                               \
                name##_row(o, lr, values[r], states[r], gradients[r], dim, true);                            \
            else                                                                                             \
                name##_row(o, lr, values[r], states[r], gradients[r], dim, false);                           \
            changed++;                                                                                       \
        }                                                                                                    \
        return changed;                                                                                      \
    }

#define KERNELS(set, ...)                                                                                    \
    KERNEL(set, sgd, __VA_ARGS__)                                                                            \
    KERNEL(set, adagrad, __VA_ARGS__)                                                                        \
    ps_optimizer_kernel *const ps_optimizer_kernels_##set[PS_OPTIMIZER_KINDS] = {                            \
        [MR_OPT_SGD] = sgd_##set,                                                                            \
        [MR_OPT_ADAGRAD] = adagrad_##set,                                                                    \
    };

KERNELS(baseline)
#ifdef __x86_64__
KERNELS(avx2, PS_TARGET_AVX2)
KERNELS(avx512, PS_TARGET_AVX512)
#endif
