/* Writes whole blocks from a fixed set of buffers to the files of a store on another machine: several files
 * at a time, each on one of its threads, its blocks in their order. So the caller goes on while the store
 * takes its time. All calls belong to one thread.
 *
 * After the first error, or once it is cancelled, what was put and not begun is not written any more.
 */
#ifndef PS_SENDER_H
#define PS_SENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/io/store.h"
#include "ps/checkpoint/uring_writer.h"

#define PS_SENDER_THREADS 4u /* at most: one for each file otherwise */

struct ps_sender;

struct ps_sender_options {
    const struct ps_store *store;
    struct ps_store_file *const *files; /* outlive it */
    uint32_t file_count;
    const uint8_t *buffers; /* one region of buffer_count times buffer_bytes */
    uint32_t buffer_count;
    size_t buffer_bytes;
};

/* Its threads run on the processors that the caller may run on. 0, -ENOMEM, or -EAGAIN: no thread. */
int ps_sender_create(const struct ps_sender_options *options, struct ps_sender **out);
/* Waits for the writes that have begun. NULL is fine. */
void ps_sender_destroy(struct ps_sender *s);
/* Begins to write the whole of a buffer at that offset, which is where the last one of the file ended. */
void ps_sender_put(struct ps_sender *s, uint32_t file, uint32_t buffer, uint64_t offset);
uint32_t ps_sender_pending(const struct ps_sender *s);
/* Takes back one buffer; waits for it at most wait_us. False: none was written. ps_sender_text() has the line
 * of the store about an error. */
bool ps_sender_reap(struct ps_sender *s, uint32_t wait_us, struct ps_write_done *done);
/* What the store said about the first error; "": nothing. */
const char *ps_sender_text(const struct ps_sender *s);
void ps_sender_cancel(struct ps_sender *s);

#endif
