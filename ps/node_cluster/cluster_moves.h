/* A node's work for moves of partitions: what it gives and takes, and what operators ask for. Which moves
 * there are stands in the map (ps/cluster/cluster_map.h); a giver and a taker do theirs one after the
 * other, in the order of their numbers, which cannot end in a circle. */
#ifndef PS_CLUSTER_MOVES_H
#define PS_CLUSTER_MOVES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/member.h"
#include "ps/cluster/migration_request.h"
#include "ps/cluster/report.h"
#include "ps/control/control.h"
#include "ps/core/node.h"
#include "ps/move/migration_target.h"

struct ps_cluster_moves {
    struct ps_node *node;
    uint64_t mib_s; /* of a move whose rate nobody has set; 0: no limit */
    /* what the taker has asked for, of the move that this node gives */
    _Atomic uint64_t hold_asked, done_heard;
    /* what follows with the lock of the caller */
    uint64_t arrived[PS_CLUSTER_MOVES_MAX]; /* moves whose partitions are here */
    uint32_t arrived_count;
    struct ps_partition_set drops; /* partitions to be freed */
    bool has_drops;
    uint64_t failed; /* a move that cannot be completed: the map is to cancel it; 0: none */
    struct ps_cluster_move_report progress[PS_CLUSTER_NODES_MAX]; /* by the map's nodes */
    /* what a client asks for */
    struct ps_migration_request wish;
    enum { PS_WISH_NONE, PS_WISH_PENDING, PS_WISH_ENDED } wish_state;
    enum mr_status wish_status;
    uint64_t wish_epoch; /* of the map that says so */
    char wish_text[PS_CLUSTER_TEXT_BYTES];
    /* the control thread's own */
    uint64_t gives;                   /* the move that the cores give; 0: none */
    uint64_t cannot_give;             /* one for which they had no memory */
    bool gives_held;                  /* the cores know that calls for it wait */
    struct ps_migration_target *take; /* NULL: it has not begun */
    struct ps_cluster_move takes;     /* id 0: none */
    char from[PS_CLUSTER_NAME_BYTES];
    bool cleans;                /* what the cores still have of its partitions is freed first */
    bool has_reported;          /* its end is in the log */
    struct ps_command *command; /* that is answered when the wish has ended; NULL: none */
    uint64_t command_until_us;
    uint64_t reported, reported_us; /* the move that the node's entry is about, and since when */
};

/* ---- the member's operations; with the lock ---- */

bool ps_cluster_moves_adopt(const struct ps_cluster_moves *m, uint64_t move);
void ps_cluster_moves_drop(struct ps_cluster_moves *m, uint32_t slot);

/* ---- any thread ---- */

/* The taker says so (enum mr_move_flag). */
void ps_cluster_moves_heard(struct ps_cluster_moves *m, uint64_t move, uint64_t flags);
/* Notes what the nodes say of the moves that they take; with the lock. */
void ps_cluster_moves_see(struct ps_cluster_moves *m, const struct ps_cluster_map *map,
                          const struct ps_cluster_node *registered, const struct ps_cluster_report *reports,
                          uint32_t count);
/* Proposes what a client asks for, or to cancel a move that cannot be completed; with the lock. False:
 * there is nothing to be proposed now. */
bool ps_cluster_moves_propose(struct ps_cluster_moves *m, const struct ps_cluster_map *map,
                              const bool present[PS_CLUSTER_NODES_MAX], struct ps_cluster_map *next);

/* ---- the control thread ---- */

/* With the lock: what the taker has asked for. True: the cores must be told that calls wait. */
bool ps_cluster_moves_advance(struct ps_cluster_moves *m, struct ps_member *member, uint64_t now_us);
/* What the map and the member say, taken with the lock. */
struct ps_cluster_moves_now {
    struct ps_cluster_move give; /* id 0: none */
    bool give_is_held;
    struct ps_cluster_move take;
    struct ps_cluster_node giver; /* of `take` */
    bool has_taken;               /* `takes` is this node's now */
    bool has_drops;
    struct ps_partition_set drops;
};
void ps_cluster_moves_look(struct ps_cluster_moves *m, const struct ps_member *member,
                           struct ps_cluster_moves_now *out);
/* Begins, follows and ends what is due; the cores know the map that `now` is of. Returns a move whose
 * partitions are all here, or cannot be had: then *failed. 0: none. */
uint64_t ps_cluster_moves_poll(struct ps_cluster_moves *m, const struct ps_cluster_moves_now *now,
                               bool *failed);
/* Lets the giver know that everything is here, which the member adopts from now on. */
void ps_cluster_moves_tell(struct ps_cluster_moves *m);
/* Do the cores give partitions, or take them? A cut must wait for the end of that. */
bool ps_cluster_moves_is_busy(const struct ps_cluster_moves *m);
/* Takes a client's wish, which is answered later. False: it is answered now. */
bool ps_cluster_moves_ask(struct ps_cluster_moves *m, pthread_mutex_t *lock, struct ps_command *command);
/* Answers the client if its wish has ended. */
void ps_cluster_moves_answer(struct ps_cluster_moves *m, pthread_mutex_t *lock, struct ps_control *control);
/* What the node's entry at the coordinator is to say of the move that it takes. True: something new. */
bool ps_cluster_moves_report(struct ps_cluster_moves *m, struct ps_cluster_move_report *out);
/* Answers with the map's moves; with the lock. */
void ps_cluster_moves_show(const struct ps_cluster_moves *m, const struct ps_cluster_map *map,
                           struct ps_command *command);
/* Must it be polled although nobody wakes the thread? */
bool ps_cluster_moves_is_waiting(const struct ps_cluster_moves *m);
/* The control thread has ended, and the cores have not. */
void ps_cluster_moves_stop(struct ps_cluster_moves *m);

#endif
