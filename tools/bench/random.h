/* Random numbers of one seed: SplitMix64 (Steele, Lea, Flood, OOPSLA '14). */
#ifndef TOOL_RANDOM_H
#define TOOL_RANDOM_H

#include <stdint.h>

static inline uint64_t tool_random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 0 .. bound - 1; bound > 0. Of numbers up to 2^32 each is as likely as any other, to one in 2^32. */
static inline uint64_t tool_random_below(uint64_t *state, uint64_t bound)
{
    return (uint64_t)((unsigned __int128)tool_random_next(state) * bound >> 64);
}

/* [0, 1) */
static inline double tool_random_unit(uint64_t *state)
{
    return (double)(tool_random_next(state) >> 11) * 0x1p-53;
}

#endif
