#include "ps/index.h"

#include <string.h>
#include "ps/key_hash.h"
#include "ps/pieces.h"

#define BUCKET_ALIGN       64u
#define SHRINK_ROOM_SHARE  16u
#define STEPS_PER_DOUBLING 8u
#define FREE_SHARE         32u  /* of a partition's places, when it has many: free even when it is full */
#define GROW_LOOK_MAX      256u /* partitions looked at per insert: with several cores most are empty */

/* Looked into by lookups, never written. */
static struct ps_bucket empty_bucket;

void ps_index_init(struct ps_index *ix, struct ps_arena *arena, uint64_t seed)
{
    ix->arena = arena;
    ix->seed = seed;
    ix->rows = ix->places = 0;
    ix->partitions_used = 0;
    ix->grow_next = 0;
    ix->grow_count = 2;
    ix->bytes = 0;
    ix->generation = ix->generations_old = 0;
    ix->marked_only = false;
    ix->marks = 0;
    ix->untidy_count = 0;
    memset(ix->untidy, 0, sizeof(ix->untidy));
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        ix->upkeep[i].dirt = 0;
        ix->upkeep[i].rewrites++;
        ix->partitions[i] = (struct ps_partition){.buckets = &empty_bucket, .bucket_count = 1};
    }
    ix->rewrites++;
}

static size_t units_of(size_t bytes)
{
    return (bytes + PS_ARENA_UNIT_BYTES - 1) / PS_ARENA_UNIT_BYTES * PS_ARENA_UNIT_BYTES;
}

/* Empty buckets, or NULL. */
static struct ps_bucket *buckets_take(struct ps_index *ix, size_t bytes)
{
    if (bytes > PS_PIECE_BYTES_MAX)
        return ps_arena_alloc(ix->arena, units_of(bytes), BUCKET_ALIGN);
    struct ps_bucket *buckets = ps_arena_piece_alloc(ix->arena, bytes);
    for (size_t i = 0; buckets != NULL && i < bytes / sizeof(*buckets); i++)
        buckets[i].flags = 0;
    return buckets;
}

static void buckets_give(struct ps_index *ix, struct ps_bucket *buckets, size_t bytes)
{
    if (bytes > PS_PIECE_BYTES_MAX)
        ps_arena_free(ix->arena, buckets, units_of(bytes), BUCKET_ALIGN);
    else
        ps_arena_piece_free(ix->arena, buckets, bytes);
}

static void buckets_free(struct ps_index *ix, const struct ps_partition *p)
{
    if (p->buckets == &empty_bucket)
        return;
    size_t bytes = p->bucket_count * sizeof(struct ps_bucket);
    buckets_give(ix, p->buckets, bytes);
    ix->bytes -= bytes;
}

void ps_index_clear(struct ps_index *ix)
{
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        buckets_free(ix, &ix->partitions[i]);
    ps_index_init(ix, ix->arena, ix->seed);
}

/* 1, 2, 3, .. 16, 18, 20, .. 32, 36, ..: in buckets, sizes of pieces (ps/pieces.h), so that nothing is lost to rounding. */
static uint32_t bucket_step(uint32_t count)
{
    return count < STEPS_PER_DOUBLING ? 1
                                      : (1u << (31 - (uint32_t)__builtin_clz(count))) / STEPS_PER_DOUBLING;
}

static uint32_t next_bucket_count(uint32_t count)
{
    return count + bucket_step(count);
}

static uint32_t previous_bucket_count(uint32_t count)
{
    return count - bucket_step(count - 1);
}

/* At the index's load. */
static uint32_t rows_wanted(uint32_t bucket_count)
{
    return (uint32_t)((uint64_t)bucket_count * PS_BUCKET_KEYS * PS_INDEX_LOAD_NUM / PS_INDEX_LOAD_DEN);
}

/* A partition must grow before it holds more. A place stays free, so that every search for one ends. */
static uint32_t rows_max_of(uint32_t bucket_count)
{
    uint32_t places = bucket_count * PS_BUCKET_KEYS;
    return bucket_count <= 1 ? places : places - places / FREE_SHARE - 1;
}

static uint32_t rows_max(const struct ps_partition *p)
{
    return p->buckets == &empty_bucket ? 0 : rows_max_of(p->bucket_count);
}

/* Put a key into the first free place from its home on; there is one. `pending`: the running cut has still to emit it; `mark`:
 * its row has changed. 0 or 1. */
static void place(const struct ps_index *ix, const struct ps_partition *p, uint64_t key, uint64_t hash,
                  uint32_t row, uint32_t pending, uint32_t mark)
{
    struct ps_bucket *b = ps_index_home(ix, hash);
    while ((b->flags & PS_BUCKET_ALL) == PS_BUCKET_ALL) {
        b->flags |= PS_BUCKET_OVERFLOW;
        b = b + 1 == p->buckets + p->bucket_count ? p->buckets : b + 1;
    }
    uint32_t slot = (uint32_t)__builtin_ctz(~b->flags & PS_BUCKET_ALL);
    uint32_t still = ps_bucket_pending(ix, b), marks = ps_bucket_marks(ix, b);
    b->keys[slot] = key;
    b->rows[slot] = row;
    b->flags |= 1u << slot;
    ps_bucket_set(ix, b, still | pending << slot, marks | mark << slot);
}

static void untidy_set(struct ps_index *ix, uint32_t number, bool untidy)
{
    uint64_t bit = (uint64_t)1 << (number % 64), *word = &ix->untidy[number / 64];
    if (((*word & bit) != 0) == untidy)
        return;
    *word ^= bit;
    ix->untidy_count += untidy ? 1 : UINT32_MAX;
}

/* Into fresh buckets, `bucket_count` of them (0: it holds no key). False when memory is used up; nothing is changed then. */
static __attribute__((cold, noinline)) bool partition_rewrite(struct ps_index *ix, struct ps_partition *p,
                                                              uint32_t bucket_count)
{
    struct ps_partition old = *p;
    uint32_t old_count = old.buckets == &empty_bucket ? 0 : old.bucket_count;
    size_t bytes = bucket_count * sizeof(struct ps_bucket);
    struct ps_bucket *fresh = bytes == 0 ? &empty_bucket : buckets_take(ix, bytes);
    if (fresh == NULL)
        return false;
    p->buckets = fresh;
    p->bucket_count = bucket_count == 0 ? 1 : bucket_count;
    for (uint32_t i = 0; i < old.bucket_count && old.rows > 0; i++) {
        const struct ps_bucket *b = &old.buckets[i];
        uint32_t pending = ps_bucket_pending(ix, b), marks = ps_bucket_marks(ix, b);
        for (uint32_t slot = 0; slot < PS_BUCKET_KEYS; slot++)
            if ((b->flags >> slot & 1) != 0)
                place(ix, p, b->keys[slot], ps_key_hash(b->keys[slot], ix->seed), b->rows[slot],
                      pending >> slot & 1, marks >> slot & 1);
    }
    buckets_free(ix, &old);
    ix->bytes += bytes;
    ix->places += (uint64_t)bucket_count * PS_BUCKET_KEYS;
    ix->places -= (uint64_t)old_count * PS_BUCKET_KEYS;
    ix->partitions_used += bucket_count != 0;
    ix->partitions_used -= old_count != 0;
    ix->rewrites++;
    struct ps_partition_upkeep *upkeep = &ix->upkeep[p - ix->partitions];
    upkeep->dirt = 0;
    upkeep->rewrites++;
    untidy_set(ix, (uint32_t)(p - ix->partitions), false);
    return true;
}

static uint32_t grown_bucket_count(const struct ps_partition *p)
{
    return p->buckets == &empty_bucket ? 1 : next_bucket_count(p->bucket_count);
}

static bool partition_grow(struct ps_index *ix, struct ps_partition *p)
{
    return partition_rewrite(ix, p, grown_bucket_count(p));
}

size_t ps_index_insert_bytes(const struct ps_index *ix, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    return p->rows >= rows_max(p) ? grown_bucket_count(p) * sizeof(struct ps_bucket) : 0;
}

static uint32_t dirt_of(const struct ps_index *ix, const struct ps_partition *p)
{
    return ix->upkeep[p - ix->partitions].dirt;
}

static bool dirt_is_over(const struct ps_index *ix, const struct ps_partition *p, uint32_t share)
{
    return dirt_of(ix, p) * share > p->bucket_count * PS_BUCKET_KEYS;
}

/* The next partition that is smaller than this round makes them all gets room. One with few keys is passed over. */
static __attribute__((cold, noinline)) void grow_in_turn(struct ps_index *ix)
{
    for (uint32_t looked_at = 0; looked_at < GROW_LOOK_MAX; looked_at++) {
        struct ps_partition *p = &ix->partitions[ix->grow_next];
        uint32_t count = ix->grow_count;
        if (++ix->grow_next == MR_PARTITION_COUNT) {
            ix->grow_next = 0;
            ix->grow_count = next_bucket_count(ix->grow_count);
        }
        if (p->buckets != &empty_bucket && p->bucket_count < count &&
            p->rows * 2 > p->bucket_count * PS_BUCKET_KEYS) {
            (void)partition_rewrite(ix, p, count); /* without memory for it, partitions fill up */
            return;
        }
    }
}

bool ps_index_insert(struct ps_index *ix, uint64_t key, uint64_t hash, uint32_t row, bool marked)
{
    struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    if (p->rows >= rows_max(p)) {
        if (!partition_grow(ix, p))
            return false;
    } else if (__builtin_expect(dirt_is_over(ix, p, PS_DIRT_INSERT_SHARE), 0)) {
        (void)partition_rewrite(ix, p, p->bucket_count); /* without memory for it, probes stay long */
    }
    place(ix, p, key, hash, row, 0, marked);
    p->rows++;
    ix->rows++;
    ix->marks += marked;
    if (__builtin_expect(ix->rows * PS_INDEX_LOAD_DEN > ix->places * PS_INDEX_LOAD_NUM, 0))
        grow_in_turn(ix);
    return true;
}

/* ---- removing ---- */

/* It would do with fewer buckets, also for a sixteenth more rows: the next inserts are not to undo it. */
static bool is_too_large(uint64_t rows, uint32_t bucket_count)
{
    return rows + rows / SHRINK_ROOM_SHARE <= rows_wanted(previous_bucket_count(bucket_count));
}

/* As many buckets as partitions want on average, more if it has more rows: so that most are of one size. */
static uint32_t bucket_count_wanted(const struct ps_index *ix, const struct ps_partition *p)
{
    uint64_t rows = p->rows == 0 ? 0 : ix->rows / ix->partitions_used;
    uint32_t count = p->bucket_count;
    while (count > 0 && is_too_large(rows, count) &&
           p->rows + p->rows / SHRINK_ROOM_SHARE <= rows_max_of(previous_bucket_count(count)))
        count = previous_bucket_count(count);
    return count;
}

void ps_index_remove(struct ps_index *ix, struct ps_place place, uint64_t hash)
{
    uint32_t number = mr_partition_of(hash), taken = 1u << place.slot;
    struct ps_partition *p = &ix->partitions[number];
    assert((place.bucket->flags & taken) != 0);
    uint32_t pending = ps_bucket_pending(ix, place.bucket), marks = ps_bucket_marks(ix, place.bucket);
    place.bucket->flags &= ~taken;
    ps_bucket_set(ix, place.bucket, pending & ~taken, marks & ~taken);
    ix->marks -= (marks & taken) != 0;
    p->rows--;
    ix->rows--;
    bool others_passed = (place.bucket->flags & PS_BUCKET_OVERFLOW) != 0;
    if ((others_passed || ps_index_home(ix, hash) != place.bucket) && ix->upkeep[number].dirt < UINT16_MAX)
        ix->upkeep[number].dirt++;
    if (dirt_is_over(ix, p, PS_DIRT_TIDY_SHARE) || is_too_large(p->rows, p->bucket_count))
        untidy_set(ix, number, true);
}

bool ps_index_maintain(struct ps_index *ix, uint64_t *budget_bytes)
{
    for (uint32_t word = 0; word < MR_PARTITION_COUNT / 64 && ix->untidy_count > 0; word++) {
        while (ix->untidy[word] != 0) {
            if (*budget_bytes == 0)
                return true;
            uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(ix->untidy[word]);
            struct ps_partition *p = &ix->partitions[number];
            uint32_t count = bucket_count_wanted(ix, p);
            uint64_t cost_bytes = ((uint64_t)p->bucket_count + count) * sizeof(struct ps_bucket);
            *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
            bool clean = count == p->bucket_count && !dirt_is_over(ix, p, PS_DIRT_TIDY_SHARE);
            if (clean || !partition_rewrite(ix, p, count))
                untidy_set(ix, number, false);
            if (ix->grow_count > next_bucket_count(count)) { /* growth begins again from there */
                ix->grow_count = next_bucket_count(count);
                ix->grow_next = 0;
            }
        }
    }
    return false;
}

/* ---- cuts ---- */

/* Generations have run out: every bucket is of one before the first. A bucket of the last generation may have marks, which stay; so do
 * those of older ones, which have none but after a cut that was not whole. */
static __attribute__((cold)) void generations_restart(struct ps_index *ix)
{
    ix->generation = ix->generations_old = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        struct ps_partition *p = &ix->partitions[i];
        for (uint32_t j = 0; p->buckets != &empty_bucket && j < p->bucket_count; j++)
            p->buckets[j].flags &= (1u << PS_GENERATION_SHIFT) - 1;
    }
}

uint64_t ps_index_cut_begin(struct ps_index *ix, bool marked_only)
{
    /* They go round. As cuts of all keys leave no bucket with keys behind, only so many others in a row need a restart; a
     * bucket without keys has no bits to be misread. */
    if (ix->generations_old == PS_GENERATION_MAX - 1)
        generations_restart(ix);
    uint64_t keys = marked_only ? ix->marks : ix->rows;
    ix->generation = ix->generation == PS_GENERATION_MAX ? 0 : ix->generation + 1;
    ix->generations_old++;
    ix->marked_only = marked_only;
    ix->marks = 0;
    return keys;
}

void ps_index_cut_is_whole(struct ps_index *ix)
{
    if (!ix->marked_only)
        ix->generations_old = 0;
}
