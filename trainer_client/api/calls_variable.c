/* Variables: whole or a piece, and their gradients. A call has a request for each owner of ranges that it is
 * about (divide.h); one with a single owner is sent and answered without a copy. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/divide.h"
#include "trainer_client/api/rows_message.h"

struct variable_context {
    struct mrc_pieces pieces;
    struct mr_push_head head;
};

/* A call that is being made. */
struct variable_call {
    struct mrc_retry retry;
    uint32_t variable;
    uint64_t first, count; /* elements; count 0: all from `first` on. Of a gradient: its own */
    const float *values;   /* of pushes */
};

/* Finds the variable and the owners of these elements of it, and checks that they are inside. On success
 * pieces->memory is to be freed. */
static enum mr_status variable_divide(struct variable_call *c, uint64_t first, uint64_t count,
                                      struct mrc_pieces *pieces)
{
    struct mr_client *client = c->retry.client;
    const enum mr_op op = c->retry.op;
    struct mr_feature variable;
    enum mr_status status =
        mrc_find_feature(client, c->retry.options, op, c->variable, MR_VARIABLE, &variable);
    if (status != MR_OK)
        return status;
    uint64_t all = mr_variable_elements(&variable);

    if (first >= all || count > all - first)
        return mrc_error(MR_WRONG_SHAPE,
                         "%s: %s: \"%s\" has %" PRIu64 " element%s; [%" PRIu64 ", %" PRIu64 ") is not inside",
                         client->server, mr_op_name(op), variable.name, all, mr_plural(all), first,
                         (first + count));
    static const uint16_t nobody[MR_PARTITION_COUNT]; /* the call itself reports why */
    const uint64_t words[MR_PIECE_WORDS] = {first, count == 0 ? all - first : count};
    struct mrc_shard_map *map = mrc_retry_hold_map(&c->retry);
    bool ok = mrc_divide_pieces(pieces, &variable, map == NULL ? nobody : map->of_partition,
                                map == NULL ? 1 : map->count, words, MR_PIECE_WORDS);

    mrc_shard_map_release(map);
    return ok ? MR_OK : mrc_error(MR_NO_MEMORY, "%s: no memory left", mr_op_name(op));
}

/* Takes over the pieces. */
static enum mr_status variable_future(struct variable_call *c, const struct mrc_pieces *pieces,
                                      struct mr_future **out)
{
    enum mr_status status = mrc_future_new(c->retry.client, c->retry.options, c->retry.op, c->variable,
                                           pieces->share_count, 3, sizeof(struct variable_context), out);
    if (status != MR_OK) {
        free(pieces->memory);
        return status;
    }
    struct mr_future *f = *out;
    struct variable_context *context = f->context;

    mrc_retry_future(&c->retry, f);
    context->pieces = *pieces;
    f->memory = pieces->memory;
    for (uint32_t i = 0; i < f->request_count; i++)
        f->requests[i].owner = pieces->shares[i].owner;
    return MR_OK;
}

/* Adds each owner's pieces. */
static void variable_add_pieces(struct mr_future *f)
{
    const struct variable_context *context = f->context;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mrc_piece_share *share = &context->pieces.shares[i];
        mrc_request_add(f, i, mr_tensor_1d(MR_U64, share->word_count, share->words));
    }
}

/* Adds each owner's share of the values as the last tensor, and runs the call. `whole`: the values as a
 * single owner gets them. */
static enum mr_status variable_run(struct mr_future *f, const struct mr_options *options,
                                   struct mr_tensor whole)
{
    struct variable_context *context = f->context;
    struct mrc_pieces *pieces = &context->pieces;
    if (f->request_count == 1) {
        mrc_request_add(f, 0, whole);
        return mrc_future_run(f, options, NULL);
    }
    for (uint32_t i = 0; i < f->request_count; i++)
        mrc_request_add(f, i, mr_tensor_1d(MR_F32, (uint32_t)pieces->shares[i].elements, NULL));
    enum mr_status status = mrc_future_begin(f);

    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    for (uint32_t i = 0; i < f->request_count; i++)
        pieces->shares[i].values = f->requests[i].tensors[f->requests[i].tensor_count - 1].data;
    mrc_pieces_fill(pieces, whole.data);
    return mrc_future_run(f, options, NULL);
}

/* ---- values ---- */

static enum mr_status variable_push_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct variable_call *c = MR_CONTAINER(r, struct variable_call, retry);
    struct mrc_pieces pieces;
    struct mr_future *f;
    enum mr_status status = variable_divide(c, c->first, c->count, &pieces);
    if (status == MR_OK)
        status = variable_future(c, &pieces, &f);
    if (status != MR_OK)
        return status;
    if (f->request_count == 1)
        mrc_request_add(f, 0, mr_tensor_1d(MR_U64, 1, pieces.words));
    else
        variable_add_pieces(f);
    return variable_run(f, r->options, mr_tensor_1d(MR_F32, (uint32_t)pieces.elements, c->values));
}

enum mr_status mr_variable_push(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, const float *values)
{
    if (client == NULL || values == NULL)
        return mrc_bad_argument("mr_variable_push", client == NULL ? "client is NULL" : "values is NULL");
    struct variable_call c = {.retry = {.client = client,
                                        .options = options,
                                        .op = MR_OP_VARIABLE_PUSH,
                                        .make = variable_push_make,
                                        .is_due = mrc_retry_by_map},
                              .variable = variable,
                              .first = first,
                              .count = count,
                              .values = values};
    return mrc_retry_run(&c.retry, NULL);
}

static enum mr_status variable_pull_finish(struct mr_future *f, struct mr_reply **reply)
{
    struct variable_context *context = f->context;
    struct mrc_pieces *pieces = &context->pieces;
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mr_tensor *values = mrc_answer_tensor(f, i, 0, MR_F32, 1);
        if (values == NULL || values->dims[0] != pieces->shares[i].elements)
            return mrc_answer_garbled(f, i);
        pieces->shares[i].values = values->data;
    }
    if (reply == NULL)
        return MR_OK;
    float *all = mrc_rows_allocate(pieces->elements, 1);

    if (all == NULL)
        return MR_NO_MEMORY;
    mrc_pieces_join(pieces, all);
    struct mr_reply *own = mrc_reply_own(mr_tensor_1d(MR_F32, (uint32_t)pieces->elements, all), all);

    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

static enum mr_status variable_pull_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct variable_call *c = MR_CONTAINER(r, struct variable_call, retry);
    struct mrc_pieces pieces;
    struct mr_future *f;
    enum mr_status status = variable_divide(c, c->first, c->count, &pieces);
    if (status == MR_OK && pieces.elements > UINT32_MAX) {
        free(pieces.memory);
        status =
            mrc_error(MR_TOO_LARGE, "%s: %s: %" PRIu64 " elements are more than fit a reply: pull ranges",
                      r->client->server, mr_op_name(r->op), pieces.elements);
    }
    if (status == MR_OK)
        status = variable_future(c, &pieces, &f);
    if (status != MR_OK)
        return status;
    variable_add_pieces(f);
    if (f->request_count > 1)
        f->finish = variable_pull_finish;
    return mrc_future_run(f, r->options, reply);
}

static struct mrc_retry *variable_pull_copy(const struct mrc_retry *r)
{
    struct variable_call *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return NULL;
    *copy = *MR_CONTAINER(r, const struct variable_call, retry);
    return &copy->retry;
}

enum mr_status mr_variable_pull(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, struct mr_reply **reply)
{
    if (client == NULL)
        return mrc_bad_argument("mr_variable_pull", "client is NULL");
    struct variable_call c = {.retry = {.client = client,
                                        .options = options,
                                        .op = MR_OP_VARIABLE_PULL,
                                        .make = variable_pull_make,
                                        .is_due = mrc_retry_by_map,
                                        .copy = variable_pull_copy},
                              .variable = variable,
                              .first = first,
                              .count = count};
    return mrc_retry_run(&c.retry, reply);
}

/* ---- gradients ---- */

static enum mr_status variable_push_gradient_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct variable_call *c = MR_CONTAINER(r, struct variable_call, retry);
    struct mrc_pieces pieces;
    struct mr_future *f;
    enum mr_status status = variable_divide(c, 0, 0, &pieces);
    if (status == MR_OK && c->count != pieces.elements) {
        free(pieces.memory);
        status = mrc_error(
            MR_WRONG_SHAPE, "%s: push_grad: \"%s\" has %" PRIu64 " element%s, the gradient has %" PRIu64 "",
            r->client->server, pieces.variable.name, pieces.elements, mr_plural(pieces.elements), c->count);
    }
    if (status == MR_OK)
        status = variable_future(c, &pieces, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;
    const struct mr_feature *feature = &context->pieces.variable;
    struct mr_tensor tensor = {.dtype = MR_F32,
                               .rank = feature->rank,
                               .bytes = c->count * sizeof(*c->values),
                               .data = (void *)(uintptr_t)c->values};

    memcpy(tensor.dims, feature->dims, feature->rank * sizeof(tensor.dims[0]));
    context->head = mrc_push_head(c->variable, r->options);
    context->head.flags |= f->request_count > 1 ? MR_PUSH_PIECES : 0;
    for (uint32_t i = 0; i < f->request_count; i++)
        mrc_request_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    if (f->request_count > 1)
        variable_add_pieces(f);
    return variable_run(f, r->options, tensor);
}

enum mr_status mr_variable_push_gradient(struct mr_client *client, const struct mr_options *options,
                                         uint32_t variable, uint64_t count, const float *gradient)
{
    if (client == NULL || gradient == NULL)
        return mrc_bad_argument("mr_variable_push_gradient",
                                client == NULL ? "client is NULL" : "gradient is NULL");
    struct variable_call c = {.retry = {.client = client,
                                        .options = options,
                                        .op = MR_OP_PUSH_GRAD,
                                        .make = variable_push_gradient_make,
                                        .is_due = mrc_retry_by_map},
                              .variable = variable,
                              .count = count,
                              .values = gradient};
    return mrc_retry_run(&c.retry, NULL);
}
