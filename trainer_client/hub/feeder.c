#include "trainer_client/hub/feeder_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/socket/clock.h"

#define IDLE_WAIT_US 20000u

static void wait_for_change(struct feeder *f, uint64_t us)
{
    const struct timespec until = mr_clock_after_us(us);
    while (!f->hub->nudged && pthread_cond_timedwait(&f->hub->changed, &f->hub->lock, &until) == 0) {
    }
    f->hub->nudged = false;
}

/* ---- plans ---- */

static void report_broken_line(void *arg, const char *path, uint64_t line_number, const char *reason)
{
    hub_log("%s:%" PRIu64 ": broken line: %s", path, line_number, reason);
}

static void drop_feeds(struct feeder *f)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++) {
        struct hub_feed *feed = &f->hub->feeds[i];
        mr_future_destroy(feed->future);
        feed->future = NULL;
        feed->used = feed->ready = false;
    }
}

void hub_feeder_wait_for(struct feeder *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&f->hub->lock);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is two lines above */
    vsnprintf(f->hub->waits_for, sizeof(f->hub->waits_for), format, args);
    pthread_mutex_unlock(&f->hub->lock);
    va_end(args);
}

/* The plan has its stream. Under the lock. */
static void start_plan(struct feeder *f)
{
    struct hub *hub = f->hub;
    f->next_record_us = 0;
    hub->stage = HUB_RUNNING;
    if (f->is_again && hub->stream == f->stream)
        return; /* with its counters */
    hub->stream = f->stream;
    hub->info = *hub_batch_source_info(f->source);
    hub->batches = hub_batch_source_batches(f->source);
    hub_plan_init(&hub->plan, hub->batches, hub->config.prefetch, hub->config.trainer_timeout_us,
                  f->request.held_out);
    f->table = 0;
    f->said_no_table = false;
}

static void log_plan(const struct feeder *f)
{
    const struct hub_sample_file_info info = *hub_batch_source_info(f->source);
    hub_log("%s: %" PRIu64 " sample%s to %s, %u slot%s, %s%" PRIu64 " key%s, %" PRIu64 " broken line%s",
            f->request.path, info.samples, mr_plural(info.samples),
            f->request.held_out ? "evaluate" : "train on", info.format->slots, mr_plural(info.format->slots),
            info.keys_exact ? "" : "about ", info.keys, mr_plural(info.keys), info.broken_lines,
            mr_plural(info.broken_lines));
}

/* The open samples are the plan's as well: it was taken up again, and they have not changed. */
static bool has_samples(const struct feeder *f, const struct hub_request *request)
{
    char ignored[HUB_ERROR_BYTES];
    return f->source != NULL && !hub_request_differs(&f->request, request, NULL, 0) &&
           hub_batch_source_check(f->source, ignored) == MR_OK;
}

static enum mr_status open_source(struct feeder *f, char *error)
{
    hub_batch_source_close(f->source);
    f->source = NULL;
    enum mr_status status =
        hub_batch_source_open(&f->request, &f->hub->stop, report_broken_line, NULL, &f->source, error);
    if (status == MR_OK)
        log_plan(f);
    return status;
}

/* A plan that was just taken up: its samples are opened, and it has an identity. */
static void open_plan(struct feeder *f)
{
    struct hub *hub = f->hub;
    char error[HUB_ERROR_BYTES] = "";
    bool was_started = f->has_stream;
    hub_feeder_leave_stream(f);
    pthread_mutex_lock(&hub->lock);
    const struct hub_request request = hub->request;
    f->plan_number = hub->plan_number;
    drop_feeds(f);
    bool at_end = was_started && hub_plan_at_end(&hub->plan);
    pthread_mutex_unlock(&hub->lock);
    bool is_open = has_samples(f, &request);
    f->is_again = is_open && at_end && !request.held_out;
    f->request = request;
    enum mr_status status = is_open ? MR_OK : open_source(f, error);
    if (status != MR_OK) {
        hub_feeder_fail_plan(f, status, error);
        return;
    }
    /* Held-out batches are read from the start each time, and the server may still keep some of an earlier
     * reading. */
    uint64_t salt = request.held_out ? hub->started_us + f->plan_number : 0;
    f->plan = hub_request_plan(&request, hub_batch_source_info(f->source)->digest, salt);
    f->retry_us = 0;
}

/* The plan's samples are open: it can start once it has its stream. */
static void find_stream(struct feeder *f)
{
    if (mrc_now_us() < f->retry_us || !hub_feeder_connect(f) || !hub_feeder_find_stream(f))
        return;
    pthread_mutex_lock(&f->hub->lock);
    if (f->hub->plan_number == f->plan_number)
        start_plan(f);
    pthread_mutex_unlock(&f->hub->lock);
}

/* ---- feeding ---- */

static bool feed_one(struct feeder *f, struct hub_feed *feed)
{
    const struct hub_batch *b = &feed->batch;
    const struct mr_batch_keys keys = {
        .table = f->table, .samples = b->samples, .slots = b->slots, .keys = b->keys, .offsets = b->offsets};
    uint64_t words[MR_PLAN_WORDS];
    struct mr_options options = hub_feeder_options(f, words);
    options.future = &feed->future;
    uint64_t id = (uint64_t)f->stream << MR_BATCH_SEQUENCE_BITS | b->sequence;
    return mr_feed_sample(f->client, &options, id, &keys, 1, f->request.held_out) == MR_OK;
}

static struct hub_feed *free_feed(struct hub *hub)
{
    for (uint32_t i = 0; i < hub->config.prefetch; i++)
        if (!hub->feeds[i].used)
            return &hub->feeds[i];
    return NULL;
}

void hub_feeder_fail_plan(struct feeder *f, enum mr_status status, const char *error)
{
    hub_log("%s", error);
    pthread_mutex_lock(&f->hub->lock);
    if (f->hub->plan_number == f->plan_number) {
        f->hub->stage = HUB_FAILED;
        f->hub->status = status;
        snprintf(f->hub->error, sizeof(f->hub->error), "%s", error);
    }
    pthread_mutex_unlock(&f->hub->lock);
}

/* True when a feed was begun. */
static bool feed_next(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t sequence;
    pthread_mutex_lock(&hub->lock);
    struct hub_feed *feed = free_feed(hub);
    bool more = feed != NULL && hub_plan_next_feed(&hub->plan, &sequence);
    if (more) {
        feed->used = true;
        feed->generation = hub->plan.generation;
    }
    pthread_mutex_unlock(&hub->lock);
    if (!more)
        return false;
    char error[HUB_ERROR_BYTES];
    enum mr_status status = hub_batch_source_build(f->source, sequence, &feed->batch, error);
    if (status != MR_OK) {
        hub_feeder_fail_plan(f, status, error);
        return false;
    }
    bool begun = feed_one(f, feed);
    pthread_mutex_lock(&hub->lock);
    hub->samples_read += feed->batch.samples;
    if (!begun) {
        hub_plan_fed(&hub->plan, sequence, feed->generation, false);
        feed->used = false;
        f->retry_us = mrc_now_us() + HUB_SERVER_RETRY_US;
    }
    pthread_mutex_unlock(&hub->lock);
    return begun;
}

static void end_feed(struct feeder *f, struct hub_feed *feed)
{
    struct hub *hub = f->hub;
    enum mr_status status = mr_future_wait(feed->future, NULL);
    mr_future_destroy(feed->future);
    feed->future = NULL;
    hub_feeder_server_answered(f, status);
    hub_feeder_notice_restart(f);
    hub_feeder_check_stream(f, status);
    /* Applied by some cores before: what those answer to its push changes nothing, the others need it. */
    bool ok = status == MR_OK || status == MR_ALREADY_LEARNT;
    if (!ok) {
        f->retry_us = mrc_now_us() + HUB_SERVER_RETRY_US;
        f->table = status == MR_BATCH_CACHE_FULL ? f->table : 0;
    }
    pthread_mutex_lock(&hub->lock);
    hub_plan_fed(&hub->plan, feed->batch.sequence, feed->generation, ok);
    feed->ready = true;
    hub_drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

/* Ends the feed that was begun first; it waits for the server. False: none is in flight. */
static bool end_oldest_feed(struct feeder *f)
{
    struct hub_feed *oldest = NULL;
    for (uint32_t i = 0; i < f->hub->config.prefetch; i++) {
        struct hub_feed *feed = &f->hub->feeds[i];
        if (feed->future != NULL && (oldest == NULL || feed->batch.sequence < oldest->batch.sequence))
            oldest = feed;
    }
    if (oldest != NULL)
        end_feed(f, oldest);
    return oldest != NULL;
}

/* A turn with a running plan. True when there may be more to do at once. */
static bool run_plan(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t now_us = mrc_now_us();
    if (now_us < f->retry_us || !hub_feeder_connect(f))
        return end_oldest_feed(f);
    pthread_mutex_lock(&hub->lock);
    hub_plan_expire(&hub->plan, now_us);
    bool record_due = hub_feeder_record_due(f, now_us);
    pthread_mutex_unlock(&hub->lock);
    if (f->hub->batches == 0)
        return false; /* at its end from the start */
    if (!hub_feeder_find_table(f)) {
        f->retry_us = now_us + HUB_SERVER_RETRY_US;
        return false;
    }
    if (record_due)
        hub_feeder_ask_record(f);
    while (f->table != 0 && now_us >= f->retry_us && feed_next(f)) {
    }
    return end_oldest_feed(f);
}

void *hub_feeder_run(void *arg)
{
    struct hub *hub = arg;
    struct feeder f = {.hub = hub};
    bool busy = false;
    hub_feeder_connect(&f); /* a wrong address is best found at the start */
    while (!atomic_load(&hub->stop)) {
        pthread_mutex_lock(&hub->lock);
        bool is_new = hub->stage == HUB_OPENING && hub->plan_number != f.plan_number;
        if (!busy && !is_new && !atomic_load(&hub->stop))
            wait_for_change(&f, IDLE_WAIT_US);
        enum hub_stage stage = hub->stage;
        is_new = stage == HUB_OPENING && hub->plan_number != f.plan_number;
        pthread_mutex_unlock(&hub->lock);
        busy = false;
        if (is_new) {
            open_plan(&f);
            busy = true;
        } else if (stage == HUB_OPENING) {
            find_stream(&f);
        } else if (stage == HUB_RUNNING) {
            busy = run_plan(&f);
        }
    }
    drop_feeds(&f);
    hub_feeder_leave_stream(&f);
    hub_batch_source_close(f.source);
    mr_client_destroy(f.client);
    return NULL;
}
