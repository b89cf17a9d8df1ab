/* Seeded random numbers for tests. */
#ifndef RANDOM_FIXTURE_H
#define RANDOM_FIXTURE_H

#include <stdbool.h>
#include "tests/test.h"

/* From TEST_SEED when set, else from the clock; printed, so that a failure can be repeated. */
uint64_t fixture_seed(const char *test);
uint64_t random_next(uint64_t *state);
uint32_t random_below(uint64_t *state, uint32_t bound);
float random_float(uint64_t *state); /* [-1, 1) */

#endif
