/* Reads of a store's files ahead, several at a time, and hands them out in their order: a disk or a store
 * that answers each request after a while is fast only so, and what came is worked on meanwhile. What a
 * read brought can be checked on the thread that read it.
 *
 * One thread opens, takes, releases and closes.
 */
#ifndef PS_READ_POOL_H
#define PS_READ_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/io/io_threads.h"
#include "ps/io/store.h"

#define PS_READ_ALIGN 4096u /* of buffers, as O_DIRECT wants it */

struct ps_read {
    /* what next() fills in */
    struct ps_store_file *file; /* open until the pool is closed */
    uint64_t offset;
    size_t bytes; /* at most a buffer */
    uint64_t tag; /* the user's */
    /* the pool's */
    uint8_t *data;
    const char *wrong; /* what check() returned */
};

struct ps_read_pool_options {
    const struct ps_store *store;
    const char *thread_name; /* static, 15 bytes */
    uint32_t thread_count;   /* at most PS_IO_THREADS_MAX; 0, or none can be had: the caller reads */
    uint32_t buffer_count;
    size_t buffer_bytes; /* a multiple of PS_READ_ALIGN */
    /* Says what is read next. False: nothing is. In open and release. */
    bool (*next)(void *arg, struct ps_read *read);
    /* Says what is wrong with it (static text), NULL: nothing. On any thread, of several reads at once. NULL:
     * not called. */
    const char *(*check)(void *arg, const struct ps_read *read);
    void *arg;
};

struct ps_read_pool;

/* Begins to read. 0 or -ENOMEM. */
int ps_read_pool_open(const struct ps_read_pool_options *options, struct ps_read_pool **out);
/* Waits for those that have begun. NULL is fine. */
void ps_read_pool_close(struct ps_read_pool *p);
/* Waits for the next read in the order. Its data is valid until it is released. 0; -errno with the store's
 * explanation of it; -EBADMSG, and read->wrong says what is wrong; in these cases nothing is to be taken any
 * more. *read NULL: all have been taken. */
int ps_read_pool_take(struct ps_read_pool *p, const struct ps_read **read);
/* The oldest `count` of those that were taken and not released are no longer needed: their buffers are read
 * into. */
void ps_read_pool_release(struct ps_read_pool *p, uint64_t count);

#endif
