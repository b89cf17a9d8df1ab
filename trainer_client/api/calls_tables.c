/* Rows of several tables with one call: lookups, and gradient pushes.
 *
 * Each core gets one message, LOOKUP_TABLES or PUSH_GRAD, with what it owns of all tables, and more of them
 * only where one would be too large. The messages are all sent before the first answer is waited for. A
 * table whose keys all have one owner goes there whole, as in calls_rows.c.
 *
 * Servers of versions that lack LOOKUP_TABLES get a LOOKUP for each table; and so does one that is pushed to
 * with `replay`, a PUSH_GRAD for each: what is kept is split by table when owners change. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/large_call.h"
#include "trainer_client/api/rows_answer.h"
#include "trainer_client/api/rows_request.h"
#include "trainer_client/api/shard.h"

/* A message of this length takes its time, whatever it costs to send one more. */
#define MESSAGE_BYTES_FULL ((uint64_t)4 << 20)
#define SPLIT              UINT32_MAX
#define TABLES_MAX         UINT16_MAX

/* A call that is being made. */
struct tables_call {
    struct mrc_retry retry;                  /* of LOOKUP_TABLES or PUSH_GRAD */
    const struct mrc_rows_request *requests; /* [table_count], as the caller gave them */
    uint32_t table_count;
    enum mr_dtype dtype; /* of rows in messages */
};

/* What one owner gets of a table, and in which message. */
struct place {
    uint16_t table, owner;
    uint32_t part;
};

/* How a call is divided into messages; in one piece of memory, freed with the future. */
struct division {
    uint32_t table_count, place_count, part_count;
    uint32_t tensors_max; /* of a part's request */
    bool one_each;        /* a message is about one table */
    bool has_heads;       /* each table in a message has one; not in LOOKUP */
    enum mr_dtype dtype;
    struct mrc_rows_request *requests; /* [table_count] */
    struct mr_push_head *heads;        /* [table_count]; of lookups, it is struct mr_table_head */
    struct mrc_shard *shards;          /* [table_count], of those that are split */
    uint32_t *only_owner;              /* [table_count]; SPLIT: there are several */
    struct mrc_rows *whole;            /* [table_count]; the answer, of those that are not split */
    struct place *places;              /* [place_count], by part */
};

static struct mrc_share *share_of(const struct division *d, const struct place *p)
{
    return d->only_owner[p->table] == SPLIT ? &d->shards[p->table].shares[p->owner] : NULL;
}

/* ---- answers ---- */

/* Of the future. */
struct tables_context {
    struct division *division;
};

static struct division *division_of(const struct mr_future *f)
{
    return ((const struct tables_context *)f->context)->division;
}

/* Finds the rows of all places. */
static enum mr_status take_rows(const struct mr_future *f, struct division *d)
{
    for (uint32_t i = 0, tensor = 0; i < d->place_count; i++) {
        const struct place *p = &d->places[i];
        const struct mrc_rows_request *r = &d->requests[p->table];
        struct mrc_share *share = share_of(d, p);
        if (i > 0 && d->places[i - 1].part != p->part)
            tensor = 0;
        const struct mr_tensor *t = mrc_part_rows(f, p->part, tensor, d->dtype, 2,
                                                  share == NULL ? &d->whole[p->table] : &share->rows);
        uint32_t rows = share == NULL        ? mrc_request_rows(r)
                        : r->offsets == NULL ? share->key_count
                                             : share->bag_count;
        if (t == NULL || t->dims[0] != rows || t->dims[1] != r->dim)
            return mrc_part_garbled(f, p->part);
        tensor += d->dtype == MR_I8 ? 2 : 1;
    }
    return MR_OK;
}

static void join_table(const struct division *d, uint32_t table, float *scratch, float *out)
{
    const struct mrc_rows_request *r = &d->requests[table];
    const struct mrc_shard *shard = &d->shards[table];
    const struct mrc_rows to = mrc_rows_f32(out);
    if (d->only_owner[table] != SPLIT) {
        mrc_rows_move(&to, 0, &d->whole[table], 0, mrc_request_rows(r), r->dim);
        return;
    }
    if (r->offsets == NULL) {
        mrc_shard_join_rows(&d->shards[table], r->dim, out);
        return;
    }
    memset(out, 0, (size_t)r->bag_count * r->dim * sizeof(*out));
    for (uint32_t owner = 0; owner < shard->owner_count; owner++)
        if (shard->shares[owner].key_count > 0)
            mrc_shard_add_bag_rows(shard, owner, r->dim, scratch, out);
}

static size_t aligned_bytes(uint64_t bytes)
{
    return (bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
}

/* All tables' rows in memory of their own. */
static enum mr_status join_tables(const struct division *d, struct mr_reply **reply)
{
    struct mr_tensor *tensors = malloc(d->table_count * sizeof(*tensors));
    size_t bytes = MR_DIM_MAX * sizeof(float); /* scratch, at the end */
    for (uint32_t t = 0; t < d->table_count && tensors != NULL; t++) {
        tensors[t] = mr_tensor_2d(MR_F32, mrc_request_rows(&d->requests[t]), d->requests[t].dim, NULL);
        bytes += aligned_bytes(tensors[t].bytes);
    }
    uint8_t *memory = tensors == NULL ? NULL : aligned_alloc(MR_TENSOR_ALIGN, aligned_bytes(bytes)),
            *at = memory;
    if (memory == NULL) {
        free(tensors);
        return mrc_error(MR_NO_MEMORY, "no memory for a reply of %u tables", d->table_count);
    }
    float *scratch = (float *)(void *)(memory + bytes - MR_DIM_MAX * sizeof(float));

    for (uint32_t t = 0; t < d->table_count; t++) {
        tensors[t].data = at;
        join_table(d, t, scratch, (float *)(void *)at);
        at += aligned_bytes(tensors[t].bytes);
    }
    struct mr_reply *own = mrc_reply_own_all(tensors, d->table_count, memory);

    free(tensors);
    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

/* Whether one message has all that the caller gets, as he gets it. */
static bool is_one_answer(const struct division *d)
{
    return d->part_count == 1 && d->dtype == MR_F32;
}

static enum mr_status finish_lookup(struct mr_future *f, struct mr_reply **reply)
{
    struct division *d = division_of(f);
    enum mr_status status = take_rows(f, d);
    if (status != MR_OK || reply == NULL)
        return status;
    return is_one_answer(d) ? mrc_reply_give(f, reply) : join_tables(d, reply);
}

/* ---- dividing ---- */

/* Takes a piece of this many bytes off the memory at *at. */
static void *calls_tables_take(uint8_t **at, size_t bytes)
{
    void *piece = *at;
    *at += (bytes + 7) / 8 * 8;
    return piece;
}

/* Makes room for a division among so many owners. NULL: no memory. */
static struct division *division_new(const struct tables_call *c, uint32_t owner_count)
{
    const size_t tables = c->table_count, places = tables * owner_count;
    struct division *d = NULL;
    size_t bytes = sizeof(*d) + tables * (sizeof(*d->requests) + sizeof(*d->heads) + sizeof(*d->shards) +
                                          sizeof(*d->only_owner) + sizeof(*d->whole));
    bytes += places * sizeof(*d->places) + 7 * 8;
    for (uint32_t t = 0; t < c->table_count && owner_count > 1; t++)
        bytes += mrc_shard_bytes(owner_count, c->requests[t].key_count, c->requests[t].offsets != NULL);
    uint8_t *at = calloc(1, bytes);
    if (at == NULL)
        return NULL;
    d = calls_tables_take(&at, sizeof(*d));
    d->table_count = c->table_count;
    d->dtype = c->dtype;
    d->requests = calls_tables_take(&at, tables * sizeof(*d->requests));
    memcpy(d->requests, c->requests, tables * sizeof(*d->requests));
    d->heads = calls_tables_take(&at, tables * sizeof(*d->heads));
    d->shards = calls_tables_take(&at, tables * sizeof(*d->shards));
    d->only_owner = calls_tables_take(&at, tables * sizeof(*d->only_owner));
    d->whole = calls_tables_take(&at, tables * sizeof(*d->whole));
    d->places = calls_tables_take(&at, places * sizeof(*d->places));
    for (uint32_t t = 0; t < c->table_count && owner_count > 1; t++)
        d->shards[t].memory = calls_tables_take(
            &at, mrc_shard_bytes(owner_count, c->requests[t].key_count, c->requests[t].offsets != NULL));
    return d;
}

/* Finds out which owners a table's keys have. */
static enum mr_status split_table(const struct tables_call *c, const struct mrc_owners *owners,
                                  struct division *d, uint32_t table)
{
    struct mrc_rows_request *r = &d->requests[table];
    struct mrc_shard *shard = &d->shards[table];
    struct mr_feature feature;
    uint32_t owner = 0;
    enum mr_status status =
        mrc_find_feature(c->retry.client, c->retry.options, c->retry.op, r->table, MR_TABLE, &feature);
    if (status != MR_OK)
        return status;
    r->averages = r->divisors != NULL;
    if (c->retry.op == MR_OP_LOOKUP_TABLES)
        r->dim = feature.dims[0];
    if (shard->memory != NULL && owners != NULL) {
        mrc_shard_keys_in(shard->memory, shard, owners->of_partition, owners->count, feature.seed, r->keys,
                          r->key_count, r->offsets != NULL);
        const uint32_t count = mrc_shard_owners(shard, &owner);
        if (count > 1) {
            d->only_owner[table] = SPLIT;
            r->pooling = feature.pooling;
            r->averages = r->offsets != NULL && mr_pooling_averages(feature.pooling);
            if (r->offsets != NULL)
                mrc_shard_bags(shard, r->offsets, r->bag_count);
        } else {
            d->only_owner[table] = owner;
        }
    }
    return MR_OK;
}

/* About how long the message is that has these rows. */
static uint64_t rows_bytes(const struct division *d, const struct place *p)
{
    const struct mrc_rows_request *r = &d->requests[p->table];
    const struct mrc_share *share = share_of(d, p);
    uint64_t keys = share == NULL ? r->key_count : share->key_count;
    uint64_t rows = r->offsets == NULL ? keys : share == NULL ? r->bag_count : share->bag_count;
    return keys * sizeof(*r->keys) + rows * r->dim * mr_dtype_bytes(d->dtype);
}

/* What a message has so far. */
struct fill {
    uint32_t tables, tensors;
    uint64_t bytes;
};

/* Says which message the place's tables are in: the last one, unless it is another owner's, or full. */
static void place_in_part(struct division *d, struct place *p, struct fill *fill)
{
    const uint32_t tensors = mrc_request_tensors(&d->requests[p->table], d->has_heads);
    const uint64_t bytes = rows_bytes(d, p);
    const bool is_first = p == d->places, is_full = fill->tables == MR_LOOKUP_TABLES_MAX ||
                                                    fill->tensors + tensors > MR_TENSORS_MAX ||
                                                    fill->bytes + bytes > MESSAGE_BYTES_FULL;
    if (is_first || p[-1].owner != p->owner || d->one_each || is_full) {
        d->part_count++;
        *fill = (struct fill){0};
    }
    p->part = d->part_count - 1;
    fill->tables++;
    fill->tensors += tensors;
    fill->bytes += bytes;
    d->tensors_max = fill->tensors > d->tensors_max ? fill->tensors : d->tensors_max;
}

static void place_all(struct division *d, uint32_t owner_count)
{
    struct fill fill = {0};
    for (uint32_t owner = 0; owner < owner_count; owner++) {
        for (uint32_t t = 0; t < d->table_count; t++) {
            if (d->only_owner[t] == SPLIT ? d->shards[t].shares[owner].key_count == 0
                                          : d->only_owner[t] != owner)
                continue;
            struct place *p = &d->places[d->place_count++];
            *p = (struct place){.table = (uint16_t)t, .owner = (uint16_t)owner};
            place_in_part(d, p, &fill);
        }
    }
}

static bool needs_one_each(const struct tables_call *c)
{
    if (c->retry.op == MR_OP_PUSH_GRAD)
        return c->retry.client->replay;
    pthread_mutex_lock(&c->retry.client->lock);
    const bool known = mrc_nodes_lookup_tables(c->retry.client);

    pthread_mutex_unlock(&c->retry.client->lock);
    return !known;
}

/* `owners` NULL: the call itself reports why. */
static enum mr_status divide(const struct tables_call *c, const struct mrc_owners *owners,
                             struct division **out)
{
    const uint32_t owner_count = owners == NULL ? 1 : owners->count;
    enum mr_status status = mrc_check_process(c->retry.client, mr_op_name(c->retry.op));
    if (status != MR_OK)
        return status;
    struct division *d = division_new(c, owner_count);

    if (d == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory to split keys of %u tables", mr_op_name(c->retry.op),
                         c->table_count);
    d->one_each = needs_one_each(c);
    d->has_heads = c->retry.op == MR_OP_PUSH_GRAD || !d->one_each;
    for (uint32_t t = 0; t < c->table_count && status == MR_OK; t++)
        status = split_table(c, owners, d, t);
    if (status != MR_OK) {
        free(d);
        return status;
    }
    place_all(d, owner_count);
    *out = d;
    return MR_OK;
}

/* ---- sending ---- */

static void make_heads(const struct tables_call *c, struct division *d)
{
    for (uint32_t t = 0; t < d->table_count; t++) {
        d->heads[t] = c->retry.op == MR_OP_PUSH_GRAD ? mrc_push_head(d->requests[t].table, c->retry.options)
                                                     : (struct mr_push_head){.feature = d->requests[t].table};
        d->heads[t].flags |= mrc_request_flags(&d->requests[t]);
    }
}

static uint32_t lookup_flags(const struct tables_call *c)
{
    const bool read_only = c->retry.options != NULL && c->retry.options->read_only;
    return (read_only ? MR_FEED_READ_ONLY : 0) | mrc_reply_dtype_flags(c->dtype);
}

/* Describes the messages; true when room in them is to be filled in before they are sent. */
static bool describe(const struct tables_call *c, struct division *d, struct mr_future *f)
{
    bool has_room = c->retry.op == MR_OP_PUSH_GRAD && d->dtype != MR_F32;
    make_heads(c, d);
    for (uint32_t i = 0; i < d->place_count; i++) {
        const struct place *p = &d->places[i];
        const struct mrc_share *share = share_of(d, p);
        struct mrc_part *part = &f->parts[p->part];
        part->owner = p->owner;
        if (!d->has_heads) {
            part->table = (uint16_t)d->requests[p->table].table;
            part->flags = (uint16_t)(lookup_flags(c) | mrc_request_flags(&d->requests[p->table]));
        }
        mrc_request_add(&d->requests[p->table], f, p->part, d->has_heads ? &d->heads[p->table] : NULL, share);
        has_room |= share != NULL;
    }
    return has_room;
}

/* Fills in what is split or converted. */
static void fill_parts(struct division *d, struct mr_future *f)
{
    for (uint32_t i = 0, tensor = 0; i < d->place_count; i++) {
        const struct place *p = &d->places[i];
        const struct mrc_rows_request *r = &d->requests[p->table];
        struct mrc_share *share = share_of(d, p), whole = {0};
        if (i > 0 && d->places[i - 1].part != p->part)
            tensor = 0;
        mrc_request_find(r, f->parts[p->part].tensors + tensor, d->has_heads, share == NULL ? &whole : share);
        tensor += mrc_request_tensors(r, d->has_heads);
        if (share == NULL && r->gradients != NULL && d->dtype != MR_F32) {
            const struct mrc_rows from = mrc_rows_f32(r->gradients);
            mrc_rows_move(&whole.rows, 0, &from, 0, mrc_request_rows(r), r->dim);
        }
    }
    for (uint32_t t = 0; t < d->table_count; t++)
        if (d->only_owner[t] == SPLIT)
            mrc_request_fill(&d->requests[t], &d->shards[t]);
}

/* Takes the division over. */
static enum mr_status run_divided(struct tables_call *c, struct division *d, struct mr_reply **reply)
{
    const enum mr_op op = d->has_heads ? c->retry.op : MR_OP_LOOKUP;
    struct mr_future *f;
    enum mr_status status = mrc_future_new(c->retry.client, c->retry.options, op, 0, d->part_count,
                                           d->tensors_max, sizeof(struct tables_context), &f);
    if (status != MR_OK) {
        free(d);
        return status;
    }
    f->memory = d;
    ((struct tables_context *)f->context)->division = d;
    mrc_retry_future(&c->retry, f);
    if (c->retry.op == MR_OP_LOOKUP_TABLES) {
        f->options.flags = (uint16_t)lookup_flags(c);
        f->finish = finish_lookup;
    }
    if (!describe(c, d, f))
        return mrc_future_run(f, c->retry.options, reply);
    status = mrc_future_begin(f);
    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    fill_parts(d, f);
    return mrc_future_run(f, c->retry.options, reply);
}

static enum mr_status tables_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct tables_call *c = MR_CONTAINER(r, struct tables_call, retry);
    struct mrc_owners *owners = mrc_retry_hold_map(r);
    struct division *d;
    enum mr_status status = divide(c, owners, &d);

    mrc_owners_release(owners);
    return status == MR_OK ? run_divided(c, d, reply) : status;
}

/* A server whose version lacks the operation is asked in another way. */
static enum mrc_retry_due tables_is_due(struct mrc_retry *r, enum mr_status status)
{
    if (status == MR_UNKNOWN_OP && r->op == MR_OP_LOOKUP_TABLES &&
        needs_one_each(MR_CONTAINER(r, struct tables_call, retry)))
        return MRC_RETRY_NOW;
    return mrc_retry_by_map(r, status);
}

/* Of a lookup. */
static struct mrc_retry *tables_copy(const struct mrc_retry *r)
{
    const struct tables_call *c = MR_CONTAINER(r, const struct tables_call, retry);
    size_t bytes = sizeof(*c) + c->table_count * sizeof(*c->requests);
    for (uint32_t t = 0; t < c->table_count; t++)
        bytes += mrc_request_copy_bytes(&c->requests[t]);
    struct tables_call *copy = malloc(bytes);
    if (copy == NULL)
        return NULL;
    struct mrc_rows_request *requests = (struct mrc_rows_request *)(copy + 1);
    uint8_t *at = (uint8_t *)&requests[c->table_count];

    *copy = *c;
    copy->requests = requests;
    for (uint32_t t = 0; t < c->table_count; t++) {
        requests[t] = c->requests[t];
        mrc_request_copy(&requests[t], at);
        at += mrc_request_copy_bytes(&c->requests[t]);
    }
    return &copy->retry;
}

/* ---- calls that are larger than a message ---- */

static enum mr_status run_part(const struct mrc_large_call *large, const struct mr_options *options,
                               const struct mrc_rows_request *requests, uint32_t count)
{
    struct tables_call part = *(const struct tables_call *)large->context;
    part.retry.options = options;
    part.requests = requests;
    part.table_count = count;
    return mrc_retry_run(&part.retry, NULL);
}

static enum mr_status run_tables(struct tables_call *c, struct mrc_rows_request *requests,
                                 struct mr_reply **reply)
{
    bool is_large = false;
    uint64_t bytes_at_most = 0;
    enum mr_status status = mrc_wire_dtype(mr_op_name(c->retry.op), c->retry.options, &c->dtype);
    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < c->table_count; i++) {
        requests[i].dtype = c->dtype;
        bytes_at_most += mrc_large_bytes_at_most(&requests[i]);
    }
    struct mrc_large_call large = {.client = c->retry.client,
                                   .options = c->retry.options,
                                   .op = c->retry.op,
                                   .requests = requests,
                                   .request_count = c->table_count,
                                   .has_reply = c->retry.op == MR_OP_LOOKUP_TABLES,
                                   .make = run_part,
                                   .context = c};

    c->requests = requests;
    if (mrc_large_may_be(c->retry.client, bytes_at_most))
        status = mrc_large_check(&large, &is_large);
    if (status != MR_OK)
        return status;
    return is_large ? mrc_large_run(&large, reply) : mrc_retry_run(&c->retry, reply);
}

/* ---- the public functions ---- */

static enum mr_status check_table(const char *call, const struct mr_table_keys *k, uint32_t i)
{
    if (k->offsets == NULL && k->weights != NULL)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u] has weights without offsets; they are of bags",
                         call, i);
    enum mr_status status = k->offsets == NULL ? MR_OK : mrc_check_offsets(call, k->offsets, k->bag_count);
    const uint32_t key_count =
        status != MR_OK || k->offsets == NULL ? k->key_count : k->offsets[k->bag_count];

    if (status == MR_OK && k->keys == NULL && key_count > 0)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].keys is NULL", call, i);
    return status != MR_OK ? status : mrc_check_weights(call, k->weights, key_count);
}

static enum mr_status check_count(const char *call, const struct mr_client *client, const void *tables,
                                  uint32_t table_count)
{
    if (client == NULL || tables == NULL)
        return mrc_bad_argument(call, client == NULL ? "client is NULL" : "tables is NULL");
    if (table_count == 0 || table_count > TABLES_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: table_count is %u; it goes from 1 to %u", call,
                         table_count, TABLES_MAX);
    return MR_OK;
}

static struct mrc_rows_request request_of(const struct mr_table_keys *k)
{
    return (struct mrc_rows_request){.table = k->table,
                                     .keys = k->keys,
                                     .key_count =
                                         k->offsets == NULL ? k->key_count : k->offsets[k->bag_count],
                                     .offsets = k->offsets,
                                     .bag_count = k->offsets == NULL ? 0 : k->bag_count,
                                     .weights = k->weights};
}

static enum mr_status run_requests(struct tables_call *c, struct mrc_rows_request *requests,
                                   struct mr_reply **reply)
{
    enum mr_status status = run_tables(c, requests, reply);
    free(requests);
    return status;
}

enum mr_status mr_lookup_tables(struct mr_client *client, const struct mr_options *options,
                                const struct mr_table_keys *tables, uint32_t table_count,
                                struct mr_reply **reply)
{
    const char *call = "mr_lookup_tables";
    struct tables_call c = {.retry = {.client = client,
                                      .options = options,
                                      .op = MR_OP_LOOKUP_TABLES,
                                      .make = tables_make,
                                      .is_due = tables_is_due,
                                      .copy = tables_copy},
                            .table_count = table_count};
    enum mr_status status = check_count(call, client, tables, table_count);
    for (uint32_t i = 0; i < table_count && status == MR_OK; i++)
        status = check_table(call, &tables[i], i);
    if (status != MR_OK)
        return status;
    struct mrc_rows_request *requests = malloc(table_count * sizeof(*requests));
    if (requests == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for %u tables", call, table_count);
    for (uint32_t i = 0; i < table_count; i++)
        requests[i] = request_of(&tables[i]);
    return run_requests(&c, requests, reply);
}

/* A push runs the optimizer once for a table. */
static enum mr_status check_named_once(const char *call, const struct mr_table_gradients *tables, uint32_t i)
{
    for (uint32_t before = 0; before < i; before++)
        if (tables[before].of.table == tables[i].of.table)
            return mrc_error(
                MR_INVALID_ARGUMENT,
                "%s: tables[%u] and tables[%u] are the same one, number %u: a push has each once", call,
                before, i, tables[i].of.table);
    return MR_OK;
}

static enum mr_status check_gradients(const char *call, const struct mr_table_gradients *tables, uint32_t i)
{
    const struct mr_table_gradients *t = &tables[i];
    enum mr_status status = check_table(call, &t->of, i);
    if (status != MR_OK)
        return status;
    if (t->gradients == NULL)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].gradients is NULL", call, i);
    if (t->dim == 0 || t->dim > MR_DIM_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: tables[%u].dim is %u; it goes from 1 to %u", call, i,
                         t->dim, MR_DIM_MAX);
    return check_named_once(call, tables, i);
}

enum mr_status mr_push_gradients_tables(struct mr_client *client, const struct mr_options *options,
                                        const struct mr_table_gradients *tables, uint32_t table_count)
{
    const char *call = "mr_push_gradients_tables";
    struct tables_call c = {.retry = {.client = client,
                                      .options = options,
                                      .op = MR_OP_PUSH_GRAD,
                                      .make = tables_make,
                                      .is_due = tables_is_due},
                            .table_count = table_count};
    enum mr_status status = check_count(call, client, tables, table_count);
    for (uint32_t i = 0; i < table_count && status == MR_OK; i++)
        status = check_gradients(call, tables, i);
    if (status != MR_OK)
        return status;
    struct mrc_rows_request *requests = malloc(table_count * sizeof(*requests));
    if (requests == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for %u tables", call, table_count);
    for (uint32_t i = 0; i < table_count; i++) {
        requests[i] = request_of(&tables[i].of);
        requests[i].dim = tables[i].dim;
        requests[i].gradients = tables[i].gradients;
    }
    return run_requests(&c, requests, NULL);
}
