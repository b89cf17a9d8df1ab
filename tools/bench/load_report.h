/* What a load has come to, as text and as JSON. Pure. */
#ifndef TOOL_LOAD_REPORT_H
#define TOOL_LOAD_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include "tools/bench/load_stats.h"
#include "tools/bench/plan.h"

/* A part of a run, or all of it. */
struct tool_load_block {
    double end_s;       /* from the beginning of the measurement */
    double seconds;     /* its length; 0: rates are unknown */
    uint64_t behind_ns; /* how late the client was that sent latest, at the block's end */
    struct tool_load_stats stats;
};

/* What the server has counted during the run, for all of its clients. */
struct tool_load_server {
    bool is_known;
    uint64_t segments_resent, segments_repeated, calls_expired, busy_sent;
};
/* A visitor for mr_stats(): adds what of this is in a core's counters. */
void tool_load_server_counter(void *arg, const char *name, uint64_t value);

void tool_load_heading(FILE *out);
/* A line for each op of the mix that has been called, and one for all of them if there are several; `label`
 * stands before the first. */
void tool_load_lines(FILE *out, const char *label, const struct tool_bench_plan *plan,
                     const struct tool_load_block *block);
/* How far sending is behind, if it is: "12 ms", "1.2 s". False: it is not, or by less than `least_ns`. */
bool tool_load_behind(const struct tool_load_block *block, uint64_t least_ns, char *out, size_t out_bytes);
/* What went wrong, a line each, if anything did. */
void tool_load_failures(FILE *out, const struct tool_load_block *total, const char *first_error);

/* {"calls": .., "failed": .., .., "ops": {"lookup": {.., "latency_us": {"p50": ..}}}}; with the histograms,
 * each a list of [low end of a bucket in ns, count], if they are wanted. */
json_t *tool_load_block_json(const struct tool_bench_plan *plan, const struct tool_load_block *block,
                             bool with_histograms);
/* {"cause": count} of the calls that failed. */
json_t *tool_load_failures_json(const struct tool_load_stats *stats);
json_t *tool_load_server_json(const struct tool_load_server *server);
/* The options of the run, as they were or would have been given. */
json_t *tool_load_plan_json(const struct tool_bench_plan *plan);

#endif
