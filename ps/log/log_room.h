/* Room ahead in a segment's file: zeros behind its last block, written and flushed by a thread beside the
 * core. A block that takes their place is durable with a flush of the disk alone. One that makes the file
 * longer, or is the first in its place, waits for the file system's journal, too, and so for what others
 * write.
 *
 * Belongs to the core's thread. One file at a time is given room. */
#ifndef PS_LOG_ROOM_H
#define PS_LOG_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ps/io/io_threads.h"
#include "ps/io/store.h"

/* As much as the file has already, within these bounds. */
#define PS_LOG_ROOM_BYTES_MIN (1u << 20)
#define PS_LOG_ROOM_BYTES_MAX (64u << 20)
#define PS_LOG_ROOM_RETRY_US  1000000u /* after an error: a full disk */

struct ps_log_room {
    struct ps_io_job job;
    const struct ps_store *store;
    struct ps_store_file *file; /* that is given room now; NULL: none */
    uint64_t from, to;
    _Atomic uint64_t done; /* zeros from `from` to here */
    _Atomic bool is_cancelled;
    bool has_failed;
    uint64_t retry_us;
};

/* Begins to make room from `from` on, unless another file, or this one, is given room, or an error was
 * just now. The file stays open until it has ended. */
void ps_log_room_begin(struct ps_log_room *r, struct ps_io_threads *threads, struct ps_store_file *file,
                       uint64_t from, uint64_t now_us);
/* Whether blocks may be written to the file up to there: no zeros come after that. False: it will not be
 * long, as it is cancelled. */
bool ps_log_room_allows(struct ps_log_room *r, const struct ps_store_file *file, uint64_t to);
/* Ends it soon, if that file is given room. */
void ps_log_room_cancel(struct ps_log_room *r, const struct ps_store_file *file);
/* Its job has come back: whose room it was, and up to where zeros lie. */
struct ps_store_file *ps_log_room_end(struct ps_log_room *r, uint64_t now_us, uint64_t *to);

#endif
