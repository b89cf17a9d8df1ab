/* What the files of optimizer kernels share: how a gradient is transformed, sums over a row, and the loop
 * over rows that is compiled for each set. Inside dataplane/optimizer/kernels_*.c only. */
#ifndef MR_KERNELS_OPTIMIZER_H
#define MR_KERNELS_OPTIMIZER_H

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
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

/* gradient: NULL if it is not clipped by its norm. */
INLINE struct transform transform_of(const struct mr_rule *o, const float *gradient, size_t dim, bool on)
{
    struct transform t = {.on = on, .bound = FLT_MAX, .scale = 1.0f, .decay = o->weight_decay};
    if (!on)
        return t;
    if (o->clip_value > 0)
        t.bound = o->clip_value;
    if (gradient && o->clip_norm > 0) {
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

/* A row as it was before its step: one that would come to hold NaN or Inf, or more than its type does, stays
 * so, values and state. */
#define MR_KEPT_ROWS   16u   /* kept at a time, where rows are short */
#define MR_KEPT_FLOATS 1024u /* of a longer row, on the stack; larger ones are kept on the heap */

INLINE void keep(float *restrict kept, const float *restrict w, const float *restrict state, size_t dim,
                 size_t state_floats)
{
    memcpy(kept, w, dim * sizeof(*w));
    if (state_floats > 0)
        memcpy(kept + dim, state, state_floats * sizeof(*state));
}

/* Every value of the rows is one that their type holds. What f32 holds is found out faster. */
INLINE bool all_rows_fit(float *const *rows, uint32_t row_count, size_t dim, float largest, uint32_t lanes)
{
    if (largest == FLT_MAX)
        return all_rows_finite_body((const float *const *)rows, row_count, dim, lanes);
    int beyond = 0;
    for (uint32_t r = 0; r < row_count; r++)
        for (size_t i = 0; i < dim; i++)
            beyond |= !(fabsf(rows[r][i]) <= largest);
    return beyond == 0;
}

/* True when the row may stay as it is. */
INLINE bool settle(const float *restrict kept, float *w, float *restrict state, size_t dim,
                   size_t state_floats, float largest, uint32_t lanes)
{
    if (all_rows_fit(&w, 1, dim, largest, lanes))
        return true;
    keep(w, kept, NULL, dim, 0);
    if (state_floats > 0)
        memcpy(state, kept + dim, state_floats * sizeof(*state));
    return false;
}

/* Bits of the first rows. */
INLINE uint32_t bits_of(uint32_t row_count)
{
    return row_count < 32 ? ((uint32_t)1 << row_count) - 1 : UINT32_MAX;
}

/* Row after row through name_row(), in one set. Rows of 16 values, with nothing to leave out or transform,
 * have straight code; state16: floats of their state, known to the compiler, so that keeping them is a few
 * registers' work. */
#define MR_RULE_KERNEL(set, name, state16, ...)                                                              \
    __VA_ARGS__ static uint32_t name##_short_rows_##set(                                                     \
        const struct mr_rule *o, const struct mr_rule_push *push, float *const *values,                      \
        float *const *states, const float *const *gradients, uint32_t row_count)                             \
    {                                                                                                        \
        float kept[MR_KEPT_ROWS][16 + (state16)];                                                            \
        uint32_t changed = bits_of(row_count);                                                               \
        for (uint32_t r = 0; r < row_count; r++) {                                                           \
            keep(kept[r], values[r], states[r], 16, state16);                                                \
            name##_row(o, push, values[r], states[r], gradients[r], 16, false);                              \
        }                                                                                                    \
        if (all_rows_fit(values, row_count, 16, o->largest, MR_LANES_##set))                                 \
            return changed;                                                                                  \
        for (uint32_t r = 0; r < row_count; r++)                                                             \
            changed ^=                                                                                       \
                (uint32_t)!settle(kept[r], values[r], states[r], 16, state16, o->largest, MR_LANES_##set)    \
                << r;                                                                                        \
        return changed;                                                                                      \
    }                                                                                                        \
    __VA_ARGS__ uint32_t mr_##name##_##set(const struct mr_rule *o, const struct mr_rule_push *push,         \
                                           float *const *values, float *const *states,                       \
                                           const float *const *gradients, uint32_t row_count, size_t dim)    \
    {                                                                                                        \
        uint32_t changed = 0;                                                                                \
        assert(row_count <= MR_RULE_ROWS_MAX);                                                               \
        const size_t state_floats = mr_rule_state_floats(o, dim), floats = dim + state_floats;               \
        const bool all_finite = all_rows_finite_body(gradients, row_count, dim, MR_LANES_##set);             \
        if (all_finite && dim == 16 && !o->transforms && state_floats == (state16)) {                        \
            for (uint32_t r = 0; r < row_count; r += MR_KEPT_ROWS)                                           \
                changed |=                                                                                   \
                    name##_short_rows_##set(o, push, values + r, states + r, gradients + r,                  \
                                            row_count - r < MR_KEPT_ROWS ? row_count - r : MR_KEPT_ROWS)     \
                    << r;                                                                                    \
            return changed;                                                                                  \
        }                                                                                                    \
        float near[MR_KEPT_FLOATS],                                                                          \
            *kept = floats <= MR_KEPT_FLOATS ? near : malloc(floats * sizeof(*kept));                        \
        if (kept == NULL) /* what cannot be put back is not tried */                                         \
            return 0;                                                                                        \
        for (uint32_t r = 0; r < row_count; r++) {                                                           \
            if (!all_finite && !all_finite_body(gradients[r], dim, MR_LANES_##set))                          \
                continue;                                                                                    \
            keep(kept, values[r], states[r], dim, state_floats);                                             \
            if (o->transforms)                                                                               \
                name##_row(o, push, values[r], states[r], gradients[r], dim, true);                          \
            else                                                                                             \
                name##_row(o, push, values[r], states[r], gradients[r], dim, false);                         \
            changed |=                                                                                       \
                (uint32_t)settle(kept, values[r], states[r], dim, state_floats, o->largest, MR_LANES_##set)  \
                << r;                                                                                        \
        }                                                                                                    \
        if (kept != near)                                                                                    \
            free(kept);                                                                                      \
        return changed;                                                                                      \
    }

#ifdef __x86_64__
#define MR_RULE_KERNELS(name, state16)                                                                       \
    MR_RULE_KERNEL(baseline, name, state16)                                                                  \
    MR_RULE_KERNEL(avx2, name, state16, MR_TARGET_AVX2)                                                      \
    MR_RULE_KERNEL(avx512, name, state16, MR_TARGET_AVX512)
#define MR_RULE_DECLARE(name) mr_rule_kernel mr_##name##_baseline, mr_##name##_avx2, mr_##name##_avx512;
#else
#define MR_RULE_KERNELS(name, state16) MR_RULE_KERNEL(baseline, name, state16)
#define MR_RULE_DECLARE(name)          mr_rule_kernel mr_##name##_baseline;
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
