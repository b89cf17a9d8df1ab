/* When saves happen: those asked for, those that wait for a step or for another save, and automatic ones. The
 * control thread's, over six files: control_saves.c (who is next), control_cancel.c (those that will not be
 * made), control_step.c (cuts at a step), control_chain.c (full or delta), control_checkpoint.c (one save, to
 * its cut), control_ending.c (from there to its end); control_report.c keeps the list of them.
 */
#ifndef PS_CONTROL_SAVES_H
#define PS_CONTROL_SAVES_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/control/save_log.h"
#include "ps/core/step_gate.h"
#include "ps/save/save_policy.h"
#include "ps/save/save_request.h"
#include "ps/save/save_schedule.h"

struct ps_control;

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
    bool is_withdrawn;              /* it is being taken back */
    bool is_waiting;
    struct ps_save_request waiting; /* for a step */
    struct ps_save_request queue[PS_SAVES_QUEUED_MAX];
    uint32_t queued;
    struct ps_step_cut cut;
    struct ps_save_schedule schedule;
    struct ps_chain chain;
    struct ps_save_log log; /* under the view's lock */
    uint64_t changes_saved; /* ps_control_changes() at the last cut */
};

/* Begins a save, or has it wait. *id is 0 while it waits. Logs and answers why not. */
enum mr_status ps_control_save(struct ps_control *c, struct ps_save_request *request, uint64_t *id,
                               char *text);
/* Looks after everything here. */
void ps_control_saves_poll(struct ps_control *c);
/* Something may be due without a call: the thread looks after it every few milliseconds. */
bool ps_control_saves_pending(const struct ps_control *c);
/* All that wait are given up, with that reason. */
void ps_control_saves_drop(struct ps_control *c, const char *why);
/* Withdraws the save with that number, whether it waits or is being written; of the latter it returns once
 * its files are gone. MR_CHECKPOINT_NOT_FOUND, MR_INVALID_ARGUMENT: there is no such save any more, and
 * `text` (PS_CONTROL_TEXT_BYTES) says what became of it. */
enum mr_status ps_control_save_cancel(struct ps_control *c, uint64_t number, char *text);
/* Intervals count from now. */
void ps_control_schedule_start(struct ps_control *c);
/* The node holds just what this checkpoint holds. */
struct ps_reader;
void ps_control_restored(struct ps_control *c, const char *directory, const struct ps_reader *reader);
/* Features of a checkpoint came to what the node holds. */
void ps_control_restored_some(struct ps_control *c);

/* The i-th of the queue leaves it. */
void ps_control_queue_remove(struct ps_control *c, uint32_t i);
void ps_control_count_queued(const struct ps_control *c);

/* ---- the list (control_report.c) ---- */

#define PS_SAVE_WITHDRAWN "it was cancelled by a call"

/* Puts it into the list, and gives it its number. */
void ps_control_note_save(struct ps_control *c, struct ps_save_request *request, enum ps_save_state state);
void ps_control_note_state(struct ps_control *c, uint64_t number, enum ps_save_state state);
/* All of it but its number, and whether it is automatic. */
void ps_control_note_entry(struct ps_control *c, uint64_t number, const struct ps_save_entry *from);
/* A save that never came to its cut: logged and counted. */
void ps_control_save_failed(struct ps_control *c, uint64_t number, enum mr_status status, const char *text);
/* The same, by a call that said so. */
void ps_control_save_withdrawn(struct ps_control *c, uint64_t number);

/* ---- which kind (control_chain.c) ---- */

/* Full, or a delta on which parent: goes into the entry. MR_INVALID_ARGUMENT: a delta was asked for and is
 * not possible. */
enum mr_status ps_chain_choose(struct ps_control *c, const struct ps_save_request *request,
                               struct ps_save_entry *entry, char *text);
/* A save has ended, well or not, or a cut was begun and given up (NULL). */
void ps_chain_ended(struct ps_control *c, const struct ps_save_entry *entry);

/* ---- one save (control_checkpoint.c, control_ending.c) ---- */

/* Its cut on every core, now. is_at_step: everybody is held at `step`. */
enum mr_status ps_control_cut(struct ps_control *c, const struct ps_save_request *request, uint64_t step,
                              bool is_at_step, uint64_t *id, char *text);
/* Whatever cores have still to write of the cut, they do not. */
void ps_control_cut_end(struct ps_control *c);
/* Of all cores: pushes applied and features made. The same again: nothing is new. */
uint64_t ps_control_changes(struct ps_control *c);

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

#endif
