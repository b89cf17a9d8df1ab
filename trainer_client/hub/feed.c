/* Feeding: a part's next batch is built and sent to the server, and its answer, in the order of the feeds,
 * makes it ready for trainers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "trainer_client/hub/feeder.h"
#include "trainer_client/hub/kafka/kafka_path.h"
#include "trainer_client/hub/samples/live_input.h"

/* The batch will be refused again. Other reasons pass: memory becomes free, a key gets its right. */
static bool is_batch_fault(enum mr_status status)
{
    return status == MR_INVALID_ARGUMENT || status == MR_BAD_MESSAGE || status == MR_WRONG_DIM ||
           status == MR_WRONG_SHAPE || status == MR_WRONG_DTYPE || status == MR_UNSUPPORTED ||
           status == MR_TOO_LARGE;
}

static void feed_describe(const struct hub_feeder *f, const struct hub_feed *feed, char out[HUB_ERROR_BYTES])
{
    const struct hub_batch *b = &feed->batch;
    const bool is_kafka = hub_kafka_path_is(f->request.path);
    int at = snprintf(out, HUB_ERROR_BYTES, "batch %" PRIu64 " of %.200s", b->sequence, f->request.path);
    if (is_kafka)
        snprintf(out + at, HUB_ERROR_BYTES - (size_t)at, "[%" PRIu32 "]", feed->part);
    else if (f->request.shuffle_seed == 0) /* otherwise its samples are from anywhere */
        snprintf(out + at, HUB_ERROR_BYTES - (size_t)at, " (samples %" PRIu64 " to %" PRIu64 ")",
                 b->first_sample, b->first_sample + b->samples - 1);
}

/* After a feed with this outcome, and mr_last_error(): trainers learn why there is no batch. A batch that is
 * refused a second time fails the plan: the first time may have been a server that had just restarted. */
static void feed_ended(struct hub_feeder *f, const struct hub_feed *feed, enum mr_status status)
{
    const uint64_t id = hub_batch_id(hub_part_at(f, feed->part), feed->batch.sequence);
    char batch[HUB_ERROR_BYTES], error[HUB_ERROR_BYTES];
    if (status == MR_OK || status == MR_ALREADY_LEARNT) {
        if (f->is_refused && f->refused == id) {
            hub_wait_for(f, "%s", "");
            f->is_refused = false;
        }
        return;
    }
    f->retry_us = mr_clock_us() + HUB_SERVER_RETRY_US;
    f->table = status == MR_BATCH_CACHE_FULL ? f->table : 0;
    if (f->said_away || status == MR_BATCH_CACHE_FULL || status == MR_UNKNOWN_TABLE)
        return; /* trainers are told, or are to push what they have */
    feed_describe(f, feed, batch);
    snprintf(error, sizeof(error), "the parameter server refuses %.280s: %.300s", batch, mr_last_error());
    if (!f->is_refused) {
        mr_log_warning("batch_refused", "%s", error);
        hub_wait_for(f, "%s", error);
        f->is_refused = true;
        f->refused = id;
    } else if (f->refused == id && is_batch_fault(status)) {
        hub_fail_plan(f, status, error);
    }
}

static enum mr_status feed_send(struct hub_feeder *f, struct hub_feed *feed)
{
    const struct hub_batch *b = &feed->batch;
    const struct hub_part *part = hub_part_at(f, feed->part);
    const struct mr_batch_keys keys = {.table = f->table,
                                       .samples = b->samples,
                                       .slots = b->slots,
                                       .keys = b->keys,
                                       .offsets = b->offsets,
                                       .weights = b->has_weights ? b->weights : NULL};
    uint64_t words[MR_PLAN_WORDS];
    struct mr_options options = hub_plan_options(&part->identity, words);
    options.future = &feed->future;
    return mr_feed_sample(f->client, &options, hub_batch_id(part, b->sequence), &keys, 1,
                          f->request.held_out);
}

/* The batch is not fed after all: it has not come yet, or need not go to a trainer. */
static void feed_give_up(struct hub_feeder *f, struct hub_feed *feed, uint64_t sequence)
{
    pthread_mutex_lock(&f->hub->lock);
    hub_plan_fed(&hub_part_at(f, feed->part)->plan, sequence, feed->generation, false);
    feed->used = false;
    pthread_mutex_unlock(&f->hub->lock);
}

/* No part has a batch now. */
static void note_no_samples(struct hub_feeder *f)
{
    const char *trouble = hub_batch_source_trouble(f->source);
    const bool is_trouble = trouble[0] != '\0';
    if (f->said_no_samples && f->said_trouble == is_trouble)
        return;
    if (is_trouble) {
        mr_log_warning("input_away", "%s: waiting for the brokers: %s", f->request.path, trouble);
        hub_wait_for(f, "the hub waits for the brokers of %.200s: %s", f->request.path, trouble);
    } else {
        if (f->said_trouble)
            mr_log_info("input_back", "%s: the brokers are back", f->request.path);
        hub_wait_for(f, "the hub waits for more samples from %.200s",
                     strcmp(f->request.path, HUB_STANDARD_INPUT) == 0 ? "its standard input"
                                                                      : f->request.path);
    }
    f->said_no_samples = true;
    f->said_trouble = is_trouble;
}

static void note_samples_came(struct hub_feeder *f)
{
    if (f->said_trouble)
        mr_log_info("input_back", "%s: the brokers are back", f->request.path);
    if (f->said_no_samples)
        hub_wait_for(f, "%s", "");
    f->said_no_samples = f->said_trouble = false;
}

/* Has the server record a batch without samples as applied, as no trainer can: as one sample without keys. */
static enum mr_status feed_push_empty(struct hub_feeder *f, const struct hub_part *part, uint64_t id,
                                      uint32_t slots)
{
    uint32_t *offsets = calloc(slots + 1, sizeof(*offsets));
    float *zeros = calloc((size_t)slots * f->table_dim, sizeof(*zeros));
    enum mr_status status = MR_NO_MEMORY;
    if (offsets != NULL && zeros != NULL) {
        const struct mr_batch_keys keys = {
            .table = f->table, .samples = 1, .slots = slots, .offsets = offsets};
        const struct mr_batch_gradient gradient = {f->table,
                                                   mr_tensor_3d(MR_F32, 1, slots, f->table_dim, zeros)};
        uint64_t words[MR_PLAN_WORDS];
        const struct mr_options options = hub_plan_options(&part->identity, words);
        status = mr_feed_sample(f->client, &options, id, &keys, 1, false);
        if (status == MR_OK || status == MR_ALREADY_LEARNT) /* by some cores: the others need it */
            status = mr_push_gradients_batch(f->client, NULL, id, &gradient, 1, NULL);
        (void)mr_forget_batches(f->client, NULL, &id, 1);
    }
    free(offsets);
    free(zeros);
    return status;
}

enum fed {
    FED_NONE,
    FED_WAITS, /* it has room for a batch, and none has come */
    FED_BEGUN,
    FED_APPLIED, /* it was a batch without samples */
};

static enum fed feed_apply_empty(struct hub_feeder *f, struct hub_feed *feed, uint64_t sequence)
{
    struct hub_part *part = hub_part_at(f, feed->part);
    enum mr_status status = MR_OK;
    if (!f->request.held_out) { /* a plan that scores has no record, and pushes nothing */
        status = feed_push_empty(f, part, hub_batch_id(part, sequence), feed->batch.slots);
        hub_server_answered(f, status);
        hub_notice_restart(f);
        hub_check_stream(f, part, status);
    }
    if (status != MR_OK) {
        feed_give_up(f, feed, sequence);
        f->retry_us = mr_clock_us() + HUB_SERVER_RETRY_US;
        f->table = status == MR_BATCH_CACHE_FULL ? f->table : 0;
        return FED_NONE;
    }
    pthread_mutex_lock(&f->hub->lock);
    hub_plan_pushed(&part->plan, sequence, feed->generation);
    feed->used = false;
    pthread_mutex_unlock(&f->hub->lock);
    return FED_APPLIED;
}

static enum fed feed_part(struct hub_feeder *f, uint32_t index)
{
    struct hub *hub = f->hub;
    struct hub_plan *plan = &hub_part_at(f, index)->plan;
    struct hub_feed *feed = NULL;
    uint64_t sequence;
    pthread_mutex_lock(&hub->lock);
    for (uint32_t i = 0; i < hub->config.prefetch && feed == NULL; i++)
        if (!hub->feeds[i].used)
            feed = &hub->feeds[i];
    bool more = feed != NULL && hub_plan_next_feed(plan, &sequence);
    if (more) {
        feed->used = true;
        feed->part = index;
        feed->number = f->feeds++;
        feed->generation = plan->generation;
    }
    pthread_mutex_unlock(&hub->lock);
    if (!more)
        return FED_NONE;
    char error[HUB_ERROR_BYTES];
    uint64_t id = hub_batch_id(hub_part_at(f, index), sequence), begin_ns = mr_trace_begin(hub->trace);
    enum mr_status status = hub_batch_source_build(f->source, index, sequence, &feed->batch, error);
    if (status == MR_NOT_READY) {
        feed_give_up(f, feed, sequence);
        return FED_WAITS;
    }
    note_samples_came(f);
    if (status != MR_OK) {
        hub_fail_plan(f, status, error);
        return FED_NONE;
    }
    if (feed->batch.samples == 0)
        return feed_apply_empty(f, feed, sequence);
    mr_trace_span(hub->trace, HUB_TRACK_FEEDING, "build", begin_ns, id);
    begin_ns = mr_trace_begin(hub->trace);
    status = feed_send(f, feed);
    mr_trace_span(hub->trace, HUB_TRACK_FEEDING, "send feed", begin_ns, id);
    if (status != MR_OK)
        feed_ended(f, feed, status);
    pthread_mutex_lock(&hub->lock);
    hub->samples_read += feed->batch.samples;
    if (status != MR_OK) {
        hub_plan_fed(plan, sequence, feed->generation, false);
        feed->used = false;
    }
    pthread_mutex_unlock(&hub->lock);
    return status == MR_OK ? FED_BEGUN : FED_NONE;
}

bool hub_feed_next(struct hub_feeder *f, bool *has_applied)
{
    bool waits = false;
    for (uint32_t tries = 0; tries < f->hub->parts.count && f->table != 0; tries++) {
        f->turn = (f->turn + 1) % f->hub->parts.count;
        enum fed fed = feed_part(f, f->turn);
        if (fed == FED_BEGUN)
            return true;
        waits |= fed == FED_WAITS;
        *has_applied |= fed == FED_APPLIED;
    }
    if (waits)
        note_no_samples(f);
    return false;
}

static void feed_end(struct hub_feeder *f, struct hub_feed *feed)
{
    struct hub *hub = f->hub;
    struct hub_part *part = hub_part_at(f, feed->part);
    uint64_t begin_ns = mr_trace_begin(hub->trace);
    enum mr_status status = mr_future_wait(feed->future, NULL);
    mr_trace_span(hub->trace, HUB_TRACK_FEEDING, "wait for feed", begin_ns,
                  hub_batch_id(part, feed->batch.sequence));
    mr_future_destroy(feed->future);
    feed->future = NULL;
    hub_server_answered(f, status);
    hub_notice_restart(f);
    hub_check_stream(f, part, status);
    /* Applied by some cores before: what those answer to its push changes nothing, the others need it. */
    bool ok = status == MR_OK || status == MR_ALREADY_LEARNT;
    if (feed->generation == part->plan.generation) /* else its server is gone, and it was no refusal */
        feed_ended(f, feed, status);
    pthread_mutex_lock(&hub->lock);
    hub_plan_fed(&part->plan, feed->batch.sequence, feed->generation, ok);
    feed->ready = true;
    hub_drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

bool hub_feed_end_oldest(struct hub_feeder *f)
{
    struct hub_feed *oldest = NULL;
    for (uint32_t i = 0; i < f->hub->config.prefetch; i++) {
        struct hub_feed *feed = &f->hub->feeds[i];
        if (feed->future != NULL && (oldest == NULL || feed->number < oldest->number))
            oldest = feed;
    }
    if (oldest != NULL)
        feed_end(f, oldest);
    return oldest != NULL;
}
