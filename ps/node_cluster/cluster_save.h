/* A node's work for the checkpoints of its cluster: its part, what its clients ask for, and, while it
 * leads, the commitment. A cut stands in the map (ps/cluster/cluster_map.h); each node writes its part
 * under the cut's number and reports it; the leader writes CLUSTER, and then has the map note it. */
#ifndef PS_CLUSTER_SAVE_H
#define PS_CLUSTER_SAVE_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/leader.h"
#include "ps/cluster/zookeeper.h"
#include "ps/node_cluster/cluster_commit.h"
#include "ps/control/control.h"

struct ps_cluster_save {
    char directory[PS_DIRECTORY_BYTES]; /* of the cluster's checkpoints; "": there is none */
    struct ps_cluster_commit *commit;   /* NULL without a directory */
    uint64_t every_us; /* between two checkpoints that the leader begins by itself; 0: none */
    /* what follows with the lock of the caller */
    bool is_wanted;     /* a client has asked, and the map has it not yet */
    bool is_by_trainer; /* a trainer has asked for it */
    uint64_t wanted_step;
    uint64_t proposed; /* the cut that this node tried to begin for it; 0: none */
    uint64_t own;      /* the cut that it did begin, by what the coordinator answered */
    /* of the last view: the map's cut, if a trainer asked for that; whether some node's part of it still
     * waits for its step, which may never come; whether the view had what all nodes say */
    uint64_t trainer_cut;
    bool trainer_cut_waits, view_is_whole;
    uint64_t asked;      /* the cut that was begun for it; 0: none */
    uint64_t last_us;    /* when the leader last saw a cut of its own, or began to lead */
    bool is_due;         /* the next cut is its own */
    uint64_t retained;   /* the checkpoint after which older ones were removed */
    uint64_t has_failed; /* a cut that could not be committed */
    uint64_t seen_cut;   /* the map's, when it was read with what all nodes say of it */
    uint64_t failed_cut; /* of which a node's part has failed, and why */
    char failed_why[PS_CLUSTER_NAME_BYTES + PS_CLUSTER_FAILED_BYTES + 8];
    uint64_t cancelled; /* a cut that a client wants to end; 0: none */
    /* of the leader: since when each node's part of a cut has not come further */
    struct ps_cluster_stall {
        uint64_t cut;
        struct ps_cluster_part_progress part;
        uint64_t since_us;
    } stalls[PS_CLUSTER_NODES_MAX];
    uint64_t unknown_cut, unknown_since_us; /* since when the store has not said whether its file is there */
    /* the control thread's own; NULL: there are no backups */
    bool (*copies_have)(void *context, uint64_t cut); /* what the part has */
    void *context;
    uint64_t number;   /* of the save that was asked for, in the node's list */
    uint64_t begun_us; /* when that was */
    bool is_cancelled; /* a client wants that to end */
    struct ps_cluster_cut_report part;
    struct ps_cluster_part_progress progress;
    uint64_t progress_us;      /* when it was reported last */
    uint64_t cut, part_number; /* the part that is being written or waits to be committed; 0: none */
};

/* ---- the coordinator's thread ---- */

/* A cut of which a part, or the store of the file CLUSTER, has not come further for so long is given up. */
#define PS_CLUSTER_STALL_US 60000000u

/* What the leader is to know of checkpoints. */
void ps_cluster_save_look(struct ps_cluster_save *s, const struct ps_zookeeper_view *view, uint64_t now_us,
                          struct ps_leader_view *out);
/* Writes the file CLUSTER of map->cut, in the background. */
void ps_cluster_save_commit(struct ps_cluster_save *s, const struct ps_zookeeper_view *view);
/* Begins the cut that a client has asked for, or gives up the one that it wants to end. False: neither, or
 * not now. */
bool ps_cluster_save_propose(struct ps_cluster_save *s, const struct ps_cluster_map *map,
                             struct ps_cluster_map *next);

/* What became of a map with this cut, which this node has proposed. */
void ps_cluster_save_proposed(struct ps_cluster_save *s, uint64_t cut, bool is_written);

/* Keeps why a node's part has failed, for those who have asked for the cut. They are answered after that: a
 * leader may give up a cut before this node has read of it. */
void ps_cluster_save_see(struct ps_cluster_save *s, const struct ps_zookeeper_view *view);

/* ---- the control thread ---- */

/* Ends the checkpoint of the cluster that this save is for: what a client has asked this node for, or the
 * node's part. A trainer ends what a trainer has asked for. Takes *lock. Otherwise as
 * ps_control_save_cancel(). */
enum mr_status ps_cluster_save_cancel(struct ps_cluster_save *s, struct ps_control *control,
                                      pthread_mutex_t *lock, uint64_t number, bool is_by_trainer, char *text);

/* What the map says of this node. */
struct ps_cluster_cut {
    uint64_t cut, step; /* that the node is to write; 0: none */
    uint64_t map_cut;   /* that the map has */
    uint64_t seen_cut;  /* the same, as of the last time at which the nodes' entries were read, too */
    uint64_t committed;
    uint64_t asked;     /* as above */
    bool asked_ended;   /* the answer: it has ended, one way or the other */
    bool may_begin;     /* the node has all that it owns */
    const char *why;    /* a part of the cut that was asked for has failed; NULL: none is known to */
    bool owns;          /* it owns partitions, whether it has them or not */
    bool is_by_trainer; /* this node has begun the cut because a trainer asked for it */
};
/* Begins, follows and ends the node's part, and the save that a client has asked for. True: `part` has
 * changed. */
bool ps_cluster_save_poll(struct ps_cluster_save *s, struct ps_control *control, struct ps_cluster_cut *now);

#endif
