/* mr_key_hash(), inlined for the tables' hot path, and its inverse: the test holds the two together.
 *
 * XXH3-64 of exactly 8 bytes is a bijection: distinct keys have distinct hashes, and the key follows from the
 * hash. So an index may keep hashes, or parts of them, instead of keys. */
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

static inline uint64_t ps_key_hash(uint64_t key, uint64_t seed)
{
    uint64_t hash = ps_rotate_left(key, 32) ^ ps_key_flip(seed);
    hash ^= ps_rotate_left(hash, 49) ^ ps_rotate_left(hash, 24);
    hash *= PS_KEY_HASH_FACTOR;
    hash ^= (hash >> 35) + sizeof(key);
    hash *= PS_KEY_HASH_FACTOR;
    return hash ^ hash >> 28;
}

/* The key of this hash. About as long as hashing takes. */
static inline uint64_t ps_key_of_hash(uint64_t hash, uint64_t seed)
{
    /* PS_KEY_HASH_FACTOR's, modulo 2^64. */
    const uint64_t inverse = 0x02ab9c720d1024adULL;
    hash ^= hash >> 28 ^ hash >> 56;
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

#endif
