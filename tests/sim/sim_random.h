#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* ---- randomness: everything hangs on the seed ---- */
struct sim_rng {
    uint64_t state;
};
uint64_t sim_random(struct sim_rng *rng);
uint64_t sim_below(struct sim_rng *rng, uint64_t n);                    /* 0..n-1 */
uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high); /* both included */
bool sim_chance(struct sim_rng *rng, uint32_t ppm);

#endif
