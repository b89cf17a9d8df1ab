#include "dataplane/rpc/dist_optimizer/owned_optimizer.h"
#include "dataplane/wire/base/plural.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

struct option {
    const char *name;
    float value;
    uint32_t kinds; /* optimizers that have it, as bits */
    float below;    /* its bound */
};

#define ALL  ((1u << MR_DIST_SGD) | (1u << MR_DIST_ADAGRAD) | (1u << MR_DIST_ADAM))
#define ADAM (1u << MR_DIST_ADAM)

static const char *const kind_names[] = {
    [MR_DIST_SGD] = "SGD", [MR_DIST_ADAGRAD] = "Adagrad", [MR_DIST_ADAM] = "Adam"};

static enum mr_status refuse(char *error, size_t bytes, const char *name, const char *why)
{
    snprintf(error, bytes, "options.%s %s", name, why);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status check_options(const struct mr_dist_optimizer_options *o, char *error, size_t bytes)
{
    const struct option options[] = {
        {"learning_rate", o->learning_rate, ALL, INFINITY},
        {"momentum", o->momentum, 1u << MR_DIST_SGD, 1},
        {"beta1", o->beta1, ADAM, 1},
        {"beta2", o->beta2, ADAM, 1},
        {"epsilon", o->epsilon, ADAM | 1u << MR_DIST_ADAGRAD, INFINITY},
        {"weight_decay", o->weight_decay, ALL, INFINITY},
        {"initial_accumulator", o->initial_accumulator, 1u << MR_DIST_ADAGRAD, INFINITY},
    };
    char why[64];
    if ((uint32_t)o->kind < MR_DIST_SGD || (uint32_t)o->kind > MR_DIST_ADAM)
        return refuse(error, bytes, "kind", "is none of MR_DIST_SGD, MR_DIST_ADAGRAD, MR_DIST_ADAM");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (!(options[i].value >= 0 && options[i].value < options[i].below)) {
            snprintf(why, sizeof(why), "is %g; it must be at least 0 and below %g", (double)options[i].value,
                     (double)options[i].below);
            return refuse(error, bytes, options[i].name, why);
        }
        if (options[i].value > 0 && (options[i].kinds >> o->kind & 1u) == 0) {
            snprintf(why, sizeof(why), "must be 0: %s has none", kind_names[o->kind]);
            return refuse(error, bytes, options[i].name, why);
        }
    }
    if (o->kind == MR_DIST_SGD && o->learning_rate == 0 && !o->has_learning_rate)
        return refuse(error, bytes, "learning_rate",
                      "must be given, with options.has_learning_rate if it is 0: SGD has no default for it");
    if (o->nesterov && o->momentum == 0)
        return refuse(error, bytes, "nesterov", "needs options.momentum");
    return MR_OK;
}

static float or_default(float given, float torchs)
{
    return given > 0 ? given : torchs;
}

static float rate_of(const struct mr_dist_optimizer_options *o, float torchs)
{
    return o->has_learning_rate ? o->learning_rate : or_default(o->learning_rate, torchs);
}

static void set_sgd(const struct mr_dist_optimizer_options *o, struct mr_feature *f)
{
    mr_feature_set_optimizer(f, o->momentum > 0 ? MR_OPT_MOMENTUM : MR_OPT_SGD);
    if (o->momentum > 0) {
        f->optimizer_args[0] = o->momentum;
        f->optimizer_args[1] = 0;
        f->optimizer_args[2] = o->nesterov ? 1 : 0;
    }
    f->learning_rate = o->learning_rate;
}

static void set_adagrad(const struct mr_dist_optimizer_options *o, struct mr_feature *f)
{
    mr_feature_set_optimizer(f, MR_OPT_ADAGRAD);
    f->optimizer_args[0] = o->initial_accumulator;
    f->optimizer_args[1] = or_default(o->epsilon, 1e-10f);
    f->learning_rate = rate_of(o, 1e-2f);
}

static void set_adam(const struct mr_dist_optimizer_options *o, struct mr_feature *f)
{
    mr_feature_set_optimizer(f, MR_OPT_ADAM);
    f->optimizer_args[0] = or_default(o->beta1, 0.9f);
    f->optimizer_args[1] = or_default(o->beta2, 0.999f);
    f->optimizer_args[2] = or_default(o->epsilon, 1e-8f);
    f->learning_rate = rate_of(o, 1e-3f);
}

enum mr_status mr_dist_rule(const struct mr_dist_optimizer_options *o, struct mr_rule *rule, char *error,
                            size_t error_bytes)
{
    const uint32_t one = 1;
    struct mr_feature f = mr_feature_variable("parameter", 1, &one);
    enum mr_status status = check_options(o, error, error_bytes);
    const char *what;
    if (status != MR_OK)
        return status;
    if (o->kind == MR_DIST_SGD)
        set_sgd(o, &f);
    else if (o->kind == MR_DIST_ADAGRAD)
        set_adagrad(o, &f);
    else
        set_adam(o, &f);
    f.weight_decay = o->weight_decay;
    what = mr_feature_check(&f);
    if (what != NULL)
        return refuse(error, error_bytes, what, "is out of range");
    status = mr_rule_init(&f, rule, &what);
    return status == MR_OK ? MR_OK : refuse(error, error_bytes, "kind", what);
}

/* ---- state ---- */

/* The state has versions, too, so that a checkpoint can hold the one of its cut. */
struct owned {
    struct mr_owned_parameter parameter;
    size_t floats;
    struct mr_versions *state;
};

struct mr_owned_optimizer {
    struct mr_rule rule;
    struct mr_named_parameters *all;
    struct mr_named_optimizer *named; /* NULL: it has no name */
    uint32_t count, room;
    struct owned *owned;
};

struct mr_owned_optimizer *mr_owned_optimizer_create(const struct mr_rule *rule,
                                                     struct mr_named_parameters *all, const char *name)
{
    struct mr_owned_optimizer *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return NULL;
    o->rule = *rule;
    o->all = all;
    o->named = name == NULL ? NULL : mr_named_optimizer(all, name);
    if (o->named == NULL && name != NULL) {
        free(o);
        return NULL;
    }
    return o;
}

uint64_t mr_owned_optimizer_steps(const struct mr_owned_optimizer *o)
{
    return o->named == NULL ? 0 : mr_named_steps(o->named);
}

void mr_owned_optimizer_destroy(struct mr_owned_optimizer *o)
{
    if (o == NULL)
        return;
    for (uint32_t i = 0; i < o->count; i++) {
        mr_versions_release(o->owned[i].parameter.versions);
        mr_versions_release(o->owned[i].state);
    }
    free(o->owned);
    free(o);
}

static bool make_room(struct mr_owned_optimizer *o, uint32_t count)
{
    if (o->room - o->count >= count)
        return true;
    struct owned *more = realloc(o->owned, (o->count + count) * sizeof(*more));

    if (more == NULL)
        return false;
    o->owned = more;
    o->room = o->count + count;
    return true;
}

/* The state that the parameter begins with, or that was kept under the optimizer's name. */
static enum mr_status state_of(struct mr_owned_optimizer *o, const struct mr_versions *parameter,
                               const struct mr_tensor *initial, struct mr_versions **state,
                               char why[MR_NAMED_TEXT_BYTES])
{
    if (o->named != NULL)
        return mr_named_state(o->all, o->named, parameter, o->rule.kind, initial, state, why);
    snprintf(why, MR_NAMED_TEXT_BYTES, "has no memory for the optimizer's state");
    return mr_versions_create(initial, state);
}

/* There is room for it. If it fails, `why` says the reason. */
static enum mr_status own(struct mr_owned_optimizer *o, const struct mr_owned_parameter *parameter,
                          char why[MR_NAMED_TEXT_BYTES])
{
    size_t floats = mr_versions_shape(parameter->versions)->bytes / sizeof(float);
    size_t state_floats = mr_rule_state_floats(&o->rule, floats);
    struct mr_versions *state = NULL;
    snprintf(why, MR_NAMED_TEXT_BYTES, "has no memory for the optimizer's state");
    if (state_floats > UINT32_MAX)
        return MR_NO_MEMORY;
    float *first = malloc((state_floats + 1) * sizeof(*first));
    if (first == NULL)
        return MR_NO_MEMORY;
    struct mr_parameter_version *version = mr_versions_hold(parameter->versions);

    mr_rule_state_init(&o->rule, mr_version_values(version), first, floats);
    mr_version_release(version);
    const struct mr_tensor initial = mr_tensor_1d(MR_F32, (uint32_t)state_floats, first);
    enum mr_status status = state_of(o, parameter->versions, &initial, &state, why);
    free(first);
    if (status != MR_OK)
        return status;
    mr_versions_retain(parameter->versions);
    o->owned[o->count++] = (struct owned){.parameter = *parameter, .floats = floats, .state = state};
    return MR_OK;
}

static const struct owned *owned_optimizer_find(const struct mr_owned_optimizer *o,
                                                const struct mr_versions *versions)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (o->owned[i].parameter.versions == versions)
            return &o->owned[i];
    return NULL;
}

enum mr_status mr_owned_optimizer_add(struct mr_owned_optimizer *o,
                                      const struct mr_owned_parameter *parameters, uint32_t count,
                                      char *error, size_t error_bytes)
{
    if (!make_room(o, count)) {
        snprintf(error, error_bytes, "no memory for an optimizer of %u parameter%s", o->count + count,
                 mr_plural(o->count + count));
        return MR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct owned *same = owned_optimizer_find(o, parameters[i].versions);
        if (same != NULL) {
            snprintf(error, error_bytes, "parameters %u and %u are the same", same->parameter.number,
                     parameters[i].number);
            return MR_INVALID_ARGUMENT;
        }
        char why[MR_NAMED_TEXT_BYTES];
        enum mr_status status = own(o, &parameters[i], why);
        if (status != MR_OK) {
            snprintf(error, error_bytes, "parameter %u %s", parameters[i].number, why);
            return status;
        }
    }
    return MR_OK;
}

/* ---- a step ---- */

struct change {
    const struct mr_rule *rule;
    const struct owned *owned;
    const float *gradient;
    float *values;
    enum mr_status status; /* of the state's next version */
    bool is_changed;
};

static void owned_optimizer_apply(void *context, float *state)
{
    struct change *c = context;
    const struct mr_rule_push push = {.learning_rate = mr_rule_learning_rate(c->rule, 0, 0)};
    c->is_changed = mr_rule_apply(c->rule, &push, &c->values, &state, &c->gradient, 1, c->owned->floats) == 1;
}

static void apply_to_values(void *context, float *values)
{
    struct change *c = context;
    c->values = values;
    c->status = mr_versions_change(c->owned->state, owned_optimizer_apply, c);
}

/* Steps one parameter. If that fails, it stays as it was, and *why says the reason. */
static enum mr_status step_one(struct mr_owned_optimizer *o, const struct owned *owned,
                               const struct mr_tensor *gradient, const char **why)
{
    struct change change = {.rule = &o->rule, .owned = owned, .gradient = gradient->data};
    if (gradient->dtype != MR_F32 || gradient->bytes != owned->floats * sizeof(float)) {
        *why = "has a gradient of another shape";
        return MR_INVALID_ARGUMENT;
    }
    if (mr_versions_change(owned->parameter.versions, apply_to_values, &change) != MR_OK ||
        change.status != MR_OK) {
        *why = "has no memory for its next version";
        return MR_NO_MEMORY;
    }
    if (!change.is_changed) {
        *why = "has NaN or Inf in its gradient";
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

enum mr_status mr_owned_optimizer_step(struct mr_owned_optimizer *o, mr_gradient_of *gradient_of,
                                       void *context, char *error, size_t error_bytes)
{
    enum mr_status first = MR_OK;
    for (uint32_t i = 0; i < o->count; i++) {
        struct mr_tensor gradient;
        const char *why;
        if (!gradient_of(context, o->owned[i].parameter.id, &gradient))
            continue;
        enum mr_status status = step_one(o, &o->owned[i], &gradient, &why);

        if (status == MR_OK || first != MR_OK)
            continue;
        first = status;
        snprintf(error, error_bytes, "parameter %u %s: it stays as it was", o->owned[i].parameter.number,
                 why);
    }
    mr_named_stepped(o->all, o->named);
    return first;
}
