/* Rows of floats in a message: one tensor of f32, f16 or bf16 [..., dim], or one of i8 and then f32[n], a
 * scale for each row. */
#ifndef WIRE_ROWS_H
#define WIRE_ROWS_H

#include "dataplane/wire/format/convert.h"
#include "dataplane/wire/format/mr_tensor.h"

#define MR_ROWS_TENSORS_MAX 2u

/* Describes rows of `shape` (an f32 tensor of rank 2 or more) as `dtype`, which mr_convert_knows(), without
 * data; returns how many tensors that takes. */
static inline uint32_t mr_rows_tensors(struct mr_tensor shape, enum mr_dtype dtype,
                                       struct mr_tensor out[MR_ROWS_TENSORS_MAX])
{
    uint64_t elements = shape.bytes / sizeof(float);
    uint32_t dim = shape.dims[shape.rank - 1];
    out[0] = shape;
    out[0].dtype = dtype;
    out[0].bytes = elements * mr_dtype_bytes(dtype);
    out[0].data = NULL;
    if (dtype != MR_I8)
        return 1;
    out[1] = mr_tensor_1d(MR_F32, dim == 0 ? 0 : (uint32_t)(elements / dim), NULL);
    return 2;
}

#endif
