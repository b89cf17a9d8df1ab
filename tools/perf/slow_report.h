/* The slow calls of a run in words: on the terminal, as JSON, and as a part of the page. Each writes nothing
 * if the run was not recorded with --on-slow. Pure. */
#ifndef TOOL_SLOW_REPORT_H
#define TOOL_SLOW_REPORT_H

#include <jansson.h>
#include <stdio.h>
#include "tools/perf/run.h"

void tool_slow_print(const struct tool_run *run, FILE *out);
/* NULL: it was not. */
json_t *tool_slow_json(const struct tool_run *run);
void tool_slow_html(const struct tool_run *run, FILE *out);

#endif
