#include "dataplane/optimizer/rule.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/rounding.h"
#include "dataplane/wire/format/ranges.h"

static struct mr_powers powers_of(double x)
{
    struct mr_powers p;
    for (uint32_t level = 0; level < MR_POWER_LEVELS; level++) {
        p.at[level][0] = 1.0;
        for (uint32_t digit = 1; digit < MR_POWER_BASE; digit++)
            p.at[level][digit] = p.at[level][digit - 1] * x;
        x = p.at[level][MR_POWER_BASE - 1] * x;
    }
    return p;
}

static void take_adam_args(const struct mr_feature *feature, struct mr_rule *o)
{
    o->beta1 = feature->optimizer_args[0];
    o->beta2 = feature->optimizer_args[1];
    o->epsilon = feature->optimizer_args[2];
    o->counts_steps = feature->optimizer_args[3] > 0;
    o->beta1_powers = powers_of((double)o->beta1);
    o->beta2_powers = powers_of((double)o->beta2);
    if (o->kind == MR_OPT_ADAMW) {
        o->decoupled_decay = o->weight_decay;
        o->weight_decay = 0;
    }
    assert(o->beta1 < 1 && o->beta2 < 1 && o->epsilon > 0); /* else 0 / 0 */
}

static void take_args(const struct mr_feature *feature, struct mr_rule *o)
{
    const float *args = feature->optimizer_args;
    switch (o->kind) {
    case MR_OPT_MOMENTUM:
        o->momentum = args[0];
        o->dampening = args[1];
        o->nesterov = args[2] > 0;
        break;
    case MR_OPT_ADAGRAD:
    case MR_OPT_ROWWISE_ADAGRAD:
        o->initial_state = args[0];
        o->epsilon = args[1];
        assert(o->initial_state > 0 || o->epsilon > 0); /* else 0 / 0 */
        break;
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        take_adam_args(feature, o);
        break;
    case MR_OPT_FTRL:
    case MR_OPT_GROUP_FTRL:
        o->initial_state = args[0];
        o->beta = args[1];
        o->l1 = args[2];
        o->l2 = args[3];
        o->l21 = args[4];
        assert(o->initial_state > 0 || o->beta > 0);
        break;
    default:
        break;
    }
}

/* What is set is taken as it is: whoever stores it finds the nearest that there is. */
static float largest_of(const struct mr_feature *f)
{
    bool sets = f->optimizer == MR_OPT_ASSIGN;
    return f->dtype == MR_F16 && !sets    ? mr_f32_from_f16(MR_F16_LARGEST_BITS)
           : f->dtype == MR_BF16 && !sets ? mr_f32_from_bf16(MR_BF16_LARGEST_BITS)
                                          : FLT_MAX;
}

enum mr_status mr_rule_init(const struct mr_feature *feature, struct mr_rule *out, const char **what)
{
    const struct mr_kernels *kernels = mr_kernels_best();
    if (feature->optimizer >= MR_OPTIMIZER_KINDS || kernels->optimize[feature->optimizer] == NULL) {
        *what = "optimizer of an unknown number";
        return MR_UNSUPPORTED;
    }
    *out = (struct mr_rule){
        .kind = feature->optimizer,
        .weight_decay = feature->weight_decay,
        .clip_value = feature->clip_value,
        .clip_norm = feature->clip_norm,
        .dense = mr_feature_is_dense(feature),
        .largest = largest_of(feature),
        .schedule = mr_rates_of(feature),
        .kernels = kernels,
    };
    take_args(feature, out);
    out->transforms = out->weight_decay > 0 || out->clip_value > 0 || out->clip_norm > 0;
    return MR_OK;
}

static size_t own_state_floats(const struct mr_rule *o, size_t count)
{
    switch (o->kind) {
    case MR_OPT_MOMENTUM: /* velocity; with dampening, whether the row has been changed */
        return count + (o->dampening > 0);
    case MR_OPT_ADAGRAD:
        return count;
    case MR_OPT_ROWWISE_ADAGRAD:
        return 1;
    case MR_OPT_ADAM: /* m, v, number of updates as a u32 */
    case MR_OPT_ADAMW:
    case MR_OPT_FTRL: /* z, n, learning rate of the last update */
    case MR_OPT_GROUP_FTRL:
        return 2 * count + 1;
    default:
        return 0;
    }
}

size_t mr_rule_state_floats(const struct mr_rule *o, size_t count)
{
    return own_state_floats(o, count) + o->dense;
}

uint64_t mr_rule_range_bytes(const struct mr_feature *variable)
{
    const uint64_t elements = mr_range_elements(variable);
    const struct mr_rule rule = {
        .kind = variable->optimizer,
        .dampening = variable->optimizer == MR_OPT_MOMENTUM ? variable->optimizer_args[1] : 0};
    return (elements + mr_rule_state_floats(&rule, elements)) * sizeof(float);
}

/* z of elements [first, end) such that the optimizer's own formula gives their values: weights follow from z
 * alone after the next update, and an update with gradient 0 changes nothing but by rounding. */
static void ftrl_align(const struct mr_rule *o, const float *values, float *state, size_t count, size_t first,
                       size_t end)
{
    const float *n = state + count;
    const double inverse_rate = 1 / (double)state[2 * count];
    double squares = 0, more = 0;
    for (size_t i = 0; i < count && o->l21 > 0; i++) {
        double u =
            (double)values[i] * (((double)o->beta + sqrt((double)n[i])) * inverse_rate + (double)o->l2);
        squares += u * u;
    }
    if (squares > 0)
        more = (double)o->l21 * sqrt((double)count) / sqrt(squares);
    for (size_t i = first; i < end; i++) {
        double u =
            (double)values[i] * (((double)o->beta + sqrt((double)n[i])) * inverse_rate + (double)o->l2);
        u *= 1 + more;
        double z = u > 0 ? -u - (double)o->l1 : u < 0 ? -u + (double)o->l1 : 0;
        state[i] = (float)fmax(fmin(z, (double)FLT_MAX), -(double)FLT_MAX);
    }
}

/* What weights are worked out at that no update has had a rate for: z is made such that it does not
 * matter. */
#define NO_RATE 1.0f

static void ftrl_init(const struct mr_rule *o, const float *values, float *state, size_t count)
{
    for (size_t i = 0; i < count; i++)
        state[count + i] = o->initial_state;
    state[2 * count] = o->schedule.start > 0 ? (float)o->schedule.start : NO_RATE;
    ftrl_align(o, values, state, count, 0, count);
}

void mr_rule_state_init(const struct mr_rule *o, const float *values, float *state, size_t count)
{
    memset(state, 0, mr_rule_state_floats(o, count) * sizeof(float));
    switch (o->kind) {
    case MR_OPT_ADAGRAD:
    case MR_OPT_ROWWISE_ADAGRAD:
        for (size_t i = 0; i < own_state_floats(o, count); i++)
            state[i] = o->initial_state;
        break;
    case MR_OPT_FTRL:
    case MR_OPT_GROUP_FTRL:
        ftrl_init(o, values, state, count);
        break;
    default:
        break;
    }
}

void mr_rule_values_set(const struct mr_rule *o, const float *values, float *state, size_t count,
                        size_t first, size_t set_count)
{
    bool is_group = o->kind == MR_OPT_GROUP_FTRL && o->l21 > 0; /* what is set changes the norm of all */
    if (o->kind == MR_OPT_FTRL || o->kind == MR_OPT_GROUP_FTRL)
        ftrl_align(o, values, state, count, is_group ? 0 : first, is_group ? count : first + set_count);
}

float mr_rule_learning_rate(const struct mr_rule *o, uint64_t step, const float *pushed)
{
    return pushed != NULL ? *pushed : mr_rates_at(&o->schedule, step);
}

uint32_t mr_rule_apply(const struct mr_rule *o, const struct mr_rule_push *push, float *const *values,
                       float *const *states, const float *const *gradients, uint32_t row_count, size_t count)
{
    return o->kernels->optimize[o->kind](o, push, values, states, gradients, row_count, count);
}
