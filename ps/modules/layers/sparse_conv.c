#include "ps/modules/layers/sparse_conv.h"

#include <stddef.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "ps/modules/layers/vector_sets.h"

typedef float floats8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float floats16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t ints16 __attribute__((vector_size(64), aligned(4), may_alias));

#define BLOCK       8
#define NAMED(name) name##_8
#define floats      floats8
#define ints        ints8
#include "ps/modules/layers/sparse_conv_block.h"

#define BLOCK       16
#define NAMED(name) name##_16
#define floats      floats16
#define ints        ints16
#include "ps/modules/layers/sparse_conv_block.h"

#define SETS(block)                                                                                          \
    PS_VECTOR_SETS(pool_body_##block,                                                                        \
                   (const struct ps_pool *p, const float *plane, float *out, uint16_t *places),              \
                   (p, plane, out, places))                                                                  \
    PS_VECTOR_SETS(weights_body_##block,                                                                     \
                   (const struct ps_sparse *s, const float *plane, uint32_t row, float *weights),            \
                   (s, plane, row, weights))                                                                 \
    PS_VECTOR_SETS(data_body_##block,                                                                        \
                   (const struct ps_sparse *s, float *plane, uint32_t row, const float *weights),            \
                   (s, plane, row, weights))
SETS(8)
SETS(16)

void ps_pool_plane(const struct ps_pool *pool, const float *plane, uint32_t block, float *out,
                   uint16_t *places)
{
    if (block == 16)
        PS_VECTOR_CALL(pool_body_16, (pool, plane, out, places));
    else
        PS_VECTOR_CALL(pool_body_8, (pool, plane, out, places));
}

static uint32_t take_baseline(struct ps_sparse *out, const float *gradients, const float *outputs,
                              const uint16_t *places, uint32_t first, uint32_t count, uint32_t block)
{
    uint32_t taken = out->count;
    for (uint32_t i = first; i < count; i++) { /* written always, kept if it counts: no branch to guess */
        out->at[taken] = places[i] * block;
        out->values[taken] = gradients[i];
        taken += outputs[i] > 0 && gradients[i] != 0;
    }
    return taken;
}

#ifdef __x86_64__
/* Sixteen at a time; those left are moved together in the register. Returns how many were looked at. */
PS_VECTOR_AVX512 static uint32_t take_avx512(struct ps_sparse *out, const float *gradients,
                                             const float *outputs, const uint16_t *places, uint32_t count,
                                             uint32_t block)
{
    const __m512i scale = _mm512_set1_epi32((int)block);
    uint32_t i = 0, taken = 0;
    for (; i + 16 <= count; i += 16) {
        __m512 g = _mm512_loadu_ps(gradients + i);
        __mmask16 left = _mm512_cmp_ps_mask(_mm512_loadu_ps(outputs + i), _mm512_setzero_ps(), _CMP_GT_OQ);
        left = _mm512_mask_cmp_ps_mask(left, g, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        __m512i at = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(places + i)));
        at = _mm512_mullo_epi32(at, scale);
        _mm512_storeu_si512(out->at + taken, _mm512_maskz_compress_epi32(left, at));
        _mm512_storeu_ps(out->values + taken, _mm512_maskz_compress_ps(left, g));
        taken += (uint32_t)__builtin_popcount(left);
    }
    out->count = taken;
    return i;
}
#endif

void ps_sparse_take(struct ps_sparse *out, const float *gradients, const float *outputs,
                    const uint16_t *places, uint32_t count, uint32_t block)
{
    uint32_t first = 0;
    out->count = 0;
#ifdef __x86_64__
    if (ps_vector_set() == 2)
        first = take_avx512(out, gradients, outputs, places, count, block);
#endif
    out->count = take_baseline(out, gradients, outputs, places, first, count, block);
}

void ps_sparse_weights(const struct ps_sparse *s, const float *plane, uint32_t row, uint32_t block,
                       float *weights)
{
    if (block == 16)
        PS_VECTOR_CALL(weights_body_16, (s, plane, row, weights));
    else
        PS_VECTOR_CALL(weights_body_8, (s, plane, row, weights));
}

void ps_sparse_data(const struct ps_sparse *s, float *plane, uint32_t row, uint32_t block,
                    const float *weights)
{
    if (block == 16)
        PS_VECTOR_CALL(data_body_16, (s, plane, row, weights));
    else
        PS_VECTOR_CALL(data_body_8, (s, plane, row, weights));
}
