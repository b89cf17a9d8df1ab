/* What operators ask for about moves of partitions, as changes of the cluster's map. Any node may propose
 * them: each is a function of the map, so it does not matter who leads. Pure. Any thread. */
#ifndef PS_CLUSTER_MIGRATION_REQUEST_H
#define PS_CLUSTER_MIGRATION_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/move.h"
#include "ps/cluster/cluster_map.h"

struct ps_migration_request {
    enum mr_move_kind kind;
    char from[PS_CLUSTER_NAME_BYTES], to[PS_CLUSTER_NAME_BYTES];
    bool has_first;
    uint32_t first, count; /* count 0: all */
    uint32_t mib_s;
    uint64_t id; /* to cancel; 0: all */
    /* Of a take-over: how many partitions each node of the map can take; NULL: any number. */
    const uint32_t *room;
    bool has_no_directory; /* the node that was asked has none for checkpoints: nobody could load anything */
    /* Found out from the first map that it is compared with: the node to be forgotten is there, and what is
     * to move. */
    bool is_known;
    uint32_t range_count;
    struct ps_migration_range {
        uint16_t first, count;
    } ranges[PS_CLUSTER_MOVES_MAX];
};

enum ps_migration_request_state {
    PS_REQUEST_NONE,
    PS_REQUEST_FAILED, /* `text` says why */
    PS_REQUEST_WAITS,  /* for the end of a checkpoint, or of other moves */
    PS_REQUEST_WRITES, /* *next is to be written */
    PS_REQUEST_MADE    /* it is so in this map */
};

/* Compares a request with the map; partitions move between nodes with present[node], which have a session.
 * To be asked again with every map until it is made or has failed: what was perhaps written is recognised. */
enum ps_migration_request_state ps_migration_request_propose(const struct ps_cluster_map *map,
                                                             const bool present[PS_CLUSTER_NODES_MAX],
                                                             struct ps_migration_request *request,
                                                             struct ps_cluster_map *next,
                                                             char text[PS_CLUSTER_TEXT_BYTES]);

/* The leader's part: the loads of the nodes that are present are as they should be, so no more moves are
 * begun. False: they are not, or moves are still in progress. */
bool ps_migration_balance_ends(const struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                               struct ps_cluster_map *next);

#endif
