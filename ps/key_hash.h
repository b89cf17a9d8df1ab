/* mr_key_hash(), inlined for the tables' hot path: the test holds the two together.
 *
 * XXH3-64 of exactly 8 bytes is a bijection: distinct keys have distinct hashes. */
#ifndef PS_KEY_HASH_H
#define PS_KEY_HASH_H

#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static inline uint64_t ps_key_hash(uint64_t key, uint64_t seed)
{
    return XXH3_64bits_withSeed(&key, sizeof(key), seed);
}

#endif
