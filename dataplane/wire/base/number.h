/* Small arithmetic. */
#ifndef MR_NUMBER_H
#define MR_NUMBER_H

#include <stdint.h>

static inline uint32_t mr_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mr_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
