#include "sim_random.h"

uint64_t sim_random(struct sim_rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t sim_below(struct sim_rng *rng, uint64_t n)
{
    return n == 0 ? 0 : sim_random(rng) % n;
}

uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high)
{
    return low + sim_below(rng, high - low + 1);
}

bool sim_chance(struct sim_rng *rng, uint32_t ppm)
{
    return ppm > 0 && sim_below(rng, 1000000) < ppm;
}
