/* XXH3 of long inputs by the widest vectors of this processor: a distribution's library is built for the
 * least processor that it supports. https://github.com/Cyan4973/xxHash. Pure; any thread. */
#ifndef WIRE_XXH3_H
#define WIRE_XXH3_H

#include <stddef.h>
#include <stdint.h>

uint64_t mr_xxh3_64(const void *data, size_t bytes);
/* Copies, and hashes on the way: for little more than the copy takes. They do not overlap; from
 * may be NULL for no bytes. The hash is that of the copy, also if another thread changes `from` meanwhile. */
uint64_t mr_xxh3_64_copy(void *restrict to, const void *restrict from, size_t bytes);
/* out[0]: the low half. */
void mr_xxh3_128(const void *data, size_t bytes, uint64_t out[2]);

#endif
