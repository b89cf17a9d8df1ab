/* The key of a value in a slot of a sample, for libmillrace and the hub alike. Pure, any thread. */
#ifndef MRC_SLOT_KEY_H
#define MRC_SLOT_KEY_H

#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

/* As mr_slot_keys() says. */
static inline uint64_t mrc_slot_key(uint32_t slot, const void *value, size_t bytes)
{
    return XXH3_64bits_withSeed(value, bytes, slot);
}

#endif
