/* Which save comes next: what it asks for, which kind it is, and when the next automatic one is due. Pure;
 * one thread.
 *
 * A checkpoint is full, or a delta: what has changed since the last one. A delta needs its parent: the last
 * checkpoint that this node published to the same directory, or restored from it, and that is still there;
 * and every core must have kept the marks of what has changed since. A chain ends, and a full one begins the
 * next, once it has deltas_max deltas or these have grown to a share of the full one's bytes: from then on a
 * full one is cheaper than reading the chain. A save that failed leaves marks that nobody can rely on, so a
 * full one follows.
 *
 * Automatic checkpoints are due every so many steps (ps/core/step_clock.h, over the node), every so many
 * seconds, or both. Both count from the last checkpoint, whether it was asked for or automatic. One that
 * takes longer than the interval is followed by one more, however many were due meanwhile.
 */
#ifndef PS_SAVE_POLICY_H
#define PS_SAVE_POLICY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "ps/checkpoint/checkpoint.h"

#define PS_DIRECTORY_BYTES     256
#define PS_SAVES_QUEUED_MAX    8u
#define PS_SAVE_PARAMETERS_MAX 256u /* that a partial save names */

/* ---- what a save asks for ---- */

/* What a save may ask for. */

enum ps_save_asked { PS_ASKED_CONFIGURED = 0, PS_ASKED_FULL = 1, PS_ASKED_DELTA = 2 };
/* A further kind in the list of saves: of single features, which is asked for by their names. */
#define PS_KIND_PARTIAL 3u

struct ps_save_request {
    char directory[PS_DIRECTORY_BYTES]; /* "": the configured one */
    enum ps_save_asked kind;
    /* the cut is made at this step; 0: at once, or, with trainers, at the step that training has reached */
    uint64_t step;
    uint32_t trainers; /* that a step has; 0: as configured */
    bool queue;        /* it waits while another save is running; otherwise that is an error */
    bool is_automatic;
    bool is_by_trainer; /* who may not displace what the node or an operator saves */
    uint64_t part;      /* of a cluster's checkpoint: the number that it gets; 0: the next one */
    uint64_t number;    /* in ps/control/save_log.h; set by the control thread */
    /* what a partial save holds, in ascending order; nothing: everything is saved */
    uint32_t feature_count, parameter_count;
    uint16_t feature_ids[MR_FEATURE_MAX];
    /* of remote calls, each with the states of optimizers beside it */
    char parameters[PS_SAVE_PARAMETERS_MAX][MR_NAME_BYTES];
    bool is_kept; /* a partial save below the configured directory: there are as many as whole ones */
};

static inline bool ps_save_is_partial(const struct ps_save_request *request)
{
    return request->feature_count + request->parameter_count > 0;
}

/* ---- how often trainers may ask ---- */

#define PS_TRAINER_SAVES_MAX     1024u /* of checkpoint.trainer_saves */
#define PS_TRAINER_SAVES_SPAN_US UINT64_C(3600000000)

/* The last saves that trainers asked for, of all directories. */
struct ps_trainer_saves {
    uint64_t at_us[PS_TRAINER_SAVES_MAX];
    uint64_t count; /* of all time */
};

/* When trainers may ask for the next save, of at most `limit` in PS_TRAINER_SAVES_SPAN_US; now_us or earlier:
 * now; UINT64_MAX: never. */
uint64_t ps_trainer_saves_next_us(const struct ps_trainer_saves *saves, uint64_t limit);
void ps_trainer_saves_note(struct ps_trainer_saves *saves, uint64_t now_us);

/* ---- full or delta ---- */

struct ps_save_chain {
    bool is_open;                       /* there is a checkpoint that a delta may build on */
    const char *why_closed;             /* if it is not open; NULL: there was no checkpoint yet */
    char directory[PS_DIRECTORY_BYTES]; /* of the checkpoints */
    uint64_t last_id;
    struct ps_hash last_hash; /* of its MANIFEST */
    uint32_t deltas;
    uint64_t full_bytes, delta_bytes; /* of the blocks of the full one, and of all deltas on it */
};

struct ps_save_chain_limits {
    uint32_t deltas_max; /* 0: no deltas */
    uint32_t delta_share_percent;
};

/* Returns why a delta is not possible now, or NULL. `parent_is_there`: the directory still holds last_id.
 * `marks_lost`: why a core does not know what has changed, or NULL; it may be returned. A delta may be
 * possible although the limits advise against it. */
const char *ps_save_chain_no_delta(const struct ps_save_chain *chain,
                                   const struct ps_save_chain_limits *limits, const char *directory,
                                   bool parent_is_there, const char *marks_lost);
/* Whether the chain has reached a limit, so that the next checkpoint should be full. */
bool ps_save_chain_is_long(const struct ps_save_chain *chain, const struct ps_save_chain_limits *limits);

/* Notes that a checkpoint of so many bytes was published. */
void ps_save_chain_published(struct ps_save_chain *chain, const char *directory, uint64_t id, bool is_delta,
                             uint64_t bytes);
/* Notes the hash of its MANIFEST, after either of the two: it distinguishes another checkpoint under the same
 * number. */
void ps_save_chain_set_hash(struct ps_save_chain *chain, struct ps_hash hash);
/* Notes that a checkpoint was restored: the node holds exactly what it holds. */
void ps_save_chain_restored(struct ps_save_chain *chain, const char *directory, uint64_t id, uint32_t deltas,
                            uint64_t full_bytes, uint64_t delta_bytes);
/* Closes the chain: a save failed, or the node holds something else now. `why` is kept, not copied. */
void ps_save_chain_break(struct ps_save_chain *chain, const char *why);

/* ---- when the next automatic one is due ---- */

struct ps_save_schedule {
    uint64_t every_steps, every_us; /* 0: off */
    uint64_t next_step;             /* the next multiple of every_steps */
    uint64_t next_us;
};

void ps_save_schedule_start(struct ps_save_schedule *s, uint64_t every_steps, uint64_t every_us,
                            uint64_t step, uint64_t now_us);
static inline bool ps_save_schedule_is_on(const struct ps_save_schedule *s)
{
    return s->every_steps != 0 || s->every_us != 0;
}
/* Changes the intervals of a schedule that has begun; the time counts from the last checkpoint on, or from
 * now if no time was counted so far. */
void ps_save_schedule_change(struct ps_save_schedule *s, uint64_t every_steps, uint64_t every_us,
                             uint64_t step, uint64_t now_us);
/* Notes that a checkpoint has begun at this step and time, or that the node holds another state. */
void ps_save_schedule_began(struct ps_save_schedule *s, uint64_t step, uint64_t now_us);
/* Whether a save by steps is due. Steps may fall, when training starts over. */
bool ps_save_schedule_step_is_due(struct ps_save_schedule *s, uint64_t step);
bool ps_save_schedule_time_is_due(const struct ps_save_schedule *s, uint64_t now_us);

/* ---- counters of all saves ---- */

/* X(name, kind, unit, help): counters of the node, shown with those of core 0. Written by the control
 * thread. */
#define PS_CHECKPOINT_COUNTER_LIST(X)                                                                        \
    X(saves_good, COUNTER, NONE, "checkpoints published, deltas among them")                                 \
    X(deltas_good, COUNTER, NONE, "deltas published")                                                        \
    X(saves_failed, COUNTER, NONE, "saves that failed, or were given up")                                    \
    X(saves_cancelled, COUNTER, NONE, "saves that were cancelled by a call")                                 \
    X(saves_automatic, COUNTER, NONE, "saves that began by themselves")                                      \
    X(saves_at_step, COUNTER, NONE, "checkpoints cut at a step, with all trainers held there")               \
    X(saves_late, COUNTER, NONE,                                                                             \
      "automatic saves at a step that were cut at once because trainers did not come")                       \
    X(saves_queued, GAUGE, NONE, "saves that wait for another one now")                                      \
    X(waiting_step, GAUGE, NONE, "the step that a save waits for now; 0: none")                              \
    X(trainers_held, GAUGE, NONE, "trainers that have come to the step that a save waits for, and wait")     \
    X(trainers_awaited, GAUGE, NONE, "trainers that a save at a step waits for in all")                      \
    X(bytes_written, COUNTER, BYTES, "bytes of all checkpoints published")                                   \
    X(write_us, COUNTER, MICROSECONDS, "time that writing the checkpoints published took")                   \
    X(running_id, GAUGE, NONE, "the checkpoint being written now; 0: none")                                  \
    X(running_bytes, GAUGE, BYTES, "bytes written of the checkpoint being written now")                      \
    X(running_bytes_total, GAUGE, BYTES, "bytes that the checkpoint being written now will have, about")     \
    X(last_good_id, GAUGE, NONE, "the last checkpoint published")                                            \
    X(last_good_step, GAUGE, NONE, "the step of the last checkpoint published")                              \
    X(last_good_s, GAUGE, TIMESTAMP, "when the last checkpoint was published; 0: none since the start")      \
    X(log_disk_bytes, GAUGE, BYTES, "size of the file system that the log is on; 0: there is no log")        \
    X(log_disk_free_bytes, GAUGE, BYTES, "room left in the file system that the log is on")                  \
    X(last_status, GAUGE, NONE, "how the last save ended: an mr_status, 0 is good")                          \
    X(restored_id, GAUGE, NONE, "the checkpoint that this node was restored from; 0: none")                  \
    X(restored_step, GAUGE, NONE, "the step of the checkpoint that this node was restored from")             \
    X(restored_at_step, GAUGE, NONE,                                                                         \
      "1: the checkpoint that this node was restored from holds all pushes up to its step and none after "   \
      "it")

struct ps_checkpoint_counters {
    PS_CHECKPOINT_COUNTER_LIST(MR_COUNTER_FIELD)
};

#endif
