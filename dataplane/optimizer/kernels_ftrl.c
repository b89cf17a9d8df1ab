/* FTRL-proximal and its group-lasso form. A row's state: z [dim], n [dim], and the learning rate of the row's
 * last update. */
#include "dataplane/optimizer/kernels_optimizer.h"

/* 1 / eta = (beta + sqrt n) / learning rate */
INLINE float curvature(float beta, float n, float inverse_rate)
{
    return at_most_max((beta + sqrtf(n)) * inverse_rate);
}

INLINE float inverse(float rate)
{
    return at_most_max(1.0f / rate);
}

/* z without its l1 ball, with the sign of the weight. */
INLINE float shrunk(float z, float l1)
{
    float above = l1 - z, below = -l1 - z;
    float u = z > l1 ? above : 0.0f;
    return z < -l1 ? below : u;
}

/* The new z and n; writes the shrunk z where the weight was. */
INLINE void accumulate(const struct mr_rule *o, float old_inverse, float new_inverse, float *restrict w,
                       float *restrict z, float *restrict n, const float *restrict gradient,
                       struct transform t, size_t dim)
{
    const float beta = o->beta, l1 = o->l1;
    for (size_t i = 0; i < dim; i++) {
        float g = transformed(t, gradient[i], w[i]);
        float more = at_most_max(n[i] + g * g);
        float sigma = curvature(beta, more, new_inverse) - curvature(beta, n[i], old_inverse);
        float sum = clip(z[i] + g - sigma * w[i], FLT_MAX);
        n[i] = more;
        z[i] = sum;
        w[i] = shrunk(sum, l1);
    }
}

/* What a learning rate of 0 leaves of an update: the weight stays, and so does the rate that it is worked out
 * at; z follows n. */
INLINE void accumulate_squares(const struct mr_rule *o, const float *restrict w, float *restrict state,
                               const float *restrict gradient, struct transform t, size_t dim)
{
    const float beta = o->beta, old_inverse = inverse(state[2 * dim]);
    float *restrict z = state, *restrict n = state + dim;
    for (size_t i = 0; i < dim; i++) {
        float g = transformed(t, gradient[i], w[i]);
        float more = at_most_max(n[i] + g * g);
        float sigma = curvature(beta, more, old_inverse) - curvature(beta, n[i], old_inverse);
        z[i] = clip(z[i] - sigma * w[i], FLT_MAX);
        n[i] = more;
    }
}

/* From shrunk z to the weight; `share` is what the group's norm leaves of it. */
INLINE void weigh(const struct mr_rule *o, float new_inverse, float *restrict w, const float *restrict n,
                  float share, size_t dim)
{
    const float beta = o->beta, l2 = o->l2;
    for (size_t i = 0; i < dim; i++) {
        float d = curvature(beta, n[i], new_inverse) + l2;
        d = d > FLT_MIN ? d : FLT_MIN;
        w[i] = clip(share * w[i] / d, FLT_MAX);
    }
}

INLINE void ftrl_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                     float *restrict state, const float *restrict gradient, size_t dim, bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    if (lr == 0) {
        accumulate_squares(o, w, state, gradient, t, dim);
        return;
    }
    const float old_inverse = inverse(state[2 * dim]), new_inverse = inverse(lr);
    accumulate(o, old_inverse, new_inverse, w, state, state + dim, gradient, t, dim);
    weigh(o, new_inverse, w, state + dim, 1.0f, dim);
    state[2 * dim] = lr;
}

INLINE void group_ftrl_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                           float *restrict state, const float *restrict gradient, size_t dim, bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    if (lr == 0) {
        accumulate_squares(o, w, state, gradient, t, dim);
        return;
    }
    const float old_inverse = inverse(state[2 * dim]), new_inverse = inverse(lr);
    accumulate(o, old_inverse, new_inverse, w, state, state + dim, gradient, t, dim);
    const double norm = sqrt(sum_of_squares(w, dim, FLT_MAX));
    const double least = (double)o->l21 * sqrt((double)dim);
    const float share = norm > least ? (float)((norm - least) / norm) : 0.0f;
    weigh(o, new_inverse, w, state + dim, share, dim);
    state[2 * dim] = lr;
}

MR_RULE_KERNELS(ftrl, 33)
MR_RULE_KERNELS(group_ftrl, 33)
