/* One core's part of a checkpoint: what goes into it, and at which pace.
 *
 * At the cut the core copies what is small (the streams of batches, clients and their pushes: at most what
 * PS_RECORD_MIB holds) and begins a cut of every table, all in one task on its own thread: a push is either
 * in the cut with its record, or neither is. Afterwards a cursor writes out the copy, variables and
 * tables a little per poll, at the pace of ps/save/save_pace.h, while pushes go on; each
 * hands over the old rows of those it is about to change, for which there must be room in the writer's
 * buffers first. A variable is written where it is; before a change what is left of it is copied,
 * PS_SAVE_VARIABLES_BYTES of all variables at most, else the push waits for the cursor.
 *
 * A full has every row. A delta has the rows that changed since the cut before it, and the keys that went
 * (PS_RECORD_GONE); all else is whole. It stands on that cut, so it is possible only while it is known what
 * changed since.
 *
 * Records: rows and variables as ps/checkpoint/checkpoint.h has them. PS_RECORD_STREAM, PS_RECORD_CLIENT and
 * PS_RECORD_PUSHES name the core they come from: `feature` = core, `count` = cores of the node. A stream's
 * `row_bytes` is an enum ps_stream_record, `offset` how many batches were added to it. The `offset` of pushes
 * is when the lane pushed last, counted in pushes to the core.
 */
#ifndef PS_SAVE_H
#define PS_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/save/save_pace.h"
#include "ps/table/table.h"

#define PS_SAVE_STEP_US         10         /* of writing out per poll; */
#define PS_SAVE_STEP_BUSY_US    5          /* while there are calls, which wait for it */
#define PS_SAVE_STEP_BUCKETS    8u         /* between two looks at the clock */
#define PS_SAVE_RECORD_ROWS     16u        /* rows per record at most */
#define PS_SAVE_ROW_NS          50u        /* that a row takes which a call hands over, about */
#define PS_SAVE_ROOM_SHARE      4u         /* of the buffers: the cursor leaves them to changes */
#define PS_SAVE_VARIABLES_BYTES (2u << 20) /* copies of variables that change under the cursor */
#define PS_SAVE_HOLD_CURSOR_US  20000      /* how long the cursor leaves room for a push that was held back */

#define PS_STREAM_PLAN_WORDS (2u + MR_PLAN_WORDS)

enum ps_stream_record {
    PS_STREAM_APPLIED = 0, /* u64 stream, watermark, bitmap words */
    PS_STREAM_PARTIAL = 1, /* struct ps_partial */
    PS_STREAM_PLAN = 2,    /* u64 stream, u64[3] struct mr_plan, u64 use */
};

struct ps_core;
struct ps_feature;

struct ps_save {
    struct ps_writer *writer; /* NULL: no cut on this core */
    uint8_t *copy;            /* records with their bytes, as of the cut */
    size_t copy_bytes, copied_out_bytes;
    uint32_t pass, next_feature; /* the cursor's place */
    uint64_t variable_copy_bytes;
    uint64_t capacity_bytes; /* free bytes with all buffers empty */
    uint64_t wanted_bytes;   /* room that a push held back waits for */
    uint64_t wanted_until_us;
    uint64_t reserved_bytes; /* room kept for a push that is done in slices */
    struct ps_save_pace pace;
    bool yielded; /* in the last poll, although there was more to do */
    bool in_step; /* the cursor is at it, no call */
};

/* The cut. A delta must be possible; its writer has the last cut's checkpoint as parent. MR_OUT_OF_MEMORY:
 * nothing was begun. *bytes = what the core will write, about. */
enum mr_status ps_save_begin(struct ps_core *core, struct ps_writer *writer, enum ps_save_kind kind,
                             uint64_t *bytes);
/* A delta on the last cut is possible: marks are kept (checkpoint.deltas > 0), that cut was written to its
 * end, or restored, and what changed since is known: not too many rows went. False while a save runs. */
bool ps_save_delta_possible(const struct ps_core *core);
/* Why not; with the table that it is about in *table, valid as long as the table. Of several reasons the one
 * that stays longest. */
enum ps_no_delta {
    PS_DELTA_POSSIBLE,
    PS_NO_DELTA_NO_MEMORY, /* for the marks of a table's sightings, when it was made */
    PS_NO_DELTA_UNKNOWN,   /* no cut is known that it could stand on, or one is running */
    PS_NO_DELTA_ROWS_WENT, /* more than are kept track of */
};
enum ps_no_delta ps_save_no_delta(const struct ps_core *core, const char **table);
/* The last cut was not published, or what serves is another state than it and what changed since: the next
 * one must be full. */
void ps_save_marks_lost(struct ps_core *core);
/* What serves is what was loaded just now, whole, of a checkpoint that the next save may be a delta on. */
void ps_save_is_as_saved(struct ps_core *core);
/* Once a poll: a step if it is time for one. True when there is more to do right now; now
 * and then false all the same, for a poll without work lets others have the processor. */
bool ps_save_poll(struct ps_core *core, uint64_t now_us);
/* A little writing, for so long. True when there is more to do right now. */
bool ps_save_step(struct ps_core *core, uint64_t now_us, uint64_t step_us);
/* Ends the cut whether complete or not; the writer is not touched afterwards. */
void ps_save_end(struct ps_core *core);

/* Bytes of buffers that a push of key_count keys may need before it runs; 0 when no cut is on. */
uint64_t ps_save_need_bytes(const struct ps_core *core, const struct ps_feature *feature, uint32_t key_count);
/* Whether they are free. If not, the cursor makes room; try again later. */
bool ps_save_has_room(struct ps_core *core, uint64_t need_bytes, uint64_t now_us);

/* Before a variable changes: false when a running cut has still to have it, and there is no memory for a
 * copy; try again later. */
bool ps_save_variable_ready(struct ps_core *core, struct ps_feature *variable);
/* The cut needs no more of it. */
void ps_save_variable_end(struct ps_core *core, struct ps_feature *variable);

#endif
