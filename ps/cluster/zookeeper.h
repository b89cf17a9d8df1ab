/* The coordinator of a cluster: an ensemble of Apache ZooKeeper servers (3.5 or later), and what the cluster
 * keeps there, under /millrace/CLUSTER:
 *
 *   map          the cluster's map (map_json.h)
 *   catalog      its catalogue (catalog_json.h)
 *   nodes/NAME   ephemeral, one for each node that has a session: what it is, and what it says of its work
 *   leader       ephemeral: the name of the node that leads
 *
 * A thread of its own goes round: it writes the node's entry, which takes a majority of the servers, then
 * reads the map and the catalogue, then who is there, then who leads. The order matters. An entry that was
 * written a moment ago is not written again, unless it has changed, or the fate of a change is not known:
 * only for these, and for the lease, what is read must come after a write.
 * - A read is answered by whichever server one is connected to, which may lag behind. After a write of the
 *   same session it knows at least that write. So what is read is never older than the round's beginning,
 *   and a change of the map whose answer was lost has been made by then, or never will be: ZooKeeper
 *   refuses what a session sent to one server once it has come to another.
 * - A server that is cut off from the others answers reads, and then the session may be dead already. Only
 *   the write confirms the lease.
 * - The map is read before who is there. So if a node has no entry, the session that this map names for
 *   it is dead; and if the node has come back since, the map has changed, and what is made of this one is
 *   not written.
 * - A change of the map that is to be written is written first, and the map is also read before all that:
 *   the end of a move, for which calls wait.
 * - What each node says is read by the leader, and by a node that waits for what others do: if all read all
 *   in each round, reads would grow with the square of the nodes. What others have of a catalogue or a cut
 *   only grows while they live, so an older view shows too little of it.
 * - The catalogue is read after the node's own entry is written, and before the others' entries are read. So
 *   of a change of the catalogue and a node that says which version it has, one sees the other.
 *
 * Source: ZooKeeper Programmer's Guide, "Consistency Guarantees" and "ZooKeeper Sessions". */
#ifndef PS_CLUSTER_ZOOKEEPER_H
#define PS_CLUSTER_ZOOKEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/catalog.h"
#include "ps/cluster/cluster_map.h"
#include "ps/cluster/map_json.h"
#include "ps/cluster/member.h"
#include "dataplane/wire/format/mr_status.h"

struct ps_zookeeper;

/* What the coordinator knew at one time. */
struct ps_zookeeper_view {
    const struct ps_cluster_map *map;         /* epoch 0: there is none yet */
    const struct ps_cluster_catalog *catalog; /* version 0: there is none yet */
    /* Of an earlier round, but for the node's own, those of takers of moves and of nodes that have come; all
     * are of this round if the node leads, or has asked for all (is_whole). */
    const struct ps_cluster_node *registered;
    const struct ps_cluster_report *reports; /* of `registered` */
    uint32_t registered_count;
    uint32_t self; /* the index of this node; registered_count: it is not there any more */
    bool leads;    /* this node does */
    bool is_whole;
};

/* Called on the coordinator's thread, one at a time. They may call
 * ps_zookeeper_write_map(), ps_zookeeper_write_catalog() and ps_zookeeper_report(). */
struct ps_zookeeper_events {
    /* A request of this session was answered that had been sent at that time (mr_clock_boot_us()). The
     * servers declare the session dead session_us after they last heard of it. */
    void (*confirmed)(void *context, uint64_t session, uint64_t session_us, uint64_t sent_us);
    /* The session is dead. */
    void (*expired)(void *context);
    /* The map as a round begins, which may be older than what was viewed, and shows nothing else. */
    void (*glimpsed)(void *context, const struct ps_cluster_map *map);
    void (*viewed)(void *context, const struct ps_zookeeper_view *view);
    /* What became of ps_zookeeper_write_map(next); of what was perhaps written the next view tells. */
    void (*written)(void *context, const struct ps_cluster_map *next, enum ps_member_written outcome);
    /* The same of ps_zookeeper_write_catalog(next). */
    void (*catalog_written)(void *context, const struct ps_cluster_catalog *next,
                            enum ps_member_written outcome);
    /* Something is wrong, in words that say what and how to fix it; NULL: no longer. Once for each
     * change. */
    void (*troubled)(void *context, const char *text);
};

struct ps_zookeeper_options {
    const char *servers;     /* HOST:PORT[,HOST:PORT]... */
    const char *cluster;     /* its name: no slash */
    const char *credentials; /* "USER:PASSWORD", of ZooKeeper's digest scheme; "": everybody may write */
    uint32_t session_ms;     /* asked for; the servers may have bounds of their own */
    struct ps_cluster_node self;
    uint32_t partition_count;
    const struct ps_zookeeper_events *events;
    void *context;
};

/* Starts the thread; it connects, and goes on trying for as long as it must. What options points to must
 * outlive it. MR_INVALID_ARGUMENT: the servers are no list of addresses; MR_NO_MEMORY. */
enum mr_status ps_zookeeper_start(const struct ps_zookeeper_options *options, struct ps_zookeeper **out,
                                  char text[PS_CLUSTER_TEXT_BYTES]);
/* Writes *next if the coordinator's map is still the one before it (next->epoch - 1). One at a time: the
 * next after `written`. Any thread. */
void ps_zookeeper_write_map(struct ps_zookeeper *z, const struct ps_cluster_map *next);
/* The same with the catalogue, and `catalog_written`. */
void ps_zookeeper_write_catalog(struct ps_zookeeper *z, const struct ps_cluster_catalog *next);
/* Sets what the node's entry says of its work, from the next round on, which begins at once. Any thread. */
void ps_zookeeper_report(struct ps_zookeeper *z, const struct ps_cluster_report *report);
/* Goes round at once. Any thread. */
void ps_zookeeper_wake(struct ps_zookeeper *z);
/* The next view has what all nodes say: something waits for that. Any thread. */
void ps_zookeeper_read_all(struct ps_zookeeper *z);
/* Ends the thread and the session, by which everybody learns at once that the node is gone. Nothing is
 * called afterwards. NULL is fine. */
void ps_zookeeper_stop(struct ps_zookeeper *z);

#endif
