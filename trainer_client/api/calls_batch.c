/* Batches: feed, lookup and gradients by batch id, and what the node has applied. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/rows_message.h"

#define FEED_TENSORS_MAX    5u /* of a table: head, keys, offsets, weights, divisors */
#define BATCH_TABLES_MAX    ((MR_TENSORS_MAX - 1) / 3)
#define BATCH_GRADIENTS_MAX ((MR_TENSORS_MAX - 1) / 2)

/* ---- feed ---- */

/* A table of a feed. */
struct feed_table {
    uint32_t head[4]; /* {table, samples, slots, flags} */
    struct mrc_rows_request request;
    struct mrc_division division; /* several owners; its memory is NULL otherwise */
};

/* A feed that is being made. */
struct feed_call {
    struct mrc_retry retry;
    uint64_t batch_id[1 + MR_PLAN_WORDS]; /* and its stream's plan */
    struct feed_table *tables;            /* [table_count] */
    uint32_t table_count;
    bool read_only;
};

static enum mr_status feed_check(const struct mr_client *client, const struct mr_batch_keys *tables,
                                 uint32_t table_count)
{
    const char *call = "mr_feed_sample";
    if (client == NULL || tables == NULL)
        return mrc_bad_argument(call, client == NULL ? "client is NULL" : "tables is NULL");
    if (table_count == 0 || table_count > BATCH_TABLES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: table_count is %u; it goes from 1 to %u", call,
                         table_count, BATCH_TABLES_MAX);
    for (uint32_t t = 0; t < table_count; t++) {
        uint64_t bags = (uint64_t)tables[t].samples * tables[t].slots;
        if (bags == 0 || bags > UINT32_MAX - 1)
            return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u] has %u sample%s of %u slot%s", call, t,
                             tables[t].samples, mr_plural(tables[t].samples), tables[t].slots,
                             mr_plural(tables[t].slots));
        enum mr_status status = mrc_check_offsets(call, tables[t].offsets, bags);

        if (status == MR_OK)
            status = mrc_check_weights(call, tables[t].weights, tables[t].offsets[bags]);
        if (status != MR_OK)
            return status;
        if (tables[t].keys == NULL && tables[t].offsets[bags] > 0)
            return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].keys is NULL", call, t);
    }
    return MR_OK;
}

/* Divides each table's keys by owner; each owner gets all bags. */
static enum mr_status feed_divide(struct feed_call *c, const struct mrc_shard_map *map)
{
    for (uint32_t t = 0; t < c->table_count; t++) {
        struct mrc_rows_request *r = &c->tables[t].request;
        struct mr_feature table;
        const enum mr_status status =
            mrc_find_feature(c->retry.client, c->retry.options, c->retry.op, r->table, MR_TABLE, &table);
        if (status != MR_OK)
            return status;
        void *memory = malloc(mrc_division_bytes(r, map->count));
        if (memory == NULL)
            return mrc_error(MR_NO_MEMORY, "mr_feed_sample: no memory to split %u keys", r->key_count);
        r->pooling = table.pooling;
        r->averages = mr_pooling_averages(table.pooling);
        (void)mrc_divide_by_owner(&c->tables[t].division, r, map->of_partition, map->count, table.seed,
                                  memory);
    }
    return MR_OK;
}

/* Describes the requests, and fills in what is divided. */
static enum mr_status feed_describe(struct feed_call *c, struct mr_future *f, bool is_divided)
{
    const struct mr_tensor batch =
        mr_tensor_1d(MR_U64, mrc_add_plan(c->retry.options, c->batch_id), c->batch_id);
    for (uint32_t i = 0; i < f->request_count; i++) {
        mrc_request_add(f, i, batch);
        for (uint32_t t = 0; t < c->table_count; t++) {
            struct feed_table *table = &c->tables[t];
            table->head[3] = (c->read_only ? MR_FEED_READ_ONLY : 0) | mrc_rows_flags(&table->request);
            mrc_request_add(f, i, mr_tensor_1d(MR_U32, 4, table->head));
            mrc_rows_add(&table->request, f, i, NULL, is_divided ? &table->division.shares[i] : NULL);
        }
    }
    if (!is_divided)
        return MR_OK;
    const enum mr_status status = mrc_future_begin(f);
    if (status != MR_OK)
        return status;
    for (uint32_t t = 0, tensor = 1; t < c->table_count; t++) {
        struct feed_table *table = &c->tables[t];
        for (uint32_t i = 0; i < f->request_count; i++)
            mrc_rows_find(&table->request, &f->requests[i].tensors[tensor + 1], false,
                          &table->division.shares[i]);
        tensor += 1 + mrc_rows_tensors(&table->request, false);
        mrc_division_fill(&table->division);
    }
    return MR_OK;
}

/* `map` NULL: the call itself reports why. */
static enum mr_status feed_send(struct feed_call *c, const struct mrc_shard_map *map)
{
    struct mrc_retry *r = &c->retry;
    const uint32_t owner_count = map == NULL ? 1 : map->count;
    uint32_t tensors = 1;
    struct mr_future *f;
    enum mr_status status = owner_count > 1 ? feed_divide(c, map) : MR_OK;
    for (uint32_t t = 0; t < c->table_count; t++)
        tensors += 1 + mrc_rows_tensors(&c->tables[t].request, false);
    if (status == MR_OK && tensors > MR_TENSORS_MAX)
        status =
            mrc_error(MR_INVALID_ARGUMENT,
                      "mr_feed_sample: %u tables, weights and divisors make %u tensors; a call has up to %u",
                      c->table_count, tensors, MR_TENSORS_MAX);
    if (status == MR_OK)
        status = mrc_future_new(r->client, r->options, r->op, 0, owner_count,
                                1 + FEED_TENSORS_MAX * c->table_count, 0, &f);
    if (status != MR_OK)
        return status;
    mrc_retry_future(r, f);
    status = feed_describe(c, f, owner_count > 1);
    if (status == MR_OK)
        return mrc_future_run(f, r->options, NULL);
    mrc_future_free(f);
    return status;
}

static enum mr_status feed_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct feed_call *c = MR_CONTAINER(r, struct feed_call, retry);
    struct mrc_shard_map *map = mrc_retry_hold_map(r);
    const enum mr_status status = feed_send(c, map);
    mrc_shard_map_release(map);
    for (uint32_t t = 0; t < c->table_count; t++) {
        free(c->tables[t].division.memory);
        c->tables[t].division.memory = NULL;
        c->tables[t].request.averages = false;
    }
    return status;
}

enum mr_status mr_feed_sample(struct mr_client *client, const struct mr_options *options, uint64_t batch_id,
                              const struct mr_batch_keys *tables, uint32_t table_count, bool read_only)
{
    struct feed_table feeds[BATCH_TABLES_MAX];
    enum mr_status status = feed_check(client, tables, table_count);
    if (status != MR_OK)
        return status;
    for (uint32_t t = 0; t < table_count; t++) {
        const struct mr_batch_keys *k = &tables[t];
        const uint32_t bag_count = k->samples * k->slots;
        feeds[t] = (struct feed_table){.head = {k->table, k->samples, k->slots},
                                       .request = {.table = k->table,
                                                   .keys = k->keys,
                                                   .key_count = k->offsets[bag_count],
                                                   .offsets = k->offsets,
                                                   .bag_count = bag_count,
                                                   .weights = k->weights,
                                                   .keeps_bags = true}};
    }
    struct feed_call c = {.retry = {.client = client,
                                    .options = options,
                                    .op = MR_OP_FEED_SAMPLE,
                                    .make = feed_make,
                                    .is_due = mrc_retry_unexecuted},
                          .batch_id = {batch_id},
                          .tables = feeds,
                          .table_count = table_count,
                          .read_only = read_only};
    return mrc_retry_run(&c.retry, NULL);
}

/* ---- lookup ---- */

struct lookup_context {
    enum mr_dtype dtype;      /* of the rows that come */
    struct mrc_rows shares[]; /* of each request, once they are there */
};

static void add_up(float *total, const float *share, uint64_t floats)
{
    for (uint64_t n = 0; n < floats; n++)
        total[n] += share[n];
}

/* Every core answers with its share of each bag. Shares of f32 are added up in the first one's buffer, others
 * in memory of the reply's own. */
static enum mr_status lookup_batch_finish(struct mr_future *f, struct mr_reply **reply)
{
    struct lookup_context *context = f->context;
    struct mrc_rows *shares = context->shares;
    const struct mr_tensor *first = mrc_answer_rows(f, 0, 0, context->dtype, 3, &shares[0]);
    if (first == NULL)
        return mrc_answer_garbled(f, 0);
    for (uint32_t i = 1; i < f->request_count; i++) {
        const struct mr_tensor *share = mrc_answer_rows(f, i, 0, context->dtype, 3, &shares[i]);
        if (share == NULL || memcmp(share->dims, first->dims, sizeof(share->dims)) != 0)
            return mrc_answer_garbled(f, i);
    }
    if (reply == NULL)
        return MR_OK;
    if (context->dtype == MR_F32) {
        for (uint32_t i = 1; i < f->request_count; i++)
            add_up(first->data, shares[i].values, first->bytes / sizeof(float));
        return mrc_reply_give(f, reply);
    }
    const uint32_t rows = mrc_row_count(first), dim = mrc_row_dim(first);
    float *out = mrc_rows_allocate((uint64_t)rows + 1, dim); /* the additional row is scratch */
    if (out == NULL)
        return MR_NO_MEMORY;
    const struct mrc_rows whole = mrc_rows_f32(out);

    mrc_rows_move(&whole, 0, &shares[0], 0, rows, dim);
    for (uint32_t i = 1; i < f->request_count; i++) {
        for (uint32_t r = 0; r < rows; r++) {
            mrc_rows_move(&whole, rows, &shares[i], r, 1, dim);
            add_up(out + (size_t)r * dim, out + (size_t)rows * dim, dim);
        }
    }
    struct mr_tensor sum = *first;
    sum.dtype = MR_F32;
    sum.bytes = (uint64_t)rows * dim * sizeof(float);
    struct mr_reply *own = mrc_reply_own(sum, out);

    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

struct lookup_call {
    struct mrc_retry retry;
    uint64_t batch_id;
    uint32_t table;
    enum mr_dtype dtype; /* of rows in messages */
};

static enum mr_status lookup_batch_make(struct mrc_retry *r, struct mr_reply **reply)
{
    const struct lookup_call *c = MR_CONTAINER(r, struct lookup_call, retry);
    const struct mr_tensor batch = mr_tensor_1d(MR_U64, 1, &c->batch_id);
    struct mr_future *f;
    enum mr_status status =
        mrc_future_for_cores(r, c->table, &batch, sizeof(struct lookup_context), sizeof(struct mrc_rows), &f);
    if (status != MR_OK)
        return status;
    ((struct lookup_context *)f->context)->dtype = c->dtype;
    f->options.flags = (uint16_t)mrc_reply_dtype_flags(c->dtype);
    f->finish = lookup_batch_finish;
    return mrc_future_run(f, r->options, reply);
}

static struct mrc_retry *lookup_batch_copy(const struct mrc_retry *r)
{
    struct lookup_call *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return NULL;
    *copy = *MR_CONTAINER(r, const struct lookup_call, retry);
    return &copy->retry;
}

enum mr_status mr_lookup_batch(struct mr_client *client, const struct mr_options *options, uint64_t batch_id,
                               uint32_t table, struct mr_reply **reply)
{
    struct lookup_call c = {.retry = {.client = client,
                                      .options = options,
                                      .op = MR_OP_LOOKUP_BATCH,
                                      .make = lookup_batch_make,
                                      .is_due = mrc_retry_by_map,
                                      .copy = lookup_batch_copy},
                            .batch_id = batch_id,
                            .table = table};
    if (client == NULL)
        return mrc_bad_argument("mr_lookup_batch", "client is NULL");
    enum mr_status status = mrc_wire_dtype("mr_lookup_batch", options, &c.dtype);

    return status == MR_OK ? mrc_retry_run(&c.retry, reply) : status;
}

/* ---- gradients ---- */

struct push_context {
    uint64_t batch_id;
    bool *applied;
    struct mr_push_head heads[BATCH_GRADIENTS_MAX];
    enum mr_dtype dtype; /* of tables' gradients in messages */
};

struct push_call {
    struct mrc_retry retry;
    struct push_context push;
    const struct mr_batch_gradient *gradients; /* [count] */
    uint32_t count;
};

/* A gradient of a push that is being made. */
struct push_gradient {
    const struct mr_tensor *from;
    bool everywhere;          /* a table's: all owners get it */
    bool narrow;              /* a table's, converted to the type of the wire; a variable's is always f32 */
    struct mrc_pieces pieces; /* a variable's, several owners; its memory is to be freed */
};

static enum mr_status push_batch_finish(struct mr_future *f, struct mr_reply **reply)
{
    const struct push_context *context = f->context;
    bool applied = false;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mr_tensor *word = mrc_answer_tensor(f, i, 0, MR_U32, 1);
        if (f->requests[i].status == MR_ALREADY_LEARNT)
            continue;
        if (word == NULL || word->dims[0] != 1)
            return mrc_answer_garbled(f, i);
        applied |= *(const uint32_t *)word->data == 1;
    }
    enum mr_status status = mrc_reply_give(f, reply);

    if (status == MR_OK && context->applied != NULL)
        *context->applied = applied;
    return status;
}

static enum mr_status push_batch_check(const struct mr_client *client,
                                       const struct mr_batch_gradient *gradients, uint32_t count)
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

static bool gradient_is_divided(const struct push_gradient *g)
{
    return g->pieces.share_count > 1;
}

/* Returns what an owner gets of a variable; NULL: nothing. */
static struct mrc_piece_share *gradient_share(const struct push_gradient *g, uint32_t owner)
{
    for (uint32_t i = 0; i < g->pieces.share_count; i++)
        if (g->pieces.shares[i].owner == owner)
            return &g->pieces.shares[i];
    return NULL;
}

/* Finds out which owners get gradient `at`, and in which form. */
static enum mr_status gradient_divide(const struct push_call *c, const struct mrc_shard_map *map, uint32_t at,
                                      struct push_gradient *g)
{
    const bool has_one_owner = map == NULL || map->count == 1;
    struct mr_feature found;
    g->from = &c->gradients[at].gradient;
    g->everywhere = true;
    if (has_one_owner && c->push.dtype == MR_F32)
        return MR_OK;
    const enum mr_status status = mrc_find_any_feature(c->retry.client, c->retry.options, c->retry.op,
                                                       c->gradients[at].feature, &found);
    if (status != MR_OK)
        return status;
    g->everywhere = found.kind == MR_TABLE || has_one_owner;
    g->narrow = found.kind == MR_TABLE && c->push.dtype != MR_F32;
    if (g->narrow && g->from->rank != 3)
        return mrc_error(MR_WRONG_SHAPE, "mr_push_gradients_batch: gradients[%u] has %u dimensions, not 3",
                         at, g->from->rank);
    if (g->everywhere)
        return MR_OK;
    const uint64_t words[MR_PIECE_WORDS] = {0, mr_variable_elements(&found)};
    if (!mrc_divide_pieces(&g->pieces, &found, map->of_partition, map->count, words, MR_PIECE_WORDS))
        return mrc_error(MR_NO_MEMORY, "mr_push_gradients_batch: no memory left");
    if (gradient_is_divided(g) && g->from->bytes != g->pieces.elements * sizeof(float))
        return mrc_error(MR_WRONG_SHAPE,
                         "mr_push_gradients_batch: gradients[%u] has %llu elements, variable %s has %llu", at,
                         (unsigned long long)(g->from->bytes / sizeof(float)), found.name,
                         (unsigned long long)g->pieces.elements);
    return MR_OK;
}

/* Adds the gradient to the requests of its owners. */
static void gradient_add(struct mr_future *f, const struct push_gradient *g, struct mr_push_head *head)
{
    const struct push_context *context = f->context;
    struct mr_tensor rows[MR_ROWS_TENSORS_MAX] = {*g->from};
    const uint32_t row_tensors = g->narrow ? mr_rows_tensors(*g->from, context->dtype, rows) : 1;
    head->flags |= gradient_is_divided(g) ? MR_PUSH_PIECES : 0;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mrc_piece_share *share = g->everywhere ? NULL : gradient_share(g, i);
        if (!g->everywhere && share == NULL)
            continue;
        mrc_request_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head));
        if (share != NULL && gradient_is_divided(g)) {
            mrc_request_add(f, i, mr_tensor_1d(MR_U64, share->word_count, share->words));
            mrc_request_add(f, i, mr_tensor_1d(MR_F32, (uint32_t)share->elements, NULL));
            continue;
        }
        for (uint32_t r = 0; r < row_tensors; r++)
            mrc_request_add(f, i, rows[r]);
    }
}

/* Converts gradients of tables into the requests, which were begun, and divides those of variables. */
static void push_batch_fill(struct mr_future *f, struct push_gradient *gradients, uint32_t count)
{
    const struct push_context *context = f->context;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mrc_shard_request *request = &f->requests[i];
        for (uint32_t g = 0, t = 1; g < count; g++) {
            const struct mr_tensor *from = gradients[g].from;
            if (t >= request->tensor_count || request->sources[t] != &context->heads[g])
                continue; /* other owners' variable */
            t++;
            if (gradients[g].narrow) {
                const struct mrc_rows rows = mrc_rows_f32(from->data), to = mrc_rows_of(&request->tensors[t]);
                mrc_rows_move(&to, 0, &rows, 0, mrc_row_count(from), mrc_row_dim(from));
                t += to.dtype == MR_I8 ? 1 : 0;
            }
            if (gradient_is_divided(&gradients[g]))
                gradient_share(&gradients[g], i)->values = request->tensors[++t].data;
            t++;
        }
    }
    for (uint32_t g = 0; g < count; g++)
        if (gradient_is_divided(&gradients[g]))
            mrc_pieces_fill(&gradients[g].pieces, gradients[g].from->data);
}

/* Describes the requests, and fills in what is divided or converted. */
static enum mr_status push_batch_describe(struct mr_future *f, const struct push_call *c,
                                          const struct mrc_shard_map *map, struct push_gradient *gradients)
{
    struct push_context *context = f->context;
    bool has_room = context->dtype != MR_F32;
    for (uint32_t i = 0; i < f->request_count; i++)
        mrc_request_add(f, i, mr_tensor_1d(MR_U64, 1, &context->batch_id));
    for (uint32_t g = 0; g < c->count; g++) {
        const enum mr_status status = gradient_divide(c, map, g, &gradients[g]);
        if (status != MR_OK)
            return status;
        context->heads[g] = mrc_push_head(c->gradients[g].feature, c->retry.options);
        gradient_add(f, &gradients[g], &context->heads[g]);
        has_room |= gradient_is_divided(&gradients[g]);
    }
    for (uint32_t i = 0; i < f->request_count; i++)
        if (f->requests[i].tensor_count > MR_TENSORS_MAX)
            return mrc_error(
                MR_INVALID_ARGUMENT,
                "mr_push_gradients_batch: the gradients make %u tensors; a message has up to %u: "
                "push fewer at once",
                f->requests[i].tensor_count, MR_TENSORS_MAX);
    if (!has_room)
        return MR_OK;
    const enum mr_status status = mrc_future_begin(f);
    if (status == MR_OK)
        push_batch_fill(f, gradients, c->count);
    return status;
}

static enum mr_status push_batch_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct push_call *c = MR_CONTAINER(r, struct push_call, retry);
    struct mrc_shard_map *map = mrc_retry_hold_map(r); /* NULL: the call itself reports why */
    struct push_gradient gradients[BATCH_GRADIENTS_MAX];
    struct mr_future *f;
    enum mr_status status = mrc_future_new(r->client, r->options, r->op, 0, map == NULL ? 1 : map->count,
                                           1 + 3 * c->count, sizeof(c->push), &f);
    memset(gradients, 0, c->count * sizeof(*gradients));
    if (status == MR_OK) {
        mrc_retry_future(r, f);
        *(struct push_context *)f->context = c->push;
        f->finish = push_batch_finish;
        status = push_batch_describe(f, c, map, gradients);
        if (status == MR_OK)
            status = mrc_future_run(f, r->options, NULL);
        else
            mrc_future_free(f);
    }
    for (uint32_t g = 0; g < c->count; g++)
        free(gradients[g].pieces.memory);
    mrc_shard_map_release(map);
    return status;
}

enum mr_status mr_push_gradients_batch(struct mr_client *client, const struct mr_options *options,
                                       uint64_t batch_id, const struct mr_batch_gradient *gradients,
                                       uint32_t count, bool *applied)
{
    enum mr_dtype dtype = MR_F32;
    enum mr_status status = push_batch_check(client, gradients, count);
    if (status == MR_OK)
        status = mrc_wire_dtype("mr_push_gradients_batch", options, &dtype);
    if (status == MR_OK && dtype == MR_I8 && 1 + 3 * count > MR_TENSORS_MAX)
        status = mrc_error(MR_INVALID_ARGUMENT,
                           "mr_push_gradients_batch: %u gradients; as i8 up to %u go into a call", count,
                           (MR_TENSORS_MAX - 1) / 3);
    if (status != MR_OK)
        return status;
    struct push_call c = {.retry = {.client = client,
                                    .options = options,
                                    .op = MR_OP_PUSH_GRAD_BATCH,
                                    .make = push_batch_make,
                                    .is_due = mrc_retry_unexecuted},
                          .push = {.batch_id = batch_id, .dtype = dtype},
                          .gradients = gradients,
                          .count = count};
    c.push.applied = applied;
    return mrc_retry_run(&c.retry, NULL);
}

/* ---- forgetting ---- */

struct forget_call {
    struct mrc_retry retry;
    struct mr_tensor batch_ids;
};

static enum mr_status forget_batches_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status =
        mrc_future_for_cores(r, 0, &MR_CONTAINER(r, struct forget_call, retry)->batch_ids, 0, 0, &f);
    return status == MR_OK ? mrc_future_run(f, r->options, reply) : status;
}

enum mr_status mr_forget_batches(struct mr_client *client, const struct mr_options *options,
                                 const uint64_t *batch_ids, uint32_t count)
{
    if (client == NULL)
        return mrc_bad_argument("mr_forget_batches", "client is NULL");
    if (batch_ids == NULL && count > 0)
        return mrc_bad_argument("mr_forget_batches", "batch_ids is NULL");
    struct forget_call c = {.retry = {.client = client,
                                      .options = options,
                                      .op = MR_OP_FORGET_BATCH,
                                      .make = forget_batches_make,
                                      .is_due = mrc_retry_unexecuted},
                            .batch_ids = mr_tensor_1d(MR_U64, count, batch_ids)};
    return mrc_retry_run(&c.retry, NULL);
}
