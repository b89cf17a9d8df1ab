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
#include "tools/connection.h"
#include "tools/live.h"
#include "tools/perf/mark_poll.h"
#include "tools/perf/perf.h"
#include "tools/perf/run.h"
#include "tools/perf/run_facts.h"
#include "tools/perf/run_file.h"
#include "tools/perf/slow_poll.h"

#define ANSWER_MS        1000u /* that a core has to answer */
#define LATENCY_EVERY_MS 1000u
#define FILE_DEFAULT     "run.mrp"

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

struct recorder {
    struct mr_client *client;
    struct tool_run_writer *file;
    uint64_t started_us;
    bool failed; /* to write */
    char *names[TOOL_RUN_NAMES_MAX];
    uint32_t name_count;
    struct known_core *cores[TOOL_RUN_CORES_MAX];
    /* of the sample being taken */
    uint64_t time_ms;
    uint32_t core;
    json_t *changes;
    uint64_t samples;
    struct tool_slow_poll *slow; /* NULL: slow calls are not wanted */
    struct tool_mark_poll marks;
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
        tool_mark_evicted(&r->marks, value - *known);
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

/* Returns whether the core answered. */
static bool sample_core(struct recorder *r, const struct mr_core_state *state, bool with_latency)
{
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    struct counter_visit visit = {.recorder = r};
    r->changes = json_array();
    take_counter(&visit, "core.busy_ppm", (uint64_t)(state->busy_share * 1e6 + 0.5));
    take_counter(&visit, "core.state", state->state);
    const enum mr_status status = mr_stats(r->client, &options, r->core, take_counter, &visit);
    if (status != MR_OK) {
        json_decref(r->changes);
        write_line(r, json_pack("{s:I, s:I, s:b}", "t", (json_int_t)r->time_ms, "c", (json_int_t)r->core,
                                "away", 1));
        return false;
    }
    write_line(r, json_pack("{s:I, s:I, s:o}", "t", (json_int_t)r->time_ms, "c", (json_int_t)r->core, "v",
                            r->changes));
    if (with_latency) {
        (void)mr_latencies(r->client, &options, r->core, take_latency, r);
        tool_mark_poll(&r->marks, r->core, (uint32_t)r->samples);
    }
    if (r->slow != NULL)
        tool_slow_poll(r->slow, r->core);
    return true;
}

static uint32_t sample_all(struct recorder *r, bool with_latency)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    const struct mr_options options = {.deadline_ms = ANSWER_MS};
    uint32_t answered = 0;
    memset(states, 0, sizeof(states));
    (void)mr_heartbeat(r->client, &options, states); /* cores that do not answer are away below */
    const uint32_t cores = mr_client_core_count(r->client);
    r->time_ms = (mr_clock_us() - r->started_us) / 1000;
    for (r->core = 0; r->core < cores && r->core < TOOL_RUN_CORES_MAX; r->core++) {
        if (r->cores[r->core] == NULL)
            r->cores[r->core] = calloc(1, sizeof(*r->cores[r->core]));
        if (r->cores[r->core] != NULL)
            answered += sample_core(r, &states[r->core], with_latency);
    }
    return answered;
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

static json_t *places(struct mr_client *client)
{
    json_t *list = json_array();
    const uint32_t cores = mr_client_core_count(client);
    for (uint32_t core = 0; core < cores; core++) {
        struct mr_core_place place;
        const bool known = mr_client_core_place(client, core, &place);
        (void)json_array_append_new(list, json_string(known ? place.node : ""));
    }
    return list;
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
                               "interval_ms", (int)interval_ms, "nodes", places(r->client));
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
    while (!r->failed && !r->marks.failed && (r->slow == NULL || !r->slow->lines.failed)) {
        const bool is_last = tool_live_ended() || due_us >= end_us;
        const uint64_t now_ms = (mr_clock_us() - r->started_us) / 1000;
        const bool with_latency = r->samples == 0 || is_last || now_ms >= latency_ms + LATENCY_EVERY_MS;
        (void)sample_all(r, with_latency);
        tool_mark_evictions(&r->marks);
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
static int begin_slow(struct recorder *r, uint64_t slow_ns)
{
    const enum mr_status status = tool_slow_poll_try(r->client, slow_ns);
    if (status == MR_UNAUTHORIZED || status == MR_UNKNOWN_OP)
        return cli_fail(command, "--on-slow: %s",
                        status == MR_UNKNOWN_OP ? "the server's version keeps no slow calls"
                                                : mr_last_error());
    r->slow = calloc(1, sizeof(*r->slow));
    if (r->slow == NULL)
        return cli_fail(command, "no memory");
    r->slow->client = r->client;
    r->slow->lines.slow_ns = slow_ns;
    return 0;
}

static void tell_slow(const struct tool_slow_lines *l)
{
    (void)fprintf(stderr, "%" PRIu64 " slow calls", l->slow + l->slow_left_out);
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
    free(r->slow);
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

static int run(const struct tool_connection *c, const char *path, uint32_t interval_ms, uint32_t seconds,
               uint64_t slow_ns)
{
    struct recorder *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return cli_fail(command, "no memory");
    int exit_code = tool_connect(command, c, &r->client);
    if (exit_code == 0 && slow_ns > 0 && (exit_code = begin_slow(r, slow_ns)) != 0)
        mr_client_destroy(r->client);
    if (exit_code != 0) {
        free_recorder(r);
        return exit_code;
    }
    r->file = tool_run_create(path);
    if (r->file == NULL) {
        exit_code = cli_fail(command, "cannot write %s: %s", path, strerror(errno));
    } else {
        r->started_us = mr_clock_us();
        r->marks.client = r->client;
        r->marks.file = r->file;
        r->marks.started_us = r->started_us;
        json_t *header = make_header(r, tool_server_name(c), interval_ms);
        if (r->slow != NULL) {
            r->slow->started_us = r->started_us;
            r->slow->lines.file = r->file;
            (void)json_object_set_new(header, "on_slow_ns", json_integer((json_int_t)slow_ns));
        }
        (void)json_object_set_new(header, "facts", tool_run_facts_ask(r->client));
        write_line(r, header);
        record_all(r, interval_ms, seconds);
        if (!tool_run_close(r->file) || r->failed || r->marks.failed ||
            (r->slow != NULL && r->slow->lines.failed))
            exit_code = cli_fail(command, "%s is not whole: the disk has no room, or memory was short", path);
    }
    if (exit_code == 0)
        (void)fprintf(stderr, "%s%s: %" PRIu64 " samples in %.1f s; see millrace perf report %s\n",
                      isatty(STDERR_FILENO) ? "\r\033[K" : "", path, r->samples, (double)r->time_ms / 1e3,
                      path);
    if (exit_code == 0 && r->slow != NULL)
        tell_slow(&r->slow->lines);
    mr_client_destroy(r->client);
    free_recorder(r);
    return exit_code;
}

int tool_perf_record(int argc, char **argv)
{
    struct tool_connection c = {0};
    const char *path = FILE_DEFAULT;
    const char *on_slow = NULL;
    uint32_t seconds = 0, hz = 10;
    uint64_t slow_ns = 0;
    const struct cli_option options[] = {
        {"output", CLI_STRING, &path, "FILE", "where to write; default " FILE_DEFAULT},
        {"seconds", CLI_U32_IN(0, 604800), &seconds, "N", "how long; default 0: until Ctrl-C"},
        {"hz", CLI_U32_IN(1, 100), &hz, "N", "samples a second, 1 to 100; default 10"},
        {"on-slow", CLI_STRING, &on_slow, "SPAN",
         "also record calls that took so long, as 5ms, 500us or 1s, and those before and after them; needs "
         "the role operator"},
        TOOL_CONNECTION_OPTIONS(&c),
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
    if (on_slow != NULL && !tool_span_ns(on_slow, &slow_ns))
        cli_refuse(command,
                   "--on-slow is \"%s\"; it is a number with a unit, us, ms or s, from 1us to 1000s, as 5ms",
                   on_slow);
    tool_live_begin();
    c.any_node = true;
    return run(&c, path, 1000 / hz, seconds, slow_ns);
}
