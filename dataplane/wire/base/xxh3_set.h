/* XXH3 as compiled for one set of vector instructions. */
#ifndef WIRE_XXH3_SET_H
#define WIRE_XXH3_SET_H

#include <stddef.h>
#include <stdint.h>

struct mr_xxh3_set {
    uint64_t (*hash_64)(const void *data, size_t bytes);
    uint64_t (*hash_64_copy)(void *restrict to, const void *restrict from, size_t bytes);
    void (*hash_128)(const void *data, size_t bytes, uint64_t out[2]);
};

extern const struct mr_xxh3_set mr_xxh3_baseline, mr_xxh3_avx2, mr_xxh3_avx512;

#endif
