/* Asks the nodes for their annotations, for a recorded run: what clients set, and what the nodes' logs
 * say. */
#ifndef TOOL_ANNOTATION_POLL_H
#define TOOL_ANNOTATION_POLL_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace.h"
#include "tools/perf/run.h"
#include "tools/perf/run_file.h"

struct tool_annotation_poll {
    struct mr_client *client;
    const char *name; /* of its node, where that is in no cluster; "": none */
    struct tool_run_writer *file;
    uint64_t started_us; /* of the run */
    bool failed;         /* to write */
    uint32_t node_count;
    struct tool_annotation_node {
        char name[MR_NODE_NAME_BYTES];
        bool is_known;
        uint32_t round; /* in which it was asked last */
        uint64_t last;  /* number of the newest annotation that was read */
    } nodes[TOOL_RUN_CORES_MAX];
    uint64_t evicted, evicted_us; /* rows, since the last poll; when there last were any, 0: never */
};

/* Reads what the core's node has, unless another core of it was asked in this round; at the first time only
 * how far its annotations are. */
void tool_annotation_poll(struct tool_annotation_poll *p, uint32_t core, uint32_t round);
/* Notes that a table's counter of rows evicted has risen. */
void tool_annotation_evicted(struct tool_annotation_poll *p, uint64_t rows);
/* Writes an annotation if rows are evicted, and have not been for a while. */
void tool_annotation_evictions(struct tool_annotation_poll *p);

#endif
