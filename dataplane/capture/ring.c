#include "dataplane/capture/ring.h"
#include <assert.h>
#include <string.h>
#include <sys/mman.h>

bool dp_ring_create(struct dp_ring *ring, uint64_t bytes)
{
    uint64_t capacity = 4096;
    while (capacity < bytes)
        capacity *= 2;
    void *memory = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    *ring = (struct dp_ring){.bytes = memory, .capacity = capacity};
    return true;
}

void dp_ring_destroy(struct dp_ring *ring)
{
    if (ring->bytes != NULL)
        (void)munmap(ring->bytes, ring->capacity);
    *ring = (struct dp_ring){.bytes = NULL};
}

void dp_ring_put(struct dp_ring *ring, const void *bytes, uint32_t count)
{
    const uint64_t at = ring->end & (ring->capacity - 1);
    const uint64_t before_wrap = ring->capacity - at;
    const size_t head = count < before_wrap ? count : before_wrap;
    assert(count <= dp_ring_room(ring));
    memcpy(ring->bytes + at, bytes, head);
    memcpy(ring->bytes, (const uint8_t *)bytes + head, count - head);
    ring->end += count;
}

bool dp_ring_forget(struct dp_ring *ring, uint64_t position)
{
    if (position < ring->first || position > ring->end)
        return false;
    ring->first = position;
    return true;
}

void dp_ring_peek(const struct dp_ring *ring, uint8_t *out, uint32_t count)
{
    const uint64_t at = ring->first & (ring->capacity - 1);
    const uint64_t before_wrap = ring->capacity - at;
    const size_t head = count < before_wrap ? count : before_wrap;
    assert(count <= ring->end - ring->first);
    memcpy(out, ring->bytes + at, head);
    memcpy(out + head, ring->bytes, count - head);
}
