/* The control thread: Create, Freeze, List, Save and Restore, over all cores.
 *
 * Core 0's handler submits a command; the thread executes it, reaching each core through tasks, and the
 * answer returns to core 0 as a task. Commands are executed one after the other, while a save may run in the
 * background.
 */
#ifndef PS_CONTROL_H
#define PS_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_feature.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/cluster/catalog_member.h"
#include "ps/cluster/feature_rules.h"
#include "ps/cluster/migration_request.h"
#include "ps/control/save_log.h"
#include "ps/core/core.h"
#include "ps/restore/restore_plan.h"
#include "ps/save/save_policy.h"
#include "ps/store/stores.h"

#define PS_CONTROL_TEXT_BYTES PS_RULES_TEXT_BYTES
#define PS_REPLY_TENSORS_MAX  5u

/* A call for the control thread: its arguments, and later its answer. Everything is a copy. */
struct ps_command {
    struct dp_task task; /* brings it back to core 0 */
    struct ps_command *next;
    struct mr_call_ref ref;
    uint32_t op;
    enum mr_role role; /* of the caller */
    /* the arguments */
    uint32_t feature_count;
    struct mr_feature *features; /* to create; to alter: before and after */
    uint32_t freeze;             /* enum mr_freeze */
    uint64_t checkpoint_id;
    uint32_t name_count; /* of what is to be restored; 0: everything */
    struct mr_restore_pair *names;
    bool replace; /* features that have such a name already */
    char directory[PS_DIRECTORY_BYTES];
    struct ps_save_request save;
    uint32_t name_list_count;         /* of what is to be saved (0: everything) or dropped */
    char *name_list;                  /* [name_list_count][MR_NAME_BYTES] */
    uint64_t cancel_number;           /* of the save to cancel; 0: `save` is one to be made */
    struct ps_migration_request move; /* of partitions between nodes */
    /* the answer; the command owns the tensors' data */
    enum mr_status status;
    char text[PS_CONTROL_TEXT_BYTES];
    uint32_t tensor_count;
    struct mr_tensor tensors[PS_REPLY_TENSORS_MAX];
};

/* What CHECKPOINT_STATUS says of a node. */
struct ps_checkpoint_view {
    uint64_t state; /* enum mr_checkpoint_state of millrace.h: 0 idle, 1 saving, 2 loading */
    uint64_t id;
    uint64_t bytes_done, bytes_total;
    uint64_t duration_us;
    uint64_t last_good_id;
    uint64_t last_status; /* enum mr_status */
    uint64_t last_errno;
    char text[256];
};

/* The view's `state`. */
enum { PS_VIEW_IDLE = 0, PS_VIEW_SAVING = 1, PS_VIEW_LOADING = 2 };

/* The whole answer to CHECKPOINT_STATUS. */
struct ps_checkpoint_report {
    uint64_t progress[MR_PROGRESS_WORDS];
    char text[256];
    uint64_t details[MR_DETAIL_WORDS];
    uint64_t saves[PS_SAVE_LOG_MAX][MR_SAVE_ROW_WORDS]; /* the oldest first */
    uint32_t save_count;
    char lines[PS_SAVE_LOG_MAX * PS_SAVE_TEXT_BYTES]; /* one line for each save: what went wrong */
};

/* A node's membership in a cluster (ps/node_cluster/), as the control thread calls it; none may wait. */
struct ps_control_cluster_ops {
    /* Writes the catalogue, of which it keeps a copy; answered by ps_control_cluster_written(), always. */
    void (*write_catalog)(void *context, const struct ps_cluster_catalog *next);
    /* Puts it into the node's entry. */
    void (*report)(void *context, const struct ps_cluster_features_report *report);
    enum mr_status (*use)(void *context, uint64_t needs, char *text); /* as in ps_catalog_member_ops */
    void (*wake)(void *context); /* looks at what other nodes have done */
    /* The node has the features of its cluster, and may serve under this session as far as they are
     * concerned; 0: not any more. */
    void (*serve)(void *context, uint64_t session);
    /* Does what has come up. */
    void (*poll)(void *context);
    /* After how many microseconds it is to be polled although nobody wakes the thread; UINT64_MAX: never. */
    uint64_t (*pause_us)(void *context);
    /* A client asks for a save: of the whole cluster, under *number of the node's list; it goes on in the
     * background. MR_INVALID_ARGUMENT, MR_UNSUPPORTED, MR_CHECKPOINT_RUNNING, and `text`. */
    enum mr_status (*save)(void *context, const struct ps_command *command, uint64_t *number, char *text);
    /* A client asks for a change of moves. False: it is answered later, when the map says so. */
    bool (*move)(void *context, struct ps_command *command);
    /* Answers with the map's moves, and how far those have come that this node takes. */
    void (*show_moves)(void *context, struct ps_command *command);
};

/* NULL when memory is short. */
struct ps_control *ps_control_create(struct ps_node *node);
void ps_control_destroy(struct ps_control *c);
/* Reads the history file of the node's checkpoint directory. Call it before the data plane is made.
 * MR_IO_ERROR, MR_NO_MEMORY, with a line in `error`. */
enum mr_status ps_control_open_history(struct ps_control *c, char *error, size_t error_bytes);
uint32_t ps_control_lineage(const struct ps_control *c);
/* Returns the configured directory, to read; known once it was claimed. */
const struct ps_place *ps_control_own_place(const struct ps_control *c);
/* Before the first data call of a start: freezes the node as it was when it ended, whatever it has restored.
 * Pushes that clients send again after the restart precede that, and are applied. */
void ps_control_freeze_as_before(struct ps_control *c);
/* Before the thread runs: the node, of this name, is a member of a cluster, and its features are those of the
 * cluster's catalogue. MR_NO_MEMORY. */
enum mr_status ps_control_join(struct ps_control *c, const char *node,
                               const struct ps_control_cluster_ops *ops, void *context);
/* What the coordinator says (ps_zookeeper_events). Any thread, one at a time; they return at once. */
void ps_control_cluster_viewed(struct ps_control *c, const struct ps_catalog_view *view);
void ps_control_cluster_written(struct ps_control *c, const struct ps_cluster_catalog *next,
                                enum ps_member_written outcome);
void ps_control_cluster_expired(struct ps_control *c);
/* Starts the thread. Before that, and after ps_control_stop(), the caller may do its work: a restore at the
 * start, a save at the end. */
bool ps_control_start(struct ps_control *c);
/* Ends the thread after the current command; further ones are answered MR_SHUTTING_DOWN. A running save is
 * aborted, unless `finish_save`. */
void ps_control_stop(struct ps_control *c, bool finish_save);

/* Submits a command, which the thread owns from then on; false when PS_RING_CAPACITY commands wait already.
 * Core 0's thread. */
bool ps_control_submit(struct ps_control *c, struct ps_command *command);
void ps_command_free(struct ps_command *command);
/* Reports one save by its number, or all that are known (0). False: that number is not known. Any thread. */
bool ps_control_report(struct ps_control *c, uint64_t number, struct ps_checkpoint_report *out);

/* The save or restore that runs. Any thread. */
void ps_control_view(struct ps_control *c, struct ps_checkpoint_view *out);
/* A number that grows as long as the thread goes on, whatever it does, once it is woken. Any thread. */
uint64_t ps_control_turns(const struct ps_control *c);
/* Has the thread copy these keys of a configuration to the one in use, at its next turn; nobody else may read
 * them there meanwhile. False: there is no memory. One thread at a time. */
bool ps_control_reload(struct ps_control *c, struct ps_config *in_use, const struct ps_config *fresh,
                       const bool takes[PS_CONFIG_KEY_COUNT]);

/* How many checkpoints stay, by the configuration. */
struct ps_retention ps_control_retention(const struct ps_config *config);

/* The thread's work, also for main while the thread is not running. `text` has PS_CONTROL_TEXT_BYTES. */

/* Locks the configured directory until the control thread is destroyed. MR_IO_ERROR: another process has it,
 * and `text` says which. */
enum mr_status ps_control_claim_directory(struct ps_control *c, char *text);
/* Sets the gate of every core: data calls are let in (PS_GATE_OPEN), or clients try again (PS_GATE_BUSY). */
void ps_control_gate(struct ps_control *c, enum ps_gate gate);
struct ps_restore_request {
    const char *directory; /* "": the configured one */
    bool is_own;           /* the directory comes from the configuration, not from a client */
    uint64_t id;           /* 0: the newest that verifies */
    const struct mr_restore_pair *names;
    uint32_t name_count; /* 0: everything, in place of all that the node holds */
    bool replace;        /* with names: what has such a name already */
    bool goes_on;        /* at start, where the node was: what was dropped since stays away */
    /* Of a member of a cluster: the partitions that it is to have, by partition, and its name there. NULL:
     * all are its own. */
    const bool *owns;
    const char *own_part;
    bool by_call; /* not at start: it takes back pushes that were answered, and clients learn of it */
};
/* The result of a restore. */
struct ps_restored {
    uint64_t id, step;                      /* of the checkpoint; step 0: training reported none */
    bool is_at_step;                        /* it was cut at that step */
    uint32_t tables, variables, parameters; /* how many were restored */
};
/* Before the first restore of a start: whether the node was restored by a call and has not saved since. A
 * start with `latest` continues from that checkpoint, and `request` names it. Its directory is valid until
 * the next restore. */
bool ps_control_goes_back(struct ps_control *c, struct ps_restore_request *request);
/* Loads a checkpoint beside the state that serves, and replaces that once all is there; on failure the node
 * holds what it held before. One exception: when both do not fit into memory, the checkpoint is verified
 * first and then takes the place of what was there; should loading fail even so, `text` says that the node
 * refuses data calls. Data calls must not be let in meanwhile, except in a restore of names. */
enum mr_status ps_control_restore(struct ps_control *c, const struct ps_restore_request *request,
                                  struct ps_restored *restored, char *text);
/* Reads which features a checkpoint has, with their numbers; its blocks are not verified. Of a directory that
 * the configuration names. */
enum mr_status ps_control_read_features(struct ps_control *c, const char *directory, uint64_t id,
                                        struct ps_catalog *features, char *text);
/* Lets clients forget the pushes in the checkpoint that the node has just been restored from, because its
 * next start would load the same one; with checkpoint.durable = remote, once the store has it. */
void ps_control_durable(struct ps_control *c);
/* Whether an earlier start was told to begin from that checkpoint (0: none), gave up the log, and began
 * the one that is there: to be told so once more, by a configuration that stays, would give that up, too. */
bool ps_control_log_was_told(struct ps_control *c, uint64_t id);
/* Whether the log began when a start was told from where, and nothing was saved or restored since: then it
 * follows that checkpoint (*id; 0: none), and not the newest. */
bool ps_control_log_begins(struct ps_control *c, uint64_t *id);
/* Before the gate opens, after the restore at the start, if there was one: applies what the log has after
 * the checkpoint, if `replays`, and begins the node's log, if the configuration wants one. goes_back: as
 * ps_control_goes_back() said. MR_CHECKPOINT_CORRUPT, MR_IO_ERROR, MR_NO_MEMORY, MR_OUT_OF_MEMORY: the node
 * must not serve, and `text` says why. */
typedef enum mr_status ps_log_apply(struct ps_core *core, const struct ps_log_record *record,
                                    uint8_t *content, char *text); /* ps_replay_record() */
enum mr_status ps_control_log_start(struct ps_control *c, bool replays, bool goes_back, ps_log_apply *apply,
                                    char *text);
/* A member of a cluster, which has no log: MR_CHECKPOINT_CORRUPT if it would lose one that is there. */
enum mr_status ps_control_log_check_none(struct ps_control *c, char *text);
/* Makes the last save of a node: no data call is let in from then on. Returns after the save has ended. */
enum mr_status ps_control_save_last(struct ps_control *c, char *text);

#endif
