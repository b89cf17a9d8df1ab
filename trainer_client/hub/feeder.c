/* The feeding thread: file, batches, server. It connects to the server and notices its restarts, finds the
 * stream of a plan, feeds batches, and asks which of them were applied. */
#include "trainer_client/trace_clocks.h"
#include "trainer_client/hub/feeder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/hub/kafka/kafka_path.h"
#include "trainer_client/hub/live_input.h"

#define IDLE_WAIT_US       20000u
#define CALL_DEADLINE_MS   1000u
#define CONNECT_MS         1000u
#define RECORD_INTERVAL_US 200000u  /* when nothing waits for it */
#define RECORD_CLAIMED_US  5000u    /* when claims wait for it */
#define RECORD_IDLE_US     2000000u /* of a part of which nothing is on its way */

static void wait_for_change(struct hub_feeder *f, uint64_t us)
{
    const struct timespec until = mr_clock_after_us(us);
    while (!f->hub->nudged && pthread_cond_timedwait(&f->hub->changed, &f->hub->lock, &until) == 0) {
    }
    f->hub->nudged = false;
}

/* What trainers get as the reason as long as there is nothing to hand out; "" for nothing in particular. */
static void wait_for(struct hub_feeder *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wait_for(struct hub_feeder *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&f->hub->lock);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is two lines above */
    vsnprintf(f->hub->waits_for, sizeof(f->hub->waits_for), format, args);
    pthread_mutex_unlock(&f->hub->lock);
    va_end(args);
}

void hub_fail_plan(struct hub_feeder *f, enum mr_status status, const char *error)
{
    mr_log_error("plan_failed", "%s", error);
    pthread_mutex_lock(&f->hub->lock);
    if (f->hub->plan_number == f->plan_number) {
        f->hub->stage = HUB_FAILED;
        f->hub->status = status;
        snprintf(f->hub->error, sizeof(f->hub->error), "%s", error);
    }
    pthread_mutex_unlock(&f->hub->lock);
}

/* ---- the server ---- */

static void end_hub(struct hub_feeder *f, enum mr_status status, const char *error)
{
    pthread_mutex_lock(&f->hub->lock);
    f->hub->fatal = status;
    snprintf(f->hub->error, sizeof(f->hub->error), "%s", error);
    pthread_mutex_unlock(&f->hub->lock);
    atomic_store(&f->hub->stop, true);
}

/* False: the server is away; tried again at f->retry_us at the earliest. */
static bool connect_server(struct hub_feeder *f)
{
    char error[HUB_ERROR_BYTES];
    if (f->client != NULL)
        return true;
    const struct mr_client_options options = {.server = f->hub->config.server,
                                              .key_file = f->hub->config.key_file,
                                              .connect_ms = CONNECT_MS,
                                              .deadline_ms = CALL_DEADLINE_MS};
    enum mr_status status = mr_client_create(&options, &f->client, error, sizeof(error));
    if (status != MR_OK) {
        f->client = NULL;
        if (status == MR_INVALID_ARGUMENT) { /* it will not become right by waiting */
            end_hub(f, status, error);
            return false;
        }
        if (!f->said_away)
            mr_log_warning("server_away", "waiting for the parameter server: %s", error);
        wait_for(f, "the hub waits for its parameter server: %s", error);
        f->said_away = true;
        f->retry_us = mr_clock_us() + HUB_SERVER_RETRY_US;
        return false;
    }
    wait_for(f, "%s", "");
    f->said_away = false;
    f->server_start = mr_client_start_id(f->client);
    return true;
}

/* After a call: when the server turns out to have restarted, what was fed to it is void. */
static void notice_restart(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t start = mr_client_start_id(f->client);
    if (start == f->server_start)
        return;
    mr_log_warning("server_restarted",
                   "the parameter server restarted: feeding again what it has not applied");
    f->server_start = start;
    f->table = 0;
    pthread_mutex_lock(&hub->lock);
    hub_parts_server_restarted(&hub->parts);
    for (uint32_t i = 0; i < hub->parts.count; i++)
        hub_part_at(f, i)->record_us = 0;
    hub_drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

void hub_server_answered(struct hub_feeder *f, enum mr_status status)
{
    bool away = status == MR_UNREACHABLE || status == MR_DEADLINE_EXCEEDED || status == MR_BUSY;
    if (away && !f->said_away) {
        mr_log_warning("server_away", "waiting for the parameter server: %s", mr_last_error());
        wait_for(f, "the hub waits for its parameter server: %s", mr_last_error());
    } else if (!away && f->said_away) {
        mr_log_info("server_back", "the parameter server is back");
        wait_for(f, "%s", "");
    }
    f->said_away = away;
    pthread_mutex_lock(&f->hub->lock);
    f->hub->server_away = away;
    pthread_mutex_unlock(&f->hub->lock);
}

/* ---- plans ---- */

static void report_broken_line(void *arg, const char *path, uint64_t line_number, const char *reason)
{
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"path", .text = path}, {"line", .number = line_number}),
                "broken_line", "%s:%" PRIu64 ": broken line: %s", path, line_number, reason);
}

static void drop_feeds(struct hub_feeder *f)
{
    for (uint32_t i = 0; i < HUB_PREFETCH_MAX; i++) {
        struct hub_feed *feed = &f->hub->feeds[i];
        mr_future_destroy(feed->future);
        feed->future = NULL;
        feed->used = feed->ready = false;
    }
}

/* The plan has its streams. Under the lock. */
static void start_plan(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    hub->stage = HUB_RUNNING;
    hub->info = *hub_batch_source_info(f->source);
    hub->is_live = hub_batch_source_is_live(f->source);
    hub->batches = hub_parts_batches(&hub->parts);
    f->table = 0;
    f->said_no_table = f->said_no_list = f->said_no_samples = f->said_trouble = f->is_refused = false;
}

static void log_live_plan(const struct hub_feeder *f)
{
    const struct hub_format *format = hub_batch_source_info(f->source)->format;
    mr_log_with(
        MR_LOG_INFO, MR_LOG_FIELDS({"path", .text = f->request.path}), "plan",
        "%s: %s samples as they come, %u slot%s%s", f->request.path,
        f->request.held_out ? "score" : "train on", format->slots, mr_plural(format->slots),
        hub_batch_source_can_repeat(f->source)
            ? ""
            : "; it cannot be read again, so that all of it counts as new, and what is in flight when "
              "the hub ends is lost");
}

static void log_plan(const struct hub_feeder *f)
{
    const struct hub_sample_file_info info = *hub_batch_source_info(f->source);
    mr_log_with(
        MR_LOG_INFO, MR_LOG_FIELDS({"path", .text = f->request.path}, {"samples", .number = info.samples}),
        "plan", "%s: %" PRIu64 " sample%s to %s, %u slot%s, %s%" PRIu64 " key%s, %" PRIu64 " broken line%s%s",
        f->request.path, info.samples, mr_plural(info.samples), f->request.held_out ? "evaluate" : "train on",
        info.format->slots, mr_plural(info.format->slots), info.keys_exact ? "" : "about ", info.keys,
        mr_plural(info.keys), info.broken_lines, mr_plural(info.broken_lines),
        info.window_samples != 0 && f->request.shuffle_seed != 0 ? "; packed: shuffled in windows" : "");
}

/* The open samples are the plan's as well: it was taken up again, and they have not changed. */
static bool has_samples(const struct hub_feeder *f, const struct hub_request *request)
{
    char ignored[HUB_ERROR_BYTES];
    return f->source != NULL && !hub_request_differs(&f->request, request, NULL, 0) &&
           hub_batch_source_check(f->source, ignored) == MR_OK;
}

/* is_at_end: all that came is applied. */
static void close_source(struct hub_feeder *f, bool is_at_end)
{
    if (f->source != NULL && !is_at_end && !hub_batch_source_can_repeat(f->source))
        mr_log_warning("samples_lost", "what was read of standard input and is not applied is lost");
    hub_batch_source_close(f->source);
    f->source = NULL;
}

static void nudge(void *arg)
{
    struct hub *hub = arg;
    pthread_mutex_lock(&hub->lock);
    hub_nudge(hub);
    pthread_mutex_unlock(&hub->lock);
}

static enum mr_status open_source(struct hub_feeder *f, char *error)
{
    const struct hub_batch_source_options options = {
        .request = &f->request,
        .formats = f->hub->config.formats,
        .allowed = f->hub->config.allowed,
        .memory_bytes = f->hub->config.sample_memory_bytes,
        .stop = &f->hub->stop,
        .follow = f->hub->config.follow,
        .is_repeated = f->hub->config.is_repeated,
        .kafka_brokers = f->hub->config.kafka_brokers,
        .kafka_config = f->hub->config.kafka_config,
        .on_broken_line = report_broken_line,
        .on_batch = nudge,
        .arg = f->hub,
    };
    enum mr_status status = hub_batch_source_open(&options, &f->source, error);
    if (status != MR_OK)
        return status;
    if (!hub_batch_source_is_live(f->source))
        log_plan(f);
    /* A plan that is not to be known again gets a number of its own: held-out batches are read from the
     * start each time, and the server may still keep some of an earlier reading; what comes on a pipe is
     * new. */
    bool is_new = f->request.held_out || !hub_batch_source_can_repeat(f->source);
    f->salt = is_new ? f->hub->start_id + f->plan_number : 0;
    return MR_OK;
}

static bool make_parts(struct hub_feeder *f)
{
    const uint32_t count = hub_batch_source_parts(f->source);
    pthread_mutex_lock(&f->hub->lock);
    const bool is_made = hub_parts_make(&f->hub->parts, count);
    for (uint32_t i = 0; is_made && i < f->hub->parts.count; i++)
        hub_init_part(f, i);
    pthread_mutex_unlock(&f->hub->lock);
    return is_made;
}

/* Partitions that were added to the topic are parts of the plan from now on, without a stream yet. False: the
 * plan failed. */
static bool add_parts(struct hub_feeder *f)
{
    struct hub_parts *parts = &f->hub->parts;
    const uint32_t before = parts->count, now = hub_batch_source_parts(f->source);
    if (now <= before)
        return true;
    pthread_mutex_lock(&f->hub->lock);
    const bool is_grown = hub_parts_grow(parts, now);
    for (uint32_t i = before; is_grown && i < now; i++)
        hub_init_part(f, i);
    pthread_mutex_unlock(&f->hub->lock);
    if (!is_grown) {
        hub_fail_plan(f, MR_NO_MEMORY, "no memory for the parts of the plan");
        return false;
    }
    mr_log_info("input_grown", "%s: %u partitions, %u before: the new ones are read from their first message",
                f->request.path, now, before);
    return true;
}

/* A plan that was just taken up: its samples are opened, and it has an identity. */
static void open_plan(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    char error[HUB_ERROR_BYTES] = "";
    bool was_started = f->was_started;
    hub_leave_streams(f);
    pthread_mutex_lock(&hub->lock);
    const struct hub_request request = hub->request;
    f->plan_number = hub->plan_number;
    drop_feeds(f);
    bool at_end = was_started && hub_parts_at_end(&hub->parts);
    pthread_mutex_unlock(&hub->lock);
    bool is_open = has_samples(f, &request);
    /* Samples are scored anew, unless they cannot be read a second time. */
    f->is_again = is_open && at_end && !(request.held_out && hub_batch_source_can_repeat(f->source));
    f->request = request;
    if (!is_open)
        close_source(f, at_end);
    enum mr_status status = is_open ? MR_OK : open_source(f, error);
    if (status != MR_OK) {
        hub_fail_plan(f, status, error);
        return;
    }
    if (!f->is_again && !make_parts(f)) {
        hub_fail_plan(f, MR_NO_MEMORY, "no memory for the parts of the plan");
        return;
    }
    f->retry_us = 0;
}

/* The plan's samples are open: it can start once their slots are known and it has its stream. */
static void find_stream(struct hub_feeder *f)
{
    char error[HUB_ERROR_BYTES];
    if (!add_parts(f))
        return;
    enum mr_status status = hub_batch_source_ready(f->source, error);
    if (status != MR_OK && status != MR_NOT_READY)
        hub_fail_plan(f, status, error);
    if (status != MR_OK || mr_clock_us() < f->retry_us || !connect_server(f) || !hub_claim_streams(f))
        return;
    if (hub_batch_source_is_live(f->source) && !f->is_again)
        log_live_plan(f);
    pthread_mutex_lock(&f->hub->lock);
    if (f->hub->plan_number == f->plan_number)
        start_plan(f);
    pthread_mutex_unlock(&f->hub->lock);
}

/* ---- the table, and the record of applied batches ---- */

/* Makes sure of f->table. False: the server has no such table yet, or is away. */
static bool find_table(struct hub_feeder *f)
{
    struct mr_feature_info *infos;
    uint32_t count;
    if (f->table != 0)
        return true;
    enum mr_status status = mr_list(f->client, NULL, &infos, &count);
    hub_server_answered(f, status);
    if (status == MR_OK) {
        for (uint32_t i = 0; i < count; i++)
            if (infos[i].feature.kind == MR_TABLE &&
                strncmp(infos[i].feature.name, f->request.table, MR_NAME_BYTES) == 0) {
                f->table = infos[i].id;
                f->table_dim = infos[i].feature.dims[0];
            }
        free(infos);
    }
    if (status == MR_OK && f->table == 0) {
        wait_for(f,
                 "the parameter server %s has no table '%s': the hub waits for it to be created; "
                 "if its name is wrong, give the plan the right one",
                 f->hub->config.server, f->request.table);
    } else if (status == MR_OK) {
        wait_for(f, "%s", "");
    } else if (!f->said_away) { /* another version, a node that has failed, a key without the right */
        if (!f->said_no_list)
            mr_log_warning("server_lists_nothing", "the parameter server does not list its tables: %s",
                           mr_last_error());
        wait_for(f, "the parameter server does not list its tables: %s", mr_last_error());
    }
    f->said_no_list = status != MR_OK && !f->said_away;
    if (status == MR_OK && f->table == 0 && !f->said_no_table)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"table", .text = f->request.table}), "waits_for_table",
                    "waiting for table '%s' to be created on the parameter server", f->request.table);
    f->said_no_table = status == MR_OK ? f->table == 0 : f->said_no_table;
    return f->table != 0;
}

/* Asks the server which batches of the part it has applied, and updates the plan. */
static void ask_record(struct hub_feeder *f, struct hub_part *part)
{
    struct hub *hub = f->hub;
    uint64_t watermark = 0, *bitmap = NULL;
    uint32_t words = 0;
    pthread_mutex_lock(&hub->lock);
    hub_plan_record_asked(&part->plan);
    uint32_t generation = part->plan.generation;
    pthread_mutex_unlock(&hub->lock);
    uint64_t plan[MR_PLAN_WORDS];
    const struct mr_options options = hub_plan_options(&part->identity, plan);
    enum mr_status status = mr_batch_state(f->client, &options, part->stream, &watermark, &bitmap, &words);
    hub_server_answered(f, status);
    hub_check_stream(f, part, status);
    uint64_t now_us = mr_clock_us();
    if (status != MR_OK) {
        f->retry_us = now_us + HUB_SERVER_RETRY_US;
        return;
    }
    notice_restart(f);
    bool behind = false;
    pthread_mutex_lock(&hub->lock);
    /* An answer from before a restart says nothing about the restarted server. */
    if (generation == part->plan.generation) {
        behind = hub_plan_record(&part->plan, watermark, bitmap, words);
        hub_drop_void_feeds(hub);
        part->record_us = now_us;
        if (hub_parts_at_end(&hub->parts))
            hub->ended_plan = f->plan_number;
    }
    pthread_mutex_unlock(&hub->lock);
    free(bitmap);
    if (behind) {
        f->table = 0;
        mr_log_warning("server_went_back",
                       "the parameter server holds an earlier state: continuing after it");
    }
}

static uint64_t record_interval_us(const struct hub_plan *plan)
{
    if (plan->claimed > 0)
        return RECORD_CLAIMED_US;
    return hub_plan_is_idle(plan) ? RECORD_IDLE_US : RECORD_INTERVAL_US;
}

/* Whether it is time to ask for the part's record. */
static bool is_record_due(struct hub_feeder *f, const struct hub_part *part, uint64_t now_us)
{
    pthread_mutex_lock(&f->hub->lock);
    const struct hub_plan *plan = &part->plan;
    bool is_due = part->has_stream && !plan->read_only &&
                  (part->record_us == 0 || now_us >= part->record_us + record_interval_us(plan));
    pthread_mutex_unlock(&f->hub->lock);
    return is_due;
}

/* Asks for the records that are due, as long as the server answers. */
static void ask_records(struct hub_feeder *f, uint64_t now_us)
{
    for (uint32_t i = 0; i < f->hub->parts.count && now_us >= f->retry_us; i++) {
        if (!is_record_due(f, hub_part_at(f, i), now_us))
            continue;
        uint64_t begin_ns = mr_trace_begin(f->hub->trace);
        ask_record(f, hub_part_at(f, i));
        mr_trace_span(f->hub->trace, HUB_TRACK_FEEDING, "ask record", begin_ns, MR_TRACE_NO_BATCH);
    }
}

/* ---- feeding ---- */

/* The batch will be refused again. Other reasons pass: memory becomes free, a key gets its right. */
static bool is_fault_of_batch(enum mr_status status)
{
    return status == MR_INVALID_ARGUMENT || status == MR_BAD_MESSAGE || status == MR_WRONG_DIM ||
           status == MR_WRONG_SHAPE || status == MR_WRONG_DTYPE || status == MR_UNSUPPORTED ||
           status == MR_TOO_LARGE;
}

static void describe_batch(const struct hub_feeder *f, const struct hub_feed *feed, char out[HUB_ERROR_BYTES])
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
            wait_for(f, "%s", "");
            f->is_refused = false;
        }
        return;
    }
    f->retry_us = mr_clock_us() + HUB_SERVER_RETRY_US;
    f->table = status == MR_BATCH_CACHE_FULL ? f->table : 0;
    if (f->said_away || status == MR_BATCH_CACHE_FULL || status == MR_UNKNOWN_TABLE)
        return; /* trainers are told, or are to push what they have */
    describe_batch(f, feed, batch);
    snprintf(error, sizeof(error), "the parameter server refuses %.280s: %.300s", batch, mr_last_error());
    if (!f->is_refused) {
        mr_log_warning("batch_refused", "%s", error);
        wait_for(f, "%s", error);
        f->is_refused = true;
        f->refused = id;
    } else if (f->refused == id && is_fault_of_batch(status)) {
        hub_fail_plan(f, status, error);
    }
}

static enum mr_status feed_one(struct hub_feeder *f, struct hub_feed *feed)
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

static void follow_part(struct hub_feeder *f, uint32_t index)
{
    struct hub_part *part = hub_part_at(f, index);
    struct hub_plan *plan = &part->plan;
    const uint64_t batches = hub_batch_source_batches(f->source, index);
    pthread_mutex_lock(&f->hub->lock);
    if (batches != HUB_BATCHES_UNKNOWN && plan->batches == HUB_BATCHES_UNKNOWN)
        hub_plan_end(plan, batches);
    const uint64_t oldest = plan->oldest;
    const bool is_known = plan->record_known;
    pthread_mutex_unlock(&f->hub->lock);
    const uint64_t lag = hub_batch_source_lag(f->source, index, oldest);
    pthread_mutex_lock(&f->hub->lock);
    part->lag = lag;
    pthread_mutex_unlock(&f->hub->lock);
    if (is_known)
        hub_batch_source_release(f->source, index, oldest);
}

/* Of an input that is read once: what is applied may leave the memory, and its end may have come. */
static void follow_source(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    if (!hub->is_live)
        return;
    if (atomic_load(&hub->ending))
        hub_batch_source_finish(f->source);
    for (uint32_t i = 0; i < hub->parts.count; i++)
        follow_part(f, i);
    const uint64_t broken_lines = hub_batch_source_info(f->source)->broken_lines;
    pthread_mutex_lock(&hub->lock);
    hub->info.broken_lines = broken_lines;
    hub->batches = hub_parts_batches(&hub->parts);
    pthread_mutex_unlock(&hub->lock);
}

/* The batch is not fed after all: it has not come yet, or need not go to a trainer. */
static void give_up_feed(struct hub_feeder *f, struct hub_feed *feed, uint64_t sequence)
{
    pthread_mutex_lock(&f->hub->lock);
    hub_plan_fed(&hub_part_at(f, feed->part)->plan, sequence, feed->generation, false);
    feed->used = false;
    pthread_mutex_unlock(&f->hub->lock);
}

static void brokers_are_back(const struct hub_feeder *f)
{
    mr_log_info("input_back", "%s: the brokers are back", f->request.path);
}

/* No part has a batch now. */
static void wait_for_samples(struct hub_feeder *f)
{
    const char *trouble = hub_batch_source_trouble(f->source);
    const bool is_trouble = trouble[0] != '\0';
    if (f->said_no_samples && f->said_trouble == is_trouble)
        return;
    if (is_trouble) {
        mr_log_warning("input_away", "%s: waiting for the brokers: %s", f->request.path, trouble);
        wait_for(f, "the hub waits for the brokers of %.200s: %s", f->request.path, trouble);
    } else {
        if (f->said_trouble)
            brokers_are_back(f);
        wait_for(f, "the hub waits for more samples from %.200s",
                 strcmp(f->request.path, HUB_STANDARD_INPUT) == 0 ? "its standard input" : f->request.path);
    }
    f->said_no_samples = true;
    f->said_trouble = is_trouble;
}

static void samples_have_come(struct hub_feeder *f)
{
    if (f->said_trouble)
        brokers_are_back(f);
    if (f->said_no_samples)
        wait_for(f, "%s", "");
    f->said_no_samples = f->said_trouble = false;
}

/* Has the server record a batch without samples as applied, as no trainer can: as one sample without keys. */
static enum mr_status push_empty(struct hub_feeder *f, const struct hub_part *part, uint64_t id,
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

static enum fed apply_empty(struct hub_feeder *f, struct hub_feed *feed, uint64_t sequence)
{
    struct hub_part *part = hub_part_at(f, feed->part);
    enum mr_status status = MR_OK;
    if (!f->request.held_out) { /* a plan that scores has no record, and pushes nothing */
        status = push_empty(f, part, hub_batch_id(part, sequence), feed->batch.slots);
        hub_server_answered(f, status);
        notice_restart(f);
        hub_check_stream(f, part, status);
    }
    if (status != MR_OK) {
        give_up_feed(f, feed, sequence);
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

static struct hub_feed *free_feed(struct hub *hub)
{
    for (uint32_t i = 0; i < hub->config.prefetch; i++)
        if (!hub->feeds[i].used)
            return &hub->feeds[i];
    return NULL;
}

static enum fed feed_part(struct hub_feeder *f, uint32_t index)
{
    struct hub *hub = f->hub;
    struct hub_plan *plan = &hub_part_at(f, index)->plan;
    uint64_t sequence;
    pthread_mutex_lock(&hub->lock);
    struct hub_feed *feed = free_feed(hub);
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
        give_up_feed(f, feed, sequence);
        return FED_WAITS;
    }
    samples_have_come(f);
    if (status != MR_OK) {
        hub_fail_plan(f, status, error);
        return FED_NONE;
    }
    if (feed->batch.samples == 0)
        return apply_empty(f, feed, sequence);
    mr_trace_span(hub->trace, HUB_TRACK_FEEDING, "build", begin_ns, id);
    begin_ns = mr_trace_begin(hub->trace);
    status = feed_one(f, feed);
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

/* True when a feed was begun: of the parts in turn. Sets *has_applied when a batch without samples was. */
static bool feed_next(struct hub_feeder *f, bool *has_applied)
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
        wait_for_samples(f);
    return false;
}

static void end_feed(struct hub_feeder *f, struct hub_feed *feed)
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
    notice_restart(f);
    hub_check_stream(f, part, status);
    /* Applied by some cores before: what those answer to its push changes nothing, the others need it. */
    bool ok = status == MR_OK || status == MR_ALREADY_LEARNT;
    feed_ended(f, feed, status);
    pthread_mutex_lock(&hub->lock);
    hub_plan_fed(&part->plan, feed->batch.sequence, feed->generation, ok);
    feed->ready = true;
    hub_drop_void_feeds(hub);
    pthread_mutex_unlock(&hub->lock);
}

/* Ends the feed that was begun first; it waits for the server. False: none is in flight. */
static bool end_oldest_feed(struct hub_feeder *f)
{
    struct hub_feed *oldest = NULL;
    for (uint32_t i = 0; i < f->hub->config.prefetch; i++) {
        struct hub_feed *feed = &f->hub->feeds[i];
        if (feed->future != NULL && (oldest == NULL || feed->number < oldest->number))
            oldest = feed;
    }
    if (oldest != NULL)
        end_feed(f, oldest);
    return oldest != NULL;
}

static bool is_empty(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    bool is_empty = hub->batches == 0 && hub_parts_at_end(&hub->parts);
    pthread_mutex_unlock(&hub->lock);
    return is_empty;
}

/* One round with a running plan. True when there may be more to do at once. */
static bool run_plan(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t now_us = mr_clock_us();
    if (now_us < f->retry_us || !connect_server(f))
        return end_oldest_feed(f);
    pthread_mutex_lock(&hub->lock);
    hub_parts_expire(&hub->parts, now_us);
    pthread_mutex_unlock(&hub->lock);
    mrc_trace_clocks_now_and_then(hub->trace, f->client, &f->clocks_ns);
    if (!add_parts(f))
        return false;
    follow_source(f);
    if (is_empty(hub))
        return false; /* at its end from the start */
    if (!find_table(f)) {
        f->retry_us = now_us + HUB_SERVER_RETRY_US;
        return false;
    }
    if (!hub_claim_streams(f))
        return end_oldest_feed(f);
    ask_records(f, now_us);
    bool has_applied = false;
    while (f->table != 0 && now_us >= f->retry_us && feed_next(f, &has_applied)) {
    }
    return end_oldest_feed(f) || has_applied;
}

void *hub_feeder_run(void *arg)
{
    struct hub *hub = arg;
    struct hub_feeder f = {.hub = hub};
    bool busy = false;
    connect_server(&f); /* a wrong address is best found at the start */
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
    hub_leave_streams(&f);
    pthread_mutex_lock(&hub->lock);
    hub->stage = HUB_OPENING; /* whoever still asks gets none of the batches that go now */
    drop_feeds(&f);
    pthread_mutex_unlock(&hub->lock);
    if (f.client != NULL)
        mrc_trace_clocks(hub->trace, f.client);
    close_source(&f, hub_parts_at_end(&hub->parts));
    mr_client_destroy(f.client);
    return NULL;
}
