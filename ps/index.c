#include "ps/index.h"

#include <string.h>
#include "ps/key_hash.h"

#define BUCKET_ALIGN 64u

/* Looked into by lookups, never written. */
static struct ps_bucket empty_bucket;

void ps_index_init(struct ps_index *ix, struct ps_arena *arena, uint64_t seed)
{
    ix->arena = arena;
    ix->seed = seed;
    ix->rows = 0;
    ix->bytes = 0;
    ix->generation = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        ix->partitions[i] = (struct ps_partition){.buckets = &empty_bucket, .bucket_count = 1};
}

static void buckets_free(struct ps_index *ix, const struct ps_partition *p)
{
    if (p->buckets == &empty_bucket)
        return;
    size_t bytes = p->bucket_count * sizeof(struct ps_bucket);
    ps_arena_free(ix->arena, p->buckets, bytes, BUCKET_ALIGN);
    ix->bytes -= bytes;
}

void ps_index_clear(struct ps_index *ix)
{
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        buckets_free(ix, &ix->partitions[i]);
    ps_index_init(ix, ix->arena, ix->seed);
}

/* 1, 2, 3, .. 8, 10, 12, 14, 16, 20, ..: in buckets, jemalloc's size classes, so that nothing is lost to rounding. */
static uint32_t next_bucket_count(uint32_t count)
{
    if (count < 8)
        return count + 1;
    uint32_t doubling = 31 - (uint32_t)__builtin_clz(count);
    return count + (1u << (doubling - 2));
}

static uint32_t rows_max(const struct ps_partition *p)
{
    if (p->buckets == &empty_bucket)
        return 0;
    return (uint32_t)((uint64_t)p->bucket_count * PS_BUCKET_KEYS * PS_PARTITION_LOAD_NUM /
                      PS_PARTITION_LOAD_DEN);
}

/* Put a key into the first free place from its home on; there is one. `pending`: the running cut has still to emit it. */
static void place(const struct ps_index *ix, const struct ps_partition *p, uint64_t key, uint64_t hash,
                  uint32_t row, bool pending)
{
    struct ps_bucket *b = ps_index_home(ix, hash);
    while ((b->flags & PS_BUCKET_ALL) == PS_BUCKET_ALL) {
        b->flags |= PS_BUCKET_OVERFLOW;
        b = b + 1 == p->buckets + p->bucket_count ? p->buckets : b + 1;
    }
    uint32_t slot = (uint32_t)__builtin_ctz(~b->flags & PS_BUCKET_ALL);
    uint32_t still = ps_bucket_pending(ix, b);
    b->keys[slot] = key;
    b->rows[slot] = row;
    b->flags |= 1u << slot;
    ps_bucket_set_pending(ix, b, still | (uint32_t)pending << slot);
}

static __attribute__((cold, noinline)) bool partition_grow(struct ps_index *ix, struct ps_partition *p)
{
    bool first = p->buckets == &empty_bucket;
    uint32_t grown_count = first ? 1 : next_bucket_count(p->bucket_count);
    size_t bytes = grown_count * sizeof(struct ps_bucket);
    struct ps_bucket *grown = ps_arena_alloc(ix->arena, bytes, BUCKET_ALIGN);
    if (grown == NULL)
        return false;
    struct ps_partition old = *p;
    p->buckets = grown;
    p->bucket_count = grown_count;
    for (uint32_t i = 0; i < old.bucket_count; i++) {
        const struct ps_bucket *b = &old.buckets[i];
        uint32_t pending = ps_bucket_pending(ix, b);
        for (uint32_t slot = 0; slot < PS_BUCKET_KEYS; slot++)
            if ((b->flags >> slot & 1) != 0)
                place(ix, p, b->keys[slot], ps_key_hash(b->keys[slot], ix->seed), b->rows[slot],
                      (pending >> slot & 1) != 0);
    }
    buckets_free(ix, &old);
    ix->bytes += bytes;
    return true;
}

bool ps_index_insert(struct ps_index *ix, uint64_t key, uint64_t hash, uint32_t row)
{
    struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    if (p->rows >= rows_max(p) && !partition_grow(ix, p))
        return false;
    place(ix, p, key, hash, row, false);
    p->rows++;
    ix->rows++;
    return true;
}

/* Generations have run out: put every bucket back to generation 0. Once in two million cuts. */
static __attribute__((cold)) void generations_restart(struct ps_index *ix)
{
    ix->generation = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        struct ps_partition *p = &ix->partitions[i];
        for (uint32_t j = 0; p->buckets != &empty_bucket && j < p->bucket_count; j++)
            ps_bucket_set_pending(ix, &p->buckets[j], 0);
    }
}

void ps_index_cut_begin(struct ps_index *ix)
{
    if (ix->generation == PS_GENERATION_MAX)
        generations_restart(ix);
    ix->generation++;
}
