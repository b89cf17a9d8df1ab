/* What the files of optimizer kernels share: how a gradient is transformed, sums over a row, and the loop over rows that is
 * compiled for each set. Inside dataplane/optimizer/kernels_*.c only. */
#ifndef MR_KERNELS_OPTIMIZER_H
#define MR_KERNELS_OPTIMIZER_H

#include <float.h>
#include <math.h>
#include "dataplane/optimizer/kernels_internal.h"
#include "dataplane/optimizer/rule.h"

/* Into [-bound, bound]; NaN becomes bound. */
INLINE float clip(float x, float bound)
{
    x = x < bound ? x : bound;
    return x > -bound ? x : -bound;
}

/* Of a sum of no negative terms. */
INLINE float at_most_max(float x)
{
    return x < FLT_MAX ? x : FLT_MAX;
}

/* The sum of squares of clip(x[i], bound), in eight fixed lanes. */
INLINE double sum_of_squares(const float *x, size_t dim, float bound)
{
    double lanes[8] = {0};
    size_t i = 0;
    for (; i + 8 <= dim; i += 8)
        for (uint32_t lane = 0; lane < 8; lane++) {
            double y = (double)clip(x[i + lane], bound);
            lanes[lane] += y * y;
        }
    for (uint32_t lane = 0; i < dim; i++, lane++) {
        double y = (double)clip(x[i], bound);
        lanes[lane] += y * y;
    }
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* What happens to a row's gradient before the optimizer sees it. */
struct transform {
    bool on;
    float bound, scale, decay;
};

INLINE struct transform transform_of(const struct mr_rule *o, const float *gradient, size_t dim, bool on)
{
    struct transform t = {.on = on, .bound = FLT_MAX, .scale = 1.0f, .decay = o->weight_decay};
    if (!on)
        return t;
    if (o->clip_value > 0)
        t.bound = o->clip_value;
    if (o->clip_norm > 0) {
        double norm = sqrt(sum_of_squares(gradient, dim, t.bound));
        if (norm > (double)o->clip_norm)
            t.scale = (float)((double)o->clip_norm / norm);
    }
    return t;
}

INLINE float transformed(struct transform t, float g, float w)
{
    return t.on ? clip(g, t.bound) * t.scale + t.decay * w : g;
}

/* Row after row through name_row(), in one set. Rows of 16 values, with nothing to leave out or transform, have straight code. */
#define MR_RULE_KERNEL(set, name, ...)                                                                       \
    __VA_ARGS__ uint32_t mr_##name##_##set(const struct mr_rule *o, float lr, float *const *values,          \
                                           float *const *states, const float *const *gradients,              \
                                           uint32_t row_count, size_t dim)                                   \
    {                                                                                                        \
        uint32_t changed = 0;                                                                                \
        const bool all_finite = all_rows_finite_body(gradients, row_count, dim);                             \
        if (all_finite && dim == 16 && !o->transforms) {                                                     \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                name##_row(o, lr, values[r], states[r], gradients[r], 16, false);                            \
            return row_count;                                                                                \
        }                                                                                                    \
        for (uint32_t r = 0; r < row_count; r++) {                                                           \
            if (!all_finite && !all_finite_body(gradients[r], dim))                                          \
                continue;                                                                                    \
            if (o->transforms)                                                                               \
                name##_row(o, lr, values[r], states[r], gradients[r], dim, true);                            \
            else                                                                                             \
                name##_row(o, lr, values[r], states[r], gradients[r], dim, false);                           \
            changed++;                                                                                       \
        }                                                                                                    \
        return changed;                                                                                      \
    }

#ifdef __x86_64__
#define MR_RULE_KERNELS(name)                                                                                \
    MR_RULE_KERNEL(baseline, name)                                                                           \
    MR_RULE_KERNEL(avx2, name, MR_TARGET_AVX2)                                                               \
    MR_RULE_KERNEL(avx512, name, MR_TARGET_AVX512)
#define MR_RULE_DECLARE(name) mr_rule_kernel mr_##name##_baseline, mr_##name##_avx2, mr_##name##_avx512;
#else
#define MR_RULE_KERNELS(name) MR_RULE_KERNEL(baseline, name)
#define MR_RULE_DECLARE(name) mr_rule_kernel mr_##name##_baseline;
#endif

MR_RULE_DECLARE(sgd)
MR_RULE_DECLARE(momentum)
MR_RULE_DECLARE(adagrad)
MR_RULE_DECLARE(rowwise_adagrad)
MR_RULE_DECLARE(adam)
MR_RULE_DECLARE(ftrl)
MR_RULE_DECLARE(group_ftrl)
MR_RULE_DECLARE(assign)

#endif
