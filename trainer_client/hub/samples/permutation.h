/* A shuffle that needs no memory: a keyed bijection of [0, count), so that the sample at any place of any
 * epoch can be computed at any time. A four-round Feistel network over the next even number of bits, walked
 * until it falls inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). Pure, any
 * thread.
 */
#ifndef HUB_PERMUTATION_H
#define HUB_PERMUTATION_H

#include <stdbool.h>
#include <stdint.h>

struct hub_permutation {
    uint64_t count;
    uint64_t seed;
    uint32_t half_bits;
    bool identity;
};

/* seed 0 gives the identity: file order in every epoch. Otherwise each epoch has an order of its own. count
 * >= 1. */
struct hub_permutation hub_permutation_make(uint64_t count, uint64_t seed, uint32_t epoch);
/* place < count; the result too. */
uint64_t hub_permutation_at(const struct hub_permutation *p, uint64_t place);

/* A well mixed hash of two numbers. */
uint64_t hub_mix(uint64_t a, uint64_t b);

/* Whether the sample of this line belongs to the held-out part: by line number, so that both parts of a file
 * agree. */
bool hub_is_held_out(uint64_t line_number, uint64_t seed, double held_out_share);

#endif
