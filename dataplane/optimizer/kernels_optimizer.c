/* The optimizers' steps, compiled for several vector widths like the rest of the kernels (kernels.h): those
 * of the SGD and Adagrad families, the one that sets, and the tables of all. What they compute is in
 * rule.h. */
#include "dataplane/optimizer/kernels_optimizer.h"

INLINE void sgd_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                    const float *restrict state, const float *restrict gradient, size_t dim, bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    for (size_t i = 0; i < dim; i++)
        w[i] -= lr * transformed(t, gradient[i], w[i]);
}

/* The state: velocity [dim], and with dampening 1 for a row that has been changed, as its first gradient is
 * taken whole. */
INLINE void momentum_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                         float *restrict velocity, const float *restrict gradient, size_t dim,
                         bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    const float momentum = o->momentum;
    float take = 1.0f - o->dampening;
    if (o->dampening > 0) {
        if (velocity[dim] == 0)
            take = 1.0f;
        velocity[dim] = 1.0f;
    }
    if (o->nesterov) {
        for (size_t i = 0; i < dim; i++) {
            float g = transformed(t, gradient[i], w[i]);
            float v = clip(momentum * velocity[i] + take * g, FLT_MAX);
            velocity[i] = v;
            w[i] -= lr * (g + momentum * v);
        }
        return;
    }
    for (size_t i = 0; i < dim; i++) {
        float g = transformed(t, gradient[i], w[i]);
        float v = clip(momentum * velocity[i] + take * g, FLT_MAX);
        velocity[i] = v;
        w[i] -= lr * v;
    }
}

INLINE void adagrad_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                        float *restrict state, const float *restrict gradient, size_t dim, bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    const float epsilon = o->epsilon;
    for (size_t i = 0; i < dim; i++) {
        float g = transformed(t, gradient[i], w[i]);
        float s = at_most_max(state[i] + g * g);
        state[i] = s;
        w[i] -= lr * g / (sqrtf(s) + epsilon);
    }
}

INLINE double mean_square(struct transform t, const float *restrict gradient, const float *restrict w,
                          size_t dim)
{
    if (!t.on)
        return sum_of_squares(gradient, dim, FLT_MAX) / (double)dim;
    double lanes[8] = {0};
    for (size_t i = 0; i < dim; i++) {
        double g = (double)transformed(t, gradient[i], w[i]);
        lanes[i % 8] += g * g;
    }
    return (((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
            ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))) /
           (double)dim;
}

/* One float of state. */
INLINE void rowwise_adagrad_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                                float *restrict state, const float *restrict gradient, size_t dim,
                                bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    double s = (double)*state + mean_square(t, gradient, w, dim);
    *state = s < (double)FLT_MAX ? (float)s : FLT_MAX;
    const float rate = at_most_max(lr / (sqrtf(*state) + o->epsilon)); /* Inf * 0 would be NaN */
    for (size_t i = 0; i < dim; i++)
        w[i] -= rate * transformed(t, gradient[i], w[i]);
}

/* What is pushed is the row: feature.c takes no transform with it. */
INLINE void assign_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                       const float *restrict state, const float *restrict gradient, size_t dim,
                       bool transforms)
{
    memcpy(w, gradient, dim * sizeof(*w));
}

MR_RULE_KERNELS(sgd, 0)
MR_RULE_KERNELS(momentum, 16)
MR_RULE_KERNELS(adagrad, 16)
MR_RULE_KERNELS(rowwise_adagrad, 1)
MR_RULE_KERNELS(assign, 0)

#ifdef __x86_64__
/* transformed(), without a bound for the norm. */
MR_TARGET_AVX512 INLINE __m512 transformed_lanes(const struct mr_rule *o, struct transform t, __m512 g,
                                                 __m512 w)
{
    if (!o->transforms)
        return g;
    g = _mm512_min_ps(g, _mm512_set1_ps(t.bound));
    g = _mm512_max_ps(g, _mm512_set1_ps(-t.bound));
    g = _mm512_mul_ps(g, _mm512_set1_ps(t.scale));
    return _mm512_add_ps(g, _mm512_mul_ps(_mm512_set1_ps(t.decay), w));
}

/* Adagrad over rows that one vector holds: row and state stay in registers until it is known that they may
 * change. */
MR_TARGET_AVX512 static uint32_t adagrad_narrow(const struct mr_rule *o, float lr, float *const *values,
                                                float *const *states, const float *const *gradients,
                                                uint32_t row_count, size_t dim)
{
    const struct transform t = transform_of(o, NULL, dim, o->transforms);
    const __m512 epsilon = _mm512_set1_ps(o->epsilon), most = _mm512_set1_ps(FLT_MAX),
                 largest = _mm512_set1_ps(o->largest), rate = _mm512_set1_ps(lr);
    const __mmask16 mask = dim == 16 ? (__mmask16)0xffff : mr_rest_mask(dim);
    uint32_t changed = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        __m512 gradient = _mm512_maskz_loadu_ps(mask, gradients[r]);
        __m512 w = _mm512_maskz_loadu_ps(mask, values[r]);
        __m512 g = transformed_lanes(o, t, gradient, w);
        __m512 s = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, states[r]), _mm512_mul_ps(g, g));
        s = _mm512_min_ps(s, most);
        w = _mm512_sub_ps(w,
                          _mm512_div_ps(_mm512_mul_ps(rate, g), _mm512_add_ps(_mm512_sqrt_ps(s), epsilon)));
        __mmask16 fits = _mm512_cmp_ps_mask(_mm512_abs_ps(w), largest, _CMP_LE_OQ);
        if ((mr_not_finite(gradient) | (mask & (__mmask16)~fits)) != 0)
            continue;
        _mm512_mask_storeu_ps(values[r], mask, w);
        _mm512_mask_storeu_ps(states[r], mask, s);
        changed |= (uint32_t)1 << r;
    }
    return changed;
}

MR_TARGET_AVX512 static uint32_t adagrad_masked_avx512(const struct mr_rule *o,
                                                       const struct mr_rule_push *push, float *const *values,
                                                       float *const *states, const float *const *gradients,
                                                       uint32_t row_count, size_t dim)
{
    if (dim <= 16 && o->clip_norm <= 0)
        return adagrad_narrow(o, push->learning_rate, values, states, gradients, row_count, dim);
    return mr_adagrad_avx512(o, push, values, states, gradients, row_count, dim);
}

/* Eight values of a row, and their state, after a step. */
struct adagrad_lanes {
    __m256 w, s;
    __m256
        misfits; /* the sign bit is set where the gradient has NaN or Inf, or the value becomes too large */
};

/* transformed(), without a bound for the norm. */
MR_TARGET_AVX2 INLINE __m256 transformed_lanes_avx2(struct transform t, __m256 g, __m256 w)
{
    if (!t.on)
        return g;
    g = _mm256_min_ps(g, _mm256_set1_ps(t.bound));
    g = _mm256_max_ps(g, _mm256_set1_ps(-t.bound));
    g = _mm256_mul_ps(g, _mm256_set1_ps(t.scale));
    return _mm256_add_ps(g, _mm256_mul_ps(_mm256_set1_ps(t.decay), w));
}

MR_TARGET_AVX2 INLINE struct adagrad_lanes adagrad_lanes_avx2(const struct mr_rule *o, struct transform t,
                                                              float lr, const float *values,
                                                              const float *states, const float *gradients)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 gradient = _mm256_loadu_ps(gradients), w = _mm256_loadu_ps(values);
    const __m256 g = transformed_lanes_avx2(t, gradient, w);
    struct adagrad_lanes out;
    out.s =
        _mm256_min_ps(_mm256_add_ps(_mm256_loadu_ps(states), _mm256_mul_ps(g, g)), _mm256_set1_ps(FLT_MAX));
    __m256 root = _mm256_add_ps(_mm256_sqrt_ps(out.s), _mm256_set1_ps(o->epsilon));
    out.w = _mm256_sub_ps(w, _mm256_div_ps(_mm256_mul_ps(_mm256_set1_ps(lr), g), root));
    out.misfits =
        _mm256_or_ps(_mm256_cmp_ps(_mm256_and_ps(out.w, magnitude), _mm256_set1_ps(o->largest), _CMP_NLE_UQ),
                     _mm256_cmp_ps(_mm256_and_ps(gradient, magnitude), _mm256_set1_ps(FLT_MAX), _CMP_NLE_UQ));
    return out;
}

/* adagrad_narrow() of 8 to 16 values: the first eight and the last eight, of which some may be the same. */
MR_TARGET_AVX2 INLINE uint32_t adagrad_8_to_16_avx2(const struct mr_rule *o, float lr, float *const *values,
                                                    float *const *states, const float *const *gradients,
                                                    uint32_t row_count, size_t dim, bool transforms)
{
    const struct transform t = transform_of(o, NULL, dim, transforms);
    const size_t last = dim - 8;
    uint32_t changed = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        struct adagrad_lanes low = adagrad_lanes_avx2(o, t, lr, values[r], states[r], gradients[r]);
        struct adagrad_lanes high =
            adagrad_lanes_avx2(o, t, lr, values[r] + last, states[r] + last, gradients[r] + last);
        if (_mm256_movemask_ps(_mm256_or_ps(low.misfits, high.misfits)) != 0)
            continue;
        _mm256_storeu_ps(values[r], low.w);
        _mm256_storeu_ps(values[r] + last, high.w);
        _mm256_storeu_ps(states[r], low.s);
        _mm256_storeu_ps(states[r] + last, high.s);
        changed |= (uint32_t)1 << r;
    }
    return changed;
}

MR_TARGET_AVX2 static uint32_t adagrad_best_avx2(const struct mr_rule *o, const struct mr_rule_push *push,
                                                 float *const *values, float *const *states,
                                                 const float *const *gradients, uint32_t row_count,
                                                 size_t dim)
{
    const float lr = push->learning_rate;
    if (dim < 8 || dim > 16 || o->clip_norm > 0)
        return mr_adagrad_avx2(o, push, values, states, gradients, row_count, dim);
    if (o->transforms)
        return adagrad_8_to_16_avx2(o, lr, values, states, gradients, row_count, dim, true);
    return adagrad_8_to_16_avx2(o, lr, values, states, gradients, row_count, dim, false);
}
#elif defined(__aarch64__)
/* transformed(), without a bound for the norm. */
INLINE float32x4_t transformed_lanes_neon(struct transform t, float32x4_t g, float32x4_t w)
{
    if (!t.on)
        return g;
    g = vminq_f32(g, vdupq_n_f32(t.bound));
    g = vmaxq_f32(g, vdupq_n_f32(-t.bound));
    g = vmulq_f32(g, vdupq_n_f32(t.scale));
    return vaddq_f32(g, vmulq_f32(vdupq_n_f32(t.decay), w));
}

/* Adagrad over rows of 8 to 16 values, in four vectors of which some values may be of two: row and state stay
 * in registers until it is known that they may change. */
INLINE uint32_t adagrad_8_to_16_neon(const struct mr_rule *o, float lr, float *const *values,
                                     float *const *states, const float *const *gradients, uint32_t row_count,
                                     size_t dim, bool transforms)
{
    const struct transform t = transform_of(o, NULL, dim, transforms);
    const float32x4_t most = vdupq_n_f32(FLT_MAX), largest = vdupq_n_f32(o->largest),
                      epsilon = vdupq_n_f32(o->epsilon), rate = vdupq_n_f32(lr);
    const size_t at[4] = {0, 4, dim - 8, dim - 4};
    uint32_t changed = 0;
    for (uint32_t r = 0; r < row_count; r++) {
        float32x4_t w[4], s[4];
        uint32x4_t fits = vdupq_n_u32(UINT32_MAX);
        for (uint32_t v = 0; v < 4; v++) {
            const float32x4_t gradient = vld1q_f32(gradients[r] + at[v]);
            w[v] = vld1q_f32(values[r] + at[v]);
            const float32x4_t g = transformed_lanes_neon(t, gradient, w[v]);
            s[v] = vminq_f32(vaddq_f32(vld1q_f32(states[r] + at[v]), vmulq_f32(g, g)), most);
            w[v] = vsubq_f32(w[v], vdivq_f32(vmulq_f32(rate, g), vaddq_f32(vsqrtq_f32(s[v]), epsilon)));
            fits = vandq_u32(fits, vandq_u32(vcaleq_f32(w[v], largest), vcaleq_f32(gradient, most)));
        }
        if (vminvq_u32(fits) == 0)
            continue;
        for (uint32_t v = 0; v < 4; v++) {
            vst1q_f32(values[r] + at[v], w[v]);
            vst1q_f32(states[r] + at[v], s[v]);
        }
        changed |= (uint32_t)1 << r;
    }
    return changed;
}

static uint32_t adagrad_best_neon(const struct mr_rule *o, const struct mr_rule_push *push,
                                  float *const *values, float *const *states, const float *const *gradients,
                                  uint32_t row_count, size_t dim)
{
    const float lr = push->learning_rate;
    if (dim < 8 || dim > 16 || o->clip_norm > 0)
        return mr_adagrad_baseline(o, push, values, states, gradients, row_count, dim);
    if (o->transforms)
        return adagrad_8_to_16_neon(o, lr, values, states, gradients, row_count, dim, true);
    return adagrad_8_to_16_neon(o, lr, values, states, gradients, row_count, dim, false);
}
#endif

#define TABLE(set, adagrad)                                                                                  \
    mr_rule_kernel *const mr_rule_kernels_##set[MR_OPTIMIZER_KINDS] = {                                      \
        [MR_OPT_SGD] = mr_sgd_##set,       [MR_OPT_MOMENTUM] = mr_momentum_##set,                            \
        [MR_OPT_ADAGRAD] = (adagrad),      [MR_OPT_ROWWISE_ADAGRAD] = mr_rowwise_adagrad_##set,              \
        [MR_OPT_ADAM] = mr_adam_##set,     [MR_OPT_ADAMW] = mr_adam_##set,                                   \
        [MR_OPT_FTRL] = mr_ftrl_##set,     [MR_OPT_GROUP_FTRL] = mr_group_ftrl_##set,                        \
        [MR_OPT_ASSIGN] = mr_assign_##set,                                                                   \
    };

#ifdef __aarch64__
TABLE(baseline, adagrad_best_neon)
#else
TABLE(baseline, mr_adagrad_baseline)
#endif
#ifdef __x86_64__
TABLE(avx2, adagrad_best_avx2)
TABLE(avx512, adagrad_masked_avx512)
#endif
