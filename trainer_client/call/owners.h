/* Who owns which partition, over all nodes: what calls are split by.
 *
 * An owner is a core of a node. Owners are numbered over all nodes, in the order of the cluster's map, a
 * node's cores one after the other: all clients of a cluster have the same order, in which shares of bags
 * are added up. A list of owners never changes once it is made, so calls that are split by it need no
 * lock; when a node's map changes, the client makes a new one, and calls that were split by the old one
 * are made again. */
#ifndef MRC_OWNERS_H
#define MRC_OWNERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

struct mr_client;
struct mrc_link;
struct mrc_node;

struct mrc_owner {
    struct mrc_node *node;
    uint16_t core;
};

struct mrc_owners {
    atomic_uint holders;
    /* how many lists the client had before */
    uint32_t changes;
    uint32_t count;
    uint16_t of_partition[MR_PARTITION_COUNT];
    struct mrc_owner owners[]; /* [count] */
};

/* Returns the client's owners, to be released; NULL: the client was made by another process. Takes the
 * lock. */
struct mrc_owners *mrc_owners_hold(struct mr_client *client);
/* With or without the lock; NULL is fine. */
void mrc_owners_release(struct mrc_owners *owners);
/* Makes a new list from what the nodes are known to have. False: no memory, and the old one stays. Under the
 * lock. */
bool mrc_owners_renew(struct mr_client *client);
/* Returns the link to an owner of the client's list; NULL: there is none now. Under the lock. */
struct mrc_link *mrc_owners_link(const struct mr_client *client, uint32_t owner);
/* Returns the link to core 0 of the first node that answers, for calls that any node takes; of the first
 * node if none does. Under the lock. */
struct mrc_link *mrc_owners_control(const struct mr_client *client);
/* Returns what changes when any node of the list is restarted, and when there is another one: the sum of the
 * nodes' start ids. Under the lock. */
uint64_t mrc_owners_start_id(const struct mr_client *client);
/* Returns how many owners the client's list has, and how many lists it had before; 1 and UINT32_MAX for a
 * client of another process. Takes the lock. */
uint32_t mrc_owners_count(struct mr_client *client, uint32_t *changes);
/* Returns how many lists the client had before. Under the lock. */
uint32_t mrc_owners_changes(const struct mr_client *client);

#endif
