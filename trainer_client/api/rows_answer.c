#include "trainer_client/api/rows_answer.h"

#include <stdlib.h>

#define ROW_ALIGN 64u

uint32_t mrc_row_dim(const struct mr_tensor *rows)
{
    return rows->dims[rows->rank - 1];
}

uint32_t mrc_row_count(const struct mr_tensor *rows)
{
    uint32_t count = 1;
    for (uint32_t d = 0; d + 1 < rows->rank; d++)
        count *= rows->dims[d];
    return count;
}

const struct mr_tensor *mrc_part_rows(const struct mr_future *f, uint32_t i, uint32_t t, enum mr_dtype dtype,
                                      uint32_t rank, struct mrc_rows *out)
{
    const struct mr_tensor *values = mrc_part_tensor(f, i, t, dtype, rank);
    if (values == NULL)
        return NULL;
    *out = (struct mrc_rows){.dtype = dtype, .values = values->data};
    if (dtype != MR_I8)
        return values;
    const struct mr_tensor *scales = mrc_part_tensor(f, i, t + 1, MR_F32, 1);

    if (scales == NULL || scales->dims[0] != mrc_row_count(values))
        return NULL;
    out->scales = scales->data;
    return values;
}

float *mrc_rows_allocate(uint64_t rows, uint32_t dim)
{
    size_t bytes = (size_t)rows * dim * sizeof(float);
    float *out = aligned_alloc(ROW_ALIGN, (bytes + ROW_ALIGN) / ROW_ALIGN * ROW_ALIGN);
    if (out == NULL)
        mrc_error_line("no memory for a reply of %llu rows", (unsigned long long)rows);
    return out;
}

enum mr_status mrc_rows_give(float *values, const struct mr_tensor *like, struct mr_reply **reply)
{
    struct mr_tensor tensor = *like;
    tensor.dtype = MR_F32;
    tensor.bytes = (uint64_t)mrc_row_count(like) * mrc_row_dim(like) * sizeof(float);
    struct mr_reply *own = mrc_reply_own(tensor, values);

    if (own == NULL)
        return MR_NO_MEMORY;
    *reply = own;
    return MR_OK;
}
