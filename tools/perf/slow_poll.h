/* Asks the cores for their slow calls, and those around them, for a recorded run. */
#ifndef TOOL_SLOW_POLL_H
#define TOOL_SLOW_POLL_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/perf/run.h"
#include "tools/perf/slow_lines.h"

struct tool_slow_poll {
    struct mr_client *client;
    uint32_t first;      /* number of the client's core 0 in the run */
    uint64_t started_us; /* of the run */
    struct tool_slow_lines lines;
    uint64_t next[TOOL_RUN_CORES_MAX]; /* position of what follows what was read; 0: nothing was, yet */
};

/* Has core 0 begin to select. MR_UNAUTHORIZED, MR_UNKNOWN_OP: none ever will. */
enum mr_status tool_slow_poll_try(struct mr_client *client, uint64_t slow_ns);
/* Reads what the client's core has; at the first time it is asked, only from then on. */
void tool_slow_poll(struct tool_slow_poll *p, uint32_t core);

#endif
