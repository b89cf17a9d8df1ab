/* The stages of a group of keys by AVX2: four keys are hashed at a time, and a bucket's entries compared; the
 * places of eight rows are worked out at a time. Without a branch that depends on a key. */
#include "ps/table/table_group.h"
#include <float.h>
#include "ps/memory/size_classes.h"

#ifdef __x86_64__
#include <immintrin.h>

/* bmi: what bsf yields depends on its target's value before, and so each key on the one before. */
#define VECTOR __attribute__((target("avx2,bmi,bmi2")))
#define LANES  4u /* of 64 bits */
#define SIGN   (UINT64_C(1) << 63)

/* ---- hash ---- */

/* Modulo 2^64, from products of halves. Sums are by intrinsics: those of + are signed, and must not wrap. */
VECTOR static inline __m256i multiply(__m256i x, __m256i y)
{
    __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), y),
                                     _mm256_mul_epu32(x, _mm256_srli_epi64(y, 32)));
    return _mm256_add_epi64(_mm256_mul_epu32(x, y), _mm256_slli_epi64(cross, 32));
}

#define ROTATE_LEFT(x, bits) (_mm256_slli_epi64(x, bits) | _mm256_srli_epi64(x, 64 - (bits)))

/* ps_placed_hash(). */
VECTOR static inline __m256i hash_lanes(__m256i keys, const struct ps_key_hasher *hasher)
{
    const __m256i factor = _mm256_set1_epi64x((long long)PS_KEY_HASH_FACTOR);
    __m256i h = ROTATE_LEFT(keys, 32) ^ _mm256_set1_epi64x((long long)ps_key_flip(hasher->seed));
    h ^= ROTATE_LEFT(h, 49) ^ ROTATE_LEFT(h, 24);
    h = multiply(h, factor);
    h ^= _mm256_add_epi64(_mm256_srli_epi64(h, 35), _mm256_set1_epi64x(sizeof(uint64_t)));
    h = multiply(h, factor);
    __m256i below = multiply(h, _mm256_set1_epi64x((long long)hasher->first));
    below ^= _mm256_srli_epi64(below, PS_PLACED_MIXED) & _mm256_set1_epi64x(-(1LL << PS_PLACED_SHIFT));
    below = multiply(below, _mm256_set1_epi64x((long long)hasher->second));
    const __m256i mask = _mm256_set1_epi64x((long long)PS_PLACED_MASK);
    return _mm256_andnot_si256(mask, h) | _mm256_srli_epi64(below, PS_PLACED_SHIFT);
}

VECTOR static void hash_group(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys)
{
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i += LANES)
        _mm256_storeu_si256(
            (__m256i *)(void *)(hashes + i),
            hash_lanes(_mm256_loadu_si256((const __m256i *)(const void *)(keys + i)), &t->index.hasher));
}

/* ---- seek ---- */

VECTOR static inline void home_lanes(const struct ps_partition *partitions, struct ps_group *g, uint32_t i)
{
#define AT(k) _mm_loadu_si128((const __m128i *)(const void *)&partitions[mr_partition_of(g->hashes[i + (k)])])
    __m256i even = _mm256_inserti128_si256(_mm256_castsi128_si256(AT(0)), AT(2), 1);
    __m256i odd = _mm256_inserti128_si256(_mm256_castsi128_si256(AT(1)), AT(3), 1);
#undef AT
    __m256i buckets = _mm256_unpacklo_epi64(even, odd);
    __m256i counts = _mm256_unpackhi_epi64(even, odd); /* and the limits, above them */
    __m256i hashes = _mm256_load_si256((const __m256i *)(void *)(g->hashes + i));
    __m256i below_partition = _mm256_srli_epi64(_mm256_slli_epi64(hashes, 12), 32);
    __m256i numbers = _mm256_srli_epi64(_mm256_mul_epu32(below_partition, counts), 32);
    _mm256_storeu_si256((__m256i *)(void *)(g->buckets + i),
                        _mm256_add_epi64(buckets, _mm256_slli_epi64(numbers, 6)));
    _mm_storeu_ps((float *)(void *)(g->limits + i),
                  _mm_shuffle_ps(_mm_castsi128_ps(_mm256_castsi256_si128(counts)),
                                 _mm_castsi128_ps(_mm256_extracti128_si256(counts, 1)), 0xdd));
}

VECTOR static void seek_group(const struct ps_table *t, struct ps_group *g)
{
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i += LANES)
        home_lanes(t->index.partitions, g, i);
}

/* ---- find ---- */

/* What the search for a group's keys knows of each. */
struct search {
    uint64_t wanted[PS_GROUP_KEYS] __attribute__((aligned(32))); /* ps_entry_of_hash() */
    uint64_t ends[PS_GROUP_KEYS] __attribute__((aligned(32)));   /* see match_entries() */
    uint32_t below[PS_GROUP_KEYS] __attribute__((aligned(32))); /* row number and state, where it was found */
    uint32_t slabs[PS_GROUP_KEYS] __attribute__((aligned(32))); /* of the rows, in their directories, */
    uint32_t offsets[PS_GROUP_KEYS] __attribute__((aligned(32))); /* and where in the slab */
};

VECTOR static inline void want_lanes(struct search *s, const struct ps_group *g, uint32_t i)
{
    __m256i limits = _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)(const void *)(g->limits + i)));
    __m256i twice = _mm256_slli_epi64(_mm256_load_si256((const __m256i *)(const void *)(g->hashes + i)), 1);
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(twice, 32), limits);
    _mm256_store_si256((__m256i *)(void *)(s->wanted + i),
                       _mm256_add_epi64(_mm256_mul_epu32(twice, limits), _mm256_slli_epi64(high, 32)));
    _mm256_store_si256((__m256i *)(void *)(s->ends + i),
                       _mm256_add_epi64(limits, _mm256_set1_epi64x((long long)(SIGN - PS_ENTRY_STATES))));
}

/* A bit per entry that is the key's: entry and `wanted` differ by row number and state only, which is
 * below - states < limit - states, of unsigned numbers, by a comparison of signed ones. */
VECTOR static inline uint32_t match_entries(const struct ps_bucket *b, const uint64_t *wanted,
                                            const uint64_t *end)
{
    const __m256i lowest = _mm256_set1_epi64x((long long)(SIGN - PS_ENTRY_STATES));
    const __m256i key = _mm256_set1_epi64x((long long)*wanted);
    const __m256i ends = _mm256_set1_epi64x((long long)*end);
    const __m256i *in = (const __m256i *)(const void *)b->entries;
    __m256i low = _mm256_cmpgt_epi64(ends, _mm256_add_epi64(_mm256_load_si256(in) ^ key, lowest));
    __m256i high = _mm256_cmpgt_epi64(ends, _mm256_add_epi64(_mm256_load_si256(in + 1) ^ key, lowest));
    return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(low)) |
           (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4;
}

/* ps_slabs_row_in() of eight rows up to the directory; keys that were not found get the first slab. */
VECTOR static inline void place_rows(const struct ps_slabs *slabs, struct search *s, const uint8_t *matches,
                                     uint32_t i)
{
    __m256i below = _mm256_load_si256((const __m256i *)(const void *)(s->below + i));
    __m256i match = _mm256_cvtepu8_epi32(_mm_loadu_si64(matches + i));
    __m256i found = _mm256_cmpgt_epi32(match, _mm256_setzero_si256());
    __m256i biased =
        _mm256_add_epi32(_mm256_srli_epi32(below, 2), _mm256_set1_epi32((int)slabs->row_bias - 1));
    /* Its highest bit: a float's exponent. Those that are rounded are in slabs of the last size. */
    static_assert(PS_PIECE_BYTES_MAX / sizeof(float) <= 1u << (FLT_MANT_DIG - PS_SLABS_SHIFT), "");
    __m256i bit = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(biased)), FLT_MANT_DIG - 1);
    __m256i shift = _mm256_min_epu32(_mm256_sub_epi32(bit, _mm256_set1_epi32(127 + PS_SLABS_SHIFT)),
                                     _mm256_set1_epi32((int)slabs->last_shift));
    __m256i sizes_before = _mm256_sub_epi32(shift, _mm256_set1_epi32((int)slabs->first_shift + 1));
    __m256i slab =
        _mm256_add_epi32(_mm256_srlv_epi32(biased, shift), _mm256_slli_epi32(sizes_before, PS_SLABS_SHIFT));
    __m256i place = _mm256_andnot_si256(_mm256_sllv_epi32(_mm256_set1_epi32(-1), shift), biased);
    __m256i offset = _mm256_mullo_epi32(place, _mm256_set1_epi32((int)slabs->stride_bytes));
    _mm256_store_si256((__m256i *)(void *)(s->slabs + i), _mm256_and_si256(slab, found));
    _mm256_store_si256((__m256i *)(void *)(s->offsets + i), _mm256_and_si256(offset, found));
}

/* A bit per key that has no match. */
VECTOR static inline uint32_t late_keys(const struct ps_group *g)
{
    __m128i matches = _mm_loadu_si128((const __m128i *)(const void *)g->matches);
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(matches, _mm_setzero_si128()));
}

VECTOR static inline __attribute__((always_inline)) void find(const struct ps_table *t, struct ps_group *g,
                                                              uint32_t count)
{
    const struct ps_slabs *slabs = &t->slabs;
    struct search s;
    for (uint32_t i = 0; i < count; i += LANES)
        want_lanes(&s, g, i);
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_bucket *b = g->buckets[i];
        uint32_t match = match_entries(b, &s.wanted[i], &s.ends[i]);
        s.below[i] = (uint32_t)(b->entries[__builtin_ctz(match | 0x80)] ^ s.wanted[i]);
        g->matches[i] = (uint8_t)match;
    }
    for (uint32_t i = 0; i < count; i += 2 * LANES)
        place_rows(slabs, &s, g->matches, i);
    const uint32_t late = late_keys(g) & ((1u << count) - 1);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *directory = slabs->directories[ps_group_of(g->hashes[i])];
        directory = (late >> i & 1) != 0 ? ps_group_nowhere : directory;
        g->rows[i] = slabs->base + (size_t)directory[s.slabs[i]] * PS_SLAB_LINE_BYTES + s.offsets[i];
    }
    g->late = late;
}

VECTOR static void find_group(const struct ps_table *t, struct ps_group *g)
{
    find(t, g, PS_GROUP_KEYS);
}

VECTOR void ps_group_find_some_avx2(const struct ps_table *t, struct ps_group *g, uint32_t count)
{
    find(t, g, count);
}

const struct ps_group_stages ps_group_stages_avx2 = {
    .hash = hash_group, .seek = seek_group, .find = find_group, .find_some = ps_group_find_some_avx2};

#endif
