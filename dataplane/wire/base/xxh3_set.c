/* Compiled once for each set of vector instructions, by which xxhash.h chooses its code. MR_XXH3_SET names
 * the set. */
#include "dataplane/wire/base/xxh3_set.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#ifndef MR_XXH3_SET
#define MR_XXH3_SET mr_xxh3_baseline
#endif

static uint64_t hash_64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

static void hash_128(const void *data, size_t bytes, uint64_t out[2])
{
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    out[0] = hash.low64;
    out[1] = hash.high64;
}

const struct mr_xxh3_set MR_XXH3_SET = {.hash_64 = hash_64, .hash_128 = hash_128};
