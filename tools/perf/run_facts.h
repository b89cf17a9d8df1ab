/* What the nodes of a run are: their configuration, and what they run on; and what differs between two runs.
 */
#ifndef TOOL_RUN_FACTS_H
#define TOOL_RUN_FACTS_H

#include <stdint.h>
#include <stdio.h>
#include "millrace.h"
#include "tools/perf/run.h"

/* Asks one core of each node, and adds {node: {name: value}}; nodes that do not answer, or do not tell this
 * client, have none. `name` is that of a node in no cluster. */
void tool_run_facts_ask(struct mr_client *client, const char *name, json_t *nodes);
/* A table of each node, closed until somebody opens it. */
void tool_run_facts_html(const struct tool_run *run, FILE *out);
/* Calls `visit` for each fact that differs, also where one run has none (""). Returns how many. */
uint32_t tool_run_facts_differ(const struct tool_run *before, const struct tool_run *after,
                               void (*visit)(void *arg, const char *node, const char *name,
                                             const char *before, const char *after),
                               void *arg);

#endif
