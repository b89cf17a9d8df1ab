/* The distributed optimizer, on the worker that calls for a step. */
#include "dataplane/rpc/dist_optimizer/dist_optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/work.h"
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/rpc/dist_optimizer/owned_optimizer.h"

/* The object on one owner. */
struct part {
    uint32_t owner;
    struct mr_rref *object; /* NULL: not made yet */
    uint32_t next;          /* in the program's list, the next to be added */
    uint64_t steps;         /* as it answered last */
};

struct mr_dist_optimizer {
    struct mr_rpc *rpc;
    bool has_name;
    uint32_t part_count;
    struct part parts[];
};

/* ---- what went wrong: the first status, and as many lines as fit ---- */

struct trouble {
    enum mr_status status;
    char lines[MR_RPC_ERROR_BYTES];
};

static void dist_optimizer_note(struct trouble *trouble, enum mr_status status)
{
    size_t used = strlen(trouble->lines);
    if (status == MR_OK)
        return;
    if (trouble->status == MR_OK)
        trouble->status = status;
    snprintf(trouble->lines + used, sizeof(trouble->lines) - used, "%s%s", used == 0 ? "" : "; ",
             mr_rpc_last_error());
}

static enum mr_status dist_optimizer_say(const struct trouble *trouble, const char *caller)
{
    if (trouble->status != MR_OK)
        mr_rpc_error_line("%s: %s", caller, trouble->lines);
    return trouble->status;
}

/* ---- a call on each owner, all at once ---- */

/* Begins the call for a part, if there is one: *future is NULL otherwise. */
typedef enum mr_status part_begin(struct mr_dist_optimizer *o, struct part *part, const void *self,
                                  struct mr_rpc_future **future);
/* Handles and frees the result of the part's call. Sets the error line unless it returns MR_OK. */
typedef enum mr_status part_ended(struct part *part, struct mr_rpc_result *result);

/* Returns whether there was any call. */
static bool on_all(struct mr_dist_optimizer *o, part_begin *begin, const void *self, part_ended *ended,
                   struct trouble *trouble)
{
    struct mr_rpc_future **futures = calloc(o->part_count, sizeof(struct mr_rpc_future *));
    bool any = false;
    if (futures == NULL) {
        dist_optimizer_note(trouble, mr_rpc_error(MR_NO_MEMORY, "no memory for calls"));
        return false;
    }
    for (uint32_t i = 0; i < o->part_count; i++)
        dist_optimizer_note(trouble, begin(o, &o->parts[i], self, &futures[i]));
    for (uint32_t i = 0; i < o->part_count; i++) {
        struct mr_rpc_result *result = NULL;
        if (futures[i] == NULL)
            continue;
        enum mr_status status = mr_rpc_wait(futures[i], &result);

        any = true;
        if (status == MR_OK)
            status = ended(&o->parts[i], result);
        dist_optimizer_note(trouble, status);
        mr_rpc_future_destroy(futures[i]);
    }
    free(futures);
    return any;
}

static enum mr_status free_result(struct part *part, struct mr_rpc_result *result)
{
    mr_rpc_result_free(result);
    return MR_OK;
}

/* ---- made ---- */

static enum mr_status begin_create(struct mr_dist_optimizer *optimizer, struct part *part, const void *self,
                                   struct mr_rpc_future **future)
{
    const struct mr_dist_optimizer_options *o = self;
    float numbers[MR_DIST_NUMBERS] = {o->learning_rate, o->momentum,           o->beta1, o->beta2, o->epsilon,
                                      o->weight_decay,  o->initial_accumulator};
    int64_t flags = (o->nesterov ? MR_DIST_NESTEROV : 0) | (o->has_learning_rate ? MR_DIST_LEARNING_RATE : 0);
    struct mr_value arguments[4] = {mr_value_i64(o->kind), mr_value_i64(flags),
                                    mr_value_tensor(mr_tensor_1d(MR_F32, MR_DIST_NUMBERS, numbers))};
    if (o->name != NULL)
        arguments[3] = mr_value_string(o->name);
    return mr_rpc_async(optimizer->rpc, part->owner, MR_DIST_OPTIMIZER, arguments, o->name == NULL ? 3 : 4,
                        NULL, future);
}

static enum mr_status end_create(struct part *part, struct mr_rpc_result *result)
{
    const struct mr_value *object = mr_rpc_result_value(result, 0);
    enum mr_status status = MR_OK;
    if (object != NULL && object->kind == MR_VALUE_RREF && mr_rref_owner(object->rref) == part->owner) {
        part->object = object->rref;
        mr_rref_retain(part->object);
    } else {
        status = mr_rpc_error(MR_BAD_MESSAGE, "rank %u answered " MR_DIST_OPTIMIZER " with something else",
                              part->owner);
    }
    mr_rpc_result_free(result);
    return status;
}

struct list {
    struct mr_rref *const *parameters;
    uint32_t count;
};

/* Adds as many of the owner's parameters as fit into a call. */
static enum mr_status begin_add(struct mr_dist_optimizer *optimizer, struct part *part, const void *self,
                                struct mr_rpc_future **future)
{
    const struct list *list = self;
    struct mr_value arguments[MR_RPC_ARGUMENTS_MAX];
    uint32_t which[MR_DIST_PARAMETERS_MAX], n = 0;
    for (; part->next < list->count && n < MR_DIST_PARAMETERS_MAX; part->next++) {
        if (mr_rref_owner(list->parameters[part->next]) != part->owner)
            continue;
        arguments[2 + n] = mr_value_rref(list->parameters[part->next]);
        which[n++] = part->next;
    }
    if (n == 0)
        return MR_OK;
    arguments[0] = mr_value_rref(part->object);
    arguments[1] = mr_value_tensor(mr_tensor_1d(MR_U32, n, which));
    return mr_rpc_async(optimizer->rpc, part->owner, MR_DIST_OPTIMIZER_ADD, arguments, 2 + n, NULL, future);
}

/* Makes a part for each owner. */
static void make_parts(struct mr_dist_optimizer *o, const struct list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t owner = mr_rref_owner(list->parameters[i]), at = 0;
        while (at < o->part_count && o->parts[at].owner != owner)
            at++;
        if (at == o->part_count)
            o->parts[o->part_count++] = (struct part){.owner = owner};
    }
}

static void dist_optimizer_make(struct mr_dist_optimizer *o, const struct mr_dist_optimizer_options *options,
                                const struct list *list, struct trouble *trouble)
{
    bool more = true;
    make_parts(o, list);
    (void)on_all(o, begin_create, options, end_create, trouble);
    while (more && trouble->status == MR_OK)
        more = on_all(o, begin_add, list, free_result, trouble);
}

static enum mr_status check_list(struct mr_rref *const *parameters, uint32_t count)
{
    if (count == 0)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_dist_optimizer_create: there is no parameter");
    for (uint32_t i = 0; i < count; i++)
        if (parameters[i] == NULL)
            return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_dist_optimizer_create: parameter %u is NULL", i);
    return MR_OK;
}

enum mr_status mr_dist_optimizer_create(struct mr_rpc *rpc, const struct mr_dist_optimizer_options *options,
                                        struct mr_rref *const *parameters, uint32_t parameter_count,
                                        struct mr_dist_optimizer **optimizer)
{
    struct trouble trouble = {.status = MR_OK};
    struct mr_rule rule;
    char why[256];
    enum mr_status status = mr_dist_rule(options, &rule, why, sizeof(why));
    if (status != MR_OK)
        return mr_rpc_error(status, "mr_dist_optimizer_create: %s", why);
    if (options->name != NULL && !mr_named_is_name(options->name))
        return mr_rpc_error(
            MR_INVALID_ARGUMENT,
            "mr_dist_optimizer_create: options.name \"%.80s\" is no name: names have 1 to %d of the "
            "characters A-Z a-z 0-9 _ . / : -",
            options->name, MR_NAME_BYTES - 1);
    status = check_list(parameters, parameter_count);
    if (status != MR_OK)
        return status;
    const struct list list = {parameters, parameter_count};
    struct mr_dist_optimizer *o = malloc(sizeof(*o) + parameter_count * sizeof(o->parts[0]));

    if (o == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "mr_dist_optimizer_create: no memory");
    o->rpc = rpc;
    o->has_name = options->name != NULL;
    o->part_count = 0;
    dist_optimizer_make(o, options, &list, &trouble);
    if (trouble.status == MR_OK)
        *optimizer = o;
    else
        mr_dist_optimizer_destroy(o);
    return dist_optimizer_say(&trouble, "mr_dist_optimizer_create");
}

void mr_dist_optimizer_destroy(struct mr_dist_optimizer *optimizer)
{
    if (optimizer == NULL)
        return;
    for (uint32_t i = 0; i < optimizer->part_count; i++)
        mr_rref_release(optimizer->parts[i].object);
    free(optimizer);
}

/* ---- a step ---- */

static enum mr_status begin_step(struct mr_dist_optimizer *optimizer, struct part *part, const void *self,
                                 struct mr_rpc_future **future)
{
    const struct mr_value object = mr_value_rref(part->object);
    return mr_rpc_async(optimizer->rpc, part->owner, MR_DIST_OPTIMIZER_STEP, &object, 1, self, future);
}

enum mr_status mr_dist_optimizer_step(struct mr_dist_optimizer *optimizer, struct mr_autograd *context,
                                      uint32_t timeout_ms)
{
    const struct mr_rpc_call_options options = {.timeout_ms = timeout_ms, .context = context};
    struct trouble trouble = {.status = MR_OK};
    if (context == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_dist_optimizer_step: the context is NULL");
    (void)on_all(optimizer, begin_step, &options, free_result, &trouble);
    return dist_optimizer_say(&trouble, "mr_dist_optimizer_step");
}

/* ---- its steps ---- */

static enum mr_status begin_steps(struct mr_dist_optimizer *optimizer, struct part *part, const void *self,
                                  struct mr_rpc_future **future)
{
    const struct mr_value object = mr_value_rref(part->object);
    return mr_rpc_async(optimizer->rpc, part->owner, MR_DIST_OPTIMIZER_STEPS, &object, 1, NULL, future);
}

static enum mr_status end_steps(struct part *part, struct mr_rpc_result *result)
{
    const struct mr_value *steps = mr_rpc_result_value(result, 0);
    enum mr_status status = MR_OK;
    if (steps != NULL && steps->kind == MR_VALUE_I64 && steps->i64 >= 0)
        part->steps = (uint64_t)steps->i64;
    else
        status = mr_rpc_error(
            MR_BAD_MESSAGE, "rank %u answered " MR_DIST_OPTIMIZER_STEPS " with something else", part->owner);
    mr_rpc_result_free(result);
    return status;
}

enum mr_status mr_dist_optimizer_steps(struct mr_dist_optimizer *optimizer, uint64_t *steps)
{
    struct trouble trouble = {.status = MR_OK};
    if (!optimizer->has_name)
        return mr_rpc_error(
            MR_INVALID_ARGUMENT,
            "mr_dist_optimizer_steps: the optimizer has no name, under which owners count its steps");
    (void)on_all(optimizer, begin_steps, NULL, end_steps, &trouble);
    *steps = UINT64_MAX;
    for (uint32_t i = 0; i < optimizer->part_count; i++)
        *steps = optimizer->parts[i].steps < *steps ? optimizer->parts[i].steps : *steps;
    return dist_optimizer_say(&trouble, "mr_dist_optimizer_steps");
}
