/* How a trainer's time divides: what it waits for, by the names of its spans. Pure; one thread. */
#ifndef TOOL_TIMELINE_DIVISION_H
#define TOOL_TIMELINE_DIVISION_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "tools/timeline/traces.h"

/* X(name, key, text). Spans with the names of waits are counted there, all others as compute; of a wait for a
 * lookup or push, the part in which a server works on that batch is the server's work. */
#define TOOL_PARTS(X)                                                                                        \
    X(HUB, "hub", "waiting for the hub")                                                                     \
    X(LOOKUP_WORK, "lookup_server_work", "lookup: server works")                                             \
    X(LOOKUP_REST, "lookup_network_and_queue", "lookup: network and queues")                                 \
    X(COMPUTE, "compute", "compute")                                                                         \
    X(PUSH_WORK, "push_server_work", "push: server works")                                                   \
    X(PUSH_REST, "push_network_and_queue", "push: network and queues")                                       \
    X(OTHER, "other", "none of these")

enum tool_part {
#define TOOL_PART_ENUM(name, key, text) TOOL_PART_##name,
    TOOL_PARTS(TOOL_PART_ENUM)
#undef TOOL_PART_ENUM
        TOOL_PART_COUNT
};

struct tool_division {
    uint32_t process;
    uint64_t batches;                  /* that its spans name */
    int64_t total_ns;                  /* from its first span to the end of its last one */
    int64_t parts_ns[TOOL_PART_COUNT]; /* their sum is total_ns, but where tracks of it overlap */
};

const char *tool_part_text(enum tool_part part);
/* Neither a hub nor a server. */
bool tool_is_trainer(const struct tool_process *p);
/* False: no memory. */
bool tool_divide(const struct tool_traces *t, uint32_t process, struct tool_division *out);
/* How long the trainer waits, as far as its spans tell. */
int64_t tool_waits_ns(const struct tool_division *d);
/* What the trainer waits for most; TOOL_PART_COMPUTE: it does not wait. */
enum tool_part tool_largest_wait(const struct tool_division *d);
/* NULL: no memory. The caller drops it. */
json_t *tool_division_json(const struct tool_traces *t, const struct tool_division *d);

#endif
