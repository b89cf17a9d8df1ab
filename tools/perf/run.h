/* A recorded run in memory, as reports need it: every counter of every core and the distribution of every
 * operation's phases over time, in at most TOOL_RUN_BINS steps. Longer runs get longer steps, so that an hour
 * at 100 Hz takes no more memory than a minute. */
#ifndef TOOL_RUN_H
#define TOOL_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "mr_histogram.h"
#include "tools/perf/run_calls.h"

#define TOOL_RUN_BINS      600u
#define TOOL_RUN_CORES_MAX 256u
#define TOOL_RUN_NAMES_MAX 1024u
/* The rows of a latency over time: 8 for each power of two. */
#define TOOL_RUN_ROWS      (MR_HISTOGRAM_BUCKETS / TOOL_RUN_ROW_WIDTH)
#define TOOL_RUN_ROW_WIDTH 4u

struct tool_run_core {
    int64_t
        *values[TOOL_RUN_NAMES_MAX]; /* [bins]: the counter at the end of each bin; NULL: it was always 0 */
    int64_t now[TOOL_RUN_NAMES_MAX];
    bool *away; /* [bins] */
    bool seen;  /* its counters, once at least */
};

struct tool_run_latency {
    char op[32], phase[16];
    struct mr_histogram whole;       /* of all cores, over the run */
    uint32_t (*rows)[TOOL_RUN_ROWS]; /* [bins] */
};

#define TOOL_RUN_LATENCIES_MAX   256u
#define TOOL_RUN_ANNOTATIONS_MAX 1000u

struct tool_run_annotation {
    uint64_t time_ms;
    char *text;
};

struct tool_run {
    json_t *header;
    uint64_t interval_ms; /* between samples */
    uint64_t step_ms;     /* of a bin */
    uint64_t end_ms;      /* of the last sample */
    uint32_t bin_count;
    uint32_t core_count; /* cores that were heard of: [0, core_count) */
    uint32_t name_count;
    char *names[TOOL_RUN_NAMES_MAX];
    struct tool_run_core *cores[TOOL_RUN_CORES_MAX];
    uint32_t latency_count;
    struct tool_run_latency *latencies[TOOL_RUN_LATENCIES_MAX];
    uint32_t annotation_count;
    struct tool_run_annotation annotations[TOOL_RUN_ANNOTATIONS_MAX];
    struct tool_run_calls calls;
};

/* NULL: `error` says what is wrong. */
struct tool_run *tool_run_load(const char *path, char *error, size_t error_bytes);
void tool_run_free(struct tool_run *run);

/* The number of a counter, or -1: the run does not have it. */
int tool_run_counter(const struct tool_run *run, const char *name);
/* The length of a bin in seconds; the last may be shorter. */
double tool_run_bin_s(const struct tool_run *run, uint32_t bin);
/* A counter at the end of a bin, of one core or (core = -1) summed over all. */
double tool_run_value(const struct tool_run *run, int counter, int core, uint32_t bin);
/* How much it rose per second in a bin. 0 in the first, which has no beginning, and where a server began
 * again. */
double tool_run_rate(const struct tool_run *run, int counter, int core, uint32_t bin);
/* How much it rose over the run, from the end of the first bin on. */
double tool_run_rise(const struct tool_run *run, int counter, int core);
/* The seconds that that took. */
double tool_run_seconds(const struct tool_run *run);
/* The span that `share` of the calls in a bin do not exceed; NAN: there were none. Up to 5 % off. */
double tool_run_percentile_ns(const struct tool_run_latency *l, uint32_t bin, double share);

#endif
