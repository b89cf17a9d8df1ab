#include "ps/move/copy_ring.h"

#include <stdlib.h>
#include <string.h>

bool ps_copy_ring_init(struct ps_copy_ring *r, size_t room)
{
    *r = (struct ps_copy_ring){.room = room, .begin = 1, .end = 1, .put = 1, .base = 1};
    r->bytes = malloc(room);
    return r->bytes != NULL;
}

void ps_copy_ring_free(struct ps_copy_ring *r)
{
    free(r->bytes);
    r->bytes = NULL;
    r->room = 0;
}

static size_t ring_place(const struct ps_copy_ring *r, uint64_t position)
{
    return (size_t)((position - r->base) % r->room);
}

void ps_copy_ring_put(struct ps_copy_ring *r, const void *bytes, size_t count)
{
    r->is_full |= count > r->room - (size_t)(r->put - r->begin);
    if (r->is_full || count == 0)
        return;
    const size_t at = ring_place(r, r->put), first = count < r->room - at ? count : r->room - at;
    memcpy(r->bytes + at, bytes, first);
    memcpy(r->bytes, (const uint8_t *)bytes + first, count - first);
    r->put += count;
}

void ps_copy_ring_pad(struct ps_copy_ring *r)
{
    static const uint8_t zeros[8];
    ps_copy_ring_put(r, zeros, (size_t)(-(r->put - r->end) & 7));
}

void ps_copy_ring_commit(struct ps_copy_ring *r)
{
    if (r->is_full)
        r->put = r->end;
    r->end = r->put;
}

void ps_copy_ring_cancel(struct ps_copy_ring *r)
{
    r->put = r->end;
}

/* An empty ring begins with its first byte again: a backup that keeps up needs little memory, and a warm
 * one. */
bool ps_copy_ring_trim(struct ps_copy_ring *r, uint64_t position)
{
    if (position < r->begin || position > r->end)
        return false;
    r->begin = position;
    if (r->begin == r->put)
        r->base = r->begin;
    return true;
}

const uint8_t *ps_copy_ring_read(const struct ps_copy_ring *r, size_t max, size_t *count)
{
    const size_t at = ring_place(r, r->begin), kept = (size_t)(r->end - r->begin);
    size_t n = kept < r->room - at ? kept : r->room - at;
    *count = n < max ? n : max;
    return r->bytes + at;
}
