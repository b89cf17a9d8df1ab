/* Writes whole blocks from a fixed set of buffers to a fixed set of files, several at a time, through
 * io_uring with registered buffers and files. Where io_uring is forbidden, or the store has no descriptors,
 * the store executes each write at once; also from when the kernel refuses io_uring for good. A write past
 * the page cache that the file system refuses is repeated through it.
 *
 * Belongs to one thread. The store's files must outlive it.
 */
#ifndef PS_URING_WRITER_H
#define PS_URING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "ps/io/store.h"

#define PS_URING_DEPTH 16u /* writes in flight */

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

struct ps_uring_writer;

struct ps_write_done {
    uint32_t buffer;
    uint32_t file;
    uint64_t offset;
    int error; /* 0 or -errno */
};

/* `buffers` is one region of buffer_count times buffer_bytes, aligned to 4096. It never fails because
 * io_uring is missing: *note (static text, NULL if none) then says why plain writes are used. 0 or
 * -ENOMEM. */
int ps_uring_writer_create(const struct ps_store *store, struct ps_store_file *const *files,
                           uint32_t file_count, uint8_t *buffers, uint32_t buffer_count, size_t buffer_bytes,
                           struct ps_uring_writer **out, const char **note);
/* Waits for the writes in flight, because the kernel reads the buffers until then, and frees the writer. NULL
 * is fine. */
void ps_uring_writer_destroy(struct ps_uring_writer *w);
/* Counts in `counters` from now on; one writer at a time. */
void ps_uring_writer_count(struct ps_uring_writer *w, struct ps_uring_counters *counters);
/* Whether there is room for another write. */
bool ps_uring_writer_ready(const struct ps_uring_writer *w);
/* Begins to write the whole of a buffer, which belongs to the kernel until reap returns it. Only after
 * ready. */
void ps_uring_writer_put(struct ps_uring_writer *w, uint32_t file, uint32_t buffer, uint64_t offset);
uint32_t ps_uring_writer_pending(const struct ps_uring_writer *w);
/* Submits what was put to the kernel and takes back one finished write; waits for it at most wait_us. False
 * when none finished. */
bool ps_uring_writer_reap(struct ps_uring_writer *w, uint32_t wait_us, struct ps_write_done *done);
/* "io_uring" or "plain writes", for logs. */
const char *ps_uring_writer_name(const struct ps_uring_writer *w);

#endif
