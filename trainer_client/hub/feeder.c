#include "trainer_client/hub/feeder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/op.h"
#include "trainer_client/millrace.h"
#include "trainer_client/socket_server.h"

#define CALL_DEADLINE_MS   1000u
#define CONNECT_MS         1000u
#define RECORD_INTERVAL_US 200000u /* when nothing waits for it */
#define RECORD_CLAIMED_US  5000u   /* when claims wait for it */
#define IDLE_WAIT_US       20000u
#define SERVER_RETRY_US    50000u /* after the server refused, or did not know the table */

/* What the feeding thread keeps to itself. */
struct feeder {
    struct hub *hub;
    uint64_t plan_number; /* of the plan that `source` belongs to */
    struct hub_request request;
    uint32_t stream;
    struct hub_batch_source *source;
    struct mr_client *client; /* NULL: the server was never reached */
    uint32_t incarnation;     /* of the server, as last seen */
    uint32_t table;           /* feature id; 0 = not known */
    uint64_t next_record_us, retry_us;
    bool said_away, said_no_table;
};

static void wait_for_change(struct feeder *f, uint64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + us * 1000;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
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

static void start_plan(struct feeder *f)
{
    struct hub *hub = f->hub;
    /* Held-out batches are read anew each time, and the server may still keep some of an earlier reading. */
    uint64_t salt = f->request.held_out ? hub->started_us + f->plan_number : 0;
    f->stream = hub->stream = hub_request_stream(&f->request, salt);
    hub->info = *hub_batch_source_info(f->source);
    hub->batches = hub_batch_source_batches(f->source);
    hub_plan_init(&hub->plan, hub->batches, hub->config.prefetch, hub->config.trainer_timeout_us,
                  f->request.held_out);
    f->table = 0;
    f->next_record_us = 0;
    f->said_no_table = false;
    hub->stage = HUB_RUNNING;
}

static void open_plan(struct feeder *f)
{
    struct hub *hub = f->hub;
    struct hub_batch_source *source = NULL;
    char error[HUB_ERROR_BYTES] = "";
    pthread_mutex_lock(&hub->lock);
    f->request = hub->request;
    f->plan_number = hub->plan_number;
    drop_feeds(f);
    pthread_mutex_unlock(&hub->lock);

    hub_batch_source_close(f->source);
    f->source = NULL;
    enum mr_status status =
        hub_batch_source_open(&f->request, &hub->stop, report_broken_line, NULL, &source, error);

    pthread_mutex_lock(&hub->lock);
    f->source = source;
    hub->status = status;
    memcpy(hub->error, error, sizeof hub->error);
    if (status == MR_OK) {
        start_plan(f);
    } else {
        hub->stage = HUB_FAILED;
    }
    struct hub_sample_file_info info = hub->info;
    pthread_mutex_unlock(&hub->lock);
    if (status != MR_OK) {
        hub_log("%s", error);
        return;
    }
    hub_log("%s: %" PRIu64 " samples to %s, %u slots, %s%" PRIu64 " keys, %" PRIu64 " broken lines",
            f->request.path, info.samples, f->request.held_out ? "evaluate" : "train on", info.format->slots,
            info.keys_exact ? "" : "about ", info.keys, info.broken_lines);
}

/* ---- the server ---- */

static void end_hub(struct feeder *f, enum mr_status status, const char *error)
{
    pthread_mutex_lock(&f->hub->lock);
    f->hub->fatal = status;
    snprintf(f->hub->error, sizeof f->hub->error, "%s", error);
    pthread_mutex_unlock(&f->hub->lock);
    atomic_store(&f->hub->stop, true);
}

static bool connect_server(struct feeder *f)
{
    char error[HUB_ERROR_BYTES];
    if (f->client != NULL) {
        return true;
    }
    const struct mr_client_options options = {.server = f->hub->config.server,
                                              .key_file = f->hub->config.key_file,
                                              .connect_ms = CONNECT_MS,
                                              .deadline_ms = CALL_DEADLINE_MS};
    enum mr_status status = mr_client_create(&options, &f->client, error, sizeof error);
    if (status != MR_OK) {
        f->client = NULL;
        if (status == MR_INVALID_ARGUMENT) { /* it will not become right by waiting */
            end_hub(f, status, error);
            return false;
        }
        if (!f->said_away) {
            hub_log("waiting for the parameter server: %s", error);
        }
        f->said_away = true;
        f->retry_us = mrc_now_us() + SERVER_RETRY_US;
        return false;
    }
    f->said_away = false;
    f->incarnation = mr_client_incarnation(f->client);
    return true;
}

/* A feed that no longer leads to a READY batch is of no use: its batch was learnt or has to be fed again. */
static void drop_void_feeds(struct hub *hub)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++) {
        struct hub_feed *feed = &hub->feeds[i];
        if (feed->ready && (feed->generation != hub->plan.generation ||
                            hub_plan_state(&hub->plan, feed->batch.sequence) != HUB_BATCH_READY)) {
            feed->used = feed->ready = false;
        }
    }
}

static void notice_restart(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint32_t incarnation = mr_client_incarnation(f->client);
    if (incarnation == f->incarnation) {
        return;
    }
    hub_log("the parameter server restarted: feeding again what it has not learnt");
    f->incarnation = incarnation;
    f->table = 0;
    f->next_record_us = 0;
    pthread_mutex_lock(&hub->lock);
    hub_plan_server_restarted(&hub->plan);
    drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

static void server_answered(struct feeder *f, enum mr_status status)
{
    bool away = status == MR_UNREACHABLE || status == MR_DEADLINE_EXCEEDED;
    if (away && !f->said_away) {
        hub_log("waiting for the parameter server: %s", mr_last_error());
    } else if (!away && f->said_away) {
        hub_log("the parameter server is back");
    }
    f->said_away = away;
    pthread_mutex_lock(&f->hub->lock);
    f->hub->server_away = away;
    pthread_mutex_unlock(&f->hub->lock);
}

static bool find_table(struct feeder *f)
{
    struct mr_feature_info *infos;
    uint32_t count;
    if (f->table != 0) {
        return true;
    }
    enum mr_status status = mr_list(f->client, NULL, &infos, &count);
    server_answered(f, status);
    if (status == MR_OK) {
        for (uint32_t i = 0; i < count; i++) {
            if (infos[i].feature.kind == MR_TABLE &&
                strncmp(infos[i].feature.name, f->request.table, MR_NAME_BYTES) == 0) {
                f->table = infos[i].id;
            }
        }
        free(infos);
    }
    if (status == MR_OK && f->table == 0 && !f->said_no_table) {
        hub_log("waiting for table '%s' to be created on the parameter server", f->request.table);
        f->said_no_table = true;
    }
    return f->table != 0;
}

static void ask_record(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t watermark = 0, *bitmap = NULL;
    uint32_t words = 0;
    pthread_mutex_lock(&hub->lock);
    hub_plan_record_asked(&hub->plan);
    uint32_t generation = hub->plan.generation;
    pthread_mutex_unlock(&hub->lock);
    enum mr_status status = mr_batch_state(f->client, NULL, f->stream, &watermark, &bitmap, &words);
    server_answered(f, status);
    uint64_t now_us = mrc_now_us();
    if (status != MR_OK) {
        f->retry_us = now_us + SERVER_RETRY_US;
        return;
    }
    notice_restart(f);
    bool behind = false;
    pthread_mutex_lock(&hub->lock);
    /* An answer from before a restart says nothing about the restarted server. */
    if (generation == hub->plan.generation) {
        behind = hub_plan_record(&hub->plan, watermark, bitmap, words);
        drop_void_feeds(hub);
        f->next_record_us = now_us + RECORD_INTERVAL_US;
        if (hub_plan_at_end(&hub->plan)) {
            hub->ended_plan = f->plan_number;
        }
    }
    pthread_mutex_unlock(&hub->lock);
    free(bitmap);
    if (behind) {
        f->table = 0;
        hub_log("the parameter server holds an earlier state: going on behind it");
    }
}

/* ---- feeding ---- */

static bool feed_one(struct feeder *f, struct hub_feed *feed)
{
    const struct hub_batch *b = &feed->batch;
    const struct mr_batch_keys keys = {
        .table = f->table, .samples = b->samples, .slots = b->slots, .keys = b->keys, .offsets = b->offsets};
    const struct mr_options options = {.future = &feed->future};
    uint64_t id = (uint64_t)f->stream << MR_BATCH_SEQUENCE_BITS | b->sequence;
    return mr_feed_sample(f->client, &options, id, &keys, 1, f->request.held_out) == MR_OK;
}

static struct hub_feed *free_feed(struct hub *hub)
{
    for (uint32_t i = 0; i < hub->config.prefetch; i++) {
        if (!hub->feeds[i].used) {
            return &hub->feeds[i];
        }
    }
    return NULL;
}

static void fail_plan(struct feeder *f, enum mr_status status, const char *error)
{
    hub_log("%s", error);
    pthread_mutex_lock(&f->hub->lock);
    if (f->hub->plan_number == f->plan_number) {
        f->hub->stage = HUB_FAILED;
        f->hub->status = status;
        snprintf(f->hub->error, sizeof f->hub->error, "%s", error);
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
    if (!more) {
        return false;
    }
    char error[HUB_ERROR_BYTES];
    enum mr_status status = hub_batch_source_build(f->source, sequence, &feed->batch, error);
    if (status != MR_OK) {
        fail_plan(f, status, error);
        return false;
    }
    bool begun = feed_one(f, feed);
    pthread_mutex_lock(&hub->lock);
    hub->samples_read += feed->batch.samples;
    if (!begun) {
        hub_plan_fed(&hub->plan, sequence, feed->generation, false);
        feed->used = false;
        f->retry_us = mrc_now_us() + SERVER_RETRY_US;
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
    server_answered(f, status);
    notice_restart(f);
    /* Learnt by some cores before: what those answer to its push changes nothing, the others need it. */
    bool ok = status == MR_OK || status == MR_ALREADY_LEARNT;
    if (!ok) {
        f->retry_us = mrc_now_us() + SERVER_RETRY_US;
        f->table = status == MR_BATCH_CACHE_FULL ? f->table : 0;
    }
    pthread_mutex_lock(&hub->lock);
    hub_plan_fed(&hub->plan, feed->batch.sequence, feed->generation, ok);
    feed->ready = true;
    drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

/* Ends the feed that was begun first; it waits for the server. False: none is under way. */
static bool end_oldest_feed(struct feeder *f)
{
    struct hub_feed *oldest = NULL;
    for (uint32_t i = 0; i < f->hub->config.prefetch; i++) {
        struct hub_feed *feed = &f->hub->feeds[i];
        if (feed->future != NULL && (oldest == NULL || feed->batch.sequence < oldest->batch.sequence)) {
            oldest = feed;
        }
    }
    if (oldest != NULL) {
        end_feed(f, oldest);
    }
    return oldest != NULL;
}

/* A turn with a running plan. True when there may be more to do at once. */
static bool run_plan(struct feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t now_us = mrc_now_us();
    if (now_us < f->retry_us || !connect_server(f)) {
        return end_oldest_feed(f);
    }
    pthread_mutex_lock(&hub->lock);
    hub_plan_expire(&hub->plan, now_us);
    bool claims =
        hub->plan.claimed > 0 && now_us + RECORD_INTERVAL_US - f->next_record_us > RECORD_CLAIMED_US;
    pthread_mutex_unlock(&hub->lock);
    if (!find_table(f)) {
        f->retry_us = now_us + SERVER_RETRY_US;
        return false;
    }
    if (!f->request.held_out && (claims || now_us >= f->next_record_us)) {
        ask_record(f);
    }
    while (f->table != 0 && now_us >= f->retry_us && feed_next(f)) {
    }
    return end_oldest_feed(f);
}

void *hub_feeder_run(void *arg)
{
    struct hub *hub = arg;
    struct feeder f = {.hub = hub};
    bool busy = false;
    connect_server(&f); /* a wrong address is best found at the start */
    while (!atomic_load(&hub->stop)) {
        pthread_mutex_lock(&hub->lock);
        if (!busy && hub->stage != HUB_OPENING && !atomic_load(&hub->stop)) {
            wait_for_change(&f, IDLE_WAIT_US);
        }
        enum hub_stage stage = hub->stage;
        pthread_mutex_unlock(&hub->lock);
        busy = false;
        if (stage == HUB_OPENING) {
            open_plan(&f);
        } else if (stage == HUB_RUNNING) {
            busy = run_plan(&f);
        }
    }
    drop_feeds(&f);
    hub_batch_source_close(f.source);
    mr_client_destroy(f.client);
    return NULL;
}
