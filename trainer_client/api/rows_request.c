#include "trainer_client/api/rows_request.h"

#include <string.h>

uint32_t mrc_request_flags(const struct mrc_rows_request *r)
{
    return (r->weights != NULL ? MR_BAG_WEIGHTS : 0) | (r->averages ? MR_BAG_DIVISORS : 0);
}

/* A push has offsets even without bags: there are none in them then. */
static bool has_offsets(const struct mrc_rows_request *r, bool has_head)
{
    return r->offsets != NULL || has_head;
}

uint32_t mrc_request_tensors(const struct mrc_rows_request *r, bool has_head)
{
    const uint32_t gradients = r->gradients == NULL ? 0 : r->dtype == MR_I8 ? 2 : 1;
    return 1u + has_head + has_offsets(r, has_head) + gradients + (r->weights != NULL) + r->averages;
}

void mrc_request_add(const struct mrc_rows_request *r, struct mr_future *f, uint32_t i,
                     const struct mr_push_head *head, const struct mrc_share *share)
{
    const bool whole = share == NULL;
    const uint32_t keys = whole ? r->key_count : share->key_count;
    const uint32_t bags = whole ? r->bag_count : share->bag_count;
    const struct mr_tensor shape = mr_tensor_2d(MR_F32, r->offsets == NULL ? keys : bags, r->dim, NULL);
    struct mr_tensor rows[MR_ROWS_TENSORS_MAX];
    if (head != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head));
    mrc_part_add(f, i, mr_tensor_1d(MR_U64, keys, whole ? r->keys : NULL));
    if (r->offsets != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, bags + 1, whole ? r->offsets : NULL));
    else if (has_offsets(r, head != NULL))
        mrc_part_add(f, i, mr_tensor_1d(MR_U32, 0, NULL));
    if (r->gradients != NULL) {
        uint32_t count = mr_rows_tensors(shape, r->dtype, rows);
        if (whole && r->dtype == MR_F32)
            rows[0].data = (void *)(uintptr_t)r->gradients;
        for (uint32_t t = 0; t < count; t++)
            mrc_part_add(f, i, rows[t]);
    }
    if (r->weights != NULL)
        mrc_part_add(f, i, mr_tensor_1d(MR_F32, keys, whole ? r->weights : NULL));
    if (r->averages)
        mrc_part_add(f, i, mr_tensor_1d(MR_F32, bags, whole ? r->divisors : NULL));
}

void mrc_request_find(const struct mrc_rows_request *r, const struct mr_tensor *t, bool has_head,
                      struct mrc_share *out)
{
    if (has_head)
        t++;
    out->keys = (t++)->data;
    if (has_offsets(r, has_head))
        out->offsets = (t++)->data;
    if (r->gradients != NULL) {
        out->rows = mrc_rows_of(t);
        t += r->dtype == MR_I8 ? 2 : 1;
    }
    if (r->weights != NULL)
        out->weights = (t++)->data;
    if (r->averages)
        out->divisors = t->data;
}

static void fill_bags(const struct mrc_rows_request *r, struct mrc_shard *shard)
{
    const struct mrc_rows gradients = mrc_rows_f32(r->gradients);
    mrc_shard_split_bags(shard, r->keys, r->offsets, r->bag_count);
    for (uint32_t owner = 0; owner < shard->owner_count; owner++) {
        if (shard->shares[owner].key_count == 0)
            continue;
        if (r->gradients != NULL)
            mrc_shard_split_bag_rows(shard, owner, &gradients, r->dim);
        if (r->divisors != NULL)
            mrc_shard_split_bag_floats(shard, owner, r->divisors, shard->shares[owner].divisors);
        else if (r->averages)
            mrc_shard_divisors(shard, owner, r->pooling, r->weights, r->offsets,
                               shard->shares[owner].divisors);
    }
}

void mrc_request_fill(const struct mrc_rows_request *r, struct mrc_shard *shard)
{
    const struct mrc_rows gradients = mrc_rows_f32(r->gradients);
    if (r->weights != NULL)
        mrc_shard_split_weights(shard, r->weights);
    if (r->offsets != NULL) {
        fill_bags(r, shard);
        return;
    }
    mrc_shard_split_keys(shard, r->keys);
    if (r->gradients != NULL)
        mrc_shard_split_rows(shard, &gradients, r->dim);
}

/* ---- copies ---- */

static size_t offsets_bytes(const struct mrc_rows_request *r)
{
    return r->offsets == NULL ? 0 : ((size_t)r->bag_count + 1) * sizeof(*r->offsets);
}

static size_t weights_bytes(const struct mrc_rows_request *r)
{
    return r->weights == NULL ? 0 : r->key_count * sizeof(*r->weights);
}

size_t mrc_request_copy_bytes(const struct mrc_rows_request *r)
{
    const size_t bytes = r->key_count * sizeof(*r->keys) + weights_bytes(r) + offsets_bytes(r);
    return (bytes + 7) / 8 * 8;
}

void mrc_request_copy(struct mrc_rows_request *r, void *memory)
{
    uint8_t *at = memory;
    if (r->key_count > 0)
        memcpy(at, r->keys, r->key_count * sizeof(*r->keys));
    r->keys = memory;
    at += r->key_count * sizeof(*r->keys);
    if (r->weights != NULL) {
        memcpy(at, r->weights, weights_bytes(r));
        r->weights = (const float *)(const void *)at;
        at += weights_bytes(r);
    }
    if (r->offsets != NULL) {
        memcpy(at, r->offsets, offsets_bytes(r));
        r->offsets = (const uint32_t *)(const void *)at;
    }
}
