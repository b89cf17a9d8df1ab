#include "trainer_client/api/rows_call.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/large_call.h"
#include "trainer_client/api/rows_message.h"
#include "trainer_client/call/node.h"

/* A message of this length takes its time, whatever it costs to send one more. */
#define MESSAGE_BYTES_FULL ((uint64_t)4 << 20)

static struct mr_push_head request_head(const struct mrc_rows_call *c, const struct mrc_rows_request *r)
{
    struct mr_push_head head = {.feature = r->table};
    if (mrc_rows_is_push(c))
        head = mrc_push_head(r->table, c->retry.options);
    head.flags |= (mrc_rows_is_push(c) ? c->flags : 0) | mrc_rows_flags(r);
    return head;
}

static uint16_t lookup_flags(const struct mrc_rows_call *c)
{
    const bool read_only = c->retry.options != NULL && c->retry.options->read_only;
    return (uint16_t)(c->flags | (read_only ? MR_FEED_READ_ONLY : 0) | mrc_reply_dtype_flags(c->dtype));
}

/* ---- one table, one owner, f32: the request is what the caller gave, and the reply is a view ---- */

static enum mr_status send_whole(struct mrc_rows_call *c, struct mr_reply **reply)
{
    const struct mrc_rows_request *r = c->requests;
    struct mr_future *f;
    enum mr_status status = mrc_future_new(c->retry.client, c->retry.options, c->retry.op, r->table, 1,
                                           MRC_REQUEST_TENSORS_MAX, sizeof(struct mr_push_head), &f);
    if (status != MR_OK)
        return status;
    mrc_retry_future(&c->retry, f);
    if (mrc_rows_is_push(c)) {
        *(struct mr_push_head *)f->context = request_head(c, r);
        mrc_rows_add(r, f, 0, f->context, NULL);
    } else {
        f->options.flags = (uint16_t)(lookup_flags(c) | mrc_rows_flags(r));
        mrc_rows_add(r, f, 0, NULL, NULL);
    }
    return mrc_future_run(f, c->retry.options, reply);
}

/* ---- several: requests to owners ---- */

/* A table of the call. */
struct rows_table {
    struct mrc_rows_request request;
    struct mr_push_head head; /* of lookups, it is struct mr_table_head */
    uint32_t owner;           /* of all keys; MRC_SEVERAL_OWNERS: it is divided */
    struct mrc_share whole;   /* what that one gets */
    struct mrc_division division;
};

/* What a request has of a table. */
struct rows_slice {
    struct rows_table *table;
    struct mrc_share *share;
    uint32_t owner, request;
};

/* How a call is divided; in one piece of memory, freed with the future. */
struct dispatch {
    uint32_t table_count, slice_count, request_count;
    uint32_t tensors_max; /* of a request */
    bool one_each;        /* a message is about one table */
    bool has_heads;       /* each table in a message has one; not in LOOKUP */
    enum mr_dtype dtype;
    struct rows_table *tables; /* [table_count] */
    struct rows_slice *slices; /* [slice_count], by request */
};

/* Returns whether the slice's tensors are the first of its message. */
static bool slice_is_first(const struct dispatch *d, uint32_t i)
{
    return i == 0 || d->slices[i - 1].request != d->slices[i].request;
}

/* ---- answers ---- */

/* Finds the rows of all slices. Without a dim a table's rows are as long as the first answer has them. */
static enum mr_status dispatch_find_rows(const struct mr_future *f, struct dispatch *d)
{
    for (uint32_t i = 0, tensor = 0; i < d->slice_count; i++) {
        const struct rows_slice *s = &d->slices[i];
        struct mrc_rows_request *r = &s->table->request;
        if (slice_is_first(d, i))
            tensor = 0;
        const struct mr_tensor *t = mrc_answer_rows(f, s->request, tensor, d->dtype, 2, &s->share->rows);
        if (t != NULL && r->dim == 0)
            r->dim = t->dims[1];
        if (t == NULL || t->dims[0] != mrc_share_rows(r, s->share) || t->dims[1] != r->dim || r->dim == 0)
            return mrc_answer_garbled(f, s->request);
        tensor += d->dtype == MR_I8 ? 2 : 1;
    }
    return MR_OK;
}

/* Joins all tables' rows in memory of their own. */
static enum mr_status dispatch_join(const struct dispatch *d, struct mr_reply **reply)
{
    struct mr_tensor *tensors = malloc(d->table_count * sizeof(*tensors));
    size_t bytes = MR_DIM_MAX * sizeof(float); /* scratch, at the end */
    for (uint32_t i = 0; i < d->table_count && tensors != NULL; i++) {
        const struct mrc_rows_request *r = &d->tables[i].request;
        tensors[i] = mr_tensor_2d(MR_F32, mrc_request_rows(r), r->dim, NULL);
        bytes += mrc_reply_room(tensors[i].bytes);
    }
    uint8_t *memory = tensors == NULL ? NULL : aligned_alloc(MR_TENSOR_ALIGN, mrc_reply_room(bytes)),
            *at = memory;
    if (memory == NULL) {
        free(tensors);
        return mrc_error(MR_NO_MEMORY, "no memory for a reply of %u tables", d->table_count);
    }
    float *scratch = (float *)(void *)(memory + bytes - MR_DIM_MAX * sizeof(float));

    for (uint32_t i = 0; i < d->table_count; i++) {
        struct rows_table *t = &d->tables[i];
        const struct mrc_rows to = mrc_rows_f32((float *)(void *)at);
        if (t->owner == MRC_SEVERAL_OWNERS)
            mrc_division_join(&t->division, t->request.dim, scratch, (float *)(void *)at);
        else
            mrc_rows_move(&to, 0, &t->whole.rows, 0, mrc_request_rows(&t->request), t->request.dim);
        tensors[i].data = at;
        at += mrc_reply_room(tensors[i].bytes);
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
    enum mr_status status = dispatch_find_rows(f, d);
    if (status != MR_OK || reply == NULL)
        return status;
    if (d->request_count == 1 &&
        d->dtype == MR_F32) /* the message has all that the caller gets, as he gets it */
        return mrc_reply_give(f, reply);
    return dispatch_join(d, reply);
}

/* ---- dividing ---- */

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

/* Makes room for a dispatch to so many owners. NULL: no memory. */
static struct dispatch *dispatch_new(const struct mrc_rows_call *c, uint32_t owner_count)
{
    struct dispatch *d = NULL;
    const size_t tables_bytes = c->table_count * sizeof(*d->tables);
    size_t bytes = sizeof(*d) + tables_bytes + c->table_count * owner_count * sizeof(*d->slices);
    uint8_t *divisions = NULL;
    const size_t divisions_at = bytes;
    for (uint32_t t = 0; t < c->table_count && owner_count > 1; t++)
        bytes += mrc_division_bytes(&c->requests[t], owner_count);
    d = malloc(bytes);
    if (d == NULL)
        return NULL;
    memset(d, 0, sizeof(*d) + tables_bytes);
    d->table_count = c->table_count;
    d->one_each = needs_one_each(c);
    d->has_heads = mrc_rows_is_push(c) || !d->one_each;
    d->dtype = c->dtype;
    d->tables = (struct rows_table *)(d + 1);
    d->slices = (struct rows_slice *)(d->tables + c->table_count);
    divisions = (uint8_t *)d + divisions_at;
    for (uint32_t t = 0; t < c->table_count; t++) {
        struct mrc_rows_request *r = &d->tables[t].request;
        *r = c->requests[t];
        d->tables[t].whole = (struct mrc_share){.key_count = r->key_count, .bag_count = r->bag_count};
        if (owner_count <= 1)
            continue;
        d->tables[t].division.memory = divisions;
        divisions += mrc_division_bytes(r, owner_count);
    }
    return d;
}

/* Finds out which owners the table's keys have. */
static enum mr_status table_divide(const struct mrc_rows_call *c, const struct mrc_shard_map *map,
                                   struct rows_table *t)
{
    struct mrc_rows_request *r = &t->request;
    struct mr_feature feature;
    const enum mr_status status =
        mrc_find_feature(c->retry.client, c->retry.options, c->retry.op, r->table, MR_TABLE, &feature);
    if (status != MR_OK)
        return status;
    if (c->retry.op == MR_OP_LOOKUP_TABLES)
        r->dim = feature.dims[0];
    if (map == NULL || map->count == 1) /* that one has all */
        return MR_OK;
    t->owner =
        mrc_divide_by_owner(&t->division, r, map->of_partition, map->count, feature.seed, t->division.memory);
    if (t->owner == MRC_SEVERAL_OWNERS) {
        r->pooling = feature.pooling;
        r->averages = r->offsets != NULL && mr_pooling_averages(feature.pooling);
    }
    return MR_OK;
}

/* Lists what each owner gets, and in which message: the last one, unless it is another owner's, or full. */
static void dispatch_list(struct dispatch *d, uint32_t owner_count)
{
    uint32_t tables = 0, tensors = 0; /* of the last message */
    uint64_t bytes = 0;
    for (uint32_t owner = 0; owner < owner_count; owner++) {
        for (uint32_t i = 0; i < d->table_count; i++) {
            struct rows_table *t = &d->tables[i];
            const bool is_divided = t->owner == MRC_SEVERAL_OWNERS;
            struct mrc_share *share = is_divided ? &t->division.shares[owner] : &t->whole;
            if (is_divided ? share->key_count == 0 : t->owner != owner)
                continue;
            struct rows_slice *s = &d->slices[d->slice_count++];
            *s = (struct rows_slice){.table = t, .share = share, .owner = owner};
            const uint32_t slice_tensors = mrc_rows_tensors(&t->request, d->has_heads);
            const uint64_t slice_bytes =
                (uint64_t)share->key_count * sizeof(*share->keys) +
                (uint64_t)mrc_share_rows(&t->request, share) * t->request.dim * mr_dtype_bytes(d->dtype);
            if (s == d->slices || s[-1].owner != owner || d->one_each || tables == MR_LOOKUP_TABLES_MAX ||
                tensors + slice_tensors > MR_TENSORS_MAX || bytes + slice_bytes > MESSAGE_BYTES_FULL) {
                d->request_count++;
                tables = tensors = 0;
                bytes = 0;
            }
            s->request = d->request_count - 1;
            tables++;
            tensors += slice_tensors;
            bytes += slice_bytes;
            d->tensors_max = tensors > d->tensors_max ? tensors : d->tensors_max;
        }
    }
}

/* ---- sending ---- */

/* Describes the messages; true when room in them is to be filled in before they are sent. */
static bool dispatch_describe(const struct mrc_rows_call *c, struct dispatch *d, struct mr_future *f)
{
    bool has_room = mrc_rows_is_push(c) && d->dtype != MR_F32;
    for (uint32_t t = 0; t < d->table_count; t++)
        d->tables[t].head = request_head(c, &d->tables[t].request);
    for (uint32_t i = 0; i < d->slice_count; i++) {
        const struct rows_slice *s = &d->slices[i];
        struct rows_table *t = s->table;
        const bool is_whole = s->share == &t->whole;
        struct mrc_shard_request *request = &f->requests[s->request];
        request->owner = (uint16_t)s->owner;
        if (!d->has_heads) {
            request->table = (uint16_t)t->request.table;
            request->flags = (uint16_t)(lookup_flags(c) | mrc_rows_flags(&t->request));
        }
        mrc_rows_add(&t->request, f, s->request, d->has_heads ? &t->head : NULL, is_whole ? NULL : s->share);
        has_room |= !is_whole;
    }
    return has_room;
}

/* Fills in what is divided or converted. */
static void dispatch_fill(struct dispatch *d, struct mr_future *f)
{
    for (uint32_t i = 0, tensor = 0; i < d->slice_count; i++) {
        const struct rows_slice *s = &d->slices[i];
        const struct mrc_rows_request *r = &s->table->request;
        if (slice_is_first(d, i))
            tensor = 0;
        mrc_rows_find(r, f->requests[s->request].tensors + tensor, d->has_heads, s->share);
        tensor += mrc_rows_tensors(r, d->has_heads);
        if (s->share == &s->table->whole && r->gradients.values != NULL && d->dtype != MR_F32)
            mrc_rows_move(&s->share->rows, 0, &r->gradients, 0, mrc_request_rows(r), r->dim);
    }
    for (uint32_t t = 0; t < d->table_count; t++)
        if (d->tables[t].owner == MRC_SEVERAL_OWNERS)
            mrc_division_fill(&d->tables[t].division);
}

/* Divides the tables by owner, and sends a request to each. `map` NULL: the call itself reports why. */
static enum mr_status send_divided(struct mrc_rows_call *c, const struct mrc_shard_map *map,
                                   struct mr_reply **reply)
{
    const uint32_t owner_count = map == NULL ? 1 : map->count;
    struct dispatch *d = NULL;
    struct mr_future *f;
    enum mr_status status = mrc_check_process(c->retry.client, mr_op_name(c->retry.op));
    if (status != MR_OK)
        return status;
    d = dispatch_new(c, owner_count);
    if (d == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory to split keys of %u table%s", mr_op_name(c->retry.op),
                         c->table_count, mr_plural(c->table_count));
    for (uint32_t t = 0; t < c->table_count && status == MR_OK; t++)
        status = table_divide(c, map, &d->tables[t]);
    if (status == MR_OK) {
        dispatch_list(d, owner_count);
        status = mrc_future_new(c->retry.client, c->retry.options, d->has_heads ? c->retry.op : MR_OP_LOOKUP,
                                c->table_count == 1 ? c->requests[0].table : 0, d->request_count,
                                d->tensors_max, sizeof(struct dispatch *), &f);
    }
    if (status != MR_OK) {
        free(d);
        return status;
    }
    f->memory = d;
    *(struct dispatch **)f->context = d;
    mrc_retry_future(&c->retry, f);
    if (!mrc_rows_is_push(c)) {
        f->options.flags = lookup_flags(c);
        f->finish = finish_lookup;
    }
    if (dispatch_describe(c, d, f)) {
        status = mrc_future_begin(f);
        if (status != MR_OK) {
            mrc_future_free(f);
            return status;
        }
        dispatch_fill(d, f);
    }
    return mrc_future_run(f, c->retry.options, reply);
}

/* ---- tries ---- */

static enum mr_status rows_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct mrc_rows_call *c = MR_CONTAINER(r, struct mrc_rows_call, retry);
    struct mrc_shard_map *map = mrc_retry_hold_map(r);
    const bool is_whole = r->op != MR_OP_LOOKUP_TABLES && c->table_count == 1 && c->dtype == MR_F32 &&
                          (map == NULL || map->count == 1);
    const enum mr_status status = is_whole ? send_whole(c, reply) : send_divided(c, map, reply);
    mrc_shard_map_release(map);
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

/* Copies an array to *at, whose end it moves. NULL: there is none. */
static const void *copy_array(uint8_t **at, const void *array, size_t bytes)
{
    void *copy = *at;
    if (array == NULL)
        return NULL;
    memcpy(copy, array, bytes);
    *at += bytes;
    return copy;
}

/* Of a lookup. */
static struct mrc_retry *rows_copy(const struct mrc_retry *r)
{
    const struct mrc_rows_call *c = MR_CONTAINER(r, const struct mrc_rows_call, retry);
    size_t bytes = sizeof(*c) + c->table_count * sizeof(*c->requests);
    for (uint32_t t = 0; t < c->table_count; t++)
        bytes += c->requests[t].key_count * (sizeof(uint64_t) + sizeof(float)) +
                 ((size_t)c->requests[t].bag_count + 1) * sizeof(uint32_t) + 8;
    struct mrc_rows_call *copy = malloc(bytes);
    if (copy == NULL)
        return NULL;
    struct mrc_rows_request *requests = (struct mrc_rows_request *)(copy + 1);
    uint8_t *at = (uint8_t *)&requests[c->table_count];

    *copy = *c;
    copy->requests = requests;
    for (uint32_t t = 0; t < c->table_count; t++) {
        struct mrc_rows_request *to = &requests[t];
        *to = c->requests[t];
        at = (uint8_t *)mr_padded((uintptr_t)at);
        to->keys = copy_array(&at, to->keys, to->key_count * sizeof(*to->keys));
        to->weights = copy_array(&at, to->weights, to->key_count * sizeof(*to->weights));
        to->offsets = copy_array(&at, to->offsets, ((size_t)to->bag_count + 1) * sizeof(*to->offsets));
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

/* Runs a call that may be larger than a message. */
__attribute__((noinline)) static enum mr_status rows_run_large(struct mrc_rows_call *c,
                                                               struct mr_reply **reply)
{
    bool is_large;
    const enum mr_status status = mrc_large_check(c, &is_large);
    if (status != MR_OK)
        return status;
    return is_large ? mrc_large_run(c, reply) : mrc_retry_run(&c->retry, reply);
}

enum mr_status mrc_rows_run(struct mrc_rows_call *c, struct mrc_rows_request *requests,
                            struct mr_reply **reply)
{
    const enum mr_status status = mrc_wire_dtype(mr_op_name(c->retry.op), c->retry.options, &c->dtype);
    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < c->table_count; i++)
        requests[i].dtype = c->dtype;
    c->requests = requests;
    return mrc_large_may_be(c) ? rows_run_large(c, reply) : mrc_retry_run(&c->retry, reply);
}
