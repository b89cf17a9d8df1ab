/* One core's part of a checkpoint: what it contains, and at which pace it is written.
 *
 * At the cut the core copies what is small (the streams of batches, clients and their pushes: at most what
 * PS_RECORD_MIB holds) and begins a cut of every table, all in one task on its own thread: a push is either
 * in the cut with its record, or neither is. Afterwards a cursor writes out the copy, variables and tables, a
 * little per poll, at the pace of ps/save/save_pace.h, while pushes continue. A push hands over the old rows
 * of those it is about to change; the writer's buffers must have room for them first. A variable is written
 * from where it is; before a push changes it, the part not yet written is copied, at most
 * PS_SAVE_VARIABLES_BYTES of all variables; otherwise the push waits for the cursor.
 *
 * A full checkpoint has every row. A delta has the rows that changed since the cut before it, and the keys
 * that were removed (PS_RECORD_GONE); all else is whole. It builds on that cut, so it is possible only while
 * it is known what changed since.
 *
 * A partial checkpoint has some features, each of them whole, and nothing else.
 *
 * Parameters of remote calls belong to no core. The control thread holds their versions of the cut, and core
 * 0 writes them from there.
 *
 * Records: rows and variables as ps/checkpoint/checkpoint.h has them. PS_RECORD_STREAM, PS_RECORD_CLIENT and
 * PS_RECORD_PUSH_STREAM name the core that they come from: `feature` = core, `count` = cores of the node. A
 * stream's `row_bytes` is an enum ps_stream_record, `offset` how many batches were added to it. The `offset`
 * of pushes is when the push stream pushed last, counted in pushes to the core.
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

#define PS_SAVE_STEP_US      10  /* of writing per poll, */
#define PS_SAVE_STEP_BUSY_US 5   /* and while calls wait for the core */
#define PS_SAVE_STEP_BUCKETS 8u  /* between two readings of the clock */
#define PS_SAVE_RECORD_ROWS  16u /* rows per record at most */
#define PS_SAVE_ROW_NS       50u /* that a call takes to hand over a row, about */
#define PS_SAVE_ROOM_SHARE   4u  /* of the buffers, which the cursor leaves to pushes */
#define PS_SAVE_VARIABLES_BYTES                                                                              \
    (2u << 20) /* copies of variables that pushes change before the cursor has written them */
#define PS_SAVE_HOLD_CURSOR_US 20000 /* how long the cursor leaves room for a push that was held back */

struct mr_named_cut;
struct ps_core;
struct ps_feature;
struct ps_range;

struct ps_save {
    struct ps_writer *writer; /* NULL: no cut on this core */
    uint8_t *copy;            /* records with their bytes, as of the cut */
    size_t copy_bytes, copied_out_bytes;
    uint32_t pass, next_feature;           /* the cursor's place */
    const struct mr_named_cut *parameters; /* core 0's; NULL: none are saved */
    uint32_t next_parameter;
    uint64_t parameter_bytes; /* written of it */
    uint64_t variable_copy_bytes;
    uint64_t capacity_bytes; /* free bytes with all buffers empty */
    uint64_t wanted_bytes;   /* room that a push which was held back waits for */
    uint64_t wanted_until_us;
    uint64_t reserved_bytes; /* room kept for a push that is executed in slices */
    struct ps_save_pace pace;
    bool yielded; /* in the last poll, although there was more to do */
    bool in_step; /* the cursor hands over rows, not a call */
};

/* Makes the cut. A delta must be possible, and its writer must have the last cut's checkpoint as parent.
 * *bytes is about what the core will write. MR_OUT_OF_MEMORY: nothing was begun. */
enum mr_status ps_save_begin(struct ps_core *core, struct ps_writer *writer, enum ps_save_kind kind,
                             uint64_t *bytes);
/* Makes a cut of the features with these numbers, which the core has, and of nothing else: no batches,
 * clients or pushes. The marks of what has changed are lost. */
enum mr_status ps_save_begin_some(struct ps_core *core, struct ps_writer *writer, const uint16_t *ids,
                                  uint32_t count, uint64_t *bytes);
/* Adds the parameters to a cut that has just begun, in the order that the writer's MANIFEST lists them;
 * *bytes grows by about what the core will write. They stay until ps_save_end(). */
void ps_save_parameters(struct ps_core *core, const struct mr_named_cut *parameters, uint64_t *bytes);
/* Whether a delta on the last cut is possible: marks are kept (checkpoint.deltas > 0), that cut was written
 * completely, or restored, and what changed since is known, because not too many rows were removed. False
 * while a save runs. */
bool ps_save_delta_possible(const struct ps_core *core);
/* Returns why a delta is not possible, and in *table the table that the reason is about, valid as long as the
 * table. Of several reasons it is the one that lasts longest. */
enum ps_no_delta {
    PS_DELTA_POSSIBLE,
    PS_NO_DELTA_NO_MEMORY, /* for the marks of a table's observations, when it was created */
    PS_NO_DELTA_UNKNOWN,   /* no cut is known that it could build on, or one is running */
    PS_NO_DELTA_ROWS_WENT, /* more rows were removed than are kept track of */
};
enum ps_no_delta ps_save_no_delta(const struct ps_core *core, const char **table);
/* Forgets the marks: the last cut was not published, or the state that serves is not that cut and what
 * changed since. The next save must be full. */
void ps_save_marks_lost(struct ps_core *core);
/* Starts the marks: the state that serves was just loaded, whole, from a checkpoint that the next save may be
 * a delta on. */
void ps_save_is_as_saved(struct ps_core *core);
/* Takes a step if it is time for one; called once a poll. True when there is more to do right now, but now
 * and then false all the same, because a poll without work lets others have the processor. */
bool ps_save_poll(struct ps_core *core, uint64_t now_us);
/* Writes for about step_us. True when there is more to do right now. */
bool ps_save_step(struct ps_core *core, uint64_t now_us, uint64_t step_us);
/* Ends the cut, whether it is complete or not; the writer is not touched afterwards. */
void ps_save_end(struct ps_core *core);

/* Returns how many bytes of buffers a push of key_count keys may need before it runs; 0 when no cut is
 * running. */
uint64_t ps_save_need_bytes(const struct ps_core *core, const struct ps_feature *feature, uint32_t key_count);
/* Whether that many are free. If not, the cursor makes room; try again later. */
bool ps_save_has_room(struct ps_core *core, uint64_t need_bytes, uint64_t now_us);

/* Prepares a range of a variable for a change: false when a running cut still needs it, and there is no
 * memory for a copy; try again later. */
bool ps_save_range_ready(struct ps_core *core, struct ps_range *range);
/* Ends the part of the cut that concerns this range. */
void ps_save_range_end(struct ps_core *core, struct ps_range *range);

#endif
