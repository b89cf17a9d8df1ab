/* Partitions of a cluster that move from one node to another. */
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/move.h"
#include "millrace_admin.h"
#include "trainer_client/api/calls.h"

static const enum mr_move_kind kinds[] = {
    [MR_REQUEST_MOVE] = MR_MOVE_PARTITIONS,    [MR_REQUEST_DRAIN] = MR_MOVE_DRAIN,
    [MR_REQUEST_REBALANCE] = MR_MOVE_BALANCE,  [MR_REQUEST_CANCEL_MOVES] = MR_MOVE_CANCEL,
    [MR_REQUEST_FORGET_NODE] = MR_MOVE_FORGET, [MR_REQUEST_TAKE_OVER] = MR_MOVE_TAKE_OVER};

static enum mr_status calls_moves_check(const struct mr_move_request *r)
{
    const uint32_t kind = (uint32_t)r->kind;
    const char *from = r->from == NULL ? "" : r->from;
    const char *to = r->to == NULL ? "" : r->to;
    if (kind < MR_REQUEST_MOVE || kind > MR_REQUEST_TAKE_OVER)
        return mrc_error(MR_INVALID_ARGUMENT, "mr_move: unknown kind %u", kind);
    if (strlen(from) >= MR_CLUSTER_NAME_BYTES || strlen(to) >= MR_CLUSTER_NAME_BYTES)
        return mrc_bad_argument("mr_move", "a node's name has at most 63 characters");
    const bool needs_node = kind != MR_REQUEST_REBALANCE && kind != MR_REQUEST_CANCEL_MOVES;
    if ((needs_node && from[0] == '\0') || (kind == MR_REQUEST_MOVE && to[0] == '\0'))
        return mrc_bad_argument("mr_move", "a node is not named");
    return MR_OK;
}

/* Keeps which map says so: what is shown afterwards is not older, whichever node answers. */
static enum mr_status finish_move(struct mr_future *f, struct mr_reply **reply)
{
    struct mrc_cluster *cluster = &f->client->cluster;
    const struct mr_tensor *epoch =
        f->requests[0].answer_count > 0 ? mrc_answer_tensor(f, 0, 0, MR_U64, 1) : NULL;
    (void)reply;
    if (epoch == NULL || epoch->dims[0] == 0) /* an older version does not tell it */
        return MR_OK;
    const uint64_t moved_epoch = *(const uint64_t *)epoch->data;
    pthread_mutex_lock(&f->client->lock);
    cluster->moved_epoch = moved_epoch > cluster->moved_epoch ? moved_epoch : cluster->moved_epoch;
    pthread_mutex_unlock(&f->client->lock);
    return MR_OK;
}

enum mr_status mr_move(struct mr_client *client, const struct mr_options *options,
                       const struct mr_move_request *request)
{
    char names[2][MR_CLUSTER_NAME_BYTES] = {"", ""};
    if (client == NULL || request == NULL)
        return mrc_bad_argument("mr_move", client == NULL ? "client is NULL" : "request is NULL");
    const enum mr_status status = calls_moves_check(request);
    if (status != MR_OK)
        return status;
    const uint64_t words[MR_MOVE_REQUEST_WORDS] = {[MR_MOVE_REQUEST_KIND] = kinds[request->kind],
                                                   [MR_MOVE_REQUEST_FIRST] =
                                                       request->has_first ? request->first : MR_MOVE_ANY,
                                                   [MR_MOVE_REQUEST_COUNT] = request->count,
                                                   [MR_MOVE_REQUEST_MIB_S] = request->mib_s,
                                                   [MR_MOVE_REQUEST_ID] = request->id};
    (void)snprintf(names[0], sizeof(names[0]), "%s", request->from == NULL ? "" : request->from);
    (void)snprintf(names[1], sizeof(names[1]), "%s", request->to == NULL ? "" : request->to);
    const struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_MOVE_REQUEST, words),
                                         mr_tensor_2d(MR_U8, 2, MR_CLUSTER_NAME_BYTES, names)};
    return mrc_run_core0(client, options, MR_OP_MOVE, tensors, 2, finish_move, NULL, 0);
}

/* ---- what moves ---- */

struct moves_context {
    struct mr_moves_state *state;
    void (*visit)(void *arg, const struct mr_moving *move);
    void *arg;
};

static const char *name_of(const struct mr_tensor *names, uint64_t index)
{
    const char *name = (const char *)names->data + index * MR_CLUSTER_NAME_BYTES;
    return index < names->dims[0] && memchr(name, '\0', MR_CLUSTER_NAME_BYTES) != NULL ? name : NULL;
}

static bool calls_moves_show(const struct moves_context *context, const uint64_t *row,
                             const struct mr_tensor *names)
{
    struct mr_moving move = {.id = row[MR_MOVES_ROW_ID],
                             .from = name_of(names, row[MR_MOVES_ROW_FROM]),
                             .to = name_of(names, row[MR_MOVES_ROW_TO]),
                             .first = (uint32_t)row[MR_MOVES_ROW_FIRST],
                             .count = (uint32_t)row[MR_MOVES_ROW_COUNT],
                             .mib_s = (uint32_t)row[MR_MOVES_ROW_MIB_S],
                             .state = (enum mr_moving_state)row[MR_MOVES_ROW_STATE],
                             .rows = row[MR_MOVES_ROW_ROWS],
                             .bytes = row[MR_MOVES_ROW_BYTES],
                             .left_bytes = row[MR_MOVES_ROW_LEFT_BYTES],
                             .us = row[MR_MOVES_ROW_US]};
    if (move.from == NULL || move.to == NULL)
        return false;
    char from[MR_CLUSTER_NAME_BYTES], to[MR_CLUSTER_NAME_BYTES];
    (void)mr_printable(from, sizeof(from), move.from, strlen(move.from));
    (void)mr_printable(to, sizeof(to), move.to, strlen(move.to));
    move.from = from;
    move.to = to;
    if (context->visit != NULL)
        context->visit(context->arg, &move);
    return true;
}

static enum mr_status finish_moves(struct mr_future *f, struct mr_reply **reply)
{
    const struct moves_context *context = f->context;
    uint64_t w[MR_MOVES_WORDS], row[MR_MOVES_ROW_WORDS];
    const struct mr_tensor *rows = mrc_answer_body_rows(f, 0, 1, MR_BODY_MOVES_ROW);
    const struct mr_tensor *names = mrc_answer_tensor(f, 0, 2, MR_U8, 2);
    (void)reply;
    if (!mrc_answer_body(f, 0, 0, MR_BODY_MOVES, w) || rows == NULL || names == NULL ||
        names->dims[0] > MR_CLUSTER_NODES_MAX || names->dims[1] != MR_CLUSTER_NAME_BYTES)
        return mrc_answer_garbled(f, 0);
    const enum mr_status status = mrc_check_epoch(f, w[MR_MOVES_EPOCH]);
    if (status != MR_OK)
        return status;
    *context->state = (struct mr_moves_state){
        .epoch = w[MR_MOVES_EPOCH], .count = rows->dims[0], .balances = w[MR_MOVES_BALANCES] != 0};
    for (uint32_t i = 0; i < names->dims[0]; i++)
        context->state->drained += (uint32_t)(w[MR_MOVES_DRAINED + i / 64] >> i % 64 & 1);
    for (uint32_t i = 0; i < rows->dims[0]; i++) {
        mr_body_read_row(MR_BODY_MOVES_ROW, rows, i, row);
        if (!calls_moves_show(context, row, names))
            return mrc_answer_garbled(f, 0);
    }
    return MR_OK;
}

enum mr_status mr_moves(struct mr_client *client, const struct mr_options *options,
                        struct mr_moves_state *state, void (*visit)(void *arg, const struct mr_moving *move),
                        void *arg)
{
    const struct moves_context context = {state, visit, arg};
    if (client == NULL || state == NULL)
        return mrc_bad_argument("mr_moves", client == NULL ? "client is NULL" : "state is NULL");
    return mrc_run_core0(client, options, MR_OP_MOVES, NULL, 0, finish_moves, &context, sizeof(context));
}
