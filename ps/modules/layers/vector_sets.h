/* One loop compiled for several vector widths, and the widest that the processor runs chosen at the call.
 * Inside ps/modules/layers/ only.
 *
 *   INLINE void name(float *x, size_t count) { ... }
 *   PS_VECTOR_SETS(name, (float *x, size_t count), (x, count))
 *   ... PS_VECTOR_CALL(name, (x, count));
 */
#ifndef PS_LAYERS_VECTOR_SETS_H
#define PS_LAYERS_VECTOR_SETS_H

#include <stdint.h>

/* 2: AVX-512, 1: AVX2, 0: what every processor of the kind runs. Any thread. */
uint32_t ps_vector_set(void);
/* From now on no wider than `set`. For tests, in their only thread. */
void ps_vector_set_limit(uint32_t set);

#define INLINE static inline __attribute__((always_inline))

#define PS_VECTOR_SET(name, set, parameters, arguments)                                                      \
    static void name##_##set parameters                                                                      \
    {                                                                                                        \
        name arguments;                                                                                      \
    }

#ifdef __x86_64__
#define PS_VECTOR_AVX2 __attribute__((target("avx2,fma")))
#ifdef __clang__ /* knows no width to prefer, and takes the widest */
#define PS_VECTOR_WIDTH ""
#else
#define PS_VECTOR_WIDTH ",prefer-vector-width=512"
#endif
#define PS_VECTOR_AVX512                                                                                     \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl" PS_VECTOR_WIDTH)))
#define PS_VECTOR_SETS(name, parameters, arguments)                                                          \
    PS_VECTOR_SET(name, baseline, parameters, arguments)                                                     \
    PS_VECTOR_AVX2 PS_VECTOR_SET(name, avx2, parameters, arguments)                                          \
    PS_VECTOR_AVX512 PS_VECTOR_SET(name, avx512, parameters, arguments)
#define PS_VECTOR_CALL(name, arguments)                                                                      \
    do {                                                                                                     \
        if (ps_vector_set() == 2)                                                                            \
            name##_avx512 arguments;                                                                         \
        else if (ps_vector_set() == 1)                                                                       \
            name##_avx2 arguments;                                                                           \
        else                                                                                                 \
            name##_baseline arguments;                                                                       \
    } while (0)
#else
#define PS_VECTOR_SETS(name, parameters, arguments) PS_VECTOR_SET(name, baseline, parameters, arguments)
#define PS_VECTOR_CALL(name, arguments)             name##_baseline arguments
#endif

#endif
