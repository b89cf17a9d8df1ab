/* Asks the nodes for their marks, for a recorded run: what clients set, and what the nodes' logs say. */
#ifndef TOOL_MARK_POLL_H
#define TOOL_MARK_POLL_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace.h"
#include "tools/perf/run.h"
#include "tools/perf/run_file.h"

struct tool_mark_poll {
    struct mr_client *client;
    const char *name; /* of its node, where that is in no cluster; "": none */
    struct tool_run_writer *file;
    uint64_t started_us; /* of the run */
    bool failed;         /* to write */
    uint32_t node_count;
    struct tool_mark_node {
        char name[MR_NODE_NAME_BYTES];
        bool is_known;
        uint32_t round; /* in which it was asked last */
        uint64_t last;  /* number of the newest mark that was read */
    } nodes[TOOL_RUN_CORES_MAX];
    uint64_t evicted, evicted_us; /* rows, since the last poll; when there last were any, 0: never */
};

/* Reads what the core's node has, unless another core of it was asked in this round; at the first time only
 * how far its marks are. */
void tool_mark_poll(struct tool_mark_poll *p, uint32_t core, uint32_t round);
/* Notes that a table's counter of rows evicted has risen. */
void tool_mark_evicted(struct tool_mark_poll *p, uint64_t rows);
/* Writes a mark if rows are evicted, and have not been for a while. */
void tool_mark_evictions(struct tool_mark_poll *p);

#endif
