/* Reads a file of a store ahead, several ranges of it at a time on threads of its own, and hands them out in
 * their order: a store answers each request after a while, and meanwhile the ranges before are worked on. One
 * thread opens, takes and closes; the others run on the processors that it may run on.
 */
#ifndef PS_READ_AHEAD_H
#define PS_READ_AHEAD_H

#include <stddef.h>
#include <stdint.h>
#include "ps/io/store.h"

#define PS_READ_AHEAD_BUFFERS_MAX 16u

struct ps_read_ahead;

struct ps_read_ahead_options {
    const struct ps_store *store;
    struct ps_store_file *file; /* stays the caller's, and open until the close */
    uint64_t file_bytes;
    size_t range_bytes;    /* a multiple of 4096 */
    uint32_t buffer_count; /* of that size, 2..PS_READ_AHEAD_BUFFERS_MAX; one thread less reads */
};

/* -ENOMEM, -EAGAIN: no thread. */
int ps_read_ahead_open(const struct ps_read_ahead_options *options, struct ps_read_ahead **out);
/* Waits for the next range: *data is valid until the next call, and *bytes 0 at the end of the file. Or
 * -errno of its read, with the store's explanation of it; nothing is to be taken after that. */
int ps_read_ahead_next(struct ps_read_ahead *r, uint8_t **data, size_t *bytes);
/* Waits for reads that have begun. NULL is fine. */
void ps_read_ahead_close(struct ps_read_ahead *r);

#endif
