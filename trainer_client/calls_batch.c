/* Batches: feed, lookup and gradients by batch id, and what the node has learnt. */
#include <stdlib.h>
#include <string.h>
#include "trainer_client/calls.h"
#include "trainer_client/shard.h"

#define FEED_TENSORS_PER_TABLE 3u /* head, keys, offsets */
#define BATCH_TABLES_MAX       ((MR_TENSORS_MAX - 1) / FEED_TENSORS_PER_TABLE)
#define BATCH_GRADIENTS_MAX    ((MR_TENSORS_MAX - 1) / 2)

/* ---- feed ---- */

struct feed_context {
    uint64_t batch_id;
    uint32_t heads[BATCH_TABLES_MAX][4]; /* {table, samples, slots, flags} */
};

static enum mr_status check_feed(const struct mr_client *client, const struct mr_batch_keys *tables,
                                 uint32_t table_count)
{
    if (client == NULL || tables == NULL)
        return mrc_bad_argument("mr_feed_sample", client == NULL ? "client is NULL" : "tables is NULL");
    if (table_count == 0 || table_count > BATCH_TABLES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_feed_sample: table_count is %u; it goes from 1 to %u",
                         table_count, BATCH_TABLES_MAX);
    for (uint32_t t = 0; t < table_count; t++) {
        uint64_t bags = (uint64_t)tables[t].samples * tables[t].slots;

        if (bags == 0 || bags > UINT32_MAX - 1)
            return mrc_error(MR_INVALID_ARGUMENT, "mr_feed_sample: tables[%u] has %u samples of %u slots", t,
                             tables[t].samples, tables[t].slots);
        enum mr_status status = mrc_check_offsets("mr_feed_sample", tables[t].offsets, bags);

        if (status != MR_OK)
            return status;
        if (tables[t].keys == NULL && tables[t].offsets[bags] > 0)
            return mrc_error(MR_INVALID_ARGUMENT, "mr_feed_sample: tables[%u].keys is NULL", t);
    }
    return MR_OK;
}

static void fill_feed(struct mr_future *f, uint32_t t, const struct mr_batch_keys *table,
                      const struct mrc_shard *shard)
{
    uint64_t *keys[MR_CORE_MAX] = {NULL};
    uint32_t *offsets[MR_CORE_MAX] = {NULL};

    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mr_tensor *tensors = &f->parts[i].tensors[1 + FEED_TENSORS_PER_TABLE * t];

        keys[i] = tensors[1].data;
        offsets[i] = tensors[2].data;
    }
    mrc_shard_split_csr(shard, table->keys, table->offsets, table->samples * table->slots, keys, offsets,
                        f->part_count);
}

static void describe_feed(struct mr_future *f, const struct mr_batch_keys *tables, uint32_t table_count,
                          const struct mrc_shard *shards)
{
    struct feed_context *context = f->context;

    for (uint32_t i = 0; i < f->part_count; i++) {
        mrc_part_add(f, i, mr_tensor_1d(MR_U64, 1, &context->batch_id));
        for (uint32_t t = 0; t < table_count; t++) {
            uint32_t bags = tables[t].samples * tables[t].slots;
            bool whole = shards == NULL;

            mrc_part_add(f, i, mr_tensor_1d(MR_U32, 4, context->heads[t]));
            mrc_part_add(f, i,
                         mr_tensor_1d(MR_U64, whole ? tables[t].offsets[bags] : shards[t].keys[i],
                                      whole ? tables[t].keys : NULL));
            mrc_part_add(f, i, mr_tensor_1d(MR_U32, bags + 1, whole ? tables[t].offsets : NULL));
        }
    }
}

static enum mr_status split_tables(struct mr_client *client, const struct mr_options *options,
                                   const struct mr_batch_keys *tables, uint32_t table_count,
                                   const uint8_t *partition_core, struct mrc_shard *shards)
{
    for (uint32_t t = 0; t < table_count; t++) {
        struct mr_feature table;
        uint32_t key_count = tables[t].offsets[tables[t].samples * tables[t].slots];
        enum mr_status status =
            mrc_find_feature(client, options, MR_OP_FEED_SAMPLE, tables[t].table, MR_TABLE, &table);

        if (status != MR_OK)
            return status;
        if (table.pooling != MR_POOL_SUM)
            return mrc_error(MR_UNSUPPORTED,
                             "%s: feed_sample: \"%s\" does not pool by sum, and the batch is spread over "
                             "several cores, whose shares can "
                             "only be added up",
                             client->server, table.name);
        if (!mrc_shard_keys(&shards[t], partition_core, table.seed, tables[t].keys, key_count, false))
            return mrc_error(MR_NO_MEMORY, "mr_feed_sample: no memory to split %u keys", key_count);
    }
    return MR_OK;
}

enum mr_status mr_feed_sample(struct mr_client *client, const struct mr_options *options, uint64_t batch_id,
                              const struct mr_batch_keys *tables, uint32_t table_count, bool read_only)
{
    uint8_t partition_core[MR_PARTITION_COUNT];
    struct mrc_shard shards[BATCH_TABLES_MAX];
    struct mr_future *f = NULL;
    enum mr_status status = check_feed(client, tables, table_count);

    if (status != MR_OK)
        return status;
    for (uint32_t t = 0; t < table_count; t++)
        shards[t].memory = NULL;

    uint32_t core_count = mrc_cores(client, partition_core);

    if (core_count > 1)
        status = split_tables(client, options, tables, table_count, partition_core, shards);
    if (status == MR_OK)
        status = mrc_future_new(client, options, MR_OP_FEED_SAMPLE, 0, core_count,
                                1 + FEED_TENSORS_PER_TABLE * table_count, sizeof(struct feed_context), &f);
    if (status == MR_OK) {
        struct feed_context *context = f->context;

        context->batch_id = batch_id;
        for (uint32_t t = 0; t < table_count; t++) {
            uint32_t head[4] = {tables[t].table, tables[t].samples, tables[t].slots,
                                read_only ? MR_FEED_READ_ONLY : 0};

            memcpy(context->heads[t], head, sizeof head);
        }
        describe_feed(f, tables, table_count, core_count > 1 ? shards : NULL);
        status = mrc_future_begin(f);
    }
    for (uint32_t t = 0; t < table_count; t++) {
        if (status == MR_OK && core_count > 1)
            fill_feed(f, t, &tables[t], &shards[t]);
        free(shards[t].memory);
    }
    if (status == MR_OK)
        return mrc_future_run(f, options, NULL);
    if (f != NULL)
        mrc_future_free(f);
    return status;
}

/* ---- lookup ---- */

/* Every core answers with its share of each bag's sum: they are added up in the first one's buffer. */
static enum mr_status finish_lookup_batch(struct mr_future *f, struct mr_reply **reply)
{
    const struct mr_tensor *sum = mrc_part_tensor(f, 0, 0, MR_F32, 3);

    if (sum == NULL)
        return mrc_part_garbled(f, 0);
    float *total = sum->data;

    for (uint32_t i = 1; i < f->part_count; i++) {
        const struct mr_tensor *share = mrc_part_tensor(f, i, 0, MR_F32, 3);

        if (share == NULL || share->bytes != sum->bytes)
            return mrc_part_garbled(f, i);
        const float *values = share->data;

        for (uint64_t n = 0; n < sum->bytes / sizeof *total; n++)
            total[n] += values[n];
    }
    return mrc_reply_give(f, reply);
}

/* A call with the same tensors to every core; the sources must stay valid until it is run. */
static enum mr_status new_for_all(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                  uint32_t feature, struct mr_tensor tensor, struct mr_future **out)
{
    uint32_t core_count = mrc_cores(client, NULL);
    enum mr_status status = mrc_future_new(client, options, op, feature, core_count, 1, 0, out);

    for (uint32_t i = 0; status == MR_OK && i < core_count; i++)
        mrc_part_add(*out, i, tensor);
    return status;
}

enum mr_status mr_lookup_batch(struct mr_client *client, const struct mr_options *options, uint64_t batch_id,
                               uint32_t table, struct mr_reply **reply)
{
    struct mr_future *f;

    if (client == NULL)
        return mrc_bad_argument("mr_lookup_batch", "client is NULL");
    enum mr_status status =
        new_for_all(client, options, MR_OP_LOOKUP_BATCH, table, mr_tensor_1d(MR_U64, 1, &batch_id), &f);

    if (status != MR_OK)
        return status;
    f->finish = finish_lookup_batch;
    return mrc_future_run(f, options, reply);
}

/* ---- gradients ---- */

struct push_context {
    uint64_t batch_id;
    bool *applied;
    struct mr_push_head heads[BATCH_GRADIENTS_MAX];
};

static enum mr_status finish_push(struct mr_future *f, struct mr_reply **reply)
{
    const struct push_context *context = f->context;
    bool applied = false;

    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mr_tensor *word = mrc_part_tensor(f, i, 0, MR_U32, 1);

        if (f->parts[i].status == MR_ALREADY_LEARNT)
            continue;
        if (word == NULL || word->dims[0] != 1)
            return mrc_part_garbled(f, i);
        applied |= *(const uint32_t *)word->data == 1;
    }
    enum mr_status status = mrc_reply_give(f, reply);

    if (status != MR_OK)
        return status;
    if (context->applied != NULL)
        *context->applied = applied;
    return MR_OK;
}

static enum mr_status check_push(const struct mr_client *client, const struct mr_batch_gradient *gradients,
                                 uint32_t count)
{
    const char *call = "mr_push_gradients_batch";

    if (client == NULL || gradients == NULL)
        return mrc_bad_argument(call, client == NULL ? "client is NULL" : "gradients is NULL");
    if (count == 0 || count > BATCH_GRADIENTS_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: count is %u; it goes from 1 to %u", call, count,
                         BATCH_GRADIENTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_tensor *g = &gradients[i].gradient;

        if (g->dtype != MR_F32)
            return mrc_error(MR_WRONG_DTYPE, "%s: gradients[%u] is %s; it must be f32", call, i,
                             mr_dtype_name(g->dtype));
        if (g->rank > MR_RANK_MAX || (g->data == NULL && g->bytes > 0))
            return mrc_error(MR_INVALID_ARGUMENT, "%s: gradients[%u] has %s", call, i,
                             g->rank > MR_RANK_MAX ? "a rank above 4" : "no data");
        uint64_t bytes = mr_dtype_bytes(MR_F32);

        for (uint32_t d = 0; d < g->rank; d++)
            bytes *= g->dims[d];
        if (bytes != g->bytes)
            return mrc_error(MR_WRONG_SHAPE, "%s: gradients[%u] has %llu bytes; its dims make %llu", call, i,
                             (unsigned long long)g->bytes, (unsigned long long)bytes);
    }
    return MR_OK;
}

/* Which core gets which gradient: a table's goes to all, a variable's to its owner. */
static enum mr_status describe_push(struct mr_future *f, const struct mr_options *options,
                                    const struct mr_batch_gradient *gradients, uint32_t count,
                                    const uint8_t *partition_core)
{
    struct push_context *context = f->context;
    uint16_t owner = 0;

    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_part_add(f, i, mr_tensor_1d(MR_U64, 1, &context->batch_id));
    for (uint32_t g = 0; g < count; g++) {
        bool everywhere = true;

        context->heads[g] = mrc_push_head(gradients[g].feature, options);
        if (f->part_count > 1) {
            struct mr_feature feature;
            enum mr_status status = mrc_find_any_feature(f->client, options, MR_OP_PUSH_GRAD_BATCH,
                                                         gradients[g].feature, &feature);

            if (status != MR_OK)
                return status;
            everywhere = feature.kind == MR_TABLE;
            owner = everywhere ? 0 : mrc_variable_core(&feature, partition_core);
        }
        for (uint32_t i = 0; i < f->part_count; i++) {
            if (!everywhere && i != owner)
                continue;
            mrc_part_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->heads[g]));
            mrc_part_add(f, i, gradients[g].gradient);
        }
    }
    return MR_OK;
}

enum mr_status mr_push_gradients_batch(struct mr_client *client, const struct mr_options *options,
                                       uint64_t batch_id, const struct mr_batch_gradient *gradients,
                                       uint32_t count, bool *applied)
{
    uint8_t partition_core[MR_PARTITION_COUNT];
    struct mr_future *f;
    enum mr_status status = check_push(client, gradients, count);

    if (status != MR_OK)
        return status;
    status = mrc_future_new(client, options, MR_OP_PUSH_GRAD_BATCH, 0, mrc_cores(client, partition_core),
                            1 + 2 * count, sizeof(struct push_context), &f);
    if (status != MR_OK)
        return status;
    struct push_context *context = f->context;

    context->batch_id = batch_id;
    context->applied = applied;
    f->finish = finish_push;
    status = describe_push(f, options, gradients, count, partition_core);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    return mrc_future_run(f, options, NULL);
}

enum mr_status mr_forget_batches(struct mr_client *client, const struct mr_options *options,
                                 const uint64_t *batch_ids, uint32_t count)
{
    struct mr_future *f;

    if (client == NULL)
        return mrc_bad_argument("mr_forget_batches", "client is NULL");
    if (batch_ids == NULL && count > 0)
        return mrc_bad_argument("mr_forget_batches", "batch_ids is NULL");
    enum mr_status status =
        new_for_all(client, options, MR_OP_FORGET_BATCH, 0, mr_tensor_1d(MR_U64, count, batch_ids), &f);

    return status != MR_OK ? status : mrc_future_run(f, options, NULL);
}
