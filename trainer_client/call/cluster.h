/* A cluster as the client knows it: which node owns which partition, and where the nodes are. Any member
 * tells it, with the answer to NODE_INFO. Its map has an epoch that rises with each change; calls that were
 * split by an older one may be refused (MR_WRONG_OWNER), and the client then asks the member that refused.
 * While a member is silent, or lets calls wait for longer than a second, the others are asked: it may have
 * died, or lost its lease, and its partitions be others' by now, which have loaded them from a checkpoint.
 *
 * Other nodes may take a cluster's place, at the addresses of some of its nodes: a node by itself or another
 * cluster, which has restored what the first one had. The client goes over to them once no member of that one
 * answers any more. Everything is under the client's lock. */
#ifndef MRC_CLUSTER_H
#define MRC_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"

struct mr_client;
struct mr_future;
struct mrc_node;

struct mrc_cluster {
    uint64_t epoch;       /* of the map; 0: no member has told one, or the server is in no cluster */
    uint64_t moved_epoch; /* of the map with the last change of moves that was asked for; 0: none */
    uint64_t lease_us;
    uint64_t ask_us;                    /* when a member may be asked about others again */
    uint32_t turn;                      /* of the members, for that */
    char unfound[640];                  /* which owner's address is not known here, and why; empty: all are */
    bool is_expected;                   /* several servers were named */
    bool was_met;                       /* there was a map */
    const struct mrc_node *loner;       /* one of them that is in no cluster */
    uint16_t owner[MR_PARTITION_COUNT]; /* index into mr_client.nodes */
    /* in which epoch each partition was taken over from a checkpoint last; 0: never */
    uint32_t restored_in[MR_PARTITION_COUNT];
    /* the partitions of which that has risen, and which the shard map does not show yet: a bit for each */
    uint64_t restored[MR_PARTITION_COUNT / 64];
};

enum mrc_map_news {
    MRC_MAP_NONE,    /* the node is in no cluster */
    MRC_MAP_SAME,    /* nothing that was not known */
    MRC_MAP_NEW,     /* the client has a newer map now, and owners must be listed again */
    MRC_MAP_MISSING, /* the node has no whole map yet: ask again later */
    MRC_MAP_GARBLED,
};

#define MRC_NO_OWNER UINT16_MAX
/* Reads from an answer to NODE_INFO, of a map of so many nodes, who owns which partition: an index of the
 * nodes, or MRC_NO_OWNER. False: it is malformed. */
bool mrc_cluster_read_owners(const struct mr_future *f, uint32_t node_count,
                             uint16_t owner[MR_PARTITION_COUNT]);
/* Whether the answer to NODE_INFO is that of another member, to which the node's address has been handed out
 * since the client found the node there. What it tells of the cluster holds all the same. Notes where the
 * node is now, if it says that, for mrc_nodes_poll(). */
bool mrc_cluster_is_other(struct mrc_node *node, const struct mr_future *f);
/* Reads the cluster's part of a node's answer to NODE_INFO. Adds nodes and links to them: by the driving
 * thread, or while nobody drives. */
enum mrc_map_news mrc_cluster_read(struct mrc_node *node, const struct mr_future *f);
/* Asks another member about one that is silent, or has not answered for long, when that is due. By the
 * driving thread. */
void mrc_cluster_poll(struct mr_client *client);
/* Returns when mrc_cluster_poll() is due. */
uint64_t mrc_cluster_next_us(const struct mr_client *client);

/* Whether an answer that arrives now must not be believed, because the node may have lost its partitions
 * since it looked at its lease. */
bool mrc_cluster_is_late(const struct mr_client *client, uint32_t op, uint64_t sent_us);
/* The epoch that a request of this op carries. */
uint16_t mrc_cluster_epoch_of(const struct mr_client *client, uint32_t op);
/* Notes that the node refused a call with MR_WRONG_OWNER: it is asked for its map, unless it owns nothing. */
void mrc_cluster_refused(struct mrc_node *node);
/* Waits until no node has refused a call and not been asked since, or until the deadline. Returns whether the
 * former. */
bool mrc_cluster_wait(struct mr_client *client, uint64_t deadline_us);
/* The same without waiting. */
bool mrc_cluster_is_settled(const struct mr_client *client);

#endif
