#include "ps/server/metric_sets.h"

static const struct mr_counter node_metrics[] = {PS_NODE_METRIC_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_node_metric_set = {
    .name = "node", .help = "the node as a whole", MR_COUNTERS(node_metrics), .of_process = true};

static const struct mr_counter cluster_metrics[] = {PS_CLUSTER_METRIC_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_cluster_metric_set = {
    .name = "cluster", .help = "a member of a cluster", MR_COUNTERS(cluster_metrics), .of_process = true};

static const struct mr_counter core_metrics[] = {PS_CORE_METRIC_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_core_metric_set = {
    .name = "core", .help = "the cores' threads", MR_COUNTERS(core_metrics)};

static const struct mr_counter core_memory[] = {PS_CORE_MEMORY_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_core_memory_set = {
    .name = "core", .help = "the cores' memory", MR_COUNTERS(core_memory)};

static const struct mr_counter table_memory[] = {PS_TABLE_MEMORY_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_table_memory_set = {
    .name = "table", .help = "memory of a table", MR_COUNTERS(table_memory)};

static const struct mr_counter variable_metrics[] = {PS_VARIABLE_METRIC_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set ps_variable_metric_set = {
    .name = "variable", .help = "a variable", MR_COUNTERS(variable_metrics)};
