/* Writes whole blocks from a fixed set of buffers to a fixed set of files, several at a time, through
 * io_uring with registered buffers and files. Where io_uring is forbidden, or the store has no descriptors,
 * the store executes each write at once. A write past the page cache that the file system refuses is repeated
 * through it.
 *
 * Belongs to one thread. The store's files must outlive it.
 */
#ifndef PS_URING_WRITER_H
#define PS_URING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_store.h"

#define PS_URING_DEPTH 16u /* writes in flight */

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
