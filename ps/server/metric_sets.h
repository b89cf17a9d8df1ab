/* What a node's metrics have beside its counters, declared alike (dataplane/wire/base/counter_set.h). */
#ifndef PS_METRIC_SETS_H
#define PS_METRIC_SETS_H

#include "dataplane/wire/base/counter_set.h"

#define PS_NODE_METRIC_LIST(X)                                                                               \
    X(state, GAUGE, NONE, "1 for the state that the node is in, 0 for the others")                           \
    X(incarnation, GAUGE, NONE, "number of the node's start, which clients know it by")                      \
    X(memory_limit_bytes, GAUGE, BYTES, "limit of memory for tables, variables and batches, of all cores")   \
    X(checkpoint_every_s, GAUGE, SECONDS,                                                                    \
      "time from one automatic save to the next, if anything was pushed; 0: there are none by time")

/* Of a member of a cluster. */
#define PS_CLUSTER_METRIC_LIST(X)                                                                            \
    X(lease_us, GAUGE, MICROSECONDS, "time for which the node may still serve without the coordinator")      \
    X(lease_max_us, GAUGE, MICROSECONDS, "the same when the coordinator has just answered")

/* Of a core, read where it is. */
#define PS_CORE_METRIC_LIST(X)                                                                               \
    X(busy_ppm, GAUGE, PPM, "share of the last second that the core worked")                                 \
    X(responding, GAUGE, NONE,                                                                               \
      "0: the core did not answer in time when it was asked for its part of these metrics")

/* Of a core, said by itself. */
#define PS_CORE_MEMORY_LIST(X)                                                                               \
    X(memory_limit_bytes, GAUGE, BYTES, "limit of memory for tables and variables")                          \
    X(memory_mapped_bytes, GAUGE, BYTES, "memory for tables and variables taken from the kernel")            \
    X(memory_used_bytes, GAUGE, BYTES, "memory used by tables and variables with their indexes")             \
    X(batch_memory_limit_bytes, GAUGE, BYTES, "limit of memory for fed batches and records")                 \
    X(batch_memory_mapped_bytes, GAUGE, BYTES, "memory for fed batches and records taken from the kernel")   \
    X(scratch_bytes, GAUGE, BYTES, "working memory of pushes, outside the limits")                           \
    X(checkpoint_buffer_bytes, GAUGE, BYTES, "buffers of a running checkpoint, outside the limits")

/* Of a table on all cores, beside its counters. */
#define PS_TABLE_MEMORY_LIST(X)                                                                              \
    X(index_bytes, GAUGE, BYTES, "memory of the index")                                                      \
    X(values_bytes, GAUGE, BYTES, "memory of the rows' values")                                              \
    X(state_bytes, GAUGE, BYTES, "memory of the optimizer's state of the rows")                              \
    X(slack_bytes, GAUGE, BYTES, "memory of free places, padding, and whatever else is kept for each row")   \
    X(filter_bytes, GAUGE, BYTES, "memory of the filter that counts observations")                           \
    X(limit_bytes, GAUGE, BYTES, "limit of the table's memory; 0: only the node's limit")

/* Of a variable on all cores. */
#define PS_VARIABLE_METRIC_LIST(X)                                                                           \
    X(bytes, GAUGE, BYTES, "memory of the variable's values and state")                                      \
    X(gradients_skipped, COUNTER, NONE,                                                                      \
      "gradients skipped because they held NaN or Inf, or would have led to it")

/* A histogram for each operation and phase, of all cores. */
#define PS_LATENCY_METRIC "millrace_call_phase_seconds"
#define PS_LATENCY_METRIC_HELP                                                                               \
    "time that calls wait for their turn, are worked on, and are sent until the last of the answer has gone"

struct ps_core_memory {
    PS_CORE_MEMORY_LIST(MR_COUNTER_FIELD)
};

extern const struct mr_counter_set ps_node_metric_set, ps_cluster_metric_set, ps_core_metric_set,
    ps_core_memory_set, ps_table_memory_set, ps_variable_metric_set;

#endif
