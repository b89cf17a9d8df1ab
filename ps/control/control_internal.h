/* The control thread's state, shared by control.c, control_features.c, control_checkpoint.c and
 * control_restore.c. */
#ifndef PS_CONTROL_INTERNAL_H
#define PS_CONTROL_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include "ps/base/ring.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/control/control.h"
#include "ps/control/control_saves.h"
#include "ps/core/catalog.h"
#include "ps/core/core.h"
#include "ps/core/history.h"

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

void ps_control_create_features(struct ps_control *c, struct ps_command *command);
void ps_control_freeze(struct ps_control *c, struct ps_command *command);
void ps_control_list(struct ps_control *c, struct ps_command *command);
/* What the view's `state` says. */
enum { PS_VIEW_IDLE = 0, PS_VIEW_SAVING = 1, PS_VIEW_LOADING = 2 };
void ps_control_set_view(struct ps_control *c, const struct ps_checkpoint_view *view);
/* Logs what was asked of features and not done, a line a minute for each at most; when it has to be called
 * again without being woken, UINT64_MAX: it has not. (ps/control/control_left_out.c) */
void ps_control_left_out_poll(struct ps_control *c);
uint64_t ps_control_left_out_next_us(const struct ps_control *c);
/* Logs which of the features that checkpoint `id` restored hold NaN or Inf: they are loaded as they are. */
void ps_control_log_not_finite(struct ps_control *c, const struct ps_restore_plan *plan, uint64_t id);
/* Counters are written by one thread and read by others. */
void ps_control_set_counter(uint64_t *counter, uint64_t value);
void ps_control_add_counter(uint64_t *counter, uint64_t value);
/* Lets others write to the directory of the save that was running. */
void ps_control_unlock(struct ps_control *c);
/* MR_CHECKPOINT_RUNNING while a save is under way. */
enum mr_status ps_control_check_idle(const struct ps_control *c, char *text);
/* Looks after the save under way: publishes its progress, and its end. */
void ps_control_save_progress(struct ps_control *c);
/* Gives the save under way up, if there is one. */
void ps_control_save_abort(struct ps_control *c);

/* Sets a command's answer to an error. */
void ps_command_fail(struct ps_command *command, enum mr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a tensor whose data is a copy of `data`; on want of memory the answer becomes that. */
void ps_command_answer(struct ps_command *command, struct mr_tensor tensor, const void *data);

#endif
