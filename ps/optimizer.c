#include "ps/optimizer.h"

#include <assert.h>
#include "ps/kernels.h"

static const char *unsupported_name(uint32_t optimizer)
{
    switch (optimizer) {
    case MR_OPT_MOMENTUM:
        return "optimizer momentum";
    case MR_OPT_ROWWISE_ADAGRAD:
        return "optimizer rowwise_adagrad";
    case MR_OPT_ADAM:
        return "optimizer adam";
    case MR_OPT_ADAMW:
        return "optimizer adamw";
    case MR_OPT_FTRL:
        return "optimizer ftrl";
    case MR_OPT_GROUP_FTRL:
        return "optimizer group_ftrl";
    default:
        return "optimizer of an unknown number";
    }
}

enum mr_status ps_optimizer_init(const struct mr_feature *feature, struct ps_optimizer *out,
                                 const char **what)
{
    if (feature->optimizer != MR_OPT_SGD && feature->optimizer != MR_OPT_ADAGRAD) {
        *what = unsupported_name(feature->optimizer);
        return MR_UNSUPPORTED;
    }
    if (feature->schedule != MR_SCHEDULE_CONSTANT || feature->schedule_warmup_steps != 0) {
        *what = "learning rate schedule";
        return MR_UNSUPPORTED;
    }
    *out = (struct ps_optimizer){
        .kind = feature->optimizer,
        .learning_rate = feature->learning_rate,
        .weight_decay = feature->weight_decay,
        .clip_value = feature->clip_value,
        .clip_norm = feature->clip_norm,
        .transforms = feature->weight_decay > 0 || feature->clip_value > 0 || feature->clip_norm > 0,
        .kernels = ps_kernels_best(),
    };
    if (feature->optimizer == MR_OPT_ADAGRAD) {
        out->initial_state = feature->optimizer_args[0];
        out->epsilon = feature->optimizer_args[1];
        assert(out->initial_state > 0 || out->epsilon > 0); /* else 0 / 0 */
    }
    return MR_OK;
}

size_t ps_optimizer_state_floats(const struct ps_optimizer *o, size_t count)
{
    return o->kind == MR_OPT_ADAGRAD ? count : 0;
}

void ps_optimizer_state_init(const struct ps_optimizer *o, const float *values, float *state, size_t count)
{
    (void)values;
    for (size_t i = 0; i < ps_optimizer_state_floats(o, count); i++)
        state[i] = o->initial_state;
}

float ps_optimizer_learning_rate(const struct ps_optimizer *o, uint64_t step, float pushed)
{
    (void)step;
    return pushed > 0 ? pushed : o->learning_rate;
}

uint32_t ps_optimizer_apply(const struct ps_optimizer *o, float learning_rate, float *const *values,
                            float *const *states, const float *const *gradients, uint32_t row_count,
                            size_t count)
{
    return o->kernels->optimize[o->kind](o, learning_rate, values, states, gradients, row_count, count);
}
