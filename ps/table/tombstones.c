#include "ps/table/tombstones.h"

#include <assert.h>
#include <string.h>
#include "ps/memory/size_classes.h"

#define SLOTS_MIN      8u
#define LOAD_NUM       3u /* of a segment's slots, so many are taken at most */
#define LOAD_DEN       4u
#define SEGMENT_BITS   10u
#define SEGMENTS_BYTES (PS_TOMBSTONE_SEGMENTS * sizeof(struct ps_tombstone_segment))

static_assert(PS_TOMBSTONE_SEGMENTS == 1u << SEGMENT_BITS, "a segment by bits of the hash");
static_assert(PS_TOMBSTONE_SEGMENT_SLOTS_MAX * sizeof(uint64_t) <= PS_PIECE_BYTES_MAX,
              "a segment is a piece");
static_assert(SEGMENTS_BYTES <= PS_PIECE_BYTES_MAX, "and so are all their heads");

void ps_tombstones_init(struct ps_tombstones *g, struct ps_arena *arena, const struct ps_key_hasher *hasher)
{
    *g = (struct ps_tombstones){.arena = arena, .hasher = *hasher};
}

static void segment_free(struct ps_tombstones *g, struct ps_tombstone_segment *s)
{
    if (s->slots != NULL)
        ps_arena_piece_free(g->arena, s->slots, s->slot_count * sizeof(*s->slots));
    *s = (struct ps_tombstone_segment){.slots = NULL};
}

void ps_tombstones_clear(struct ps_tombstones *g)
{
    for (uint32_t i = 0; g->segments != NULL && i < PS_TOMBSTONE_SEGMENTS; i++)
        segment_free(g, &g->segments[i]);
    if (g->segments != NULL)
        ps_arena_piece_free(g->arena, g->segments, SEGMENTS_BYTES);
    const struct ps_key_hasher hasher = g->hasher;
    ps_tombstones_init(g, g->arena, &hasher);
}

bool ps_tombstones_clear_some(struct ps_tombstones *g, uint32_t pieces)
{
    if (g->segments == NULL)
        return false;
    struct ps_arena_slice slice = ps_arena_slice_begin(g->arena, pieces);
    for (uint32_t i = 0; i < PS_TOMBSTONE_SEGMENTS; i++) {
        if (g->segments[i].slots == NULL)
            continue;
        if (!ps_arena_slice_take(&slice))
            return true;
        segment_free(g, &g->segments[i]);
    }
    return false;
}

/* The hash's upper bits name the partition: with several cores a table has keys of some of them only. */
static struct ps_tombstone_segment *segment_of(const struct ps_tombstones *g, uint64_t hash)
{
    return &g->segments[hash & (PS_TOMBSTONE_SEGMENTS - 1)];
}

static uint32_t slot_of(const struct ps_tombstone_segment *s, uint64_t hash)
{
    return (uint32_t)(hash >> SEGMENT_BITS) & (s->slot_count - 1);
}

/* The key's slot, or the free one where it belongs; one is free. */
static uint32_t slot_find(const struct ps_tombstone_segment *s, uint64_t key, uint64_t hash)
{
    uint32_t slot = slot_of(s, hash);
    while (s->slots[slot] != 0 && s->slots[slot] != key)
        slot = (slot + 1) & (s->slot_count - 1);
    return slot;
}

static bool segment_grow(struct ps_tombstones *g, struct ps_tombstone_segment *s)
{
    struct ps_tombstone_segment grown = {.slot_count = s->slot_count == 0 ? SLOTS_MIN : 2 * s->slot_count,
                                         .count = s->count};
    if (grown.slot_count > PS_TOMBSTONE_SEGMENT_SLOTS_MAX)
        return false;
    grown.slots = ps_arena_piece_alloc(g->arena, grown.slot_count * sizeof(*grown.slots));
    if (grown.slots == NULL)
        return false;
    memset(grown.slots, 0, grown.slot_count * sizeof(*grown.slots));
    for (uint32_t i = 0; i < s->slot_count; i++)
        if (s->slots[i] != 0)
            grown.slots[slot_find(&grown, s->slots[i], ps_placed_hash(&g->hasher, s->slots[i]))] =
                s->slots[i];
    segment_free(g, s);
    *s = grown;
    return true;
}

static bool segments_begin(struct ps_tombstones *g)
{
    g->segments = ps_arena_piece_alloc(g->arena, SEGMENTS_BYTES);
    if (g->segments != NULL)
        memset(g->segments, 0, SEGMENTS_BYTES);
    return g->segments != NULL;
}

/* False when there is no room. */
static bool key_add(struct ps_tombstones *g, uint64_t key, uint64_t hash)
{
    if (key == 0) {
        g->count += !g->has_zero;
        g->has_zero = true;
        return true;
    }
    if (g->segments == NULL && !segments_begin(g))
        return false;
    struct ps_tombstone_segment *s = segment_of(g, hash);
    if ((s->count + 1) * LOAD_DEN > s->slot_count * LOAD_NUM && !segment_grow(g, s))
        return false;
    uint32_t slot = slot_find(s, key, hash);
    if (s->slots[slot] == 0) {
        s->slots[slot] = key;
        s->count++;
        g->count++;
    }
    return true;
}

bool ps_tombstones_add(struct ps_tombstones *g, uint64_t key, uint64_t hash, uint64_t keys_max)
{
    if (g->count < keys_max && key_add(g, key, hash))
        return true;
    ps_tombstones_clear(g);
    return false;
}

/* Closes the gap: a key after it moves up unless that would take it before its first slot. */
static void slot_free(const struct ps_tombstones *g, const struct ps_tombstone_segment *s, uint32_t gap)
{
    uint32_t mask = s->slot_count - 1;
    for (uint32_t at = (gap + 1) & mask; s->slots[at] != 0; at = (at + 1) & mask) {
        uint32_t first = slot_of(s, ps_placed_hash(&g->hasher, s->slots[at]));
        if (((at - first) & mask) >= ((at - gap) & mask)) {
            s->slots[gap] = s->slots[at];
            gap = at;
        }
    }
    s->slots[gap] = 0;
}

void ps_tombstones_remove(struct ps_tombstones *g, uint64_t key, uint64_t hash)
{
    if (key == 0) {
        g->count -= g->has_zero;
        g->has_zero = false;
        return;
    }
    if (g->segments == NULL)
        return;
    struct ps_tombstone_segment *s = segment_of(g, hash);
    uint32_t slot = s->count > 0 ? slot_find(s, key, hash) : 0;
    if (s->count == 0 || s->slots[slot] == 0)
        return;
    slot_free(g, s, slot);
    s->count--;
    g->count--;
}

uint32_t ps_tombstones_take(struct ps_tombstones *g, uint64_t *keys, uint32_t keys_max)
{
    uint32_t taken = 0;
    if (g->has_zero) {
        keys[taken++] = 0;
        g->has_zero = false;
    }
    while (taken < keys_max && g->count > taken) {
        struct ps_tombstone_segment *s = &g->segments[g->segment_at];
        for (; taken < keys_max && g->slot < s->slot_count; g->slot++)
            if (s->slots[g->slot] != 0)
                keys[taken++] = s->slots[g->slot];
        if (g->slot == s->slot_count) {
            segment_free(g, s);
            g->segment_at++;
            g->slot = 0;
        }
    }
    g->count -= taken;
    if (g->count == 0)
        ps_tombstones_clear(g);
    return taken;
}
