/* Shard map: which core of which node owns which partition, over all nodes. Calls are divided by it.
 *
 * A shard is a core of a node. Shards are numbered over all nodes, in the order of the cluster's map, a
 * node's cores one after the other: all clients of a cluster have the same order, in which sums of bags are
 * added up. A map never changes once it is made, so calls that are divided by it need no lock; when a
 * node's map changes, the client makes a new one, of the next generation, and calls that were divided by
 * the old one are made again. */
#ifndef MRC_SHARD_MAP_H
#define MRC_SHARD_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

struct mr_client;
struct mrc_link;
struct mrc_node;

struct mrc_shard {
    struct mrc_node *node;
    uint16_t core;
};

struct mrc_shard_map {
    atomic_uint holders;
    uint32_t generation; /* how many maps the client had before */
    uint32_t count;
    uint16_t of_partition[MR_PARTITION_COUNT]; /* the shard that owns it */
    struct mrc_shard shards[];                 /* [count] */
};

/* Returns the client's map, to be released; NULL: the client was made by another process. Takes the lock. */
struct mrc_shard_map *mrc_shard_map_hold(struct mr_client *client);
/* With or without the lock; NULL is fine. */
void mrc_shard_map_release(struct mrc_shard_map *map);
/* Makes a new map from what the nodes are known to have. False: no memory, and the old one stays. Under the
 * lock. */
bool mrc_shard_map_renew(struct mr_client *client);
/* Returns the link to a shard of the client's map; NULL: there is none now. Under the lock. */
struct mrc_link *mrc_shard_map_link(const struct mr_client *client, uint32_t shard);
/* Returns the link to core 0 of the first node that answers, for calls that any node takes; of the first
 * node if none does. Under the lock. */
struct mrc_link *mrc_shard_map_control(const struct mr_client *client);
/* Returns what changes when any node of the map is restarted, when there is another one, and when partitions
 * are taken over from a checkpoint: the sum of the nodes' start ids, and of the epochs of the latter. Under
 * the lock. */
uint64_t mrc_shard_map_start_id(const struct mr_client *client);
/* Returns how many shards the client's map has, and its generation; 1 and UINT32_MAX for a client of another
 * process. Takes the lock. */
uint32_t mrc_shard_map_count(struct mr_client *client, uint32_t *generation);
/* Returns the generation of the client's map. Under the lock. */
uint32_t mrc_shard_map_generation(const struct mr_client *client);

#endif
