#include "trainer_client/api/large_call.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "trainer_client/call/series.h"

/* A table of the call. */
struct large_table {
    struct mrc_rows_request request; /* with what was found about the table */
    uint32_t floats;                 /* of a row in messages, at most */
    struct mrc_division division;
    struct mr_tensor rows; /* of the reply; rows as long as the first answer has them if dims[1] is 0 */
};

/* A share of a table's rows, in the order in which they go. */
struct large_slice {
    uint32_t table, share, call;
    uint32_t first_row, row_count; /* of lookups */
};

struct large_call {
    struct mrc_series series;
    const struct mrc_rows_call *of; /* until all calls are made */
    uint32_t table_count, slice_count;
    uint32_t next_slice; /* whose answer comes next */
    struct large_slice *slices;
    uint8_t *rows; /* of the reply; NULL: no answer has come */
    struct large_table tables[];
};

/* Returns how many bytes of keys and rows go in a message to any node, if the client has so much memory to
 * spare for it. */
static uint64_t bytes_max(const struct mr_client *client, uint32_t memory_bytes)
{
    const uint32_t told = atomic_load_explicit(&client->message_bytes_max, memory_order_relaxed);
    const uint32_t most = told < memory_bytes ? told : memory_bytes;
    return most > 2 * MRC_LARGE_RESERVED_BYTES ? most - MRC_LARGE_RESERVED_BYTES : MRC_LARGE_RESERVED_BYTES;
}

/* Returns how many go in one call: its request and its reply take half of the memory. */
static uint64_t call_bytes_max(const struct mr_client *client)
{
    return bytes_max(client, client->link_config.memory_bytes / 4);
}

/* Finds how many floats a row of the request has in messages, at most, and how its bags are pooled. */
static enum mr_status request_complete(const struct mrc_rows_call *c, struct mrc_rows_request *r,
                                       uint32_t *floats)
{
    struct mr_feature feature;
    *floats = r->dim;
    if (mrc_rows_is_push(c) && r->offsets == NULL)
        return MR_OK;
    enum mr_status status =
        mrc_find_feature(c->retry.client, c->retry.options, c->retry.op, r->table, MR_TABLE, &feature);

    if (status != MR_OK)
        return status;
    r->pooling = feature.pooling;
    if (!mrc_rows_is_push(c))
        *floats = feature.dims[0];
    if ((c->flags & MR_LOOKUP_STORED) != 0 && !mrc_rows_is_push(c))
        *floats = 3 * feature.dims[0] + 2;
    return MR_OK;
}

enum mr_status mrc_large_check(struct mrc_rows_call *c, bool *is_large)
{
    uint64_t bytes = 0;
    enum mr_status status = mrc_check_process(c->retry.client, mr_op_name(c->retry.op));
    c->retry.deadline_us = mrc_deadline_us(c->retry.client, c->retry.options, mr_clock_us());
    for (uint32_t i = 0; i < c->table_count && status == MR_OK; i++) {
        struct mrc_rows_request r = c->requests[i];
        uint32_t floats = 0;
        status = request_complete(c, &r, &floats);
        bytes += mrc_rows_bytes(&r, floats);
    }
    *is_large = status == MR_OK && bytes > call_bytes_max(c->retry.client);
    return status;
}

/* ---- answers ---- */

/* Makes room for all rows. */
static enum mr_status reply_allocate(struct large_call *l)
{
    size_t bytes = MR_TENSOR_ALIGN;
    for (uint32_t t = 0; t < l->table_count; t++)
        bytes += mrc_reply_room(l->tables[t].rows.bytes);
    l->rows = aligned_alloc(MR_TENSOR_ALIGN, bytes);
    if (l->rows == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for a reply of %zu bytes", mr_op_name(l->series.op),
                         bytes);
    uint8_t *at = l->rows;
    for (uint32_t t = 0; t < l->table_count; t++) {
        l->tables[t].rows.data = at;
        at += mrc_reply_room(l->tables[t].rows.bytes);
    }
    return MR_OK;
}

/* Puts the rows of a call's answer where they belong. */
static enum mr_status large_take(struct mrc_series *s, uint32_t call, const struct mr_reply *reply)
{
    struct large_call *l = MR_CONTAINER(s, struct large_call, series);
    for (uint32_t i = 0; l->next_slice < l->slice_count && l->slices[l->next_slice].call == call; i++) {
        const struct large_slice *slice = &l->slices[l->next_slice++];
        const struct mr_tensor *rows = mr_reply_tensor(reply, i);
        struct mr_tensor *to = &l->tables[slice->table].rows;
        const bool is_matrix = rows != NULL && rows->dtype == MR_F32 && rows->rank == 2;
        if (is_matrix && to->dims[1] == 0)
            *to = mr_tensor_2d(MR_F32, to->dims[0], rows->dims[1], NULL);
        if (!is_matrix || rows->dims[0] != slice->row_count || rows->dims[1] != to->dims[1])
            return mrc_reply_garbled(s->client, reply, s->op);
        if (l->rows == NULL) {
            const enum mr_status status = reply_allocate(l);
            if (status != MR_OK)
                return status;
        }
        if (rows->bytes > 0)
            memcpy((float *)to->data + (size_t)slice->first_row * to->dims[1], rows->data, rows->bytes);
    }
    return MR_OK;
}

static enum mr_status large_give(struct mrc_series *s, struct mr_reply **reply)
{
    struct large_call *l = MR_CONTAINER(s, struct large_call, series);
    struct mr_tensor *tensors = malloc(l->table_count * sizeof(*tensors));
    if (tensors == NULL)
        return mrc_error(MR_NO_MEMORY, "no memory for a reply of %u tables", l->table_count);
    for (uint32_t t = 0; t < l->table_count; t++)
        tensors[t] = l->tables[t].rows;
    struct mr_reply *own = mrc_reply_own_all(tensors, l->table_count, l->rows);

    l->rows = NULL;
    free(tensors);
    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

/* ---- dividing ---- */

static void large_free_divisions(struct large_call *l)
{
    for (uint32_t t = 0; t < l->table_count; t++) {
        free(l->tables[t].division.memory);
        l->tables[t].division.memory = NULL;
    }
}

static void large_free(struct mrc_series *s)
{
    struct large_call *l = MR_CONTAINER(s, struct large_call, series);
    large_free_divisions(l);
    free(l->slices);
    free(l->rows);
    free(l);
}

static enum mr_status no_memory(const struct mrc_rows_call *c)
{
    return mrc_error(MR_NO_MEMORY, "%s: no memory to divide a call that is larger than a message",
                     mr_op_name(c->retry.op));
}

/* Reports a bag, or what is pushed to a few keys, that no message holds, with the limit that would have to be
 * raised, unless there is none so high. */
static enum mr_status too_large(const struct mrc_rows_call *c, uint32_t table, uint64_t bytes)
{
    const struct mr_client *client = c->retry.client;
    const uint32_t memory_bytes = client->link_config.memory_bytes;
    const uint64_t message_bytes = bytes + MRC_LARGE_RESERVED_BYTES;
    char raise[128] = "";
    if (message_bytes <= MR_MESSAGE_BYTES_MAX && message_bytes > memory_bytes / 4)
        (void)snprintf(raise, sizeof(raise),
                       "raise memory_bytes = %u of this client to at least %" PRIu64 ", or ", memory_bytes,
                       4 * message_bytes);
    else if (message_bytes <= MR_MESSAGE_BYTES_MAX)
        (void)snprintf(raise, sizeof(raise),
                       "raise transport.message_mib_max there to at least %" PRIu64 ", or ",
                       (message_bytes + MR_MIB - 1) / MR_MIB);
    return mrc_error(MR_TOO_LARGE,
                     "%s: %s: %s table %u takes %" PRIu64 " bytes, and a message at most %" PRIu64
                     " bytes: %s%s",
                     client->server, mr_op_name(c->retry.op),
                     mrc_rows_is_push(c) ? "what is pushed to a few keys of" : "a bag of", table, bytes,
                     call_bytes_max(client), raise,
                     mrc_rows_is_push(c) ? "push less to a key at once" : "ask for less at once");
}

/* Divides each table's rows into shares of at most so many bytes. */
static enum mr_status large_divide(struct large_call *l, uint64_t share_bytes)
{
    const struct mrc_rows_call *c = l->of;
    for (uint32_t i = 0; i < l->table_count; i++) {
        struct large_table *t = &l->tables[i];
        t->request = c->requests[i];
        const enum mr_status status = request_complete(c, &t->request, &t->floats);
        if (status != MR_OK)
            return status;
        if (!mrc_divide_by_bytes(&t->division, &t->request, t->floats, share_bytes))
            return no_memory(c);
        if (t->division.largest_bytes > call_bytes_max(c->retry.client))
            return too_large(c, t->request.table, t->division.largest_bytes);
        t->rows = mr_tensor_2d(MR_F32, mrc_request_rows(&t->request),
                               (c->flags & MR_LOOKUP_STORED) != 0 ? 0 : t->floats, NULL);
        l->slice_count += t->division.share_count;
    }
    return MR_OK;
}

/* Puts shares together to calls of at most so many bytes: a table is in a call once. */
static void large_list(struct large_call *l, uint64_t share_bytes)
{
    uint64_t bytes = 0;
    uint32_t call_count = 0;
    struct large_slice *slice = l->slices;
    for (uint32_t i = 0; i < l->table_count; i++) {
        const struct mrc_division *d = &l->tables[i].division;
        for (uint32_t share = 0; share < d->share_count; share++, slice++) {
            const uint64_t more = mrc_share_bytes(d, share);
            if (call_count == 0 || share > 0 || bytes + more > share_bytes) {
                call_count++;
                bytes = 0;
            }
            bytes += more;
            *slice = (struct large_slice){.table = i,
                                          .share = share,
                                          .call = call_count - 1,
                                          .first_row = d->shares[share].first_bag,
                                          .row_count = d->shares[share].bag_count};
        }
    }
    l->series.call_count = call_count;
}

/* Makes the calls one after the other, until one fails. Their requests are put together in the same room. */
static void large_make(struct large_call *l)
{
    struct mrc_rows_request *requests = malloc(l->table_count * sizeof(*requests));
    uint8_t *room = NULL;
    size_t room_bytes = 0;
    enum mr_status status = requests == NULL ? no_memory(l->of) : MR_OK;
    for (uint32_t first = 0, end = 0; first < l->slice_count && status == MR_OK; first = end) {
        size_t bytes = 0, at = 0;
        for (; end < l->slice_count && l->slices[end].call == l->slices[first].call; end++)
            bytes += mrc_share_room_bytes(&l->tables[l->slices[end].table].division, l->slices[end].share);
        if (bytes > room_bytes) {
            free(room);
            room = malloc(bytes);
            room_bytes = bytes;
            if (room == NULL) {
                status = no_memory(l->of);
                break;
            }
        }
        for (uint32_t i = first; i < end; i++) {
            const struct mrc_division *d = &l->tables[l->slices[i].table].division;
            mrc_share_request(d, l->slices[i].share, room == NULL ? NULL : room + at, &requests[i - first]);
            at += mrc_share_room_bytes(d, l->slices[i].share);
        }
        struct mrc_rows_call call = *l->of;
        call.retry.options = mrc_series_next(&l->series);
        call.requests = requests;
        call.table_count = end - first;
        if (call.retry.options == NULL)
            break;
        mrc_series_made(&l->series, mrc_retry_run(&call.retry, NULL));
    }
    if (status != MR_OK)
        mrc_series_made(&l->series, status);
    free(room);
    free(requests);
}

enum mr_status mrc_large_run(const struct mrc_rows_call *c, struct mr_reply **reply)
{
    /* The requests of all calls in flight take a quarter of the memory: they find room beside each other. */
    const uint64_t share_bytes =
        bytes_max(c->retry.client, c->retry.client->link_config.memory_bytes / (4 * MRC_SERIES_IN_FLIGHT));
    struct large_call *l = calloc(1, sizeof(*l) + c->table_count * sizeof(*l->tables));
    if (l == NULL)
        return no_memory(c);
    l->of = c;
    l->table_count = c->table_count;
    l->series.client = c->retry.client;
    l->series.op = c->retry.op;
    if (c->retry.options != NULL)
        l->series.options = *c->retry.options;
    l->series.deadline_us = c->retry.deadline_us;
    l->series.take = mrc_rows_is_push(c) ? NULL : large_take;
    l->series.give = large_give;
    l->series.free = large_free;
    enum mr_status status = large_divide(l, share_bytes);
    if (status == MR_OK) {
        assert(l->slice_count > 0); /* a table has a share at least */
        l->slices = malloc(l->slice_count * sizeof(*l->slices));
        status = l->slices == NULL ? no_memory(c) : mrc_series_begin(&l->series);
    }
    if (status != MR_OK) {
        mrc_series_free(&l->series);
        return status;
    }
    large_list(l, share_bytes);
    large_make(l);
    large_free_divisions(l);
    return mrc_series_run(&l->series, reply);
}
