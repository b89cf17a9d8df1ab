/* libmillrace, for operators: drop, alter and freeze features, save and restore checkpoints, move partitions.
 * The conventions are those of millrace.h. With keys of several roles, most of these calls need the role
 * operator (docs/security.md). */
#ifndef MILLRACE_ADMIN_H
#define MILLRACE_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "millrace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- features ---- */

/* Drops tables and variables, and parameters of remote calls that have names, all or none, with what they
 * have learnt. Parameters are in no later checkpoint. Tables and variables go for good: their numbers are
 * never used again, and a restart does not bring them back (restoring an earlier checkpoint by call does).
 * Calls that name them then end with MR_UNKNOWN_TABLE. MR_UNKNOWN_TABLE: the node lacks one;
 * MR_CHECKPOINT_RUNNING: a save is being written. Batches that were fed and not yet looked up are dropped. */
MR_API enum mr_status mr_drop(struct mr_client *client, const struct mr_options *options,
                              const char *const *names, uint32_t count);
/* Alters a table or variable while it serves: the options that differ between `before`, as mr_list() shows
 * it, and `after` change on all cores between two calls; others stay as they are. Learning rate and schedule,
 * the optimizer's arguments, weight decay, clipping, the arguments of admission and eviction, and limits can
 * be altered. MR_UNSUPPORTED: another one cannot, and the error says why; MR_UNKNOWN_TABLE: there is no
 * feature of that name. Altering is kept over a restart; a restore of a checkpoint by call brings back the
 * options in it. mr_create() of the feature as it was made goes on working. */
MR_API enum mr_status mr_alter(struct mr_client *client, const struct mr_options *options,
                               const struct mr_feature *before, const struct mr_feature *after);
/* Freezes the node. level: 0 off, 1 admit (no new rows), 2 all (read only). */
MR_API enum mr_status mr_freeze(struct mr_client *client, const struct mr_options *options, uint32_t level);

/* ---- streams of batches ---- */

/* What the node knows of a stream. */
struct mr_stream {
    uint32_t stream;
    bool differs;     /* the cores have different plans for it */
    uint64_t plan[3]; /* all 0: no plan; all UINT64_MAX: from a checkpoint that does not record plans */
    uint64_t applied; /* batches, on the core that has the fewest */
    uint64_t twice;   /* how often a core applied a batch a second time: 0, unless something is wrong */
    uint64_t used;    /* rises with use: of two streams, the one with the higher value was used later */
};
/* Lists the streams of batches that any core has a record of, by number. The caller frees `*streams` with
 * free(). */
MR_API enum mr_status mr_streams(struct mr_client *client, const struct mr_options *options,
                                 struct mr_stream **streams, uint32_t *count);
/* Drops all that the node knows of these streams: a plan whose stream is forgotten is trained on from its
 * start again. MR_ALREADY_STARTED: one of them is in use, and that core drops nothing. Unknown streams are
 * fine. */
MR_API enum mr_status mr_forget_streams(struct mr_client *client, const struct mr_options *options,
                                        const uint32_t *streams, uint32_t count);

/* ---- checkpoints ---- */

/* A table, variable or parameter of a checkpoint, and the name that it gets. */
struct mr_restore_name {
    const char *name;
    const char *new_name; /* NULL: the same */
};
struct mr_restore_options {
    size_t bytes;          /* sizeof(struct mr_restore_options) */
    const char *directory; /* on the server's machine; NULL: the configured one */
    uint64_t id;           /* 0: the newest that verifies */
    /* [name_count] features to take out of the checkpoint and add to those of the node: all of them, or none.
     * A name that the node has already is refused, unless `replace` is set: then the feature is replaced. A
     * name that no feature of the checkpoint has may be that of a parameter of remote calls. It comes with
     * the states of optimizers beside it, unless it gets another name.
     * Other features, and what the node knows of batches, clients and pushes, stay as they are, and calls for
     * them are answered meanwhile. New features get numbers of their own, which mr_list() and mr_create()
     * return; one that replaces another keeps its number. NULL and 0: the whole checkpoint replaces all that
     * the node holds */
    const struct mr_restore_name *names;
    uint32_t name_count;
    bool replace;
};
/* The result of a restore. */
struct mr_restored {
    size_t bytes;    /* sizeof(struct mr_restored), set by the caller */
    uint64_t id;     /* of the checkpoint */
    uint64_t step;   /* of training at its cut; 0: calls carried no step */
    bool is_at_step; /* it holds all pushes up to `step` and none after: trainers continue with step + 1 */
    uint32_t tables, variables; /* taken out of it */
    uint32_t parameters;        /* of remote calls */
};
/* Restores all or some features of a checkpoint, and returns when that is done. `what` NULL: all of the
 * newest that verifies; restored: may be NULL. On failure the node keeps serving what it served before. */
MR_API enum mr_status mr_restore(struct mr_client *client, const struct mr_options *options,
                                 const struct mr_restore_options *what, struct mr_restored *restored);

enum mr_save_kind {
    MR_SAVE_CONFIGURED = 0, /* full or delta, as checkpoint.deltas and the keys beside it say */
    MR_SAVE_FULL = 1,
    MR_SAVE_DELTA = 2,   /* MR_INVALID_ARGUMENT if no delta is possible; the text says why */
    MR_SAVE_PARTIAL = 3, /* of single tables and variables; only reported, `names` asks for it */
};
struct mr_save_options {
    size_t bytes;          /* sizeof(struct mr_save_options) */
    const char *directory; /* on the server's machine; NULL: the configured one */
    enum mr_save_kind kind;
    /* not 0: the checkpoint holds all pushes up to this step, and none after. Trainers have to train in step,
     * each waiting for its pushes of a step before it makes calls of the next, and to set the step of each
     * call. See docs/checkpoints.md */
    uint64_t step;
    /* how many trainers (clients) a step has. 0: checkpoint.trainers if there is a step; else the cut is made
     * at once. Not 0 and no step: the cut is made at the step that training has reached */
    uint32_t trainers;
    bool queue; /* while another save runs: wait for its end instead of failing with MR_CHECKPOINT_RUNNING */
    /* Tables, variables and parameters of remote calls to save; without names, everything. Such a checkpoint
     * is partial: it goes to the folder `partial` of the directory, where it has a number of its own, and
     * mr_restore() takes from it by name. A start does not restore it, deltas do not build on it,
     * and it does not hold pushes for `replay`. */
    const char *const *names;
    uint32_t name_count;
};
/* Starts or queues a save, and returns at once; training continues. save NULL: everything, as configured.
 * *checkpoint_id (may be NULL): its id; 0 while it waits for a step or for another save. *number (may be
 * NULL): by which mr_checkpoint_info() reports how it ended; saves are counted from the server's start.
 *
 * If the server was restarted, a client with `replay` first waits until every core has its pushes again, even
 * if the call is asynchronous. If it is restarted during the call, a client with `replay` asks for the save
 * again; an asynchronous call ends with MR_UNKNOWN_OUTCOME instead, as that of a client without `replay`
 * does. */
MR_API enum mr_status mr_save(struct mr_client *client, const struct mr_options *options,
                              const struct mr_save_options *save, uint64_t *checkpoint_id, uint64_t *number);

/* Cancels the save with this number: one that waits for its step or for another save, or one that is being
 * written. On MR_OK nothing is left of it, and its status is MR_CANCELLED. MR_INVALID_ARGUMENT: it has ended
 * already, and mr_last_error() says how; MR_CHECKPOINT_NOT_FOUND: no save among the last 32 has that number.
 */
MR_API enum mr_status mr_checkpoint_cancel(struct mr_client *client, const struct mr_options *options,
                                           uint64_t number);

enum mr_save_state {
    MR_SAVE_ENDED = 0, /* its status says how */
    MR_SAVE_WRITING = 1,
    MR_SAVE_WAITS_FOR_STEP = 3,
    MR_SAVE_QUEUED = 4, /* waits for another save */
};
/* The copy of a checkpoint in checkpoint.remote. */
enum mr_save_remote {
    MR_REMOTE_NONE = 0, /* it is not copied: there is no store, it is in another directory, or it failed */
    MR_REMOTE_PENDING = 1,
    MR_REMOTE_THERE = 2,
    MR_REMOTE_SUPERSEDED = 3, /* it was removed from the disk before it was copied; a newer one is there */
};
struct mr_save_info {
    uint64_t number;
    enum mr_save_state state;
    bool is_automatic, is_at_step;
    uint64_t id;            /* of the checkpoint; 0 until its cut is made */
    enum mr_save_kind kind; /* of it; MR_SAVE_CONFIGURED until then */
    uint64_t parent_id;     /* of a delta */
    uint64_t step;          /* of training at its cut; until then, the step that it waits for */
    uint64_t bytes, duration_us;
    enum mr_status status; /* once it has ended */
    char error[256];
    /* when it was published in its directory, and when its copy was published in checkpoint.remote, by the
     * server's clock in milliseconds since 1970; 0: not yet, or never */
    uint64_t committed_ms, remote_ms;
    enum mr_save_remote remote;
};
enum mr_checkpoint_state { MR_CHECKPOINT_IDLE = 0, MR_CHECKPOINT_SAVING = 1, MR_CHECKPOINT_LOADING = 2 };
struct mr_checkpoint_info {
    size_t bytes;  /* sizeof(struct mr_checkpoint_info), set by the caller */
    uint64_t step; /* that training has reached, by the steps of calls that train; outliers do not count */
    uint64_t restored_id; /* the checkpoint that the server was restored from; 0: none */
    uint64_t restored_step;
    /* trainers may continue with step restored_step + 1, and training repeats to the last bit */
    bool restored_is_at_step;
    uint64_t last_good_id, last_good_step; /* of the last save that was published; 0: none yet */
    uint64_t saves_queued;
    uint64_t waiting_step; /* a save waits for this step; 0: none does */
    uint64_t trainers_held, trainers_awaited;
    /* the save or restore that runs, or the last one */
    enum mr_checkpoint_state state;
    uint64_t id;
    uint64_t bytes_done, bytes_total;
    uint64_t duration_us;
    enum mr_status last_status; /* outcome of the last one */
    char last_error[256];
};
/* Fills `info` (may be NULL), and calls `visit` (may be NULL) on this thread for the save with this number,
 * or with number 0 for all saves that the server still knows, the oldest first. MR_CHECKPOINT_NOT_FOUND: no
 * save among the last 32 has that number. */
MR_API enum mr_status mr_checkpoint_info(struct mr_client *client, const struct mr_options *options,
                                         uint64_t number, struct mr_checkpoint_info *info,
                                         void (*visit)(void *arg, const struct mr_save_info *save),
                                         void *arg);

/* ---- partitions of a cluster ---- */

/* Changes which node of a cluster owns what, while training goes on. */
enum mr_move_request_kind {
    MR_REQUEST_MOVE = 1,     /* `count` partitions from one node to another */
    MR_REQUEST_DRAIN,        /* all of `from` to the other nodes; it gets none before a rebalance */
    MR_REQUEST_REBALANCE,    /* until each node has as many as its cores are, drained ones included */
    MR_REQUEST_CANCEL_MOVES, /* moves in progress, and what would follow from a drain or a rebalance */
    MR_REQUEST_FORGET_NODE,  /* `from`, which is away and owns nothing, leaves the map */
    MR_REQUEST_TAKE_OVER     /* the others load what `from` owns, which is away, from the newest checkpoint */
};
struct mr_move_request {
    enum mr_move_request_kind kind;
    const char *from, *to; /* names of nodes; NULL where none is wanted */
    bool has_first;        /* partitions `first` .. first + count - 1 of the map; else any */
    uint32_t first, count; /* count 0: all */
    uint32_t mib_s;        /* at most; 0: as the nodes are configured */
    uint64_t id;           /* of the move to cancel; 0: all */
};
/* Returns once the cluster's map says so; the moves themselves go on. mr_moves() and mr_cluster() of this
 * client show no older map from then on, whichever node answers. MR_INVALID_ARGUMENT: there is no such node,
 * it is away, or it has nothing to move; mr_last_error() says which. Idempotent, except without has_first: a
 * repeat starts additional moves. */
MR_API enum mr_status mr_move(struct mr_client *client, const struct mr_options *options,
                              const struct mr_move_request *request);
struct mr_moves_state {
    uint64_t epoch;   /* of the cluster's map */
    uint32_t count;   /* moves in progress */
    uint32_t drained; /* nodes that are to have no partitions */
    bool balances;    /* the leader begins more moves */
};
enum mr_moving_state { MR_MOVING_WAITS, MR_MOVING_COPIES, MR_MOVING_ENDS };
struct mr_moving {
    uint64_t id;
    const char *from, *to; /* valid during the visit */
    uint32_t first, count; /* places of the map, and partitions */
    uint32_t mib_s;        /* at most; 0: as the target is configured */
    enum mr_moving_state state;
    uint64_t rows, bytes; /* so far, as of a second ago; rows that changed meanwhile count again */
    uint64_t left_bytes;  /* about */
    uint64_t us;          /* since it began */
};
/* Reports the moves in progress. `visit` is called on this thread for each; NULL: not wanted. */
MR_API enum mr_status mr_moves(struct mr_client *client, const struct mr_options *options,
                               struct mr_moves_state *state,
                               void (*visit)(void *arg, const struct mr_moving *move), void *arg);

#ifdef __cplusplus
}
#endif
#endif
