#include "ps/io/io_ring.h"

#include <assert.h>
#include <errno.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"

#define REFUSALS_MAX 1000u /* times in a row that the kernel may answer "again" */

static const char *refusal_text(int error)
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
    return result < 0 ? refusal_text(result) : NULL;
}

const char *ps_io_ring_open(struct ps_io_ring *r, uint32_t depth, const int *descriptors, uint32_t file_count,
                            const struct iovec *buffers, uint32_t buffer_count)
{
    *r = (struct ps_io_ring){0};
    const int refused = io_uring_queue_init(depth, &r->uring, 0);
    if (refused != 0)
        return refusal_text(refused);
    const char *note;
    if (buffer_count > 0 && io_uring_register_buffers(&r->uring, buffers, buffer_count) != 0)
        note = "buffers cannot be registered with io_uring (raise the memory lock limit: ulimit -l)";
    else if (file_count > 0 && io_uring_register_files(&r->uring, descriptors, file_count) != 0)
        note = "files cannot be registered with io_uring";
    else
        note = ring_try(&r->uring);
    r->is_open = true;
    if (note)
        ps_io_ring_close(r);
    return note;
}

void ps_io_ring_close(struct ps_io_ring *r)
{
    if (r->is_open)
        io_uring_queue_exit(&r->uring);
    r->is_open = false;
}

void ps_io_ring_write(struct ps_io_ring *r, uint64_t tag, uint32_t file, uint32_t buffer, const uint8_t *from,
                      size_t bytes, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    assert(sqe); /* there is a place for each transfer */
    io_uring_prep_write_fixed(sqe, (int)file, from, (unsigned)bytes, offset, (int)buffer);
    io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, tag);
}

void ps_io_ring_write_durable(struct ps_io_ring *r, uint64_t tag, int descriptor, bool is_direct,
                              const uint8_t *from, size_t bytes, uint64_t offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    assert(sqe);
    io_uring_prep_write(sqe, descriptor, from, (unsigned)bytes, offset);
    sqe->rw_flags = RWF_DSYNC;
    if (!is_direct)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data64(sqe, tag);
}

bool ps_io_ring_notify(struct ps_io_ring *r, int eventfd)
{
    return r->is_open && io_uring_register_eventfd(&r->uring, eventfd) == 0;
}

static bool refusal_passes(int error)
{
    return error == -EAGAIN || error == -EBUSY || error == -EINTR || error == -ETIME;
}

/* Nothing has come. An error that lasts would come again for ever: the ring is left once the kernel has
 * nothing of it any more, and until then nobody spins. */
static void ring_judge(struct ps_io_ring *r, int submitted, int waited, uint32_t wait_us)
{
    const struct timespec pause = mr_span_us(wait_us);
    const bool is_refusal = submitted < 0 || !(waited == 0 || refusal_passes(waited));
    r->refusals = is_refusal ? r->refusals + 1 : 0;
    if (!is_refusal)
        return;
    r->is_refused =
        r->is_refused || r->refusals > REFUSALS_MAX || !refusal_passes(submitted < 0 ? submitted : waited);
    if (r->is_refused && r->in_kernel == 0)
        ps_io_ring_close(r);
    else if (wait_us > 0)
        (void)nanosleep(&pause, NULL);
}

bool ps_io_ring_take(struct ps_io_ring *r, uint32_t wait_us, uint64_t *tag, int *result)
{
    const int submitted = io_uring_submit(&r->uring);
    r->in_kernel += submitted > 0 ? (uint32_t)submitted : 0;
    struct io_uring_cqe *cqe = NULL;
    struct __kernel_timespec wait = {.tv_nsec = (long long)wait_us * 1000};
    const int none = wait_us > 0 && submitted >= 0 ? io_uring_wait_cqe_timeout(&r->uring, &cqe, &wait)
                                                   : io_uring_peek_cqe(&r->uring, &cqe);
    if (none != 0 || !cqe) {
        ring_judge(r, submitted, none, wait_us);
        return false;
    }
    r->refusals = 0;
    r->in_kernel--;
    *tag = io_uring_cqe_get_data64(cqe);
    *result = cqe->res;
    io_uring_cqe_seen(&r->uring, cqe);
    return true;
}
