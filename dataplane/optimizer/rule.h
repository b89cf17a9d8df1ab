/* The rules of optimizers: how a gradient changes a row (or a variable, or a parameter) and the state beside
 * it. docs/optimizers.md tells more of each.
 *
 * For each row, in this order: a gradient that holds NaN or Inf changes nothing; each element is clipped to
 * [-clip_value, clip_value]; the whole is scaled down to the L2 norm clip_norm; weight_decay * value is added
 * (not for AdamW); then
 *   sgd              value -= lr * g
 *   momentum         v = momentum * v + (1 - dampening) * g, and v = g the first time;  value -= lr * v,
 *                    with Nesterov lr * (g + momentum * v)
 *                    (torch.optim.SGD)
 *   adagrad          n += g * g;  value -= lr * g / (sqrt(n) + epsilon)
 *                    (Duchi et al., JMLR 12, 2011)
 *   rowwise_adagrad  the same with one n for the row: n += mean(g * g)
 *                    (FBGEMM, TorchRec)
 *   adam             m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g * g;
 *                    value -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon),
 *                    where t counts the updates of this row; or, if the table asks for it, t is the step
 *                    that the push names, and epsilon is added to sqrt(v) before it is corrected
 *                    (torch.optim.SparseAdam)
 *                    (Kingma and Ba, ICLR 2015)
 *   adamw            value *= 1 - lr * weight_decay, then adam
 *                    (Loshchilov and Hutter, ICLR 2019)
 *   ftrl             n += g * g;  h = (beta + sqrt(n)) / lr;  z += g - (h - the last h) * value;
 *                    u = -sign(z) * max(|z| - l1, 0);  value = u / (h + l2)
 *                    (McMahan et al., KDD 2013)
 *                    at a learning rate of 0 values stay: n changes, and z so that they follow from it. A row
 *                    that has been updated at no other has 1 as its last h's
 *   group_ftrl       the same with u * max(1 - l21 * sqrt(dim) / |u|, 0) for u
 *                    (Yue et al., ECML PKDD 2021)
 *   assign           value = g; no learning rate, clipping or weight decay
 * All in f32, norms and bias corrections in double. State is held within [-FLT_MAX, FLT_MAX]. What a push
 * does not touch does not change, nor does its state; a dense optimizer makes up for that
 * (dataplane/optimizer/missed_steps.h). Any thread.
 */
#ifndef MR_RULE_H
#define MR_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/optimizer/rates.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct mr_kernels;

/* Powers of a number in [0, 1) with whole exponents, by the exponent's digits to the base 16. */
#define MR_POWER_LEVELS 8u
#define MR_POWER_BASE   16u
struct mr_powers {
    double at[MR_POWER_LEVELS][MR_POWER_BASE]; /* at[level][digit] = x^(digit * 16^level) */
};

/* x^exponent; 0 when that is below 2^-60, which 1 - x^exponent does not tell from 0. */
static inline double mr_powers_at(const struct mr_powers *powers, uint32_t exponent)
{
    double power = 1.0;
    for (uint32_t level = 0; exponent != 0; level++, exponent /= MR_POWER_BASE) {
        power *= powers->at[level][exponent % MR_POWER_BASE];
        if (power < 0x1p-60)
            return 0.0;
    }
    return power;
}

struct mr_rule {
    uint32_t kind;       /* enum mr_optimizer */
    float initial_state; /* both Adagrads, both FTRLs: of the sum of squares */
    float epsilon;       /* both Adagrads, both Adams */
    float momentum, dampening;
    bool nesterov;
    float beta1, beta2;
    bool counts_steps;                         /* both Adams: as SparseAdam, by the steps of pushes */
    bool dense;                                /* see dataplane/optimizer/missed_steps.h */
    float beta, l1, l2, l21;                   /* both FTRLs */
    float weight_decay, clip_value, clip_norm; /* weight_decay: the one that is added to gradients */
    bool transforms;                           /* any of the three above is on */
    float decoupled_decay;                     /* AdamW */
    float largest;                             /* that values may be: of the feature's type */
    struct mr_rates schedule;
    const struct mr_kernels *kernels;
    struct mr_powers beta1_powers, beta2_powers; /* both Adams */
};

/* MR_UNSUPPORTED with *what set for an optimizer of an unknown number. `feature` has passed
 * mr_feature_check(). */
enum mr_status mr_rule_init(const struct mr_feature *feature, struct mr_rule *out, const char **what);
/* Whether what is pushed replaces values, instead of changing them. */
static inline bool mr_rule_sets(const struct mr_rule *o)
{
    return o->kind == MR_OPT_ASSIGN;
}
/* Floats of state beside `count` values. */
size_t mr_rule_state_floats(const struct mr_rule *o, size_t count);
/* At most, of a table's row: both Adams, dense. */
#define MR_RULE_STATE_FLOATS_MAX (2 * MR_DIM_MAX + 2)
/* Bytes of a range of a variable (ranges.h) with its state, but for the last: a checkpoint has those of
 * one range after the other. */
uint64_t mr_rule_range_bytes(const struct mr_feature *variable);
/* The state of a row (or variable) with its first values. */
void mr_rule_state_init(const struct mr_rule *o, const float *values, float *state, size_t count);
/* Values [first, first + set_count) of `count` have been set by hand: the state follows where values are
 * worked out from it (FTRL), and stays as it is elsewhere. */
void mr_rule_values_set(const struct mr_rule *o, const float *values, float *state, size_t count,
                        size_t first, size_t set_count);
/* The learning rate of a push of training step `step`; `pushed`, if not NULL, is what the push itself asks
 * for: 0 is one, too. */
float mr_rule_learning_rate(const struct mr_rule *o, uint64_t step, const float *pushed);
#define MR_RULE_ROWS_MAX 32u
/* What a push says beside its gradients. */
struct mr_rule_push {
    float learning_rate;
    uint64_t step; /* of training, from 1 on; 0: it names none */
};
/* values[i]: `count` floats, states[i]: their mr_rule_state_floats() (not read if there are none),
 * gradients[i]: `count` floats. Rows are distinct, and MR_RULE_ROWS_MAX at most. Returns a bit for each row
 * that was changed; the others' gradients held NaN or Inf, or would have made such values, or, unless they
 * are set, values beyond the largest that the feature's type holds: these rows and their state are as they
 * were. */
uint32_t mr_rule_apply(const struct mr_rule *o, const struct mr_rule_push *push, float *const *values,
                       float *const *states, const float *const *gradients, uint32_t row_count, size_t count);

#endif
