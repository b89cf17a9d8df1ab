/* Variables: whole or a range, and their gradients. A variable lives on one core. */
#include <inttypes.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "trainer_client/api/calls.h"
#include "dataplane/wire/base/clock.h"

struct variable_context {
    uint64_t range[2];
    struct mr_push_head head;
};

static uint64_t elements(const struct mr_feature *variable)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < variable->rank; d++)
        n *= variable->dims[d];
    return n;
}

/* The owner of a variable, and the map that says so. */
struct place {
    struct mr_feature variable;
    struct mrc_attempt attempt;
    uint16_t owner;
};

/* Finds the variable and its core, and checks the range; *count 0 becomes all from `first` on. */
static enum mr_status find_place(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                 uint32_t id, uint64_t first, uint64_t *count, struct place *place)
{
    struct mr_feature *variable = &place->variable;
    enum mr_status status = mrc_find_feature(client, options, op, id, MR_VARIABLE, variable);
    if (status != MR_OK)
        return status;
    uint64_t all = elements(variable);

    if (first >= all || *count > all - first)
        return mrc_error(MR_WRONG_SHAPE,
                         "%s: %s: \"%s\" has %" PRIu64 " element%s; [%" PRIu64 ", %" PRIu64 ") is not inside",
                         client->server, mr_op_name(op), variable->name, all, mr_plural(all), first,
                         (first + *count));
    if (*count == 0)
        *count = all - first;
    struct mrc_owners *owners = mrc_owners_hold(client);

    if (owners != NULL) { /* otherwise the call itself reports that */
        place->owner = mrc_variable_owner(variable, owners->of_partition);
        place->attempt.map_changes = owners->changes;
    }
    mrc_owners_release(owners);
    return MR_OK;
}

static enum mr_status new_call(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                               uint32_t feature, const struct place *place, struct mr_future **out)
{
    enum mr_status status =
        mrc_future_new(client, options, op, feature, 1, 4, sizeof(struct variable_context), out);
    if (status == MR_OK) {
        (*out)->parts[0].owner = place->owner;
        (*out)->map_changes = place->attempt.map_changes;
        (*out)->options.deadline_us = place->attempt.deadline_us;
    }
    return status;
}

static struct place begin(struct mr_client *client, const struct mr_options *options)
{
    struct place place = {.attempt.deadline_us = mrc_deadline_us(client, options, mr_clock_us())};
    (void)mrc_cores_of_map(client, &place.attempt.map_changes);
    return place;
}

/* `values` are written; NULL: the values are read. */
static enum mr_status move_once(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, const float *values, struct place *place,
                                struct mr_reply **reply)
{
    enum mr_op op = values != NULL ? MR_OP_VARIABLE_PUSH : MR_OP_VARIABLE_PULL;
    struct mr_future *f;
    enum mr_status status = find_place(client, options, op, variable, first, &count, place);
    if (status == MR_OK)
        status = new_call(client, options, op, variable, place, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;

    context->range[0] = first;
    context->range[1] = count;
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, values != NULL ? 1 : 2, context->range));
    if (values != NULL)
        mrc_part_add(f, 0, mr_tensor_1d(MR_F32, (uint32_t)count, values));
    return mrc_future_run(f, options, reply);
}

enum mr_status mr_variable_push(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, const float *values)
{
    if (client == NULL || values == NULL)
        return mrc_bad_argument("mr_variable_push", client == NULL ? "client is NULL" : "values is NULL");
    struct place place = begin(client, options);
    enum mr_status status;

    do {
        status = move_once(client, options, variable, first, count, values, &place, NULL);
    } while (mrc_is_overtaken(client, MR_OP_VARIABLE_PUSH, &place.attempt, status));
    return status;
}

enum mr_status mr_variable_pull(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, struct mr_reply **reply)
{
    if (client == NULL)
        return mrc_bad_argument("mr_variable_pull", "client is NULL");
    struct place place = begin(client, options);
    enum mr_status status;

    do {
        status = move_once(client, options, variable, first, count, NULL, &place, reply);
    } while (mrc_is_overtaken(client, MR_OP_VARIABLE_PULL, &place.attempt, status));
    return status;
}

static enum mr_status push_gradient_once(struct mr_client *client, const struct mr_options *options,
                                         uint32_t variable, uint64_t count, const float *gradient,
                                         struct place *place)
{
    const struct mr_feature *feature = &place->variable;
    struct mr_future *f;
    uint64_t all = 0;
    enum mr_status status = find_place(client, options, MR_OP_PUSH_GRAD, variable, 0, &all, place);
    if (status != MR_OK)
        return status;
    if (count != all)
        return mrc_error(MR_WRONG_SHAPE,
                         "%s: push_grad: \"%s\" has %" PRIu64 " element%s, the gradient has %" PRIu64 "",
                         client->server, feature->name, all, mr_plural(all), count);
    status = new_call(client, options, MR_OP_PUSH_GRAD, variable, place, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;
    struct mr_tensor tensor = {.dtype = MR_F32,
                               .rank = feature->rank,
                               .bytes = count * sizeof(*gradient),
                               .data = (void *)(uintptr_t)gradient};

    memcpy(tensor.dims, feature->dims, feature->rank * sizeof(tensor.dims[0]));
    context->head = mrc_push_head(variable, options);
    mrc_part_add(f, 0, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    mrc_part_add(f, 0, tensor);
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_variable_push_gradient(struct mr_client *client, const struct mr_options *options,
                                         uint32_t variable, uint64_t count, const float *gradient)
{
    if (client == NULL || gradient == NULL)
        return mrc_bad_argument("mr_variable_push_gradient",
                                client == NULL ? "client is NULL" : "gradient is NULL");
    struct place place = begin(client, options);
    enum mr_status status;

    do {
        status = push_gradient_once(client, options, variable, count, gradient, &place);
    } while (mrc_is_overtaken(client, MR_OP_PUSH_GRAD, &place.attempt, status));
    return status;
}
