/* Hashes groups of keys, and looks for them in their home buckets: by the processor's vectors where it has
 * them, else key by key. */
#include "ps/table/table_group.h"

#define PS_KEYS_AHEAD (8 * PS_GROUP_KEYS) /* that are prefetched */

const struct ps_group_stages *ps_group_stages_of(enum mr_vector_set vectors)
{
#ifdef __x86_64__
    if (vectors == MR_VECTOR_AVX512)
        return &ps_group_stages_avx512;
    if (vectors == MR_VECTOR_AVX2)
        return &ps_group_stages_avx2;
#endif
    (void)vectors;
    return NULL;
}

/* ---- key by key ---- */

static inline void group_home(const struct ps_table *t, struct ps_group *g, uint32_t i)
{
    const struct ps_partition *p = &t->index.partitions[mr_partition_of(g->hashes[i])];
    g->buckets[i] = p->buckets + ps_home_number(g->hashes[i], p->bucket_count);
    g->limits[i] = p->limit;
}

static inline void find_at_home(const struct ps_table *t, struct ps_group *g, uint32_t i)
{
    struct ps_place place = ps_bucket_find(g->buckets[i], g->hashes[i], g->limits[i], false);
    if (__builtin_expect(place.bucket == NULL, 0)) {
        g->late |= 1u << i;
        g->rows[i] = t->slabs.base;
        return;
    }
    g->matches[i] = (uint8_t)(1u << place.slot);
    g->rows[i] = ps_table_row(t, place);
}

/* Finds the other buckets of keys that are not at home, and asks for them. */
static inline void seek_late(const struct ps_table *t, struct ps_group *g)
{
    for (uint32_t late = g->late; late != 0; late &= late - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(late);
        const struct ps_partition *p = &t->index.partitions[mr_partition_of(g->hashes[i])];
        uint32_t home = ps_home_number(g->hashes[i], p->bucket_count);
        g->buckets[i] = p->buckets + ps_other_number(g->hashes[i], home, p->bucket_count);
        __builtin_prefetch(g->buckets[i], 0, 3);
    }
}

/* ---- the stages ---- */

/* Not in buckets that were given back. */
static inline void check_bucket(const struct ps_table *t, const struct ps_group *g, uint32_t i)
{
#ifdef PS_SCRUB
    const struct ps_partition *p = &t->index.partitions[mr_partition_of(g->hashes[i])];
    assert(g->buckets[i] >= p->buckets && g->buckets[i] < p->buckets + p->bucket_count);
#endif
}

void ps_group_hash(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys, uint32_t count)
{
    /* The processor's own prefetcher does not keep up: keys come by too slowly. Past the end is harmless. */
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i += 64 / sizeof(*keys))
        __builtin_prefetch(keys + PS_KEYS_AHEAD + i, 0, 3);
    if (t->group_stages != NULL && count == PS_GROUP_KEYS) {
        t->group_stages->hash(t, hashes, keys);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        hashes[i] = ps_index_hash(&t->index, keys[i]);
}

void ps_group_seek(const struct ps_table *t, struct ps_group *g, uint32_t count)
{
    if (t->group_stages != NULL && count == PS_GROUP_KEYS) {
        t->group_stages->seek(t, g);
        for (uint32_t i = 0; i < PS_GROUP_KEYS; i++)
            __builtin_prefetch(g->buckets[i], 0, 3);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        group_home(t, g, i);
        __builtin_prefetch(g->buckets[i], 0, 3);
    }
}

static inline void table_group_find(const struct ps_table *t, struct ps_group *g, uint32_t count)
{
    if (t->group_stages == NULL) {
        g->late = 0;
        for (uint32_t i = 0; i < count; i++)
            find_at_home(t, g, i);
    } else if (count == PS_GROUP_KEYS) {
        t->group_stages->find(t, g);
    } else {
        t->group_stages->find_some(t, g, count);
    }
}

void ps_group_find(const struct ps_table *t, struct ps_group *g, uint32_t count, uint32_t row_bytes)
{
    for (uint32_t i = 0; i < count; i++)
        check_bucket(t, g, i);
    table_group_find(t, g, count);
    seek_late(t, g);
    /* Of all keys: a branch by what was found would be mispredicted once the rows' addresses are there. */
    const uint32_t lines = ps_row_prefetch_lines(t, row_bytes);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(g->rows[i], 0, 3);
    for (uint32_t line = 1; line < lines; line++)
        for (uint32_t i = 0; i < count; i++)
            __builtin_prefetch((const char *)g->rows[i] + line * 64, 0, 3);
}

struct ps_place ps_group_find_late(const struct ps_table *t, const struct ps_group *g, uint32_t i)
{
    check_bucket(t, g, i);
    struct ps_place place = ps_bucket_find(g->buckets[i], g->hashes[i], g->limits[i], true);
    /* Its partition may be on the move, or the key have come, or given way, meanwhile. */
    return __builtin_expect(place.bucket != NULL, 1) ? place : ps_index_find(&t->index, g->hashes[i]);
}

void ps_groups_refresh(const struct ps_table *t, struct ps_group groups[PS_GROUPS])
{
    for (uint32_t i = 0; i < PS_GROUPS * PS_GROUP_KEYS; i++)
        group_home(t, &groups[i / PS_GROUP_KEYS], i % PS_GROUP_KEYS);
}
