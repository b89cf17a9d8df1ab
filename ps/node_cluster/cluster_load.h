/* What a member of a cluster loads before it serves anything: its part of the cluster's newest checkpoint or,
 * in a cluster that has none yet, of the one that it begins with (cluster.init_from). A node that cannot load
 * what it owns serves nothing (MR_NODE_FAILED), and the log says why. What comes to it later is loaded beside
 * what it serves (cluster_take_over.c). Control thread. */
#ifndef PS_CLUSTER_LOAD_H
#define PS_CLUSTER_LOAD_H

#include <stdbool.h>
#include "dataplane/wire/format/mr_feature.h"
#include "ps/node_cluster/cluster_commit.h"
#include "ps/node_cluster/cluster_init.h"

struct ps_cluster_load {
    const char *cluster, *node;              /* names */
    const char *init_from;                   /* as configured */
    struct ps_cluster_commit_options commit; /* of the cluster's checkpoints; directory "": there are none */
    struct ps_cluster_init init;
    bool waits;      /* for the catalogue, before it can begin */
    bool has_begun;  /* the catalogue has what it begins with */
    bool has_failed; /* for good */
};

/* What the map says, and which slots are to be loaded: their grants, or 0. */
struct ps_cluster_load_now {
    uint64_t epoch, committed, last_cut; /* as in the map */
    uint64_t grants[MR_PARTITION_COUNT];
};

/* Returns whether slots were loaded, all that have a grant. */
bool ps_cluster_load_look(struct ps_cluster_load *l, struct ps_control *control,
                          const struct ps_cluster_load_now *now);

#endif
