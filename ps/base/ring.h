/* A ring of numbers or pointers between exactly one thread that puts and one that takes. Lock-free, no
 * allocation, never blocks. Zero is an empty ring.
 */
#ifndef PS_RING_H
#define PS_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PS_RING_CAPACITY 64u /* a power of two */
#define PS_RING_APART    64u /* bytes: the two threads write to different cache lines */

struct ps_ring {
    _Atomic uint32_t put_count; /* written by the putting thread only */
    uint8_t apart[PS_RING_APART];
    _Atomic uint32_t take_count; /* written by the taking thread only */
    uint8_t apart_too[PS_RING_APART];
    uintptr_t items[PS_RING_CAPACITY];
};

/* False when full. The release makes everything written before visible to the thread that takes. */
static inline bool ps_ring_put(struct ps_ring *ring, uintptr_t item)
{
    uint32_t put = atomic_load_explicit(&ring->put_count, memory_order_relaxed);
    if (put - atomic_load_explicit(&ring->take_count, memory_order_acquire) == PS_RING_CAPACITY)
        return false;
    ring->items[put % PS_RING_CAPACITY] = item;
    atomic_store_explicit(&ring->put_count, put + 1, memory_order_release);
    return true;
}

/* False when empty. */
static inline bool ps_ring_take(struct ps_ring *ring, uintptr_t *item)
{
    uint32_t take = atomic_load_explicit(&ring->take_count, memory_order_relaxed);
    if (take == atomic_load_explicit(&ring->put_count, memory_order_acquire))
        return false;
    *item = ring->items[take % PS_RING_CAPACITY];
    atomic_store_explicit(&ring->take_count, take + 1, memory_order_release);
    return true;
}

/* As the taking thread sees it: at least this many can be taken. */
static inline uint32_t ps_ring_count(const struct ps_ring *ring)
{
    return atomic_load_explicit(&ring->put_count, memory_order_acquire) -
           atomic_load_explicit(&ring->take_count, memory_order_relaxed);
}

#endif
