/* mr_key_hash(), inlined for the tables' hot path, and its inverse: the test holds the two together. And the
 * placed hash of a key, by which a node puts it into its hash tables.
 *
 * XXH3-64 of exactly 8 bytes is a bijection: distinct keys have distinct hashes, and the key follows from the
 * hash. So an index may keep hashes, or parts of them, instead of keys.
 *
 * Clients compute mr_key_hash() to find the owner of a key, so its seed is public, and anyone can choose keys
 * whose hashes are alike. The placed hash has the same upper 12 bits, the partition; the 52 bits below it are
 * permuted by a secret of the node: multiplied, mixed by a shift, multiplied again, modulo 2^52. It is a
 * bijection of the key as well. */
#ifndef PS_KEY_HASH_H
#define PS_KEY_HASH_H

#include <stdint.h>

/* XXH3's odd multiplier. */
#define PS_KEY_HASH_FACTOR 0x9fb21c651e98df25ULL

/* What the key is xored with, its halves exchanged: two words of the default secret, and the seed. */
static inline uint64_t ps_key_flip(uint64_t seed)
{
    const uint64_t secret = 0x1cad21f72c81017cULL ^ 0xdb979083e96dd4deULL;
    return secret - (seed ^ (uint64_t)__builtin_bswap32((uint32_t)seed) << 32);
}

static inline uint64_t ps_rotate_left(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

/* The hash but for its last step, which leaves the partition as it is. */
static inline uint64_t ps_key_product(uint64_t key, uint64_t seed)
{
    uint64_t hash = ps_rotate_left(key, 32) ^ ps_key_flip(seed);
    hash ^= ps_rotate_left(hash, 49) ^ ps_rotate_left(hash, 24);
    hash *= PS_KEY_HASH_FACTOR;
    hash ^= (hash >> 35) + sizeof(key);
    return hash * PS_KEY_HASH_FACTOR;
}

static inline uint64_t ps_key_hash(uint64_t key, uint64_t seed)
{
    const uint64_t product = ps_key_product(key, seed);
    return product ^ product >> 28;
}

/* The key whose ps_key_product() this is. */
static inline uint64_t ps_key_of_product(uint64_t hash, uint64_t seed)
{
    /* PS_KEY_HASH_FACTOR's, modulo 2^64. */
    const uint64_t inverse = 0x02ab9c720d1024adULL;
    hash *= inverse;
    hash ^= (hash >> 35) + sizeof(uint64_t);
    hash *= inverse;
    /* h ^ rotl(h, 49) ^ rotl(h, 24) multiplies by f = 1 + x^49 + x^24, bits as polynomials modulo x^64 + 1.
     * There f^(2^k) is 1 + x^(49 2^k) + x^(24 2^k), and f^64 is 1: so f^63 = f f^2 f^4 .. f^32 undoes it.
     * From f^8 on the terms are one. */
    hash ^= ps_rotate_left(hash, 49) ^ ps_rotate_left(hash, 24);
    hash ^= ps_rotate_left(hash, 34) ^ ps_rotate_left(hash, 48);
    hash ^= ps_rotate_left(hash, 4) ^ ps_rotate_left(hash, 32);
    hash = ps_rotate_left(hash, 8 + 16 + 32);
    hash ^= ps_key_flip(seed);
    return hash << 32 | hash >> 32;
}

/* The key of this hash. About as long as hashing takes. */
static inline uint64_t ps_key_of_hash(uint64_t hash, uint64_t seed)
{
    return ps_key_of_product(hash ^ hash >> 28 ^ hash >> 56, seed);
}

/* ---- placed hashes ---- */

#define PS_PLACED_SHIFT 12u                             /* the partition's bits */
#define PS_PLACED_MASK  (UINT64_MAX >> PS_PLACED_SHIFT) /* those below them */
#define PS_PLACED_MIXED 26u                             /* of the 52 bits, the upper half mixes the lower */

/* Of a table: the public seed, and the node's secret, as multipliers and their inverses modulo 2^64. */
struct ps_key_hasher {
    uint64_t seed;
    uint64_t first, second; /* first: shifted by PS_PLACED_SHIFT, so that its products have no partition */
    uint64_t first_inverse, second_inverse;
};

/* Random bits that only this node knows. */
struct ps_key_secret {
    uint64_t bits[2];
};

static inline uint64_t ps_inverse_of_odd(uint64_t odd)
{
    uint64_t inverse = odd; /* right in the lowest 3 bits; each step doubles them (Newton) */
    for (uint32_t bits = 3; bits < 64; bits *= 2)
        inverse *= 2 - odd * inverse;
    return inverse;
}

static inline struct ps_key_hasher ps_key_hasher_of(uint64_t seed, const struct ps_key_secret *secret)
{
    const uint64_t first = secret->bits[0] | 1, second = secret->bits[1] | 1;
    return (struct ps_key_hasher){.seed = seed,
                                  .first = first << PS_PLACED_SHIFT,
                                  .second = second,
                                  .first_inverse = ps_inverse_of_odd(first),
                                  .second_inverse = ps_inverse_of_odd(second)};
}

static inline uint64_t ps_placed_hash(const struct ps_key_hasher *hasher, uint64_t key)
{
    const uint64_t product = ps_key_product(key, hasher->seed);
    uint64_t below = product * hasher->first;
    below ^= (below >> PS_PLACED_MIXED) & ~(UINT64_MAX >> (64 - PS_PLACED_SHIFT));
    below *= hasher->second;
    return (product & ~PS_PLACED_MASK) | below >> PS_PLACED_SHIFT;
}

/* ps_key_product() of the key with this placed hash. */
static inline uint64_t ps_product_of_placed(const struct ps_key_hasher *hasher, uint64_t placed)
{
    uint64_t below = (placed * hasher->second_inverse) & PS_PLACED_MASK;
    below ^= below >> PS_PLACED_MIXED;
    below = (below * hasher->first_inverse) & PS_PLACED_MASK;
    return (placed & ~PS_PLACED_MASK) | below;
}

static inline uint64_t ps_key_of_placed(const struct ps_key_hasher *hasher, uint64_t placed)
{
    return ps_key_of_product(ps_product_of_placed(hasher, placed), hasher->seed);
}

/* mr_key_hash() of the key with this placed hash: the same on all nodes. */
static inline uint64_t ps_hash_of_placed(const struct ps_key_hasher *hasher, uint64_t placed)
{
    const uint64_t product = ps_product_of_placed(hasher, placed);
    return product ^ product >> 28;
}

#endif
