/* The optimizers' steps, compiled for several vector widths like the rest of the kernels (kernels.h): those
 * of the SGD and Adagrad families, the one that sets, and the tables of all. What they compute is in
 * rule.h. */
#include "dataplane/optimizer/kernels_optimizer.h"

INLINE void sgd_row(const struct mr_rule *o, float lr, float *restrict w, const float *restrict state,
                    const float *restrict gradient, size_t dim, bool transforms)
{
    const struct transform t = transform_of(o, gradient, dim, transforms);
    for (size_t i = 0; i < dim; i++)
        w[i] -= lr * transformed(t, gradient[i], w[i]);
}

/* The state: velocity [dim], and with dampening 1 for a row that has been changed, as its first gradient is
 * taken whole. */
INLINE void momentum_row(const struct mr_rule *o, float lr, float *restrict w, float *restrict velocity,
                         const float *restrict gradient, size_t dim, bool transforms)
{
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

INLINE void adagrad_row(const struct mr_rule *o, float lr, float *restrict w, float *restrict state,
                        const float *restrict gradient, size_t dim, bool transforms)
{
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
INLINE void rowwise_adagrad_row(const struct mr_rule *o, float lr, float *restrict w, float *restrict state,
                                const float *restrict gradient, size_t dim, bool transforms)
{
    const struct transform t = transform_of(o, gradient, dim, transforms);
    double s = (double)*state + mean_square(t, gradient, w, dim);
    *state = s < (double)FLT_MAX ? (float)s : FLT_MAX;
    const float rate = at_most_max(lr / (sqrtf(*state) + o->epsilon)); /* Inf * 0 would be NaN */
    for (size_t i = 0; i < dim; i++)
        w[i] -= rate * transformed(t, gradient[i], w[i]);
}

/* What is pushed is the row: feature.c takes no transform with it. */
INLINE void assign_row(const struct mr_rule *o, float lr, float *restrict w, const float *restrict state,
                       const float *restrict gradient, size_t dim, bool transforms)
{
    memcpy(w, gradient, dim * sizeof(*w));
}

MR_RULE_KERNELS(sgd, 0)
MR_RULE_KERNELS(momentum, 16)
MR_RULE_KERNELS(adagrad, 16)
MR_RULE_KERNELS(rowwise_adagrad, 1)
MR_RULE_KERNELS(assign, 0)

#define TABLE(set)                                                                                           \
    mr_rule_kernel *const mr_rule_kernels_##set[MR_OPTIMIZER_KINDS] = {                                      \
        [MR_OPT_SGD] = mr_sgd_##set,         [MR_OPT_MOMENTUM] = mr_momentum_##set,                          \
        [MR_OPT_ADAGRAD] = mr_adagrad_##set, [MR_OPT_ROWWISE_ADAGRAD] = mr_rowwise_adagrad_##set,            \
        [MR_OPT_ADAM] = mr_adam_##set,       [MR_OPT_ADAMW] = mr_adam_##set,                                 \
        [MR_OPT_FTRL] = mr_ftrl_##set,       [MR_OPT_GROUP_FTRL] = mr_group_ftrl_##set,                      \
        [MR_OPT_ASSIGN] = mr_assign_##set,                                                                   \
    };

TABLE(baseline)
#ifdef __x86_64__
TABLE(avx2)
TABLE(avx512)
#endif
