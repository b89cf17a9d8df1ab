/* Keys whose rows a table has removed since the last cut: what a checkpoint of changes has to say besides the
 * rows that changed.
 *
 * A set of keys, by linear probing: a key whose row is made again is taken out, so that at any instant
 * the set is exactly the keys that had a row and have none now (or were made and removed since the last cut:
 * then it says more than is needed). It is cut into segments by the hash, which grow one at a time, so that
 * no removal waits for more than one small copy. A key takes 8 bytes, and 14 with the places that are free,
 * on average.
 *
 * Bounded twice: by a number of keys, given with each, and by its arena. What finds no room makes the whole
 * set worthless: it is dropped, and says so. Belongs to one thread.
 */
#ifndef PS_TOMBSTONES_H
#define PS_TOMBSTONES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/base/key_hash.h"
#include "ps/memory/arena.h"

#define PS_TOMBSTONE_SEGMENTS          1024u
#define PS_TOMBSTONE_SEGMENT_SLOTS_MAX 16384u

struct ps_tombstone_segment {
    uint64_t *slots; /* 0: free */
    uint32_t slot_count, count;
};

struct ps_tombstones {
    struct ps_arena *arena;
    struct ps_key_hasher hasher;
    struct ps_tombstone_segment *segments; /* [PS_TOMBSTONE_SEGMENTS]; NULL before the first key */
    uint64_t count;
    bool has_zero;             /* the key 0 */
    uint32_t segment_at, slot; /* ps_tombstones_take()'s place */
};

/* Allocates nothing. */
void ps_tombstones_init(struct ps_tombstones *g, struct ps_arena *arena, const struct ps_key_hasher *hasher);
/* Removes all keys and frees all memory. */
void ps_tombstones_clear(struct ps_tombstones *g);
/* The same with so many pieces of memory at most: true when there is more. Until it is done, nothing else
 * may be done but ps_tombstones_clear(). */
bool ps_tombstones_clear_some(struct ps_tombstones *g, uint32_t pieces);
/* Fine for a key that is in it. False: there would be more than keys_max, or memory is short. It has no keys
 * then. `hash` is ps_placed_hash() of the key. */
bool ps_tombstones_add(struct ps_tombstones *g, uint64_t key, uint64_t hash, uint64_t keys_max);
/* Fine for a key that is not in it. */
void ps_tombstones_remove(struct ps_tombstones *g, uint64_t key, uint64_t hash);
/* Takes up to keys_max (at least 1) keys out, and frees the memory of segments that it has emptied.
 * Returns how many; 0: there are none left. From the first call to the last nothing may be added or
 * removed. */
uint32_t ps_tombstones_take(struct ps_tombstones *g, uint64_t *keys, uint32_t keys_max);

#endif
