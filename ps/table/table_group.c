/* Hashes groups of keys, and looks for them in their home buckets: key by key, with AVX2 without a branch
 * that depends on a key, or, where the processor has AVX-512, eight at a time, which takes a third of the
 * instructions. */
#include "ps/table/table_internal.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define PS_KEYS_AHEAD (8 * PS_GROUP_KEYS) /* that are prefetched */

/* ---- key by key ---- */

static inline void group_home(const struct ps_table *t, struct ps_group *g, uint32_t i)
{
    const struct ps_partition *p = &t->index.partitions[mr_partition_of(g->hashes[i])];
    g->buckets[i] = p->buckets + ps_home_number(g->hashes[i], p->bucket_count);
    g->limits[i] = p->limit;
}

static inline void find_at_home(const struct ps_table *t, struct ps_group *g, uint32_t i, uint32_t row_bytes)
{
    struct ps_place place = ps_bucket_find(g->buckets[i], g->hashes[i], g->limits[i], false);
    if (__builtin_expect(place.bucket == NULL, 0)) {
        g->late |= 1u << i;
        g->rows[i] = NULL;
        return;
    }
    g->matches[i] = (uint8_t)(1u << place.slot);
    g->rows[i] = ps_table_row(t, place);
    ps_row_prefetch(t, g->rows[i], row_bytes);
}

/* Finds the other buckets of keys that are not at home, and asks for them. */
static inline __attribute__((always_inline)) void seek_late(const struct ps_table *t, struct ps_group *g)
{
    for (uint32_t late = g->late; late != 0; late &= late - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(late);
        const struct ps_partition *p = &t->index.partitions[mr_partition_of(g->hashes[i])];
        uint32_t home = ps_home_number(g->hashes[i], p->bucket_count);
        g->buckets[i] = p->buckets + ps_other_number(g->hashes[i], home, p->bucket_count);
        __builtin_prefetch(g->buckets[i], 0, 3);
    }
}

#ifdef __x86_64__

/* ---- a bucket's entries four at a time ---- */

/* lzcnt: what bsr yields depends on its target's value before, and so each key on the one before. */
#define VECTOR_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt")))

/* Where a key that was not found would find its slab, which is none. */
static const uint32_t nowhere[1];

/* A bit per entry that is the key's: entry and `wanted` differ by row number and state only. */
VECTOR_AVX2 static inline uint32_t match_entries(const struct ps_bucket *b, uint64_t wanted, uint32_t limit)
{
    /* below - states < limit - states, of unsigned numbers, by a comparison of signed ones. */
    const uint64_t sign = UINT64_C(1) << 63;
    const __m256i lowest = _mm256_set1_epi64x((long long)(sign - PS_ENTRY_STATES));
    const __m256i end = _mm256_set1_epi64x((long long)(sign + limit - PS_ENTRY_STATES));
    const __m256i key = _mm256_set1_epi64x((long long)wanted);
    const __m256i *in = (const __m256i *)(const void *)b->entries;
    __m256i low = _mm256_cmpgt_epi64(end, _mm256_add_epi64(_mm256_load_si256(in) ^ key, lowest));
    __m256i high = _mm256_cmpgt_epi64(end, _mm256_add_epi64(_mm256_load_si256(in + 1) ^ key, lowest));
    return (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(low)) |
           (uint32_t)_mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4;
}

/* find_at_home() of each key, and seek_late(). */
VECTOR_AVX2 static void find_group_avx2(const struct ps_table *t, struct ps_group *g, uint32_t count,
                                        uint32_t row_bytes)
{
    const struct ps_slabs *s = &t->slabs;
    const uint32_t lines = ps_row_prefetch_lines(t, row_bytes);
    uint32_t late = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct ps_bucket *b = g->buckets[i];
        uint32_t limit = g->limits[i];
        uint64_t wanted = ps_entry_of_hash(g->hashes[i], limit);
        uint32_t match = match_entries(b, wanted, limit);
        uint64_t found = -(uint64_t)(match != 0); /* all bits, or none */
        uint32_t below = (uint32_t)(b->entries[__builtin_ctz(match | 0x80)] ^ wanted);
        const uint32_t *directories[2] = {nowhere, s->directories[ps_group_of(g->hashes[i])]};
        below = ((below ^ PS_ENTRY_STATES) & (uint32_t)found) ^ PS_ENTRY_STATES; /* the first row's */
        g->matches[i] = (uint8_t)match;
        late |= (uint32_t)(match == 0) << i;
        g->rows[i] = ps_slabs_row_in(s, directories[found & 1], below / PS_ENTRY_STATES - 1);
        for (uint32_t line = 0; line < lines; line++)
            __builtin_prefetch((const char *)g->rows[i] + line * 64, 0, 3);
    }
    g->late = late;
    seek_late(t, g);
}

/* ---- eight keys at a time ---- */

#define LANES  8u
#define VECTOR __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

/* ps_key_hash(). */
VECTOR static inline __m512i hash_lanes(__m512i keys, uint64_t seed)
{
    const __m512i factor = _mm512_set1_epi64((long long)PS_KEY_HASH_FACTOR);
    __m512i h = _mm512_rol_epi64(keys, 32) ^ _mm512_set1_epi64((long long)ps_key_flip(seed));
    h ^= _mm512_rol_epi64(h, 49) ^ _mm512_rol_epi64(h, 24);
    h = _mm512_mullo_epi64(h, factor);
    h ^= _mm512_srli_epi64(h, 35) + _mm512_set1_epi64(sizeof(uint64_t));
    h = _mm512_mullo_epi64(h, factor);
    return h ^ _mm512_srli_epi64(h, 28);
}

VECTOR static void hash_group(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys)
{
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i += LANES)
        _mm512_storeu_si512(hashes + i, hash_lanes(_mm512_loadu_si512(keys + i), t->index.seed));
}

/* The buckets of the partitions of eight keys, and their bucket counts, with the limits above them. Eight
 * loads take half the time of two gathers. */
VECTOR static inline void load_partitions(const struct ps_partition *partitions, const uint64_t *hashes,
                                          __m512i *buckets, __m512i *counts)
{
#define AT(i) _mm_loadu_si128((const __m128i *)(const void *)&partitions[mr_partition_of(hashes[i])])
    __m256i low_even = _mm256_inserti128_si256(_mm256_castsi128_si256(AT(0)), AT(2), 1);
    __m256i high_even = _mm256_inserti128_si256(_mm256_castsi128_si256(AT(4)), AT(6), 1);
    __m256i low_odd = _mm256_inserti128_si256(_mm256_castsi128_si256(AT(1)), AT(3), 1);
    __m256i high_odd = _mm256_inserti128_si256(_mm256_castsi128_si256(AT(5)), AT(7), 1);
#undef AT
    __m512i even = _mm512_inserti64x4(_mm512_castsi256_si512(low_even), high_even, 1);
    __m512i odd = _mm512_inserti64x4(_mm512_castsi256_si512(low_odd), high_odd, 1);
    *buckets = _mm512_unpacklo_epi64(even, odd);
    *counts = _mm512_unpackhi_epi64(even, odd);
}

/* group_home(). */
VECTOR static inline void home_group(const struct ps_table *t, struct ps_group *g)
{
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i += LANES) {
        __m512i hashes = _mm512_loadu_si512(g->hashes + i), buckets, counts;
        load_partitions(t->index.partitions, g->hashes + i, &buckets, &counts);
        __m512i below_partition = _mm512_srli_epi64(_mm512_slli_epi64(hashes, 12), 32);
        __m512i numbers = _mm512_srli_epi64(_mm512_mul_epu32(below_partition, counts), 32);
        _mm512_storeu_si512(g->buckets + i, buckets + _mm512_slli_epi64(numbers, 6));
        _mm256_storeu_si256((__m256i *)(void *)(g->limits + i),
                            _mm512_cvtepi64_epi32(_mm512_srli_epi64(counts, 32)));
    }
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i++)
        __builtin_prefetch(g->buckets[i], 0, 3);
}

/* What entry and key differ by: row number and state, if the entry is the key's. */
VECTOR static inline __m512i below_of(struct ps_group *g, uint32_t i, __m512i wanted, __m512i limit)
{
    const __m512i states = _mm512_set1_epi64(PS_ENTRY_STATES);
    __m512i below = _mm512_load_si512(g->buckets[i]) ^ wanted;
    __mmask8 match = _mm512_cmplt_epu64_mask(below - states, limit - states);
    g->matches[i] = match;
    return _mm512_maskz_compress_epi64(match, below);
}

/* ps_slabs_row() of the rows that were found, by their numbers; the others' are the base of the slabs. What
 * the vectors hold is added up one by one: eight loads take less time than a gather. */
VECTOR static inline void rows_of(const struct ps_slabs *s, struct ps_group *g, uint32_t first_key,
                                  __mmask8 found, __m512i numbers)
{
    uint64_t slabs[LANES] __attribute__((aligned(64))), offsets[LANES] __attribute__((aligned(64)));
    __m512i biased = numbers + _mm512_set1_epi64(s->row_bias);
    /* Its highest bit: a double's exponent. */
    __m512i bit = _mm512_srli_epi64(_mm512_castpd_si512(_mm512_cvtepu64_pd(biased)), 52);
    __m512i first = _mm512_set1_epi64(s->first_shift);
    __m512i shift =
        _mm512_min_epu64(bit - _mm512_set1_epi64(1023 + PS_SLABS_SHIFT), _mm512_set1_epi64(s->last_shift));
    __m512i slabs_before = _mm512_slli_epi64(shift - first - _mm512_set1_epi64(1), PS_SLABS_SHIFT);
    __m512i places = _mm512_andnot_si512(_mm512_sllv_epi64(_mm512_set1_epi64(-1), shift), biased);
    _mm512_store_si512(slabs, _mm512_maskz_add_epi64(found, _mm512_srlv_epi64(biased, shift), slabs_before));
    _mm512_store_si512(offsets, _mm512_maskz_mul_epu32(found, places, _mm512_set1_epi64(s->stride_bytes)));
    for (uint32_t i = 0; i < LANES; i++) {
        const uint32_t *directory = s->directories[ps_group_of(g->hashes[first_key + i])];
        directory = (found >> i & 1) != 0 ? directory : nowhere;
        g->rows[first_key + i] = s->base + (size_t)directory[slabs[i]] * PS_SLAB_LINE_BYTES + offsets[i];
    }
}

/* find_at_home(). */
VECTOR static inline uint32_t find_lanes(const struct ps_table *t, struct ps_group *g, uint32_t first)
{
    uint64_t wanted[LANES] __attribute__((aligned(64)));
    __m512i hashes = _mm512_loadu_si512(g->hashes + first), below[LANES / 2];
    __m512i limits = _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)(void *)(g->limits + first)));
    _mm512_storeu_si512(wanted, _mm512_mullo_epi64(_mm512_slli_epi64(hashes, 1), limits));
    for (uint32_t i = 0; i < LANES; i += 2) {
        __m512i even = below_of(g, first + i, _mm512_set1_epi64((long long)wanted[i]),
                                _mm512_set1_epi64(g->limits[first + i]));
        __m512i odd = below_of(g, first + i + 1, _mm512_set1_epi64((long long)wanted[i + 1]),
                               _mm512_set1_epi64(g->limits[first + i + 1]));
        below[i / 2] = _mm512_unpacklo_epi64(even, odd);
    }
    __m256i low =
        _mm256_inserti128_si256(_mm512_castsi512_si256(below[0]), _mm512_castsi512_si128(below[1]), 1);
    __m256i high =
        _mm256_inserti128_si256(_mm512_castsi512_si256(below[2]), _mm512_castsi512_si128(below[3]), 1);
    __m512i all = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    __mmask8 found = _mm512_test_epi64_mask(all, all);
    __m512i numbers = _mm512_srli_epi64(all, 2) - _mm512_set1_epi64(1);
    rows_of(&t->slabs, g, first, found, numbers);
    return found;
}

VECTOR static void find_group(const struct ps_table *t, struct ps_group *g)
{
    uint32_t low = find_lanes(t, g, 0);
    g->late = 0xffff & ~(low | find_lanes(t, g, LANES) << LANES);
}

/* Groups that are not full go key by key. */
static inline bool takes_eight(const struct ps_table *t, uint32_t count)
{
    return t->kernels->vectors == MR_VECTOR_AVX512 && count == PS_GROUP_KEYS;
}

#else

#define takes_eight(t, count) false
static void hash_group(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys)
{
}
static void home_group(const struct ps_table *t, struct ps_group *g)
{
}
static void find_group(const struct ps_table *t, struct ps_group *g)
{
}
static void find_group_avx2(const struct ps_table *t, struct ps_group *g, uint32_t count, uint32_t row_bytes)
{
}

#endif

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
    if (takes_eight(t, count)) {
        hash_group(t, hashes, keys);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        hashes[i] = ps_key_hash(keys[i], t->index.seed);
}

void ps_group_seek(const struct ps_table *t, struct ps_group *g, uint32_t count)
{
    if (takes_eight(t, count)) {
        home_group(t, g);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        group_home(t, g, i);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(g->buckets[i], 0, 3);
}

void ps_group_find(const struct ps_table *t, struct ps_group *g, uint32_t count, uint32_t row_bytes)
{
    for (uint32_t i = 0; i < count; i++)
        check_bucket(t, g, i);
    g->late = 0;
    if (t->kernels->vectors == MR_VECTOR_AVX2) {
        find_group_avx2(t, g, count, row_bytes);
        return;
    }
    if (!takes_eight(t, count)) {
        for (uint32_t i = 0; i < count; i++)
            find_at_home(t, g, i, row_bytes);
        seek_late(t, g);
        return;
    }
    find_group(t, g);
    seek_late(t, g);
    /* Of all keys: a branch by what was found would be mispredicted once the rows' addresses are there. */
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i++)
        ps_row_prefetch(t, g->rows[i], row_bytes);
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
