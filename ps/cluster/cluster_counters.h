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
    X(partitions_taken_over, COUNTER, NONE,                                                                  \
      "partitions of dead nodes that this node has loaded beside what it serves")                            \
    X(take_overs_failed, COUNTER, NONE, "times that it could not load partitions of dead nodes")

struct ps_cluster_counters {
    PS_CLUSTER_COUNTER_LIST(MR_COUNTER_FIELD)
};

#endif
