#include "trainer_client/api/rows_call.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/large_call.h"
#include "trainer_client/api/rows_answer.h"
#include "trainer_client/api/shard.h"

/* A message of this length takes its time, whatever it costs to send one more. */
#define MESSAGE_BYTES_FULL ((uint64_t)4 << 20)
#define SPLIT              UINT32_MAX

static bool is_push(const struct mrc_rows_call *c)
{
    return c->retry.op == MR_OP_PUSH_GRAD;
}

/* What one owner gets of a table, and in which message. */
struct slice {
    uint16_t table, owner;
    uint32_t part;
};

/* How a call is divided into messages to owners; in one piece of memory, freed with the future. */
struct dispatch {
    uint32_t table_count, slice_count, part_count;
    uint32_t tensors_max; /* of a part's request */
    bool one_each;        /* a message is about one table */
    bool has_heads;       /* each table in a message has one; not in LOOKUP */
    enum mr_dtype dtype;
    struct mrc_rows_request *requests; /* [table_count] */
    struct mr_push_head *heads;        /* [table_count]; of lookups, it is struct mr_table_head */
    struct mrc_shard *shards;          /* [table_count], of those that are split */
    uint32_t *only_owner;              /* [table_count]; SPLIT: there are several */
    struct mrc_rows *whole;            /* [table_count]; the answer, of those that are not split */
    struct slice *slices;              /* [slice_count], by part */
};

static struct mrc_share *share_of(const struct dispatch *d, const struct slice *s)
{
    return d->only_owner[s->table] == SPLIT ? &d->shards[s->table].shares[s->owner] : NULL;
}

/* Returns whether the slice's tensors are the first of its message. */
static bool is_first(const struct dispatch *d, uint32_t i)
{
    return i == 0 || d->slices[i - 1].part != d->slices[i].part;
}

/* Returns how many rows the slice has. */
static uint32_t slice_rows(const struct dispatch *d, const struct slice *s)
{
    const struct mrc_rows_request *r = &d->requests[s->table];
    const struct mrc_share *share = share_of(d, s);
    if (share == NULL)
        return mrc_request_rows(r);
    return r->offsets == NULL ? share->key_count : share->bag_count;
}

/* ---- answers ---- */

/* Finds the rows of all slices. Without a dim a table's rows are as long as the first answer has them. */
static enum mr_status find_rows(const struct mr_future *f, struct dispatch *d)
{
    for (uint32_t i = 0, tensor = 0; i < d->slice_count; i++) {
        const struct slice *s = &d->slices[i];
        struct mrc_rows_request *r = &d->requests[s->table];
        struct mrc_share *share = share_of(d, s);
        if (is_first(d, i))
            tensor = 0;
        const struct mr_tensor *t = mrc_part_rows(f, s->part, tensor, d->dtype, 2,
                                                  share == NULL ? &d->whole[s->table] : &share->rows);
        if (t != NULL && r->dim == 0)
            r->dim = t->dims[1];
        if (t == NULL || t->dims[0] != slice_rows(d, s) || t->dims[1] != r->dim || r->dim == 0)
            return mrc_part_garbled(f, s->part);
        tensor += d->dtype == MR_I8 ? 2 : 1;
    }
    return MR_OK;
}

static void join_table(const struct dispatch *d, uint32_t table, float *scratch, float *out)
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
static enum mr_status join_tables(const struct dispatch *d, struct mr_reply **reply)
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

static enum mr_status finish_lookup(struct mr_future *f, struct mr_reply **reply)
{
    struct dispatch *d = *(struct dispatch *const *)f->context;
    enum mr_status status = find_rows(f, d);
    if (status != MR_OK || reply == NULL)
        return status;
    if (d->part_count == 1 &&
        d->dtype == MR_F32) /* the message has all that the caller gets, as he gets it */
        return mrc_reply_give(f, reply);
    return join_tables(d, reply);
}

/* ---- dividing ---- */

/* Takes a piece of this many bytes off the memory at *at. */
static void *memory_take(uint8_t **at, size_t bytes)
{
    void *piece = *at;
    *at += (bytes + 7) / 8 * 8;
    return piece;
}

/* Makes room for a dispatch to so many owners. NULL: no memory. */
static struct dispatch *dispatch_new(const struct mrc_rows_call *c, uint32_t owner_count)
{
    const size_t tables = c->table_count, slices = tables * owner_count;
    struct dispatch *d = NULL;
    size_t bytes = sizeof(*d) + tables * (sizeof(*d->requests) + sizeof(*d->heads) + sizeof(*d->shards) +
                                          sizeof(*d->only_owner) + sizeof(*d->whole));
    bytes += slices * sizeof(*d->slices) + 7 * 8;
    for (uint32_t t = 0; t < c->table_count && owner_count > 1; t++)
        bytes += mrc_shard_bytes(owner_count, c->requests[t].key_count, c->requests[t].offsets != NULL);
    uint8_t *at = calloc(1, bytes);
    if (at == NULL)
        return NULL;
    d = memory_take(&at, sizeof(*d));
    d->table_count = c->table_count;
    d->dtype = c->dtype;
    d->requests = memory_take(&at, tables * sizeof(*d->requests));
    memcpy(d->requests, c->requests, tables * sizeof(*d->requests));
    d->heads = memory_take(&at, tables * sizeof(*d->heads));
    d->shards = memory_take(&at, tables * sizeof(*d->shards));
    d->only_owner = memory_take(&at, tables * sizeof(*d->only_owner));
    d->whole = memory_take(&at, tables * sizeof(*d->whole));
    d->slices = memory_take(&at, slices * sizeof(*d->slices));
    for (uint32_t t = 0; t < c->table_count && owner_count > 1; t++)
        d->shards[t].memory = memory_take(
            &at, mrc_shard_bytes(owner_count, c->requests[t].key_count, c->requests[t].offsets != NULL));
    return d;
}

/* Finds out which owners a table's keys have. */
static enum mr_status split_table(const struct mrc_rows_call *c, const struct mrc_owners *owners,
                                  struct dispatch *d, uint32_t table)
{
    struct mrc_rows_request *r = &d->requests[table];
    struct mrc_shard *shard = &d->shards[table];
    struct mr_feature feature;
    uint32_t owner = 0;
    enum mr_status status =
        mrc_find_feature(c->retry.client, c->retry.options, c->retry.op, r->table, MR_TABLE, &feature);
    if (status != MR_OK)
        return status;
    if (c->retry.op == MR_OP_LOOKUP_TABLES)
        r->dim = feature.dims[0];
    if (shard->memory == NULL || owners == NULL)
        return MR_OK;
    mrc_shard_keys_in(shard->memory, shard, owners->of_partition, owners->count, feature.seed, r->keys,
                      r->key_count, r->offsets != NULL);
    if (mrc_shard_owners(shard, &owner) <= 1) {
        d->only_owner[table] = owner;
        return MR_OK;
    }
    d->only_owner[table] = SPLIT;
    r->pooling = feature.pooling;
    r->averages = r->offsets != NULL && mr_pooling_averages(feature.pooling);
    if (r->offsets != NULL)
        mrc_shard_bags(shard, r->offsets, r->bag_count);
    return MR_OK;
}

/* About how long the message is that has these rows. */
static uint64_t slice_bytes(const struct dispatch *d, const struct slice *s)
{
    const struct mrc_rows_request *r = &d->requests[s->table];
    const struct mrc_share *share = share_of(d, s);
    const uint64_t keys = share == NULL ? r->key_count : share->key_count;
    return keys * sizeof(*r->keys) + (uint64_t)slice_rows(d, s) * r->dim * mr_dtype_bytes(d->dtype);
}

/* What a message has so far. */
struct fill {
    uint32_t tables, tensors;
    uint64_t bytes;
};

/* Says which message the slice is in: the last one, unless it is another owner's, or full. */
static void put_slice(struct dispatch *d, struct slice *s, struct fill *fill)
{
    const uint32_t tensors = mrc_request_tensors(&d->requests[s->table], d->has_heads);
    const uint64_t bytes = slice_bytes(d, s);
    const bool is_full = fill->tables == MR_LOOKUP_TABLES_MAX || fill->tensors + tensors > MR_TENSORS_MAX ||
                         fill->bytes + bytes > MESSAGE_BYTES_FULL;
    if (s == d->slices || s[-1].owner != s->owner || d->one_each || is_full) {
        d->part_count++;
        *fill = (struct fill){0};
    }
    s->part = d->part_count - 1;
    fill->tables++;
    fill->tensors += tensors;
    fill->bytes += bytes;
    d->tensors_max = fill->tensors > d->tensors_max ? fill->tensors : d->tensors_max;
}

static void list_slices(struct dispatch *d, uint32_t owner_count)
{
    struct fill fill = {0};
    for (uint32_t owner = 0; owner < owner_count; owner++) {
        for (uint32_t t = 0; t < d->table_count; t++) {
            if (d->only_owner[t] == SPLIT ? d->shards[t].shares[owner].key_count == 0
                                          : d->only_owner[t] != owner)
                continue;
            struct slice *s = &d->slices[d->slice_count++];
            *s = (struct slice){.table = (uint16_t)t, .owner = (uint16_t)owner};
            put_slice(d, s, &fill);
        }
    }
}

/* Returns whether each message must be about one table. */
static bool needs_one_each(const struct mrc_rows_call *c)
{
    struct mr_client *client = c->retry.client;
    if (c->retry.op != MR_OP_LOOKUP_TABLES)
        return c->retry.op == MR_OP_LOOKUP || client->replay;
    pthread_mutex_lock(&client->lock);
    const bool known = mrc_nodes_lookup_tables(client);

    pthread_mutex_unlock(&client->lock);
    return !known;
}

/* `owners` NULL: the call itself reports why. */
static enum mr_status divide(const struct mrc_rows_call *c, const struct mrc_owners *owners,
                             struct dispatch **out)
{
    const uint32_t owner_count = owners == NULL ? 1 : owners->count;
    enum mr_status status = mrc_check_process(c->retry.client, mr_op_name(c->retry.op));
    if (status != MR_OK)
        return status;
    struct dispatch *d = dispatch_new(c, owner_count);

    if (d == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory to split keys of %u table%s", mr_op_name(c->retry.op),
                         c->table_count, mr_plural(c->table_count));
    d->one_each = needs_one_each(c);
    d->has_heads = is_push(c) || !d->one_each;
    for (uint32_t t = 0; t < c->table_count && status == MR_OK; t++)
        status = split_table(c, owners, d, t);
    if (status != MR_OK) {
        free(d);
        return status;
    }
    list_slices(d, owner_count);
    *out = d;
    return MR_OK;
}

/* ---- sending ---- */

static struct mr_push_head request_head(const struct mrc_rows_call *c, const struct mrc_rows_request *r)
{
    struct mr_push_head head = {.feature = r->table};
    if (is_push(c))
        head = mrc_push_head(r->table, c->retry.options);
    head.flags |= (is_push(c) ? c->flags : 0) | mrc_request_flags(r);
    return head;
}

static uint16_t lookup_flags(const struct mrc_rows_call *c)
{
    const bool read_only = c->retry.options != NULL && c->retry.options->read_only;
    return (uint16_t)(c->flags | (read_only ? MR_FEED_READ_ONLY : 0) | mrc_reply_dtype_flags(c->dtype));
}

/* Describes the messages; true when room in them is to be filled in before they are sent. */
static bool describe(const struct mrc_rows_call *c, struct dispatch *d, struct mr_future *f)
{
    bool has_room = is_push(c) && d->dtype != MR_F32;
    for (uint32_t t = 0; t < d->table_count; t++)
        d->heads[t] = request_head(c, &d->requests[t]);
    for (uint32_t i = 0; i < d->slice_count; i++) {
        const struct slice *s = &d->slices[i];
        const struct mrc_share *share = share_of(d, s);
        struct mrc_part *part = &f->parts[s->part];
        part->owner = s->owner;
        if (!d->has_heads) {
            part->table = (uint16_t)d->requests[s->table].table;
            part->flags = (uint16_t)(lookup_flags(c) | mrc_request_flags(&d->requests[s->table]));
        }
        mrc_request_add(&d->requests[s->table], f, s->part, d->has_heads ? &d->heads[s->table] : NULL, share);
        has_room |= share != NULL;
    }
    return has_room;
}

/* Fills in what is split or converted. */
static void fill_parts(struct dispatch *d, struct mr_future *f)
{
    for (uint32_t i = 0, tensor = 0; i < d->slice_count; i++) {
        const struct slice *s = &d->slices[i];
        const struct mrc_rows_request *r = &d->requests[s->table];
        struct mrc_share *share = share_of(d, s), whole = {0};
        if (is_first(d, i))
            tensor = 0;
        mrc_request_find(r, f->parts[s->part].tensors + tensor, d->has_heads, share == NULL ? &whole : share);
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

/* Takes the dispatch over. */
static enum mr_status send_dispatch(struct mrc_rows_call *c, struct dispatch *d, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status =
        mrc_future_new(c->retry.client, c->retry.options, d->has_heads ? c->retry.op : MR_OP_LOOKUP,
                       c->table_count == 1 ? c->requests[0].table : 0, d->part_count, d->tensors_max,
                       sizeof(struct dispatch *), &f);
    if (status != MR_OK) {
        free(d);
        return status;
    }
    f->memory = d;
    *(struct dispatch **)f->context = d;
    mrc_retry_future(&c->retry, f);
    if (!is_push(c)) {
        f->options.flags = lookup_flags(c);
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

/* The fast path: one table, one owner, f32. The request is what the caller gave and the reply is a view. */
static enum mr_status send_whole(struct mrc_rows_call *c, struct mr_reply **reply)
{
    const struct mrc_rows_request *r = c->requests;
    struct mr_future *f;
    enum mr_status status = mrc_future_new(c->retry.client, c->retry.options, c->retry.op, r->table, 1,
                                           MRC_REQUEST_TENSORS_MAX, sizeof(struct mr_push_head), &f);
    if (status != MR_OK)
        return status;
    mrc_retry_future(&c->retry, f);
    if (is_push(c)) {
        *(struct mr_push_head *)f->context = request_head(c, r);
        mrc_request_add(r, f, 0, f->context, NULL);
    } else {
        f->options.flags = (uint16_t)(lookup_flags(c) | mrc_request_flags(r));
        mrc_request_add(r, f, 0, NULL, NULL);
    }
    return mrc_future_run(f, c->retry.options, reply);
}

/* ---- tries ---- */

static enum mr_status rows_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mrc_rows_call *c = MR_CONTAINER(r, struct mrc_rows_call, retry);
    struct mrc_owners *owners = mrc_retry_hold_map(r);
    struct dispatch *d;
    enum mr_status status;
    if (r->op != MR_OP_LOOKUP_TABLES && c->table_count == 1 && c->dtype == MR_F32 &&
        (owners == NULL || owners->count == 1)) {
        status = send_whole(c, reply);
    } else {
        status = divide(c, owners, &d);
        if (status == MR_OK)
            status = send_dispatch(c, d, reply);
    }
    mrc_owners_release(owners);
    return status;
}

/* A server whose version lacks the operation is asked in another way. */
static enum mrc_retry_due rows_is_due(struct mrc_retry *r, enum mr_status status)
{
    if (status == MR_UNKNOWN_OP && r->op == MR_OP_LOOKUP_TABLES &&
        needs_one_each(MR_CONTAINER(r, struct mrc_rows_call, retry)))
        return MRC_RETRY_NOW;
    return mrc_retry_by_map(r, status);
}

/* Of a lookup. */
static struct mrc_retry *rows_copy(const struct mrc_retry *r)
{
    const struct mrc_rows_call *c = MR_CONTAINER(r, const struct mrc_rows_call, retry);
    size_t bytes = sizeof(*c) + c->table_count * sizeof(*c->requests);
    for (uint32_t t = 0; t < c->table_count; t++)
        bytes += mrc_request_copy_bytes(&c->requests[t]);
    struct mrc_rows_call *copy = malloc(bytes);
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

struct mrc_retry mrc_rows_retry(struct mr_client *client, const struct mr_options *options, enum mr_op op)
{
    return (struct mrc_retry){.client = client,
                              .options = options,
                              .op = op,
                              .make = rows_make,
                              .is_due = rows_is_due,
                              .copy = op == MR_OP_PUSH_GRAD ? NULL : rows_copy};
}

/* ---- calls that are larger than a message ---- */

static enum mr_status run_part(const struct mrc_large_call *large, const struct mr_options *options,
                               const struct mrc_rows_request *requests, uint32_t count)
{
    struct mrc_rows_call part = *(const struct mrc_rows_call *)large->context;
    part.retry.options = options;
    part.requests = requests;
    part.table_count = count;
    return mrc_retry_run(&part.retry, NULL);
}

/* Runs a call that may be larger than a message. */
__attribute__((noinline)) static enum mr_status run_large(struct mrc_rows_call *c, struct mr_reply **reply)
{
    bool is_large;
    struct mrc_large_call large = {.client = c->retry.client,
                                   .options = c->retry.options,
                                   .op = c->retry.op,
                                   .requests = c->requests,
                                   .request_count = c->table_count,
                                   .is_stored = (c->flags & MR_LOOKUP_STORED) != 0,
                                   .has_reply = !is_push(c),
                                   .make = run_part,
                                   .context = c};
    enum mr_status status = mrc_large_check(&large, &is_large);
    if (status != MR_OK)
        return status;
    return is_large ? mrc_large_run(&large, reply) : mrc_retry_run(&c->retry, reply);
}

enum mr_status mrc_rows_run(struct mrc_rows_call *c, struct mrc_rows_request *requests,
                            struct mr_reply **reply)
{
    uint64_t bytes_at_most = 0;
    enum mr_status status = mrc_wire_dtype(mr_op_name(c->retry.op), c->retry.options, &c->dtype);
    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < c->table_count; i++) {
        requests[i].dtype = c->dtype;
        bytes_at_most += mrc_large_bytes_at_most(&requests[i]);
    }
    c->requests = requests;
    if (mrc_large_may_be(c->retry.client, bytes_at_most))
        return run_large(c, reply);
    return mrc_retry_run(&c->retry, reply);
}
