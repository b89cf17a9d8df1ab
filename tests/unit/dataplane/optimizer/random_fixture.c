#include "random_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t fixture_seed(const char *test)
{
    const char *given = getenv("TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed =
        given != NULL ? strtoull(given, NULL, 10) : (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec;
    printf("%s: TEST_SEED=%" PRIu64 "\n", test, seed);
    return seed;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(random_next(state) % bound);
}

float random_float(uint64_t *state)
{
    return (float)(random_next(state) >> 40) * 0x1p-23f - 1.0f;
}
