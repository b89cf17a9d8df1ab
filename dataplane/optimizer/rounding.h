/* Stochastic rounding of f32 to f16 and bf16: up with the probability that the distance to the lower
 * neighbour is of the step between the two, so that many small changes add up as they would in f32 (Gupta et
 * al., ICML 2015).
 *
 * The random bits are a pure function of the key's hash (which the table's seed goes into), of how often the
 * row has been changed, and of the element: neither cores, other rows nor the vector width matter. 16 bits an
 * element: exact for bf16 and for f16's normal numbers; of its denormals, what lies below 2^-40 is cut off. A
 * number that the type holds stays as it is; finite numbers stay finite, at most the type's largest. NaN
 * stays NaN, Inf stays Inf. Pure; any thread.
 */
#ifndef MR_ROUNDING_H
#define MR_ROUNDING_H

#include <stdint.h>
#include "dataplane/wire/format/convert.h"

#define MR_F16_LARGEST_BITS  0x7bffu /* 65504 */
#define MR_BF16_LARGEST_BITS 0x7f7fu

/* Of a row that has been changed `updates` times before. Bijective in each argument (the finalizer of
 * splitmix64). */
static inline uint64_t mr_rounding_seed(uint64_t key_hash, uint32_t updates)
{
    uint64_t z = key_hash + updates * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 16 random bits for an element. In 32-bit steps, which vector registers have: a finalizer of a 32-bit hash
 * over the element's number, the seed's halves mixed in before and within. */
static inline uint32_t mr_rounding_bits(uint64_t seed, uint32_t element)
{
    uint32_t x = element * 0x9e3779b9u + (uint32_t)seed;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = ((x ^ x >> 15) + (uint32_t)(seed >> 32)) * 0x846ca68bu;
    return x >> 16;
}

/* bits: below 2^16. */
static inline uint16_t mr_bf16_round(float x, uint32_t bits)
{
    uint32_t magnitude = mr_f32_bits(x) & 0x7fffffffu, sign = mr_f32_bits(x) >> 16 & 0x8000u;
    uint32_t rounded = (magnitude + bits) >> 16;
    uint32_t finite = rounded < MR_BF16_LARGEST_BITS ? rounded : MR_BF16_LARGEST_BITS;
    uint32_t special = magnitude >> 16 | (magnitude > 0x7f800000u ? 0x40u : 0u);
    return (uint16_t)(sign | (magnitude < 0x7f800000u ? finite : special));
}

static inline uint16_t mr_f16_round(float x, uint32_t bits)
{
    uint32_t magnitude = mr_f32_bits(x) & 0x7fffffffu, sign = mr_f32_bits(x) >> 16 & 0x8000u;
    uint32_t normal = (magnitude - (112u << 23) + (bits >> 3)) >> 13;
    uint32_t is_denormal = magnitude < 0x38800000u; /* 2^-14 */
    float small = mr_f32_of_bits(is_denormal ? magnitude : 0u) * 0x1p40f;
    uint32_t denormal = ((uint32_t)(int32_t)small + bits) >> 16;
    uint32_t rounded = is_denormal ? denormal : normal;
    uint32_t finite = rounded < MR_F16_LARGEST_BITS ? rounded : MR_F16_LARGEST_BITS;
    uint32_t special = 0x7c00u | (magnitude > 0x7f800000u ? 0x200u | (magnitude >> 13 & 0x3ffu) : 0u);
    return (uint16_t)(sign | (magnitude < 0x7f800000u ? finite : special));
}

#endif
