/* Optimizers over parameters: each parameter is one row of dataplane/optimizer/rule.h. */
#include <stdlib.h>
#include <string.h>
#include "ps/modules/layers/network.h"
#include "ps/modules/layers/parameters_internal.h"
#include "dataplane/optimizer/rule.h"

struct ps_parameters_optimizer {
    struct ps_parameters *parameters;
    struct mr_rule rule;
    uint32_t count;
    float **states; /* [count] */
};

static float *state_create(const struct mr_rule *rule, const float *values, size_t count)
{
    size_t floats = mr_rule_state_floats(rule, count);
    float *state = malloc((floats + 1) * sizeof(float));
    if (state != NULL)
        mr_rule_state_init(rule, values, state, count);
    return state;
}

static enum mr_status states_create(struct ps_parameters_optimizer *o)
{
    const struct ps_network *network = o->parameters->network;
    struct mr_parameter_version *version = ps_parameters_hold(o->parameters);
    o->count = ps_network_parameter_count(network);
    o->states = calloc((size_t)o->count + 1, sizeof(*o->states));
    enum mr_status status = o->states != NULL ? MR_OK : MR_NO_MEMORY;
    for (uint32_t i = 0; i < o->count && status == MR_OK; i++) {
        const struct ps_parameter_info *info = ps_network_parameter(network, i);
        o->states[i] = state_create(&o->rule, mr_version_values(version) + info->first, info->shape.count);
        status = o->states[i] != NULL ? MR_OK : MR_NO_MEMORY;
    }
    mr_version_release(version);
    return status;
}

/* Of the feature, only what says how to learn. */
static struct mr_feature learning_of(const struct mr_feature *from)
{
    const uint32_t one = 1;
    struct mr_feature f = mr_feature_variable("parameters", 1, &one);
    f.optimizer = from->optimizer;
    memcpy(f.optimizer_args, from->optimizer_args, sizeof(f.optimizer_args));
    f.learning_rate = from->learning_rate;
    f.weight_decay = from->weight_decay;
    f.clip_value = from->clip_value;
    f.clip_norm = from->clip_norm;
    f.schedule = from->schedule;
    f.schedule_warmup_steps = from->schedule_warmup_steps;
    f.schedule_steps = from->schedule_steps;
    f.learning_rate_end = from->learning_rate_end;
    return f;
}

enum mr_status ps_parameters_optimizer_create(struct ps_parameters *parameters,
                                              const struct mr_feature *feature,
                                              struct ps_parameters_optimizer **out, const char **what)
{
    struct mr_feature learning = learning_of(feature);
    *what = mr_feature_check(&learning);
    if (*what != NULL)
        return MR_INVALID_ARGUMENT;
    struct ps_parameters_optimizer *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return MR_NO_MEMORY;
    o->parameters = parameters;
    enum mr_status status = mr_rule_init(&learning, &o->rule, what);
    if (status == MR_OK)
        status = states_create(o);
    if (status == MR_OK)
        *out = o;
    else
        ps_parameters_optimizer_destroy(o);
    return status;
}

void ps_parameters_optimizer_destroy(struct ps_parameters_optimizer *o)
{
    if (o == NULL)
        return;
    for (uint32_t i = 0; i < o->count && o->states != NULL; i++)
        free(o->states[i]);
    free(o->states);
    free(o);
}

struct step {
    struct ps_parameters_optimizer *optimizer;
    const float *gradients;
    float learning_rate;
    uint32_t skipped;
};

static void apply(void *context, float *values)
{
    struct step *s = context;
    struct ps_parameters_optimizer *o = s->optimizer;
    const struct ps_network *network = o->parameters->network;
    for (uint32_t i = 0; i < o->count; i++) {
        const struct ps_parameter_info *info = ps_network_parameter(network, i);
        float *row = values + info->first;
        const float *gradient = s->gradients + info->first;
        if (mr_rule_apply(&o->rule, s->learning_rate, &row, &o->states[i], &gradient, 1, info->shape.count) ==
            0)
            s->skipped++;
    }
}

enum mr_status ps_parameters_step(struct ps_parameters_optimizer *o, const float *gradients, uint64_t step,
                                  const float *learning_rate, uint32_t *skipped)
{
    struct step s = {.optimizer = o,
                     .gradients = gradients,
                     .learning_rate = mr_rule_learning_rate(&o->rule, step, learning_rate)};
    enum mr_status status = mr_versions_change(o->parameters->versions, apply, &s);
    if (status == MR_OK && skipped != NULL)
        *skipped = s.skipped;
    return status;
}
