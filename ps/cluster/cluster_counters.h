/* Counters of a node as a member of a cluster, shown with those of core 0. */
#ifndef PS_CLUSTER_COUNTERS_H
#define PS_CLUSTER_COUNTERS_H

#include "dataplane/wire/base/counter_set.h"

/* X(name, kind, unit, help). The coordinator's thread writes those about nodes, the control thread those
 * about partitions. */
#define PS_CLUSTER_COUNTER_LIST(X)                                                                           \
    X(nodes, GAUGE, NONE, "nodes of the cluster's map")                                                      \
    X(nodes_away, GAUGE, NONE, "nodes of the cluster's map that have no session with the coordinator")       \
    X(partitions, GAUGE, NONE, "partitions that this node serves")                                           \
    X(partitions_loading, GAUGE, NONE,                                                                       \
      "partitions that this node owns and does not serve: it loads them from a checkpoint")                  \
    X(partitions_fenced, GAUGE, NONE, "partitions whose calls wait for the end of a move to another node")   \
    X(partitions_backed_up, GAUGE, NONE, "partitions of others that this node is the backup of")             \
    X(partitions_uncopied, GAUGE, NONE,                                                                      \
      "partitions that this node owns, with replication 2, and no backup of which is in sync")               \
    X(copies_lag_bytes, GAUGE, BYTES, "what the backups of this node's partitions have not applied yet")     \
    X(copies_lag_us, GAUGE, MICROSECONDS,                                                                    \
      "how long it took the slowest of them of late, or takes, to apply what was changed; 0: below 0.25 s")  \
    X(backups_left_behind, COUNTER, NONE,                                                                    \
      "times that a backup of this node's partitions was put out of sync: it stood still, was too slow, or " \
      "had lost what it had")                                                                                \
    X(partitions_taken_over, COUNTER, NONE,                                                                  \
      "partitions of dead nodes that this node has loaded beside what it serves")                            \
    X(take_overs_failed, COUNTER, NONE, "times that it could not load partitions of dead nodes")

struct ps_cluster_counters {
    PS_CLUSTER_COUNTER_LIST(MR_COUNTER_FIELD)
};

#endif
