#include "ps/io/write_pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/base/number.h"
#include "ps/base/counter.h"
#include "ps/io/io_ring.h"
#include "ps/io/io_threads.h"

#define RETRIES_MAX 1000u /* times that the kernel may answer "again" to one write */

/* The write of one buffer. */
struct pool_write {
    struct ps_io_job job;
    struct ps_write_pool *pool;
    struct ps_write_done done; /* what take returns */
    size_t written;            /* a short write continues from here */
    uint32_t retries;
    uint64_t since_us;
    bool was_direct; /* when it was submitted: O_DIRECT may have been dropped since */
    bool is_busy;
};

struct ps_write_pool {
    struct ps_write_pool_options options;
    uint32_t pending_count;
    struct ps_io_ring ring;                        /* where it is open, the kernel writes */
    struct ps_io_threads *threads;                 /* otherwise these, or the caller in their place */
    struct pool_write *writes;                     /* by buffer */
    struct ps_uring_counters *counters, uncounted; /* the first may be the second */
};

static const uint8_t *write_data(const struct pool_write *p)
{
    return p->pool->options.buffers + p->done.buffer * p->pool->options.buffer_bytes;
}

/* Notes whether the write that begins goes past the page cache. */
static void write_note_direct(struct pool_write *p)
{
    const struct ps_write_pool_options *o = &p->pool->options;
    p->was_direct = !o->is_remote && o->store->is_direct(o->files[p->done.file]);
}

/* Repeats a write through the page cache: some file systems refuse O_DIRECT only when they see the write. */
static bool write_may_be_cached(const struct pool_write *p, int error)
{
    const struct ps_store *store = p->pool->options.store;
    struct ps_store_file *file = p->pool->options.files[p->done.file];
    return error == -EINVAL && p->was_direct && (!store->is_direct(file) || store->drop_direct(file) == 0);
}

/* ---- through the store ---- */

static int pool_write_run(struct ps_io_job *job)
{
    struct pool_write *p = MR_CONTAINER(job, struct pool_write, job);
    const struct ps_write_pool_options *o = &p->pool->options;
    struct ps_store_file *file = o->files[p->done.file];
    write_note_direct(p);
    int error = ps_store_write_all(o->store, file, write_data(p), o->buffer_bytes, p->done.offset);
    if (write_may_be_cached(p, error))
        error = ps_store_write_all(o->store, file, write_data(p), o->buffer_bytes, p->done.offset);
    return error;
}

/* ---- by the kernel ---- */

static const char *ring_open(struct ps_write_pool *w)
{
    const struct ps_write_pool_options *o = &w->options;
    const char *note = "no memory for io_uring";
    int *descriptors = calloc(o->file_count, sizeof(*descriptors));
    struct iovec *regions = calloc(o->buffer_count, sizeof(*regions));
    if (!descriptors || !regions)
        goto out;
    note = NULL;
    for (uint32_t i = 0; i < o->file_count; i++) {
        descriptors[i] = o->store->descriptor(o->files[i]);
        if (descriptors[i] < 0)
            goto out; /* no error: the store writes by itself */
    }
    for (uint32_t i = 0; i < o->buffer_count; i++)
        regions[i] = (struct iovec){.iov_base = o->buffers + i * o->buffer_bytes, .iov_len = o->buffer_bytes};
    note = ps_io_ring_open(&w->ring, PS_WRITE_DEPTH, descriptors, o->file_count, regions, o->buffer_count);
out:
    free(descriptors);
    free(regions);
    return note;
}

/* Submits the rest of a write. */
static void ring_put(struct pool_write *p)
{
    struct ps_write_pool *w = p->pool;
    write_note_direct(p);
    ps_io_ring_write(&w->ring, p->done.buffer, p->done.file, p->done.buffer, write_data(p) + p->written,
                     w->options.buffer_bytes - p->written, p->done.offset + p->written);
}

/* True when the write is complete; false when the kernel must continue it. */
static bool write_ended(struct pool_write *p, int result)
{
    if (result > 0) {
        p->written += (size_t)result;
        if (p->written >= p->pool->options.buffer_bytes)
            return true;
    } else if (result == 0) {
        p->done.error = -EIO;
    } else if (result == -EINTR || result == -EAGAIN) {
        p->done.error = ++p->retries > RETRIES_MAX ? result : 0;
    } else if (!write_may_be_cached(p, result)) {
        p->done.error = result;
    }
    if (p->done.error != 0)
        return true;
    ps_counter_add(&p->pool->counters->writes_continued, 1);
    ring_put(p);
    return false;
}

static void pool_count_pending(struct ps_write_pool *w, uint32_t count)
{
    struct ps_uring_counters *c = w->counters;
    w->pending_count = count;
    ps_counter_set(&c->in_flight, w->ring.is_open ? count : 0);
    if (ps_counter_read(&c->in_flight_max) < ps_counter_read(&c->in_flight))
        ps_counter_set(&c->in_flight_max, count);
}

/* What the kernel has not taken is written without it. */
static void pool_leave_ring(struct ps_write_pool *w)
{
    pool_count_pending(w, w->pending_count);
    for (uint32_t buffer = 0; buffer < w->options.buffer_count; buffer++)
        if (w->writes[buffer].is_busy)
            ps_io_threads_put(w->threads, &w->writes[buffer].job);
}

/* Returns a finished write, or NULL. */
static struct pool_write *ring_take(struct ps_write_pool *w, uint32_t wait_us)
{
    uint64_t buffer;
    int result;
    /* Each pending write may be short or refused once more in every round; the bound keeps one call short. */
    for (uint32_t turn = 0; turn < 2 * PS_WRITE_DEPTH; turn++) {
        ps_counter_add(&w->counters->waits, wait_us > 0);
        if (!ps_io_ring_take(&w->ring, wait_us, &buffer, &result)) {
            if (!w->ring.is_open)
                pool_leave_ring(w);
            return NULL;
        }
        if (write_ended(&w->writes[buffer], result))
            return &w->writes[buffer];
    }
    return NULL;
}

/* ---- both ---- */

int ps_write_pool_create(const struct ps_write_pool_options *options, struct ps_write_pool **out,
                         const char **note)
{
    const uint32_t threads = mr_min_u32(options->file_count, options->is_remote ? PS_WRITE_THREADS : 0);
    struct ps_write_pool *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->options = *options;
    w->counters = options->counters ? options->counters : &w->uncounted;
    w->writes = calloc(options->buffer_count, sizeof(*w->writes));
    if (!w->writes || ps_io_threads_create("mr-sender", threads, &w->threads) != 0) {
        ps_write_pool_destroy(w);
        return -ENOMEM;
    }
    *note = options->is_remote ? NULL : ring_open(w);
    *out = w;
    return 0;
}

bool ps_write_pool_ready(const struct ps_write_pool *w)
{
    return w->options.is_remote || w->pending_count < PS_WRITE_DEPTH;
}

uint32_t ps_write_pool_pending(const struct ps_write_pool *w)
{
    return w->pending_count;
}

const char *ps_write_pool_name(const struct ps_write_pool *w)
{
    return w->ring.is_open ? "io_uring" : "plain writes";
}

void ps_write_pool_put(struct ps_write_pool *w, uint32_t file, uint32_t buffer, uint64_t offset)
{
    assert(ps_write_pool_ready(w));
    struct pool_write *p = &w->writes[buffer];
    *p = (struct pool_write){.job = {.run = pool_write_run, .queue = file},
                             .pool = w,
                             .done = {.buffer = buffer, .file = file, .offset = offset},
                             .since_us = mr_clock_us(),
                             .is_busy = true};
    pool_count_pending(w, w->pending_count + 1);
    if (w->ring.is_open)
        ring_put(p);
    else
        ps_io_threads_put(w->threads, &p->job);
}

bool ps_write_pool_take(struct ps_write_pool *w, uint32_t wait_us, struct ps_write_done *done)
{
    if (w->pending_count == 0)
        return false;
    struct pool_write *p = w->ring.is_open ? ring_take(w, wait_us) : NULL;
    struct ps_io_job *job = w->ring.is_open ? NULL : ps_io_threads_take(w->threads, wait_us);
    if (job) {
        p = MR_CONTAINER(job, struct pool_write, job);
        p->done.error = ps_io_job_error(job);
    }
    if (!p)
        return false;
    *done = p->done;
    p->is_busy = false;
    ps_counter_add(w->ring.is_open ? &w->counters->writes : &w->counters->writes_plain, 1);
    ps_counter_add(&w->counters->writes_failed, p->done.error != 0);
    ps_counter_add(&w->counters->write_us, mr_clock_us() - p->since_us);
    pool_count_pending(w, w->pending_count - 1);
    return true;
}

void ps_write_pool_cancel(struct ps_write_pool *w)
{
    ps_io_threads_cancel(w->threads);
}

void ps_write_pool_destroy(struct ps_write_pool *w)
{
    if (!w)
        return;
    struct ps_write_done done;
    while (w->ring.is_open && w->pending_count > 0)
        (void)ps_write_pool_take(w, 10000, &done);
    ps_io_ring_close(&w->ring);
    ps_io_threads_destroy(w->threads);
    free(w->writes);
    free(w);
}
