/* An io_uring with registered files and buffers, of one thread: it puts transfers and takes their results. A
 * call that waits for nothing makes no system call unless something was put since the last one.
 */
#ifndef PS_IO_RING_H
#define PS_IO_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_io_ring {
    struct io_uring uring;
    bool is_open;
    bool is_refused;    /* the kernel takes no more, for good */
    uint32_t in_kernel; /* transfers that it has taken */
    uint32_t refusals;  /* in a row */
};

/* Opens a ring for `depth` transfers at a time. It copies the arrays, which may be empty; the buffers' memory
 * is locked until the ring is closed. Returns NULL, or why it stays closed (static text): what forbids
 * io_uring, and what permits it. */
const char *ps_io_ring_open(struct ps_io_ring *r, uint32_t depth, const int *descriptors, uint32_t file_count,
                            const struct iovec *buffers, uint32_t buffer_count);
/* Fine where it is closed. The kernel reads or writes the buffers of transfers whose result has not come. */
void ps_io_ring_close(struct ps_io_ring *r);
/* Puts a write of bytes that lie in a registered buffer; fewer than `depth` have no result yet. The kernel
 * hears of it by the next ps_io_ring_take(). */
void ps_io_ring_write(struct ps_io_ring *r, uint64_t tag, uint32_t file, uint32_t buffer, const uint8_t *from,
                      size_t bytes, uint64_t offset);
/* Puts a write to any file from any memory whose bytes are durable when its result comes. is_direct: past
 * the page cache, so that nothing is copied; else the kernel copies the bytes on a thread of its own. */
void ps_io_ring_write_durable(struct ps_io_ring *r, uint64_t tag, int descriptor, bool is_direct,
                              const uint8_t *from, size_t bytes, uint64_t offset);
/* Has each result ring this eventfd, which outlives the ring. False: the kernel cannot. */
bool ps_io_ring_notify(struct ps_io_ring *r, int eventfd);
/* Takes the result of one transfer: bytes moved, maybe fewer than asked for, or -errno; waits for it at
 * most wait_us. False: there is none. Once the kernel refuses for good, and has finished what it had taken,
 * the ring closes itself: transfers without a result did not take place. */
bool ps_io_ring_take(struct ps_io_ring *r, uint32_t wait_us, uint64_t *tag, int *result);

#endif
