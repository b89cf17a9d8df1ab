/* Writes whole blocks from a fixed set of buffers to a fixed set of files, several at a time. How, follows
 * from the store:
 *
 * - files with descriptors: io_uring, in any order. A write past the page cache that the file system
 *   refuses is repeated through it.
 * - a store on another machine, which is given threads: several files at a time, each file's blocks in
 *   their order, so that the caller goes on while the store takes its time.
 * - otherwise, and from when the kernel refuses io_uring for good: the caller writes, within the put.
 *
 * Belongs to one thread: it puts, takes back and cancels. Errors are negative errnos. A file that must be
 * whole is synced by its owner, after all writes have come back.
 */
#ifndef PS_WRITE_POOL_H
#define PS_WRITE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "ps/io/store.h"

#define PS_WRITE_DEPTH   16u /* with the kernel at a time */
#define PS_WRITE_THREADS 4u  /* that a store on another machine is given; fewer if there are fewer files */

/* X(name, kind, unit, help) */
#define PS_URING_COUNTER_LIST(X)                                                                             \
    X(writes, COUNTER, NONE, "blocks of checkpoints written through io_uring")                               \
    X(writes_plain, COUNTER, NONE, "blocks written without it, one after the other")                         \
    X(writes_failed, COUNTER, NONE, "blocks that could not be written")                                      \
    X(writes_continued, COUNTER, NONE,                                                                       \
      "times that a write was short, or refused for the moment, and was continued")                          \
    X(waits, COUNTER, NONE, "times that the writer waited for the kernel")                                   \
    X(write_us, COUNTER, MICROSECONDS, "time that writes took, added up over those in flight together")      \
    X(in_flight, GAUGE, NONE, "writes that are with the kernel")                                             \
    X(in_flight_max, GAUGE, NONE, "the most of them so far")

struct ps_uring_counters {
    PS_URING_COUNTER_LIST(MR_COUNTER_FIELD)
};

struct ps_write_pool_options {
    const struct ps_store *store;
    struct ps_store_file *const *files; /* outlive the pool */
    uint32_t file_count;
    uint8_t *buffers; /* one region of buffer_count times buffer_bytes, aligned to 4096; outlives the pool */
    uint32_t buffer_count;
    size_t buffer_bytes;
    bool is_remote;                     /* the store is on another machine */
    struct ps_uring_counters *counters; /* of writes to a disk, one pool at a time; NULL: not counted */
};

struct ps_write_pool;

struct ps_write_done {
    uint32_t buffer;
    uint32_t file;
    uint64_t offset;
    int error; /* 0 or -errno; -ECANCELED: not begun, after a cancel or another error */
};

/* Threads run on the processors that the caller may run on. It never fails because io_uring is missing: *note
 * (static text, NULL if none) then says why. 0 or -ENOMEM. */
int ps_write_pool_create(const struct ps_write_pool_options *options, struct ps_write_pool **out,
                         const char **note);
/* Waits for the writes that have begun, because they read the buffers until then. NULL is fine. */
void ps_write_pool_destroy(struct ps_write_pool *w);
/* Whether there is room for another write. */
bool ps_write_pool_ready(const struct ps_write_pool *w);
/* Begins to write the whole of a buffer, which is the pool's until it is taken back; for a store on another
 * machine at the offset where the last one of that file ended. Only after ready. */
void ps_write_pool_put(struct ps_write_pool *w, uint32_t file, uint32_t buffer, uint64_t offset);
uint32_t ps_write_pool_pending(const struct ps_write_pool *w);
/* Takes back one buffer; waits for it at most wait_us. Of an error, the caller's next
 * ps_store_explanation() is what the store said. False: none was written. */
bool ps_write_pool_take(struct ps_write_pool *w, uint32_t wait_us, struct ps_write_done *done);
/* What threads have not begun is not written any more. */
void ps_write_pool_cancel(struct ps_write_pool *w);
/* "io_uring" or "plain writes", of a disk, for logs. */
const char *ps_write_pool_name(const struct ps_write_pool *w);

#endif
