/* Where a key's row is: a small open-addressing hash table per partition.
 *
 * A bucket is one cache line: five keys, their row numbers, and flags. A key's bucket follows from its hash alone; when it is
 * full the key lies in the next one that was not (linear probing, wrapping inside the partition), and the buckets passed
 * over carry PS_BUCKET_OVERFLOW, so that most lookups, also of absent keys, read one line.
 *
 * Partitions grow one after the other, by a sixteenth to an eighth: an insert that takes the index over its load makes the next one
 * grow, whichever partition the key is in (as linear hashing splits its buckets, Litwin, VLDB 1980). So the load stays the same,
 * growth comes at an even pace, and arrays of one size are freed in the order they were made, so that their memory is freed as
 * a whole. Only a partition that is nearly full grows out of turn. Buckets of old and new are in the same order of hashes, so
 * growing copies from front to back.
 *
 * A key that is removed leaves a free place and, where the probes of others ran over it, overflow flags that say more than is
 * true: lookups stay right, but read further than they need to. Such dirt is counted per partition; writing the partition
 * anew, in ps_index_maintain() or before an insert, clears it. The same call makes partitions smaller that have become empty
 * enough. (Flags instead of tombstones: a place is free again at once.)
 *
 * Cut (see ps/table.h): every bucket carries the generation of the last cut that looked at it and a bit per key that is still
 * to be emitted. In a bucket of an older generation all keys are, or, in a cut of changes, those with a mark. So a cut begins
 * by counting the generation up, and growing carries the bits over instead of emitting a whole partition.
 *
 * Marks: a bit per key whose row has changed since the last cut began. Whatever looks at a bucket of an older generation to change its
 * bits first turns its marks into what is still to be emitted, so marks of this generation are for the next cut.
 * That holds as long as each cut emits all that it has to; after one that did not, marks say nothing before the next cut of all
 * keys. Who keeps no marks, sets none.
 *
 * Belongs to one thread.
 */
#ifndef PS_INDEX_H
#define PS_INDEX_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_feature.h"
#include "ps/arena.h"

/* A partition's dirt, as a share of its places: from 1/8 on it is cleared when there is time, from 1/2 on before the next
 * insert. */
#define PS_DIRT_TIDY_SHARE   8u
#define PS_DIRT_INSERT_SHARE 2u

#define PS_BUCKET_KEYS      5u
#define PS_BUCKET_ALL       ((1u << PS_BUCKET_KEYS) - 1)
#define PS_BUCKET_OVERFLOW  (1u << 10)
#define PS_MARK_SHIFT       11u
#define PS_GENERATION_SHIFT 16u
#define PS_GENERATION_MAX   ((1u << (32 - PS_GENERATION_SHIFT)) - 1)
#define PS_INDEX_LOAD_NUM   13u /* of all places of the index, this share is used on average when it is large */
#define PS_INDEX_LOAD_DEN   16u

struct ps_bucket {
    uint64_t keys[PS_BUCKET_KEYS];
    uint32_t rows[PS_BUCKET_KEYS];
    uint32_t
        flags; /* bits 0-4 place taken, 5-9 still to be emitted, 10 overflow, 11-15 marks, 16-31 generation */
};
static_assert(sizeof(struct ps_bucket) == 64, "a bucket is a cache line");

struct ps_partition {
    struct ps_bucket *buckets; /* never NULL: an empty partition points at one empty bucket shared by all */
    uint32_t bucket_count;
    uint32_t rows;
};

/* What lookups do not need. */
struct ps_partition_upkeep {
    uint16_t
        dirt; /* removals, since it was last written, that may have left flags of no use; held at the most */
    uint16_t rewrites; /* counts around */
};

struct ps_index {
    struct ps_arena *arena;
    uint64_t seed;
    uint64_t rows;
    uint64_t places;          /* in all buckets */
    size_t bytes;             /* of all buckets */
    uint32_t grow_next;       /* partition whose turn it is to grow, */
    uint32_t grow_count;      /* to this many buckets */
    uint32_t partitions_used; /* that have buckets */
    uint32_t generation;      /* of the last cut begun */
    uint32_t generations_old; /* that buckets with keys may still have: 0 when all have this one */
    bool marked_only;         /* the last cut begun is of keys with marks */
    uint64_t marks;           /* keys marked since it began */
    uint64_t
        rewrites; /* partitions written anew so far: when it changes, buckets and places may be elsewhere */
    struct ps_partition partitions[MR_PARTITION_COUNT];
    struct ps_partition_upkeep upkeep[MR_PARTITION_COUNT];
    uint64_t
        untidy[MR_PARTITION_COUNT / 64]; /* a bit per partition that ps_index_maintain() should look at */
    uint32_t untidy_count;
};

/* Place of a key. bucket == NULL: not there. */
struct ps_place {
    struct ps_bucket *bucket;
    uint32_t slot;
};

/* Allocates nothing. */
void ps_index_init(struct ps_index *ix, struct ps_arena *arena, uint64_t seed);
/* Frees all buckets; usable again. No cut may be running. */
void ps_index_clear(struct ps_index *ix);
/* Puts in a key that is not there (the caller has looked), with a mark or without. Keys added while a cut runs are not part of it.
 * False when memory is used up; nothing is changed then. */
bool ps_index_insert(struct ps_index *ix, uint64_t key, uint64_t hash, uint32_t row, bool marked);
/* Bytes that putting in a key of this hash allocates; 0 while its partition has free places. */
size_t ps_index_insert_bytes(const struct ps_index *ix, uint64_t hash);
/* Takes out the key at `place`, whose hash this is and whose row number is the caller's again. Emits nothing: see ps_table_row_remove(). Other
 * places stay as they are. */
void ps_index_remove(struct ps_index *ix, struct ps_place place, uint64_t hash);
/* Writes partitions anew that removals have left too large or untidy, one by one, until the memory so touched uses up the
 * budget; takes it off. True when there is more to do. Buckets move; a running cut goes on. A partition for which there is no
 * memory stays as it is until the next removal from it. */
bool ps_index_maintain(struct ps_index *ix, uint64_t *budget_bytes);
/* All keys there are now are to be emitted, or those with a mark (the last cut was whole then: all it had to emit was). Takes
 * all marks away. Returns how many keys it is. */
uint64_t ps_index_cut_begin(struct ps_index *ix, bool marked_only);
/* A cut of all keys has emitted them all: no bucket with keys is of an older generation. */
void ps_index_cut_is_whole(struct ps_index *ix);

/* The bucket in which a probe for `hash` starts. */
static inline struct ps_bucket *ps_index_home(const struct ps_index *ix, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    uint64_t below_partition = hash << 12 >> 32; /* the next 32 bits */
    return p->buckets + (below_partition * p->bucket_count >> 32);
}

/* The bucket that a probe for `hash` looks at after `b`. */
static inline struct ps_bucket *ps_index_next(const struct ps_index *ix, struct ps_bucket *b, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    return b + 1 == p->buckets + p->bucket_count ? p->buckets : b + 1;
}

/* Bit i: keys[i] is `key`. */
static inline uint32_t ps_bucket_match(const struct ps_bucket *b, uint64_t key)
{
    uint32_t match = 0;
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++)
        match |= (uint32_t)(b->keys[i] == key) << i;
    return match & b->flags & PS_BUCKET_ALL;
}

/* As ps_index_find(), with the home bucket known. */
static inline struct ps_place ps_index_find_from(const struct ps_index *ix, struct ps_bucket *home,
                                                 uint64_t key, uint64_t hash)
{
    struct ps_bucket *b = home;
    uint32_t match = ps_bucket_match(b, key);
    if (__builtin_expect(match == 0, 0)) {
        const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
        for (uint32_t left = p->bucket_count; (b->flags & PS_BUCKET_OVERFLOW) != 0 && --left > 0;) {
            b = b + 1 == p->buckets + p->bucket_count ? p->buckets : b + 1;
            match = ps_bucket_match(b, key);
            if (match != 0)
                break;
        }
        if (match == 0)
            return (struct ps_place){NULL, 0};
    }
    return (struct ps_place){b, (uint32_t)__builtin_ctz(match)};
}

/* Looks at as many buckets as the partition has, at most. */
static inline struct ps_place ps_index_find(const struct ps_index *ix, uint64_t key, uint64_t hash)
{
    return ps_index_find_from(ix, ps_index_home(ix, hash), key, hash);
}

static inline bool ps_bucket_is_turned(const struct ps_index *ix, const struct ps_bucket *b)
{
    return b->flags >> PS_GENERATION_SHIFT == ix->generation;
}

/* Bits of the keys in `b` that the running cut has still to emit. */
static inline uint32_t ps_bucket_pending(const struct ps_index *ix, const struct ps_bucket *b)
{
    if (ps_bucket_is_turned(ix, b))
        return b->flags >> PS_BUCKET_KEYS & PS_BUCKET_ALL;
    return (ix->marked_only ? b->flags >> PS_MARK_SHIFT : b->flags) & PS_BUCKET_ALL;
}

/* Bits of the keys in `b` whose rows have changed since the last cut began. */
static inline uint32_t ps_bucket_marks(const struct ps_index *ix, const struct ps_bucket *b)
{
    return ps_bucket_is_turned(ix, b) ? b->flags >> PS_MARK_SHIFT & PS_BUCKET_ALL : 0;
}

/* Both. */
static inline void ps_bucket_set(const struct ps_index *ix, struct ps_bucket *b, uint32_t pending,
                                 uint32_t marks)
{
    b->flags = ix->generation << PS_GENERATION_SHIFT | marks << PS_MARK_SHIFT |
               (b->flags & (PS_BUCKET_OVERFLOW | PS_BUCKET_ALL)) | pending << PS_BUCKET_KEYS;
}

/* Say which keys in `b` are still to be emitted. */
static inline void ps_bucket_set_pending(const struct ps_index *ix, struct ps_bucket *b, uint32_t pending)
{
    ps_bucket_set(ix, b, pending, ps_bucket_marks(ix, b));
}

/* The row of this key has changed: after the running cut was given it as it was. A bucket is written only with its first
 * mark of each key. */
static inline void ps_index_mark(struct ps_index *ix, struct ps_place place)
{
    struct ps_bucket *b = place.bucket;
    uint32_t mark = 1u << place.slot;
    if (!ps_bucket_is_turned(ix, b))
        ps_bucket_set(ix, b, ps_bucket_pending(ix, b), 0);
    if ((b->flags >> PS_MARK_SHIFT & mark) == 0) {
        b->flags |= mark << PS_MARK_SHIFT;
        ix->marks++;
    }
}

#endif
