#include "ps/modules/layers/vector_sets.h"

static uint32_t limit = UINT32_MAX;

void ps_vector_set_limit(uint32_t set)
{
    limit = set;
}

uint32_t ps_vector_set(void)
{
    uint32_t set = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        set = 1;
    if (set == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        set = 2;
#endif
    return set < limit ? set : limit;
}
