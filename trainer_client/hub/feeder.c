/* The feeding thread: it connects to the server and notices its restarts, opens a plan's samples, finds its
 * streams and its table, has batches fed (feed.c), and asks which of them were applied. */
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
#include "trainer_client/hub/open_source.h"
#include "trainer_client/hub/samples/live_input.h"

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

void hub_wait_for(struct hub_feeder *f, const char *format, ...)
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
            pthread_mutex_lock(&f->hub->lock);
            f->hub->fatal = status;
            snprintf(f->hub->error, sizeof(f->hub->error), "%s", error);
            pthread_mutex_unlock(&f->hub->lock);
            atomic_store(&f->hub->stop, true);
            return false;
        }
        if (!f->said_away)
            mr_log_warning("server_away", "waiting for the parameter server: %s", error);
        hub_wait_for(f, "the hub waits for its parameter server: %s", error);
        f->said_away = true;
        f->retry_us = mr_clock_us() + HUB_SERVER_RETRY_US;
        return false;
    }
    hub_wait_for(f, "%s", "");
    f->said_away = false;
    f->server_start = mr_client_start_id(f->client);
    return true;
}

void hub_notice_restart(struct hub_feeder *f)
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
        hub_wait_for(f, "the hub waits for its parameter server: %s", mr_last_error());
    } else if (!away && f->said_away) {
        mr_log_info("server_back", "the parameter server is back");
        hub_wait_for(f, "%s", "");
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
static bool source_is_same(const struct hub_feeder *f, const struct hub_request *request)
{
    char ignored[HUB_ERROR_BYTES];
    return f->source != NULL && !hub_request_differs(&f->request, request, NULL, 0) &&
           hub_batch_source_check(f->source, ignored) == MR_OK;
}

/* is_at_end: all that came is applied. */
static void source_close(struct hub_feeder *f, bool is_at_end)
{
    if (f->source != NULL && !is_at_end && !hub_batch_source_can_repeat(f->source))
        mr_log_warning("samples_lost", "what was read of standard input and is not applied is lost");
    hub_batch_source_close(f->source);
    f->source = NULL;
}

static void nudge_hub(void *arg)
{
    struct hub *hub = arg;
    pthread_mutex_lock(&hub->lock);
    hub_nudge(hub);
    pthread_mutex_unlock(&hub->lock);
}

static enum mr_status source_open(struct hub_feeder *f, char *error)
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
        .on_batch = nudge_hub,
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

static bool parts_make(struct hub_feeder *f)
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
static bool parts_add(struct hub_feeder *f)
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
static void plan_open(struct hub_feeder *f)
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
    bool is_open = source_is_same(f, &request);
    /* Samples are scored anew, unless they cannot be read a second time. */
    f->is_again = is_open && at_end && !(request.held_out && hub_batch_source_can_repeat(f->source));
    f->request = request;
    if (!is_open)
        source_close(f, at_end);
    enum mr_status status = is_open ? MR_OK : source_open(f, error);
    if (status != MR_OK) {
        hub_fail_plan(f, status, error);
        return;
    }
    if (!f->is_again && !parts_make(f)) {
        hub_fail_plan(f, MR_NO_MEMORY, "no memory for the parts of the plan");
        return;
    }
    f->retry_us = 0;
}

/* The plan's samples are open: it can start once their slots are known and it has its stream. */
static void plan_begin(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    char error[HUB_ERROR_BYTES];
    if (!parts_add(f))
        return;
    enum mr_status status = hub_batch_source_ready(f->source, error);
    if (status != MR_OK && status != MR_NOT_READY)
        hub_fail_plan(f, status, error);
    if (status != MR_OK || mr_clock_us() < f->retry_us || !connect_server(f) || !hub_claim_streams(f))
        return;
    if (hub_batch_source_is_live(f->source) && !f->is_again)
        log_live_plan(f);
    pthread_mutex_lock(&hub->lock);
    if (hub->plan_number == f->plan_number) {
        hub->stage = HUB_RUNNING;
        hub->info = *hub_batch_source_info(f->source);
        hub->is_live = hub_batch_source_is_live(f->source);
        hub->batches = hub_parts_batches(&hub->parts);
        f->table = 0;
        f->said_no_table = f->said_no_list = f->said_no_samples = f->said_trouble = f->is_refused = false;
    }
    pthread_mutex_unlock(&hub->lock);
}

/* ---- the table, and the record of applied batches ---- */

/* Makes sure of f->table. False: the server has no such table yet, or is away. */
static bool table_find(struct hub_feeder *f)
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
        hub_wait_for(f,
                     "the parameter server %s has no table '%s': the hub waits for it to be created; "
                     "if its name is wrong, give the plan the right one",
                     f->hub->config.server, f->request.table);
    } else if (status == MR_OK) {
        hub_wait_for(f, "%s", "");
    } else if (!f->said_away) { /* another version, a node that has failed, a key without the right */
        if (!f->said_no_list)
            mr_log_warning("server_lists_nothing", "the parameter server does not list its tables: %s",
                           mr_last_error());
        hub_wait_for(f, "the parameter server does not list its tables: %s", mr_last_error());
    }
    f->said_no_list = status != MR_OK && !f->said_away;
    if (status == MR_OK && f->table == 0 && !f->said_no_table)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"table", .text = f->request.table}), "waits_for_table",
                    "waiting for table '%s' to be created on the parameter server", f->request.table);
    f->said_no_table = status == MR_OK ? f->table == 0 : f->said_no_table;
    return f->table != 0;
}

/* Asks the server which batches of the part it has applied, and updates the plan. */
static void record_ask(struct hub_feeder *f, struct hub_part *part)
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
    hub_notice_restart(f);
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

/* Asks for the records that are due, as long as the server answers. */
static void records_poll(struct hub_feeder *f, uint64_t now_us)
{
    for (uint32_t i = 0; i < f->hub->parts.count && now_us >= f->retry_us; i++) {
        struct hub_part *part = hub_part_at(f, i);
        const struct hub_plan *plan = &part->plan;
        pthread_mutex_lock(&f->hub->lock);
        const uint64_t interval_us = plan->claimed > 0        ? RECORD_CLAIMED_US
                                     : hub_plan_is_idle(plan) ? RECORD_IDLE_US
                                                              : RECORD_INTERVAL_US;
        const bool is_due = part->has_stream && !plan->read_only &&
                            (part->record_us == 0 || now_us >= part->record_us + interval_us);
        pthread_mutex_unlock(&f->hub->lock);
        if (!is_due)
            continue;
        uint64_t begin_ns = mr_trace_begin(f->hub->trace);
        record_ask(f, part);
        mr_trace_span(f->hub->trace, HUB_TRACK_FEEDING, "ask record", begin_ns, MR_TRACE_NO_BATCH);
    }
}

/* ---- a running plan ---- */

static void part_follow(struct hub_feeder *f, uint32_t index)
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
static void source_follow(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    if (!hub->is_live)
        return;
    if (atomic_load(&hub->ending))
        hub_batch_source_finish(f->source);
    for (uint32_t i = 0; i < hub->parts.count; i++)
        part_follow(f, i);
    const uint64_t broken_lines = hub_batch_source_info(f->source)->broken_lines;
    pthread_mutex_lock(&hub->lock);
    hub->info.broken_lines = broken_lines;
    hub->batches = hub_parts_batches(&hub->parts);
    pthread_mutex_unlock(&hub->lock);
}

/* One round with a running plan. True when there may be more to do at once. */
static bool plan_run(struct hub_feeder *f)
{
    struct hub *hub = f->hub;
    uint64_t now_us = mr_clock_us();
    if (now_us < f->retry_us || !connect_server(f))
        return hub_feed_end_oldest(f);
    pthread_mutex_lock(&hub->lock);
    hub_parts_expire(&hub->parts, now_us);
    pthread_mutex_unlock(&hub->lock);
    mrc_trace_clocks_now_and_then(hub->trace, f->client, &f->clocks_ns);
    if (!parts_add(f))
        return false;
    source_follow(f);
    pthread_mutex_lock(&hub->lock);
    const bool is_empty = hub->batches == 0 && hub_parts_at_end(&hub->parts);
    pthread_mutex_unlock(&hub->lock);
    if (is_empty)
        return false; /* at its end from the start */
    if (!table_find(f)) {
        f->retry_us = now_us + HUB_SERVER_RETRY_US;
        return false;
    }
    if (!hub_claim_streams(f))
        return hub_feed_end_oldest(f);
    records_poll(f, now_us);
    bool has_applied = false;
    while (f->table != 0 && now_us >= f->retry_us && hub_feed_next(f, &has_applied)) {
    }
    return hub_feed_end_oldest(f) || has_applied;
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
            plan_open(&f);
            busy = true;
        } else if (stage == HUB_OPENING) {
            plan_begin(&f);
        } else if (stage == HUB_RUNNING) {
            busy = plan_run(&f);
        }
    }
    hub_leave_streams(&f);
    pthread_mutex_lock(&hub->lock);
    hub->stage = HUB_OPENING; /* whoever still asks gets none of the batches that go now */
    drop_feeds(&f);
    pthread_mutex_unlock(&hub->lock);
    if (f.client != NULL)
        mrc_trace_clocks(hub->trace, f.client);
    source_close(&f, hub_parts_at_end(&hub->parts));
    mr_client_destroy(f.client);
    return NULL;
}
