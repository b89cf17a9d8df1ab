/* A core's log of pushes (checkpoint.durability = log): what it applies is appended, with what else decides
 * the effect, and answers wait until it is durable. docs/log-format.md has the records, docs/checkpoints.md
 * what is promised. Belongs to the core's thread; the files are made by the control thread.
 *
 * A push is appended at its end: what happens to its keys meanwhile precedes it, and its record names the
 * keys that got no row. For that, pushes of a core with a log are applied one after the other, also those in
 * slices, and rows that a push has used stay to its end. */
#ifndef PS_PUSH_LOG_H
#define PS_PUSH_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"
#include "ps/core/batch_cache.h"
#include "ps/core/coop_task.h"
#include "ps/log/log_writer.h"

#define PS_REPLAY_TEXT_BYTES 400

struct ps_core;
struct ps_feature;
struct ps_push_log;

/* A push of the log, as it goes through its handler again, before the core serves: nothing refuses it that
 * let it pass then, nobody waits for an answer, and it makes the rows that it made or found. */
struct ps_replay {
    const uint64_t *left_out;      /* keys that got no row, part after part, ascending in each */
    const uint32_t *part_left_out; /* how many are each part's; NULL: none */
    bool lacks_memory;             /* rows that were there before did not fit */
    bool is_done;
    char why[PS_REPLAY_TEXT_BYTES]; /* else: why not */
};

/* Begins the core's log in this file; both are the log's from then on. MR_NO_MEMORY: neither is. */
enum mr_status ps_push_log_begin(struct ps_core *core, struct ps_log_writer *writer,
                                 const struct ps_log_file *file);
/* A published checkpoint has all that was before the last ps_push_log_switch(). Any thread, while the core
 * has a log. */
void ps_push_log_covered(const struct ps_core *core);
/* What waits is written first. */
void ps_push_log_end(struct ps_core *core);
/* Records go to this file from now on, which is the log's: nothing of a push lies on both sides, as none is
 * in flight. After ps_push_log_can_switch(). */
void ps_push_log_switch(struct ps_core *core, const struct ps_log_file *file);
bool ps_push_log_can_switch(const struct ps_core *core);
/* Whether a record of a change of tables or streams can be appended, of so many bytes: the log is not
 * stalled, and not full. */
bool ps_push_log_has_room(const struct ps_core *core, uint64_t content_bytes);
/* Goes on with what is on its way; sends the answers that need not wait any more. Returns when it is to be
 * called again at the latest, as ps_log_writer_poll(). */
uint64_t ps_push_log_poll(struct ps_core *core, uint64_t now_us);
/* Records appended and not durable: none, once this many more are. */
uint64_t ps_push_log_position(struct ps_core *core);
/* Any thread, while the core has a log. */
bool ps_push_log_is_durable(const struct ps_core *core, uint64_t position);
int ps_push_log_error(const struct ps_core *core);

/* ---- for handlers; without a log they do nothing, and return true ---- */

/* Whether a push has to wait for the one in slices: then it waits as one of its length does, and the handler
 * returns. */
bool ps_push_log_defers(const struct ps_op *op);
/* ps_push_answer_keep(), also without a log; and a record of so many bytes can be appended. False: the call
 * was answered BUSY. */
bool ps_push_log_keep(const struct ps_op *op, uint64_t content_bytes);
/* As ps_push_log_keep(), and there is room for its record: with `batch` (NULL: none), and up to `keys` keys
 * that get no row. */
bool ps_push_log_promise(const struct ps_op *op, const struct ps_batch *batch, uint64_t keys);
/* Where the keys of one of its tables go that get no row (struct ps_table_push); NULL: no log. And: so many
 * came. */
uint64_t *ps_push_log_left_out(struct ps_core *core);
void ps_push_log_leave_out(struct ps_core *core, uint32_t part, uint32_t count);
/* The promised record of a push that was applied. */
void ps_push_log_push(const struct ps_op *op, const struct ps_batch *batch, uint32_t part_count);
/* Numbers from `from` to the request's are used up in its push stream. */
void ps_push_log_numbers(const struct ps_op *op, uint64_t from);
/* A stream is this plan's; streams were forgotten. */
void ps_push_log_plan(struct ps_core *core, uint32_t stream, const struct mr_plan *plan);
void ps_push_log_forget(struct ps_core *core, const uint64_t *streams, uint32_t count);
/* A table or variable was created (PS_LOG_CREATE) or altered (PS_LOG_ALTER), or dropped (PS_LOG_DROP, NULL).
 * */
void ps_push_log_feature(struct ps_core *core, enum ps_log_kind kind, uint32_t id,
                         const struct mr_feature *feature);
/* Of an answer that is complete, with a log: it reports what is durable once it goes. Returns up to where the
 * log is to be durable then. */
uint64_t ps_push_log_answers(const struct ps_op *op);
/* Watches the evictions of a new table: they are logged while it serves. */
void ps_push_log_watch(struct ps_feature *f);

#endif
