/* Commits checkpoints of nodes as one of a cluster, as its leader does. */
#ifndef CLUSTER_FIXTURE_H
#define CLUSTER_FIXTURE_H

#include "ps/checkpoint/cluster_manifest.h"

/* Describes checkpoint `id` of the nodes whose folders are in `directory`; partition p belongs to node p %
 * count. Fails the test if one has no such checkpoint. */
struct ps_cluster_manifest cluster_describe(const char *directory, uint64_t id, const char *const *nodes,
                                            uint32_t count);
/* The same, and writes CLUSTER-<id>. */
void cluster_commit(const char *directory, uint64_t id, const char *const *nodes, uint32_t count);

#endif
