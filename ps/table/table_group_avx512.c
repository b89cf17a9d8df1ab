/* The stages of a group of keys by AVX-512, eight keys at a time: a third of the instructions of key by
 * key. */
#include "ps/table/table_group.h"

#ifdef __x86_64__
#include <immintrin.h>

#define LANES  8u
#define VECTOR __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

/* ps_placed_hash(). */
VECTOR static inline __m512i hash_lanes(__m512i keys, const struct ps_key_hasher *hasher)
{
    const __m512i factor = _mm512_set1_epi64((long long)PS_KEY_HASH_FACTOR);
    __m512i h = _mm512_rol_epi64(keys, 32) ^ _mm512_set1_epi64((long long)ps_key_flip(hasher->seed));
    h ^= _mm512_rol_epi64(h, 49) ^ _mm512_rol_epi64(h, 24);
    h = _mm512_mullo_epi64(h, factor);
    h ^= _mm512_srli_epi64(h, 35) + _mm512_set1_epi64(sizeof(uint64_t));
    h = _mm512_mullo_epi64(h, factor);
    __m512i below = _mm512_mullo_epi64(h, _mm512_set1_epi64((long long)hasher->first));
    below ^= _mm512_srli_epi64(below, PS_PLACED_MIXED) & _mm512_set1_epi64(-(1LL << PS_PLACED_SHIFT));
    below = _mm512_mullo_epi64(below, _mm512_set1_epi64((long long)hasher->second));
    const __m512i mask = _mm512_set1_epi64((long long)PS_PLACED_MASK);
    return _mm512_andnot_si512(mask, h) | _mm512_srli_epi64(below, PS_PLACED_SHIFT);
}

VECTOR static void hash_group(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys)
{
    for (uint32_t i = 0; i < PS_GROUP_KEYS; i += LANES)
        _mm512_storeu_si512(hashes + i, hash_lanes(_mm512_loadu_si512(keys + i), &t->index.hasher));
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
VECTOR static void seek_group(const struct ps_table *t, struct ps_group *g)
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
        directory = (found >> i & 1) != 0 ? directory : ps_group_nowhere;
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

const struct ps_group_stages ps_group_stages_avx512 = {
    .hash = hash_group, .seek = seek_group, .find = find_group, .find_some = ps_group_find_some_avx2};

#endif
