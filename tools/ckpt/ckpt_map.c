#include "tools/ckpt/ckpt_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/mr_feature.h"

/* Memory for each slot, so that at most 3/4 of the slots are used: an entry takes at least 24 bytes. */
#define PER_SLOT_BYTES 40u

/* Entries one after the other, and an open-addressed table of where they begin, in units of 8 bytes, from 1;
 * 0 is free. */
struct ckpt_map {
    uint8_t *memory;
    uint64_t memory_bytes;
    uint32_t *slots;
    uint32_t slot_count;
    uint8_t *entries;
    uint64_t entries_bytes, used_bytes, count;
};

uint64_t ckpt_place(uint64_t key)
{
    return mr_key_hash(key, 0) >> 32;
}

static uint64_t entry_bytes(uint32_t payload_bytes)
{
    return sizeof(struct ckpt_entry) + mr_padded(payload_bytes);
}

struct ckpt_map *ckpt_map_create(uint64_t memory_bytes)
{
    struct ckpt_map *map = calloc(1, sizeof(*map));
    if (!map)
        return NULL;
    const uint64_t largest = (uint64_t)(UINT32_MAX - 1) * 8; /* what slots can tell */
    memory_bytes = memory_bytes < CKPT_MAP_BYTES_MIN ? CKPT_MAP_BYTES_MIN : memory_bytes;
    memory_bytes = memory_bytes > largest ? largest : memory_bytes;
    map->memory_bytes = memory_bytes & ~UINT64_C(7);
    void *memory = mmap(NULL, map->memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        free(map);
        return NULL;
    }
    map->memory = memory;
    map->slot_count = (uint32_t)(map->memory_bytes / PER_SLOT_BYTES * 2);
    map->slots = memory;
    const uint64_t slots_bytes = mr_padded((uint64_t)map->slot_count * sizeof(*map->slots));
    map->entries = map->memory + slots_bytes;
    map->entries_bytes = map->memory_bytes - slots_bytes;
    return map;
}

void ckpt_map_destroy(struct ckpt_map *map)
{
    if (map)
        (void)munmap(map->memory, map->memory_bytes);
    free(map);
}

void ckpt_map_clear(struct ckpt_map *map)
{
    /* Given back to the system: it comes back as zeros. */
    (void)madvise(map->memory, map->memory_bytes, MADV_DONTNEED);
    map->used_bytes = 0;
    map->count = 0;
}

static struct ckpt_entry *entry_at(const struct ckpt_map *map, uint64_t at)
{
    return (struct ckpt_entry *)(void *)(map->entries + at);
}

/* The key's slot, or the free one where it belongs. */
static uint32_t *slot_of(const struct ckpt_map *map, uint32_t table, uint64_t key)
{
    uint64_t i = (mr_key_hash(key, table + UINT64_C(1)) >> 32) * map->slot_count >> 32;
    for (;; i = i + 1 < map->slot_count ? i + 1 : 0) {
        uint32_t *slot = &map->slots[i];
        if (*slot == 0)
            return slot;
        const struct ckpt_entry *entry = entry_at(map, (uint64_t)(*slot - 1) * 8);
        if (entry->key == key && entry->table == table)
            return slot;
    }
}

struct ckpt_entry *ckpt_map_find(const struct ckpt_map *map, uint32_t table, uint64_t key)
{
    const uint32_t *slot = slot_of(map, table, key);
    return *slot == 0 ? NULL : entry_at(map, (uint64_t)(*slot - 1) * 8);
}

struct ckpt_entry *ckpt_map_add(struct ckpt_map *map, uint32_t table, uint64_t key, uint32_t payload_bytes,
                                bool *is_new)
{
    uint32_t *slot = slot_of(map, table, key);
    *is_new = *slot == 0;
    if (!*is_new)
        return entry_at(map, (uint64_t)(*slot - 1) * 8);
    const uint64_t bytes = entry_bytes(payload_bytes);
    if (map->entries_bytes - map->used_bytes < bytes || map->count >= (uint64_t)map->slot_count / 4 * 3)
        return NULL;
    struct ckpt_entry *entry = entry_at(map, map->used_bytes);
    *entry = (struct ckpt_entry){.key = key, .table = table, .payload_bytes = payload_bytes};
    *slot = (uint32_t)(map->used_bytes / 8) + 1;
    map->used_bytes += bytes;
    map->count++;
    return entry;
}

void ckpt_map_keep(struct ckpt_map *map, const struct ckpt_range *range)
{
    uint64_t to = 0, count = 0;
    for (uint64_t at = 0; at < map->used_bytes;) {
        struct ckpt_entry *entry = entry_at(map, at);
        const uint64_t bytes = entry_bytes(entry->payload_bytes);
        if (ckpt_range_has(range, entry->key)) {
            memmove(map->entries + to, entry, bytes);
            to += bytes;
            count++;
        }
        at += bytes;
    }
    map->used_bytes = to;
    map->count = count;
    memset(map->slots, 0, (size_t)map->slot_count * sizeof(*map->slots));
    for (uint64_t at = 0; at < to;) {
        const struct ckpt_entry *entry = entry_at(map, at);
        *slot_of(map, entry->table, entry->key) = (uint32_t)(at / 8) + 1;
        at += entry_bytes(entry->payload_bytes);
    }
}

enum ckpt_put ckpt_map_put(struct ckpt_map *map, struct ckpt_range *range, uint32_t table, uint64_t key,
                           uint32_t payload_bytes, struct ckpt_entry **out)
{
    while (ckpt_range_has(range, key)) {
        bool is_new;
        *out = ckpt_map_add(map, table, key, payload_bytes, &is_new);
        if (*out)
            return is_new ? CKPT_ADDED : CKPT_FOUND;
        if (range->end - range->begin < 2)
            return CKPT_NO_ROOM;
        range->end -= (range->end - range->begin) / 2;
        ckpt_map_keep(map, range);
    }
    return CKPT_OUTSIDE;
}

void ckpt_map_each(const struct ckpt_map *map, void (*visit)(void *arg, struct ckpt_entry *entry), void *arg)
{
    for (uint64_t at = 0; at < map->used_bytes;) {
        struct ckpt_entry *entry = entry_at(map, at);
        at += entry_bytes(entry->payload_bytes);
        visit(arg, entry);
    }
}
