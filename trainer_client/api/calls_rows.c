/* Rows by key: lookups and gradient pushes, of single keys and of bags. */
#include "trainer_client/api/rows_call.h"

static enum mr_status check_keys(const char *call, const struct mr_client *client, const uint64_t *keys,
                                 uint32_t key_count)
{
    if (client == NULL)
        return mrc_bad_argument(call, "client is NULL");
    if (keys == NULL && key_count > 0)
        return mrc_bad_argument(call, "keys is NULL");
    return MR_OK;
}

static enum mr_status check_bags(const char *call, const struct mr_client *client, const uint64_t *keys,
                                 const float *weights, const uint32_t *offsets, uint32_t bag_count)
{
    enum mr_status status = mrc_check_offsets(call, offsets, bag_count);

    if (status == MR_OK)
        status = check_keys(call, client, keys, offsets[bag_count]);
    return status != MR_OK ? status : mrc_check_weights(call, weights, offsets[bag_count]);
}

static enum mr_status check_gradients(const char *call, uint32_t dim, const float *gradients)
{
    if (gradients == NULL)
        return mrc_bad_argument(call, "gradients is NULL");
    if (dim == 0 || dim > MR_DIM_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: dim is %u; it goes from 1 to %u", call, dim, MR_DIM_MAX);
    return MR_OK;
}

static enum mr_status lookup_bags(const char *call, struct mr_client *client,
                                  const struct mr_options *options, uint32_t table, const uint64_t *keys,
                                  const float *weights, const uint32_t *offsets, uint32_t bag_count,
                                  struct mr_reply **reply)
{
    enum mr_status status = check_bags(call, client, keys, weights, offsets, bag_count);

    if (status != MR_OK)
        return status;
    struct mrc_rows_call c = {.client = client,
                              .options = options,
                              .op = MR_OP_LOOKUP,
                              .table = table,
                              .keys = keys,
                              .key_count = offsets[bag_count],
                              .offsets = offsets,
                              .bag_count = bag_count,
                              .weights = weights};

    return mrc_rows_run(&c, reply);
}

static enum mr_status push_bags(const char *call, struct mr_client *client, const struct mr_options *options,
                                uint32_t table, const uint64_t *keys, const float *weights,
                                const uint32_t *offsets, uint32_t bag_count, uint32_t dim,
                                const float *gradients)
{
    enum mr_status status = check_bags(call, client, keys, weights, offsets, bag_count);

    if (status == MR_OK)
        status = check_gradients(call, dim, gradients);
    if (status != MR_OK)
        return status;
    struct mrc_rows_call c = {.client = client,
                              .options = options,
                              .op = MR_OP_PUSH_GRAD,
                              .table = table,
                              .keys = keys,
                              .key_count = offsets[bag_count],
                              .offsets = offsets,
                              .bag_count = bag_count,
                              .weights = weights,
                              .dim = dim,
                              .gradients = gradients};

    return mrc_rows_run(&c, NULL);
}

enum mr_status mr_lookup(struct mr_client *client, const struct mr_options *options, uint32_t table,
                         const uint64_t *keys, uint32_t key_count, struct mr_reply **reply)
{
    enum mr_status status = check_keys("mr_lookup", client, keys, key_count);
    struct mrc_rows_call c = {.client = client,
                              .options = options,
                              .op = MR_OP_LOOKUP,
                              .table = table,
                              .keys = keys,
                              .key_count = key_count};

    return status != MR_OK ? status : mrc_rows_run(&c, reply);
}

enum mr_status mr_lookup_bags(struct mr_client *client, const struct mr_options *options, uint32_t table,
                              const uint64_t *keys, const uint32_t *offsets, uint32_t bag_count,
                              struct mr_reply **reply)
{
    return lookup_bags("mr_lookup_bags", client, options, table, keys, NULL, offsets, bag_count, reply);
}

enum mr_status mr_lookup_weighted_bags(struct mr_client *client, const struct mr_options *options,
                                       uint32_t table, const uint64_t *keys, const float *weights,
                                       const uint32_t *offsets, uint32_t bag_count, struct mr_reply **reply)
{
    return lookup_bags("mr_lookup_weighted_bags", client, options, table, keys, weights, offsets, bag_count,
                       reply);
}

enum mr_status mr_push_gradients(struct mr_client *client, const struct mr_options *options, uint32_t table,
                                 const uint64_t *keys, uint32_t key_count, uint32_t dim,
                                 const float *gradients)
{
    enum mr_status status = check_keys("mr_push_gradients", client, keys, key_count);

    if (status == MR_OK)
        status = check_gradients("mr_push_gradients", dim, gradients);

    struct mrc_rows_call c = {.client = client,
                              .options = options,
                              .op = MR_OP_PUSH_GRAD,
                              .table = table,
                              .keys = keys,
                              .key_count = key_count,
                              .dim = dim,
                              .gradients = gradients};

    return status != MR_OK ? status : mrc_rows_run(&c, NULL);
}

enum mr_status mr_push_gradients_bags(struct mr_client *client, const struct mr_options *options,
                                      uint32_t table, const uint64_t *keys, const uint32_t *offsets,
                                      uint32_t bag_count, uint32_t dim, const float *gradients)
{
    return push_bags("mr_push_gradients_bags", client, options, table, keys, NULL, offsets, bag_count, dim,
                     gradients);
}

enum mr_status mr_push_gradients_weighted_bags(struct mr_client *client, const struct mr_options *options,
                                               uint32_t table, const uint64_t *keys, const float *weights,
                                               const uint32_t *offsets, uint32_t bag_count, uint32_t dim,
                                               const float *gradients)
{
    return push_bags("mr_push_gradients_weighted_bags", client, options, table, keys, weights, offsets,
                     bag_count, dim, gradients);
}
