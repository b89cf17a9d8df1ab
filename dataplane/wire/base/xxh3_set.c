/* Compiled once for each set of vector instructions, by which xxhash.h chooses its code. MR_XXH3_SET names
 * the set. */
#include "dataplane/wire/base/xxh3_set.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>
#if defined(__AVX2__)
#include <immintrin.h>
#define HAS_VECTORS
#elif defined(__aarch64__)
#include <arm_neon.h>
#define HAS_VECTORS
#endif

#ifndef MR_XXH3_SET
#define MR_XXH3_SET mr_xxh3_baseline
#endif

static void hash_128(const void *data, size_t bytes, uint64_t out[2])
{
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    out[0] = hash.low64;
    out[1] = hash.high64;
}

#ifdef HAS_VECTORS
/* The library has no call that copies what it hashes. This is its algorithm for long inputs
 * (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, "XXH3 Algorithm for long inputs") with
 * each byte of the original loaded once: the hash is that of the copy, though another thread changes the
 * original meanwhile. */

#define SHORT_BYTES_MAX 240 /* up to here the algorithm is another one, which is left to the library */
#define LANES           8
#define STRIPE_BYTES    (LANES * sizeof(uint64_t))
#define STRIPES         16 /* of a block */
#define BLOCK_BYTES     (STRIPES * STRIPE_BYTES)
/* Where in the library's secret of 192 bytes keys begin. */
#define SECRET_SCRAMBLE 128
#define SECRET_LAST     121
#define SECRET_MERGE    11
#define AHEAD_BYTES     384 /* asked for in advance, as in the library */

#ifdef __AVX512F__
typedef __m512i vector;
#define VECTOR_LOAD(from)         _mm512_loadu_si512(from)
#define VECTOR_STORE(to, v)       _mm512_storeu_si512(to, v)
#define VECTOR_MUL_LOW(a, b)      _mm512_mul_epu32(a, b)
#define VECTOR_SWAP_NEIGHBOURS(v) _mm512_shuffle_epi32(v, _MM_PERM_BADC)
#define VECTOR_REGISTER           "x"
#elif defined(__AVX2__)
typedef __m256i vector;
#define VECTOR_LOAD(from)         _mm256_loadu_si256((const __m256i_u *)(from))
#define VECTOR_STORE(to, v)       _mm256_storeu_si256((__m256i_u *)(to), v)
#define VECTOR_MUL_LOW(a, b)      _mm256_mul_epu32(a, b)
#define VECTOR_SWAP_NEIGHBOURS(v) _mm256_shuffle_epi32(v, 0x4e)
#define VECTOR_REGISTER           "x"
#else
typedef uint64x2_t vector;
#define VECTOR_LOAD(from)         vreinterpretq_u64_u8(vld1q_u8(from))
#define VECTOR_STORE(to, v)       vst1q_u8(to, vreinterpretq_u8_u64(v))
#define VECTOR_MUL_LOW(a, b)      vmull_u32(vmovn_u64(a), vmovn_u64(b))
#define VECTOR_SWAP_NEIGHBOURS(v) vextq_u64(v, v, 1)
#define VECTOR_REGISTER           "w"
#endif
#define VECTORS (STRIPE_BYTES / sizeof(vector)) /* of a stripe */

/* Unsigned: sums wrap, and shifts bring in zeros. */
typedef uint64_t lanes __attribute__((vector_size(sizeof(vector)), may_alias));

/* to NULL: nothing is copied. */
static inline __attribute__((always_inline)) void stripe_add(lanes sums[VECTORS], const uint8_t *from,
                                                             const uint8_t *secret, uint8_t *to)
{
    __builtin_prefetch(from + AHEAD_BYTES);
    for (size_t i = 0; i < VECTORS; i++) {
        vector data = VECTOR_LOAD(from + i * sizeof(vector));
        __asm__("" : "+" VECTOR_REGISTER(data)); /* else GCC loads it again for each use */
        if (to != NULL)
            VECTOR_STORE(to + i * sizeof(vector), data);
        const lanes keyed = (lanes)data ^ (lanes)VECTOR_LOAD(secret + i * sizeof(vector));
        sums[i] += (lanes)VECTOR_MUL_LOW((vector)keyed, (vector)(keyed >> 32));
        sums[i] += (lanes)VECTOR_SWAP_NEIGHBOURS(data);
    }
}

static inline __attribute__((always_inline)) void scramble(lanes sums[VECTORS], const uint8_t *secret)
{
    const lanes prime = (lanes){0} + XXH_PRIME32_1;
    for (size_t i = 0; i < VECTORS; i++) {
        const lanes keyed =
            sums[i] ^ (sums[i] >> 47) ^ (lanes)VECTOR_LOAD(secret + SECRET_SCRAMBLE + i * sizeof(vector));
        const lanes high = (lanes)VECTOR_MUL_LOW((vector)(keyed >> 32), (vector)prime);
        sums[i] = (lanes)VECTOR_MUL_LOW((vector)keyed, (vector)prime) + (high << 32);
    }
}

static inline uint64_t word_at(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static inline uint64_t merge(const uint64_t sums[LANES], const uint8_t *secret, size_t bytes)
{
    uint64_t hash = bytes * XXH_PRIME64_1;
    for (size_t i = 0; i < LANES; i += 2) {
        const unsigned __int128 product =
            (unsigned __int128)(sums[i] ^ word_at(secret + SECRET_MERGE + i * sizeof(uint64_t))) *
            (sums[i + 1] ^ word_at(secret + SECRET_MERGE + (i + 1) * sizeof(uint64_t)));
        hash += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    hash = (hash ^ hash >> 37) * UINT64_C(0x165667919E3779F9);
    return hash ^ hash >> 32;
}

static uint64_t hash_long_copy(uint8_t *restrict to, const uint8_t *restrict from, size_t bytes)
{
    static const uint64_t begin[LANES] = {XXH_PRIME32_3, XXH_PRIME64_1, XXH_PRIME64_2, XXH_PRIME64_3,
                                          XXH_PRIME64_4, XXH_PRIME32_2, XXH_PRIME64_5, XXH_PRIME32_1};
    const uint8_t *secret = (const uint8_t *)XXH3_kSecret;
    const size_t whole = (bytes - 1) / STRIPE_BYTES * STRIPE_BYTES; /* the last stripe may overlap */
    lanes sums[VECTORS];
    uint64_t ends[LANES];
    memcpy(sums, begin, sizeof(sums));
    size_t at = 0;
    for (; whole - at >= BLOCK_BYTES; at += BLOCK_BYTES) {
        for (size_t i = 0; i < STRIPES; i++)
            stripe_add(sums, from + at + i * STRIPE_BYTES, secret + i * sizeof(uint64_t),
                       to + at + i * STRIPE_BYTES);
        scramble(sums, secret);
    }
    for (size_t i = 0; at < whole; at += STRIPE_BYTES, i++)
        stripe_add(sums, from + at, secret + i * sizeof(uint64_t), to + at);
    memcpy(to + whole, from + whole, bytes - whole);
    stripe_add(sums, to + bytes - STRIPE_BYTES, secret + SECRET_LAST, NULL);
    memcpy(ends, sums, sizeof(ends));
    return merge(ends, secret, bytes);
}
#endif

static uint64_t hash_64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

static uint64_t hash_64_copy(void *restrict to, const void *restrict from, size_t bytes)
{
#ifdef HAS_VECTORS
    if (bytes > SHORT_BYTES_MAX)
        return hash_long_copy(to, from, bytes);
#endif
    if (bytes > 0)
        memcpy(to, from, bytes);
    return XXH3_64bits(to, bytes);
}

const struct mr_xxh3_set MR_XXH3_SET = {
    .hash_64 = hash_64, .hash_64_copy = hash_64_copy, .hash_128 = hash_128};
