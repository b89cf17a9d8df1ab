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

static inline uint64_t mr_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* For qsort() and bsearch(). */
static inline int mr_compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

#endif
