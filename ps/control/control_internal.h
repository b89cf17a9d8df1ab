/* The control thread's state, and what its files offer each other. Calls run one way: control.c above
 * control_restore.c, control_cluster.c, control_drop.c, control_alter.c, control_saves.c,
 * control_checkpoint.c, control_background.c, control_list.c, control_parameters.c, control_report.c,
 * control_step.c, control_state.c. */
#ifndef PS_CONTROL_INTERNAL_H
#define PS_CONTROL_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "ps/base/counter.h"
#include "ps/base/ring.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/control/control.h"
#include "ps/control/save_log.h"
#include "ps/core/catalog.h"
#include "ps/core/core.h"
#include "ps/core/history.h"
#include "ps/core/step_barrier.h"
#include "ps/log/log_segments.h"
#include "ps/save/save_policy.h"
#include "ps/store/stores.h"

#define PS_LAST_IDS 8u

/* A step at which every core holds back the clients that are through with it. */
struct ps_step_cut {
    bool is_armed;
    bool is_automatic; /* for the schedule; else for `waiting` */
    bool is_timed;     /* not at a fixed step, but at the one that training had reached */
    uint64_t step;
    uint32_t trainers;
    uint32_t arrived;       /* trainers held, when it was last checked */
    uint64_t held_since_us; /* 0: nobody is held */
    uint64_t looked_us;
    struct ps_step_barrier *gates, *seen; /* one for each core; copies, and one more for their sum */
};

struct ps_saves {
    struct ps_save_request running; /* while there is a writer */
    struct ps_save_entry entry;     /* of the running save, or of the last one */
    bool is_cancelled;              /* by a call: it is being aborted */
    bool is_waiting;
    struct ps_save_request waiting; /* for a step */
    struct ps_save_request queue[PS_SAVES_QUEUED_MAX];
    uint32_t queued;
    struct ps_step_cut cut;
    struct ps_save_schedule schedule;
    struct ps_save_chain chain;
    struct ps_save_log log; /* protected by view_lock */
    struct ps_trainer_saves by_trainers;
    uint64_t changes_saved; /* ps_control_changes() at the last cut */
};

struct ps_control {
    struct ps_node *node;
    pthread_t thread;
    bool running;
    bool is_in_thread; /* of whoever works on it: the thread, or main while it does not run */
    sem_t wake;
    _Atomic bool stop;
    uint64_t stop_by_us;     /* when it stops: how long it waits for stores */
    struct ps_ring commands; /* core 0 -> control: struct ps_command * */
    /* commands that came while the thread waited for a store, in their order */
    struct ps_command *deferred;
    struct ps_job *jobs;                /* in the background */
    struct ps_control_cluster *cluster; /* NULL: the node is by itself */
    struct {
        const char *node; /* the node's name in the cluster */
        const struct ps_control_cluster_ops *ops;
        void *context;
    } membership; /* with `cluster` */

    struct ps_catalog catalog;
    struct ps_history history;
    struct ps_ancestry ancestry; /* of what the node holds */
    /* the running save; NULL: none */
    struct ps_writer *writer;
    struct mr_named_cut *parameters; /* of its cut; core 0 writes them */
    struct ps_saves saves;
    struct ps_durable {      /* checkpoints of the configured directory; 0: none */
        uint64_t disk_id;    /* the newest on the disk */
        uint64_t copying_id; /* the one whose copy is waited for */
        uint64_t id;         /* the newest whose copy was */
    } durable;
    struct ps_stores *stores;
    struct ps_place own;      /* the configured directory, to read; without one its path is "" */
    struct ps_place scrubbed; /* the same, for the scrubber */
    /* of directories in stores: the highest number given to a checkpoint. A save that failed there may yet be
     * published, so that its number must not come again. */
    struct ps_last_id {
        char directory[PS_DIRECTORY_BYTES];
        uint64_t id;
    } last_ids[PS_LAST_IDS];
    uint32_t last_id_count;       /* of all time */
    struct ps_scrubber *scrubber; /* NULL: none */
    uint64_t damaged_id;          /* of its findings: the one that has been dealt with */
    int directory_lock;           /* of the configured directory, for as long as the node lives; PS_NO_LOCK */
    int save_lock;                /* of another one, while it is saved to */

    /* log lines about what calls asked for and features did not do */
    struct {
        struct ps_drop_stats_log *logs; /* [MR_FEATURE_ID_MAX + 1]; NULL: none was needed yet */
        uint64_t seen;                  /* the cores' sums when they were last read */
        uint64_t look_us;               /* when they may be read again, if they have grown */
        uint64_t pending_us; /* when a line is due that came too soon after the last one; UINT64_MAX: none */
        uint64_t push_streams_logged; /* push streams that were lost, by the log */
        uint64_t push_streams_us;     /* no line about more of them is due before */
    } drop_stats;
    struct {
        uint64_t next_us;              /* no line is due before */
        uint64_t logged[DP_CORES_MAX]; /* HELLOs of other versions that a line has counted */
    } versions;

    struct ps_control_log {  /* checkpoint.durability = log (control_log.c) */
        bool is_on;          /* pushes are logged */
        bool is_there;       /* there are segments */
        bool is_used;        /* at a start: and one of them has a header, so that it may have records */
        bool is_prepared;    /* the newest has been made, and no core uses it yet */
        bool is_stalled;     /* as the log of lines says */
        bool has_base;       /* a checkpoint was restored at the start */
        uint64_t number;     /* the newest segment; 0: none */
        uint64_t cut_number; /* the one that begins at the last cut; 0: that is no cut of the node's own */
        struct ps_log_header
            first;               /* at a start: of the segment that follows the checkpoint; number 0: none */
        uint64_t told;           /* from where a start was told to begin the log (struct ps_log_header) */
        struct ps_log_base base; /* at a start: what was restored */
        struct ps_log_file files[DP_CORES_MAX];
        struct ps_log_cut cuts[DP_CORES_MAX];
        uint64_t kept_bytes[DP_CORES_MAX]; /* at a start: of what each core has applied again */
        uint64_t look_us;                  /* at the disk, next */
        bool is_nearly_full;               /* as the log of lines says */
    } log;
    uint64_t clock_offset_us;     /* from the monotonic clock to the node's */
    enum ps_gate gate;            /* of every core */
    enum mr_status broken_status; /* with PS_GATE_BROKEN */
    bool lacks_part; /* likewise: of the cluster's checkpoint nothing was loaded; its features are whole */
    _Atomic uint64_t load_progress;
    struct ps_control_reload *_Atomic reload; /* of the configuration, to be taken over; NULL: none */
    pthread_mutex_t view_lock;
    struct ps_checkpoint_view view;
};

/* ---- shared (control_state.c) ---- */

/* Sets a command's answer to an error. */
void ps_command_fail(struct ps_command *command, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A node that serves nothing (MR_NODE_FAILED): the status of what failed, and the reason in `text`
 * (PS_CONTROL_TEXT_BYTES). */
enum mr_status ps_control_check_whole(const struct ps_control *c, char *text);
/* Adds a tensor with a copy of `data`; when memory is short, the answer becomes that error. */
void ps_command_answer(struct ps_command *command, struct mr_tensor tensor, const void *data);
/* Sets the gate of every core to PS_GATE_BROKEN, and the node's state to MR_NODE_FAILED: data calls are
 * refused with this status, and all that shows the state has this text as its reason (PS_WHY_BYTES). */
void ps_control_gate_broken(struct ps_control *c, enum mr_status status, const char *text);
/* Sends the answer of a command that is done. */
void ps_command_send_back(struct ps_control *c, struct ps_command *command);
/* The control thread. */
void ps_control_set_view(struct ps_control *c, const struct ps_checkpoint_view *view);

/* ---- stores that may stall (control_background.c) ---- */

/* Does `work`, which asks the store of a place; if that is not on this machine, on another thread, and waits
 * for it. Meanwhile Lists are answered, a save that pushes wait for is cut off when its time is up, and
 * so is a cut at a step; other commands are deferred. It changes nothing of the control thread's but what
 * `arg` points to. Before that thread runs, and after it, it is done here. */
void ps_control_await(struct ps_control *c, const struct ps_place *place, void (*work)(void *arg), void *arg);
/* While a checkpoint of the store of a place is loaded, on this thread: cuts it off when the node stops and
 * has waited long enough. NULL, which is fine for the others: that is on this machine, or nobody waits. */
struct ps_store_watch;
struct ps_store_watch *ps_control_watch_store(struct ps_control *c, const struct ps_place *place);
/* From now on it is cut off, too, when nothing has come for checkpoint.store_wait_ms. */
void ps_control_watch_gives_up(struct ps_store_watch *w);
/* No longer. True: it was. */
bool ps_control_watch_gave_up(struct ps_store_watch *w);
void ps_control_unwatch_store(struct ps_store_watch *w);
/* Takes the next command, deferred ones first; NULL: there is none. */
struct ps_command *ps_control_take(struct ps_control *c);
/* Removes the checkpoints that are to go from a directory that was saved to: at once from a disk, in the
 * background from a store. */
void ps_control_retain(struct ps_control *c, const char *directory, bool trainers_only);
/* Asks a store in the background for the highest number in the directory that a save goes to. True: the save
 * waits for that, or has failed; ps_control_looked() returns it. False: it need not wait. */
bool ps_control_look_first(struct ps_control *c, struct ps_command *save);
/* Ends jobs that are done. Returns a save whose directory has been looked at; if that failed, its status says
 * so. NULL: there is none. */
struct ps_command *ps_control_looked(struct ps_control *c);
/* Waits for the jobs, but not beyond stop_by_us: then cuts them off. */
void ps_control_jobs_stop(struct ps_control *c);
/* Writes the history to the configured directory, and lets its copy follow. MR_IO_ERROR, MR_NO_MEMORY, and a
 * line in `error` (PS_CONTROL_TEXT_BYTES). */
enum mr_status ps_control_write_history(struct ps_control *c, const struct ps_history *history, char *error);
/* Returns the newest checkpoint of the configured directory; 0: none, or it cannot be read. */
uint64_t ps_control_own_newest(struct ps_control *c);

/* ---- what is durable (control_durable.c) ---- */

/* Checkpoint `id`, of the last cut, is on the disk: lets clients forget its pushes, at once or when its copy
 * is in the store (checkpoint.durable). */
void ps_control_published(struct ps_control *c, uint64_t id);
/* Looks at which copies are there by now. */
void ps_control_copies_poll(struct ps_control *c);

/* ---- the log of pushes (control_log.c); without one these do nothing ---- */

bool ps_control_log_is_on(const struct ps_control *c);
/* Makes the next segment, which follows checkpoint `base_id` of a directory ("": the configured one).
 * MR_IO_ERROR, MR_NO_MEMORY, and `text`. Then, at the instant of the cut or of the restore, _take() returns
 * the files for the cores, NULL without a log; or they are discarded. */
enum mr_status ps_control_log_prepare(struct ps_control *c, uint64_t base_id, const char *directory,
                                      char *text);
const struct ps_log_file *ps_control_log_take(struct ps_control *c);
void ps_control_log_discard(struct ps_control *c);
/* The checkpoint of the last cut is published, in the configured directory: what precedes it is removed. */
void ps_control_log_covered(struct ps_control *c);
/* Around a change of tables. Before: the log takes it, MR_IO_ERROR. After: it is durable, or MR_IO_ERROR and
 * `text` says why it is not. */
enum mr_status ps_control_log_check(struct ps_control *c, char *text);
enum mr_status ps_control_log_wait(struct ps_control *c, char *text);
/* Logs when it cannot be written, and when it can again. */
void ps_control_log_poll(struct ps_control *c);
uint64_t ps_control_log_next_us(const struct ps_control *c); /* when it is due again; UINT64_MAX: never */
/* At a start, before or after the checkpoint is loaded: finds what follows it. Errors as those of
 * ps_log_find(). */
enum mr_status ps_control_log_find(struct ps_control *c, uint64_t base_id, const char *directory, char *text);
bool ps_control_log_follows(const struct ps_control *c);

/* ---- features (control_features.c) ---- */

void ps_control_create_features(struct ps_control *c, struct ps_command *command);
/* Up to how many features the caller of a Create may add more. */
uint32_t ps_control_features_max(const struct ps_control *c, const struct ps_command *command);
void ps_control_freeze(struct ps_control *c, struct ps_command *command);
void ps_control_list(struct ps_control *c, struct ps_command *command);
/* Alters a feature by name, on all cores at one instant. */
void ps_control_alter(struct ps_control *c, struct ps_command *command);
/* Drops features by name, all or none, for good: a start does not bring them back. */
void ps_control_drop(struct ps_control *c, struct ps_command *command);
/* What they do on the cores, and in the node's catalog; nothing is noted in the history. */
/* Creates a feature with this number on every core, or on none. MR_UNSUPPORTED, MR_OUT_OF_MEMORY; `text`. */
/* Answers a Create that succeeded: the features' numbers, and how the node has split those that are
 * variables. */
void ps_control_answer_created(const struct ps_control *c, struct ps_command *command, const uint32_t *ids);
enum mr_status ps_control_create_everywhere(struct ps_control *c, const struct mr_feature *feature,
                                            uint32_t id, char *text);
/* Drops the features with these numbers, at most MR_FEATURE_MAX. No save may be running. */
void ps_control_drop_ids(struct ps_control *c, const uint16_t *ids, uint32_t count);
/* Gives the feature at this place of the catalog these options, on all cores at one instant. */
void ps_control_alter_to(struct ps_control *c, uint32_t at, const struct mr_feature *after);
/* is_old: it was set before this start, and pushes that are sent again precede it. */
void ps_control_freeze_to(struct ps_control *c, uint32_t level, bool is_old);
/* Writes the numbers of the features with these names to `ids` (MR_FEATURE_MAX), each once and in ascending
 * order, and their count to *id_count. MR_UNKNOWN_TABLE, and `text` names one that the node does not have. */
enum mr_status ps_control_find_features(const struct ps_control *c, const char *names, uint32_t name_count,
                                        uint16_t *ids, uint32_t *id_count, char *text);

/* ---- a member of a cluster (control_cluster.c) ---- */

/* Lets the cluster begin with these features and numbers, if it has none yet; they must stay until the thread
 * has ended. PS_CATALOG_WAITS: ask again; PS_CATALOG_MADE: it has them, or had; PS_CATALOG_FAILED, and `text`
 * (PS_RULES_TEXT_BYTES) says why. */
enum ps_catalog_request_state ps_control_cluster_begin(struct ps_control *c, struct ps_catalog *features,
                                                       char *text);

/* Commands for all nodes wait, from before the thread runs until the cluster has begun. Then MR_OK: they are
 * executed; otherwise they fail, and so do later ones. */
void ps_control_cluster_hold(struct ps_control *c);
void ps_control_cluster_release(struct ps_control *c, enum mr_status status, const char *text);
/* Create, Drop, Alter or Freeze, for all nodes. False: it is answered later. */
bool ps_control_cluster_ask(struct ps_control *c, struct ps_command *command);
/* Of a member: looks at what the coordinator has said, and answers what is done. */
void ps_control_cluster_sync(struct ps_control *c);
/* The same, and then does what the node has to do as a member. */
void ps_control_cluster_poll(struct ps_control *c);
/* After how many microseconds it must be called again without being woken; UINT64_MAX: never. */
uint64_t ps_control_cluster_pause_us(const struct ps_control *c);
/* The cluster's catalogue, which stands above what a checkpoint or the history says; NULL: the node is by
 * itself. */
const struct ps_cluster_catalog *ps_control_cluster_catalog(const struct ps_control *c);
/* Does every node of the cluster have the feature of this number? */
bool ps_control_cluster_is_final(const struct ps_control *c, uint32_t id);
/* The node's features have been replaced by those of a checkpoint: what it lacks is created. */
void ps_control_cluster_restored(struct ps_control *c);
/* Answers the commands that wait: the node stops. */
void ps_control_cluster_stop(struct ps_control *c);
void ps_control_cluster_destroy(struct ps_control *c);

/* ---- parameters of remote calls (control_parameters.c) ---- */

/* Moves names that only a parameter has behind all others, and returns how many these are. */
uint32_t ps_control_sort_names(struct ps_control *c, char *names, uint32_t count);
/* Sets the parameters that a save names, each once; sorts the names. MR_INVALID_ARGUMENT: there are too many,
 * and `text` says so. */
enum mr_status ps_control_pick_parameters(struct ps_save_request *request, char *names, uint32_t count,
                                          char *text);
/* Holds the parameters of a save as they are, and lists them in the MANIFEST. With their lock.
 * MR_UNKNOWN_TABLE: one has gone since the save was asked for; MR_NO_MEMORY; with `text`. */
enum mr_status ps_control_cut_parameters(struct ps_control *c, const struct ps_save_request *request,
                                         struct ps_writer *writer, char *text);
/* The next save does not have them. Modules that use them may go on. */
void ps_control_drop_parameters(struct ps_control *c, const char *names, uint32_t count);

/* ---- which save is next (control_saves.c) ---- */

/* Begins a save, or queues it: then *id is 0. On failure the reason is logged and in `text`. */
enum mr_status ps_control_save(struct ps_control *c, struct ps_save_request *request, uint64_t *id,
                               char *text);
/* Follows the running save, and begins those that are due. */
void ps_control_saves_poll(struct ps_control *c);
/* Whether something may become due without a call, so that the thread must poll every few milliseconds. */
bool ps_control_saves_pending(const struct ps_control *c);
/* Cancels all saves that wait, with that reason. */
void ps_control_saves_drop(struct ps_control *c, const char *why);
/* Cancels the save with that number, whether it waits or is being written; in the latter case it returns
 * after the files are removed. MR_CHECKPOINT_NOT_FOUND, MR_INVALID_ARGUMENT: there is no such save any more,
 * and `text` (PS_CONTROL_TEXT_BYTES) says how it ended. */
enum mr_status ps_control_save_cancel(struct ps_control *c, uint64_t number, bool is_by_trainer, char *text);
/* Starts the schedule of automatic saves: intervals count from now. */
void ps_control_schedule_start(struct ps_control *c);
/* MR_CHECKPOINT_RUNNING while a save is running. */
enum mr_status ps_control_check_idle(const struct ps_control *c, char *text);

/* ---- the list (control_report.c) ---- */

#define PS_SAVE_CANCELLED "it was cancelled by a call"

/* Adds a save to the list, and sets its number. */
void ps_control_note_save(struct ps_control *c, struct ps_save_request *request, enum ps_save_state state);
void ps_control_note_state(struct ps_control *c, uint64_t number, enum ps_save_state state);
/* Copies all of an entry except its number, and whether it is automatic. */
void ps_control_note_entry(struct ps_control *c, uint64_t number, const struct ps_save_entry *from);
/* Logs and counts a save that failed before its cut. */
void ps_control_save_failed(struct ps_control *c, uint64_t number, enum mr_status status, const char *text);
/* Logs and counts a save that a call cancelled before its cut. */
void ps_control_save_cancelled(struct ps_control *c, uint64_t number);

/* ---- one save (control_checkpoint.c) ---- */

/* Makes the cut on every core, now. is_at_step: all trainers are held at `step`. */
enum mr_status ps_control_cut(struct ps_control *c, const struct ps_save_request *request, uint64_t step,
                              bool is_at_step, uint64_t *id, char *text);
/* Returns how many pushes all cores have applied and features they have made: if it has not grown, nothing is
 * new. */
uint64_t ps_control_changes(struct ps_control *c);
/* Reports the progress of the running save, or its end. */
void ps_control_save_progress(struct ps_control *c);
/* Waits for the running save to end and returns its status; MR_OK when there is none. */
enum mr_status ps_control_save_wait(struct ps_control *c, char *text);
/* Aborts the running save, if there is one. */
void ps_control_save_abort(struct ps_control *c);

/* ---- cuts at a step (control_step.c) ---- */

enum ps_cut_state { PS_CUT_WAITS, PS_CUT_READY };

/* Returns the step that training has reached, over all cores. */
uint64_t ps_control_step(const struct ps_control *c);
/* Holds clients back from now on once they are beyond `step`. False, and nobody is held: training is beyond
 * it already, or memory is short. */
bool ps_cut_arm(struct ps_control *c, uint64_t step, uint32_t trainers, bool is_automatic);
/* Releases the clients that are held. */
void ps_cut_disarm(struct ps_control *c);
/* Checks whether all trainers are held. */
enum ps_cut_state ps_cut_look(struct ps_control *c);
/* Some have been held for longer than checkpoint.step_wait_ms. */
bool ps_cut_is_late(const struct ps_control *c);

/* ---- directories (control_directory.c) ---- */

/* Resolves the directory that a call names into `out`, without links; "" means the configured one, which
 * stays as it is configured. A client may name checkpoint.directory, those listed as checkpoint.allow, and
 * any directory below them, paths and URLs alike; to save, the URL of checkpoint.remote means the configured
 * one. MR_INVALID_ARGUMENT: there is none, it has a `..`, or links lead elsewhere, or it is another URL;
 * `text` names the key to set. */
enum mr_status ps_control_check_directory(const struct ps_config *config, const char *directory,
                                          char out[PS_DIRECTORY_BYTES], char text[PS_CONTROL_TEXT_BYTES]);
/* Whether the configuration lists that very directory ("": the configured one), and not only one above it:
 * trainers save to no other, as they could make any number of them. MR_UNAUTHORIZED, or as above. */
enum mr_status ps_control_check_listed(const struct ps_config *config, const char *directory,
                                       char text[PS_CONTROL_TEXT_BYTES]);
/* The same for a restore: the URL of checkpoint.remote means that store. */
enum mr_status ps_control_check_source(const struct ps_config *config, const char *directory,
                                       char out[PS_DIRECTORY_BYTES], char text[PS_CONTROL_TEXT_BYTES]);
/* Finds out where a partial save goes: to the folder PS_PARTIAL_NAME of the directory that the request names,
 * which is created if it is missing and allowed. Errors as those of ps_control_check_directory(). */
enum mr_status ps_control_place_partial(const struct ps_config *config, struct ps_save_request *request,
                                        char text[PS_CONTROL_TEXT_BYTES]);
/* Returns the number of the next checkpoint in a directory to save to. A store is not asked, but at the end
 * of the node; MR_INVALID_ARGUMENT: it is asked in the background, as it did not say before. Errors as those
 * of ps_checkpoint_next_id(). */
enum mr_status ps_control_next_id(struct ps_control *c, const char *directory, const struct ps_place *place,
                                  uint64_t *id, char *text);
/* Asks the configured directory, if it is in a store, for its newest checkpoint, so that no save need do
 * so. */
enum mr_status ps_control_learn_ids(struct ps_control *c, char *text);
/* The same in the background, and for any directory. */
void ps_control_ask_ids(struct ps_control *c, const char *directory);
/* A number was given, or is there. */
void ps_control_note_id(struct ps_control *c, const char *directory, uint64_t id);
/* Keeps others from writing to a directory while a save is running. MR_IO_ERROR: another process has it, and
 * `text` names it. */
enum mr_status ps_control_lock_directory(struct ps_control *c, const char *directory, char *text);
/* Unlocks the directory of the save that has ended. */
void ps_control_unlock(struct ps_control *c);

/* ---- the configuration (control_reload.c) ---- */

/* Takes over what ps_control_reload() was given. */
void ps_control_reload_poll(struct ps_control *c);

/* ---- peers of other protocol versions (control_versions.c) ---- */

/* Logs those that cores have heard, once a minute at most. */
void ps_control_versions_poll(struct ps_control *c);
/* When there will be a line; UINT64_MAX: there is nothing to say. */
uint64_t ps_control_versions_next_us(const struct ps_control *c);

/* ---- log lines (control_drop_stats.c) ---- */

/* Logs what calls asked for and features did not do, at most one line a minute for each, and likewise that
 * records of push streams were lost; and when it must be
 * called again even without being woken (UINT64_MAX: it need not be). */
void ps_control_drop_stats_poll(struct ps_control *c);
uint64_t ps_control_drop_stats_next_us(const struct ps_control *c);
/* Logs which of the features that checkpoint `id` restored hold NaN or Inf: they are loaded as they are. */
void ps_control_log_not_finite(struct ps_control *c, const struct ps_restore_plan *plan, uint64_t id);

#endif
