/* Keys of tables held in a fixed amount of memory, each with a mark and some bytes of the caller's. When it
 * is full the caller gives up a part of the key space, to be dealt with in a later pass: nothing grows.
 * Belongs to one thread.
 */
#ifndef TOOL_CKPT_MAP_H
#define TOOL_CKPT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Keys are spread evenly over places 0 .. CKPT_PLACES - 1, whatever their table; passes go by ranges of
 * them. */
#define CKPT_PLACES (UINT64_C(1) << 32)
uint64_t ckpt_place(uint64_t key);

struct ckpt_range {
    uint64_t begin, end; /* places begin .. end - 1 */
};
static inline bool ckpt_range_has(const struct ckpt_range *range, uint64_t key)
{
    if (range->begin == 0 && range->end == CKPT_PLACES)
        return true;
    const uint64_t place = ckpt_place(key);
    return place >= range->begin && place < range->end;
}

struct ckpt_entry {
    uint64_t key;
    uint32_t table; /* any number that tells tables apart */
    uint32_t mark;  /* the caller's; 0 in a new entry */
    uint32_t payload_bytes;
    uint32_t reserved;
    uint8_t payload[]; /* 8-byte aligned */
};

struct ckpt_map;

#define CKPT_MAP_BYTES_MIN (UINT64_C(64) << 10)

/* Takes memory_bytes of address space (at least CKPT_MAP_BYTES_MIN), and of memory what is used of it. NULL
 * when there is none. */
struct ckpt_map *ckpt_map_create(uint64_t memory_bytes);
void ckpt_map_destroy(struct ckpt_map *map); /* NULL is fine */
void ckpt_map_clear(struct ckpt_map *map);
struct ckpt_entry *ckpt_map_find(const struct ckpt_map *map, uint32_t table, uint64_t key);
/* The entry, made if it is not there: *is_new says which. A new one's payload holds anything. NULL: no room.
 * Entries stay where they are until ckpt_map_keep(). */
struct ckpt_entry *ckpt_map_add(struct ckpt_map *map, uint32_t table, uint64_t key, uint32_t payload_bytes,
                                bool *is_new);
/* Adds a key of the range like ckpt_map_add(), with the entry in *out. While there is no room the range is
 * halved and the map keeps what is still in it; a key that falls outside belongs to a later pass.
 * CKPT_NO_ROOM: the range is a single place, and its keys do not fit. */
enum ckpt_put { CKPT_ADDED, CKPT_FOUND, CKPT_OUTSIDE, CKPT_NO_ROOM };
enum ckpt_put ckpt_map_put(struct ckpt_map *map, struct ckpt_range *range, uint32_t table, uint64_t key,
                           uint32_t payload_bytes, struct ckpt_entry **out);
/* Drops the keys outside of the range. */
void ckpt_map_keep(struct ckpt_map *map, const struct ckpt_range *range);
/* In the order in which they were added. */
void ckpt_map_each(const struct ckpt_map *map, void (*visit)(void *arg, struct ckpt_entry *entry), void *arg);

#endif
