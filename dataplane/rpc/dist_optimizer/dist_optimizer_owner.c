/* The distributed optimizer on the owners of parameters. */
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/dist_optimizer/dist_optimizer.h"
#include "dataplane/rpc/dist_optimizer/owned_optimizer.h"
#include "dataplane/rpc/rref/rref.h"

static void dist_optimizer_owner_destroy(void *optimizer)
{
    mr_owned_optimizer_destroy(optimizer);
}

/* ---- mr.optimizer ---- */

static struct mr_dist_optimizer_options options_of(const struct mr_value *arguments)
{
    const float *numbers = arguments[2].tensor.data;
    return (struct mr_dist_optimizer_options){.kind = (enum mr_dist_optimizer_kind)arguments[0].i64,
                                              .nesterov = (arguments[1].i64 & MR_DIST_NESTEROV) != 0,
                                              .has_learning_rate =
                                                  (arguments[1].i64 & MR_DIST_LEARNING_RATE) != 0,
                                              .learning_rate = numbers[0],
                                              .momentum = numbers[1],
                                              .beta1 = numbers[2],
                                              .beta2 = numbers[3],
                                              .epsilon = numbers[4],
                                              .weight_decay = numbers[5],
                                              .initial_accumulator = numbers[6]};
}

/* Whether the fourth argument, if there is one, is a name; *name then has it, or is NULL. */
static bool name_of(const struct mr_value *arguments, uint32_t argument_count, char text[MR_NAME_BYTES],
                    const char **name)
{
    *name = NULL;
    if (argument_count == 3)
        return true;
    const struct mr_value *v = &arguments[3];
    if (argument_count > 4 || v->kind != MR_VALUE_STRING || v->string.bytes >= MR_NAME_BYTES)
        return false;
    memcpy(text, v->string.text, v->string.bytes);
    text[v->string.bytes] = '\0';
    *name = text;
    return mr_named_is_name(text);
}

static enum mr_status dist_optimizer_owner_create(struct mr_rpc_call *call, const struct mr_value *arguments,
                                                  uint32_t argument_count)
{
    const struct mr_dist_optimizer_options options = options_of(arguments);
    char why[256], text[MR_NAME_BYTES];
    const char *name;
    struct mr_rule rule;
    struct mr_rref *rref;
    enum mr_status status = mr_dist_rule(&options, &rule, why, sizeof(why));
    if (status != MR_OK) {
        (void)mr_rpc_fail(call, "%s", why);
        return status;
    }
    if (!name_of(arguments, argument_count, text, &name))
        return mr_rpc_fail(call, "the optimizer's name is none");
    pthread_mutex_lock(call->agent->stepping);
    struct mr_owned_optimizer *optimizer = mr_owned_optimizer_create(&rule, call->agent->parameters, name);
    pthread_mutex_unlock(call->agent->stepping);

    if (optimizer == NULL)
        return MR_NO_MEMORY;
    status = mr_rref_create(call->agent, (struct mr_value){.kind = MR_VALUE_OBJECT, .object = optimizer},
                            dist_optimizer_owner_destroy, &rref);
    if (status != MR_OK)
        return status;
    status = mr_rpc_return(call, mr_value_rref(rref));
    mr_rref_release(rref);
    return status;
}

/* NULL: it is not an optimizer, as the error of the call then says. */
static struct mr_owned_optimizer *optimizer_of(struct mr_rpc_call *call, const struct mr_value *value)
{
    struct mr_owned_optimizer *optimizer = mr_rref_object(value->rref, dist_optimizer_owner_destroy);
    if (optimizer == NULL)
        (void)mr_rpc_fail(call, "the reference is to no optimizer of this worker's");
    return optimizer;
}

/* ---- mr.optimizer_add ---- */

static enum mr_status parameters_of(struct mr_rpc_call *call, const struct mr_tensor *which,
                                    const struct mr_value *values, uint32_t count,
                                    struct mr_owned_parameter *out)
{
    const uint32_t *numbers = which->data;
    if (which->dims[0] != count)
        return mr_rpc_fail(call, "%u number%s for %u parameter%s", which->dims[0], mr_plural(which->dims[0]),
                           count, mr_plural(count));
    for (uint32_t i = 0; i < count; i++) {
        struct mr_versions *versions =
            values[i].kind == MR_VALUE_RREF ? mr_parameter_versions(values[i].rref) : NULL;
        if (versions == NULL)
            return mr_rpc_fail(
                call, "parameter %u is none of this worker's; mr_parameter_create() makes them", numbers[i]);
        out[i] = (struct mr_owned_parameter){
            .id = mr_rref_id(values[i].rref), .number = numbers[i], .versions = versions};
    }
    return MR_OK;
}

static enum mr_status dist_optimizer_owner_add(struct mr_rpc_call *call, const struct mr_value *arguments,
                                               uint32_t argument_count)
{
    struct mr_owned_parameter parameters[MR_DIST_PARAMETERS_MAX];
    const uint32_t count = argument_count - 2;
    struct mr_owned_optimizer *optimizer = optimizer_of(call, &arguments[0]);
    char why[256];
    if (optimizer == NULL)
        return MR_FUNCTION_FAILED;
    enum mr_status status = parameters_of(call, &arguments[1].tensor, arguments + 2, count, parameters);

    if (status != MR_OK)
        return status;
    pthread_mutex_lock(call->agent->stepping);
    status = mr_owned_optimizer_add(optimizer, parameters, count, why, sizeof(why));
    pthread_mutex_unlock(call->agent->stepping);
    if (status != MR_OK)
        (void)mr_rpc_fail(call, "%s", why);
    return status;
}

/* ---- mr.optimizer_step ---- */

static bool gradient_of(void *context, uint64_t id, struct mr_tensor *gradient)
{
    return mr_context_gradient(context, id, gradient);
}

static enum mr_status dist_optimizer_owner_step(struct mr_rpc_call *call, const struct mr_value *arguments,
                                                uint32_t argument_count)
{
    struct mr_autograd *context = mr_rpc_context(call);
    struct mr_owned_optimizer *optimizer = optimizer_of(call, &arguments[0]);
    char why[256];
    if (optimizer == NULL)
        return MR_FUNCTION_FAILED;
    if (context == NULL)
        return mr_rpc_fail(call, "the call is in no context");
    /* As with torch, each worker applies one step at a time, so that the steps of several trainers are each
     * applied whole. */
    pthread_mutex_lock(call->agent->stepping);
    enum mr_status status = mr_owned_optimizer_step(optimizer, gradient_of, context, why, sizeof(why));

    pthread_mutex_unlock(call->agent->stepping);
    if (status != MR_OK)
        (void)mr_rpc_fail(call, "%s", why);
    return status;
}

/* ---- mr.optimizer_steps ---- */

static enum mr_status steps(struct mr_rpc_call *call, const struct mr_value *arguments,
                            uint32_t argument_count)
{
    struct mr_owned_optimizer *optimizer = optimizer_of(call, &arguments[0]);
    if (optimizer == NULL)
        return MR_FUNCTION_FAILED;
    pthread_mutex_lock(call->agent->stepping);
    uint64_t count = mr_owned_optimizer_steps(optimizer);
    pthread_mutex_unlock(call->agent->stepping);
    return mr_rpc_return(call, mr_value_i64((int64_t)count));
}

enum mr_status mr_dist_optimizer_register(struct mr_rpc *agent)
{
    const struct mr_rpc_function functions[] = {
        {.name = MR_DIST_OPTIMIZER,
         .arguments = "i64, i64, f32[7], ...",
         .results = "ref",
         .run = dist_optimizer_owner_create},
        {.name = MR_DIST_OPTIMIZER_ADD, .arguments = "ref, u32[?], ...", .run = dist_optimizer_owner_add},
        {.name = MR_DIST_OPTIMIZER_STEP, .arguments = "ref", .run = dist_optimizer_owner_step},
        {.name = MR_DIST_OPTIMIZER_STEPS, .arguments = "ref", .results = "i64", .run = steps},
    };
    char why[256];
    enum mr_status status = MR_OK;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && status == MR_OK; i++)
        status = mr_functions_add(&agent->functions, &functions[i], true, why, sizeof(why));
    return status;
}
