/* Converts between f32 and the types that tables and messages may hold instead: f16 (IEEE binary16), bf16
 * (the upper half of an f32) and i8 with one f32 scale per row.
 *
 * To f16 and bf16, numbers are rounded to nearest, ties to even; numbers beyond the largest finite one become
 * +-Inf, and NaN stays a (quiet) NaN. The way back is exact, and a signalling NaN of f16 becomes a quiet one.
 * To i8, for each row: scale = largest |x| / 127, q = x * (127 / largest |x|) rounded to nearest, ties to
 * even; the way back is q * scale, which differs from x by at most half a scale (and the rounding of f32). A
 * row whose largest |x| is below 127 * FLT_MIN (1.5e-36) counts as all zero and has scale 0. A row that holds
 * NaN or Inf has scale NaN and zeros, so that all of it is NaN on the other side, and nothing wrong looks
 * like a number.
 *
 * Every vector width gives the same bits. Pure; any thread; denormals are kept whatever the thread's mode is.
 * Arrays need the alignment of their elements and must not overlap.
 */
#ifndef WIRE_CONVERT_H
#define WIRE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dataplane/wire/format/mr_tensor.h"

/* Returns true for f32, f16, bf16 and i8: the types that rows of f32 travel in. Only i8 has scales. */
static inline bool mr_convert_knows(enum mr_dtype dtype)
{
    return dtype == MR_F32 || dtype == MR_F16 || dtype == MR_BF16 || dtype == MR_I8;
}

/* Converts rows [row_count, dim] of f32 to rows of `dtype`, one that mr_convert_knows(), or back; f32 is
 * copied. scales: f32[row_count], used by i8 only. */
void mr_convert_from_f32(enum mr_dtype dtype, void *out, float *scales, const float *in, size_t row_count,
                         size_t dim);
void mr_convert_to_f32(enum mr_dtype dtype, float *out, const void *in, const float *scales, size_t row_count,
                       size_t dim);

/* The loops, compiled for several vector widths. */
struct mr_converters {
    const char *name; /* "avx512", "avx2", "baseline" */
    void (*f16_from_f32)(uint16_t *out, const float *in, size_t count);
    void (*f32_from_f16)(float *out, const uint16_t *in, size_t count);
    void (*bf16_from_f32)(uint16_t *out, const float *in, size_t count);
    void (*f32_from_bf16)(float *out, const uint16_t *in, size_t count);
    void (*i8_from_f32)(int8_t *out, float *scales, const float *in, size_t row_count, size_t dim);
    void (*f32_from_i8)(float *out, const int8_t *in, const float *scales, size_t row_count, size_t dim);
};

/* Returns the widest set that this processor runs. */
const struct mr_converters *mr_converters_best(void);
/* Returns the sets that this processor runs, the widest first; NULL when `index` is beyond them. For
 * tests. */
const struct mr_converters *mr_converters_at(uint32_t index);

/* ---- one number ---- */

static inline uint32_t mr_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float mr_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float mr_f32_from_bf16(uint16_t x)
{
    return mr_f32_of_bits((uint32_t)x << 16);
}

static inline uint16_t mr_bf16_from_f32(float x)
{
    uint32_t bits = mr_f32_bits(x);
    uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

/* Every processor of aarch64 converts between f32 and f16, with these bits. */
static inline float mr_f32_from_f16(uint16_t x)
{
#ifdef __aarch64__
    __fp16 half;
    memcpy(&half, &x, sizeof(half));
    return (float)half;
#else
    uint32_t magnitude = x & 0x7fffu;
    uint32_t normal = (magnitude << 13) + (112u << 23); /* exponent bias 15 -> 127 */
    uint32_t denormal = mr_f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t special = (magnitude << 13) | 0x7f800000u | (magnitude > 0x7c00u ? 0x400000u : 0u);
    uint32_t bits = magnitude < 0x400u ? denormal : magnitude < 0x7c00u ? normal : special;
    return mr_f32_of_bits(bits | (x & 0x8000u) << 16);
#endif
}

static inline uint16_t mr_f16_from_f32(float x)
{
#ifdef __aarch64__
    __fp16 half = (__fp16)x;
    uint16_t half_bits;
    memcpy(&half_bits, &half, sizeof(half_bits));
    return half_bits;
#else
    uint32_t magnitude = mr_f32_bits(x) & 0x7fffffffu, sign = mr_f32_bits(x) >> 16 & 0x8000u;
    uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t denormal = mr_f32_bits(mr_f32_of_bits(magnitude) + 0.5f) -
                        0x3f000000u; /* f16 denormals are steps of 0.5's ulp */
    uint32_t special = 0x7c00u | (magnitude > 0x7f800000u ? 0x200u | (magnitude >> 13 & 0x3ffu) : 0u);
    /* below 2^-14; below what rounds to 2^16 */
    uint32_t bits = magnitude < 0x38800000u ? denormal : magnitude < 0x477ff000u ? normal : special;
    return (uint16_t)(sign | bits);
#endif
}

#endif
