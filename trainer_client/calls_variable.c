/* Variables: whole or a range, and their gradients. A variable lives on one core. */
#include <inttypes.h>
#include <string.h>
#include "trainer_client/calls.h"

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

/* Finds the variable and its core, and checks the range; *count 0 becomes all behind `first`. */
static enum mr_status place(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                            uint32_t id, uint64_t first, uint64_t *count, struct mr_feature *variable,
                            uint16_t *core)
{
    uint8_t partition_core[MR_PARTITION_COUNT];
    enum mr_status status = mrc_find_feature(client, options, op, id, MR_VARIABLE, variable);

    if (status != MR_OK)
        return status;
    uint64_t all = elements(variable);

    if (first >= all || *count > all - first)
        return mrc_error(MR_WRONG_SHAPE,
                         "%s: %s: \"%s\" has %" PRIu64 " elements; [%" PRIu64 ", %" PRIu64 ") is not inside",
                         client->server, mr_op_name(op), variable->name, all, first, (first + *count));
    if (*count == 0)
        *count = all - first;
    *core = mrc_cores(client, partition_core) > 1 ? mrc_variable_core(variable, partition_core) : 0;
    return MR_OK;
}

static enum mr_status new_call(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                               uint32_t feature, uint16_t core, struct mr_future **out)
{
    enum mr_status status =
        mrc_future_new(client, options, op, feature, 1, 4, sizeof(struct variable_context), out);

    if (status == MR_OK)
        (*out)->parts[0].core = core;
    return status;
}

enum mr_status mr_variable_push(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, const float *values)
{
    struct mr_feature feature;
    struct mr_future *f;
    uint16_t core;

    if (client == NULL || values == NULL)
        return mrc_bad_argument("mr_variable_push", client == NULL ? "client is NULL" : "values is NULL");
    enum mr_status status =
        place(client, options, MR_OP_VARIABLE_PUSH, variable, first, &count, &feature, &core);

    if (status == MR_OK)
        status = new_call(client, options, MR_OP_VARIABLE_PUSH, variable, core, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;

    context->range[0] = first;
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, 1, context->range));
    mrc_part_add(f, 0, mr_tensor_1d(MR_F32, (uint32_t)count, values));
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_variable_pull(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, struct mr_reply **reply)
{
    struct mr_feature feature;
    struct mr_future *f;
    uint16_t core;

    if (client == NULL)
        return mrc_bad_argument("mr_variable_pull", "client is NULL");
    enum mr_status status =
        place(client, options, MR_OP_VARIABLE_PULL, variable, first, &count, &feature, &core);

    if (status == MR_OK)
        status = new_call(client, options, MR_OP_VARIABLE_PULL, variable, core, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;

    context->range[0] = first;
    context->range[1] = count;
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, 2, context->range));
    return mrc_future_run(f, options, reply);
}

enum mr_status mr_variable_push_gradient(struct mr_client *client, const struct mr_options *options,
                                         uint32_t variable, uint64_t count, const float *gradient)
{
    struct mr_feature feature;
    struct mr_future *f;
    uint16_t core;

    if (client == NULL || gradient == NULL)
        return mrc_bad_argument("mr_variable_push_gradient",
                                client == NULL ? "client is NULL" : "gradient is NULL");
    uint64_t all = 0;
    enum mr_status status = place(client, options, MR_OP_PUSH_GRAD, variable, 0, &all, &feature, &core);

    if (status != MR_OK)
        return status;
    if (count != all)
        return mrc_error(MR_WRONG_SHAPE,
                         "%s: push_grad: \"%s\" has %" PRIu64 " elements, the gradient has %" PRIu64 "",
                         client->server, feature.name, all, count);
    status = new_call(client, options, MR_OP_PUSH_GRAD, variable, core, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;
    struct mr_tensor tensor = {.dtype = MR_F32,
                               .rank = feature.rank,
                               .bytes = count * sizeof *gradient,
                               .data = (void *)(uintptr_t)gradient};

    memcpy(tensor.dims, feature.dims, feature.rank * sizeof tensor.dims[0]);
    context->head = mrc_push_head(variable, options);
    mrc_part_add(f, 0, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    mrc_part_add(f, 0, tensor);
    return mrc_future_run(f, options, NULL);
}
