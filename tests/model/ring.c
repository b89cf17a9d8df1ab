/* ps/base/ring.h: what is put is taken once, in order, with what was written before it; a slot is not
 * written while it is read. The ring has room for one item at first, so that the second takes the place of
 * the oldest; ring_empty.c begins with an empty one.
 */
#include "model.h"

#include "ps/base/ring.h"

#ifndef OLD
#define OLD (PS_RING_CAPACITY - 1)
#endif
#define NEW  2u
#define TAKE 2u

static struct ps_ring ring;
static uint32_t contents[NEW];
static uint32_t put_count, take_count;
static _Atomic bool is_done;

static void *ring_put(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < NEW; i++) {
        contents[i] = OLD + i;
        if (!ps_ring_put(&ring, OLD + i))
            break;
        put_count++;
    }
    atomic_store_explicit(&is_done, true, memory_order_release);
    return NULL;
}

static void *ring_take(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < TAKE; i++) {
        uintptr_t item;
        const uint32_t least = ps_ring_count(&ring);
        const bool is_taken = ps_ring_take(&ring, &item);
        assert(is_taken || (least == 0 && i >= OLD));
        if (!is_taken)
            break;
        assert(item == i);
        assert(i < OLD || contents[i - OLD] == i);
        take_count++;
    }
    /* A checkpoint's thread is through once the core is and the ring is empty: nothing is put after that. */
    const bool was_done = atomic_load_explicit(&is_done, memory_order_acquire);
    const uint32_t count = ps_ring_count(&ring);
    assert(!was_done || count == OLD + put_count - take_count);
    assert(count + take_count >= OLD && count + take_count <= OLD + NEW);
    return NULL;
}

static void model_run(void)
{
    const uint32_t first = UINT32_MAX - 1; /* the counts wrap around in between */
    uintptr_t item;
    atomic_store(&ring.take_count, first);
    atomic_store(&ring.put_count, first + OLD);
    for (uint32_t i = 0; i < OLD; i++)
        ring.items[(first + i) % PS_RING_CAPACITY] = i;
    put_count = take_count = 0;
    atomic_store(&is_done, false);
    const pthread_t producer = model_start(ring_put, NULL), consumer = model_start(ring_take, NULL);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
    assert(put_count >= 1);
    for (uint32_t i = take_count; i < OLD + put_count; i++) {
        assert(ps_ring_take(&ring, &item));
        assert(item == i);
        assert(i < OLD || contents[i - OLD] == i);
    }
    assert(!ps_ring_take(&ring, &item));
}
