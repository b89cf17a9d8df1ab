/* What the files of kernels share. */
#ifndef PS_KERNELS_INTERNAL_H
#define PS_KERNELS_INTERNAL_H

#include <string.h>
#include "ps/kernels.h"

#define PS_TARGET_AVX2   __attribute__((target("avx2,f16c")))
#define PS_TARGET_AVX512 __attribute__((target("f16c,avx512f,avx512bw,avx512dq,avx512vl")))

#define INLINE static inline __attribute__((always_inline))

/* Registers of any width; the compiler splits them where the processor has narrower ones. */
typedef float floats16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float floats4 __attribute__((vector_size(16), aligned(4), may_alias));

/* The optimizers' kernels by enum mr_optimizer, a table for each set; NULL where there is none. */
extern ps_optimizer_kernel *const ps_optimizer_kernels_baseline[PS_OPTIMIZER_KINDS];
extern const struct ps_half_kernels ps_f16_kernels_baseline, ps_bf16_kernels_baseline;
#ifdef __x86_64__
extern ps_optimizer_kernel *const ps_optimizer_kernels_avx2[PS_OPTIMIZER_KINDS];
extern ps_optimizer_kernel *const ps_optimizer_kernels_avx512[PS_OPTIMIZER_KINDS];
extern const struct ps_half_kernels ps_f16_kernels_avx2, ps_bf16_kernels_avx2;
extern const struct ps_half_kernels ps_f16_kernels_avx512, ps_bf16_kernels_avx512;
#endif

INLINE bool all_finite_body(const float *in, size_t count)
{
    uint32_t infinite = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof(bits));
        infinite |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return infinite == 0;
}

#endif
