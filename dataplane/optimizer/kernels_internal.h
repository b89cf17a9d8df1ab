/* What the files of kernels share. */
#ifndef MR_KERNELS_INTERNAL_H
#define MR_KERNELS_INTERNAL_H

#include <stdint.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define MR_TARGET_AVX2   __attribute__((target("avx2,f16c")))
#define MR_TARGET_AVX512 __attribute__((target("f16c,avx512f,avx512bw,avx512dq,avx512vl")))

#define INLINE static inline __attribute__((always_inline))

/* Vectors of so many values. A set uses those of its own width, floats_<set> and ints_<set>: the compiler
 * takes wider ones apart, through the stack. */
#define MR_VECTORS(set, lanes)                                                                               \
    typedef float floats##lanes __attribute__((vector_size(4 * (lanes)), aligned(4), may_alias));            \
    typedef int32_t ints##lanes __attribute__((vector_size(4 * (lanes)), aligned(4), may_alias));            \
    typedef floats##lanes floats_##set;                                                                      \
    typedef ints##lanes ints_##set;                                                                          \
    enum { MR_LANES_##set = (lanes) };
MR_VECTORS(baseline, 4)
MR_VECTORS(avx2, 8)
MR_VECTORS(avx512, 16)

/* The optimizers' kernels by enum mr_optimizer, a table for each set; NULL where there is none. */
extern mr_rule_kernel *const mr_rule_kernels_baseline[MR_OPTIMIZER_KINDS];
extern const struct mr_half_kernels mr_f16_kernels_baseline, mr_bf16_kernels_baseline;
#ifdef __x86_64__
extern mr_rule_kernel *const mr_rule_kernels_avx2[MR_OPTIMIZER_KINDS];
extern mr_rule_kernel *const mr_rule_kernels_avx512[MR_OPTIMIZER_KINDS];
extern const struct mr_half_kernels mr_f16_kernels_avx2, mr_bf16_kernels_avx2;
extern const struct mr_half_kernels mr_f16_kernels_avx512, mr_bf16_kernels_avx512;
#endif

#define MR_F32_EXPONENT 0x7f800000 /* all of its bits are set in NaN and Inf */

/* Whether all rows are finite: lanes are brought together once for all of them. */
#define MR_ALL_ROWS_FINITE(lanes)                                                                            \
    INLINE bool all_rows_finite_##lanes(const float *const *rows, uint32_t row_count, size_t dim)            \
    {                                                                                                        \
        ints##lanes infinite = {0};                                                                          \
        uint32_t rest = 0;                                                                                   \
        for (uint32_t r = 0; r < row_count; r++) {                                                           \
            size_t i = 0;                                                                                    \
            for (; i + (lanes) <= dim; i += (lanes))                                                         \
                infinite |= (*(const ints##lanes *)(const void *)(rows[r] + i) & MR_F32_EXPONENT) ==         \
                            MR_F32_EXPONENT;                                                                 \
            for (; i < dim; i++) {                                                                           \
                uint32_t bits;                                                                               \
                memcpy(&bits, &rows[r][i], sizeof(bits));                                                    \
                rest |= (bits & MR_F32_EXPONENT) == MR_F32_EXPONENT;                                         \
            }                                                                                                \
        }                                                                                                    \
        for (uint32_t lane = 0; lane < (lanes); lane++)                                                      \
            rest |= infinite[lane] != 0;                                                                     \
        return rest == 0;                                                                                    \
    }
MR_ALL_ROWS_FINITE(4)
MR_ALL_ROWS_FINITE(8)
MR_ALL_ROWS_FINITE(16)

/* lanes: a constant. */
INLINE bool all_rows_finite_body(const float *const *rows, uint32_t row_count, size_t dim, uint32_t lanes)
{
    return lanes == 16  ? all_rows_finite_16(rows, row_count, dim)
           : lanes == 8 ? all_rows_finite_8(rows, row_count, dim)
                        : all_rows_finite_4(rows, row_count, dim);
}

INLINE bool all_finite_body(const float *in, size_t count, uint32_t lanes)
{
    return all_rows_finite_body(&in, 1, count, lanes);
}

#ifdef __x86_64__
/* The lanes of the last values of a row, where they fill no whole vector. */
INLINE __mmask16 mr_rest_mask(size_t dim)
{
    return (__mmask16)((1u << dim % 16) - 1);
}

/* The lanes that hold NaN or Inf. */
MR_TARGET_AVX512 INLINE __mmask16 mr_not_finite(__m512 x)
{
    const __m512i exponent = _mm512_set1_epi32(MR_F32_EXPONENT);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(x), exponent), exponent);
}
#endif

#endif
