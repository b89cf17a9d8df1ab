#include "training.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"

struct parameters {
    struct ps_network *network;
    struct mr_versions *versions;
};

enum mr_status parameters_create(struct ps_network *network, uint64_t seed, struct parameters **out)
{
    struct parameters *p = calloc(1, sizeof(*p));
    float *values = malloc(ps_network_parameter_floats(network) * sizeof(float) + 1);
    enum mr_status status = MR_NO_MEMORY;
    if (p != NULL && values != NULL) {
        ps_parameters_first_values(network, seed, values);
        const struct mr_tensor first = ps_parameters_tensor(network, values);
        p->network = network;
        status = mr_versions_create(&first, &p->versions);
    }
    free(values);
    if (status == MR_OK)
        *out = p;
    else
        free(p);
    return status;
}

void parameters_destroy(struct parameters *p)
{
    if (p == NULL)
        return;
    mr_versions_release(p->versions);
    free(p);
}

struct mr_parameter_version *parameters_hold(struct parameters *p)
{
    return mr_versions_hold(p->versions);
}

struct copy {
    const float *from;
    size_t bytes;
};

static void copy_values(void *context, float *values)
{
    const struct copy *copy = context;
    memcpy(values, copy->from, copy->bytes);
}

enum mr_status versions_set(struct mr_versions *versions, const float *values)
{
    struct copy copy = {values, mr_versions_shape(versions)->bytes};
    return mr_versions_change(versions, copy_values, &copy);
}

enum mr_status parameters_set(struct parameters *p, const float *values)
{
    return versions_set(p->versions, values);
}

/* ---- optimizers: each parameter is one row of dataplane/optimizer/rule.h ---- */

struct parameters_optimizer {
    struct parameters *parameters;
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

static enum mr_status states_create(struct parameters_optimizer *o)
{
    const struct ps_network *network = o->parameters->network;
    struct mr_parameter_version *version = parameters_hold(o->parameters);
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

enum mr_status parameters_optimizer_create(struct parameters *parameters, const struct mr_feature *feature,
                                           struct parameters_optimizer **out, const char **what)
{
    struct mr_feature learning = learning_of(feature);
    *what = mr_feature_check(&learning);
    if (*what != NULL)
        return MR_INVALID_ARGUMENT;
    struct parameters_optimizer *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return MR_NO_MEMORY;
    o->parameters = parameters;
    enum mr_status status = mr_rule_init(&learning, &o->rule, what);
    if (status == MR_OK)
        status = states_create(o);
    if (status == MR_OK)
        *out = o;
    else
        parameters_optimizer_destroy(o);
    return status;
}

void parameters_optimizer_destroy(struct parameters_optimizer *o)
{
    if (o == NULL)
        return;
    for (uint32_t i = 0; i < o->count && o->states != NULL; i++)
        free(o->states[i]);
    free(o->states);
    free(o);
}

struct step {
    struct parameters_optimizer *optimizer;
    const float *gradients;
    float learning_rate;
    uint32_t skipped;
};

static void training_apply(void *context, float *values)
{
    struct step *s = context;
    struct parameters_optimizer *o = s->optimizer;
    const struct ps_network *network = o->parameters->network;
    for (uint32_t i = 0; i < o->count; i++) {
        const struct ps_parameter_info *info = ps_network_parameter(network, i);
        float *row = values + info->first;
        const float *gradient = s->gradients + info->first;
        const struct mr_rule_push push = {.learning_rate = s->learning_rate};
        if (mr_rule_apply(&o->rule, &push, &row, &o->states[i], &gradient, 1, info->shape.count) == 0)
            s->skipped++;
    }
}

enum mr_status parameters_step(struct parameters_optimizer *o, const float *gradients, uint64_t step,
                               const float *learning_rate, uint32_t *skipped)
{
    struct step s = {.optimizer = o,
                     .gradients = gradients,
                     .learning_rate = mr_rule_learning_rate(&o->rule, step, learning_rate)};
    enum mr_status status = mr_versions_change(o->parameters->versions, training_apply, &s);
    if (status == MR_OK && skipped != NULL)
        *skipped = s.skipped;
    return status;
}

enum mr_status nll_loss(const float *log_probabilities, const uint32_t *labels, uint32_t batch,
                        uint32_t classes, float *loss, float *gradient)
{
    double sum = 0;
    if (batch == 0)
        return MR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < batch; i++) {
        if (labels[i] >= classes)
            return MR_INVALID_ARGUMENT;
        sum -= (double)log_probabilities[(size_t)i * classes + labels[i]];
    }
    *loss = (float)(sum / batch);
    if (gradient == NULL)
        return MR_OK;
    memset(gradient, 0, (size_t)batch * classes * sizeof(*gradient));
    for (uint32_t i = 0; i < batch; i++)
        gradient[(size_t)i * classes + labels[i]] = -1.0f / (float)batch;
    return MR_OK;
}
