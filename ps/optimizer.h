/* Optimizers: how a gradient changes a row (or a variable) and the state beside it.
 *
 * For each row, in this order: a gradient that holds NaN or Inf changes nothing; each element is clipped to
 * [-clip_value, clip_value]; the whole is scaled down to the L2 norm clip_norm; weight_decay * value is added; then
 *   sgd      value -= lr * g
 *   adagrad  state += g * g;  value -= lr * g / (sqrt(state) + epsilon)       (Duchi et al., JMLR 12, 2011)
 * All in f32; state is held at FLT_MAX instead of overflowing. Any thread.
 */
#ifndef PS_OPTIMIZER_H
#define PS_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_feature.h"
#include "dataplane/wire/mr_status.h"

struct ps_kernels;

struct ps_optimizer {
    uint32_t kind; /* enum mr_optimizer */
    float learning_rate;
    float initial_state; /* adagrad */
    float epsilon;       /* adagrad */
    float weight_decay, clip_value, clip_norm;
    bool transforms; /* any of the three above is on */
    const struct ps_kernels *kernels;
};

/* MR_UNSUPPORTED names an optimizer of a later version in *what ("optimizer ftrl"). `feature` has passed
 * mr_feature_check(). */
enum mr_status ps_optimizer_init(const struct mr_feature *feature, struct ps_optimizer *out,
                                 const char **what);
/* Floats of state beside `count` values. */
size_t ps_optimizer_state_floats(const struct ps_optimizer *o, size_t count);
/* The state of a row (or variable) with its first values. */
void ps_optimizer_state_init(const struct ps_optimizer *o, const float *values, float *state, size_t count);
/* The learning rate of a push of training step `step`; `pushed`, if not 0, is what the push itself asks for. */
float ps_optimizer_learning_rate(const struct ps_optimizer *o, uint64_t step, float pushed);
/* values[i]: `count` floats, states[i]: their ps_optimizer_state_floats() (not read if there are none), gradients[i]: `count`
 * floats. Rows are distinct. Returns how many rows were changed; the others' gradients held NaN or Inf. */
uint32_t ps_optimizer_apply(const struct ps_optimizer *o, float learning_rate, float *const *values,
                            float *const *states, const float *const *gradients, uint32_t row_count,
                            size_t count);

#endif
