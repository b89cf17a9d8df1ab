/* `fm evaluate`: scores of the held-out part, through read-only batches. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/examples/common/fm_model.h"
#include "trainer_client/examples/common/metrics.h"
#include "trainer_client/examples/fm.h"

#define NOT_READY_US 1000u

struct evaluation {
    struct fm_client client;
    struct fm_step step;
    uint64_t samples, samples_max;
    float *scores, *labels; /* [samples_max] */
    bool *seen;             /* [batches]: the hub may hand a batch out twice */
};

static bool prepare(struct evaluation *e)
{
    free(e->scores);
    free(e->labels);
    free(e->seen);
    e->samples = 0;
    e->samples_max = e->client.info.samples;
    e->scores = calloc(e->samples_max + 1, sizeof(*e->scores));
    e->labels = calloc(e->samples_max + 1, sizeof(*e->labels));
    e->seen = calloc(e->client.info.batches + 1, sizeof(*e->seen));
    if (e->scores == NULL || e->labels == NULL || e->seen == NULL) {
        fprintf(stderr, "fm: no memory for %" PRIu64 " scores\n", e->samples_max);
        return false;
    }
    return true;
}

static bool fm_evaluate_start(struct evaluation *e)
{
    return fm_start(&e->client, MR_PART_HELD_OUT) && prepare(e);
}

static enum mr_status score_batch(struct evaluation *e)
{
    struct fm_client *c = &e->client;
    const struct mr_batch *b = &e->step.batch;
    struct mr_reply *pooled, *bias, *dense;
    enum mr_status status = fm_step_begin(&e->step, c);
    if (status == MR_OK)
        status = fm_step_parameters(&e->step, &pooled, &bias, &dense);
    if (status != MR_OK)
        return status;
    const struct mr_tensor *x = mr_reply_tensor(pooled, 0);
    const struct fm_shape shape = {b->samples, c->info.slots, x->dims[2] - 1, c->info.dense};
    if (x->dims[0] != b->samples || x->dims[1] != c->info.slots || x->dims[2] < 1 ||
        shape.factors > FM_FACTORS_MAX || e->samples + b->samples > e->samples_max) {
        status = MR_WRONG_SHAPE;
    } else {
        const struct fm_parameters parameters = {*(const float *)mr_reply_tensor(bias, 0)->data,
                                                 dense != NULL ? mr_reply_tensor(dense, 0)->data : NULL};
        fm_scores(&shape, &parameters, x->data, b->dense, e->scores + e->samples);
        memcpy(e->labels + e->samples, b->labels, b->samples * sizeof(*e->labels));
        e->samples += b->samples;
    }
    mr_reply_free(pooled);
    mr_reply_free(bias);
    mr_reply_free(dense);
    return status;
}

/* A batch from the hub. A batch that the server has lost is not named done, so that the hub feeds it
 * again. */
static bool evaluate_batch(struct evaluation *e, uint64_t *done, uint32_t *done_count)
{
    uint64_t sequence = e->step.batch.id << 16 >> 16;
    enum mr_status status = MR_OK;
    if (sequence >= e->client.info.batches || !e->seen[sequence])
        status = sequence < e->client.info.batches ? score_batch(e) : MR_BAD_MESSAGE;
    if (status == MR_OK) {
        fm_made_progress(&e->client);
        e->seen[sequence] = true;
        *done = e->step.batch.id;
        *done_count = 1;
    }
    fm_step_drop(&e->step);
    return status == MR_OK || fm_may_go_on(&e->client, status, "evaluation");
}

static bool fm_evaluate_run(struct evaluation *e)
{
    uint64_t done = 0;
    uint32_t done_count = 0;
    for (;;) {
        enum mr_status status = mr_read_sample(e->client.hub, NULL, &done, done_count, &e->step.batch);
        bool ok = true;
        switch (status) {
        case MR_OK:
            done_count = 0;
            ok = evaluate_batch(e, &done, &done_count);
            break;
        case MR_END_OF_DATA:
            return true;
        case MR_NOT_STARTED: /* the hub restarted: it begins again, and so do the scores */
            done_count = 0;
            ok = fm_evaluate_start(e);
            break;
        case MR_NOT_READY:
            done_count = 0;
            ok = fm_now_us() - e->client.progress_us < FM_AWAY_US ||
                 fm_may_go_on(&e->client, status, "ReadSample");
            fm_sleep_us(NOT_READY_US);
            break;
        default:
            ok = fm_may_go_on(&e->client, status, "ReadSample");
            break;
        }
        if (!ok)
            return false;
    }
}

static void print_result(struct evaluation *e)
{
    double loss = 0, positives = 0;
    for (uint64_t i = 0; i < e->samples; i++) {
        loss += metric_log_loss(e->scores[i], e->labels[i]);
        positives += (double)e->labels[i];
    }
    double count = e->samples > 0 ? (double)e->samples : 1;
    printf("{\"auc\": %.4f, \"logloss\": %.4f, \"samples\": %" PRIu64 ", \"positive_share\": %.4f}\n",
           metric_auc(e->scores, e->labels, e->samples), loss / count, e->samples, positives / count);
}

static bool all_finite(const struct evaluation *e)
{
    for (uint64_t i = 0; i < e->samples; i++) {
        if (!isfinite(e->scores[i])) {
            fputs("fm: scores are not finite: the training diverged; try a lower --learning-rate\n", stderr);
            return false;
        }
    }
    return true;
}

int fm_evaluate(const struct fm_options *options)
{
    struct evaluation *e = calloc(1, sizeof(*e));
    if (e == NULL || !fm_connect(&e->client, options)) {
        free(e);
        return 1;
    }
    bool ok = fm_find(&e->client) && fm_evaluate_start(e) && fm_evaluate_run(e);
    if (ok && e->samples != e->samples_max) {
        fprintf(stderr, "fm: evaluated %" PRIu64 " of %" PRIu64 " samples\n", e->samples, e->samples_max);
        ok = false;
    }
    ok = ok && all_finite(e);
    if (ok)
        print_result(e);
    fm_step_free(&e->step);
    fm_disconnect(&e->client);
    free(e->scores);
    free(e->labels);
    free(e->seen);
    free(e);
    return ok ? 0 : 1;
}
