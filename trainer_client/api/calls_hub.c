/* The calls to the hub: StartSample, ReadSample and its state; and the keys that it makes. */
#include <string.h>
#include "millrace_observe.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/api/slot_key.h"

#define HELD_OUT_SHARE_MAX 0.9

/* ---- StartSample ---- */

static enum mr_status finish_start(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_sample_info *const *info = f->context;
    uint64_t w[MR_SAMPLE_INFO_WORDS];
    if (!mrc_answer_body(f, 0, 0, MR_BODY_SAMPLE_INFO, w))
        return mrc_answer_garbled(f, 0);

    if (*info != NULL)
        **info = (struct mr_sample_info){.samples = w[MR_SAMPLE_INFO_SAMPLES],
                                         .slots = (uint32_t)w[MR_SAMPLE_INFO_SLOTS],
                                         .dense = (uint32_t)w[MR_SAMPLE_INFO_DENSE],
                                         .stream = (uint32_t)w[MR_SAMPLE_INFO_STREAM],
                                         .batches = w[MR_SAMPLE_INFO_BATCHES],
                                         .keys = w[MR_SAMPLE_INFO_KEYS],
                                         .broken_lines = w[MR_SAMPLE_INFO_BROKEN_LINES]};
    return MR_OK;
}

static enum mr_status check_plan(const struct mr_client *hub, const struct mr_sample_plan *plan)
{
    const char *call = "mr_start_sample";
    if (hub == NULL || plan == NULL)
        return mrc_bad_argument(call, hub == NULL ? "hub is NULL" : "plan is NULL");
    if (plan->path == NULL || plan->format == NULL || plan->table == NULL)
        return mrc_bad_argument(call, plan->path == NULL     ? "plan.path is NULL"
                                      : plan->format == NULL ? "plan.format is NULL"
                                                             : "plan.table is NULL");
    if (plan->batch_samples == 0)
        return mrc_bad_argument(call, "plan.batch_samples is 0");
    if (plan->epochs == 0)
        return mrc_bad_argument(call, "plan.epochs is 0");
    if (!(plan->held_out_share >= 0 && plan->held_out_share <= HELD_OUT_SHARE_MAX))
        return mrc_bad_argument(call, "plan.held_out_share must be from 0 to 0.9");
    if (plan->part > MR_PART_HELD_OUT)
        return mrc_bad_argument(call, "plan.part must be MR_PART_TRAIN or MR_PART_HELD_OUT");
    return MR_OK;
}

static struct mr_tensor text_tensor(const char *text)
{
    return mr_tensor_1d(MR_U8, (uint32_t)strlen(text), text);
}

enum mr_status mr_start_sample(struct mr_client *hub, const struct mr_options *options,
                               const struct mr_sample_plan *plan, struct mr_sample_info *info)
{
    enum mr_status status = check_plan(hub, plan);
    if (status != MR_OK)
        return status;
    const uint64_t words[MR_SAMPLE_PLAN_WORDS] = {[MR_SAMPLE_PLAN_BATCH_SAMPLES] = plan->batch_samples,
                                                  [MR_SAMPLE_PLAN_EPOCHS] = plan->epochs,
                                                  [MR_SAMPLE_PLAN_SHUFFLE_SEED] = plan->shuffle_seed,
                                                  [MR_SAMPLE_PLAN_HELD_OUT_PPM] =
                                                      (uint64_t)(plan->held_out_share * 1e6 + 0.5),
                                                  [MR_SAMPLE_PLAN_PART] = plan->part,
                                                  [MR_SAMPLE_PLAN_STRICT] = plan->strict ? 1 : 0,
                                                  [MR_SAMPLE_PLAN_RUN] = plan->run};
    struct mr_tensor tensors[4] = {text_tensor(plan->path), text_tensor(plan->format),
                                   mr_body_tensor(MR_BODY_SAMPLE_PLAN, words), text_tensor(plan->table)};

    return mrc_run_core0(hub, options, MR_OP_START_SAMPLE, tensors, 4, finish_start, &info, sizeof(void *));
}

/* ---- ReadSample ---- */

static enum mr_status finish_read(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_batch *const *batch = f->context;
    uint64_t w[MR_SAMPLE_BATCH_WORDS];
    const struct mr_tensor *dense = mrc_answer_tensor(f, 0, 1, MR_F32, 2);
    const struct mr_tensor *labels = mrc_answer_tensor(f, 0, 2, MR_F32, 1);
    if (!mrc_answer_body(f, 0, 0, MR_BODY_SAMPLE_BATCH, w) || dense == NULL || labels == NULL ||
        w[MR_SAMPLE_BATCH_SAMPLES] != labels->dims[0] || w[MR_SAMPLE_BATCH_SAMPLES] != dense->dims[0])
        return mrc_answer_garbled(f, 0);
    struct mr_reply *view = mrc_reply_view(f);

    if (view == NULL)
        return MR_NO_MEMORY;
    **batch = (struct mr_batch){.id = w[MR_SAMPLE_BATCH_ID],
                                .samples = (uint32_t)w[MR_SAMPLE_BATCH_SAMPLES],
                                .epoch = (uint32_t)w[MR_SAMPLE_BATCH_EPOCH],
                                .dense = dense->data,
                                .labels = labels->data,
                                .reply = view};
    return MR_OK;
}

enum mr_status mr_read_sample(struct mr_client *hub, const struct mr_options *options, const uint64_t *done,
                              uint32_t done_count, struct mr_batch *batch)
{
    if (hub == NULL || batch == NULL)
        return mrc_bad_argument("mr_read_sample", hub == NULL ? "hub is NULL" : "batch is NULL");
    if (done == NULL && done_count > 0)
        return mrc_bad_argument("mr_read_sample", "done is NULL");
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, done_count, done);

    return mrc_run_core0(hub, options, MR_OP_READ_SAMPLE, &tensor, 1, finish_read, &batch, sizeof(void *));
}

/* ---- state ---- */

static enum mr_status finish_status(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_hub_status *const *status = f->context;
    uint64_t w[MR_HUB_WORDS];
    if (!mrc_answer_body(f, 0, 0, MR_BODY_HUB, w))
        return mrc_answer_garbled(f, 0);

    **status = (struct mr_hub_status){.samples_read = w[MR_HUB_SAMPLES_READ],
                                      .batches_handed_out = w[MR_HUB_HANDED_OUT],
                                      .batches_applied = w[MR_HUB_APPLIED],
                                      .batches_handed_again = w[MR_HUB_HANDED_AGAIN],
                                      .batches_expired = w[MR_HUB_EXPIRED],
                                      .broken_lines = w[MR_HUB_BROKEN_LINES],
                                      .trainers = w[MR_HUB_TRAINERS],
                                      .batches_fed = w[MR_HUB_FED],
                                      .batches_waiting = w[MR_HUB_WAITING],
                                      .epoch = w[MR_HUB_EPOCH],
                                      .at_end = w[MR_HUB_IS_AT_END] != 0};
    return MR_OK;
}

enum mr_status mr_hub_status(struct mr_client *hub, const struct mr_options *options,
                             struct mr_hub_status *status)
{
    if (hub == NULL || status == NULL)
        return mrc_bad_argument("mr_hub_status", hub == NULL ? "hub is NULL" : "status is NULL");
    return mrc_run_core0(hub, options, MR_OP_HUB_STATUS, NULL, 0, finish_status, &status, sizeof(void *));
}

/* ---- keys ---- */

void mr_slot_keys(uint32_t slot, const void *text, const uint32_t *offsets, uint32_t count, uint64_t *keys)
{
    for (uint32_t i = 0; i < count; i++)
        keys[i] = mrc_slot_key(slot, (const char *)text + offsets[i], offsets[i + 1] - offsets[i]);
}
