/* What a run comes to: a list of figures with names, units and values, the same for the terminal, JSON and
 * comparisons. Pure. */
#ifndef TOOL_RUN_SUMMARY_H
#define TOOL_RUN_SUMMARY_H

#include <jansson.h>
#include <stdio.h>
#include "tools/perf/run.h"
#include "tools/perf/svg.h"

#define TOOL_FIGURES_MAX 512u

struct tool_figures {
    uint32_t count;
    struct tool_figure {
        char name[80]; /* "calls per second", "lookup work p99" */
        enum tool_unit unit;
        double value;
    } list[TOOL_FIGURES_MAX];
};

void tool_run_figures(const struct tool_run *run, struct tool_figures *out);
void tool_run_print(const struct tool_run *run, const char *path, FILE *out);
json_t *tool_run_json(const struct tool_run *run);
/* Every counter, summed over the cores, at the end of each bin: a heading and a line for each. */
void tool_run_csv(const struct tool_run *run, FILE *out);

/* A figure of two runs, of which both have it. */
struct tool_change {
    const struct tool_figure *before, *after;
    double ratio; /* after / before; infinite from 0 */
};
/* Fills `out` with what both have, what changed by the largest factor first. Returns how many. */
uint32_t tool_run_compare(const struct tool_figures *before, const struct tool_figures *after,
                          struct tool_change out[TOOL_FIGURES_MAX]);

/* The figures of two runs, and what has changed between them, as tool_run_compare() has it. */
struct tool_run_changes {
    struct tool_figures before, after;
    uint32_t count;
    struct tool_change list[TOOL_FIGURES_MAX];
};
void tool_run_changes(const struct tool_run *before, const struct tool_run *after,
                      struct tool_run_changes *out);

#endif
