/* The control thread's state, and what its files offer each other. Calls run one way: control.c above control_restore.c,
 * control_saves.c, control_checkpoint.c, control_report.c, control_step.c, control_state.c. */
#ifndef PS_CONTROL_INTERNAL_H
#define PS_CONTROL_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "ps/base/ring.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/control/control.h"
#include "ps/control/save_log.h"
#include "ps/core/catalog.h"
#include "ps/core/core.h"
#include "ps/core/history.h"
#include "ps/core/step_gate.h"
#include "ps/save/save_policy.h"

/* A step at which every core holds back the clients that are through with it. */
struct ps_step_cut {
    bool is_armed;
    bool is_automatic; /* for the schedule; else for `waiting` */
    bool is_timed;     /* at whatever step training was at */
    uint64_t step;
    uint32_t trainers;
    uint32_t arrived;       /* trainers held, as of the last look */
    uint64_t held_since_us; /* 0: nobody is held */
    uint64_t looked_us;
    struct ps_step_gate *gates, *seen; /* of each core, and copies; one more copy for all together */
};

struct ps_saves {
    struct ps_save_request running; /* while there is a writer */
    struct ps_save_entry entry;     /* of it, or of the last */
    bool is_cancelled;              /* by a call: it is being aborted */
    bool is_waiting;
    struct ps_save_request waiting; /* for a step */
    struct ps_save_request queue[PS_SAVES_QUEUED_MAX];
    uint32_t queued;
    struct ps_step_cut cut;
    struct ps_save_schedule schedule;
    struct ps_save_chain chain;
    struct ps_save_log log; /* under the view's lock */
    uint64_t changes_saved; /* ps_control_changes() at the last cut */
};

struct ps_control {
    struct ps_node *node;
    pthread_t thread;
    bool running;
    sem_t wake;
    _Atomic bool stop;
    struct ps_ring commands; /* core 0 -> control: struct ps_command * */

    struct ps_catalog catalog;
    struct ps_history history;
    struct ps_ancestry ancestry; /* of what the node holds */
    /* the save under way; NULL = none */
    struct ps_writer *writer;
    struct ps_saves saves;
    int directory_lock; /* of the configured directory, for as long as the node lives; PS_NO_LOCK */
    int save_lock;      /* of another one, while it is saved to */

    /* lines about what was asked of features and not done */
    struct {
        struct ps_left_out_log *logs; /* [MR_FEATURE_ID_MAX + 1]; NULL: there was none yet */
        uint64_t seen;                /* the cores' sums as of the last look */
        uint64_t look_us;             /* when the next look may be, if there is more by then */
        uint64_t pending_us; /* when something is to be said that came too soon; UINT64_MAX: nothing is */
    } left_out;

    uint64_t clock_offset_us; /* from the monotonic clock to the node's, as on its cores but for a moment */
    enum ps_gate gate;        /* of every core */
    _Atomic uint64_t load_progress;
    pthread_mutex_t view_lock;
    struct ps_checkpoint_view view;
};

/* ---- shared (control_state.c) ---- */

/* Sets a command's answer to an error. */
void ps_command_fail(struct ps_command *command, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a tensor whose data is a copy of `data`; on want of memory the answer becomes that. */
void ps_command_answer(struct ps_command *command, struct mr_tensor tensor, const void *data);
/* What the view's `state` says. */
enum { PS_VIEW_IDLE = 0, PS_VIEW_SAVING = 1, PS_VIEW_LOADING = 2 };
/* Reads and sets the view. Any thread; the control thread. */
void ps_control_view(struct ps_control *c, struct ps_checkpoint_view *out);
void ps_control_set_view(struct ps_control *c, const struct ps_checkpoint_view *view);
/* Counters are written by one thread and read by others. */
void ps_control_set_counter(uint64_t *counter, uint64_t value);
void ps_control_add_counter(uint64_t *counter, uint64_t value);

/* ---- features (control_features.c) ---- */

void ps_control_create_features(struct ps_control *c, struct ps_command *command);
void ps_control_freeze(struct ps_control *c, struct ps_command *command);
void ps_control_list(struct ps_control *c, struct ps_command *command);

/* ---- which save is next (control_saves.c) ---- */

/* Begins a save, or has it wait. *id is 0 while it waits. Logs and answers why not. */
enum mr_status ps_control_save(struct ps_control *c, struct ps_save_request *request, uint64_t *id,
                               char *text);
/* Looks after everything here. */
void ps_control_saves_poll(struct ps_control *c);
/* Something may be due without a call: the thread looks after it every few milliseconds. */
bool ps_control_saves_pending(const struct ps_control *c);
/* All that wait are given up, with that reason. */
void ps_control_saves_drop(struct ps_control *c, const char *why);
/* Cancels the save with that number, whether it waits or is being written; of the latter it returns once
 * its files are gone. MR_CHECKPOINT_NOT_FOUND, MR_INVALID_ARGUMENT: there is no such save any more, and
 * `text` (PS_CONTROL_TEXT_BYTES) says what became of it. */
enum mr_status ps_control_save_cancel(struct ps_control *c, uint64_t number, char *text);
/* Intervals count from now. */
void ps_control_schedule_start(struct ps_control *c);
/* MR_CHECKPOINT_RUNNING while a save is under way. */
enum mr_status ps_control_check_idle(const struct ps_control *c, char *text);

/* ---- the list (control_report.c) ---- */

#define PS_SAVE_CANCELLED "it was cancelled by a call"

/* Puts it into the list, and gives it its number. */
void ps_control_note_save(struct ps_control *c, struct ps_save_request *request, enum ps_save_state state);
void ps_control_note_state(struct ps_control *c, uint64_t number, enum ps_save_state state);
/* All of it but its number, and whether it is automatic. */
void ps_control_note_entry(struct ps_control *c, uint64_t number, const struct ps_save_entry *from);
/* A save that never came to its cut: logged and counted. */
void ps_control_save_failed(struct ps_control *c, uint64_t number, enum mr_status status, const char *text);
/* The same, by a call that said so. */
void ps_control_save_cancelled(struct ps_control *c, uint64_t number);

/* ---- one save (control_checkpoint.c) ---- */

/* Its cut on every core, now. is_at_step: everybody is held at `step`. */
enum mr_status ps_control_cut(struct ps_control *c, const struct ps_save_request *request, uint64_t step,
                              bool is_at_step, uint64_t *id, char *text);
/* Of all cores: pushes applied and features made. The same again: nothing is new. */
uint64_t ps_control_changes(struct ps_control *c);
/* Looks after the save under way: publishes its progress, and its end. */
void ps_control_save_progress(struct ps_control *c);
/* Gives the save under way up, if there is one. */
void ps_control_save_abort(struct ps_control *c);

/* ---- cuts at a step (control_step.c) ---- */

enum ps_cut_state { PS_CUT_WAITS, PS_CUT_READY };

/* The step that training has come to, over all cores. */
uint64_t ps_control_step(const struct ps_control *c);
/* Holds clients back from now on once they are beyond `step`; each look beyond takes a moment of every core.
 * False, and nobody is held: training is beyond it already, or memory is short. */
bool ps_cut_arm(struct ps_control *c, uint64_t step, uint32_t trainers, bool is_automatic);
/* Lets everybody go on. */
void ps_cut_disarm(struct ps_control *c);
/* Whether all trainers are held. */
enum ps_cut_state ps_cut_look(struct ps_control *c);
/* Some have been held for longer than checkpoint.step_wait_ms. */
bool ps_cut_is_late(const struct ps_control *c);

/* ---- directories (control_directory.c) ---- */

/* The path that is meant by a call, without links, in `out` (the configured one as it is configured). ""
 * means that one. MR_INVALID_ARGUMENT: there is none, it has a `..`, or it lies elsewhere, wherever links
 * lead; `text` names the key to set. */
enum mr_status ps_directory_check(const struct ps_config *config, const char *directory, char *out,
                                  size_t out_bytes, char *text, size_t text_bytes);
/* Keeps others from writing to a directory while a save is running. MR_IO_ERROR: another process has it, and `text`
 * names it. */
enum mr_status ps_control_lock_directory(struct ps_control *c, const char *directory, char *text);
/* Lets others write to the directory of the save that was running. */
void ps_control_unlock(struct ps_control *c);

/* ---- log lines (control_left_out.c) ---- */

/* Logs what was asked of features and not done, a line a minute for each at most; when it has to be called
 * again without being woken, UINT64_MAX: it has not. */
void ps_control_left_out_poll(struct ps_control *c);
uint64_t ps_control_left_out_next_us(const struct ps_control *c);
/* Logs which of the features that checkpoint `id` restored hold NaN or Inf: they are loaded as they are. */
void ps_control_log_not_finite(struct ps_control *c, const struct ps_restore_plan *plan, uint64_t id);

#endif
