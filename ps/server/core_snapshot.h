/* What only a core's own thread can read: each core is asked for it by a task, and has some time to answer. A
 * core that does not is asked no more until its answer is there. One thread asks. */
#ifndef PS_CORE_SNAPSHOT_H
#define PS_CORE_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/core/core.h"
#include "ps/server/metric_sets.h"

/* A table's or variable's share of a core. */
struct ps_feature_sight {
    uint32_t id;
    bool is_table;
    char name[MR_NAME_BYTES];
    struct ps_table_counters counters; /* table */
    struct ps_table_memory memory;
    uint64_t limit_bytes;    /* of the table on the node */
    uint64_t variable_bytes; /* variable */
    uint64_t gradients_skipped;
};

struct ps_core_snapshot {
    struct ps_core_memory memory;
    uint32_t feature_count;
    const struct ps_feature_sight *features; /* by rising id */
};

struct ps_core_snapshots;

struct ps_core_snapshots *ps_core_snapshots_create(struct ps_node *node); /* NULL: no memory */
/* Once the cores have ended: they may still have a task. NULL is fine. */
void ps_core_snapshots_destroy(struct ps_core_snapshots *snapshots);
/* Asks all cores, and waits for them, up to wait_ms. What they have said holds until the next time. */
void ps_core_snapshots_ask(struct ps_core_snapshots *snapshots, uint32_t wait_ms);
/* What core `index` said; NULL: it has not answered. */
const struct ps_core_snapshot *ps_core_snapshots_of(const struct ps_core_snapshots *snapshots,
                                                    uint32_t index);

#endif
