/* The primary of copies on one core: what its backups are told (replication = 2; ADR 143).
 *
 * A backup is another node that keeps the state of some of the core's partitions. It reads a stream of
 * records from each of the primary's cores (ps/move/migration_target.h): first one for each part of what the
 * core has, by a cursor over rows and variables, and beside these, then for ever, one for each push after it
 * was applied. A record holds rows, removed keys and ranges of variables as they are then, with their
 * optimizer state, and what is recorded of the pushes and batches concerned. So whatever was read of the
 * stream in order, from the record on that says that the cursor is through (PS_COPY_WHOLE), is a state that
 * the core had between two calls; and what comes twice does no harm. Nothing depends on the backup's clock,
 * memory or schedule.
 *
 * The stream is kept from where the backup has applied it: a bounded ring. When it is full the source is
 * lost: no record is made any more, and pushes go on; the backup can still read what there is, and then has
 * an older state, until it begins again. Answers can wait for a backup (ps/core/push_answers.h), for a lost
 * one as well: until the map says that it is not in sync.
 *
 * Rows that lookups make and those that are evicted are in the next record. Not in the stream, and so other
 * after a promotion: when a row was last looked up, and how often a key without a row was observed
 * (admission).
 *
 * Belongs to the core's thread, but for struct ps_copy_status. */
#ifndef PS_COPY_SOURCE_H
#define PS_COPY_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"
#include "ps/move/migration_source.h"

/* In the stream, beside the kinds of checkpoints: a record is complete, its number is `offset`; and the
 * cursor is through. */
#define PS_COPY_END   65u
#define PS_COPY_WHOLE 66u

#define PS_COPY_SOURCES_MAX 32u         /* of a core: assignments of backups */
#define PS_COPY_RING_BYTES  (64u << 20) /* of each; a backup that keeps up uses little of it */

struct ps_core;
struct mr_request;

enum ps_copy_state {
    PS_COPY_FORMS,   /* the backup does not have everything yet */
    PS_COPY_FOLLOWS, /* it has all but what was applied of late */
    PS_COPY_LOST,    /* what it has will not be completed: the ring was full, or no memory was left */
    PS_COPY_REPEATS  /* it asks for everything once more */
};

/* What a source says of itself; the core's thread writes it, any thread reads. Positions are of the
 * stream. */
struct ps_copy_status {
    _Atomic uint32_t state;        /* enum ps_copy_state */
    _Atomic uint64_t applied, end; /* by the backup; of the last record */
};

/* Begins to tell the backup of these partitions, those that are the core's. `id`: the number of its
 * assignment in the map. `status` stays until the end. MR_NO_MEMORY, MR_UNSUPPORTED: there are
 * PS_COPY_SOURCES_MAX. */
enum mr_status ps_copy_source_begin(struct ps_core *core, uint64_t id,
                                    const struct ps_partition_set *partitions, size_t ring_bytes,
                                    struct ps_copy_status *status);
/* From now on answers to pushes wait until this backup has them, and `status->end` is past all that was
 * answered before. Or they do not any more: those that waited leave. MR_NO_MEMORY: they do not wait. */
enum mr_status ps_copy_source_wait(struct ps_core *core, uint64_t id, bool waits);
/* Nothing happens if there is none of that number; 0: all. Answers that still wait for it are taken back
 * (ps_push_answers_give_up()). */
void ps_copy_source_end(struct ps_core *core, uint64_t id);
/* Only these partitions are left of the assignment. */
void ps_copy_source_narrow(struct ps_core *core, uint64_t id, const struct ps_partition_set *partitions);
bool ps_copy_source_is(const struct ps_core *core, uint64_t id);

/* The backup has applied everything before this position, and asks for what follows; at 1 it begins. True:
 * `out` has it; MR_MOVE_MORE without bytes: there is nothing yet. False: the budget was used up first.
 * `is_first`: the cursor is not through. */
bool ps_copy_source_read(struct ps_core *core, uint64_t id, uint64_t position, uint64_t budget_bytes,
                         struct ps_migration_block *out);

/* The backup has applied everything before this position: answers that wait for that leave. */
void ps_copy_source_applied(struct ps_core *core, uint64_t id, uint64_t position);
/* Keeps a question, which was answered by nothing yet and stays (mr_reply_later()), until there is something.
 * The one before, if there is any, is answered BUSY, and so is this one at the source's end. False: there is
 * something now, or the source's cursor is not through. */
bool ps_copy_source_park(struct ps_core *core, uint64_t id, const struct mr_request *request,
                         uint64_t now_us);
/* Returns a kept question whose answer is due, which is kept no more, and the source's id; NULL: there is
 * none. To be called in each poll, as long as it returns any. */
const struct mr_request *ps_copies_unpark(struct ps_core *core, uint64_t now_us, uint64_t *id);
/* When that is to be asked again at the latest; UINT64_MAX: there is no time. */
uint64_t ps_copies_due_us(const struct ps_core *core);

/* ---- what calls note, while core->copies is not NULL ----
 * A call that changes something and notes it ends with ps_copies_record(). */
void ps_copies_note_push(struct ps_core *core, const uint8_t *uuid, uint32_t stream_id);
void ps_copies_note_client(struct ps_core *core, const uint8_t *uuid);
void ps_copies_note_batches(struct ps_core *core, uint32_t stream);
void ps_copies_note_range(struct ps_core *core, uint32_t feature, uint32_t range);
/* Records of several clients and streams have changed, as partitions have come or gone. */
void ps_copies_note_all(struct ps_core *core);
/* Makes a record of what has changed, unless a push is applied in part (core->push_is_open): then its end
 * does. */
void ps_copies_record(struct ps_core *core);
/* A push is applied in part: puts what it has changed by now into its record, so that its end has less to
 * do. */
void ps_copies_record_more(struct ps_core *core);

#endif
