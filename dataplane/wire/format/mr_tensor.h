/* Tensors as they travel and as callers see them. */
#ifndef MR_TENSOR_H
#define MR_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include "mr_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_RANK_MAX 4

/* X(name, value, bytes per element, text) */
#define MR_DTYPE_LIST(X)                                                                                     \
    X(U8, 1, 1, "u8")                                                                                        \
    X(I8, 2, 1, "i8")                                                                                        \
    X(U16, 3, 2, "u16")                                                                                      \
    X(F16, 4, 2, "f16")                                                                                      \
    X(BF16, 5, 2, "bf16")                                                                                    \
    X(U32, 6, 4, "u32")                                                                                      \
    X(I32, 7, 4, "i32")                                                                                      \
    X(F32, 8, 4, "f32")                                                                                      \
    X(U64, 9, 8, "u64")                                                                                      \
    X(I64, 10, 8, "i64")                                                                                     \
    X(F64, 11, 8, "f64")

enum mr_dtype {
    MR_DTYPE_NONE = 0,
#define MR_DTYPE_ENUM(name, value, bytes, text) MR_##name = (value),
    MR_DTYPE_LIST(MR_DTYPE_ENUM)
#undef MR_DTYPE_ENUM
        MR_DTYPE_COUNT
};

/* A dense, row-major tensor. `data` belongs to whoever filled the struct; in a reply it is a view into the
 * receive buffer, 64-byte aligned, valid until the reply is freed. rank 0 is a scalar (one element). */
struct mr_tensor {
    enum mr_dtype dtype;
    uint32_t rank;              /* 0..MR_RANK_MAX */
    uint32_t dims[MR_RANK_MAX]; /* dims[rank..] are 0 */
    uint64_t bytes;             /* product of dims times element size */
    void *data;
};

/* Bytes per element; 0 for an unknown dtype. */
MR_API uint32_t mr_dtype_bytes(enum mr_dtype dtype);
/* "f32"; "?" for an unknown dtype. */
MR_API const char *mr_dtype_name(enum mr_dtype dtype);

/* Describe a tensor of the given shape over `data` (may be NULL: room to be filled in later). */
MR_API struct mr_tensor mr_tensor_0d(enum mr_dtype dtype, const void *data);
MR_API struct mr_tensor mr_tensor_1d(enum mr_dtype dtype, uint32_t d0, const void *data);
MR_API struct mr_tensor mr_tensor_2d(enum mr_dtype dtype, uint32_t d0, uint32_t d1, const void *data);
MR_API struct mr_tensor mr_tensor_3d(enum mr_dtype dtype, uint32_t d0, uint32_t d1, uint32_t d2,
                                     const void *data);

#ifdef __cplusplus
}
#endif
#endif
