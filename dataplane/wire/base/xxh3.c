/* The build compiles the wide sets, and defines MR_XXH3_WIDE, where the processor may have them. */
#include "dataplane/wire/base/xxh3.h"

#include "dataplane/wire/base/vector.h"
#include "dataplane/wire/base/xxh3_set.h"

static const struct mr_xxh3_set *widest(void)
{
#ifdef MR_XXH3_WIDE
    enum mr_vector_set set = mr_vector_widest();
    if (set == MR_VECTOR_AVX512)
        return &mr_xxh3_avx512;
    if (set == MR_VECTOR_AVX2)
        return &mr_xxh3_avx2;
#endif
    return &mr_xxh3_baseline;
}

uint64_t mr_xxh3_64(const void *data, size_t bytes)
{
    return widest()->hash_64(data, bytes);
}

uint64_t mr_xxh3_64_copy(void *restrict to, const void *restrict from, size_t bytes)
{
    return widest()->hash_64_copy(to, from, bytes);
}

void mr_xxh3_128(const void *data, size_t bytes, uint64_t out[2])
{
    widest()->hash_128(data, bytes, out);
}
