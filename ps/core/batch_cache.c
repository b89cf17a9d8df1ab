#include "ps/core/batch_cache.h"

#include <string.h>
#include "dataplane/wire/format/op.h"
#include "ps/memory/block_pool.h"

#define NONE       UINT32_MAX
#define PART_ALIGN 64u
/* Fibonacci hashing: ids are consecutive, their products are not. A second factor is random, so that nobody
 * can choose ids for the same places. */
#define ID_MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)

#define ENTRIES_EXTRA 2u /* not listed: one prepared or pinned, and one on its way to take another's place */

struct ps_batch_cache {
    struct ps_arena *arena;
    struct ps_block_pool pool;
    uint64_t ttl_us;
    uint32_t count, count_max; /* listed */
    uint32_t free_head;        /* entries not in use, chained by `newer` */
    uint32_t oldest, newest;   /* entries in use, in the order of their expiry */
    uint32_t index_bits;
    uint64_t multiplier; /* odd */
    uint32_t *index;     /* open addressing by id: entry number, or NONE */
    struct ps_batch *entries;
    uint64_t *expired; /* ring of ids */
    uint64_t expired_count;
};

/* ---- memory ---- */

static void free_lists_init(struct ps_batch_cache *c)
{
    c->free_head = NONE;
    for (uint32_t i = c->count_max + ENTRIES_EXTRA; i-- > 0;) {
        c->entries[i].newer = c->free_head;
        c->free_head = i;
    }
    memset(c->index, 0xFF, sizeof(uint32_t) << c->index_bits);
}

struct ps_batch_cache *ps_batch_cache_create(struct ps_arena *arena, uint32_t count_max, size_t bytes_max,
                                             uint64_t ttl_us, uint64_t secret)
{
    struct ps_batch_cache *c = ps_arena_alloc(arena, sizeof(*c), 64);
    if (c == NULL)
        return NULL;
    c->arena = arena;
    c->count_max = count_max;
    c->multiplier = secret | 1;
    c->ttl_us = ttl_us;
    c->oldest = c->newest = NONE;
    while ((UINT32_C(1) << c->index_bits) < 2 * (count_max + ENTRIES_EXTRA))
        c->index_bits++;
    c->index = ps_arena_alloc(arena, sizeof(uint32_t) << c->index_bits, 64);
    c->entries = ps_arena_alloc(arena, (count_max + ENTRIES_EXTRA) * sizeof(*c->entries), 64);
    c->expired = ps_arena_alloc(arena, PS_EXPIRED_IDS_MAX * sizeof(*c->expired), 64);
    ps_block_pool_init(&c->pool, arena, bytes_max);
    if (c->index == NULL || c->entries == NULL || c->expired == NULL) {
        ps_batch_cache_destroy(c);
        return NULL;
    }
    free_lists_init(c);
    return c;
}

void ps_batch_cache_destroy(struct ps_batch_cache *c)
{
    if (c == NULL)
        return;
    if (c->entries != NULL)
        ps_batch_cache_clear(c);
    ps_block_pool_drain(&c->pool);
    ps_arena_free(c->arena, c->expired, PS_EXPIRED_IDS_MAX * sizeof(*c->expired), 64);
    ps_arena_free(c->arena, c->entries, (c->count_max + ENTRIES_EXTRA) * sizeof(*c->entries), 64);
    ps_arena_free(c->arena, c->index, sizeof(uint32_t) << c->index_bits, 64);
    ps_arena_free(c->arena, c, sizeof(*c), 64);
}

static size_t align_up(size_t bytes)
{
    return (bytes + PART_ALIGN - 1) & ~(size_t)(PART_ALIGN - 1);
}

static size_t keys_bytes(const struct ps_batch_part *p)
{
    return align_up(p->key_count * sizeof(uint64_t));
}

static size_t offsets_bytes(const struct ps_batch_part *p)
{
    return align_up(((size_t)p->samples * p->slots + 1) * sizeof(uint32_t));
}

static size_t values_bytes(const struct ps_batch_part *p)
{
    return align_up((size_t)p->samples * p->slots * p->dim * sizeof(float));
}

static size_t weights_bytes(const struct ps_batch_part *p)
{
    return p->has_weights ? align_up(p->key_count * sizeof(float)) : 0;
}

static size_t divisors_bytes(const struct ps_batch_part *p)
{
    return p->has_divisors ? align_up((size_t)p->samples * p->slots * sizeof(float)) : 0;
}

static size_t batch_bytes(const struct ps_batch_part *shapes, uint32_t part_count)
{
    size_t bytes = align_up(part_count * sizeof(*shapes));
    for (uint32_t i = 0; i < part_count; i++) {
        bytes += keys_bytes(&shapes[i]) + offsets_bytes(&shapes[i]) + values_bytes(&shapes[i]) +
                 weights_bytes(&shapes[i]) + divisors_bytes(&shapes[i]);
    }
    return bytes;
}

static void lay_out(struct ps_batch *b, const struct ps_batch_part *shapes, uint32_t part_count)
{
    uint8_t *at = b->block + align_up(part_count * sizeof(*shapes));
    b->parts = (struct ps_batch_part *)(void *)b->block;
    b->part_count = part_count;
    for (uint32_t i = 0; i < part_count; i++) {
        struct ps_batch_part *p = &b->parts[i];
        *p = shapes[i];
        p->looked_up = false;
        p->keys = (uint64_t *)(void *)at;
        at += keys_bytes(p);
        p->offsets = (uint32_t *)(void *)at;
        at += offsets_bytes(p);
        p->values = (float *)(void *)at;
        at += values_bytes(p);
        p->weights = p->has_weights ? (float *)(void *)at : NULL;
        at += weights_bytes(p);
        p->divisors = p->has_divisors ? (float *)(void *)at : NULL;
        at += divisors_bytes(p);
    }
}

/* ---- index by id ---- */

static uint32_t home_of(const struct ps_batch_cache *c, uint64_t id)
{
    const uint64_t mixed = id * ID_MULTIPLIER;
    return (uint32_t)(((mixed ^ mixed >> 32) * c->multiplier) >> (64 - c->index_bits));
}

static uint32_t index_mask(const struct ps_batch_cache *c)
{
    return (UINT32_C(1) << c->index_bits) - 1;
}

/* Where `id` is, or the empty place where it would be put. At most half of the index is in use, so there is
 * one. */
static uint32_t place_of(const struct ps_batch_cache *c, uint64_t id)
{
    uint32_t at = home_of(c, id);
    while (c->index[at] != NONE && c->entries[c->index[at]].id != id)
        at = (at + 1) & index_mask(c);
    return at;
}

/* Removes without a tombstone: what follows moves up as long as that brings it no further from its home. */
static void index_remove(struct ps_batch_cache *c, uint64_t id)
{
    uint32_t mask = index_mask(c);
    uint32_t hole = place_of(c, id);
    for (uint32_t at = (hole + 1) & mask; c->index[at] != NONE; at = (at + 1) & mask) {
        uint32_t home = home_of(c, c->entries[c->index[at]].id);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            c->index[hole] = c->index[at];
            hole = at;
        }
    }
    c->index[hole] = NONE;
}

struct ps_batch *ps_batch_find(const struct ps_batch_cache *c, uint64_t id)
{
    uint32_t entry = c->index[place_of(c, id)];
    return entry == NONE ? NULL : &c->entries[entry];
}

/* ---- order of expiry ---- */

static void list_append(struct ps_batch_cache *c, uint32_t entry)
{
    c->entries[entry].older = c->newest;
    c->entries[entry].newer = NONE;
    if (c->newest != NONE)
        c->entries[c->newest].newer = entry;
    else
        c->oldest = entry;
    c->newest = entry;
}

static void list_remove(struct ps_batch_cache *c, uint32_t entry)
{
    struct ps_batch *b = &c->entries[entry];
    if (b->older != NONE)
        c->entries[b->older].newer = b->newer;
    else
        c->oldest = b->newer;
    if (b->newer != NONE)
        c->entries[b->newer].older = b->older;
    else
        c->newest = b->older;
}

/* ---- batches ---- */

static void forget_expired(struct ps_batch_cache *c, uint64_t id)
{
    for (uint64_t i = 0; i < PS_EXPIRED_IDS_MAX && i < c->expired_count; i++)
        if (c->expired[i] == id)
            c->expired[i] = UINT64_MAX;
}

enum mr_status ps_batch_prepare(struct ps_batch_cache *c, uint64_t id, bool read_only,
                                const struct ps_batch_part *shapes, uint32_t part_count,
                                struct ps_batch **out)
{
    size_t bytes = batch_bytes(shapes, part_count);
    if (ps_block_pool_round(bytes) > c->pool.limit_bytes)
        return MR_TOO_LARGE;
    bool is_new = ps_batch_find(c, id) == NULL;
    if ((is_new && c->count >= c->count_max) || c->free_head == NONE)
        return MR_BATCH_CACHE_FULL;
    uint8_t *block = ps_block_pool_alloc(&c->pool, bytes);
    if (block == NULL)
        return c->count > 0 ? MR_BATCH_CACHE_FULL : MR_OUT_OF_MEMORY;
    struct ps_batch *b = &c->entries[c->free_head];
    c->free_head = b->newer;
    b->id = id;
    b->epoch = 0;
    b->read_only = read_only;
    b->is_listed = false;
    b->pins = 0;
    b->block = block;
    b->block_bytes = bytes;
    lay_out(b, shapes, part_count);
    *out = b;
    return MR_OK;
}

void ps_batch_publish(struct ps_batch_cache *c, struct ps_batch *b, uint64_t now_us)
{
    uint32_t entry = (uint32_t)(b - c->entries);
    uint32_t old = c->index[place_of(c, b->id)];
    if (old != NONE)
        ps_batch_remove(c, &c->entries[old]);
    else if (c->expired_count > 0)
        forget_expired(c, b->id);
    c->index[place_of(c, b->id)] = entry;
    b->is_listed = true;
    b->expires_us = now_us + c->ttl_us;
    list_append(c, entry);
    c->count++;
}

struct ps_batch_part *ps_batch_part_of(const struct ps_batch *b, uint32_t feature)
{
    for (uint32_t i = 0; i < b->part_count; i++)
        if (b->parts[i].feature == feature)
            return &b->parts[i];
    return NULL;
}

void ps_batch_touch(struct ps_batch_cache *c, struct ps_batch *b, uint64_t now_us)
{
    uint32_t entry = (uint32_t)(b - c->entries);
    b->expires_us = now_us + c->ttl_us;
    list_remove(c, entry);
    list_append(c, entry);
}

static void batch_free(struct ps_batch_cache *c, struct ps_batch *b)
{
    ps_block_pool_free(&c->pool, b->block, b->block_bytes);
    b->block = NULL;
    b->newer = c->free_head;
    c->free_head = (uint32_t)(b - c->entries);
}

void ps_batch_remove(struct ps_batch_cache *c, struct ps_batch *b)
{
    if (b->is_listed) {
        index_remove(c, b->id);
        list_remove(c, (uint32_t)(b - c->entries));
        b->is_listed = false;
        c->count--;
    }
    if (b->pins == 0)
        batch_free(c, b);
}

void ps_batch_pin(struct ps_batch *b)
{
    b->pins++;
}

void ps_batch_unpin(struct ps_batch_cache *c, struct ps_batch *b)
{
    if (--b->pins == 0 && !b->is_listed)
        batch_free(c, b);
}

uint32_t ps_batch_expire(struct ps_batch_cache *c, uint64_t now_us, uint32_t count_max)
{
    uint32_t count = 0;
    while (count < count_max && c->oldest != NONE && c->entries[c->oldest].expires_us <= now_us) {
        c->expired[c->expired_count++ % PS_EXPIRED_IDS_MAX] = c->entries[c->oldest].id;
        ps_batch_remove(c, &c->entries[c->oldest]);
        count++;
    }
    return count;
}

bool ps_batch_expired(const struct ps_batch_cache *c, uint64_t id)
{
    for (uint64_t i = 0; i < PS_EXPIRED_IDS_MAX && i < c->expired_count; i++)
        if (c->expired[i] == id)
            return true;
    return false;
}

void ps_batch_cache_clear(struct ps_batch_cache *c)
{
    while (c->oldest != NONE)
        ps_batch_remove(c, &c->entries[c->oldest]);
    c->expired_count = 0;
}

uint32_t ps_batch_cache_count(const struct ps_batch_cache *c)
{
    return c->count;
}

uint32_t ps_batch_cache_of_stream(const struct ps_batch_cache *c, uint32_t stream)
{
    uint32_t count = 0;
    for (uint32_t i = c->oldest; i != NONE; i = c->entries[i].newer)
        count += mr_batch_stream(c->entries[i].id) == stream;
    return count;
}

size_t ps_batch_cache_bytes(const struct ps_batch_cache *c)
{
    return c->pool.used_bytes;
}
