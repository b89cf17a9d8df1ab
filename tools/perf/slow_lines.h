/* Slow calls, and those around them, on their way into a recorded run (run_file.h): one line for each, in
 * bounds. Of the lines that a second may have, calls that were not slow themselves get half, and what is left
 * out is counted. Pure but for the file. */
#ifndef TOOL_SLOW_LINES_H
#define TOOL_SLOW_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace_observe.h"
#include "tools/perf/run_file.h"

#define TOOL_SLOW_LINES_A_SECOND 1000u
#define TOOL_SLOW_LINES_MAX      50000u /* in a run: some megabytes */

struct tool_slow_lines {
    struct tool_run_writer *file;
    uint64_t slow_ns;
    bool failed; /* to write */
    /* in the run: slow calls written; calls beyond the limits, and of these the slow ones; calls that the
     * cores no longer had */
    uint64_t slow, left_out, slow_left_out, lost;
    uint64_t lines, second, lines_in_second;
    uint64_t told_left_out;
};

/* A span with its unit, "5ms", "500us", "1.5s", as ns, from 1 us to 1000 s. False: it is none. */
bool tool_span_ns(const char *text, uint64_t *ns);

/* A call that arrived at time_ms of the run. */
void tool_slow_lines_add(struct tool_slow_lines *l, uint32_t core, uint64_t time_ms,
                         const struct mr_recent_call *call);
/* The core has told all it had by time_ms, and lacked `lost` calls. */
void tool_slow_lines_end(struct tool_slow_lines *l, uint32_t core, uint64_t time_ms, uint64_t lost);

#endif
