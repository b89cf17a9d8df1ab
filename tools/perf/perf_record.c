/* millrace perf record: everything that a server counts, over time, in a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "dataplane/wire/base/clock.h"
#include "millrace_observe.h"
#include "tools/connection.h"
#include "tools/live.h"
#include "tools/perf/annotation_poll.h"
#include "tools/perf/perf.h"
#include "tools/perf/run.h"
#include "tools/perf/run_facts.h"
#include "tools/perf/run_file.h"
#include "tools/perf/slow_poll.h"

#define ANSWER_MS        1000u /* that a core has to answer */
#define LATENCY_EVERY_MS 1000u
#define FILE_DEFAULT     "run.mrp"
#define SOURCES_MAX      16u
#define SERVER_BYTES     256u

static const char command[] = "millrace perf record";
/* The histograms of a core as they were last written. */
struct known_latency {
    char op[32], phase[16];
    struct mr_histogram histogram;
};

struct known_core {
    uint64_t values[TOOL_RUN_NAMES_MAX];
    struct known_latency *latencies[TOOL_RUN_LATENCIES_MAX];
    uint32_t latency_count;
};

/* A server, or a cluster. */
struct source {
    struct mr_client *client;
    char name[SERVER_BYTES];     /* one of several servers; "": there is no other */
    uint32_t first;              /* number of its core 0 in the run */
    struct tool_slow_poll *slow; /* NULL: slow calls are not wanted */
    struct tool_annotation_poll annotations;
};

struct recorder {
    struct source sources[SOURCES_MAX];
    uint32_t source_count;
    struct tool_run_writer *file;
    uint64_t started_us;
    bool failed; /* to write */
    char *names[TOOL_RUN_NAMES_MAX];
    uint32_t name_count;
    struct known_core *cores[TOOL_RUN_CORES_MAX];
    /* of the sample being taken */
    uint64_t time_ms;
    struct source *source;
    uint32_t core;
    json_t *changes;
    uint64_t samples;
};

static void write_line(struct recorder *r, json_t *line)
{
    if (!tool_run_write(r->file, line))
        r->failed = true;
}

/* Counters come in a fixed order, so the number is nearly always where the last one was. */
static int number_of(struct recorder *r, const char *name, uint32_t *hint)
{
    for (uint32_t i = 0; i < r->name_count; i++) {
        const uint32_t n = (*hint + i) % r->name_count;
        if (strcmp(r->names[n], name) == 0) {
            *hint = n + 1;
            return (int)n;
        }
    }
    char *copy = r->name_count < TOOL_RUN_NAMES_MAX ? strdup(name) : NULL;
    if (copy == NULL)
        return -1;
    r->names[r->name_count] = copy;
    write_line(r, json_pack("{s:i, s:s}", "name", (int)r->name_count, "is", name));
    *hint = r->name_count + 1;
    return (int)r->name_count++;
}

struct counter_visit {
    struct recorder *recorder;
    uint32_t hint;
};

static void take_counter(void *arg, const char *name, uint64_t value)
{
    struct counter_visit *v = arg;
    struct recorder *r = v->recorder;
    const int n = number_of(r, name, &v->hint);
    uint64_t *known = n >= 0 ? &r->cores[r->core]->values[n] : NULL;
    if (known == NULL || *known == value)
        return;
    (void)json_array_append_new(r->changes, json_integer(n));
    (void)json_array_append_new(r->changes, json_integer((json_int_t)(value - *known)));
    if (r->samples > 0 && value > *known && strstr(name, "rows_evicted") != NULL)
        tool_annotation_evicted(&r->source->annotations, value - *known);
    *known = value;
}

static struct known_latency *known_latency(struct known_core *core, const char *op, const char *phase)
{
    for (uint32_t i = 0; i < core->latency_count; i++)
        if (strcmp(core->latencies[i]->op, op) == 0 && strcmp(core->latencies[i]->phase, phase) == 0)
            return core->latencies[i];
    struct known_latency *k = core->latency_count < TOOL_RUN_LATENCIES_MAX ? calloc(1, sizeof(*k)) : NULL;
    if (k == NULL)
        return NULL;
    (void)snprintf(k->op, sizeof(k->op), "%s", op);
    (void)snprintf(k->phase, sizeof(k->phase), "%s", phase);
    core->latencies[core->latency_count++] = k;
    return k;
}

/* Calls of before the recording do not count: what they come to is only remembered. */
static void take_latency(void *arg, const char *op, const char *phase, const struct mr_histogram *now)
{
    struct recorder *r = arg;
    struct known_latency *k = known_latency(r->cores[r->core], op, phase);
    json_t *buckets = json_array();
    if (k == NULL || buckets == NULL)
        return;
    const bool began_again = now->count < k->histogram.count;
    const bool is_first = r->samples == 0;
    const uint64_t sum_ns = now->sum_ns - (began_again ? 0 : k->histogram.sum_ns);
    for (uint32_t i = 0; i < MR_HISTOGRAM_BUCKETS && !is_first; i++) {
        const uint64_t before = began_again ? 0 : k->histogram.buckets[i];
        if (now->buckets[i] <= before)
            continue;
        (void)json_array_append_new(buckets, json_integer(i));
        (void)json_array_append_new(buckets, json_integer((json_int_t)(now->buckets[i] - before)));
    }
    struct mr_histogram window = *now;
    if (!began_again)
        mr_histogram_subtract(&window, &k->histogram);
    k->histogram = *now;
    if (json_array_size(buckets) == 0) {
        json_decref(buckets);
        return;
    }
    write_line(r, json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:o}", "t", (json_int_t)r->time_ms, "c",
                            (json_int_t)r->core, "op", op, "phase", phase, "sum", (json_int_t)sum_ns, "max",
                            (json_int_t)window.max_ns, "b", buckets));
}

static void sample_core(struct recorder *r, const struct mr_core_state *state, bool with_latency)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    struct counter_visit visit = {.recorder = r};
    struct source *source = r->source;
    const uint32_t core = r->core - source->first;
    r->changes = json_array();
    take_counter(&visit, "core.busy_ppm", (uint64_t)(state->busy_share * 1e6 + 0.5));
    take_counter(&visit, "core.state", state->state);
    const enum mr_status status = mr_stats(source->client, &options, core, take_counter, &visit);
    if (status != MR_OK) {
        json_decref(r->changes);
        write_line(r, json_pack("{s:I, s:I, s:b}", "t", (json_int_t)r->time_ms, "c", (json_int_t)r->core,
                                "away", 1));
        return;
    }
    write_line(r, json_pack("{s:I, s:I, s:o}", "t", (json_int_t)r->time_ms, "c", (json_int_t)r->core, "v",
                            r->changes));
    if (with_latency) {
        (void)mr_latencies(source->client, &options, core, take_latency, r);
        tool_annotation_poll(&source->annotations, core, (uint32_t)r->samples);
    }
    if (source->slow != NULL)
        tool_slow_poll(source->slow, core);
}

static void sample_source(struct recorder *r, struct source *source, bool with_latency)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    memset(states, 0, sizeof(states));
    (void)mr_heartbeat(source->client, &options, states); /* cores that do not answer are away below */
    const uint32_t cores = mr_client_core_count(source->client);
    r->time_ms = (mr_clock_us() - r->started_us) / 1000;
    r->source = source;
    for (uint32_t core = 0; core < cores && source->first + core < TOOL_RUN_CORES_MAX; core++) {
        r->core = source->first + core;
        if (r->cores[r->core] == NULL)
            r->cores[r->core] = calloc(1, sizeof(*r->cores[r->core]));
        if (r->cores[r->core] != NULL)
            sample_core(r, &states[core], with_latency);
    }
    tool_annotation_evictions(&source->annotations);
    r->failed |= source->annotations.failed || (source->slow != NULL && source->slow->lines.failed);
}

static void sample_all(struct recorder *r, bool with_latency)
{
    for (uint32_t i = 0; i < r->source_count; i++)
        sample_source(r, &r->sources[i], with_latency);
}

/* ---- the header ---- */

static void add_processor(json_t *header)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        const char *name = strncmp(line, "model name", 10) == 0 ? strstr(line, ": ") : NULL;
        if (name == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        (void)json_object_set_new(header, "processor", json_string(name + 2));
        break;
    }
    if (f != NULL)
        (void)fclose(f);
}

/* The node of each core. */
static json_t *places(const struct recorder *r)
{
    json_t *list = json_array();
    for (const struct source *s = r->sources; s < r->sources + r->source_count; s++) {
        const uint32_t cores = mr_client_core_count(s->client);
        for (uint32_t core = 0; core < cores; core++) {
            struct mr_core_place place;
            const bool has_name = mr_client_core_place(s->client, core, &place) && place.node[0] != '\0';
            (void)json_array_append_new(list, json_string(has_name ? place.node : s->name));
        }
    }
    return list;
}

static json_t *facts(const struct recorder *r)
{
    json_t *nodes = json_object();
    for (uint32_t i = 0; nodes != NULL && i < r->source_count; i++)
        tool_run_facts_ask(r->sources[i].client, r->sources[i].name, nodes);
    return nodes;
}

static json_t *make_header(struct recorder *r, const char *server, uint32_t interval_ms)
{
    struct utsname system;
    char started[32] = "", kernel[160] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL)
        (void)strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *header = json_pack("{s:s, s:i, s:s, s:s, s:s, s:i, s:o}", "format", TOOL_RUN_FORMAT, "version",
                               TOOL_RUN_VERSION, "millrace", MR_VERSION, "server", server, "started", started,
                               "interval_ms", (int)interval_ms, "nodes", places(r));
    if (header == NULL || uname(&system) != 0)
        return header;
    (void)snprintf(kernel, sizeof(kernel), "%s %s", system.sysname, system.release);
    (void)json_object_set_new(header, "host", json_string(system.nodename)); /* where it was recorded */
    (void)json_object_set_new(header, "kernel", json_string(kernel));
    add_processor(header);
    return header;
}

/* ---- the run ---- */

static void show_progress(const struct recorder *r, uint32_t seconds)
{
    if (!isatty(STDERR_FILENO))
        return;
    (void)fprintf(stderr, "\rrecording: %.0f s", (double)r->time_ms / 1e3);
    if (seconds > 0)
        (void)fprintf(stderr, " of %u", seconds);
    (void)fprintf(stderr, ", %" PRIu64 " samples ", r->samples);
}

/* Samples that are late are left out rather than taken at once. */
static void record_all(struct recorder *r, uint32_t interval_ms, uint32_t seconds)
{
    uint64_t due_us = r->started_us, latency_ms = 0;
    const uint64_t end_us = seconds > 0 ? r->started_us + seconds * UINT64_C(1000000) : UINT64_MAX;
    while (!r->failed) {
        const bool is_last = tool_live_ended() || due_us >= end_us;
        const uint64_t now_ms = (mr_clock_us() - r->started_us) / 1000;
        const bool with_latency = r->samples == 0 || is_last || now_ms >= latency_ms + LATENCY_EVERY_MS;
        sample_all(r, with_latency);
        if (with_latency) {
            latency_ms = now_ms;
            r->failed |= !tool_run_flush(r->file);
            show_progress(r, seconds);
        }
        r->samples++;
        if (is_last)
            return;
        const uint64_t now_us = mr_clock_us(), interval_us = interval_ms * UINT64_C(1000);
        due_us += interval_us * (1 + (now_us > due_us + interval_us ? (now_us - due_us) / interval_us : 0));
        tool_live_wait_until(due_us < end_us ? due_us : end_us);
    }
}

/* 0, or the exit code. */
static int begin_slow(struct source *source, uint64_t slow_ns)
{
    const enum mr_status status = tool_slow_poll_try(source->client, slow_ns);
    if (status == MR_UNAUTHORIZED || status == MR_UNKNOWN_OP)
        return cli_fail(command, "--on-slow: %s",
                        status == MR_UNKNOWN_OP ? "the server's version keeps no slow calls"
                                                : mr_last_error());
    source->slow = calloc(1, sizeof(*source->slow));
    if (source->slow == NULL)
        return cli_fail(command, "no memory");
    source->slow->client = source->client;
    source->slow->first = source->first;
    source->slow->lines.slow_ns = slow_ns;
    return 0;
}

static void tell_slow(const struct source *source)
{
    const struct tool_slow_lines *l = &source->slow->lines;
    (void)fprintf(stderr, "%s%s%" PRIu64 " slow calls", source->name, source->name[0] != '\0' ? ": " : "",
                  l->slow + l->slow_left_out);
    if (l->slow_left_out > 0)
        (void)fprintf(stderr, ", %" PRIu64 " of which the file has no room for", l->slow_left_out);
    if (l->lost > 0)
        (void)fprintf(stderr,
                      "; %" PRIu64 " more calls, slow ones or their neighbours, were gone before they "
                      "could be read: a larger --hz, or a longer span, loses fewer",
                      l->lost);
    (void)fputc('\n', stderr);
}

static void free_recorder(struct recorder *r)
{
    for (uint32_t i = 0; i < r->source_count; i++) {
        mr_client_destroy(r->sources[i].client);
        free(r->sources[i].slow);
    }
    for (uint32_t n = 0; n < r->name_count; n++)
        free(r->names[n]);
    for (uint32_t c = 0; c < TOOL_RUN_CORES_MAX; c++) {
        if (r->cores[c] == NULL)
            continue;
        for (uint32_t i = 0; i < r->cores[c]->latency_count; i++)
            free(r->cores[c]->latencies[i]);
        free(r->cores[c]);
    }
    free(r);
}

/* 0, or the exit code. `name`: "" where there is one source. */
static int add_source(struct recorder *r, const struct tool_connection *c, const char *name, uint64_t slow_ns)
{
    if (r->source_count == SOURCES_MAX)
        cli_refuse(command, "--each: there may be %u servers", SOURCES_MAX);
    const struct source *before = r->source_count > 0 ? &r->sources[r->source_count - 1] : NULL;
    struct source *source = &r->sources[r->source_count];
    (void)snprintf(source->name, sizeof(source->name), "%s", name);
    source->first = before != NULL ? before->first + mr_client_core_count(before->client) : 0;
    const int exit_code = tool_connect(command, c, &source->client);
    if (exit_code != 0)
        return exit_code;
    r->source_count++;
    return slow_ns > 0 ? begin_slow(source, slow_ns) : 0;
}

/* Each server of the list by itself. */
static int add_each(struct recorder *r, const struct tool_connection *c, uint64_t slow_ns)
{
    struct tool_connection one = *c;
    const char *at = tool_server_name(c);
    int exit_code = 0;
    while (exit_code == 0 && *at != '\0') {
        char name[SERVER_BYTES];
        const size_t bytes = strcspn(at, ",");
        (void)snprintf(name, sizeof(name), "%.*s", (int)bytes, at);
        one.server = name;
        exit_code = add_source(r, &one, name, slow_ns);
        at += bytes + (at[bytes] == ',');
    }
    return exit_code;
}

static void perf_record_begin(struct recorder *r, const char *server, uint32_t interval_ms, uint64_t slow_ns)
{
    r->started_us = mr_clock_us();
    for (struct source *s = r->sources; s < r->sources + r->source_count; s++) {
        s->annotations.client = s->client;
        s->annotations.name = s->name;
        s->annotations.file = r->file;
        s->annotations.started_us = r->started_us;
        if (s->slow != NULL) {
            s->slow->started_us = r->started_us;
            s->slow->lines.file = r->file;
        }
    }
    json_t *header = make_header(r, server, interval_ms);
    if (slow_ns > 0)
        (void)json_object_set_new(header, "on_slow_ns", json_integer((json_int_t)slow_ns));
    (void)json_object_set_new(header, "facts", facts(r));
    write_line(r, header);
}

static void perf_record_tell(const struct recorder *r, const char *path)
{
    (void)fprintf(stderr, "%s%s: %" PRIu64 " samples in %.1f s; see millrace perf report %s\n",
                  isatty(STDERR_FILENO) ? "\r\033[K" : "", path, r->samples, (double)r->time_ms / 1e3, path);
    for (uint32_t i = 0; i < r->source_count; i++)
        if (r->sources[i].slow != NULL)
            tell_slow(&r->sources[i]);
}

struct wanted {
    struct tool_connection connection;
    bool each;
    const char *path;
    uint32_t interval_ms, seconds;
    uint64_t slow_ns;
};

static int perf_record_run(const struct wanted *w)
{
    struct recorder *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return cli_fail(command, "no memory");
    int exit_code =
        w->each ? add_each(r, &w->connection, w->slow_ns) : add_source(r, &w->connection, "", w->slow_ns);
    if (exit_code == 0 && (r->file = tool_run_create(w->path)) == NULL)
        exit_code = cli_fail(command, "cannot write %s: %s", w->path, strerror(errno));
    if (exit_code == 0) {
        perf_record_begin(r, tool_server_name(&w->connection), w->interval_ms, w->slow_ns);
        record_all(r, w->interval_ms, w->seconds);
        if (!tool_run_close(r->file) || r->failed)
            exit_code =
                cli_fail(command, "%s is not whole: the disk has no room, or memory was short", w->path);
        else
            perf_record_tell(r, w->path);
    }
    free_recorder(r);
    return exit_code;
}

int tool_perf_record(int argc, char **argv)
{
    struct wanted w = {.path = FILE_DEFAULT};
    const char *on_slow = NULL;
    uint32_t hz = 10;
    const struct cli_option options[] = {
        {"output", CLI_STRING, &w.path, "FILE", "where to write; default " FILE_DEFAULT},
        {"seconds", CLI_U32_IN(0, 604800), &w.seconds, "N", "how long; default 0: until Ctrl-C"},
        {"hz", CLI_U32_IN(1, 100), &hz, "N", "samples a second, 1 to 100; default 10"},
        {"on-slow", CLI_STRING, &on_slow, "SPAN",
         "also record calls that took so long, as 5ms, 500us or 1s, and those before and after them; needs "
         "the role operator"},
        {"each", CLI_FLAG, &w.each, NULL,
         "the servers of --server are no cluster: record each of them, at the same time"},
        TOOL_CONNECTION_OPTIONS(&w.connection),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary =
            "Records every counter of every core of a server, or of all nodes of a cluster, and, once\n"
            "a second, how long its calls took. Recording goes on while nodes are away; Ctrl-C ends\n"
            "it. \"millrace perf report\" shows the file, which also zcat and jq can read.\n"
            "\n"
            "  millrace perf record --server 10.0.0.1:7700 --seconds 60 --output run.mrp",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (on_slow != NULL && !tool_span_ns(on_slow, &w.slow_ns))
        cli_refuse(command,
                   "--on-slow is \"%s\"; it is a number with a unit, us, ms or s, from 1us to 1000s, as 5ms",
                   on_slow);
    tool_live_begin();
    w.connection.any_node = true;
    w.interval_ms = 1000 / hz;
    return perf_record_run(&w);
}
