/* Which vector instructions this processor has, for loops that are compiled once for each set. Pure; any
 * thread. */
#ifndef WIRE_VECTOR_H
#define WIRE_VECTOR_H

/* A processor that runs one of these sets also runs those before it. */
enum mr_vector_set {
    MR_VECTOR_BASELINE,
    /* and bmi2; and f16c, bmi and lzcnt, which all processors with these have, though not every compiler can
     * ask for them */
    MR_VECTOR_AVX2,
    MR_VECTOR_AVX512, /* f, bw, dq and vl */
    MR_VECTOR_SETS
};

static inline enum mr_vector_set mr_vector_widest(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return MR_VECTOR_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return MR_VECTOR_AVX2;
#endif
    return MR_VECTOR_BASELINE;
}

#endif
