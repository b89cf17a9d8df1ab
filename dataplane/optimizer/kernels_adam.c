/* Adam and AdamW. A row's state: first moments [dim], second moments [dim], and the number of its updates as
 * the bits of a u32, so that the bias correction of a row goes by what the row has seen; or it goes by the
 * push's step, which is the same for all rows, and then corrects epsilon, too. */
#include <assert.h>
#include "dataplane/optimizer/kernels_optimizer.h"

static_assert(sizeof(float) == sizeof(uint32_t), "the count takes a float's place");

/* One more update; the count stops at its end, where beta^count is 0 for any beta below 1. */
INLINE uint32_t count_update(float *place)
{
    uint32_t count;
    memcpy(&count, place, sizeof(count));
    count += count < UINT32_MAX;
    memcpy(place, &count, sizeof(count));
    return count;
}

/* As the count, it stops at its end. */
INLINE uint32_t at_most_u32(uint64_t step)
{
    return step < UINT32_MAX ? (uint32_t)step : UINT32_MAX;
}

INLINE void adam_row(const struct mr_rule *o, const struct mr_rule_push *push, float *restrict w,
                     float *restrict state, const float *restrict gradient, size_t dim, bool transforms)
{
    const float lr = push->learning_rate;
    const struct transform t = transform_of(o, gradient, dim, transforms);
    const uint32_t updates = count_update(state + 2 * dim);
    const uint32_t count = o->counts_steps && push->step > 0 ? at_most_u32(push->step) : updates;
    const float beta1 = o->beta1, beta2 = o->beta2;
    const float take1 = (float)(1.0 - (double)beta1), take2 = (float)(1.0 - (double)beta2);
    const float rate = (float)((double)lr / (1.0 - mr_powers_at(&o->beta1_powers, count)));
    const float correction = (float)(1.0 / sqrt(1.0 - mr_powers_at(&o->beta2_powers, count)));
    const float epsilon = o->counts_steps ? o->epsilon * correction : o->epsilon;
    const float decay = lr * o->decoupled_decay;
    float *restrict first = state, *restrict second = state + dim;
    for (size_t i = 0; i < dim; i++) {
        float g = transformed(t, gradient[i], w[i]);
        float m = clip(beta1 * first[i] + take1 * g, FLT_MAX);
        float v = at_most_max(beta2 * second[i] + take2 * g * g);
        first[i] = m;
        second[i] = v;
        w[i] -= decay * w[i] + rate * m / (sqrtf(v) * correction + epsilon);
    }
}

MR_RULE_KERNELS(adam, 33)
