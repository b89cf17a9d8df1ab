#include "ps/checkpoint/uring_writer.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>
#include "dataplane/wire/base/clock.h"
#include "ps/base/counter.h"

#define RETRIES_MAX 1000u /* times that the kernel may answer "again" to one write */

struct pending_write {
    struct ps_write_done done; /* what reap returns */
    size_t written;            /* a short write continues from here */
    uint32_t retries;
    uint64_t since_us;
    bool was_direct; /* when it was submitted: O_DIRECT may have been dropped since */
    bool busy;
};

struct ps_uring_writer {
    const struct ps_store *store;
    struct ps_store_file *const *files;
    uint8_t *buffers;
    size_t buffer_bytes;
    uint32_t pending_count;
    bool kernel;                       /* the ring below is in use */
    bool is_refused;                   /* ... until what the kernel has is done: it takes no more */
    uint32_t in_kernel;                /* writes that it has taken */
    uint32_t refusals;                 /* in a row */
    uint32_t finished[PS_URING_DEPTH]; /* plain writes wait here for reap, first in first out */
    uint32_t finished_put, finished_take;
    struct pending_write writes[PS_URING_DEPTH];
    struct ps_uring_counters *counters, uncounted; /* the first may be the second */
    struct io_uring ring;
};

static const char *describe_refusal(int error)
{
    switch (error) {
    case -ENOSYS:
        return "this kernel has no io_uring";
    case -ENOMEM:
        return "no memory for io_uring (raise the memory lock limit: ulimit -l, LimitMEMLOCK=)";
    case -EMFILE:
    case -ENFILE:
        return "no file descriptor left for io_uring (ulimit -n, LimitNOFILE=)";
    default:
        return "io_uring is not allowed here (sysctl kernel.io_uring_disabled, or a seccomp filter)";
    }
}

/* A filter may allow to make a ring, and not to use it. */
static const char *ring_try(struct io_uring *ring)
{
    struct io_uring_cqe *cqe = NULL;
    io_uring_prep_nop(io_uring_get_sqe(ring));
    int result = io_uring_submit_and_wait(ring, 1);
    if (result >= 0)
        result = io_uring_peek_cqe(ring, &cqe);
    if (cqe)
        io_uring_cqe_seen(ring, cqe);
    return result < 0 ? describe_refusal(result) : NULL;
}

static const char *ring_start(struct ps_uring_writer *w, uint32_t file_count, uint32_t buffer_count)
{
    const char *note = NULL;
    int *descriptors = calloc(file_count, sizeof(*descriptors));
    struct iovec *regions = calloc(buffer_count, sizeof(*regions));
    if (!descriptors || !regions) {
        note = "no memory for io_uring";
        goto out;
    }
    for (uint32_t i = 0; i < file_count; i++) {
        descriptors[i] = w->store->descriptor(w->files[i]);
        if (descriptors[i] < 0)
            goto out; /* no error: the store writes by itself */
    }
    for (uint32_t i = 0; i < buffer_count; i++)
        regions[i] = (struct iovec){.iov_base = w->buffers + i * w->buffer_bytes, .iov_len = w->buffer_bytes};

    const int refused = io_uring_queue_init(PS_URING_DEPTH, &w->ring, 0);
    if (refused != 0) {
        note = describe_refusal(refused);
        goto out;
    }
    if (io_uring_register_buffers(&w->ring, regions, buffer_count) != 0)
        note = "buffers cannot be registered with io_uring (raise the memory lock limit: ulimit -l)";
    else if (io_uring_register_files(&w->ring, descriptors, file_count) != 0)
        note = "files cannot be registered with io_uring";
    else
        note = ring_try(&w->ring);
    if (note)
        io_uring_queue_exit(&w->ring);
    else
        w->kernel = true;
out:
    free(descriptors);
    free(regions);
    return note;
}

int ps_uring_writer_create(const struct ps_store *store, struct ps_store_file *const *files,
                           uint32_t file_count, uint8_t *buffers, uint32_t buffer_count, size_t buffer_bytes,
                           struct ps_uring_writer **out, const char **note)
{
    struct ps_uring_writer *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->store = store;
    w->files = files;
    w->buffers = buffers;
    w->buffer_bytes = buffer_bytes;
    w->counters = &w->uncounted;
    *note = ring_start(w, file_count, buffer_count);
    *out = w;
    return 0;
}

void ps_uring_writer_count(struct ps_uring_writer *w, struct ps_uring_counters *counters)
{
    w->counters = counters;
}

bool ps_uring_writer_ready(const struct ps_uring_writer *w)
{
    return w->pending_count < PS_URING_DEPTH;
}

uint32_t ps_uring_writer_pending(const struct ps_uring_writer *w)
{
    return w->pending_count;
}

const char *ps_uring_writer_name(const struct ps_uring_writer *w)
{
    return w->kernel ? "io_uring" : "plain writes";
}

/* Submits the rest of a write. The submission queue has a place for every write, so one is always free. */
static void queue_rest(struct ps_uring_writer *w, uint32_t slot)
{
    struct pending_write *p = &w->writes[slot];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
    assert(sqe);
    const uint8_t *from = w->buffers + p->done.buffer * w->buffer_bytes + p->written;
    io_uring_prep_write_fixed(sqe, (int)p->done.file, from, (unsigned)(w->buffer_bytes - p->written),
                              p->done.offset + p->written, (int)p->done.buffer);
    io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, slot);
    p->was_direct = w->store->is_direct(w->files[p->done.file]);
}

/* Repeats a write through the page cache: some file systems refuse O_DIRECT only when they see the write. */
static bool retry_buffered(struct ps_uring_writer *w, uint32_t file, bool was_direct, int error)
{
    struct ps_store_file *f = w->files[file];
    return error == -EINVAL && was_direct && (!w->store->is_direct(f) || w->store->drop_direct(f) == 0);
}

static void write_now(struct ps_uring_writer *w, uint32_t slot)
{
    struct ps_write_done *done = &w->writes[slot].done;
    const uint8_t *from = w->buffers + done->buffer * w->buffer_bytes;
    struct ps_store_file *file = w->files[done->file];
    const bool was_direct = w->store->is_direct(file);
    done->error = ps_store_write_all(w->store, file, from, w->buffer_bytes, done->offset);
    if (retry_buffered(w, done->file, was_direct, done->error))
        done->error = ps_store_write_all(w->store, file, from, w->buffer_bytes, done->offset);
    w->finished[w->finished_put++ % PS_URING_DEPTH] = slot;
}

static void count_pending(struct ps_uring_writer *w, uint32_t count)
{
    struct ps_uring_counters *c = w->counters;
    w->pending_count = count;
    ps_counter_set(&c->in_flight, w->kernel ? count : 0);
    if (ps_counter_read(&c->in_flight_max) < ps_counter_read(&c->in_flight))
        ps_counter_set(&c->in_flight_max, count);
}

static void count_done(const struct ps_uring_writer *w, const struct pending_write *p)
{
    struct ps_uring_counters *c = w->counters;
    ps_counter_add(w->kernel ? &c->writes : &c->writes_plain, 1);
    ps_counter_add(&c->writes_failed, p->done.error != 0);
    ps_counter_add(&c->write_us, mr_clock_us() - p->since_us);
}

void ps_uring_writer_put(struct ps_uring_writer *w, uint32_t file, uint32_t buffer, uint64_t offset)
{
    assert(ps_uring_writer_ready(w));
    uint32_t slot = 0;
    while (w->writes[slot].busy)
        slot++;
    w->writes[slot] = (struct pending_write){
        .done = {.buffer = buffer, .file = file, .offset = offset}, .since_us = mr_clock_us(), .busy = true};
    count_pending(w, w->pending_count + 1);
    if (w->kernel)
        queue_rest(w, slot);
    else
        write_now(w, slot);
}

/* True when the write is complete; false when the kernel must continue it. */
static bool write_ended(struct ps_uring_writer *w, uint32_t slot, int result)
{
    struct pending_write *p = &w->writes[slot];
    if (result > 0) {
        p->written += (size_t)result;
        if (p->written >= w->buffer_bytes)
            return true;
    } else if (result == 0) {
        p->done.error = -EIO;
    } else if (result == -EINTR || result == -EAGAIN) {
        p->done.error = ++p->retries > RETRIES_MAX ? result : 0;
    } else if (!retry_buffered(w, p->done.file, p->was_direct, result)) {
        p->done.error = result;
    }
    if (p->done.error != 0)
        return true;
    ps_counter_add(&w->counters->writes_continued, 1);
    queue_rest(w, slot);
    return false;
}

/* What the kernel has not taken is written without it. */
static void ring_leave(struct ps_uring_writer *w)
{
    io_uring_queue_exit(&w->ring);
    w->kernel = false;
    count_pending(w, w->pending_count);
    for (uint32_t slot = 0; slot < PS_URING_DEPTH; slot++)
        if (w->writes[slot].busy)
            write_now(w, slot);
}

static bool is_for_the_moment(int error)
{
    return error == -EAGAIN || error == -EBUSY || error == -EINTR || error == -ETIME;
}

/* Nothing has come. An error that lasts would come again for ever: the ring is left once the kernel has
 * nothing of it any more, and until then nobody spins. */
static void ring_judge(struct ps_uring_writer *w, int submitted, int waited, uint32_t wait_us)
{
    const struct timespec pause = mr_span_us(wait_us);
    const bool is_refusal = submitted < 0 || !(waited == 0 || is_for_the_moment(waited));
    w->refusals = is_refusal ? w->refusals + 1 : 0;
    if (!is_refusal)
        return;
    w->is_refused =
        w->is_refused || w->refusals > RETRIES_MAX || !is_for_the_moment(submitted < 0 ? submitted : waited);
    if (w->is_refused && w->in_kernel == 0)
        ring_leave(w);
    else if (wait_us > 0)
        (void)nanosleep(&pause, NULL);
}

/* Returns the slot of a finished write, or PS_URING_DEPTH. */
static uint32_t reap_kernel(struct ps_uring_writer *w, uint32_t wait_us)
{
    /* Each pending write may be short or refused once more in every round; the bound keeps one call short. */
    for (uint32_t turn = 0; turn < 2 * PS_URING_DEPTH; turn++) {
        const int submitted = io_uring_submit(&w->ring);
        w->in_kernel += submitted > 0 ? (uint32_t)submitted : 0;
        struct io_uring_cqe *cqe = NULL;
        struct __kernel_timespec wait = {.tv_nsec = (long long)wait_us * 1000};
        ps_counter_add(&w->counters->waits, wait_us > 0);
        int none = wait_us > 0 && submitted >= 0 ? io_uring_wait_cqe_timeout(&w->ring, &cqe, &wait)
                                                 : io_uring_peek_cqe(&w->ring, &cqe);
        if (none != 0 || !cqe) {
            ring_judge(w, submitted, none, wait_us);
            return PS_URING_DEPTH;
        }
        w->refusals = 0;
        w->in_kernel--;
        uint32_t slot = (uint32_t)io_uring_cqe_get_data64(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&w->ring, cqe);
        if (write_ended(w, slot, result))
            return slot;
    }
    return PS_URING_DEPTH;
}

bool ps_uring_writer_reap(struct ps_uring_writer *w, uint32_t wait_us, struct ps_write_done *done)
{
    if (w->pending_count == 0)
        return false;
    uint32_t slot = PS_URING_DEPTH;
    if (w->kernel)
        slot = reap_kernel(w, wait_us);
    if (!w->kernel && w->finished_take != w->finished_put)
        slot = w->finished[w->finished_take++ % PS_URING_DEPTH];
    if (slot == PS_URING_DEPTH)
        return false;
    *done = w->writes[slot].done;
    count_done(w, &w->writes[slot]);
    w->writes[slot].busy = false;
    count_pending(w, w->pending_count - 1);
    return true;
}

void ps_uring_writer_destroy(struct ps_uring_writer *w)
{
    if (!w)
        return;
    struct ps_write_done done;
    while (w->pending_count > 0)
        (void)ps_uring_writer_reap(w, 10000, &done);
    if (w->kernel)
        io_uring_queue_exit(&w->ring);
    free(w);
}
