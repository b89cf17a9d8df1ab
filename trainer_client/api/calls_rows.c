/* Rows by key: lookups and gradient pushes, of single keys and of bags. Gradients and rows travel in the
 * options' wire_dtype; callers see f32. Rows that are set or read as they are stored are a push and a lookup,
 * too, of f32.
 *
 * With one owner (owners.h) a request is what the caller gave and the reply is a view, unless rows travel in
 * another type. With several, each one that owns one of the keys gets its share, and the waiting thread joins
 * the answers. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/large_call.h"
#include "trainer_client/api/rows_answer.h"
#include "trainer_client/api/rows_request.h"
#include "trainer_client/api/shard.h"
#include "dataplane/wire/format/capability.h"
#include "trainer_client/call/node.h"

/* A call that is being made. */
struct rows_call {
    struct mrc_retry retry;
    struct mrc_rows_request of;
    uint32_t set_flags;    /* pushes: MR_PUSH_SET and what follows it, or 0 */
    uint32_t lookup_flags; /* lookups: enum mr_lookup_flag, and MR_FEED_READ_ONLY with it */
};

static bool is_push(const struct rows_call *c)
{
    return c->of.gradients != NULL;
}

/* What joining the answers needs; freed with the future. */
struct rows_context {
    struct mrc_shard shard;
    uint32_t bag_count;
    bool has_bags;
    enum mr_dtype dtype;
    struct mr_push_head head; /* of pushes */
};

/* ---- answers ---- */

static enum mr_status finish_whole(struct mr_future *f, struct mr_reply **reply)
{
    const struct rows_context *context = f->context;
    struct mrc_rows rows;
    const struct mr_tensor *values = mrc_part_rows(f, 0, 0, context->dtype, 2, &rows);
    if (values == NULL)
        return mrc_part_garbled(f, 0);
    if (reply == NULL)
        return MR_OK;
    uint32_t count = mrc_row_count(values), dim = mrc_row_dim(values);
    float *out = mrc_rows_allocate(count, dim);

    if (out == NULL)
        return MR_NO_MEMORY;
    const struct mrc_rows whole = mrc_rows_f32(out);

    mrc_rows_move(&whole, 0, &rows, 0, count, dim);
    return mrc_rows_give(out, values, reply);
}

/* Finds each owner's rows. Returns their length, which is the same for all; 0 if an answer is malformed. */
static uint32_t take_rows(const struct mr_future *f)
{
    const struct rows_context *context = f->context;
    uint32_t dim = 0;
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_share *share = &context->shard.shares[f->parts[i].owner];
        uint32_t wanted = context->has_bags ? share->bag_count : share->key_count;
        const struct mr_tensor *t = mrc_part_rows(f, i, 0, context->dtype, 2, &share->rows);
        if (t == NULL || t->dims[0] != wanted || t->dims[1] == 0 || (i > 0 && t->dims[1] != dim))
            return 0;
        dim = t->dims[1];
    }
    return dim;
}

static void add_bags(const struct mr_future *f, uint32_t dim, float *scratch, float *out)
{
    const struct rows_context *context = f->context;
    memset(out, 0, (size_t)context->bag_count * dim * sizeof(*out));
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_shard_add_bag_rows(&context->shard, f->parts[i].owner, dim, scratch, out);
}

static enum mr_status finish_split(struct mr_future *f, struct mr_reply **reply)
{
    struct rows_context *context = f->context;
    uint32_t dim = take_rows(f), count = context->has_bags ? context->bag_count : context->shard.key_count;
    if (dim == 0)
        return mrc_part_garbled(f, 0);
    if (reply == NULL)
        return MR_OK;
    /* One additional row is scratch. */
    float *out = mrc_rows_allocate((uint64_t)count + 1, dim);

    if (out == NULL)
        return MR_NO_MEMORY;
    if (context->has_bags)
        add_bags(f, dim, out + (size_t)count * dim, out);
    else
        mrc_shard_join_rows(&context->shard, dim, out);
    const struct mr_tensor shape = mr_tensor_2d(MR_F32, count, dim, NULL);

    return mrc_rows_give(out, &shape, reply);
}

/* ---- requests ---- */

static enum mr_status new_future(struct rows_call *c, uint32_t part_count, struct mr_future **out)
{
    struct mr_future *f;
    enum mr_status status =
        mrc_future_new(c->retry.client, c->retry.options, c->retry.op, c->of.table, part_count,
                       MRC_REQUEST_TENSORS_MAX, sizeof(struct rows_context), &f);
    if (status != MR_OK)
        return status;
    struct rows_context *context = f->context;
    uint32_t flags = mrc_request_flags(&c->of);

    mrc_retry_future(&c->retry, f);
    context->dtype = c->of.dtype;
    context->bag_count = c->of.bag_count;
    context->has_bags = c->of.offsets != NULL;
    if (is_push(c)) {
        context->head = mrc_push_head(c->of.table, c->retry.options);
        context->head.flags |= flags | c->set_flags;
    } else {
        flags |= c->lookup_flags;
        flags |= c->retry.options != NULL && c->retry.options->read_only ? MR_FEED_READ_ONLY : 0;
        f->options.flags = (uint16_t)(flags | mrc_reply_dtype_flags(c->of.dtype));
    }
    *out = f;
    return MR_OK;
}

/* The head of a push; NULL: a lookup has none. */
static const struct mr_push_head *head_of(const struct rows_call *c, const struct mr_future *f)
{
    return is_push(c) ? &((const struct rows_context *)f->context)->head : NULL;
}

/* Runs a call whose keys all have one owner: bags are whole, and the owner divides them by itself. */
static enum mr_status run_whole(struct rows_call *c, uint32_t owner, struct mr_reply **reply)
{
    struct mr_future *f;
    c->of.averages = c->of.divisors != NULL;
    enum mr_status status = new_future(c, 1, &f);

    if (status != MR_OK)
        return status;
    f->parts[0].owner = (uint16_t)owner;
    mrc_request_add(&c->of, f, 0, head_of(c, f), NULL);
    if (!is_push(c) && c->of.dtype != MR_F32)
        f->finish = finish_whole;
    if (!is_push(c) || c->of.dtype == MR_F32)
        return mrc_future_run(f, c->retry.options, reply);
    status = mrc_future_begin(f);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    const struct mrc_rows from = mrc_rows_f32(c->of.gradients);
    struct mrc_share to = {0};

    mrc_request_find(&c->of, f->parts[0].tensors, true, &to);
    mrc_rows_move(&to.rows, 0, &from, 0, mrc_request_rows(&c->of), c->of.dim);
    return mrc_future_run(f, c->retry.options, reply);
}

static enum mr_status run_split(struct rows_call *c, const struct mrc_shard *shard, uint32_t part_count,
                                struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status = new_future(c, part_count, &f);
    if (status != MR_OK) {
        free(shard->memory);
        return status;
    }
    struct rows_context *context = f->context;

    context->shard = *shard;
    f->memory = shard->memory;
    if (c->of.offsets != NULL)
        mrc_shard_bags(&context->shard, c->of.offsets, c->of.bag_count);
    if (!is_push(c))
        f->finish = finish_split;
    for (uint32_t owner = 0, i = 0; owner < shard->owner_count; owner++) {
        const struct mrc_share *share = &shard->shares[owner];
        if (share->key_count == 0)
            continue;
        f->parts[i].owner = (uint16_t)owner;
        mrc_request_add(&c->of, f, i++, head_of(c, f), share);
    }
    status = mrc_future_begin(f);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_request_find(&c->of, f->parts[i].tensors, is_push(c), &context->shard.shares[f->parts[i].owner]);
    mrc_request_fill(&c->of, &context->shard);
    return mrc_future_run(f, c->retry.options, reply);
}

/* Runs a call when there are several owners. */
static enum mr_status run_among(struct rows_call *c, const struct mrc_owners *owners, struct mr_reply **reply)
{
    struct mr_feature table;
    struct mrc_shard shard;
    uint32_t owner = 0;
    enum mr_status status =
        mrc_find_feature(c->retry.client, c->retry.options, c->retry.op, c->of.table, MR_TABLE, &table);
    if (status != MR_OK)
        return status;
    if (!mrc_shard_keys(&shard, owners->of_partition, owners->count, table.seed, c->of.keys, c->of.key_count,
                        c->of.offsets != NULL))
        return mrc_error(MR_NO_MEMORY, "%s: no memory to split %u keys", mr_op_name(c->retry.op),
                         c->of.key_count);

    uint32_t part_count = mrc_shard_owners(&shard, &owner);

    if (part_count <= 1) {
        free(shard.memory);
        return run_whole(c, owner, reply);
    }
    c->of.pooling = table.pooling;
    c->of.averages = c->of.offsets != NULL && mr_pooling_averages(table.pooling);
    return run_split(c, &shard, part_count, reply);
}

static enum mr_status rows_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct rows_call *c = MR_CONTAINER(r, struct rows_call, retry);
    struct mrc_owners *owners = mrc_retry_hold_map(r);
    enum mr_status status =
        owners == NULL || owners->count == 1 ? run_whole(c, 0, reply) : run_among(c, owners, reply);
    mrc_owners_release(owners);
    return status;
}

/* Of a lookup. */
static struct mrc_retry *rows_copy(const struct mrc_retry *r)
{
    const struct rows_call *c = MR_CONTAINER(r, const struct rows_call, retry);
    struct rows_call *copy = malloc(sizeof(*copy) + mrc_request_copy_bytes(&c->of));
    if (copy == NULL)
        return NULL;
    *copy = *c;
    mrc_request_copy(&copy->of, copy + 1);
    return &copy->retry;
}

static struct mrc_retry rows_retry(struct mr_client *client, const struct mr_options *options, enum mr_op op)
{
    return (struct mrc_retry){.client = client,
                              .options = options,
                              .op = op,
                              .make = rows_make,
                              .is_due = mrc_retry_by_map,
                              .copy = op == MR_OP_LOOKUP ? rows_copy : NULL};
}

/* ---- calls that are larger than a message ---- */

static enum mr_status run_part(const struct mrc_large_call *large, const struct mr_options *options,
                               const struct mrc_rows_request *requests, uint32_t count)
{
    struct rows_call part = *(const struct rows_call *)large->context;
    (void)count; /* 1 */
    part.retry.options = options;
    part.of = requests[0];
    return mrc_retry_run(&part.retry, NULL);
}

/* Runs a call that may be larger than a message. */
__attribute__((noinline)) static enum mr_status run_large(struct rows_call *c, struct mr_reply **reply)
{
    bool is_large;
    struct mrc_large_call large = {.client = c->retry.client,
                                   .options = c->retry.options,
                                   .op = c->retry.op,
                                   .requests = &c->of,
                                   .request_count = 1,
                                   .is_stored = (c->lookup_flags & MR_LOOKUP_STORED) != 0,
                                   .has_reply = !is_push(c),
                                   .make = run_part,
                                   .context = c};
    enum mr_status status = mrc_large_check(&large, &is_large);
    if (status != MR_OK)
        return status;
    return is_large ? mrc_large_run(&large, reply) : mrc_retry_run(&c->retry, reply);
}

static enum mr_status run_rows(struct rows_call *c, struct mr_reply **reply)
{
    enum mr_status status = mrc_wire_dtype(mr_op_name(c->retry.op), c->retry.options, &c->of.dtype);
    if (status != MR_OK)
        return status;
    if (mrc_large_may_be(c->retry.client, mrc_large_bytes_at_most(&c->of)))
        return run_large(c, reply);
    return mrc_retry_run(&c->retry, reply);
}

/* ---- the public functions ---- */

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
    struct rows_call c = {.retry = rows_retry(client, options, MR_OP_LOOKUP),
                          .of.table = table,
                          .of.keys = keys,
                          .of.key_count = offsets[bag_count],
                          .of.offsets = offsets,
                          .of.bag_count = bag_count,
                          .of.weights = weights};

    return run_rows(&c, reply);
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
    struct rows_call c = {.retry = rows_retry(client, options, MR_OP_PUSH_GRAD),
                          .of.table = table,
                          .of.keys = keys,
                          .of.key_count = offsets[bag_count],
                          .of.offsets = offsets,
                          .of.bag_count = bag_count,
                          .of.weights = weights,
                          .of.dim = dim,
                          .of.gradients = gradients};

    return run_rows(&c, NULL);
}

enum mr_status mr_lookup(struct mr_client *client, const struct mr_options *options, uint32_t table,
                         const uint64_t *keys, uint32_t key_count, struct mr_reply **reply)
{
    enum mr_status status = check_keys("mr_lookup", client, keys, key_count);
    struct rows_call c = {.retry = rows_retry(client, options, MR_OP_LOOKUP),
                          .of.table = table,
                          .of.keys = keys,
                          .of.key_count = key_count};
    return status != MR_OK ? status : run_rows(&c, reply);
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

    struct rows_call c = {.retry = rows_retry(client, options, MR_OP_PUSH_GRAD),
                          .of.table = table,
                          .of.keys = keys,
                          .of.key_count = key_count,
                          .of.dim = dim,
                          .of.gradients = gradients};

    return status != MR_OK ? status : run_rows(&c, NULL);
}

/* Rows as they are stored are f32, and an optimizer makes no step. */
static enum mr_status check_plain(const char *call, const struct mr_options *options)
{
    if (options == NULL)
        return MR_OK;
    if (options->wire_dtype != MR_DTYPE_NONE && options->wire_dtype != MR_F32)
        return mrc_bad_argument(call, "wire_dtype is set; these rows are always f32");
    if (options->has_learning_rate || options->learning_rate != 0)
        return mrc_bad_argument(call, "learning_rate is set; rows that are set have none");
    return MR_OK;
}

enum mr_status mr_set_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                           const uint64_t *keys, uint32_t key_count, uint32_t row_floats, bool has_state,
                           const float *rows)
{
    const char *call = "mr_set_rows";
    enum mr_status status = check_keys(call, client, keys, key_count);
    if (status == MR_OK)
        status = check_plain(call, options);
    if (status == MR_OK && rows == NULL)
        status = mrc_bad_argument(call, "rows is NULL");
    if (status == MR_OK && (row_floats == 0 || row_floats > MR_STORED_ROW_FLOATS_MAX))
        status = mrc_error(MR_INVALID_ARGUMENT, "%s: row_floats is %u; it goes from 1 to %u", call,
                           row_floats, MR_STORED_ROW_FLOATS_MAX);
    if (status == MR_OK)
        status = mrc_nodes_check(client, call, MR_CAN(SET_ROWS));
    if (status != MR_OK)
        return status;
    struct rows_call c = {.retry = rows_retry(client, options, MR_OP_PUSH_GRAD),
                          .of.table = table,
                          .of.keys = keys,
                          .of.key_count = key_count,
                          .of.dim = row_floats,
                          .of.gradients = rows,
                          .set_flags = MR_PUSH_SET | (has_state ? MR_PUSH_STATE : 0)};

    return run_rows(&c, NULL);
}

enum mr_status mr_get_rows(struct mr_client *client, const struct mr_options *options, uint32_t table,
                           const uint64_t *keys, uint32_t key_count, bool with_state, struct mr_reply **reply)
{
    const char *call = "mr_get_rows";
    enum mr_status status = check_keys(call, client, keys, key_count);
    if (status == MR_OK)
        status = check_plain(call, options);
    if (status == MR_OK)
        status = mrc_nodes_check(client, call, MR_CAN(SET_ROWS));
    if (status != MR_OK)
        return status;
    struct rows_call c = {.retry = rows_retry(client, options, MR_OP_LOOKUP),
                          .of.table = table,
                          .of.keys = keys,
                          .of.key_count = key_count,
                          .lookup_flags =
                              MR_FEED_READ_ONLY | MR_LOOKUP_STORED | (with_state ? MR_LOOKUP_STATE : 0)};

    return run_rows(&c, reply);
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
