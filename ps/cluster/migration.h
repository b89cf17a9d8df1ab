/* A migration: partitions on their way from one node of a cluster, the source, to another, the target. Each
 * of the two has one object of it, from the map that begins it until what it used on the cores is gone.
 *
 *   source: waiting > copying > fencing > fenced > installed > done
 *   target: waiting > cleanup > copying > fenced > installed > done
 *   backup: copying > following > done    (a target that never becomes the owner while the source is there)
 *
 * In all but the last two the map may end it: then it is cancelled, and the source serves on. Either node
 * may find that it cannot be completed: then it has failed, and the node proposes that the map cancels it.
 *
 * Durable is the map alone (struct ps_cluster_move): which migrations there are, and who owns the
 * partitions. A state is in memory and goes with the process, and the map then ends what that took part in.
 *
 * A node's migrations are in its struct ps_member, under the lock of that (ps/node_cluster/: c->lock). The
 * coordinator's thread begins and ends them, as the map says; the control thread does the work of each
 * state, for one migration of each role at a time. */
#ifndef PS_CLUSTER_MIGRATION_H
#define PS_CLUSTER_MIGRATION_H

#include "ps/base/partition_set.h"
#include "ps/cluster/cluster_map.h"

enum ps_migration_role { PS_MIGRATION_SOURCE, PS_MIGRATION_TARGET };

enum ps_migration_state {
    PS_MIGRATION_WAITING,   /* in the map; one before it, or its tables, come first */
    PS_MIGRATION_CLEANUP,   /* what an earlier one has left of the partitions is being freed */
    PS_MIGRATION_COPYING,   /* rows, while the source serves */
    PS_MIGRATION_FOLLOWING, /* a backup has all but what the source has applied of late, and goes on so */
    PS_MIGRATION_FENCING,   /* calls are to wait, and not all cores know it */
    PS_MIGRATION_FENCED, /* nothing changes any more, or the target has asked for that: the rest is copied */
    PS_MIGRATION_INSTALLED, /* the target has everything: the source proposes that it becomes the owner */
    PS_MIGRATION_FAILED,    /* the map is to cancel it */
    PS_MIGRATION_CANCELLED, /* the map ended it: the source is the owner */
    PS_MIGRATION_DONE,      /* the map ended it: the target is the owner */
    PS_MIGRATION_STATES
};

struct ps_migration {
    struct ps_cluster_move move; /* its id, its slots, and at what rate, as in the map */
    struct ps_cluster_node peer; /* the other node */
    enum ps_migration_role role;
    enum ps_migration_state state;
    uint64_t fenced_us; /* source: since when calls wait; the clock of ps_member_migrate()'s caller */
};

/* Goes on to a state. False: that does not follow from the one that it is in, which stays. */
bool ps_migration_to(struct ps_migration *migration, enum ps_migration_state state);
/* Cancelled or done. */
bool ps_migration_has_ended(const struct ps_migration *migration);
/* Its partitions, by their numbers. */
struct ps_partition_set ps_migration_partitions(const struct ps_migration *migration);
/* The name of a state, for the log: "fenced". */
const char *ps_migration_state_text(enum ps_migration_state state);

#endif
