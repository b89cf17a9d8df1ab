#include "trainer_client/api/applied_batches.h"

#include <stdlib.h>
#include "trainer_client/api/calls.h"

static bool applied_has(const struct mrc_applied_batches *set, uint64_t sequence)
{
    if (sequence < set->watermark)
        return true;
    uint64_t bit = sequence - set->watermark;

    return bit / 64 < set->words && (set->bitmap[bit / 64] >> (bit % 64) & 1) != 0;
}

static bool applied_in_all(const struct mrc_applied_batches *sets, uint32_t count, uint64_t sequence)
{
    for (uint32_t i = 0; i < count; i++)
        if (!applied_has(&sets[i], sequence))
            return false;
    return true;
}

bool mrc_applied_by_all(const struct mrc_applied_batches *sets, uint32_t count,
                        struct mrc_applied_batches *out)
{
    uint64_t watermark = UINT64_MAX, end = UINT64_MAX; /* nothing from `end` on is in all of them */
    for (uint32_t i = 0; i < count; i++) {
        uint64_t set_end = sets[i].watermark + (uint64_t)sets[i].words * 64;
        if (sets[i].watermark < watermark)
            watermark = sets[i].watermark;
        if (set_end < end)
            end = set_end;
    }
    while (watermark < end && applied_in_all(sets, count, watermark))
        watermark++;

    uint32_t words = (uint32_t)((end - watermark + 63) / 64);
    uint64_t *bitmap = calloc(words == 0 ? 1 : words, sizeof(*bitmap));

    if (bitmap == NULL)
        return false;
    for (uint64_t sequence = watermark; sequence < end; sequence++)
        if (applied_in_all(sets, count, sequence))
            bitmap[(sequence - watermark) / 64] |= UINT64_C(1) << ((sequence - watermark) % 64);
    while (words > 0 && bitmap[words - 1] == 0)
        words--;
    *out = (struct mrc_applied_batches){.watermark = watermark, .bitmap = bitmap, .words = words};
    return true;
}

/* ---- mr_batch_state(): what all cores of the node have applied ---- */

struct state_context {
    uint64_t stream[1 + MR_PLAN_WORDS]; /* and its plan */
    uint64_t *watermark;
    uint64_t **bitmap;
    uint32_t *bitmap_words;
    struct mrc_applied_batches applied[]; /* of each request, once they are there */
};

static enum mr_status finish_state(struct mr_future *f, struct mr_reply **reply)
{
    struct state_context *context = f->context;
    struct mrc_applied_batches all;
    for (uint32_t i = 0; i < f->request_count; i++) {
        uint64_t words[MR_BATCH_STATE_WORDS];
        const struct mr_tensor *bits = mrc_answer_tensor(f, i, 1, MR_U64, 1);
        if (!mrc_answer_body(f, i, 0, MR_BODY_BATCH_STATE, words) || bits == NULL)
            return mrc_answer_garbled(f, i);
        context->applied[i] = (struct mrc_applied_batches){
            .watermark = words[MR_BATCH_STATE_WATERMARK], .bitmap = bits->data, .words = bits->dims[0]};
    }
    if (!mrc_applied_by_all(context->applied, f->request_count, &all))
        return mrc_error(MR_NO_MEMORY, "mr_batch_state: no memory for the bitmap");
    *context->watermark = all.watermark;
    *context->bitmap = all.bitmap;
    *context->bitmap_words = all.words;
    return MR_OK;
}

struct state_call {
    struct mrc_retry retry;
    struct state_context context; /* of each try's future, but for what the cores answer */
};

static enum mr_status state_make(struct mrc_retry *r, struct mr_reply **reply)
{
    struct state_call *c = MR_CONTAINER(r, struct state_call, retry);
    const struct mr_tensor stream =
        mr_tensor_1d(MR_U64, mrc_add_plan(r->options, c->context.stream), c->context.stream);
    struct mr_future *f;
    enum mr_status status = mrc_future_for_cores(r, 0, &stream, sizeof(struct state_context),
                                                 sizeof(struct mrc_applied_batches), &f);
    if (status != MR_OK)
        return status;
    *(struct state_context *)f->context = c->context;
    f->finish = finish_state;
    return mrc_future_run(f, r->options, reply);
}

enum mr_status mr_batch_state(struct mr_client *client, const struct mr_options *options, uint32_t stream,
                              uint64_t *watermark, uint64_t **bitmap, uint32_t *bitmap_words)
{
    struct state_call c = {.retry = {.client = client,
                                     .options = options,
                                     .op = MR_OP_BATCH_STATE,
                                     .make = state_make,
                                     .is_due = mrc_retry_unexecuted},
                           .context = {.stream = {stream}}};
    if (client == NULL)
        return mrc_bad_argument("mr_batch_state", "client is NULL");
    if (watermark == NULL || bitmap == NULL || bitmap_words == NULL)
        return mrc_bad_argument("mr_batch_state", "watermark, bitmap and bitmap_words must all be given");
    c.context.watermark = watermark;
    c.context.bitmap = bitmap;
    c.context.bitmap_words = bitmap_words;
    return mrc_retry_run(&c.retry, NULL);
}
