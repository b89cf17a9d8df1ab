/* The map of a cluster: its nodes, and which of them owns which partition. The coordinator keeps one, with
 * a version, and everybody else has copies that may be old.
 *
 * A change is a function of the map alone, and is written on condition that the map is still the one it
 * was made from. So whoever proposes it, a leader that was replaced without knowing it included, the map
 * goes from one valid state to the next. Pure: no input or output, no lock. Any thread.
 *
 * Whoever becomes the owner of a partition gets it by a grant, whose number is never used again: that of
 * the move by which it came, or a new one. State that came by a move is only valid under that move's
 * grant; a node that has a grant and no such state loads the partition from the newest checkpoint of the
 * cluster.
 *
 * Or the state came by an assignment as the partition's backup: then the grant is that assignment's number
 * (ps/cluster/copies.h).
 *
 * A take-over is such a grant: the partition goes on from a checkpoint, and what was pushed since is sent
 * again by the clients, which see by restored_in that it is no move. A map has any of this only if all nodes
 * have MR_CAN(TAKE_OVER).
 *
 * The map's places are slots. A slot is a partition's number with its bits in reverse (van der Corput's
 * sequence): so any run of slots is spread evenly over all partitions, and with them over the cores of its
 * owner, whose slices of partitions are contiguous. Elsewhere in this folder partitions are named by their
 * slots; ps_cluster_slot() leads from one to the other. */
#ifndef PS_CLUSTER_MAP_H
#define PS_CLUSTER_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/mr_feature.h"

#ifndef PS_CLUSTER_PARTITIONS_MAX /* the simulator's worlds have fewer */
#define PS_CLUSTER_PARTITIONS_MAX MR_PARTITION_COUNT
#endif
#ifndef PS_CLUSTER_NODES_MAX
#define PS_CLUSTER_NODES_MAX 256u
#endif
/* Nodes with a session that are looked at: those of the map, and some that wait to be admitted. */
#define PS_CLUSTER_REGISTERED_MAX (PS_CLUSTER_NODES_MAX + 16u)
#define PS_CLUSTER_MOVES_MAX      16u
#define PS_CLUSTER_NO_NODE        0xffffu
#define PS_CLUSTER_NAME_BYTES     64u
#define PS_CLUSTER_TEXT_BYTES     256u /* of a line that says what is wrong */

struct ps_cluster_node {
    char name[PS_CLUSTER_NAME_BYTES];    /* as configured; outlives the process */
    char address[PS_CLUSTER_NAME_BYTES]; /* HOST:PORT */
    uint32_t core_count;                 /* its share of the partitions is as large */
    bool is_spare;                       /* it owns nothing but what it takes over from dead nodes */
    char host[PS_CLUSTER_NAME_BYTES];    /* the machine, as configured; "": that of `address` */
    uint64_t start_id;                   /* random, of the process that may serve under this name */
    uint64_t session;                    /* its session with the coordinator: under another it may not */
    uint32_t session_ms;                 /* how long that is, as it was granted; 0: it has not said */
    struct mr_peer_version version;      /* of the process; zeros: before 0.3.0 */
    /* In a node's entry, not in the map: what it is configured with, and would have the map have.
     * replication 0: it does not say. */
    uint32_t take_over_s, replication;
    bool answers_wait;
};

/* Partitions on their way from their owner to another node. The owner serves them until it has finished. */
struct ps_cluster_move {
    uint64_t id;
    uint16_t first, count;
    uint16_t from, to;
    uint32_t mib_s; /* at most; 0: as the target is configured */
};

struct ps_cluster_map {
    uint64_t epoch;   /* rises by 1 with each change */
    uint64_t last_id; /* of the numbers that grants, moves, cuts and assignments of backups share */
    uint64_t needs;   /* capabilities that are in use: nodes that lack one are not admitted */
    uint32_t partition_count;
    uint32_t node_count;
    struct ps_cluster_node nodes[PS_CLUSTER_NODES_MAX];
    uint16_t owner[PS_CLUSTER_PARTITIONS_MAX]; /* an index of nodes, or PS_CLUSTER_NO_NODE */
    uint64_t grant[PS_CLUSTER_PARTITIONS_MAX]; /* by which the owner has it */
    /* In which epoch it went last to an owner that loads it from a checkpoint of the cluster, 0: never; and
     * from which checkpoint, 0: it begins as the cluster did. Other changes of owners leave both. */
    uint64_t restored_in[PS_CLUSTER_PARTITIONS_MAX];
    uint64_t restored_from[PS_CLUSTER_PARTITIONS_MAX];
    uint32_t take_over_s; /* a node without a session for longer loses its partitions; 0: it keeps them */
    uint32_t replication; /* 1, or 2: each partition has a backup, too (ps/cluster/copies.h) */
    bool answers_wait;    /* for backups that are in sync: copies = sync; else async */
    /* The node that follows what the owner does: an index of nodes, or PS_CLUSTER_NO_NODE. By which
     * assignment, 0 without one: all partitions of one owner that were assigned to one node together have one
     * number. And whether it has all that the owner has answered for, or, where answers do not wait for it,
     * nearly all. */
    uint16_t backup[PS_CLUSTER_PARTITIONS_MAX];
    uint64_t backup_grant[PS_CLUSTER_PARTITIONS_MAX];
    bool in_sync[PS_CLUSTER_PARTITIONS_MAX];
    uint32_t move_count;
    struct ps_cluster_move
        moves[PS_CLUSTER_MOVES_MAX]; /* of disjoint partitions, and none while there is a cut */
    bool balances;                   /* the leader begins moves until the loads are as they should be */
    /* moves were cancelled: the leader begins none by itself until a process comes that was not there then */
    bool balances_when_asked;
    bool drained[PS_CLUSTER_NODES_MAX]; /* a node that is to have none */
    uint32_t balance_mib_s;             /* of these moves */
    uint64_t last_cut;                  /* the newest cut that was begun; committed, given up, or `cut` */
    uint64_t committed;                 /* the newest checkpoint of the cluster; 0: none */
    uint64_t committed_step;            /* the step that it was cut at */
    uint64_t cut;                       /* the checkpoint that is being made; 0: none */
    uint64_t cut_step;                  /* at which every node cuts */
};

/* Returns the slot of a partition, and likewise the partition of a slot, of MR_PARTITION_COUNT. */
static inline uint32_t ps_cluster_slot(uint32_t number)
{
    uint32_t reverse = 0;
    for (uint32_t bit = 1; bit < MR_PARTITION_COUNT; bit <<= 1)
        reverse = reverse << 1 | ((number & bit) != 0);
    return reverse;
}

/* A map without nodes. partition_count: at most PS_CLUSTER_PARTITIONS_MAX. */
void ps_cluster_map_init(struct ps_cluster_map *map, uint32_t partition_count);

/* The node of this name; PS_CLUSTER_NO_NODE: there is none. */
uint32_t ps_cluster_map_find(const struct ps_cluster_map *map, const char *name);
/* The move of this number; NULL: there is none (any more). */
const struct ps_cluster_move *ps_cluster_map_move(const struct ps_cluster_map *map, uint64_t id);
/* How many partitions a node owns, those that are on their way to it included and those from it not. */
uint32_t ps_cluster_map_load(const struct ps_cluster_map *map, uint32_t node);
/* Whether any of these partitions is on its way to another node. */
bool ps_cluster_map_moves(const struct ps_cluster_map *map, uint32_t first, uint32_t count);
/* The longest run of partitions that a node owns and that do not move: its length, `count` at most. */
uint32_t ps_cluster_map_longest_run(const struct ps_cluster_map *map, uint32_t node, uint32_t count,
                                    uint32_t *first);
/* Whether a node owns any partition. */
bool ps_cluster_map_owns_any(const struct ps_cluster_map *map, uint32_t node);

/* Parts of changes, which leave the epoch as it is. The partition has no backup any more. */
void ps_cluster_map_end_copy(struct ps_cluster_map *map, uint32_t p);
/* Moves from the node and to it end, and so does the cut. */
void ps_cluster_map_end_work(struct ps_cluster_map *map, uint32_t node);

/* ---- changes: false if they do not fit the map, which then stays as it is ---- */

/* Whether the map takes the node in. */
enum ps_cluster_refusal {
    PS_CLUSTER_ADMITS,
    PS_CLUSTER_LACKS_USED,  /* the node lacks what is in use */
    PS_CLUSTER_NOT_SO_MANY, /* it would be one of many nodes, which it or a node of the map does not know */
    PS_CLUSTER_NO_SPARES,   /* it is a spare, and it or another node has a version that knows none */
    PS_CLUSTER_IS_FULL
};
enum ps_cluster_refusal ps_cluster_map_admits(const struct ps_cluster_map *map,
                                              const struct ps_cluster_node *node);
/* Takes a node in, or notes that it has started again (another start id): what the process before it had
 * in memory is gone, so moves from it and to it, and a cut, end; so do backups of it and on it. What backups
 * in sync have of its partitions is to be promoted before. A process with a new session goes on with
 * what it has; noting it is a change of the map, so that nobody who saw it without a session can take its
 * partitions. So is noting another version of it, or another length of its session, which a leader before
 * 0.3.0 leaves out. Not of a node that is not admitted. */
bool ps_cluster_map_join(struct ps_cluster_map *map, const struct ps_cluster_node *node);
/* Takes a node that owns nothing out: the nodes after it move up. Not of one that a move concerns, or that is
 * a partition's backup. */
bool ps_cluster_map_forget(struct ps_cluster_map *map, uint32_t node);
/* Puts capabilities into use, if all nodes of the map have them. */
bool ps_cluster_map_use(struct ps_cluster_map *map, uint64_t needs);
/* The shortest session that a node of the map has said, in ms; 0: none has. */
uint32_t ps_cluster_map_session_ms(const struct ps_cluster_map *map);
/* The first node of the map that lacks some of them; PS_CLUSTER_NO_NODE: all have them. */
uint32_t ps_cluster_map_lacking(const struct ps_cluster_map *map, uint64_t needs);
/* Grants partitions that nobody owns to the nodes that are present, by their numbers of cores; none to spares
 * and to drained nodes. */
bool ps_cluster_map_spread(struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX]);
/* Begins to move count partitions from `first` on, which all have one owner, to another node. What that is
 * the backup of among them it is no more; the others' backups end with the move. */
bool ps_cluster_map_begin_move(struct ps_cluster_map *map, uint32_t first, uint32_t count, uint32_t to);
/* Makes the target the owner. Proposed by the source alone, once the target has everything and the source has
 * stopped to serve it. */
bool ps_cluster_map_finish_move(struct ps_cluster_map *map, uint64_t id);
bool ps_cluster_map_cancel_move(struct ps_cluster_map *map, uint64_t id);
/* Sets after how many seconds a node without a session loses its partitions. False: it is so, or some node
 * cannot read that. */
bool ps_cluster_map_set_take_over(struct ps_cluster_map *map, uint32_t take_over_s);
/* Grants what a dead node owns to those that are present, the least loaded first, which load it from the
 * newest checkpoint: to the spares among them; else to those that are not drained; and if these have no room,
 * to all. `room` (NULL: any): how many partitions each can take. Proposed only after the coordinator has
 * declared the node's session dead, by which time its lease has ended. False: nobody is there, there is no
 * room for all, it owns nothing, or some node cannot read that. */
bool ps_cluster_map_take_over(struct ps_cluster_map *map, uint32_t dead,
                              const bool present[PS_CLUSTER_NODES_MAX], const uint32_t *room);
/* Grants partitions that `from` owns under these grants (by partition; 0: not that one) to others, as in a
 * take-over. Proposed by that node alone: it cannot load them, and has served nothing of them. False as
 * above, or there is a cut, which waits for them. */
bool ps_cluster_map_pass_on(struct ps_cluster_map *map, uint32_t from, const uint64_t *grants,
                            const bool present[PS_CLUSTER_NODES_MAX], const uint32_t *room);
/* What stands in the way of serving on what a node owns that dies now, from its backup or from a checkpoint,
 * and which node that is about. `room` NULL: it is not known, and then whether that stands in the way is not,
 * either. */
enum mr_tolerance ps_cluster_map_tolerance(const struct ps_cluster_map *map,
                                           const bool present[PS_CLUSTER_NODES_MAX],
                                           const uint32_t room[PS_CLUSTER_NODES_MAX], uint32_t *node);
/* Begins a checkpoint of the whole cluster, at a step; not while partitions move. */
bool ps_cluster_map_begin_cut(struct ps_cluster_map *map, uint64_t step);
bool ps_cluster_map_commit_cut(struct ps_cluster_map *map, uint64_t cut);
bool ps_cluster_map_cancel_cut(struct ps_cluster_map *map, uint64_t cut);

/* Chooses the next move that brings the loads of the nodes that are present closer to their shares; one
 * with drained[node], and a spare, is to have none. Nodes that are away keep what they own, and get
 * nothing. False: nothing is left to do among those present. */
bool ps_cluster_map_next_move(const struct ps_cluster_map *map, const bool drained[PS_CLUSTER_NODES_MAX],
                              const bool present[PS_CLUSTER_NODES_MAX], uint32_t *first, uint32_t *count,
                              uint32_t *to);

#endif
