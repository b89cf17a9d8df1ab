/* The bytes of a copy (ps/move/copy_source.h) between the one who makes them and the backup that reads them:
 * a stream with positions from 1 on, of which a bounded part is kept, from what the backup has applied to the
 * last record. A record is put piece by piece and is there once it is complete, or never. One thread. */
#ifndef PS_COPY_RING_H
#define PS_COPY_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The positions are those of the first byte that is kept, of the end of the last complete record, and of the
 * end of what was put. */
struct ps_copy_ring {
    uint8_t *bytes;
    size_t room;
    uint64_t begin, end, put;
    uint64_t base; /* a position whose byte is the first of `bytes` */
    bool is_full;  /* a record did not fit: nothing is put any more */
};

/* False: no memory. Memory that was never used stays the kernel's. */
bool ps_copy_ring_init(struct ps_copy_ring *r, size_t room);
void ps_copy_ring_free(struct ps_copy_ring *r);

/* Puts bytes of the record, and zeros up to 8 bytes. If they do not fit, is_full is set, and the record is
 * never complete. */
void ps_copy_ring_put(struct ps_copy_ring *r, const void *bytes, size_t count);
void ps_copy_ring_pad(struct ps_copy_ring *r);
/* The record is complete, or is to be forgotten. */
void ps_copy_ring_commit(struct ps_copy_ring *r);
void ps_copy_ring_cancel(struct ps_copy_ring *r);

/* Everything before this position has been applied. False: there is no such position. */
bool ps_copy_ring_trim(struct ps_copy_ring *r, uint64_t position);
/* Returns where the bytes from ps_copy_ring.begin on are, of complete records only, and how many of them,
 * `max` at most. Fewer than there are where the ring is joined. */
const uint8_t *ps_copy_ring_read(const struct ps_copy_ring *r, size_t max, size_t *count);
/* Of complete records. */
static inline uint64_t ps_copy_ring_kept(const struct ps_copy_ring *r)
{
    return r->end - r->begin;
}

#endif
