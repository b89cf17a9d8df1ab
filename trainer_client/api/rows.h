/* Rows of floats as a message or a caller has them: f32, f16, bf16, or i8 with a scale for each row. Pure. */
#ifndef MRC_ROWS_H
#define MRC_ROWS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/rows.h"

struct mrc_rows {
    enum mr_dtype dtype;
    void *values;  /* [n, dim] */
    float *scales; /* [n], of i8 */
};

/* Returns the caller's f32 rows, which are only read. */
static inline struct mrc_rows mrc_rows_f32(const float *values)
{
    return (struct mrc_rows){.dtype = MR_F32, .values = (void *)(uintptr_t)values};
}

/* Returns the rows in these tensors, as mr_rows_tensors() describes them. */
static inline struct mrc_rows mrc_rows_of(const struct mr_tensor *tensors)
{
    enum mr_dtype dtype = tensors[0].dtype;
    return (struct mrc_rows){dtype, tensors[0].data, dtype == MR_I8 ? tensors[1].data : NULL};
}

/* Copies from[f .. f + count) to to[t .. t + count), and converts the rows: the types are the same, or one is
 * f32. */
static inline void mrc_rows_move(const struct mrc_rows *to, size_t t, const struct mrc_rows *from, size_t f,
                                 size_t count, uint32_t dim)
{
    size_t to_bytes = (size_t)dim * mr_dtype_bytes(to->dtype),
           from_bytes = (size_t)dim * mr_dtype_bytes(from->dtype);
    uint8_t *out = (uint8_t *)to->values + t * to_bytes;
    const uint8_t *in = (const uint8_t *)from->values + f * from_bytes;
    float *to_scales = to->scales == NULL ? NULL : to->scales + t;
    const float *from_scales = from->scales == NULL ? NULL : from->scales + f;
    if (count == 0)
        return;
    if (to->dtype != from->dtype && from->dtype == MR_F32) {
        mr_convert_from_f32(to->dtype, out, to_scales, (const float *)(const void *)in, count, dim);
    } else if (to->dtype != from->dtype) {
        mr_convert_to_f32(from->dtype, (float *)(void *)out, in, from_scales, count, dim);
    } else {
        memcpy(out, in, count * to_bytes);
        if (to_scales != NULL && from_scales != NULL)
            memcpy(to_scales, from_scales, count * sizeof(*to_scales));
    }
}

#endif
