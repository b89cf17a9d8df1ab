#include "trainer_client/api/large_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "trainer_client/api/division.h"
#include "trainer_client/call/joined.h"

#define MIB (UINT64_C(1) << 20)

static bool is_push(const struct mrc_large_call *c)
{
    return c->op == MR_OP_PUSH_GRAD;
}

/* Finds how many floats a row of the request has in messages, at most, and how its bags are pooled. */
static enum mr_status complete_request(const struct mrc_large_call *c, struct mrc_rows_request *r,
                                       uint32_t *floats)
{
    struct mr_feature feature;
    *floats = r->dim;
    if (is_push(c) && r->offsets == NULL)
        return MR_OK;
    enum mr_status status = mrc_find_feature(c->client, c->options, c->op, r->table, MR_TABLE, &feature);

    if (status != MR_OK)
        return status;
    r->pooling = feature.pooling;
    if (!is_push(c))
        *floats = feature.dims[0];
    if (c->is_stored)
        *floats = 3 * feature.dims[0] + 2;
    return MR_OK;
}

enum mr_status mrc_large_check(struct mrc_large_call *c, bool *is_large)
{
    uint64_t bytes = 0;
    enum mr_status status = mrc_check_process(c->client, mr_op_name(c->op));
    c->deadline_us = mrc_deadline_us(c->client, c->options, mr_clock_us());
    for (uint32_t i = 0; i < c->request_count && status == MR_OK; i++) {
        struct mrc_rows_request r = c->requests[i];
        uint32_t floats = 0;
        status = complete_request(c, &r, &floats);
        bytes += mrc_division_bytes(&r, floats);
    }
    *is_large = status == MR_OK && bytes > mrc_large_call_bytes(c->client);
    return status;
}

/* ---- dividing ---- */

/* A part of a table's rows, in the order in which they go. */
struct piece {
    uint32_t request, part; /* of that request's division */
    uint32_t call;
};

/* How a call is divided; arrays are of request_count unless said otherwise. */
struct plan {
    struct mrc_rows_request *requests; /* with what was found about their tables */
    uint32_t *floats;
    struct mrc_division *divisions;
    struct mrc_joined_tensor *tensors;
    uint32_t piece_count, call_count;
    struct piece *pieces;            /* [piece_count] */
    struct mrc_joined_place *places; /* [piece_count] */
};

static void free_plan(const struct mrc_large_call *c, struct plan *p)
{
    for (uint32_t i = 0; i < c->request_count && p->divisions != NULL; i++)
        free(p->divisions[i].memory);
    free(p->requests);
    free(p->floats);
    free(p->divisions);
    free(p->tensors);
    free(p->pieces);
    free(p->places);
}

static enum mr_status no_memory(const struct mrc_large_call *c)
{
    return mrc_error(MR_NO_MEMORY, "%s: no memory to divide a call that is larger than a message",
                     mr_op_name(c->op));
}

/* Reports a bag, or what is pushed to a few keys, that no message holds, with the limit that would have to be
 * raised, unless there is none so high. */
static void report_too_large(const struct mrc_large_call *c, uint32_t table, uint64_t bytes)
{
    const struct mr_client *client = c->client;
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
                       (message_bytes + MIB - 1) / MIB);
    mrc_error_line(
        "%s: %s: %s table %u takes %" PRIu64 " bytes, and a message at most %" PRIu64 " bytes: %s%s",
        client->server, mr_op_name(c->op), is_push(c) ? "what is pushed to a few keys of" : "a bag of", table,
        bytes, mrc_large_call_bytes(client), raise,
        is_push(c) ? "push less to a key at once" : "ask for less at once");
}

static enum mr_status divide_request(const struct mrc_large_call *c, struct plan *p, uint32_t i,
                                     uint64_t part_bytes, uint64_t message_bytes)
{
    enum mr_status status = complete_request(c, &p->requests[i], &p->floats[i]);
    if (status != MR_OK)
        return status;
    struct mrc_division *d = &p->divisions[i];

    if (!mrc_divide(d, &p->requests[i], p->floats[i], part_bytes))
        return no_memory(c);
    if (d->largest_bytes > message_bytes) {
        report_too_large(c, p->requests[i].table, d->largest_bytes);
        return MR_TOO_LARGE;
    }
    p->tensors[i] = (struct mrc_joined_tensor){.rows = mrc_request_rows(&p->requests[i]),
                                               .dim = c->is_stored ? 0 : p->floats[i]};
    p->piece_count += d->part_count;
    return MR_OK;
}

/* Puts pieces together to calls: a table is in a call once. */
static void list_pieces(const struct mrc_large_call *c, struct plan *p, uint64_t part_bytes)
{
    uint64_t bytes = 0;
    struct piece *piece = p->pieces;
    for (uint32_t i = 0; i < c->request_count; i++) {
        const struct mrc_division *d = &p->divisions[i];
        for (uint32_t part = 0; part < d->part_count; part++, piece++) {
            const uint64_t more = mrc_division_part_bytes(d, part);
            if (piece == p->pieces || part > 0 || bytes + more > part_bytes) {
                p->call_count++;
                bytes = 0;
            }
            bytes += more;
            *piece = (struct piece){.request = i, .part = part, .call = p->call_count - 1};
            if (c->has_reply)
                p->places[piece - p->pieces] =
                    (struct mrc_joined_place){.tensor = i,
                                              .row = d->first[part],
                                              .rows = d->first[part + 1] - d->first[part],
                                              .call = piece->call};
        }
    }
}

static enum mr_status make_plan(const struct mrc_large_call *c, struct plan *p)
{
    const size_t count = c->request_count;
    /* The requests of all parts in flight take a quarter of the memory: they find room beside each other. */
    const uint32_t share_bytes = c->client->link_config.memory_bytes / (4 * MRC_JOINED_IN_FLIGHT);
    const uint64_t part_bytes = mrc_large_bytes_max(c->client, share_bytes),
                   message_bytes = mrc_large_call_bytes(c->client);
    enum mr_status status = MR_OK;

    p->requests = malloc(count * sizeof(*p->requests));
    p->floats = malloc(count * sizeof(*p->floats));
    p->divisions = calloc(count, sizeof(*p->divisions));
    p->tensors = malloc(count * sizeof(*p->tensors));
    if (p->requests == NULL || p->floats == NULL || p->divisions == NULL || p->tensors == NULL)
        return no_memory(c);
    memcpy(p->requests, c->requests, count * sizeof(*p->requests));
    for (uint32_t i = 0; i < count && status == MR_OK; i++)
        status = divide_request(c, p, i, part_bytes, message_bytes);
    if (status != MR_OK)
        return status;
    p->pieces = malloc(p->piece_count * sizeof(*p->pieces));
    p->places = malloc(p->piece_count * sizeof(*p->places));
    if (p->pieces == NULL || p->places == NULL)
        return no_memory(c);
    list_pieces(c, p, part_bytes);
    return MR_OK;
}

/* ---- the calls ---- */

/* The requests of a call, and what was put together for them; used again for the next. */
struct assembly {
    struct mrc_rows_request *requests; /* [request_count] */
    uint32_t count;
    uint8_t *room;
    size_t room_bytes;
};

static size_t room_of(const struct plan *p, const struct piece *piece)
{
    return mrc_division_room_bytes(&p->divisions[piece->request], piece->part);
}

/* Puts the requests together that begin with this piece. False: no memory. */
static bool assemble(const struct plan *p, uint32_t first, struct assembly *a)
{
    size_t bytes = 0;
    uint32_t end = first;
    for (; end < p->piece_count && p->pieces[end].call == p->pieces[first].call; end++)
        bytes += room_of(p, &p->pieces[end]);
    if (bytes > a->room_bytes) {
        free(a->room);
        a->room = malloc(bytes);
        a->room_bytes = a->room == NULL ? 0 : bytes;
        if (a->room == NULL)
            return false;
    }
    uint8_t *at = a->room;

    a->count = end - first;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct piece *piece = &p->pieces[first + i];
        mrc_division_part(&p->divisions[piece->request], piece->part, at, &a->requests[i]);
        if (at != NULL)
            at += room_of(p, piece);
    }
    return true;
}

/* Makes the calls one after the other, until one fails. */
static void make_calls(const struct mrc_large_call *c, const struct plan *p, struct mrc_joined *j)
{
    struct assembly a = {.requests = malloc(c->request_count * sizeof(*a.requests))};
    enum mr_status status = a.requests == NULL ? no_memory(c) : MR_OK;
    for (uint32_t at = 0; at < p->piece_count && status == MR_OK; at += a.count) {
        if (!assemble(p, at, &a)) {
            status = no_memory(c);
            break;
        }
        const struct mr_options *options = mrc_joined_next(j);
        if (options == NULL)
            break;
        mrc_joined_made(j, c->make(c, options, a.requests, a.count));
    }
    if (status != MR_OK)
        mrc_joined_made(j, status);
    free(a.room);
    free(a.requests);
}

enum mr_status mrc_large_run(const struct mrc_large_call *c, struct mr_reply **reply)
{
    struct plan p = {0};
    struct mrc_joined *j = NULL;
    enum mr_status status = make_plan(c, &p);
    if (status == MR_OK) {
        const struct mrc_joined_plan plan = {.deadline_us = c->deadline_us,
                                             .call_count = p.call_count,
                                             .tensor_count = c->has_reply ? c->request_count : 0,
                                             .place_count = c->has_reply ? p.piece_count : 0,
                                             .tensors = p.tensors,
                                             .places = p.places};
        status = mrc_joined_new(c->client, c->options, c->op, &plan, &j);
    }
    if (status == MR_OK)
        make_calls(c, &p, j);
    free_plan(c, &p);
    return status == MR_OK ? mrc_joined_run(j, reply) : status;
}
