/* The stream of a plan: found among those that the server knows, and claimed on each of its cores. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/hub/feeder_internal.h"
#include "trainer_client/hub/stream.h"
#include "trainer_client/socket/clock.h"

#define CLAIMS_MAX 8u /* one after the other: so often another hub was faster */

struct mr_options hub_feeder_options(const struct feeder *f, uint64_t words[MR_PLAN_WORDS])
{
    words[0] = f->plan.request[0];
    words[1] = f->plan.request[1];
    words[2] = f->plan.data;
    return (struct mr_options){.plan = words};
}

static void refuse_changed(struct feeder *f, const struct mr_stream *streams, uint32_t count, uint32_t stream)
{
    char error[HUB_ERROR_BYTES];
    uint64_t applied = 0;
    for (uint32_t i = 0; i < count; i++)
        applied = streams[i].stream == stream ? streams[i].learnt : applied;
    snprintf(error, sizeof(error),
             "%.200s holds other samples than when this plan began (batches applied of these: %" PRIu64
             ", stream %u): give the plan another `run` to train on these",
             f->request.path, applied, stream);
    hub_feeder_fail_plan(f, MR_ALREADY_STARTED, error);
}

/* Picks a number; false: the server is away, or the plan failed. */
static bool choose(struct feeder *f, uint32_t preferred, uint32_t *number)
{
    struct mr_stream *streams;
    uint32_t count;
    enum mr_status status = mr_streams(f->client, NULL, &streams, &count);
    hub_feeder_server_answered(f, status);
    if (status != MR_OK)
        return false;
    enum hub_stream_found found = hub_stream_choose(streams, count, &f->plan, preferred, number);
    if (found == HUB_STREAM_CHANGED)
        refuse_changed(f, streams, count, *number);
    else if (found == HUB_STREAM_ADOPTED)
        hub_log("stream %u is from a checkpoint that does not name its plan: taken for this one's", *number);
    free(streams);
    return found != HUB_STREAM_CHANGED;
}

static enum mr_status claim(struct feeder *f, uint32_t number)
{
    uint64_t watermark, *bitmap, words[MR_PLAN_WORDS];
    uint32_t bitmap_words;
    const struct mr_options options = hub_feeder_options(f, words);
    enum mr_status status = mr_batch_state(f->client, &options, number, &watermark, &bitmap, &bitmap_words);
    hub_feeder_server_answered(f, status);
    if (status == MR_OK)
        free(bitmap);
    return status;
}

bool hub_feeder_find_stream(struct feeder *f)
{
    uint32_t preferred = hub_request_stream(&f->request, f->request.held_out ? f->plan.request[0] : 0);
    for (uint32_t tries = 0; tries < CLAIMS_MAX; tries++) {
        uint32_t number;
        if (!choose(f, preferred, &number))
            break;
        enum mr_status status = claim(f, number);
        if (status == MR_OK) {
            f->stream = number;
            f->has_stream = true;
            return true;
        }
        if (status != MR_ALREADY_STARTED)
            break;
    }
    f->retry_us = mrc_now_us() + HUB_SERVER_RETRY_US;
    return false;
}

void hub_feeder_check_stream(struct feeder *f, enum mr_status status)
{
    char error[HUB_ERROR_BYTES];
    if (status == MR_ALREADY_STARTED) {
        snprintf(error, sizeof(error),
                 "the parameter server has given stream %u to another plan since: start this one again",
                 f->stream);
        hub_feeder_fail_plan(f, MR_NOT_STARTED, error);
    }
}

void hub_feeder_leave_stream(struct feeder *f)
{
    if (f->has_stream && f->request.held_out && f->client != NULL) {
        /* Where it does not work out, the cores drop it as the one not used for longest, at some time. */
        (void)mr_forget_streams(f->client, NULL, &f->stream, 1);
    }
    f->has_stream = false;
}
