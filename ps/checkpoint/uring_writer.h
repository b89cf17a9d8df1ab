/* Writes whole blocks from a fixed set of buffers to a fixed set of files, several at a time, through
 * io_uring with registered buffers and files. Where io_uring is forbidden (or the store has no descriptors)
 * each write is done at once by the store. A write that the file system refuses because it goes past the page
 * cache is repeated through it.
 *
 * Belongs to one thread. The store's files must outlive it.
 */
#ifndef PS_URING_WRITER_H
#define PS_URING_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_store.h"

#define PS_URING_DEPTH 16u /* writes under way at once */

struct ps_uring_writer;

struct ps_write_done {
    uint32_t buffer;
    uint32_t file;
    uint64_t offset;
    int error; /* 0 or -errno */
};

/* `buffers` is one region of buffer_count times buffer_bytes, aligned to 4096. Never fails for want of
 * io_uring; *note (static text, NULL if none) then says why plain writes are used. 0 or -ENOMEM. */
int ps_uring_writer_create(const struct ps_store *store, struct ps_store_file *const *files,
                           uint32_t file_count, uint8_t *buffers, uint32_t buffer_count, size_t buffer_bytes,
                           struct ps_uring_writer **out, const char **note);
/* Waits for the writes under way: the kernel reads the buffers until then. NULL is fine. */
void ps_uring_writer_destroy(struct ps_uring_writer *w);
/* Room for another write. */
bool ps_uring_writer_ready(const struct ps_uring_writer *w);
/* Begin writing the whole of a buffer. The buffer is the kernel's until reap gives it back. Needs ready. */
void ps_uring_writer_put(struct ps_uring_writer *w, uint32_t file, uint32_t buffer, uint64_t offset);
uint32_t ps_uring_writer_pending(const struct ps_uring_writer *w);
/* Hand what was put to the kernel and take back one finished write; waits for it at most wait_us. False when
 * none ended. */
bool ps_uring_writer_reap(struct ps_uring_writer *w, uint32_t wait_us, struct ps_write_done *done);
/* "io_uring" or "plain writes", for logs. */
const char *ps_uring_writer_name(const struct ps_uring_writer *w);

#endif
