/* Tensors as they travel and as callers see them (mr_tensor.h): types, sizes, shapes. */
#include "dataplane/wire/format/mr_tensor.h"

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

/* A product beyond 2^64 becomes UINT64_MAX bytes, which no message takes. Fields are written where they are
 * returned: built aside and copied in wide loads, the copy would wait for the narrow stores. */
static inline uint64_t bytes_times(uint64_t bytes, uint32_t dim)
{
    return __builtin_mul_overflow(bytes, (uint64_t)dim, &bytes) ? UINT64_MAX : bytes;
}

struct mr_tensor mr_tensor_0d(enum mr_dtype dtype, const void *data)
{
    return (struct mr_tensor){.dtype = dtype, .bytes = mr_dtype_bytes(dtype), .data = (void *)data};
}

struct mr_tensor mr_tensor_1d(enum mr_dtype dtype, uint32_t d0, const void *data)
{
    return (struct mr_tensor){.dtype = dtype,
                              .rank = 1,
                              .dims = {d0},
                              .bytes = bytes_times(mr_dtype_bytes(dtype), d0),
                              .data = (void *)data};
}

struct mr_tensor mr_tensor_2d(enum mr_dtype dtype, uint32_t d0, uint32_t d1, const void *data)
{
    return (struct mr_tensor){.dtype = dtype,
                              .rank = 2,
                              .dims = {d0, d1},
                              .bytes = bytes_times(bytes_times(mr_dtype_bytes(dtype), d0), d1),
                              .data = (void *)data};
}

struct mr_tensor mr_tensor_3d(enum mr_dtype dtype, uint32_t d0, uint32_t d1, uint32_t d2, const void *data)
{
    return (struct mr_tensor){.dtype = dtype,
                              .rank = 3,
                              .dims = {d0, d1, d2},
                              .bytes =
                                  bytes_times(bytes_times(bytes_times(mr_dtype_bytes(dtype), d0), d1), d2),
                              .data = (void *)data};
}
