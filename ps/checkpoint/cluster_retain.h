/* Which checkpoints of a cluster go, in an order that never leaves a file CLUSTER without its parts: first
 * the leader removes CLUSTER files, then each node what none of the others needs. */
#ifndef PS_CLUSTER_RETAIN_H
#define PS_CLUSTER_RETAIN_H

#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/io/store.h"

/* Removes files CLUSTER-<id> of checkpoints before `committed`, so that as many of each kind stay, that one
 * among them, as the retention says: a trainer asked for a checkpoint if one of its parts has the file
 * BY_TRAINER. Those that this version cannot read stay; all stay if a kind is not known. Those of which a
 * part is missing go at once, and so does what writers left that died. */
void ps_cluster_retain(const struct ps_store *store, const char *directory, uint64_t committed,
                       const struct ps_retention *retention);
/* Removes the chains in a node's folder of which no link is a part of a CLUSTER file in `directory`, but not
 * those that go on after `committed`: the next checkpoint may be one of their links. */
void ps_cluster_retain_parts(const struct ps_store *store, const char *directory, const char *folder,
                             uint64_t committed);

#endif
