/* Which partitions a core serves, and since which epoch of the cluster's map: a call is served if the core
 * has served all partitions concerned without interruption since the epoch of the map that the caller
 * split it by. A node by itself has epoch 0, and serves everything since then. Belongs to the core's
 * thread. */
#ifndef PS_OWNERSHIP_H
#define PS_OWNERSHIP_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"

struct ps_core;

#define PS_NOT_OWNED UINT32_MAX
/* In place of an epoch: a move to another node is ending, so calls wait. It may still be cancelled. */
#define PS_FENCED (UINT32_MAX - 1)
/* Likewise: the partition is this core's by the map, and is still being loaded, so calls wait. */
#define PS_LOADING (UINT32_MAX - 2)

/* Does the core serve a partition of this `since`, if calls for it need not wait? */
static inline bool ps_since_is_owned(uint32_t since)
{
    return since != PS_NOT_OWNED && since != PS_LOADING;
}

/* The cluster as a node's answer to NODE_INFO shows it. */
struct ps_cluster_info {
    uint64_t words[MR_CLUSTER_WORDS];
    uint32_t node_count;
    struct mr_cluster_node nodes[MR_CLUSTER_NODES_MAX];
    uint16_t owner[MR_PARTITION_COUNT];       /* index of nodes, or MR_CLUSTER_NO_NODE_OF_MANY */
    uint8_t owner_of_few[MR_PARTITION_COUNT]; /* the same of few nodes, or MR_CLUSTER_NO_NODE */
    bool any_restored;
    uint32_t restored_in[MR_PARTITION_COUNT]; /* by partition: the epoch of its last take-over; 0: none */
    bool has_copies;
    uint32_t copies[MR_CLUSTER_NODES_MAX][MR_COPIES_WORDS];
};

struct ps_ownership {
    const struct ps_cluster_info *info; /* NULL: the node has no map yet */
    uint32_t epoch;                     /* of the newest map that it has taken in */
    uint32_t newest;                    /* the highest of `since` that the core owns */
    uint32_t all_since;                 /* the highest of all: what it is if the core owns everything */
    uint32_t since[MR_PARTITION_COUNT]; /* or PS_FENCED, PS_LOADING, PS_NOT_OWNED: by this core */
    /* A move has brought the records of these, and the map will say that they are this core's, or that they
     * stay where they were. What is recorded meanwhile would hold for them, too. */
    struct ps_partition_set arriving;
    bool has_arriving;
    bool has_loading; /* of some the records are still in a checkpoint */
};

/* The records of these partitions are here. And: they will not become this core's. */
void ps_ownership_arrive(struct ps_ownership *o, const struct ps_partition_set *partitions);
void ps_ownership_settle(struct ps_ownership *o, const struct ps_partition_set *partitions);

/* What the core has when it starts: its slice of the partitions, or nothing yet, in a cluster. */
void ps_ownership_init(struct ps_core *core);

/* What a node owns by a map. */
struct ps_owned {
    const struct ps_cluster_info *info; /* stays until another one was taken in */
    uint32_t epoch;
    uint32_t since[MR_PARTITION_COUNT];
};
/* Takes it in, between two calls, and makes the variables that the core owns now. MR_OUT_OF_MEMORY,
 * MR_UNSUPPORTED: one could not be made, and `text` (PS_CORE_TEXT_BYTES) says which. What the core owns no
 * more is refused, and not freed (ps/move/cleanup.h). If it owns other partitions than before, all batches
 * that were fed are dropped: clients feed them again, as after a restart. */
enum mr_status ps_core_own(struct ps_core *core, const struct ps_owned *owned, char *text);

/* Returns the epoch that a request carries in full. */
static inline uint32_t ps_ownership_epoch(const struct ps_ownership *o, uint16_t low)
{
    return (uint32_t)mr_epoch_near(low, o->epoch);
}

#endif
