/* Random numbers of one seed (splitmix64; Steele, Lea, Flood, OOPSLA 2014). */
#ifndef PROPERTY_RANDOM_H
#define PROPERTY_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. bound - 1 */
static inline uint32_t random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)((random_next(state) >> 32) * bound >> 32);
}

static inline bool random_one_in(uint64_t *state, uint32_t n)
{
    return random_below(state, n) == 0;
}

/* [-1, 1) */
static inline float random_float(uint64_t *state)
{
    return (float)(random_next(state) >> 40) * 0x1p-23f - 1.0f;
}

#endif
