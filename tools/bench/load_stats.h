/* What has come of the calls. Each client's thread counts in one of these, and another reads it meanwhile: it
 * copies (tool_load_stats_read), adds the clients up, and takes away what it had copied before, which leaves
 * what came in between. Pure. */
#ifndef TOOL_LOAD_STATS_H
#define TOOL_LOAD_STATS_H

#include <stdint.h>
#include "dataplane/wire/format/mr_histogram.h"
#include "dataplane/wire/format/mr_status.h"
#include "tools/bench/mix.h"

enum tool_count {
    TOOL_ENDED,    /* calls, whatever their outcome */
    TOOL_FAILED,   /* of these */
    TOOL_TIMEOUTS, /* of the failed ones: no answer came before the deadline */
    TOOL_UNSENT,   /* were due before the end and could not be sent; not among the ended ones */
    TOOL_KEYS,     /* of calls that did not fail */
    TOOL_BYTES,    /* of these: keys, rows and gradients */
};
#define TOOL_COUNTS (TOOL_BYTES + 1)

struct tool_op_stats {
    uint64_t counts[TOOL_COUNTS];
    struct mr_histogram latency; /* of ended ones, and for how long the unsent ones had waited at the end */
};

struct tool_load_stats {
    uint64_t warm_up; /* calls during the warm-up: counted here and nowhere else */
    uint64_t statuses[MR_STATUS_COUNT];
    struct tool_op_stats ops[TOOL_OPS];
};

/* The writer's thread. */
void tool_load_stats_warm_up(struct tool_load_stats *s);
void tool_load_stats_ended(struct tool_load_stats *s, enum tool_op op, enum mr_status status,
                           uint64_t latency_ns, uint64_t keys, uint64_t bytes);
void tool_load_stats_unsent(struct tool_load_stats *s, enum tool_op op, uint64_t waited_ns);

/* Copies what another thread writes. */
void tool_load_stats_read(const struct tool_load_stats *written, struct tool_load_stats *out);
void tool_load_stats_merge(struct tool_load_stats *to, const struct tool_load_stats *other);
void tool_load_stats_subtract(struct tool_load_stats *now, const struct tool_load_stats *before);
/* All ops together. */
void tool_load_stats_sum(const struct tool_load_stats *s, struct tool_op_stats *out);

#endif
