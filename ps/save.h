/* One core's part of a checkpoint: what goes into it, and at which pace.
 *
 * At the cut the core copies what is small (variables, learnt streams, clients and their pushes) and begins a cut of every table, all in
 * one task on its own thread: a push is either in the cut with its learnt record, or neither is. Afterwards a cursor
 * writes out the copy and the tables a little per turn of the poll loop, while pushes go on; each hands over the old rows of
 * the buckets it is about to change, for which there must be room in the writer's buffers first.
 *
 * Records: rows and variables as ps/checkpoint.h has them. PS_RECORD_STREAM, PS_RECORD_CLIENT and PS_RECORD_PUSHES name the
 * core they come from: `feature` = core, `count` = cores of the node. A stream's `row_bytes` is an enum ps_stream_record, `offset` how many
 * batches were added to it. The `offset` of pushes is when the lane pushed last, counted in pushes to the core.
 */
#ifndef PS_SAVE_H
#define PS_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_status.h"
#include "ps/checkpoint.h"
#include "ps/table.h"

#define PS_SAVE_STEP_US        20    /* of writing out per turn of the poll loop */
#define PS_SAVE_STEP_BUCKETS   8u    /* between two looks at the clock */
#define PS_SAVE_RECORD_ROWS    16u   /* rows per record at most */
#define PS_SAVE_HOLD_CURSOR_US 20000 /* how long the cursor leaves room for a push that was held back */

enum ps_stream_record {
    PS_STREAM_LEARNT = 0,  /* u64 stream, watermark, bitmap words */
    PS_STREAM_PARTIAL = 1, /* struct ps_partial */
};

struct ps_core;
struct ps_feature;

struct ps_save {
    struct ps_writer *writer; /* NULL: no cut on this core */
    uint8_t *copy;            /* records with their bytes, as of the cut */
    size_t copy_bytes, copied_out_bytes;
    uint32_t next_feature;   /* the cursor's place */
    uint64_t capacity_bytes; /* free bytes with all buffers empty */
    uint64_t wanted_bytes;   /* room that a push held back waits for */
    uint64_t wanted_until_us;
    uint64_t reserved_bytes; /* room kept for a push that is done in slices */
};

/* The cut. MR_OUT_OF_MEMORY: nothing was begun. *bytes = what the core will write, about. */
enum mr_status ps_save_begin(struct ps_core *core, struct ps_writer *writer, uint64_t *bytes);
/* A little writing. True when there is more to do right now. */
bool ps_save_step(struct ps_core *core, uint64_t now_us);
/* Ends the cut whether complete or not; the writer is not touched afterwards. */
void ps_save_end(struct ps_core *core);

/* Bytes of buffers that a push of key_count keys may need before it runs; 0 when no cut is on. */
uint64_t ps_save_need_bytes(const struct ps_core *core, const struct ps_feature *feature, uint32_t key_count);
/* Whether they are free. If not, the cursor makes room; try again later. */
bool ps_save_has_room(struct ps_core *core, uint64_t need_bytes, uint64_t now_us);

#endif
