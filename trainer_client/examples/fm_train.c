/* `fm train`: batches from the hub, parameters and gradients from and to the server, several batches under
 * way.
 *
 * Whatever happens to a batch here, the trainer only tells the hub that it is through with it. Whether it was
 * applied is the server's to say, and the hub hands out again what was not.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "trainer_client/trace_clocks.h"
#include "trainer_client/examples/fm.h"

#define PIPELINE_MAX 16u
#define DONE_MAX     64u
#define NOT_READY_US 1000u

#define TERMINAL_INTERVAL_US 250000u
#define LOG_INTERVAL_US      1000000u
#define HEARTBEAT_MS         200u

/* The progress line: in place on a terminal, else a line every few seconds. */
struct progress {
    uint64_t shown_us;
    uint64_t samples; /* since it was shown */
    double loss;      /* of those */
    bool shown;
};

struct trainer {
    struct fm_client client;
    /* A ring of `depth` places: first the `pushing` ones whose push is in flight, from first_push on, then
     * the `looking` ones that wait for their parameters, from first_push + pushing on. */
    struct fm_step steps[PIPELINE_MAX];
    uint32_t depth, first_push, pushing, looking;
    uint64_t done[DONE_MAX]; /* batches to tell the hub about */
    uint32_t done_count;
    uint64_t step, samples, begun_us;
    uint64_t applied, refused, dropped;
    double loss;
    struct progress progress;
};

static void progress_add(struct progress *p, uint32_t samples, double loss)
{
    p->samples += samples;
    p->loss += loss;
}

static void ask_server(struct fm_client *c, double *busy_share, uint64_t *cached_batches)
{
    struct mr_core_state states[256];
    const struct mr_options options = {.deadline_ms = HEARTBEAT_MS, .priority = 7};
    uint32_t cores = mr_client_core_count(c->server);
    if (cores > sizeof(states) / sizeof(states[0]) || mr_heartbeat(c->server, &options, states) != MR_OK)
        return;
    *busy_share = 0;
    *cached_batches = 0;
    for (uint32_t i = 0; i < cores; i++) {
        *busy_share += states[i].busy_share / cores;
        /* Every core keeps its share of every batch. */
        *cached_batches =
            states[i].cached_batches > *cached_batches ? states[i].cached_batches : *cached_batches;
    }
}

/* Shows it when its time has come. Asks the server how busy it is. */
static void progress_show(struct progress *p, struct fm_client *c, uint64_t samples_total)
{
    bool terminal = isatty(STDERR_FILENO) != 0;
    uint64_t now_us = fm_now_us(), interval_us = terminal ? TERMINAL_INTERVAL_US : LOG_INTERVAL_US;
    if (p->shown_us == 0)
        p->shown_us = now_us;
    if (c->options->quiet || now_us - p->shown_us < interval_us)
        return;
    double busy_share = -1, seconds = (double)(now_us - p->shown_us) / 1e6;
    uint64_t cached = 0;
    char server[80] = "server away", loss[40] = "-";
    ask_server(c, &busy_share, &cached);
    if (busy_share >= 0) {
        snprintf(server, sizeof(server), "server busy %.0f %%, %" PRIu64 " cached batches", busy_share * 100,
                 cached);
    }
    if (p->samples > 0)
        snprintf(loss, sizeof(loss), "%.4f", p->loss / (double)p->samples);
    fprintf(stderr, "%strain: %9" PRIu64 " samples, %7.0f/s, log loss %s, %s%s", terminal ? "\r\033[K" : "",
            samples_total, (double)p->samples / seconds, loss, server, terminal ? "" : "\n");
    fflush(stderr);
    *p = (struct progress){.shown_us = now_us, .shown = terminal};
}

static void progress_end(struct progress *p)
{
    if (p->shown)
        fputc('\n', stderr);
}

static void note_done(struct trainer *t, uint64_t batch_id)
{
    if (t->done_count < DONE_MAX) /* one that finds no room is taken back by the hub after a while */
        t->done[t->done_count++] = batch_id;
}

/* A batch that came to nothing. False: the trainer has to end. */
static bool drop_step(struct trainer *t, struct fm_step *s, enum mr_status status, const char *what)
{
    note_done(t, s->batch.id);
    fm_step_drop(s);
    t->dropped++;
    bool unknown = status == MR_UNKNOWN_TABLE || status == MR_UNKNOWN_VARIABLE;
    if (!fm_may_go_on(&t->client, status, what))
        return false;
    /* The server came back without a checkpoint: begin again there. */
    return !unknown || fm_create(&t->client);
}

static bool fm_train_save(struct trainer *t)
{
    uint64_t id;
    enum mr_status status = mr_save(t->client.server, NULL, NULL, &id, NULL);
    if (status != MR_OK && !fm_is_passing(status)) {
        fprintf(stderr, "fm: Save: %s\n", mr_last_error());
        return false;
    }
    return true;
}

/* The time does not count as training, nor as being without progress. */
static void pause_here(struct trainer *t)
{
    uint64_t begun_us = fm_now_us();
    raise(SIGSTOP);
    t->client.progress_us = fm_now_us();
    t->client.away_us += t->client.progress_us - begun_us;
}

static bool end_push(struct trainer *t)
{
    struct fm_step *s = &t->steps[t->first_push % t->depth];
    uint64_t begin_ns = mr_trace_begin(t->client.trace);
    enum mr_status status = fm_step_end(s);
    mr_trace_span(t->client.trace, 0, "wait for push", begin_ns, s->batch.id);
    t->first_push++;
    t->pushing--;
    if (status != MR_OK)
        return drop_step(t, s, status, "PushGrad");
    fm_made_progress(&t->client);
    t->applied += s->applied;
    t->refused += !s->applied;
    t->samples += s->batch.samples;
    note_done(t, s->batch.id);
    fm_step_drop(s);
    const struct fm_options *options = t->client.options;
    if (options->save_every != 0 && t->applied % options->save_every == 0 && !fm_train_save(t))
        return false;
    if (options->pause_after != 0 && s->applied && t->applied == options->pause_after)
        pause_here(t);
    return true;
}

static bool begin_push(struct trainer *t)
{
    double loss;
    struct fm_step *s = &t->steps[(t->first_push + t->pushing) % t->depth];
    enum mr_status status = fm_step_push(s, &t->client, ++t->step, &loss);
    if (status != MR_OK) {
        /* The steps before it end first, so that the ring has no hole. */
        while (t->pushing > 0)
            if (!end_push(t))
                return false;
        t->first_push++;
        t->looking--;
        return drop_step(t, s, status, "Lookup");
    }
    t->looking--;
    t->pushing++;
    t->loss += loss;
    progress_add(&t->progress, s->batch.samples, loss);
    return true;
}

/* Frees the ring's oldest place. */
static bool finish_one(struct trainer *t)
{
    return t->pushing > 0 ? end_push(t) : begin_push(t);
}

static bool begin_step(struct trainer *t, const struct mr_batch *batch)
{
    struct fm_step *s = &t->steps[(t->first_push + t->pushing + t->looking) % t->depth];
    s->batch = *batch;
    uint64_t begin_ns = mr_trace_begin(t->client.trace);
    enum mr_status status = fm_step_begin(s, &t->client);
    mr_trace_span(t->client.trace, 0, "ask for rows", begin_ns, batch->id);
    if (status != MR_OK)
        return drop_step(t, s, status, "Lookup");
    t->looking++;
    return true;
}

/* The hub's answer to the request for a batch. False: the end, with `*failed` set or not. */
static bool take_answer(struct trainer *t, enum mr_status status, const struct mr_batch *batch, bool *failed)
{
    *failed = false;
    switch (status) {
    case MR_OK:
        fm_made_progress(&t->client);
        *failed = !begin_step(t, batch);
        break;
    case MR_END_OF_DATA:
        return false;
    case MR_NOT_READY:
        if (t->looking + t->pushing > 0) {
            *failed = !finish_one(t);
        } else {
            *failed = fm_now_us() - t->client.progress_us > FM_AWAY_US &&
                      !fm_may_go_on(&t->client, status, "ReadSample");
            fm_sleep_us(NOT_READY_US);
        }
        break;
    case MR_NOT_STARTED: /* the hub restarted */
        *failed = !fm_start(&t->client, MR_PART_TRAIN);
        break;
    default:
        *failed = !fm_may_go_on(&t->client, status, "ReadSample");
        break;
    }
    return !*failed;
}

static bool fm_train_run(struct trainer *t)
{
    bool failed = false, more = true;
    uint64_t clocks_ns = 0;
    while (more) {
        mrc_trace_clocks_now_and_then(t->client.trace, t->client.server, &clocks_ns);
        struct mr_batch batch;
        uint64_t begin_ns = mr_trace_begin(t->client.trace);
        enum mr_status status = mr_read_sample(t->client.hub, NULL, t->done, t->done_count, &batch);
        mr_trace_span(t->client.trace, 0, "ask for a batch", begin_ns,
                      status == MR_OK ? batch.id : MR_TRACE_NO_BATCH);
        if (status == MR_OK || status == MR_NOT_READY || status == MR_END_OF_DATA)
            t->done_count = 0;
        more = take_answer(t, status, &batch, &failed);
        while (more && t->looking + t->pushing == t->depth) {
            more = finish_one(t);
            failed = !more;
        }
        /* Push what has been looked up: the answer to the next request for a batch comes meanwhile. */
        if (more && t->looking > t->depth / 2) {
            more = begin_push(t);
            failed = !more;
        }
        progress_show(&t->progress, &t->client, t->samples);
    }
    return !failed;
}

static void print_result(const struct trainer *t)
{
    const struct fm_client *c = &t->client;
    double seconds = (double)(fm_now_us() - t->begun_us) / 1e6, away = (double)c->away_us / 1e6;
    double training = seconds > away ? seconds - away : seconds;
    struct mr_replay_info replay;
    mr_client_replay_info(c->server, &replay);
    printf("{\"samples\": %" PRIu64 ", \"seconds\": %.3f, \"seconds_away\": %.3f, \"samples_per_s\": %.0f, "
           "\"logloss\": %.4f, \"pushes_applied\": %" PRIu64 ", \"pushes_refused\": %" PRIu64
           ", \"pushes_replayed\": %" PRIu64 ", \"batches_dropped\": %" PRIu64 ", \"batches\": %" PRIu64
           ", \"stream\": %u, \"keys\": %" PRIu64 ", \"broken_lines\": %" PRIu64 "}\n",
           t->samples, seconds, away, training > 0 ? (double)t->samples / training : 0.0,
           t->step > 0 && t->samples > 0 ? t->loss / (double)t->samples : 0.0, t->applied, t->refused,
           replay.replayed, t->dropped, c->info.batches, c->info.stream, c->info.keys, c->info.broken_lines);
}

static bool open_trace(const struct fm_options *options, struct mr_trace **out)
{
    char error[400];
    if (mr_trace_open(options->trace, "fm train", out, error, sizeof(error)))
        return true;
    fprintf(stderr, "fm: %s\n", error);
    return false;
}

static bool close_trace(struct mr_trace *trace)
{
    char error[400];
    if (mr_trace_close(trace, error, sizeof(error)))
        return true;
    fprintf(stderr, "fm: %s\n", error);
    return false;
}

static void trace_clocks(struct fm_client *c)
{
    mrc_trace_clocks(c->trace, c->hub);
    mrc_trace_clocks(c->trace, c->server);
}

int fm_train(const struct fm_options *options)
{
    struct trainer *t = calloc(1, sizeof(*t));
    struct mr_trace *trace = NULL;
    if (t == NULL || !open_trace(options, &trace) || !fm_connect(&t->client, options)) {
        (void)close_trace(trace);
        free(t);
        return 1;
    }
    t->client.trace = trace;
    /* One place more than batches that wait for their parameters: for the one whose push is in flight. */
    t->depth = options->pipeline + 1 < PIPELINE_MAX ? options->pipeline + 1 : PIPELINE_MAX;
    bool ok = fm_start(&t->client, MR_PART_TRAIN) && fm_create(&t->client);
    trace_clocks(&t->client);
    t->begun_us = t->client.progress_us = fm_now_us();
    t->client.away_us = 0;
    ok = ok && fm_train_run(t);
    progress_end(&t->progress);
    if (ok)
        print_result(t);
    trace_clocks(&t->client);
    for (uint32_t i = 0; i < PIPELINE_MAX; i++)
        fm_step_free(&t->steps[i]);
    fm_disconnect(&t->client);
    ok = close_trace(trace) && ok;
    free(t);
    return ok ? 0 : 1;
}
