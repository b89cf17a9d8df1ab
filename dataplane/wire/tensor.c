#include "dataplane/wire/mr_tensor.h"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[MR_DTYPE_COUNT] = {[MR_DTYPE_NONE] = {"?", 0},
#define DTYPE_ROW(name, value, bytes, text) [value] = {text, bytes},
                            MR_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

uint32_t mr_dtype_bytes(enum mr_dtype dtype)
{
    return (size_t)dtype < MR_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *mr_dtype_name(enum mr_dtype dtype)
{
    return (size_t)dtype < MR_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

/* A product beyond 2^64 becomes UINT64_MAX bytes, which no message takes. */
static struct mr_tensor describe(enum mr_dtype dtype, uint32_t rank, const uint32_t *dims, const void *data)
{
    struct mr_tensor t = {.dtype = dtype, .rank = rank, .bytes = mr_dtype_bytes(dtype), .data = (void *)data};
    for (uint32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        if (__builtin_mul_overflow(t.bytes, (uint64_t)dims[i], &t.bytes))
            t.bytes = UINT64_MAX;
    }
    return t;
}

struct mr_tensor mr_tensor_0d(enum mr_dtype dtype, const void *data)
{
    return describe(dtype, 0, NULL, data);
}

struct mr_tensor mr_tensor_1d(enum mr_dtype dtype, uint32_t d0, const void *data)
{
    return describe(dtype, 1, &d0, data);
}

struct mr_tensor mr_tensor_2d(enum mr_dtype dtype, uint32_t d0, uint32_t d1, const void *data)
{
    return describe(dtype, 2, (uint32_t[]){d0, d1}, data);
}

struct mr_tensor mr_tensor_3d(enum mr_dtype dtype, uint32_t d0, uint32_t d1, uint32_t d2, const void *data)
{
    return describe(dtype, 3, (uint32_t[]){d0, d1, d2}, data);
}
