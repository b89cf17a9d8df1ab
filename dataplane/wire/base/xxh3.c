#include "dataplane/wire/base/xxh3.h"

#include "dataplane/wire/base/vector.h"
#include "dataplane/wire/base/xxh3_set.h"

static const struct mr_xxh3_set *widest(void)
{
    static const struct mr_xxh3_set *const sets[MR_VECTOR_SETS] = {
        [MR_VECTOR_BASELINE] = &mr_xxh3_baseline,
#ifdef __x86_64__
        [MR_VECTOR_AVX2] = &mr_xxh3_avx2,
        [MR_VECTOR_AVX512] = &mr_xxh3_avx512,
#endif
    };
    return sets[mr_vector_widest()];
}

uint64_t mr_xxh3_64(const void *data, size_t bytes)
{
    return widest()->hash_64(data, bytes);
}

void mr_xxh3_128(const void *data, size_t bytes, uint64_t out[2])
{
    widest()->hash_128(data, bytes, out);
}
