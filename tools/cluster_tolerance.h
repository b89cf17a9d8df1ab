/* Whether a cluster would serve on without one more node, in words. */
#ifndef TOOL_CLUSTER_TOLERANCE_H
#define TOOL_CLUSTER_TOLERANCE_H

#include "millrace_observe.h"

#define TOOL_TOLERANCE_BYTES 256u

/* Writes a line, for instance "a node that dies now keeps its partitions until it is back: set
 * cluster.take_over_s", or "" where the node that was asked does not say. `name`: of
 * state->tolerance_node, "" without one. Returns whether the cluster tolerates the loss. */
bool tool_tolerance_text(const struct mr_cluster_state *state, const char *name,
                         char text[TOOL_TOLERANCE_BYTES]);

#endif
