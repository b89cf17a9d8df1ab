/* The streams of a plan's parts, among those that the server knows: each is found by its plan, or a free one
 * is taken, and claimed on each core. */
#include "trainer_client/hub/feeder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "millrace_admin.h"
#include "trainer_client/hub/samples/permutation.h"
#include "trainer_client/hub/plan/stream.h"

#define CLAIMS_MAX 8u /* one after the other: each time another hub was faster */

uint64_t hub_batch_id(const struct hub_part *part, uint64_t sequence)
{
    return (uint64_t)part->stream << MR_BATCH_SEQUENCE_BITS | sequence;
}

struct mr_options hub_plan_options(const struct mr_plan *plan, uint64_t words[MR_PLAN_WORDS])
{
    words[0] = plan->request[0];
    words[1] = plan->request[1];
    words[2] = plan->data;
    return (struct mr_options){.plan = words};
}

void hub_check_stream(struct hub_feeder *f, const struct hub_part *part, enum mr_status status)
{
    char error[HUB_ERROR_BYTES];
    if (status == MR_ALREADY_STARTED) {
        snprintf(error, sizeof(error),
                 "the parameter server has given stream %u to another plan since: start this one again",
                 part->stream);
        hub_fail_plan(f, MR_NOT_STARTED, error);
    }
}

static void refuse_changed(struct hub_feeder *f, const struct mr_stream *streams, uint32_t count,
                           uint32_t stream)
{
    char error[HUB_ERROR_BYTES];
    uint64_t applied = 0;
    for (uint32_t i = 0; i < count; i++)
        applied = streams[i].stream == stream ? streams[i].applied : applied;
    snprintf(error, sizeof(error),
             "%.200s holds other samples than when this plan began (batches applied of these: %" PRIu64
             ", stream %u): give the plan another `run` to train on these",
             f->request.path, applied, stream);
    hub_fail_plan(f, MR_ALREADY_STARTED, error);
}

/* Makes the identity of a part whose samples begin here, or where the server's record says that they did.
 * False: it has none yet, or the plan failed. */
static bool identify(struct hub_feeder *f, uint32_t index, uint64_t salt, const struct mr_stream *streams,
                     uint32_t count, struct mr_plan *identity)
{
    char error[HUB_ERROR_BYTES];
    *identity = hub_request_plan(&f->request, 0, salt);
    const struct mr_stream *of_server = hub_stream_of_request(streams, count, identity);
    enum mr_status status = hub_batch_source_begin(
        f->source, index, of_server != NULL ? &of_server->plan[2] : NULL, &identity->data, error);
    if (status != MR_OK && status != MR_NOT_READY)
        hub_fail_plan(f, status, error);
    return status == MR_OK;
}

/* Picks a number for the part; false: the server is away, the part has nothing yet, or the plan failed. */
static bool claim_choose(struct hub_feeder *f, uint32_t index, struct mr_plan *identity, uint32_t *number)
{
    struct mr_stream *streams;
    uint32_t count;
    enum mr_status status = mr_streams(f->client, NULL, &streams, &count);
    hub_server_answered(f, status);
    if (status != MR_OK)
        return false;
    const uint64_t own = hub_batch_source_salt(f->source, index); /* 0: there is but one part */
    const uint64_t salt = f->salt == 0 ? own : own == 0 ? f->salt : hub_mix(f->salt, own);
    if (!identify(f, index, salt, streams, count, identity)) {
        free(streams);
        return false;
    }
    uint32_t preferred = hub_request_stream(&f->request, salt != 0 ? identity->request[0] : 0);
    enum hub_stream_found found = hub_stream_choose(streams, count, identity, preferred, number);
    if (found == HUB_STREAM_CHANGED)
        refuse_changed(f, streams, count, *number);
    else if (found == HUB_STREAM_ADOPTED)
        mr_log_warning("stream_without_plan",
                       "stream %u is from a checkpoint that does not name its plan: taken for this one's",
                       *number);
    free(streams);
    return found != HUB_STREAM_CHANGED;
}

static enum mr_status claim_claim(struct hub_feeder *f, const struct mr_plan *identity, uint32_t number)
{
    uint64_t watermark, *bitmap, words[MR_PLAN_WORDS];
    uint32_t bitmap_words;
    const struct mr_options options = hub_plan_options(identity, words);
    enum mr_status status = mr_batch_state(f->client, &options, number, &watermark, &bitmap, &bitmap_words);
    hub_server_answered(f, status);
    if (status == MR_OK)
        free(bitmap);
    return status;
}

void hub_init_part(struct hub_feeder *f, uint32_t index)
{
    const struct hub_config *config = &f->hub->config;
    hub_plan_init(&hub_part_at(f, index)->plan, hub_batch_source_batches(f->source, index), config->prefetch,
                  config->trainer_timeout_us, f->request.held_out);
}

/* The part has its stream, and begins; its counters stay if it is the one it had. */
static void begin_part(struct hub_feeder *f, uint32_t index, const struct mr_plan *identity, uint32_t number)
{
    struct hub_part *part = hub_part_at(f, index);
    pthread_mutex_lock(&f->hub->lock);
    if (!f->is_again || (part->stream != number && !f->request.held_out))
        hub_init_part(f, index);
    part->identity = *identity;
    part->stream = number;
    part->has_stream = true;
    part->record_us = 0;
    pthread_mutex_unlock(&f->hub->lock);
    f->was_started = true;
}

/* Finds the stream of a part, and claims it on each core. False: not now, or the plan failed. */
static bool claim_stream(struct hub_feeder *f, uint32_t index)
{
    for (uint32_t tries = 0; tries < CLAIMS_MAX; tries++) {
        struct mr_plan identity;
        uint32_t number;
        if (!claim_choose(f, index, &identity, &number))
            break;
        enum mr_status status = claim_claim(f, &identity, number);
        if (status == MR_OK) {
            begin_part(f, index, &identity, number);
            return true;
        }
        if (status != MR_ALREADY_STARTED)
            break;
    }
    f->retry_us = mr_clock_us() + HUB_SERVER_RETRY_US;
    return false;
}

bool hub_claim_streams(struct hub_feeder *f)
{
    char error[HUB_ERROR_BYTES];
    for (uint32_t i = 0; i < f->hub->parts.count; i++) {
        if (hub_part_at(f, i)->has_stream)
            continue;
        enum mr_status status = hub_batch_source_look(f->source, i, error);
        if (status == MR_NOT_READY)
            continue;
        if (status != MR_OK) {
            hub_fail_plan(f, status, error);
            return false;
        }
        if (!claim_stream(f, i))
            return false;
    }
    return true;
}

/* Batches that no trainer has got leave the server if nobody will feed them again under their ids. */
static void forget_feeds(struct hub_feeder *f)
{
    uint64_t ids[HUB_PREFETCH_MAX];
    uint32_t count = 0;
    if (f->salt == 0 || f->client == NULL)
        return;
    pthread_mutex_lock(&f->hub->lock);
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++)
        if (f->hub->feeds[i].ready && hub_part_at(f, f->hub->feeds[i].part)->has_stream)
            ids[count++] =
                hub_batch_id(hub_part_at(f, f->hub->feeds[i].part), f->hub->feeds[i].batch.sequence);
    pthread_mutex_unlock(&f->hub->lock);
    if (count > 0) /* where it does not work out, the server drops them as too old */
        (void)mr_forget_batches(f->client, NULL, ids, count);
}

void hub_leave_streams(struct hub_feeder *f)
{
    forget_feeds(f);
    for (uint32_t i = 0; f->request.held_out && f->client != NULL && i < f->hub->parts.count; i++) {
        const struct hub_part *part = hub_part_at(f, i);
        /* Where it does not work out, the cores drop it as the one not used for longest, at some time. */
        if (part->has_stream && mr_forget_streams(f->client, NULL, &part->stream, 1) != MR_OK)
            break;
    }
    pthread_mutex_lock(&f->hub->lock);
    for (uint32_t i = 0; i < f->hub->parts.count; i++)
        hub_part_at(f, i)->has_stream = false;
    pthread_mutex_unlock(&f->hub->lock);
    f->was_started = false;
}
