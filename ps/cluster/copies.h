/* Copies of partitions: with replication 2 each has a backup, a node on another host that follows what the
 * owner does, and goes on in its place when the owner has no session any more. Changes of the map, as in
 * cluster_map.h, and under the same conditions. Pure. Any thread.
 *
 * in_sync[p] is the owner's word, and it alone proposes it:
 * - True: the backup has all that the owner has answered for (copies = sync), or lacks no more than the owner
 *   can still send it (copies = async), and in both cases all that is in a checkpoint: clients forget what is
 *   in one. So an owner lets answers wait, those to repeated calls as well, and proposes this once the backup
 *   has what was answered before; ps_member_answer_waits() is true from the proposal on. And it neither
 *   proposes this nor reports its part of a cut before the backup has passed the position of the cut.
 * - False: an owner answers alone, or drops what the backup lacks, only once it has read this in the map.
 *
 * So whoever promotes a backup that is in sync in the map that the change is made from loses nothing, however
 * old the owner's view of the map is. That the owner does not answer any more follows from its lease, as for
 * any other change of owners (member.h).
 *
 * The number of an assignment is that of the state which comes by it, as the number of a move is: it is valid
 * under this backup_grant while the partition follows, and as the owner's under the grant of the same number
 * once it is promoted. With another number, or none, it is worth nothing and is freed.
 *
 * A change of owners ends the copy. Until the next one is in sync the partition has none, and what is lost
 * with the owner then is what no checkpoint has and no client keeps. */
#ifndef PS_CLUSTER_COPIES_H
#define PS_CLUSTER_COPIES_H

#include "ps/cluster/cluster_map.h"

/* Of one owner at most: it sends to each by a ring of its own. */
#define PS_COPIES_BACKUPS_MAX 2u
/* So many partitions at most are without a copy because their backup is to have none any more. */
#define PS_COPIES_LEAVE_MAX 256u

/* Writes the host that a node runs on: as configured, or that of its address. */
void ps_copies_host(const struct ps_cluster_node *node, char host[PS_CLUSTER_NAME_BYTES]);
/* How many partitions a node is the backup of; and how many it owns that have no backup in sync. */
uint32_t ps_copies_held(const struct ps_cluster_map *map, uint32_t node);
uint32_t ps_copies_lacking(const struct ps_cluster_map *map, uint32_t node);
/* Has a node partitions of which the copy is in sync at one of these nodes? */
bool ps_copies_is_kept(const struct ps_cluster_map *map, uint32_t owner,
                       const bool backups[PS_CLUSTER_NODES_MAX]);
/* What stands in the way of serving on from backups when one of the nodes that are present dies, and which
 * node that is about. */
enum mr_tolerance ps_copies_tolerance(const struct ps_cluster_map *map,
                                      const bool present[PS_CLUSTER_NODES_MAX], uint32_t *node);

/* ---- changes ---- */

/* 1: backups end. 2: they are assigned from now on. False: it is so, or some node has no copies. */
bool ps_copies_set_replication(struct ps_cluster_map *map, uint32_t replication);
/* Says whether answers to pushes wait for backups from now on (copies = sync), or do not. Copies that are in
 * sync stay so: what was answered before, with async, clients can send again. False: it is so, or replication
 * is 1. */
bool ps_copies_set_answers(struct ps_cluster_map *map, bool answers_wait);
/* Assigns backups to partitions that have none and whose owner is present: nodes that are present, on other
 * hosts and not drained, those that the owner has already first, then those with the fewest partitions for
 * their cores, spares last. `room` (NULL: any): how many more partitions each can take; those that are being
 * copied to it count. Not to partitions that move. */
bool ps_copies_assign(struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                      const uint32_t *room);
/* Sets in_sync of the partitions that `owner` owns and whose backup was assigned by these numbers (by
 * partition; 0: not that one). Proposed by the owner alone. False: none differs. */
bool ps_copies_set_sync(struct ps_cluster_map *map, uint32_t owner, const uint64_t *grants, bool is_in_sync);
/* Ends the copies that a node was assigned by these numbers (by partition; 0: not that one). Proposed by that
 * backup alone: it has lost what it had of them, or has no memory for them. False: there are none. */
bool ps_copies_give_up(struct ps_cluster_map *map, uint32_t backup, const uint64_t *grants);
/* Ends the copies at a node that is away, of owners that are there. */
bool ps_copies_drop(struct ps_cluster_map *map, uint32_t backup, const bool owners[PS_CLUSTER_NODES_MAX]);
/* Ends some copies at nodes that are drained, if others can have them and all others are in sync. */
bool ps_copies_leave(struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                     const uint32_t *room);
/* Makes the backups that are in sync and there the owners of what a node owned. Its work ends, and so does
 * the cut. Proposed only after the coordinator has declared the node's session dead, by which time its lease
 * has ended. `there`: the processes that the map names have a session. */
bool ps_copies_promote(struct ps_cluster_map *map, uint32_t dead, const bool there[PS_CLUSTER_NODES_MAX]);

#endif
