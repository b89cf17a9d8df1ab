/* Rows by key: lookups and gradient pushes, of single keys and of bags.
 *
 * With one core a request is what the caller gave and the reply is a view. With several, each core that owns one of the
 * keys gets its share, and the answers are put together by the waiting thread. */
#include <stdlib.h>
#include <string.h>
#include "trainer_client/calls.h"
#include "trainer_client/clock.h"
#include "trainer_client/shard.h"

#define ROW_ALIGN 64u

/* Goes with the future: what the answers have to be put together by. */
struct rows_context {
    struct mrc_shard shard;
    uint32_t bag_count;
    struct mr_push_head head; /* of pushes */
};

/* What a call is about, while it is being made. */
struct rows_call {
    struct mr_client *client;
    const struct mr_options *options;
    enum mr_op op;
    uint32_t table;
    const uint64_t *keys;
    uint32_t key_count;
    const uint32_t *offsets; /* NULL: no bags */
    uint32_t bag_count;
    uint32_t pooling;       /* enum mr_pooling; several cores */
    uint32_t map_changes;   /* of the map that it is split by */
    uint64_t deadline_us;   /* the same however often it is made */
    uint32_t dim;           /* pushes */
    const float *gradients; /* pushes; NULL: lookup */
};

static uint32_t gradient_rows(const struct rows_call *c)
{
    return c->offsets == NULL ? c->key_count : c->bag_count;
}

/* ---- one core has it all: as it is ---- */

static enum mr_status run_whole(const struct rows_call *c, uint16_t core, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status =
        mrc_future_new(c->client, c->options, c->op, c->table, 1, 4, sizeof(struct rows_context), &f);

    if (status != MR_OK)
        return status;
    struct rows_context *context = f->context;

    f->map_changes = c->map_changes;
    f->options.deadline_us = c->deadline_us;
    f->parts[0].core = core;
    if (c->gradients != NULL) {
        context->head = mrc_push_head(c->table, c->options);
        mrc_part_add(f, 0, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    }
    mrc_part_add(f, 0, mr_tensor_1d(MR_U64, c->key_count, c->keys));
    if (c->offsets != NULL)
        mrc_part_add(f, 0, mr_tensor_1d(MR_U32, c->bag_count + 1, c->offsets));
    else if (c->gradients != NULL)
        mrc_part_add(f, 0, mr_tensor_1d(MR_U32, 0, NULL));
    if (c->gradients != NULL)
        mrc_part_add(f, 0, mr_tensor_2d(MR_F32, gradient_rows(c), c->dim, c->gradients));
    return mrc_future_run(f, c->options, reply);
}

/* ---- several cores: answers ---- */

/* The reply's row length, the same from every core; 0 when one of them answered with something else. */
static uint32_t reply_dim(const struct mr_future *f, const struct rows_context *context, bool bags)
{
    uint32_t dim = 0;

    for (uint32_t i = 0; i < f->part_count; i++) {
        uint32_t core = f->parts[i].core;
        const struct mr_tensor *rows = mrc_part_tensor(f, i, 0, MR_F32, 2);

        if (rows == NULL || rows->dims[0] != (bags ? context->shard.bags[core] : context->shard.keys[core]) ||
            rows->dims[1] == 0 || (i > 0 && rows->dims[1] != dim))
            return 0;
        dim = rows->dims[1];
    }
    return dim;
}

static float *allocate_rows(uint32_t rows, uint32_t dim)
{
    size_t bytes = (size_t)rows * dim * sizeof(float);
    float *out = aligned_alloc(ROW_ALIGN, (bytes + ROW_ALIGN) / ROW_ALIGN * ROW_ALIGN);

    if (out == NULL)
        mrc_error_line("no memory for a reply of %u rows", rows);
    return out;
}

static enum mr_status own_rows(float *rows, uint32_t row_count, uint32_t dim, struct mr_reply **reply)
{
    struct mr_reply *own = mrc_reply_own(mr_tensor_2d(MR_F32, row_count, dim, rows), rows);

    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

static enum mr_status finish_lookup(struct mr_future *f, struct mr_reply **reply)
{
    const struct rows_context *context = f->context;
    const float *in[MR_CORE_MAX] = {NULL};
    uint32_t dim = reply_dim(f, context, false);

    if (dim == 0)
        return mrc_part_garbled(f, 0);
    if (reply == NULL)
        return MR_OK;
    float *rows = allocate_rows(context->shard.key_count, dim);

    if (rows == NULL)
        return MR_NO_MEMORY;
    for (uint32_t i = 0; i < f->part_count; i++)
        in[f->parts[i].core] = f->parts[i].answers[0].data;
    mrc_shard_join_rows(&context->shard, in, dim, rows);
    return own_rows(rows, context->shard.key_count, dim, reply);
}

static enum mr_status finish_lookup_bags(struct mr_future *f, struct mr_reply **reply)
{
    const struct rows_context *context = f->context;
    uint32_t dim = reply_dim(f, context, true);

    if (dim == 0)
        return mrc_part_garbled(f, 0);
    if (reply == NULL)
        return MR_OK;
    float *rows = allocate_rows(context->bag_count, dim);

    if (rows == NULL)
        return MR_NO_MEMORY;
    memset(rows, 0, (size_t)context->bag_count * dim * sizeof *rows);
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_shard_add_bag_rows(&context->shard, f->parts[i].core, f->parts[i].answers[0].data, dim, rows);
    return own_rows(rows, context->bag_count, dim, reply);
}

/* ---- several cores: requests ---- */

/* Places of the tensors in a part's request; pushes have a head before them. */
enum { KEYS = 0, OFFSETS = 1, GRADIENTS = 2 };

static void describe_part(const struct rows_call *c, struct mr_future *f, uint32_t i)
{
    struct rows_context *context = f->context;
    uint32_t core = f->parts[i].core, key_count = context->shard.keys[core], bags = context->shard.bags[core];

    if (c->gradients != NULL) {
        context->head = mrc_push_head(c->table, c->options);
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    }
    mrc_part_add(f, i, mr_tensor_1d(MR_U64, key_count, NULL));
    if (c->offsets != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, bags + 1, NULL));
    else if (c->gradients != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, 0, NULL));
    if (c->gradients != NULL)
        mrc_part_add(f, i, mr_tensor_2d(MR_F32, c->offsets == NULL ? key_count : bags, c->dim, NULL));
}

static void fill_parts(const struct rows_call *c, struct mr_future *f)
{
    struct rows_context *context = f->context;
    uint32_t first = c->gradients == NULL ? 0 : 1;
    uint64_t *keys[MR_CORE_MAX] = {NULL};
    uint32_t *offsets[MR_CORE_MAX] = {NULL};
    float *gradients[MR_CORE_MAX] = {NULL};

    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mrc_part *part = &f->parts[i];

        keys[part->core] = part->tensors[first + KEYS].data;
        if (c->offsets != NULL)
            offsets[part->core] = part->tensors[first + OFFSETS].data;
        if (c->gradients != NULL)
            gradients[part->core] = part->tensors[first + GRADIENTS].data;
    }
    if (c->offsets == NULL) {
        mrc_shard_split_keys(&context->shard, c->keys, keys);
        if (c->gradients != NULL)
            mrc_shard_split_rows(&context->shard, c->gradients, c->dim, gradients);
        return;
    }
    mrc_shard_split_bags(&context->shard, c->pooling, c->keys, c->offsets, c->bag_count, keys, offsets);
    for (uint32_t i = 0; i < f->part_count && c->gradients != NULL; i++) {
        uint32_t core = f->parts[i].core;

        mrc_shard_split_bag_rows(&context->shard, core, c->gradients, c->dim, gradients[core]);
    }
}

static uint32_t owners(const struct mrc_shard *shard, uint16_t *last)
{
    uint32_t count = 0;

    for (uint16_t core = 0; core < MR_CORE_MAX; core++) {
        if (shard->keys[core] > 0) {
            *last = core;
            count++;
        }
    }
    return count;
}

static enum mr_status run_split(const struct rows_call *c, const struct mrc_shard *shard, uint32_t part_count,
                                struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status = mrc_future_new(c->client, c->options, c->op, c->table, part_count, 4,
                                           sizeof(struct rows_context), &f);

    if (status != MR_OK) {
        free(shard->memory);
        return status;
    }
    struct rows_context *context = f->context;

    f->map_changes = c->map_changes;
    f->options.deadline_us = c->deadline_us;
    context->shard = *shard;
    context->bag_count = c->bag_count;
    f->memory = shard->memory;
    if (c->offsets != NULL)
        mrc_shard_bags(&context->shard, c->offsets, c->bag_count);
    if (c->gradients == NULL)
        f->finish = c->offsets == NULL ? finish_lookup : finish_lookup_bags;
    for (uint32_t core = 0, i = 0; core < MR_CORE_MAX; core++) {
        if (shard->keys[core] == 0)
            continue;
        f->parts[i].core = (uint16_t)core;
        describe_part(c, f, i++);
    }
    status = mrc_future_begin(f);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    fill_parts(c, f);
    return mrc_future_run(f, c->options, reply);
}

static enum mr_status run_once(struct rows_call *c, struct mr_reply **reply)
{
    uint8_t partition_core[MR_PARTITION_COUNT];
    struct mr_feature table;
    struct mrc_shard shard;
    uint16_t core = 0;

    if (mrc_cores_of_map(c->client, partition_core, &c->map_changes) <= 1)
        return run_whole(c, 0, reply);

    enum mr_status status = mrc_find_feature(c->client, c->options, c->op, c->table, MR_TABLE, &table);

    if (status != MR_OK)
        return status;
    if (!mrc_shard_keys(&shard, partition_core, table.seed, c->keys, c->key_count, c->offsets != NULL))
        return mrc_error(MR_NO_MEMORY, "%s: no memory to split %u keys", mr_op_name(c->op), c->key_count);
    c->pooling = table.pooling;

    uint32_t part_count = owners(&shard, &core);

    if (part_count <= 1) {
        free(shard.memory);
        return run_whole(c, core, reply);
    }
    return run_split(c, &shard, part_count, reply);
}

/* The map has changed under the call, and it may be made again. */
static bool is_overtaken(const struct rows_call *c, enum mr_status status)
{
    uint32_t changes;

    if (status == MRC_STALE_MAP)
        return true;
    if (status == MR_OK || !mr_op_repeatable(c->op) || mrc_now_us() >= c->deadline_us)
        return false;
    (void)mrc_cores_of_map(c->client, NULL, &changes);
    return changes != c->map_changes;
}

static enum mr_status run(struct rows_call *c, struct mr_reply **reply)
{
    enum mr_status status;

    c->deadline_us = mrc_deadline_us(c->client, c->options, mrc_now_us());
    do {
        status = run_once(c, reply);
    } while (is_overtaken(c, status));
    return status;
}

/* ---- the calls ---- */

static enum mr_status check_keys(const char *call, const struct mr_client *client, const uint64_t *keys,
                                 uint32_t key_count)
{
    if (client == NULL)
        return mrc_bad_argument(call, "client is NULL");
    if (keys == NULL && key_count > 0)
        return mrc_bad_argument(call, "keys is NULL");
    return MR_OK;
}

static enum mr_status check_gradients(const char *call, uint32_t dim, const float *gradients)
{
    if (gradients == NULL)
        return mrc_bad_argument(call, "gradients is NULL");
    if (dim == 0 || dim > MR_DIM_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: dim is %u; it goes from 1 to %u", call, dim, MR_DIM_MAX);
    return MR_OK;
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

    return status != MR_OK ? status : run(&c, reply);
}

enum mr_status mr_lookup_bags(struct mr_client *client, const struct mr_options *options, uint32_t table,
                              const uint64_t *keys, const uint32_t *offsets, uint32_t bag_count,
                              struct mr_reply **reply)
{
    enum mr_status status = mrc_check_offsets("mr_lookup_bags", offsets, bag_count);

    if (status != MR_OK)
        return status;
    status = check_keys("mr_lookup_bags", client, keys, offsets[bag_count]);

    struct rows_call c = {.client = client,
                          .options = options,
                          .op = MR_OP_LOOKUP,
                          .table = table,
                          .keys = keys,
                          .key_count = offsets[bag_count],
                          .offsets = offsets,
                          .bag_count = bag_count};

    return status != MR_OK ? status : run(&c, reply);
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

    return status != MR_OK ? status : run(&c, NULL);
}

enum mr_status mr_push_gradients_bags(struct mr_client *client, const struct mr_options *options,
                                      uint32_t table, const uint64_t *keys, const uint32_t *offsets,
                                      uint32_t bag_count, uint32_t dim, const float *gradients)
{
    enum mr_status status = mrc_check_offsets("mr_push_gradients_bags", offsets, bag_count);

    if (status == MR_OK)
        status = check_keys("mr_push_gradients_bags", client, keys, offsets[bag_count]);
    if (status == MR_OK)
        status = check_gradients("mr_push_gradients_bags", dim, gradients);
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
                          .dim = dim,
                          .gradients = gradients};

    return run(&c, NULL);
}
