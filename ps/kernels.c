#include "ps/kernels.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include "ps/optimizer.h"

#define INLINE static inline __attribute__((always_inline))

/* Registers of any width; the compiler splits them where the processor has narrower ones. */
typedef float floats16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float floats4 __attribute__((vector_size(16), aligned(4), may_alias));

INLINE void copy_rows_body(float *out, const float *const *rows, uint32_t row_count, size_t dim)
{
    for (uint32_t r = 0; r < row_count; r++, out += dim) {
        const float *row = rows[r];
        size_t i = 0;
        for (; i + 16 <= dim; i += 16)
            *(floats16 *)(out + i) = *(const floats16 *)(row + i);
        for (; i + 4 <= dim; i += 4)
            *(floats4 *)(out + i) = *(const floats4 *)(row + i);
        for (; i < dim; i++)
            out[i] = row[i];
    }
}

INLINE void add_rows_body(float *out, const float *const *rows, uint32_t row_count, size_t dim)
{
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        floats16 sum = *(const floats16 *)(out + i);
        for (uint32_t r = 0; r < row_count; r++)
            sum += *(const floats16 *)(rows[r] + i);
        *(floats16 *)(out + i) = sum;
    }
    for (; i + 4 <= dim; i += 4) {
        floats4 sum = *(const floats4 *)(out + i);
        for (uint32_t r = 0; r < row_count; r++)
            sum += *(const floats4 *)(rows[r] + i);
        *(floats4 *)(out + i) = sum;
    }
    for (; i < dim; i++) {
        float sum = out[i];
        for (uint32_t r = 0; r < row_count; r++)
            sum += rows[r][i];
        out[i] = sum;
    }
}

INLINE void divide_body(float *out, const float *in, float divisor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] / divisor;
}

INLINE bool all_finite_body(const float *in, size_t count)
{
    uint32_t infinite = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof(bits));
        infinite |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return infinite == 0;
}

INLINE bool add_finite_body(float *restrict out, const float *restrict in, size_t count)
{
    if (!all_finite_body(in, count))
        return false;
    for (size_t i = 0; i < count; i++)
        out[i] += in[i];
    return true;
}

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

INLINE void sgd_row(const struct ps_optimizer *o, float *restrict w, const float *restrict gradient,
                    size_t dim, bool transforms)
{
    const float lr = o->learning_rate, decay = o->weight_decay;
    const float bound = o->clip_value > 0 ? o->clip_value : FLT_MAX;
    const float scale = transforms && o->clip_norm > 0 ? norm_scale(o, gradient, dim) : 1.0f;
    for (size_t i = 0; i < dim; i++) {
        float g = gradient[i];
        if (transforms)
            g = clip(g, bound) * scale + decay * w[i];
        w[i] -= lr * g;
    }
}

INLINE void adagrad_row(const struct ps_optimizer *o, float *restrict w, float *restrict state,
                        const float *restrict gradient, size_t dim, bool transforms)
{
    const float lr = o->learning_rate, decay = o->weight_decay, epsilon = o->epsilon;
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

INLINE uint32_t sgd_body(const struct ps_optimizer *o, float *const *rows, const float *const *gradients,
                         uint32_t row_count, size_t dim)
{
    uint32_t changed = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        if (!all_finite_body(gradients[r], dim))
            continue;
        if (o->transforms)
            sgd_row(o, rows[r], gradients[r], dim, true);
        else
            sgd_row(o, rows[r], gradients[r], dim, false);
        changed++;
    }
    return changed;
}

INLINE uint32_t adagrad_body(const struct ps_optimizer *o, float *const *rows, const float *const *gradients,
                             uint32_t row_count, size_t dim)
{
    uint32_t changed = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        if (!all_finite_body(gradients[r], dim))
            continue;
        if (o->transforms)
            adagrad_row(o, rows[r], rows[r] + dim, gradients[r], dim, true);
        else
            adagrad_row(o, rows[r], rows[r] + dim, gradients[r], dim, false);
        changed++;
    }
    return changed;
}

/* One set of kernels: the bodies above, inlined into functions with the attributes that follow. */
#define KERNELS(set, ...)                                                                                    \
    __VA_ARGS__ static void copy_rows_##set(float *out, const float *const *rows, uint32_t row_count,        \
                                            size_t dim)                                                      \
    {                                                                                                        \
        copy_rows_body(out, rows, row_count, dim);                                                           \
    }                                                                                                        \
    __VA_ARGS__ static void add_rows_##set(float *out, const float *const *rows, uint32_t row_count,         \
                                           size_t dim)                                                       \
    {                                                                                                        \
        add_rows_body(out, rows, row_count, dim);                                                            \
    }                                                                                                        \
    __VA_ARGS__ static void divide_##set(float *out, const float *in, float divisor, size_t count)           \
    {                                                                                                        \
        divide_body(out, in, divisor, count);                                                                \
    }                                                                                                        \
    __VA_ARGS__ static bool all_finite_##set(const float *in, size_t count)                                  \
    {                                                                                                        \
        return all_finite_body(in, count);                                                                   \
    }                                                                                                        \
    __VA_ARGS__ static bool add_finite_##set(float *out, const float *in, size_t count)                      \
    {                                                                                                        \
        return add_finite_body(out, in, count);                                                              \
    }                                                                                                        \
    __VA_ARGS__ static uint32_t sgd_##set(const struct ps_optimizer *o, float *const *rows,                  \
                                          const float *const *gradients, uint32_t row_count, size_t dim)     \
    {                                                                                                        \
        return sgd_body(o, rows, gradients, row_count, dim);                                                 \
    }                                                                                                        \
    __VA_ARGS__ static uint32_t adagrad_##set(const struct ps_optimizer *o, float *const *rows,              \
                                              const float *const *gradients, uint32_t row_count, size_t dim) \
    {                                                                                                        \
        return adagrad_body(o, rows, gradients, row_count, dim);                                             \
    }                                                                                                        \
    static const struct ps_kernels set = {.name = #set,                                                      \
                                          .copy_rows = copy_rows_##set,                                      \
                                          .add_rows = add_rows_##set,                                        \
                                          .divide = divide_##set,                                            \
                                          .all_finite = all_finite_##set,                                    \
                                          .add_finite = add_finite_##set,                                    \
                                          .sgd = sgd_##set,                                                  \
                                          .adagrad = adagrad_##set};

KERNELS(baseline)
#ifdef __x86_64__
KERNELS(avx2, __attribute__((target("avx2"))))
KERNELS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

const struct ps_kernels *ps_kernels_at(uint32_t index)
{
    const struct ps_kernels *runs[3];
    uint32_t count = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        runs[count++] = &avx512;
    if (__builtin_cpu_supports("avx2"))
        runs[count++] = &avx2;
#endif
    runs[count++] = &baseline;
    return index < count ? runs[index] : NULL;
}

const struct ps_kernels *ps_kernels_best(void)
{
    return ps_kernels_at(0);
}
