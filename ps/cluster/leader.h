/* What the leader of a cluster proposes next. The leader is one of the nodes, elected by the coordinator; it
 * alone admits nodes, begins moves and makes checkpoints of the cluster. It keeps nothing in memory that its
 * successor would miss: all that is begun stands in the map, and what is finished in the map or in the store
 * of checkpoints. A leader that was replaced without knowing it does no harm, because what it proposes is
 * written only if the map is still the one that it knows. Pure. Any thread. */
#ifndef PS_CLUSTER_LEADER_H
#define PS_CLUSTER_LEADER_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/cluster_map.h"

struct ps_leader_view {
    const struct ps_cluster_map *map; /* as the coordinator last had it */
    /* the nodes that have a session with the coordinator */
    const struct ps_cluster_node *registered;
    uint32_t registered_count;
    /* of map->nodes: for how long it has had no session; 0: it has one */
    const uint64_t *absent_us;
    uint32_t nodes_wanted; /* partitions are granted once so many nodes, without spares, have a session */
    uint64_t take_over_us; /* map->take_over_s: who is absent for longer loses its partitions; 0: nobody */
    uint32_t take_over_s;  /* what the map is to have: ps_leader_settings() */
    uint32_t replication;  /* the same */
    bool answers_wait;     /* the same */
    uint64_t drop_us;      /* a backup that is absent for longer is given up */
    /* of map->nodes: how many partitions each can take over, and follow; NULL: any number */
    const uint32_t *room, *room_for_copies;
    bool may_not_take_over; /* what nodes owned cannot be loaded by others */
    uint64_t forget_us;     /* one that owns nothing and is absent for longer leaves the map; 0: it stays */
    bool parts_are_written; /* of map->cut: every owner's, and that of every node that is there */
    bool cut_is_committed;  /* the file CLUSTER of map->cut is in the store */
    bool cut_is_unknown;    /* whether that file is there: the store has not answered yet */
    bool cut_is_late;       /* map->cut takes too long, or cannot be made */
    bool rebalances;        /* a node that owns nothing gets its share without being asked for */
    /* what operators and trainers ask for */
    bool wants_balance;
    const bool *drained; /* of map->nodes */
    bool wants_cut;
    uint64_t cut_step;
};

/* Which nodes with a session are configured otherwise; NULL: none. */
struct ps_leader_differs {
    const struct ps_cluster_node *take_over[2], *replication[2], *copies[2];
};

/* Sets take_over_s, replication and answers_wait of a view to what all nodes with a session are configured
 * with. They stay as the map has them where nodes differ, and while one that owns something has no session:
 * nodes that differ lead in turn, and would change the map to and fro. */
struct ps_leader_differs ps_leader_settings(struct ps_leader_view *view);

enum ps_leader_action {
    PS_LEADER_WAITS,
    PS_LEADER_WRITES_MAP, /* *next, on condition that the coordinator's map is still view->map */
    PS_LEADER_COMMITS_CUT /* write the file CLUSTER of map->cut, then ask again */
};

enum ps_leader_action ps_leader_next(const struct ps_leader_view *view, struct ps_cluster_map *next);

#endif
