/* One data core's state: its share of every table, its variables, the batches fed to it, what it has applied,
 * and its part of a checkpoint that is being written. All of it belongs to the core's thread; the control
 * thread reaches it through tasks. */
#ifndef PS_CORE_H
#define PS_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/base/counter_set.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/op.h"
#include "ps/base/partition_set.h"
#include "ps/core/batch_cache.h"
#include "ps/core/drop_stats.h"
#include "ps/core/coop_task.h"
#include "ps/core/node.h"
#include "ps/core/ownership.h"
#include "ps/core/push_answers.h"
#include "ps/core/staging.h"
#include "ps/core/step_clock.h"
#include "ps/core/step_barrier.h"
#include "ps/exactly_once/clients.h"
#include "ps/exactly_once/applied_batches.h"
#include "ps/exactly_once/partial.h"
#include "ps/exactly_once/pushes.h"
#include "ps/exactly_once/records.h"
#include "ps/log/log_writer.h"
#include "ps/memory/arena.h"
#include "ps/save/save.h"
#include "ps/table/table.h"
#include "ps/table/table_changes.h"
#include "ps/table/variable.h"

#define PS_CORE_TEXT_BYTES 256
#define PS_RECORD_MIB                                                                                        \
    16 /* of memory.limit_mib per core: applied batches, clients and pushes, entries of the batch cache */

/* X(name, kind, unit, help): a core's own record. */
#define PS_CORE_COUNTER_LIST(X)                                                                              \
    X(pushes_applied, COUNTER, NONE, "pushes applied since the start: by batch, by key, and of variables")   \
    X(pushes_refused_applied, COUNTER, NONE, "pushes of batches applied before, which changed nothing")      \
    X(pushes_held_back, COUNTER, NONE,                                                                       \
      "pushes refused for the moment because a checkpoint's buffers were full")                              \
    X(pushes_repeated, COUNTER, NONE, "numbered pushes applied before, which changed nothing")               \
    X(pushes_skipped, COUNTER, NONE,                                                                         \
      "numbered pushes given up because their client advanced too far without them")                         \
    X(push_streams_forgotten, COUNTER, NONE,                                                                 \
      "records of clients' numbered pushes dropped for others: resent, those count as new")                  \
    X(push_streams_lost, COUNTER, NONE,                                                                      \
      "of these, those whose clients may send them again: such pushes may be applied twice")                 \
    X(pushes_waiting, COUNTER, NONE,                                                                         \
      "numbered pushes, or batches of new streams, refused for the moment: just being applied, or no room")  \
    X(answers_waiting, GAUGE, NONE,                                                                          \
      "answers to pushes that wait until backups have them (cluster.copies = sync)")                         \
    X(variable_gradients_skipped, COUNTER, NONE,                                                             \
      "variable gradients skipped: they held NaN or Inf, or would have led to it")                           \
    X(batches_fed, COUNTER, NONE, "batches fed")                                                             \
    X(batches_looked_up, COUNTER, NONE, "lookups by batch")                                                  \
    X(batches_expired, COUNTER, NONE, "batches dropped because nobody asked for them in time")               \
    X(batches_forgotten, COUNTER, NONE, "batches dropped because their hub said so")                         \
    X(feeds_refused_full, COUNTER, NONE, "feeds refused because the batch cache was full")                   \
    X(requests_refused, COUNTER, NONE, "requests answered with an error")                                    \
    X(requests_held_back, COUNTER, NONE,                                                                     \
      "requests refused for the moment during a restore, a stop or the end of a move")                       \
    X(calls_without_lease, COUNTER, NONE,                                                                    \
      "calls refused for the moment because the node's lease had ended: the coordinator did not answer")     \
    X(calls_of_others, COUNTER, NONE, "calls refused because another node owns their keys")                  \
    X(calls_held_at_step, COUNTER, NONE,                                                                     \
      "calls refused for the moment because a checkpoint is cut at a step before theirs")                    \
    X(calls_in_slices, COUNTER, NONE, "long calls whose turn came: done in slices")                          \
    X(slices, COUNTER, NONE, "slices done of long calls")                                                    \
    X(calls_between_slices, COUNTER, NONE, "small data calls done between two slices of a long one")         \
    X(batches_applied, GAUGE, NONE,                                                                          \
      "batches applied to the state that this core holds, its checkpoint included")                          \
    X(streams, GAUGE, NONE, "streams of batches that this core has a record of")                             \
    X(streams_dropped, COUNTER, NONE,                                                                        \
      "records of streams dropped to make room: their plans would be trained from the start")                \
    X(batches_cached, GAUGE, NONE, "batches kept now")                                                       \
    X(batch_bytes, GAUGE, BYTES, "bytes of the batches kept now")                                            \
    X(memory_bytes, GAUGE, BYTES, "bytes of memory held for tables, variables and batches")                  \
    X(features, GAUGE, NONE, "tables and variables on this core")                                            \
    X(read_only, GAUGE, NONE, "1 on a node that serves a checkpoint read only")                              \
    X(freeze, GAUGE, NONE, "what is frozen: 0 nothing, 1 no new rows, 2 no updates either")                  \
    X(last_step, GAUGE, NONE, "highest training step pushed")                                                \
    X(step, GAUGE, NONE, "training step that calls have reached, outliers ignored")                          \
    X(steps_ignored, COUNTER, NONE, "calls whose step was too far from that of others to count")

struct ps_core_counters {
    PS_CORE_COUNTER_LIST(MR_COUNTER_FIELD)
};

enum ps_gate {
    PS_GATE_OPEN,   /* data calls are served */
    PS_GATE_BUSY,   /* not now: clients try again by themselves */
    PS_GATE_BROKEN, /* the node has failed to load something: data calls get gate_status and gate_text */
};

/* A range of a variable (dataplane/wire/format/ranges.h) as one core sees it. */
struct ps_range {
    struct ps_variable *variable; /* NULL where another core or node owns it */
    uint32_t partition;
    uint32_t owner_core; /* that holds it, if this node does */
    bool is_not_finite;  /* it was loaded with NaN or Inf */
    bool in_cut;         /* the running cut is not done with it */
    uint64_t cut_bytes;  /* stored bytes that the cut has */
    uint8_t *cut_copy;   /* the last cut_copy_bytes as they were at the cut; NULL: they still are */
    uint64_t cut_copy_bytes;
    uint8_t *loading; /* restore, move: its stored bytes, as far as they have come */
    uint64_t loaded_bytes;
};

/* A feature as one core sees it. */
struct ps_feature {
    struct ps_core *core;
    uint32_t id;
    uint32_t range_count; /* 0: a table */
    struct mr_feature feature;
    struct ps_table *table;               /* this core's share; NULL for variables */
    uint64_t gradients_skipped;           /* variables; a table counts its own */
    bool in_cut;                          /* table: the running cut is not done with it */
    struct ps_cut cut;                    /* table: who takes the rows then */
    uint32_t cut_range;                   /* variable: that the cut is at; those before it are done */
    struct ps_feature *pending_free_next; /* in the core's list */
    struct ps_range ranges[];             /* [range_count] */
};

/* The push that is arriving, of which some is done early (ps/ops/early_push.c). */
struct ps_early_push {
    enum { PS_EARLY_NONE, PS_EARLY_NOTED, PS_EARLY_BEGUN, PS_EARLY_UNFIT, PS_EARLY_TAKEN } state;
    struct mr_call_ref ref;
    const uint8_t *message; /* as long as the call is arriving, or alive */
    uint32_t received_bytes, message_bytes;
    uint32_t feature_id;
    struct ps_early_keys keys;
};

struct ps_rpc;
struct ps_push_log;
struct ps_replay;

struct ps_core {
    struct ps_coop_tasks coop_tasks; /* first: it is aligned to 64 bytes */
    struct ps_node *node;
    struct dp_core *dp_core;
    struct mr_endpoint *ep;
    struct dp_phases *phases; /* of dp_core; NULL: none */
    uint32_t index;
    uint32_t feature_id_max;
    struct ps_arena *arena;           /* tables and variables */
    struct ps_arena *batch_arena;     /* batches and the record: full tables must not stop training */
    struct ps_arena *tombstone_arena; /* keys of removed rows, for deltas; NULL: there are no deltas */
    struct ps_feature *features[MR_FEATURE_ID_MAX + 1]; /* by id, from 1 */
    struct ps_batch_cache *batches;
    struct ps_applied_batches *applied;
    struct ps_partials partials;
    struct ps_clients *clients;
    struct ps_pushes *pushes;            /* numbered ones */
    struct ps_push_answers push_answers; /* that leave later */
    struct ps_push_log *log;             /* checkpoint.durability = log (ps/core/push_log.h); NULL: none */
    struct ps_replay *replay; /* while a record of the log is applied (ps/core/push_log.h); else NULL */
    uint32_t freeze;          /* enum mr_freeze */
    enum ps_gate gate;
    enum mr_status gate_status;
    bool freeze_is_old; /* it was set before this start: pushes that are sent again precede it */
    bool marks_hold;    /* what changed since the last cut is known, as far as tables do not say otherwise */
    bool has_cleanup;   /* `cleanup` has some */
    char gate_text[PS_CORE_TEXT_BYTES];
    struct ps_save save;
    struct ps_early_push early;
    struct ps_staging *staging;      /* of the running restore; NULL: none */
    struct ps_feature *pending_free; /* out of service, and not freed yet */
    struct ps_ownership owns;
    struct ps_migration_source *migration_source; /* a move to another node that is in progress; NULL: none */
    struct ps_copies *copies; /* what backups are to be told (ps/move/copy_source.h); NULL: there are none */
    struct ps_table_changes *changes; /* [MR_FEATURE_ID_MAX + 1] of tables, by feature; NULL: as above */
    bool push_is_open;                /* one in slices is applied in part */
    bool has_followed;                /* `followed` has some */
    struct ps_partition_set followed; /* partitions of other nodes that this one keeps a copy of */
    struct ps_partition_set cleanup;  /* that are no longer this core's: their rows are being freed */
    struct ps_step_clock step_clock;
    struct ps_step_barrier *step_barrier; /* control's; NULL: no call waits for a cut at a step */
    _Atomic uint64_t step;                /* of the clock, for other threads */
    struct ps_rpc *rpc;                   /* core 0 of a node that takes part in remote calls; else NULL */
    struct ps_command *answers;           /* core 0: answers of the control thread that wait for memory */
    struct dp_capture *capture;           /* of the core's packets; NULL: none */
    uint64_t next_gauge_us;
    uint64_t
        clock_offset_us;   /* from the monotonic clock to the node's: the time that its tables were served */
    uint32_t now_s;        /* of that, as of the last look: what rows are stamped with */
    uint32_t upkeep_id;    /* feature that upkeep looked at last */
    uint32_t upkeep_polls; /* polls since there was time for it */
    _Atomic uint32_t clients_held; /* noted by the gate */
    struct ps_core_counters counters;
    struct ps_table_counters table_counters; /* sums over the tables, as of the last look */
    struct ps_log_counters log_counters;
};

/* The core's records of what was applied. */
static inline struct ps_records ps_core_records(struct ps_core *core)
{
    return (struct ps_records){.applied = core->applied,
                               .partials = &core->partials,
                               .clients = core->clients,
                               .pushes = core->pushes};
}

/* Sets the step that training has reached. */
void ps_core_set_step(struct ps_core *core, uint64_t step);
/* The node's clock, which a restore sets to that of the checkpoint. It continues while the process lives. */
uint64_t ps_core_clock_us(const struct ps_core *core);
void ps_core_set_clock_us(struct ps_core *core, uint64_t clock_us);
/* Notes the time for the stamps of rows. */
void ps_core_see_time(struct ps_core *core, uint64_t now_us);
/* Drops all features, batches, streams and clients. */
void ps_core_clear(struct ps_core *core);
/* What guards the core's record of pushes. */
struct ps_push_guard ps_core_push_guard(struct ps_core *core);
/* Sends the answers that wait; true when some still do. (ps/ops/ops_control.c) */
bool ps_answer_commands(struct ps_core *core);
/* Frees the answers that can no longer be sent. */
void ps_drop_answers(struct ps_core *core);
/* Looks up the values that are not counted as they change. */
void ps_core_refresh_gauges(struct ps_core *core);

/* ---- features (ps/core/feature.c) ---- */

/* NULL when there is none. */
static inline struct ps_feature *ps_core_feature(const struct ps_core *core, uint32_t id)
{
    return id <= core->feature_id_max ? core->features[id] : NULL;
}

/* Creates a feature that no call sees yet: table or variable `id`, empty. MR_UNSUPPORTED,
 * MR_OUT_OF_MEMORY; `text` (PS_CORE_TEXT_BYTES) says what. */
enum mr_status ps_feature_create(struct ps_core *core, uint32_t id, const struct mr_feature *feature,
                                 struct ps_feature **out, char *text);
/* The options are `feature`'s from now on (ps/core/alter.h). */
void ps_feature_alter(struct ps_feature *f, const struct mr_feature *feature);
/* Makes the ranges of a variable whose partitions the core owns now, if it does not have them.
 * MR_UNSUPPORTED, MR_OUT_OF_MEMORY. */
enum mr_status ps_feature_own(struct ps_feature *f, char *text);
/* Makes one, before the core owns it: a restore fills it first. Nothing if it is another core's. */
enum mr_status ps_feature_make_range(struct ps_feature *f, uint32_t range, char *text);
/* Takes a piece of a range's stored bytes, which come in any order; with the last one they become its state,
 * and loaded_bytes is ps_variable_stored_bytes(). MR_BAD_MESSAGE, MR_OUT_OF_MEMORY; `text`
 * (PS_CORE_TEXT_BYTES). */
enum mr_status ps_feature_load_range(struct ps_feature *f, uint32_t range, uint64_t offset,
                                     const uint8_t *bytes, uint64_t count, char *text);
/* A range is to be loaded once more. */
void ps_feature_reload_range(struct ps_feature *f, uint32_t range);
/* Stored bytes of the ranges that the core has. */
uint64_t ps_feature_variable_bytes(const struct ps_feature *f);
void ps_feature_destroy(struct ps_feature *f);
/* Returns what was asked of it on this core, and not done. */
struct ps_drop_stats ps_feature_drop_stats(const struct ps_feature *f);
/* Puts it into service; no other feature may have its number. */
void ps_core_put_feature(struct ps_core *core, struct ps_feature *f);
/* Makes table or variable `id` and puts it into service. MR_UNSUPPORTED, MR_OUT_OF_MEMORY; `text`
 * (PS_CORE_TEXT_BYTES) says what. */
enum mr_status ps_core_add_feature(struct ps_core *core, uint32_t id, const struct mr_feature *feature,
                                   char *text);
/* Adds partitions of other nodes to those that the core keeps a copy of, or takes some out: their rows are
 * not this core's to save, to evict, or to count (ps/table/table_changes.h). */
void ps_core_follow(struct ps_core *core, const struct ps_partition_set *partitions, bool follows);
/* Takes it out of service; its memory is freed in the polls to come. Nothing when there is none. */
void ps_core_remove_feature(struct ps_core *core, uint32_t id);
/* Takes a feature that was replaced, taken back, or staged by a restore that failed, and frees it in
 * slices. Nobody else may have it any more, and no cut may be at it. */
void ps_pending_free_add(struct ps_core *core, struct ps_feature *f);
/* Frees a slice: of one table or variable, as much as ps_table_destroy_some() or ps_variable_destroy_some()
 * does. True when there is more. */
bool ps_pending_free_step(struct ps_core *core);
/* Frees all of it at once, when the core ends. */
void ps_pending_free_end(struct ps_core *core);
/* Waits until no core has any, helping with it slice by slice. Any thread but a core's. */
void ps_pending_free_wait(struct ps_node *node);

#endif
