/* A node as a member of a cluster (ps/cluster/): joins the coordinator, the member's state machine, the
 * leader's, and this node's cores.
 *
 * The coordinator's thread hears what has changed, and looks after the lease, which calls are checked
 * against (ps_node.lease_end_us). What concerns the cores it hands to the control thread, which loads what
 * the node owns, tells the cores what they serve, and opens their gate; that thread calls it by
 * struct ps_control_cluster_ops.
 *
 * A node that is away keeps its partitions, unless the leader gives them to others (cluster.take_over_s). */
#ifndef PS_NODE_CLUSTER_H
#define PS_NODE_CLUSTER_H

#include <stdbool.h>
#include "ps/cluster/zookeeper.h"
#include "ps/control/control.h"

struct ps_node_cluster;

/* Of a node whose configuration names a cluster: reads the credentials and finds out the node's own name and
 * address. NULL: it cannot, and `error` (DP_ERROR_BYTES) says what to do. */
struct ps_node_cluster *ps_node_cluster_create(struct ps_node *node, char *error);
/* After the cores have stopped. NULL is fine. */
void ps_node_cluster_destroy(struct ps_node_cluster *c);

/* Registers with the coordinator, under node->start_id. The control thread runs. MR_INVALID_ARGUMENT,
 * MR_NO_MEMORY, and `error` says what is wrong. */
enum mr_status ps_node_cluster_start(struct ps_node_cluster *c, char *error);
/* Ends the migrations and take-overs here: after the control thread has ended, before the cores do. NULL is
 * fine. */
void ps_node_cluster_end_migrations(struct ps_node_cluster *c);
/* Stops to serve, waits for what is being committed, and ends the session with the coordinator, so that
 * everybody learns of it at once. */
void ps_node_cluster_stop(struct ps_node_cluster *c);

/* Changes a copy of the configuration to that of a member: its checkpoints lie in a folder of the node's
 * name, and the cluster says when they are made. False: the name is too long, and `error` says so. */
bool ps_node_cluster_config(const struct ps_node_cluster *c, struct ps_config *config, char *error);

/* The target of the migration `id` from this node says so (enum mr_move_flag). Any thread. */
void ps_node_cluster_heard_target(struct ps_node_cluster *c, uint64_t id, uint64_t flags);

/* What ps_node_cluster_start() gives to the coordinator; a test may call it in its place. */
extern const struct ps_zookeeper_events ps_node_cluster_events;

#endif
