/* Rows by key: lookups and gradient pushes, of single keys and of bags. Gradients and rows travel in the
 * options' wire_dtype; callers see f32.
 *
 * With one owner (owners.h) a request is what the caller gave and the reply is a view, unless rows travel in
 * another type. With several, each one that owns one of the keys gets its share, and the waiting thread joins
 * the answers. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/rows_answer.h"
#include "trainer_client/api/shard.h"
#include "dataplane/wire/base/clock.h"

#define PART_TENSORS_MAX 7u /* head, keys, offsets, gradients, scales, weights, divisors */

/* A call that is being made. */
struct rows_call {
    struct mr_client *client;
    const struct mr_options *options;
    enum mr_op op;
    uint32_t table;
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* NULL: no bags */
    uint32_t bag_count;
    const float *weights;   /* of keys in bags; NULL: none */
    uint32_t dim;           /* pushes */
    const float *gradients; /* pushes; NULL: lookup */
    /* set by run_rows(); zero to begin with */
    enum mr_dtype dtype; /* of rows in messages */
    bool averages;       /* several owners, and bags are divided by something */
    uint32_t pooling;    /* enum mr_pooling; several owners */
    struct mrc_attempt attempt;
};

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
    const struct mr_tensor *values = mrc_part_rows(f, 0, context->dtype, 2, &rows);
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
        const struct mr_tensor *t = mrc_part_rows(f, i, context->dtype, 2, &share->rows);
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

/* Sets where a part's tensors are, after its request was begun. */
static void find_places(const struct rows_call *c, const struct mrc_part *part, struct mrc_share *share)
{
    struct mr_tensor *t = part->tensors;
    if (c->gradients != NULL)
        t++; /* the head */
    share->keys = (t++)->data;
    if (c->offsets != NULL || c->gradients != NULL)
        share->offsets = (t++)->data;
    if (c->gradients != NULL) {
        share->rows = mrc_rows_of(t);
        t += c->dtype == MR_I8 ? 2 : 1;
    }
    if (c->weights != NULL)
        share->weights = (t++)->data;
    if (c->averages)
        share->divisors = t->data;
}

/* Describes part i with this many keys and bags; `whole`: with the caller's own, otherwise with room for
 * them. */
static void describe_part(const struct rows_call *c, struct mr_future *f, uint32_t i, uint32_t key_count,
                          uint32_t bag_count, bool whole)
{
    struct rows_context *context = f->context;
    struct mr_tensor rows[MR_ROWS_TENSORS_MAX],
        shape = mr_tensor_2d(MR_F32, c->offsets == NULL ? key_count : bag_count, c->dim, NULL);
    if (c->gradients != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    mrc_part_add(f, i, mr_tensor_1d(MR_U64, key_count, whole ? c->keys : NULL));
    if (c->offsets != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, bag_count + 1, whole ? c->offsets : NULL));
    else if (c->gradients != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, 0, NULL));
    if (c->gradients != NULL) {
        uint32_t count = mr_rows_tensors(shape, c->dtype, rows);
        if (whole && c->dtype == MR_F32)
            rows[0].data = (void *)(uintptr_t)c->gradients;
        for (uint32_t r = 0; r < count; r++)
            mrc_part_add(f, i, rows[r]);
    }
    if (c->weights != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_F32, key_count, whole ? c->weights : NULL));
    if (c->averages)
        mrc_part_add(f, i, mr_tensor_1d(MR_F32, bag_count, NULL));
}

static enum mr_status new_future(const struct rows_call *c, uint32_t part_count, struct mr_future **out)
{
    struct mr_future *f;
    enum mr_status status = mrc_future_new(c->client, c->options, c->op, c->table, part_count,
                                           PART_TENSORS_MAX, sizeof(struct rows_context), &f);
    if (status != MR_OK)
        return status;
    struct rows_context *context = f->context;
    uint32_t flags = (c->weights != NULL ? MR_BAG_WEIGHTS : 0) | (c->averages ? MR_BAG_DIVISORS : 0);

    f->map_changes = c->attempt.map_changes;
    f->options.deadline_us = c->attempt.deadline_us;
    context->dtype = c->dtype;
    context->bag_count = c->bag_count;
    context->has_bags = c->offsets != NULL;
    if (c->gradients != NULL) {
        context->head = mrc_push_head(c->table, c->options);
        context->head.flags |= flags;
    } else {
        flags |= c->options != NULL && c->options->read_only ? MR_FEED_READ_ONLY : 0;
        f->options.flags = (uint16_t)(flags | mrc_reply_dtype_flags(c->dtype));
    }
    *out = f;
    return MR_OK;
}

/* Runs a call whose keys all have one owner: bags are whole, and the owner divides them by itself. */
static enum mr_status run_whole(struct rows_call *c, uint32_t owner, struct mr_reply **reply)
{
    struct mr_future *f;
    c->averages = false;
    enum mr_status status = new_future(c, 1, &f);

    if (status != MR_OK)
        return status;
    f->parts[0].owner = (uint16_t)owner;
    describe_part(c, f, 0, c->key_count, c->bag_count, true);
    if (c->gradients == NULL && c->dtype != MR_F32)
        f->finish = finish_whole;
    if (c->gradients == NULL || c->dtype == MR_F32)
        return mrc_future_run(f, c->options, reply);
    status = mrc_future_begin(f);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    const struct mrc_rows from = mrc_rows_f32(c->gradients);
    struct mrc_share to = {0};

    find_places(c, &f->parts[0], &to);
    mrc_rows_move(&to.rows, 0, &from, 0, c->offsets == NULL ? c->key_count : c->bag_count, c->dim);
    return mrc_future_run(f, c->options, reply);
}

static void fill_bags(const struct rows_call *c, struct mr_future *f)
{
    struct rows_context *context = f->context;
    const struct mrc_rows gradients = mrc_rows_f32(c->gradients);
    for (uint32_t i = 0; i < f->part_count; i++) {
        const uint32_t owner = f->parts[i].owner;
        if (c->gradients != NULL)
            mrc_shard_split_bag_rows(&context->shard, owner, &gradients, c->dim);
        if (c->averages)
            mrc_shard_divisors(&context->shard, owner, c->pooling, c->weights, c->offsets,
                               context->shard.shares[owner].divisors);
    }
}

static void fill_parts(const struct rows_call *c, struct mr_future *f)
{
    struct mrc_shard *shard = &((struct rows_context *)f->context)->shard;
    const struct mrc_rows gradients = mrc_rows_f32(c->gradients);
    for (uint32_t i = 0; i < f->part_count; i++)
        find_places(c, &f->parts[i], &shard->shares[f->parts[i].owner]);
    if (c->weights != NULL)
        mrc_shard_split_weights(shard, c->weights);
    if (c->offsets != NULL) {
        mrc_shard_split_bags(shard, c->keys, c->offsets, c->bag_count);
        fill_bags(c, f);
        return;
    }
    mrc_shard_split_keys(shard, c->keys);
    if (c->gradients != NULL)
        mrc_shard_split_rows(shard, &gradients, c->dim);
}

static enum mr_status run_split(const struct rows_call *c, const struct mrc_shard *shard, uint32_t part_count,
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
    if (c->offsets != NULL)
        mrc_shard_bags(&context->shard, c->offsets, c->bag_count);
    if (c->gradients == NULL)
        f->finish = finish_split;
    for (uint32_t owner = 0, i = 0; owner < shard->owner_count; owner++) {
        const struct mrc_share *share = &shard->shares[owner];
        if (share->key_count == 0)
            continue;
        f->parts[i].owner = (uint16_t)owner;
        describe_part(c, f, i++, share->key_count, share->bag_count, false);
    }
    status = mrc_future_begin(f);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    fill_parts(c, f);
    return mrc_future_run(f, c->options, reply);
}

/* Runs a call when there are several owners. */
static enum mr_status run_among(struct rows_call *c, const struct mrc_owners *owners, struct mr_reply **reply)
{
    struct mr_feature table;
    struct mrc_shard shard;
    uint32_t owner = 0;
    enum mr_status status = mrc_find_feature(c->client, c->options, c->op, c->table, MR_TABLE, &table);
    if (status != MR_OK)
        return status;
    if (!mrc_shard_keys(&shard, owners->of_partition, owners->count, table.seed, c->keys, c->key_count,
                        c->offsets != NULL))
        return mrc_error(MR_NO_MEMORY, "%s: no memory to split %u keys", mr_op_name(c->op), c->key_count);

    uint32_t part_count = mrc_shard_owners(&shard, &owner);

    if (part_count <= 1) {
        free(shard.memory);
        return run_whole(c, owner, reply);
    }
    c->pooling = table.pooling;
    c->averages = c->offsets != NULL && mr_pooling_averages(table.pooling);
    return run_split(c, &shard, part_count, reply);
}

static enum mr_status run_once(struct rows_call *c, struct mr_reply **reply)
{
    struct mrc_owners *owners = mrc_owners_hold(c->client);
    c->attempt.map_changes = owners == NULL ? 0 : owners->changes;
    enum mr_status status =
        owners == NULL || owners->count == 1 ? run_whole(c, 0, reply) : run_among(c, owners, reply);
    mrc_owners_release(owners);
    return status;
}

/* ---- lookups that are made again ---- */

/* A lookup with a future is made again when the node's cores change during the call (mrc_future.again): a
 * copy of the caller's arguments is kept until the future is freed, because the caller may reuse its memory
 * at once. */
struct kept {
    struct mrc_again again;
    struct rows_call call;
    uint64_t data[]; /* keys, then weights, then offsets */
};

static enum mr_status run_rows(struct rows_call *c, struct mr_reply **reply);

static enum mr_status make(const struct mrc_again *again, const struct mr_options *options)
{
    struct rows_call call = MR_CONTAINER(again, const struct kept, again)->call;
    call.options = options;
    return run_rows(&call, NULL);
}

/* Keeps the arguments of a call that was sent with this future. Without memory it will not be made again. */
static void keep_for_again(const struct rows_call *c)
{
    size_t keys_bytes = c->key_count * sizeof(*c->keys);
    size_t weights_bytes = c->weights == NULL ? 0 : c->key_count * sizeof(*c->weights);
    size_t offsets_bytes = c->offsets == NULL ? 0 : ((size_t)c->bag_count + 1) * sizeof(*c->offsets);
    struct kept *kept = malloc(sizeof(*kept) + keys_bytes + weights_bytes + offsets_bytes);
    if (kept == NULL)
        return;
    uint8_t *weights = (uint8_t *)kept->data + keys_bytes, *offsets = weights + weights_bytes;

    kept->again.make = make;
    kept->call = (struct rows_call){.client = c->client,
                                    .op = c->op,
                                    .table = c->table,
                                    .keys = kept->data,
                                    .key_count = c->key_count,
                                    .bag_count = c->bag_count};
    if (keys_bytes > 0)
        memcpy(kept->data, c->keys, keys_bytes);
    if (c->weights != NULL) {
        memcpy(weights, c->weights, weights_bytes);
        kept->call.weights = (const float *)(const void *)weights;
    }
    if (c->offsets != NULL) {
        memcpy(offsets, c->offsets, offsets_bytes);
        kept->call.offsets = (const uint32_t *)(const void *)offsets;
    }
    mrc_again_keep(&kept->again, c->options);
}

static enum mr_status run_rows(struct rows_call *c, struct mr_reply **reply)
{
    enum mr_status status = mrc_wire_dtype(mr_op_name(c->op), c->options, &c->dtype);
    if (status != MR_OK)
        return status;
    c->attempt.deadline_us = mrc_deadline_us(c->client, c->options, mr_clock_us());
    do {
        status = run_once(c, reply);
    } while (mrc_is_overtaken(c->client, c->op, &c->attempt, status));
    if (status == MR_OK && c->options != NULL && c->options->future != NULL && mr_op_repeatable(c->op))
        keep_for_again(c);
    return status;
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
    struct rows_call c = {.client = client,
                          .options = options,
                          .op = MR_OP_LOOKUP,
                          .table = table,
                          .keys = keys,
                          .key_count = offsets[bag_count],
                          .offsets = offsets,
                          .bag_count = bag_count,
                          .weights = weights};

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
    struct rows_call c = {.client = client,
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

    return run_rows(&c, NULL);
}

enum mr_status mr_lookup(struct mr_client *client, const struct mr_options *options, uint32_t table,
                         const uint64_t *keys, uint32_t key_count, struct mr_reply **reply)
{
    enum mr_status status = check_keys("mr_lookup", client, keys, key_count);
    struct rows_call c = {.client = client,
                          .options = options,
                          .op = MR_OP_LOOKUP,
                          .table = table,
                          .keys = keys,
                          .key_count = key_count};
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

    struct rows_call c = {.client = client,
                          .options = options,
                          .op = MR_OP_PUSH_GRAD,
                          .table = table,
                          .keys = keys,
                          .key_count = key_count,
                          .dim = dim,
                          .gradients = gradients};

    return status != MR_OK ? status : run_rows(&c, NULL);
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
