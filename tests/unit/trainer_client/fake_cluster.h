/* A cluster of fake nodes: they share a map that the test changes. There is no coordinator and no catalogue:
 * all have the same table from the start. */
#ifndef FAKE_CLUSTER_H
#define FAKE_CLUSTER_H

#include <stdatomic.h>
#include <stdint.h>
#include "dataplane/wire/format/cluster.h"
#include "tests/unit/trainer_client/fake_node.h"

#define FAKE_MEMBERS_MAX 4u

struct fake_cluster {
    uint32_t count;
    atomic_ullong epoch;
    atomic_ullong lease_us;
    atomic_bool has_no_lease;                      /* no node has one left */
    atomic_uint owner_of[FAKE_MEMBERS_MAX];        /* who has what the i-th had at first: group i */
    atomic_uint restored_in[FAKE_MEMBERS_MAX];     /* the epoch of the group's last take-over; 0: none */
    atomic_bool is_loading[FAKE_MEMBERS_MAX];      /* its owner has not loaded the group yet */
    uint32_t saved_owner_of[FAKE_MEMBERS_MAX];     /* as of the checkpoint */
    _Atomic(const char *) hosts[FAKE_MEMBERS_MAX]; /* as the map has them; NULL: 127.0.0.1 */
    atomic_uint ports[FAKE_MEMBERS_MAX];
    atomic_bool away[FAKE_MEMBERS_MAX]; /* as the map shows it */
    uint32_t cores[FAKE_MEMBERS_MAX];
    uint32_t others;        /* nodes that own nothing, before these in the map */
    atomic_bool has_copies; /* the i-th is the backup of 10 i partitions, and lacks a backup of i */
    struct fake_node *nodes[FAKE_MEMBERS_MAX];
};

/* What a member tells. */
struct fake_cluster_map {
    uint64_t words[MR_CLUSTER_WORDS];
    struct mr_cluster_node nodes[MR_CLUSTER_NODES_MAX];
    uint8_t owner_of_few[MR_PARTITION_COUNT];
    uint16_t owner[MR_PARTITION_COUNT];
    bool any_restored;
    uint32_t restored_in[MR_PARTITION_COUNT];
    uint32_t copies[MR_CLUSTER_NODES_MAX][MR_COPIES_WORDS];
};

/* Starts so many nodes, the i-th with i % 2 + 1 cores, and epoch 5. */
struct fake_cluster *fake_cluster_start(uint32_t count, const struct mr_feature *table);
/* The same with so many others in the map. */
struct fake_cluster *fake_cluster_start_among(uint32_t others, uint32_t count,
                                              const struct mr_feature *table);
void fake_cluster_destroy(struct fake_cluster *cluster);
/* "127.0.0.1:PORT,...", of all nodes; valid until the next call. */
const char *fake_cluster_servers(const struct fake_cluster *cluster);
/* The map goes on by one epoch, and calls by earlier ones are refused by this node. */
void fake_cluster_grant_again(struct fake_cluster *cluster, uint32_t node);
/* Two nodes change their partitions, with all that was pushed to them, while they serve. */
void fake_cluster_swap(struct fake_cluster *cluster, uint32_t a, uint32_t b);
/* A group of partitions goes to another node with all that was pushed to it, while both serve. */
void fake_cluster_move(struct fake_cluster *cluster, uint32_t group, uint32_t to);
/* A checkpoint of all nodes that own anything. */
void fake_cluster_save(struct fake_cluster *cluster);
/* Another node becomes the owner of a group, and loads it from that checkpoint by fake_cluster_load(): until
 * then calls for it wait. Whether the one before is dead, or only cut off, it has nothing of it any more. */
void fake_cluster_take_over(struct fake_cluster *cluster, uint32_t group, uint32_t to);
void fake_cluster_load(struct fake_cluster *cluster, uint32_t group);
/* After fake_node_kill(): starts it again, with what it owns as it is in the checkpoint. */
void fake_cluster_restart(struct fake_cluster *cluster, uint32_t node);
/* After fake_node_kill(): starts it again on other ports. */
void fake_cluster_restart_elsewhere(struct fake_cluster *cluster, uint32_t node);
/* After fake_node_kill() of both: starts each again where the other one was. */
void fake_cluster_restart_crosswise(struct fake_cluster *cluster, uint32_t a, uint32_t b);

/* Whether this node owns the partition and has not loaded it. And: whether there is any such. */
bool fake_cluster_is_loading(const struct fake_cluster *cluster, uint32_t node, uint32_t partition);
bool fake_cluster_loads(const struct fake_cluster *cluster, uint32_t node);
uint32_t fake_cluster_owner(const struct fake_cluster *cluster, uint32_t partition);
void fake_cluster_tell(const struct fake_cluster *cluster, uint32_t self, struct fake_cluster_map *out);

#endif
