/* A node as the client knows it: the links to its cores, which core owns which partition, and what must be
 * sent again to it after a restart. The client asks for the partitions after the first core accepts it, and
 * again after each restart of the node. Everything is under the client's lock. */
#ifndef MRC_NODE_H
#define MRC_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/udp/address.h"
#include "trainer_client/call/cluster.h"
#include "trainer_client/call/core_link.h"
#include "trainer_client/call/names.h"

struct mr_client;
struct mr_future;
struct mrc_node_replay;

struct mrc_node {
    struct mr_client *client;
    uint32_t index;                      /* in mr_client.nodes */
    struct mr_address address;           /* of core 0: where it is, or is looked for now */
    struct mrc_addresses addresses;      /* where it may be: tried in turn until one of them answers */
    uint64_t address_us;                 /* when the next of them is tried, unless ... */
    uint64_t address_least_us;           /* ... nothing listens there: then already at this time */
    uint32_t addresses_tried;            /* since `addresses` were set */
    char host[MR_CLUSTER_NAME_BYTES];    /* as its cluster's map has it; empty: it is in none */
    char name[MR_CLUSTER_NAME_BYTES];    /* in its cluster; empty: not known */
    uint32_t place;                      /* in its cluster\'s map */
    bool is_member;                      /* of a cluster */
    bool has_no_lease;                   /* and serves nothing: as it told last */
    bool is_absent;                      /* by its cluster's map: it has no session with the coordinator */
    bool refused;                        /* a call, with MR_WRONG_OWNER, and has not told its map since */
    struct mrc_link *links[MR_CORE_MAX]; /* set by the driving thread only; surplus ones stay, closed */
    uint32_t link_count;
    uint32_t core_count;  /* 0 = not known yet, or the client has left the node */
    uint32_t incarnation; /* the last one seen, for people */
    uint64_t start_id;    /* of the start that was seen last */
    uint32_t map_version;
    bool asking;     /* NODE_INFO is in flight */
    bool stale;      /* the node must be asked (again) ... */
    uint64_t ask_us; /* ... but not before */
    uint32_t asked_in_vain;
    bool garbled;  /* the node's answer was no partition map */
    bool unlisted; /* the client's owners do not show its partitions yet (shard_map.h) */
    uint16_t partition_core[MR_PARTITION_COUNT];
    uint32_t message_bytes_max;     /* it takes no longer ones; 0: not known yet */
    struct mrc_node_replay *replay; /* what it has of the client's pushes (call_hooks.h) */
    /* the start that was found not to know LOOKUP_TABLES, as older versions do not; 0: none */
    uint64_t lacks_lookup_tables_in;
    bool left; /* its links are to be closed */
    /* another member answers at its address, and told that it is to be found at this one */
    bool is_elsewhere;
    struct mrc_addresses elsewhere;
    uint64_t member_in;   /* the start that told the cluster's map, as the client has it, or a later one */
    uint64_t outsider_in; /* the start that told of no cluster, or an earlier map: perhaps of another one */
};

/* Makes a node without links, to be found at one of these addresses. NULL: no memory. */
struct mrc_node *mrc_node_create(struct mr_client *client, const struct mrc_addresses *addresses);
/* Its links must have been freed. */
void mrc_node_destroy(struct mrc_node *node);
/* Adds the link to core 0, at the first of the addresses that there is a way to. By the driving thread. */
enum mr_status mrc_node_open(struct mrc_node *node, char *error, size_t error_bytes);
/* Adds the link to the next core, link_count. By the driving thread. */
enum mr_status mrc_node_add_link(struct mrc_node *node, char *error, size_t error_bytes);

/* Whether its core 0 has accepted the client and answers. */
bool mrc_node_is_up(const struct mrc_node *node);
/* Whether its cluster says that it is away, and it does not answer: what concerns all nodes that are there
 * does without it. */
bool mrc_node_is_away(const struct mrc_node *node);
/* It may be at these addresses from now on. If it is at none of them, or is not up, its cores are looked for
 * at the first. */
void mrc_node_set_addresses(struct mrc_node *node, const struct mrc_addresses *addresses);
/* No more calls go there. What is kept for it is taken, and then its links are closed. */
void mrc_node_leave(struct mrc_node *node);

/* Notes that a core has accepted the client, for the first time or again. */
void mrc_node_session_up(struct mrc_link *link, const struct mr_client_session_info *info);
/* Asks the nodes what is due, matches links with their cores, and moves what is kept to its owners. By the
 * driving thread (see progress.h), because the set of links may change. */
void mrc_nodes_poll(struct mr_client *client);
/* Returns when mrc_nodes_poll() is due for the node. */
uint64_t mrc_node_next_us(const struct mrc_node *node);
/* Checks that all nodes have these capabilities, as far as they have accepted the client: MR_VERSION_MISMATCH
 * otherwise, with the error line, and nothing is to be sent. Takes the lock. */
enum mr_status mrc_nodes_check(struct mr_client *client, const char *call, uint64_t needs);
/* Returns whether all nodes may know LOOKUP_TABLES. */
bool mrc_nodes_lookup_tables(const struct mr_client *client);
/* Waits until the nodes' cores are known and each of them has accepted the client, or until the deadline.
 * Returns false if neither has come, but another look-up has ended than the first `ended`
 * (mrc_names_ended()). */
bool mrc_nodes_wait(struct mr_client *client, uint32_t ended, uint64_t deadline_us);
/* Returns the outcome of that: whether the client can begin, or why it cannot after so long. */
enum mr_status mrc_nodes_connected(const struct mr_client *client, double waited_s, char *error,
                                   size_t error_bytes);

#endif
