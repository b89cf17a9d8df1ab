/* A node's metrics: its counters by set and core, tables and variables by name, and what is in
 * ps/server/metric_sets.h; over HTTP, if the configuration names an address. */
#ifndef PS_NODE_METRICS_H
#define PS_NODE_METRICS_H

#include "dataplane/metrics/metrics_text.h"
#include "ps/core/node.h"

struct ps_node_metrics;

/* From the start of the node's cores on. MR_NO_MEMORY, or what mr_metrics_server_start() says, with a line in
 * `error`. Without metrics.listen nothing is made, and *out is NULL. */
enum mr_status ps_node_metrics_start(struct ps_node *node, struct ps_node_metrics **out,
                                     char error[DP_ERROR_BYTES]);
/* Serves no more: before the cores end. NULL is fine. */
void ps_node_metrics_stop(struct ps_node_metrics *metrics);
/* After that. NULL is fine. */
void ps_node_metrics_destroy(struct ps_node_metrics *metrics);

/* The text, by one thread at a time. */
void ps_node_metrics_write(struct ps_node_metrics *metrics, struct mr_metrics_text *text);
/* True: something keeps the node from its work, and `out` says what. */
bool ps_node_metrics_ailment(const struct ps_node_metrics *metrics, char *out, size_t out_bytes);

#endif
