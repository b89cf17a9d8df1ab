/* A ring of buffer numbers between exactly one thread that puts and one that takes. Lock-free, no allocation,
 * never blocks. A ring of capacity n holds every one of n buffers, so putting back what was taken never
 * fails.
 */
#ifndef PS_BUFFER_RING_H
#define PS_BUFFER_RING_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PS_BUFFER_RING_CAPACITY 64u /* a power of two */

struct ps_buffer_ring {
    alignas(64) _Atomic uint32_t put_count;  /* written by the putting thread only */
    alignas(64) _Atomic uint32_t take_count; /* written by the taking thread only */
    alignas(64) uint32_t buffers[PS_BUFFER_RING_CAPACITY];
};

/* False when full. The release makes everything written before visible to the thread that takes. */
static inline bool ps_buffer_ring_put(struct ps_buffer_ring *ring, uint32_t buffer)
{
    uint32_t put = atomic_load_explicit(&ring->put_count, memory_order_relaxed);
    if (put - atomic_load_explicit(&ring->take_count, memory_order_acquire) == PS_BUFFER_RING_CAPACITY)
        return false;
    ring->buffers[put % PS_BUFFER_RING_CAPACITY] = buffer;
    atomic_store_explicit(&ring->put_count, put + 1, memory_order_release);
    return true;
}

/* False when empty. */
static inline bool ps_buffer_ring_take(struct ps_buffer_ring *ring, uint32_t *buffer)
{
    uint32_t take = atomic_load_explicit(&ring->take_count, memory_order_relaxed);
    if (take == atomic_load_explicit(&ring->put_count, memory_order_acquire))
        return false;
    *buffer = ring->buffers[take % PS_BUFFER_RING_CAPACITY];
    atomic_store_explicit(&ring->take_count, take + 1, memory_order_release);
    return true;
}

/* As the taking thread sees it: at least this many can be taken. */
static inline uint32_t ps_buffer_ring_count(const struct ps_buffer_ring *ring)
{
    return atomic_load_explicit(&ring->put_count, memory_order_acquire) -
           atomic_load_explicit(&ring->take_count, memory_order_relaxed);
}

#endif
