/* Where a key's row is: a small hash table per partition, whose entries are 8 bytes. See docs/adr/0022.
 *
 * Hashes here are placed hashes: a bijection of the key, by a secret of the node (ps/base/key_hash.h), so
 * that nobody else can choose keys for the same buckets.
 *
 * Entries. A bucket is one cache line of eight entries, and where an entry lies gives the hash's upper bits:
 * the partition, and the home bucket, which follows from the next 32. So an entry holds only the lowest
 * 52 - q bits, q being the binary logarithm of the number of buckets, rounded down. Beside these it has a row
 * number of 9 + q bits, which counts within the group of sixteen partitions (ps/index/slab.h), two bits of
 * state, and whether it lies in its home bucket or its other one.
 *
 * Two choices. A key lies in its home bucket, or in one other of its partition, whose distance from home
 * follows from the entry as well, so that each is found from the other. When both are full, entries of theirs
 * move to their own other buckets, and entries of those, until there is a place (cuckoo hashing with two
 * choices and buckets of eight, Dietzfelbinger & Weidling, ICALP 2005). So a lookup reads two lines at most,
 * and most read one, at a load of 0.925. Keys that share both buckets in an array of one size do not in
 * another: if a partition that is being moved meets more of them than two buckets hold, it moves on to
 * another size.
 *
 * Growth. Partitions grow one after the other, by a sixteenth: an insert that takes the index over its load
 * makes the next one grow, whichever partition the key is in (as linear hashing splits its buckets, Litwin,
 * VLDB 1980). One of more than a few KiB is moved into its new buckets in steps, a few buckets with each
 * insert; meanwhile it has both, and its keys are looked for in both. At most one partition is being moved. A
 * partition that is nearly full grows out of turn. With each that grows, a few others' buckets move to where
 * memory is used better. What an insert does is bounded, however the keys are spread over partitions: a
 * larger partition that fills up beside the one being moved makes it move faster, a smaller one grows at
 * once. Keys that find no place in a partition that is not full, which only chosen keys do, have little
 * searched or moved for them: no more than other inserts have earned (spare_buckets). Removed rows leave free
 * places, and ps_index_maintain() makes partitions smaller that have become empty enough, in steps as well.
 *
 * Cuts and marks (see ps/table/table.h). An entry's state is one of four codes, which two of them are for
 *   base   its row is as the last cut had it, or as it was made
 *   mark   it has changed since the last cut began
 * and beginning a cut changes: the codes of the rows that the cut is of then mean that they are pending, and
 * the other two take over. So nothing is touched when a cut begins, and moving an entry carries its state. A
 * cut that was not brought to its end leaves entries with codes of no meaning; these are swept in
 * ps_index_maintain(), or at once by the next cut.
 *
 * Belongs to one thread.
 */
#ifndef PS_INDEX_H
#define PS_INDEX_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "dataplane/wire/format/mr_feature.h"
#include "ps/base/key_hash.h"
#include "ps/memory/arena.h"

#define PS_BUCKET_KEYS 8u
#define PS_PARTITION_BUCKETS_MAX                                                                             \
    ((1u << 20) - 1) /* more keys in one partition are refused: as without memory */
#define PS_GROUP_PARTITIONS 16u
#define PS_ROW_GROUPS       (MR_PARTITION_COUNT / PS_GROUP_PARTITIONS)
/* of all places of the index, this share is used on average when it is large */
#define PS_INDEX_LOAD_NUM 37u
#define PS_INDEX_LOAD_DEN 40u

/* From the top: 52 - q bits of the hash; 1 bit: it lies in its other bucket; 9 + q bits: row number + 1; 2
 * bits of state. 0: free. */
struct ps_bucket {
    uint64_t entries[PS_BUCKET_KEYS];
} __attribute__((aligned(64)));
static_assert(sizeof(struct ps_bucket) == 64, "a bucket is a cache line");

#define PS_ENTRY_STATES 4u

struct ps_partition {
    struct ps_bucket *buckets; /* never NULL: an empty partition points at one empty bucket shared by all */
    uint32_t bucket_count;
    uint32_t limit; /* of its entries: ps_entry_limit() */
};

#define PS_PARTITION_NONE UINT32_MAX

/* The partition that is being moved into other buckets: what is left in its old ones. */
struct ps_index_move {
    uint32_t partition; /* PS_PARTITION_NONE: none is */
    uint32_t bucket_count;
    uint32_t done;       /* buckets before this one are empty */
    uint32_t retry_rows; /* keys find no place: it continues when the partition has so many rows */
    struct ps_bucket *buckets;
};

struct ps_index {
    struct ps_arena *arena;
    struct ps_key_hasher hasher; /* how its keys are hashed */
    uint64_t rows;
    uint64_t places; /* in all buckets, without the old ones of a partition that is being moved */
    size_t bytes;    /* of all buckets */
    /* partitions grow in their turn only as long as `bytes` stays below: the owner's to set */
    size_t bytes_max;
    bool is_tight;            /* partitions grow only when they have no place for a key: the owner's to set */
    uint32_t grow_next;       /* partition whose turn it is to grow, */
    uint32_t grow_count;      /* to this many buckets; */
    uint32_t first_next;      /* and to get its first bucket, before a key needs it */
    uint32_t partitions_used; /* that have buckets */
    struct ps_index_move move;
    uint32_t gather_count,
        /* partitions before the latter were moved out of that huge page: ps_arena_clear_begin() */
        gather_next;
    /* Buckets that may be searched or moved in vain: each insert adds some, keys that find no place use them.
     */
    uint32_t spare_buckets;
    uint64_t
        crowded[MR_PARTITION_COUNT / 64]; /* a bit per partition that failed to grow since it last grew */
    uint64_t rewrites;   /* partitions given other buckets so far: when it changes, homes may be elsewhere */
    uint32_t base, mark; /* codes of state */
    uint32_t pending_codes;   /* a bit per code: the running cut's; 0 when none is */
    bool is_unswept;          /* entries with codes of no meaning may be there, */
    uint32_t sweep_partition; /* from this one on */
    uint64_t marks;           /* keys with the mark */
    /* Told to the cursor of a cut, or of a copy, which sets the first: entries that moved within this
     * partition and that the cut has still to have, or that have the mark. */
    uint32_t watched_partition;
    uint32_t watched_moves;
    struct ps_partition partitions[MR_PARTITION_COUNT];
    uint32_t partition_rows[MR_PARTITION_COUNT];
    uint16_t versions[MR_PARTITION_COUNT]; /* of a partition: counts its changes of buckets, around */
    /* a bit per partition that ps_index_maintain() should look at */
    uint64_t untidy[MR_PARTITION_COUNT / 64];
    uint32_t untidy_count;
};

/* Place of a key. bucket == NULL: not there. Valid until a key is put in or ps_index_maintain() is called. */
struct ps_place {
    struct ps_bucket *bucket;
    uint32_t row;
    uint16_t partition;
    uint16_t slot;
};

/* Allocates nothing. */
void ps_index_init(struct ps_index *ix, struct ps_arena *arena, const struct ps_key_hasher *hasher);
/* Makes buckets at once for `rows` rows of a partition in all, and some more, before many of its keys are put
 * in. Without memory for them keys are put in as usual. */
void ps_index_reserve(struct ps_index *ix, uint32_t partition, uint32_t rows);
/* Frees all buckets; usable again. No cut may be running. */
void ps_index_clear(struct ps_index *ix);
/* The same a little at a time: true when there is more. Until it is done, nothing else may be called but
 * ps_index_clear(). */
bool ps_index_clear_some(struct ps_index *ix, struct ps_arena_slice *slice);
/* Puts in a key that is not there (the caller has looked), with a mark or without. Keys added while a cut
 * runs are not part of it. row: in the key's group, the lower the better. False when memory is used up, or no
 * more keys like this one can be held: of more than 2^23 in a partition, or of some that were chosen for
 * having the same two buckets. The key is not there then. */
bool ps_index_insert(struct ps_index *ix, uint64_t hash, uint32_t row, bool marked);
/* Most bytes that putting in a key of this hash allocates for its own partition; 0 while that has free
 * places. */
size_t ps_index_insert_bytes(const struct ps_index *ix, uint64_t hash);
/* Takes out the key at `place`; its row number is the caller's again. Emits nothing: see
 * ps_table_row_remove(). Other places stay as they are. */
void ps_index_remove(struct ps_index *ix, struct ps_place place);
/* Gives the key another row of its group. False when its entry has no room for the number:
 * nothing is changed. */
bool ps_index_set_row(struct ps_index *ix, struct ps_place place, uint32_t row);
/* The hash of the key at `place`. */
uint64_t ps_index_hash_at(const struct ps_index *ix, struct ps_place place);
/* Returns the hash of a taken entry in bucket `number` of an array of bucket_count of this partition. */
uint64_t ps_entry_hash(uint32_t partition, uint32_t number, uint32_t bucket_count, uint64_t entry);
/* Makes partitions smaller that removals have left too large, a piece at a time, until the memory so touched
 * uses up the budget; takes it off. True when there is more to do. row_ends[g]: all rows of group g have
 * lower numbers. Buckets move; a running cut continues. A partition that cannot be made smaller now, for want
 * of memory or for its row numbers, is looked at again after the next removal from it, or
 * ps_index_tidy_group(). */
bool ps_index_maintain(struct ps_index *ix, const uint32_t row_ends[PS_ROW_GROUPS], uint64_t *budget_bytes);
void ps_index_tidy_group(struct ps_index *ix, uint32_t group);

/* ---- cursors ----
 * The buckets of a partition by number: those that a move has still to empty come first, so that nothing
 * moves backwards past a cursor but when entries give way to a new key. A partition whose version has changed
 * has other buckets: from the start again. */
uint32_t ps_index_bucket_count(const struct ps_index *ix, uint32_t partition);
struct ps_bucket *ps_index_bucket(const struct ps_index *ix, uint32_t partition, uint32_t number);
/* From this bucket on, as far as they are adjacent: first[i] is bucket first_number + i of an
 * array of bucket_count. Valid like places are. */
struct ps_bucket_run {
    struct ps_bucket *first;
    uint32_t count; /* at least 1 */
    uint32_t first_number, bucket_count;
};
struct ps_bucket_run ps_index_run(const struct ps_index *ix, uint32_t partition, uint32_t number);
/* Of a slot that is taken, in a bucket of this partition. */
struct ps_place ps_index_place_at(const struct ps_index *ix, uint32_t partition, struct ps_bucket *b,
                                  uint32_t slot);

/* ---- cuts and marks ---- */

/* Makes all present keys pending, or those with a mark (the last cut was whole then). Removes all marks.
 * Returns how many keys are pending. */
uint64_t ps_index_cut_begin(struct ps_index *ix, bool marked_only);
/* Nothing is pending any more. is_whole: nothing was. */
void ps_index_cut_end(struct ps_index *ix, bool is_whole);

#if defined(__aarch64__) && !defined(__SSE2__)
/* The lower halves of four entries from the first on, or the higher ones. */
static inline uint32x4_t ps_entries_low(const struct ps_bucket *b, uint32_t first)
{
    return vuzp1q_u32(vreinterpretq_u32_u64(vld1q_u64(b->entries + first)),
                      vreinterpretq_u32_u64(vld1q_u64(b->entries + first + 2)));
}

static inline uint32x4_t ps_entries_high(const struct ps_bucket *b, uint32_t first)
{
    return vuzp2q_u32(vreinterpretq_u32_u64(vld1q_u64(b->entries + first)),
                      vreinterpretq_u32_u64(vld1q_u64(b->entries + first + 2)));
}

/* A bit for each lane, all of whose bits are set, or none. */
static inline uint32_t ps_lane_bits(uint32x4_t first, uint32x4_t last)
{
    const uint16x8_t bits = {1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t all = vuzp1q_u16(vreinterpretq_u16_u32(first), vreinterpretq_u16_u32(last));
    return vaddvq_u16(vandq_u16(all, bits));
}
#endif

static inline uint64_t ps_index_hash(const struct ps_index *ix, uint64_t key)
{
    return ps_placed_hash(&ix->hasher, key);
}

static inline uint64_t ps_index_key(const struct ps_index *ix, uint64_t hash)
{
    return ps_key_of_placed(&ix->hasher, hash);
}

/* Bit i: entries[i] is taken. */
static inline uint32_t ps_bucket_taken(const struct ps_bucket *b)
{
#if defined(__SSE2__)
    /* A taken entry is not 0 in its lower half, for there is the row number. */
    const __m128 *in = (const __m128 *)(const void *)b->entries;
    __m128i zero = _mm_setzero_si128();
    __m128i low = _mm_cmpeq_epi32(_mm_castps_si128(_mm_shuffle_ps(in[0], in[1], 0x88)), zero);
    __m128i high = _mm_cmpeq_epi32(_mm_castps_si128(_mm_shuffle_ps(in[2], in[3], 0x88)), zero);
    __m128i all = _mm_packs_epi16(_mm_packs_epi32(low, high), zero);
    return ~(uint32_t)_mm_movemask_epi8(all) & 0xff;
#elif defined(__aarch64__)
    uint32x4_t first = ps_entries_low(b, 0), last = ps_entries_low(b, 4);
    return ps_lane_bits(vtstq_u32(first, first), vtstq_u32(last, last));
#else
    uint32_t taken = 0;
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++)
        taken |= (uint32_t)(b->entries[i] != 0) << i;
    return taken;
#endif
}

/* Bit i: the highest 32 bits of entries[i] are these. */
static inline uint32_t ps_bucket_candidates(const struct ps_bucket *b, uint32_t high_bits)
{
#if defined(__SSE2__)
    const __m128 *in = (const __m128 *)(const void *)b->entries;
    __m128i wanted = _mm_set1_epi32((int)high_bits);
    __m128i low = _mm_cmpeq_epi32(_mm_castps_si128(_mm_shuffle_ps(in[0], in[1], 0xdd)), wanted);
    __m128i high = _mm_cmpeq_epi32(_mm_castps_si128(_mm_shuffle_ps(in[2], in[3], 0xdd)), wanted);
    __m128i all = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
    return (uint32_t)_mm_movemask_epi8(all);
#elif defined(__aarch64__)
    uint32x4_t wanted = vdupq_n_u32(high_bits);
    return ps_lane_bits(vceqq_u32(ps_entries_high(b, 0), wanted), vceqq_u32(ps_entries_high(b, 4), wanted));
#else
    uint32_t candidates = 0;
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++)
        candidates |= (uint32_t)((uint32_t)(b->entries[i] >> 32) == high_bits) << i;
    return candidates;
#endif
}

/* Of entries of a partition with so many buckets: the bit that says that one lies in its other bucket, 2^(11
 * + q). What is below is row number and state, what is above is of the hash. */
static inline uint32_t ps_entry_limit(uint32_t bucket_count)
{
    return 1u << (42u - (uint32_t)__builtin_clz(bucket_count));
}

static inline uint64_t ps_entry_of_hash(uint64_t hash, uint32_t limit)
{
    return (hash << 1) * limit;
}

static inline uint32_t ps_entry_row(uint64_t entry, uint32_t limit)
{
    return ((uint32_t)entry & (limit - 1)) / PS_ENTRY_STATES - 1;
}

/* Bucket number of a home. */
static inline uint32_t ps_home_number(uint64_t hash, uint32_t bucket_count)
{
    uint64_t below_partition = hash << 12 >> 32; /* the next 32 bits */
    return (uint32_t)(below_partition * bucket_count >> 32);
}

/* How many buckets after home the other one is, wrapping around: 1 .. bucket_count - 1, where there are so
 * many. Entries hold the bits that it follows from. */
static inline uint32_t ps_other_distance(uint64_t hash, uint32_t bucket_count)
{
    /* By another factor for each count, so that keys which have the same two buckets in one array have not in
     * the next. */
    uint64_t held = ps_entry_of_hash(hash, ps_entry_limit(bucket_count));
    uint64_t factor = (bucket_count * UINT64_C(0xc2b2ae3d27d4eb4f) ^ UINT64_C(0x9e3779b97f4a7c15)) | 1;
    uint64_t mixed = held * factor >> 32;
    return 1 + (uint32_t)(mixed * (bucket_count - 1) >> 32);
}

static inline uint32_t ps_other_number(uint64_t hash, uint32_t home, uint32_t bucket_count)
{
    uint32_t other = home + ps_other_distance(hash, bucket_count);
    return other >= bucket_count ? other - bucket_count : other;
}

static inline struct ps_bucket *ps_index_home(const struct ps_index *ix, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    return p->buckets + ps_home_number(hash, p->bucket_count);
}

/* The key in its home bucket, or its other one. */
static inline struct ps_place ps_bucket_find(struct ps_bucket *b, uint64_t hash, uint32_t limit,
                                             bool is_other)
{
    uint64_t wanted = ps_entry_of_hash(hash, limit) + (is_other ? limit : 0);
    uint32_t candidates = ps_bucket_candidates(b, (uint32_t)(wanted >> 32));
    for (; __builtin_expect(candidates != 0, 1); candidates &= candidates - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(candidates);
        uint64_t below = b->entries[slot] ^ wanted; /* row number and state, if it is the one */
        if (__builtin_expect(below - PS_ENTRY_STATES < limit - PS_ENTRY_STATES, 1))
            return (struct ps_place){b, (uint32_t)below / PS_ENTRY_STATES - 1,
                                     (uint16_t)mr_partition_of(hash), (uint16_t)slot};
    }
    return (struct ps_place){.bucket = NULL};
}

static inline struct ps_place ps_buckets_find(struct ps_bucket *buckets, uint32_t bucket_count, uint64_t hash)
{
    uint32_t limit = ps_entry_limit(bucket_count), home = ps_home_number(hash, bucket_count);
    struct ps_place place = ps_bucket_find(buckets + home, hash, limit, false);
    return place.bucket != NULL
               ? place
               : ps_bucket_find(buckets + ps_other_number(hash, home, bucket_count), hash, limit, true);
}

/* The key anywhere but in its home bucket. */
static inline struct ps_place ps_index_find_away(const struct ps_index *ix, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    uint32_t other = ps_other_number(hash, ps_home_number(hash, p->bucket_count), p->bucket_count);
    struct ps_place place = ps_bucket_find(p->buckets + other, hash, p->limit, true);
    if (__builtin_expect(place.bucket == NULL && ix->move.partition == mr_partition_of(hash), 0))
        place = ps_buckets_find(ix->move.buckets, ix->move.bucket_count, hash);
    return place;
}

static inline struct ps_place ps_index_find(const struct ps_index *ix, uint64_t hash)
{
    const struct ps_partition *p = &ix->partitions[mr_partition_of(hash)];
    struct ps_bucket *home = p->buckets + ps_home_number(hash, p->bucket_count);
    struct ps_place place = ps_bucket_find(home, hash, p->limit, false);
    return __builtin_expect(place.bucket != NULL, 1) ? place : ps_index_find_away(ix, hash);
}

static inline uint64_t *ps_place_entry(struct ps_place place)
{
    return &place.bucket->entries[place.slot];
}

static inline uint32_t ps_entry_state(uint64_t entry)
{
    return (uint32_t)entry % PS_ENTRY_STATES;
}

static inline uint64_t ps_entry_with_state(uint64_t entry, uint32_t state)
{
    return (entry & ~(uint64_t)(PS_ENTRY_STATES - 1)) | state;
}

/* The running cut has still to have this entry, which is taken. */
static inline bool ps_entry_is_pending(const struct ps_index *ix, uint64_t entry)
{
    return (ix->pending_codes >> ps_entry_state(entry) & 1) != 0;
}

/* Bits of the entries of `b` that it has still to have, all of them taken. */
static inline uint32_t ps_bucket_pending(const struct ps_index *ix, const struct ps_bucket *b)
{
    if (ix->pending_codes == 0)
        return 0;
        /* One code or two. */
#if defined(__SSE2__)
    __m128i first = _mm_set1_epi32(__builtin_ctz(ix->pending_codes));
    __m128i last = _mm_set1_epi32(31 - __builtin_clz(ix->pending_codes));
    __m128i states = _mm_set1_epi32(PS_ENTRY_STATES - 1), found[2];
    const __m128 *in = (const __m128 *)(const void *)b->entries;
    for (uint32_t i = 0; i < 2; i++) {
        __m128i low = _mm_castps_si128(_mm_shuffle_ps(in[2 * i], in[2 * i + 1], 0x88));
        __m128i state = _mm_and_si128(low, states);
        __m128i is_pending = _mm_or_si128(_mm_cmpeq_epi32(state, first), _mm_cmpeq_epi32(state, last));
        found[i] = _mm_andnot_si128(_mm_cmpeq_epi32(low, _mm_setzero_si128()), is_pending);
    }
    __m128i all = _mm_packs_epi16(_mm_packs_epi32(found[0], found[1]), _mm_setzero_si128());
    return (uint32_t)_mm_movemask_epi8(all);
#elif defined(__aarch64__)
    uint32x4_t first = vdupq_n_u32((uint32_t)__builtin_ctz(ix->pending_codes));
    uint32x4_t last = vdupq_n_u32(31 - (uint32_t)__builtin_clz(ix->pending_codes));
    uint32x4_t found[2];
    for (uint32_t i = 0; i < 2; i++) {
        uint32x4_t low = ps_entries_low(b, 4 * i), state = vandq_u32(low, vdupq_n_u32(PS_ENTRY_STATES - 1));
        found[i] = vandq_u32(vtstq_u32(low, low), vorrq_u32(vceqq_u32(state, first), vceqq_u32(state, last)));
    }
    return ps_lane_bits(found[0], found[1]);
#else
    uint32_t pending = 0;
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++)
        pending |= (uint32_t)(b->entries[i] != 0 && ps_entry_is_pending(ix, b->entries[i])) << i;
    return pending;
#endif
}

/* The cut was given the key. */
static inline void ps_index_emitted(const struct ps_index *ix, struct ps_bucket *b, uint32_t slot)
{
    b->entries[slot] = ps_entry_with_state(b->entries[slot], ix->base);
}

static inline bool ps_index_is_marked(const struct ps_index *ix, struct ps_place place)
{
    return ps_entry_state(*ps_place_entry(place)) == ix->mark;
}

/* The row of this key has changed: after the running cut was given it as it was. Does nothing to one that is
 * still pending: the stamps of its row are part of that cut. */
static inline void ps_index_mark(struct ps_index *ix, struct ps_place place)
{
    uint64_t *entry = ps_place_entry(place);
    if (ps_entry_state(*entry) == ix->base) {
        *entry = ps_entry_with_state(*entry, ix->mark);
        ix->marks++;
    }
}

#endif
