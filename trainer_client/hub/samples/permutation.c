#include "trainer_client/hub/samples/permutation.h"

#include <assert.h>

#define FEISTEL_ROUNDS 4u
#define SPLIT_SALT     UINT64_C(0x73706c6974) /* the split must not follow the shuffle's own choices */

/* The finalizer of MurmurHash3 over both words (Appleby, public domain constants). */
uint64_t hub_mix(uint64_t a, uint64_t b)
{
    uint64_t h = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);
    for (int i = 0; i < 2; i++) {
        h ^= h >> 33;
        h *= UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 33;
        h *= UINT64_C(0xc4ceb9fe1a85ec53);
        h ^= h >> 33;
        h += b;
    }
    return h;
}

struct hub_permutation hub_permutation_make(uint64_t count, uint64_t seed, uint32_t epoch)
{
    assert(count >= 1);
    uint32_t half_bits = 1;
    while (half_bits < 32 && (UINT64_C(1) << (2 * half_bits)) < count)
        half_bits++;
    return (struct hub_permutation){
        .count = count, .seed = hub_mix(seed, epoch), .half_bits = half_bits, .identity = seed == 0};
}

static uint64_t encrypt(const struct hub_permutation *p, uint64_t place)
{
    const uint64_t mask = (UINT64_C(1) << p->half_bits) - 1;
    uint64_t left = place >> p->half_bits, right = place & mask;
    for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t next = left ^ (hub_mix(p->seed + round, right) & mask);
        left = right;
        right = next;
    }
    return left << p->half_bits | right;
}

uint64_t hub_permutation_at(const struct hub_permutation *p, uint64_t place)
{
    assert(place < p->count);
    if (p->identity)
        return place;
    /* The walk stays on the cycle of `place`, which is inside, so it ends. */
    do {
        place = encrypt(p, place);
    } while (place >= p->count);
    return place;
}

bool hub_is_held_out(uint64_t line_number, uint64_t seed, double held_out_share)
{
    double uniform = (double)(hub_mix(seed ^ SPLIT_SALT, line_number) >> 11) * 0x1p-53;
    return uniform < held_out_share;
}
