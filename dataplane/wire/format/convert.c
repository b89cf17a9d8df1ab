#include "dataplane/wire/format/convert.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include "dataplane/wire/base/vector.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#define I8_LARGEST 127.0f
/* Added to a number of at most 2^22, it leaves the nearest integer in the lowest bits. */
#define TO_INTEGER 0x1.8p23f

INLINE void f16_from_f32_body(uint16_t *restrict out, const float *restrict in, size_t count)
{
    size_t i = 0;
#ifdef __aarch64__ /* GCC makes vectors of the way back only */
    for (; i + 8 <= count; i += 8) {
        float16x8_t halves = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(in + i)), vld1q_f32(in + i + 4));
        vst1q_u16(out + i, vreinterpretq_u16_f16(halves));
    }
#endif
    for (; i < count; i++)
        out[i] = mr_f16_from_f32(in[i]);
}

INLINE void f32_from_f16_body(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = mr_f32_from_f16(in[i]);
}

INLINE void bf16_from_f32_body(uint16_t *restrict out, const float *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = mr_bf16_from_f32(in[i]);
}

INLINE void f32_from_bf16_body(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = mr_f32_from_bf16(in[i]);
}

/* Returns true when the row must be multiplied by `factor`; otherwise it is all zeros, with `scale`. */
INLINE bool i8_scale(int32_t top, float *scale, float *factor)
{
    float largest = mr_f32_of_bits((uint32_t)top);
    bool is_number = largest <= FLT_MAX, counts = is_number && largest >= I8_LARGEST * FLT_MIN;
    *factor = I8_LARGEST / largest;
    *scale = counts ? largest / I8_LARGEST : is_number ? 0.0f : NAN;
    return counts;
}

INLINE void i8_row_from_f32(int8_t *restrict out, float *scale, const float *restrict in, size_t dim)
{
    int32_t top = 0; /* the bits of magnitudes order like the magnitudes */
    float factor;
    for (size_t i = 0; i < dim; i++) {
        int32_t magnitude = (int32_t)(mr_f32_bits(in[i]) & 0x7fffffffu);
        top = magnitude > top ? magnitude : top;
    }
    if (!i8_scale(top, scale, &factor)) {
        memset(out, 0, dim);
        return;
    }
    for (size_t i = 0; i < dim; i++)
        out[i] = (int8_t)(uint8_t)(mr_f32_bits(in[i] * factor + TO_INTEGER) & 0xffu);
}

INLINE void i8_from_f32_body(int8_t *out, float *scales, const float *in, size_t row_count, size_t dim)
{
    for (size_t r = 0; r < row_count; r++)
        i8_row_from_f32(out + r * dim, scales + r, in + r * dim, dim);
}

INLINE void f32_from_i8_body(float *restrict out, const int8_t *restrict in, const float *restrict scales,
                             size_t row_count, size_t dim)
{
    for (size_t r = 0; r < row_count; r++) {
        float scale = scales[r];
        for (size_t i = 0; i < dim; i++)
            out[r * dim + i] = (float)in[r * dim + i] * scale;
    }
}

/* One set of loops: the bodies above, inlined into functions with the attributes that follow. */
#define CONVERTERS_F16(set, ...)                                                                             \
    __VA_ARGS__ static void f16_from_f32_##set(uint16_t *out, const float *in, size_t count)                 \
    {                                                                                                        \
        f16_from_f32_body(out, in, count);                                                                   \
    }                                                                                                        \
    __VA_ARGS__ static void f32_from_f16_##set(float *out, const uint16_t *in, size_t count)                 \
    {                                                                                                        \
        f32_from_f16_body(out, in, count);                                                                   \
    }

#define CONVERTERS_TO_I8(set, ...)                                                                           \
    __VA_ARGS__ static void i8_from_f32_##set(int8_t *out, float *scales, const float *in, size_t row_count, \
                                              size_t dim)                                                    \
    {                                                                                                        \
        i8_from_f32_body(out, scales, in, row_count, dim);                                                   \
    }

#define CONVERTERS(set, ...)                                                                                 \
    __VA_ARGS__ static void bf16_from_f32_##set(uint16_t *out, const float *in, size_t count)                \
    {                                                                                                        \
        bf16_from_f32_body(out, in, count);                                                                  \
    }                                                                                                        \
    __VA_ARGS__ static void f32_from_bf16_##set(float *out, const uint16_t *in, size_t count)                \
    {                                                                                                        \
        f32_from_bf16_body(out, in, count);                                                                  \
    }                                                                                                        \
    __VA_ARGS__ static void f32_from_i8_##set(float *out, const int8_t *in, const float *scales,             \
                                              size_t row_count, size_t dim)                                  \
    {                                                                                                        \
        f32_from_i8_body(out, in, scales, row_count, dim);                                                   \
    }                                                                                                        \
    static const struct mr_converters set = {.name = #set,                                                   \
                                             .f16_from_f32 = f16_from_f32_##set,                             \
                                             .f32_from_f16 = f32_from_f16_##set,                             \
                                             .bf16_from_f32 = bf16_from_f32_##set,                           \
                                             .f32_from_bf16 = f32_from_bf16_##set,                           \
                                             .i8_from_f32 = i8_from_f32_##set,                               \
                                             .f32_from_i8 = f32_from_i8_##set};

CONVERTERS_F16(baseline)
CONVERTERS_TO_I8(baseline)
CONVERTERS(baseline)

#ifdef __x86_64__
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define AVX2    __attribute__((target("avx2,f16c")))
#define AVX512  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

AVX2 static void f16_from_f32_avx2(uint16_t *out, const float *in, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), NEAREST));
    for (; i < count; i++)
        out[i] = _cvtss_sh(in[i], NEAREST);
}

AVX2 static void f32_from_f16_avx2(float *out, const uint16_t *in, size_t count)
{
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
    for (; i < count; i++)
        out[i] = _cvtsh_ss(in[i]);
}

/* The lanes of the last, incomplete 16 elements of a row. */
#define REST16(count) ((__mmask16)((1u << ((count) % 16)) - 1))

/* The rest goes by lanes, too: all of a short row is rest, and gradients are converted row by row. */
AVX512 static void f16_from_f32_avx512(uint16_t *out, const float *in, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(in + i), NEAREST));
    __m512 rest = _mm512_maskz_loadu_ps(REST16(count), in + i);
    _mm256_mask_storeu_epi16(out + i, REST16(count), _mm512_cvtps_ph(rest, NEAREST));
}

AVX512 static void f32_from_f16_avx512(float *out, const uint16_t *in, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(out + i,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(in + i))));
    __m256i rest = _mm256_maskz_loadu_epi16(REST16(count), in + i);
    _mm512_mask_storeu_ps(out + i, REST16(count), _mm512_cvtph_ps(rest));
}

AVX512 static void i8_row_avx512(int8_t *out, float *scale, const float *in, size_t dim)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    size_t whole = dim - dim % 16;
    __m512i tops = _mm512_and_si512(_mm512_maskz_loadu_epi32(REST16(dim), in + whole), magnitude);
    for (size_t i = 0; i < whole; i += 16)
        tops = _mm512_max_epi32(tops, _mm512_and_si512(_mm512_loadu_si512(in + i), magnitude));
    float factor;
    if (!i8_scale(_mm512_reduce_max_epi32(tops), scale, &factor)) {
        memset(out, 0, dim);
        return;
    }
    const __m512 factors = _mm512_set1_ps(factor);
    for (size_t i = 0; i < dim; i += 16) {
        __mmask16 mask = (__mmask16)(i < whole ? 0xffffu : REST16(dim));
        __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, in + i), factors);
        __m512i q = _mm512_cvt_roundps_epi32(x, NEAREST);
        _mm_mask_storeu_epi8(out + i, mask, _mm512_cvtepi32_epi8(q));
    }
}

AVX512 static void i8_from_f32_avx512(int8_t *out, float *scales, const float *in, size_t row_count,
                                      size_t dim)
{
    for (size_t r = 0; r < row_count; r++)
        i8_row_avx512(out + r * dim, scales + r, in + r * dim, dim);
}

CONVERTERS_TO_I8(avx2, AVX2)
CONVERTERS(avx2, AVX2)
CONVERTERS(avx512, AVX512)
#endif

const struct mr_converters *mr_converters_at(uint32_t index)
{
    static const struct mr_converters *const sets[MR_VECTOR_SETS] = {
        [MR_VECTOR_BASELINE] = &baseline,
#ifdef __x86_64__
        [MR_VECTOR_AVX2] = &avx2,
        [MR_VECTOR_AVX512] = &avx512,
#endif
    };
    uint32_t widest = mr_vector_widest();
    return index <= widest ? sets[widest - index] : NULL;
}

const struct mr_converters *mr_converters_best(void)
{
    return mr_converters_at(0);
}

void mr_convert_from_f32(enum mr_dtype dtype, void *out, float *scales, const float *in, size_t row_count,
                         size_t dim)
{
    const struct mr_converters *c = mr_converters_best();
    assert(mr_convert_knows(dtype));
    if (row_count * dim == 0)
        return;
    if (dtype == MR_F16)
        c->f16_from_f32(out, in, row_count * dim);
    else if (dtype == MR_BF16)
        c->bf16_from_f32(out, in, row_count * dim);
    else if (dtype == MR_I8)
        c->i8_from_f32(out, scales, in, row_count, dim);
    else
        memcpy(out, in, row_count * dim * sizeof(float));
}

void mr_convert_to_f32(enum mr_dtype dtype, float *out, const void *in, const float *scales, size_t row_count,
                       size_t dim)
{
    const struct mr_converters *c = mr_converters_best();
    assert(mr_convert_knows(dtype));
    if (row_count * dim == 0)
        return;
    if (dtype == MR_F16)
        c->f32_from_f16(out, in, row_count * dim);
    else if (dtype == MR_BF16)
        c->f32_from_bf16(out, in, row_count * dim);
    else if (dtype == MR_I8)
        c->f32_from_i8(out, in, scales, row_count, dim);
    else
        memcpy(out, in, row_count * dim * sizeof(float));
}
