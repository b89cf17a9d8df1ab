/* A ring of bytes that are addressed by how many came before them. What is put stays until it is given up;
 * where there is no room, nothing is put. One thread. */
#ifndef DP_CAPTURE_RING_H
#define DP_CAPTURE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dp_ring {
    uint8_t *bytes;
    uint64_t capacity;   /* a power of two */
    uint64_t first, end; /* of what it has */
};

/* Takes that much memory from the kernel, rounded up to a power of two; pages are there as they are written.
 * False: there is none. */
bool dp_ring_create(struct dp_ring *ring, uint64_t bytes);
void dp_ring_destroy(struct dp_ring *ring);

static inline uint64_t dp_ring_room(const struct dp_ring *ring)
{
    return ring->capacity - (ring->end - ring->first);
}
/* Puts bytes for which there is room. */
void dp_ring_put(struct dp_ring *ring, const void *bytes, uint32_t count);
/* Gives up what comes before `position`. False: the ring has not come so far, or it is given up already. */
bool dp_ring_forget(struct dp_ring *ring, uint64_t position);
/* Copies the oldest bytes, `count` of those that there are. */
void dp_ring_peek(const struct dp_ring *ring, uint8_t *out, uint32_t count);

#endif
