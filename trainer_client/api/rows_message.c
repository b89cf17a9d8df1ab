#include "trainer_client/api/rows_message.h"

#include <stdlib.h>
#include "trainer_client/call/last_error.h"

/* ---- requests ---- */

uint32_t mrc_rows_flags(const struct mrc_rows_request *r)
{
    return (r->weights != NULL ? MR_BAG_WEIGHTS : 0) | (r->averages ? MR_BAG_DIVISORS : 0);
}

/* A push has offsets even without bags: there are none in them then. */
static bool has_offsets(const struct mrc_rows_request *r, bool has_head)
{
    return r->offsets != NULL || has_head;
}

uint32_t mrc_rows_tensors(const struct mrc_rows_request *r, bool has_head)
{
    const uint32_t gradients = r->gradients.values == NULL ? 0 : r->dtype == MR_I8 ? 2 : 1;
    return 1u + has_head + has_offsets(r, has_head) + gradients + (r->weights != NULL) + r->averages;
}

void mrc_rows_add(const struct mrc_rows_request *r, struct mr_future *f, uint32_t i,
                  const struct mr_push_head *head, const struct mrc_share *share)
{
    const bool whole = share == NULL;
    const uint32_t keys = whole ? r->key_count : share->key_count;
    const uint32_t bags = whole ? r->bag_count : share->bag_count;
    const struct mr_tensor shape = mr_tensor_2d(MR_F32, r->offsets == NULL ? keys : bags, r->dim, NULL);
    struct mr_tensor rows[MR_ROWS_TENSORS_MAX];
    if (head != NULL)
        mrc_request_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head));
    mrc_request_add(f, i, mr_tensor_1d(MR_U64, keys, whole ? r->keys : NULL));
    if (r->offsets != NULL)
        mrc_request_add(f, i, mr_tensor_1d(MR_U32, bags + 1, whole ? r->offsets : NULL));
    else if (has_offsets(r, head != NULL))
        mrc_request_add(f, i, mr_tensor_1d(MR_U32, 0, NULL));
    if (r->gradients.values != NULL) {
        uint32_t count = mr_rows_tensors(shape, r->dtype, rows);
        if (whole && r->dtype == MR_F32)
            rows[0].data = r->gradients.values;
        for (uint32_t t = 0; t < count; t++)
            mrc_request_add(f, i, rows[t]);
    }
    if (r->weights != NULL)
        mrc_request_add(f, i, mr_tensor_1d(MR_F32, keys, whole ? r->weights : NULL));
    if (r->averages)
        mrc_request_add(f, i, mr_tensor_1d(MR_F32, bags, whole ? r->divisors : NULL));
}

void mrc_rows_find(const struct mrc_rows_request *r, const struct mr_tensor *t, bool has_head,
                   struct mrc_share *out)
{
    if (has_head)
        t++;
    out->keys = (t++)->data;
    if (has_offsets(r, has_head))
        out->offsets = (t++)->data;
    if (r->gradients.values != NULL) {
        out->rows = mrc_rows_of(t);
        t += r->dtype == MR_I8 ? 2 : 1;
    }
    if (r->weights != NULL)
        out->weights = (t++)->data;
    if (r->averages)
        out->divisors = t->data;
}

/* ---- answers ---- */

const struct mr_tensor *mrc_answer_rows(const struct mr_future *f, uint32_t i, uint32_t t,
                                        enum mr_dtype dtype, uint32_t rank, struct mrc_rows *out)
{
    const struct mr_tensor *values = mrc_answer_tensor(f, i, t, dtype, rank);
    if (values == NULL)
        return NULL;
    *out = (struct mrc_rows){.dtype = dtype, .values = values->data};
    if (dtype != MR_I8)
        return values;
    const struct mr_tensor *scales = mrc_answer_tensor(f, i, t + 1, MR_F32, 1);

    if (scales == NULL || scales->dims[0] != mrc_row_count(values))
        return NULL;
    out->scales = scales->data;
    return values;
}

float *mrc_rows_allocate(uint64_t rows, uint32_t dim)
{
    const size_t bytes = (size_t)rows * dim * sizeof(float);
    float *out =
        aligned_alloc(MR_TENSOR_ALIGN, (bytes + MR_TENSOR_ALIGN) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN);
    if (out == NULL)
        mrc_error_line("no memory for a reply of %llu rows", (unsigned long long)rows);
    return out;
}
