/* Which batches of a stream the whole node has applied, that is, each of its cores. */
#include <stdlib.h>
#include "trainer_client/api/calls.h"
#include "trainer_client/api/applied_batches.h"

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
