/* Variables: whole or a piece, and their gradients. A call has a part for each owner of ranges that it is
 * about (pieces.h); one with a single owner is sent and answered without a copy. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/pieces.h"
#include "trainer_client/api/rows_answer.h"
#include "dataplane/wire/base/clock.h"

struct variable_context {
    struct mrc_pieces pieces;
    struct mr_push_head head;
};

/* The owners of a piece of a variable, and the map that says so. */
struct place {
    struct mrc_attempt attempt;
    struct mrc_pieces pieces;
};

/* Finds the variable and the owners of a piece of it, and checks that; a count of 0 means all from `first`
 * on. On success place->pieces.memory is to be freed. */
static enum mr_status find_place(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                                 uint32_t id, uint64_t first, uint64_t count, struct place *place)
{
    struct mr_feature variable;
    enum mr_status status = mrc_find_feature(client, options, op, id, MR_VARIABLE, &variable);
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
    struct mrc_owners *owners = mrc_owners_hold(client);
    bool ok = mrc_pieces_split(&place->pieces, &variable, owners == NULL ? nobody : owners->of_partition,
                               owners == NULL ? 1 : owners->count, words, MR_PIECE_WORDS);

    if (owners != NULL)
        place->attempt.map_changes = owners->changes;
    mrc_owners_release(owners);
    return ok ? MR_OK : mrc_error(MR_NO_MEMORY, "%s: no memory left", mr_op_name(op));
}

/* Takes over the pieces of the place. */
static enum mr_status new_call(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                               uint32_t feature, const struct place *place, struct mr_future **out)
{
    const struct mrc_pieces *pieces = &place->pieces;
    enum mr_status status = mrc_future_new(client, options, op, feature, pieces->share_count, 3,
                                           sizeof(struct variable_context), out);
    if (status != MR_OK) {
        free(pieces->memory);
        return status;
    }
    struct mr_future *f = *out;
    struct variable_context *context = f->context;

    context->pieces = *pieces;
    f->memory = pieces->memory;
    for (uint32_t i = 0; i < f->part_count; i++)
        f->parts[i].owner = pieces->shares[i].owner;
    f->map_changes = place->attempt.map_changes;
    f->options.deadline_us = place->attempt.deadline_us;
    return MR_OK;
}

static struct place calls_variable_begin(struct mr_client *client, const struct mr_options *options)
{
    struct place place = {.attempt.deadline_us = mrc_deadline_us(client, options, mr_clock_us())};
    (void)mrc_cores_of_map(client, &place.attempt.map_changes);
    return place;
}

/* Adds each owner's pieces. */
static void add_pieces(struct mr_future *f)
{
    const struct variable_context *context = f->context;
    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mrc_piece_share *share = &context->pieces.shares[i];
        mrc_part_add(f, i, mr_tensor_1d(MR_U64, share->word_count, share->words));
    }
}

/* Adds each owner's share of the values as the last tensor, and runs the call. `whole`: the values as a
 * single owner gets them. */
static enum mr_status run_with_values(struct mr_future *f, const struct mr_options *options,
                                      struct mr_tensor whole)
{
    struct variable_context *context = f->context;
    struct mrc_pieces *pieces = &context->pieces;
    if (f->part_count == 1) {
        mrc_part_add(f, 0, whole);
        return mrc_future_run(f, options, NULL);
    }
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_part_add(f, i, mr_tensor_1d(MR_F32, (uint32_t)pieces->shares[i].elements, NULL));
    enum mr_status status = mrc_future_begin(f);

    if (status != MR_OK) {
        mrc_future_free(f);
        return status;
    }
    for (uint32_t i = 0; i < f->part_count; i++)
        pieces->shares[i].values = f->parts[i].tensors[f->parts[i].tensor_count - 1].data;
    mrc_pieces_deal(pieces, whole.data);
    return mrc_future_run(f, options, NULL);
}

static enum mr_status push_once(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, const float *values, struct place *place)
{
    struct mr_future *f;
    enum mr_status status = find_place(client, options, MR_OP_VARIABLE_PUSH, variable, first, count, place);
    if (status == MR_OK)
        status = new_call(client, options, MR_OP_VARIABLE_PUSH, variable, place, &f);
    if (status != MR_OK)
        return status;
    const struct variable_context *context = f->context;
    const struct mrc_pieces *pieces = &context->pieces;

    if (f->part_count == 1)
        mrc_part_add(f, 0, mr_tensor_1d(MR_U64, 1, pieces->words));
    else
        add_pieces(f);
    return run_with_values(f, options, mr_tensor_1d(MR_F32, (uint32_t)pieces->elements, values));
}

enum mr_status mr_variable_push(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, const float *values)
{
    if (client == NULL || values == NULL)
        return mrc_bad_argument("mr_variable_push", client == NULL ? "client is NULL" : "values is NULL");
    struct place place = calls_variable_begin(client, options);
    enum mr_status status;

    do {
        status = push_once(client, options, variable, first, count, values, &place);
    } while (mrc_is_overtaken(client, MR_OP_VARIABLE_PUSH, &place.attempt, status));
    return status;
}

static enum mr_status finish_pull(struct mr_future *f, struct mr_reply **reply)
{
    struct variable_context *context = f->context;
    struct mrc_pieces *pieces = &context->pieces;
    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mr_tensor *values = mrc_part_tensor(f, i, 0, MR_F32, 1);
        if (values == NULL || values->dims[0] != pieces->shares[i].elements)
            return mrc_part_garbled(f, i);
        pieces->shares[i].values = values->data;
    }
    if (reply == NULL)
        return MR_OK;
    float *all = mrc_rows_allocate(pieces->elements, 1);

    if (all == NULL)
        return MR_NO_MEMORY;
    mrc_pieces_collect(pieces, all);
    struct mr_reply *own = mrc_reply_own(mr_tensor_1d(MR_F32, (uint32_t)pieces->elements, all), all);

    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}

static enum mr_status pull_once(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, struct place *place, struct mr_reply **reply)
{
    struct mr_future *f;
    enum mr_status status = find_place(client, options, MR_OP_VARIABLE_PULL, variable, first, count, place);
    if (status == MR_OK && place->pieces.elements > UINT32_MAX) {
        free(place->pieces.memory);
        status =
            mrc_error(MR_TOO_LARGE, "%s: %s: %" PRIu64 " elements are more than fit a reply: pull ranges",
                      client->server, mr_op_name(MR_OP_VARIABLE_PULL), place->pieces.elements);
    }
    if (status == MR_OK)
        status = new_call(client, options, MR_OP_VARIABLE_PULL, variable, place, &f);
    if (status != MR_OK)
        return status;
    add_pieces(f);
    if (f->part_count > 1)
        f->finish = finish_pull;
    return mrc_future_run(f, options, reply);
}

/* A call with a future, to be made again when the owners changed before all had answered. */
struct kept_pull {
    struct mrc_again again;
    struct mr_client *client;
    uint32_t variable;
    uint64_t first, count;
};

static enum mr_status pull_again(const struct mrc_again *again, const struct mr_options *options)
{
    const struct kept_pull *kept = MR_CONTAINER(again, const struct kept_pull, again);
    return mr_variable_pull(kept->client, options, kept->variable, kept->first, kept->count, NULL);
}

/* Without memory the call will not be made again. */
static void keep_pull(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                      uint64_t first, uint64_t count)
{
    struct kept_pull *kept = malloc(sizeof(*kept));
    if (kept == NULL)
        return;
    *kept = (struct kept_pull){
        .again.make = pull_again, .client = client, .variable = variable, .first = first, .count = count};
    mrc_again_keep(&kept->again, options);
}

enum mr_status mr_variable_pull(struct mr_client *client, const struct mr_options *options, uint32_t variable,
                                uint64_t first, uint64_t count, struct mr_reply **reply)
{
    if (client == NULL)
        return mrc_bad_argument("mr_variable_pull", "client is NULL");
    struct place place = calls_variable_begin(client, options);
    enum mr_status status;

    do {
        status = pull_once(client, options, variable, first, count, &place, reply);
    } while (mrc_is_overtaken(client, MR_OP_VARIABLE_PULL, &place.attempt, status));
    if (status == MR_OK && options != NULL && options->future != NULL)
        keep_pull(client, options, variable, first, count);
    return status;
}

static enum mr_status push_gradient_once(struct mr_client *client, const struct mr_options *options,
                                         uint32_t variable, uint64_t count, const float *gradient,
                                         struct place *place)
{
    struct mr_future *f;
    enum mr_status status = find_place(client, options, MR_OP_PUSH_GRAD, variable, 0, 0, place);
    if (status == MR_OK && count != place->pieces.elements) {
        free(place->pieces.memory);
        status = mrc_error(MR_WRONG_SHAPE,
                           "%s: push_grad: \"%s\" has %" PRIu64 " element%s, the gradient has %" PRIu64 "",
                           client->server, place->pieces.variable.name, place->pieces.elements,
                           mr_plural(place->pieces.elements), count);
    }
    if (status == MR_OK)
        status = new_call(client, options, MR_OP_PUSH_GRAD, variable, place, &f);
    if (status != MR_OK)
        return status;
    struct variable_context *context = f->context;
    const struct mr_feature *feature = &context->pieces.variable;
    struct mr_tensor tensor = {.dtype = MR_F32,
                               .rank = feature->rank,
                               .bytes = count * sizeof(*gradient),
                               .data = (void *)(uintptr_t)gradient};

    memcpy(tensor.dims, feature->dims, feature->rank * sizeof(tensor.dims[0]));
    context->head = mrc_push_head(variable, options);
    context->head.flags |= f->part_count > 1 ? MR_PUSH_PIECES : 0;
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &context->head));
    if (f->part_count > 1)
        add_pieces(f);
    return run_with_values(f, options, tensor);
}

enum mr_status mr_variable_push_gradient(struct mr_client *client, const struct mr_options *options,
                                         uint32_t variable, uint64_t count, const float *gradient)
{
    if (client == NULL || gradient == NULL)
        return mrc_bad_argument("mr_variable_push_gradient",
                                client == NULL ? "client is NULL" : "gradient is NULL");
    struct place place = calls_variable_begin(client, options);
    enum mr_status status;

    do {
        status = push_gradient_once(client, options, variable, count, gradient, &place);
    } while (mrc_is_overtaken(client, MR_OP_PUSH_GRAD, &place.attempt, status));
    return status;
}
