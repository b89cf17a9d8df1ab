#include "trainer_client/api/shard.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"

size_t mrc_shard_bytes(uint32_t owner_count, uint32_t key_count, bool with_bags)
{
    const struct mrc_shard *s = NULL;
    const size_t key_bytes = (with_bags ? sizeof(*s->bag_of) : 0) + sizeof(*s->owner_of);
    return (owner_count * sizeof(*s->shares) + key_count * key_bytes + 7) / 8 * 8;
}

void mrc_shard_keys_in(void *memory, struct mrc_shard *s, const uint16_t owners[MR_PARTITION_COUNT],
                       uint32_t owner_count, uint64_t seed, const uint64_t *keys, uint32_t key_count,
                       bool with_bags)
{
    uint8_t *of_keys = (uint8_t *)memory + owner_count * sizeof(*s->shares);
    *s = (struct mrc_shard){
        .key_count = key_count, .owner_count = owner_count, .shares = memory, .memory = memory};
    memset(s->shares, 0, owner_count * sizeof(*s->shares));
    if (with_bags)
        s->bag_of = (uint32_t *)(void *)of_keys;
    s->owner_of = (uint16_t *)(void *)(of_keys + (with_bags ? key_count * sizeof(*s->bag_of) : 0));
    for (uint32_t i = 0; i < key_count; i++) {
        const uint16_t owner = owners[mr_partition_of(mr_key_hash(keys[i], seed))];
        s->owner_of[i] = owner;
        s->shares[owner].key_count++;
    }
}

bool mrc_shard_keys(struct mrc_shard *s, const uint16_t owners[MR_PARTITION_COUNT], uint32_t owner_count,
                    uint64_t seed, const uint64_t *keys, uint32_t key_count, bool with_bags)
{
    void *memory = malloc(mrc_shard_bytes(owner_count, key_count, with_bags));
    if (memory == NULL)
        return false;
    mrc_shard_keys_in(memory, s, owners, owner_count, seed, keys, key_count, with_bags);
    return true;
}

uint32_t mrc_shard_owners(const struct mrc_shard *s, uint32_t *last)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < s->owner_count; o++) {
        if (s->shares[o].key_count > 0) {
            *last = o;
            count++;
        }
    }
    return count;
}

/* Each share begins again. */
static void rewind_shares(struct mrc_shard *s)
{
    for (uint32_t o = 0; o < s->owner_count; o++)
        s->shares[o].next_key = s->shares[o].next_bag = 0;
}

void mrc_shard_split_keys(struct mrc_shard *s, const uint64_t *keys)
{
    rewind_shares(s);
    for (uint32_t i = 0; i < s->key_count; i++) {
        struct mrc_share *share = &s->shares[s->owner_of[i]];
        share->keys[share->next_key++] = keys[i];
    }
}

void mrc_shard_split_weights(struct mrc_shard *s, const float *weights)
{
    rewind_shares(s);
    for (uint32_t i = 0; i < s->key_count; i++) {
        struct mrc_share *share = &s->shares[s->owner_of[i]];
        share->weights[share->next_key++] = weights[i];
    }
}

/* Copies a row; lengths of 16 bytes each, of which most rows are multiples, need no call. */
static inline void copy_row(uint8_t *to, const uint8_t *from, size_t bytes)
{
    if (bytes % 16 != 0) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += 16)
        memcpy(to + i, from + i, 16);
}

/* Moves rows that are only bytes, since both sides have them as the same type without scales; false: they do
 * not, and nothing was moved. */
static bool move_bytes(struct mrc_shard *s, const struct mrc_rows *whole, uint32_t dim, bool joins)
{
    const size_t bytes = (size_t)dim * mr_dtype_bytes(whole->dtype);
    for (uint32_t o = 0; o < s->owner_count; o++)
        if (s->shares[o].key_count > 0 && (s->shares[o].rows.dtype != whole->dtype || whole->dtype == MR_I8))
            return false;
    for (uint32_t i = 0; i < s->key_count; i++) {
        struct mrc_share *share = &s->shares[s->owner_of[i]];
        uint8_t *part = (uint8_t *)share->rows.values + bytes * share->next_key++;
        uint8_t *at = (uint8_t *)whole->values + bytes * i;
        if (joins)
            copy_row(at, part, bytes);
        else
            copy_row(part, at, bytes);
    }
    return true;
}

void mrc_shard_split_rows(struct mrc_shard *s, const struct mrc_rows *rows, uint32_t dim)
{
    rewind_shares(s);
    if (move_bytes(s, rows, dim, false))
        return;
    for (uint32_t i = 0; i < s->key_count; i++) {
        struct mrc_share *share = &s->shares[s->owner_of[i]];
        mrc_rows_move(&share->rows, share->next_key++, rows, i, 1, dim);
    }
}

void mrc_shard_join_rows(struct mrc_shard *s, uint32_t dim, float *out)
{
    const struct mrc_rows whole = mrc_rows_f32(out);
    rewind_shares(s);
    if (move_bytes(s, &whole, dim, true))
        return;
    for (uint32_t i = 0; i < s->key_count; i++) {
        struct mrc_share *share = &s->shares[s->owner_of[i]];
        mrc_rows_move(&whole, i, &share->rows, share->next_key++, 1, dim);
    }
}

void mrc_shard_bags(struct mrc_shard *s, const uint32_t *offsets, uint32_t bag_count)
{
    rewind_shares(s);
    for (uint32_t o = 0; o < s->owner_count; o++)
        s->shares[o].bag_count = 0;
    for (uint32_t b = 0; b < bag_count; b++) {
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
            struct mrc_share *share = &s->shares[s->owner_of[i]];
            if (share->next_bag != b + 1) { /* the last one counted, from 1 */
                share->next_bag = b + 1;
                share->bag_count++;
            }
        }
    }
    for (uint32_t o = 0, sum = 0; o < s->owner_count; o++) {
        s->shares[o].first_bag = sum;
        sum += s->shares[o].bag_count;
    }
}

void mrc_shard_split_bags(struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                          uint32_t bag_count)
{
    rewind_shares(s);
    for (uint32_t o = 0; o < s->owner_count; o++)
        if (s->shares[o].key_count > 0)
            s->shares[o].offsets[0] = 0;
    for (uint32_t b = 0; b < bag_count; b++) {
        const uint32_t begin = offsets[b], end = offsets[b + 1];
        for (uint32_t i = begin; i < end; i++) {
            struct mrc_share *share = &s->shares[s->owner_of[i]];
            share->keys[share->next_key++] = keys[i];
        }
        /* Close the bag at every owner that got a key of it; a second visit finds nothing new. */
        for (uint32_t i = begin; i < end; i++) {
            struct mrc_share *share = &s->shares[s->owner_of[i]];
            const uint32_t bag = share->next_bag;
            if (bag == share->bag_count || share->offsets[bag] == share->next_key)
                continue;
            s->bag_of[share->first_bag + bag] = b;
            share->offsets[bag + 1] = share->next_key;
            share->next_bag++;
        }
    }
}

static float divisor_of(uint32_t pooling, const float *weights, const uint32_t *offsets, uint32_t bag)
{
    uint32_t first = offsets[bag];
    return mr_bag_divisor(pooling, weights == NULL ? NULL : weights + first, offsets[bag + 1] - first);
}

void mrc_shard_divisors(const struct mrc_shard *s, uint32_t owner, uint32_t pooling, const float *weights,
                        const uint32_t *offsets, float *out)
{
    const struct mrc_share *share = &s->shares[owner];
    for (uint32_t j = 0; j < share->bag_count; j++)
        out[j] = divisor_of(pooling, weights, offsets, s->bag_of[share->first_bag + j]);
}

void mrc_shard_split_bag_floats(const struct mrc_shard *s, uint32_t owner, const float *values, float *out)
{
    const struct mrc_share *share = &s->shares[owner];
    for (uint32_t j = 0; j < share->bag_count; j++)
        out[j] = values[s->bag_of[share->first_bag + j]];
}

void mrc_shard_split_bag_rows(const struct mrc_shard *s, uint32_t owner, const struct mrc_rows *rows,
                              uint32_t dim)
{
    const struct mrc_share *share = &s->shares[owner];
    for (uint32_t j = 0; j < share->bag_count; j++)
        mrc_rows_move(&share->rows, j, rows, s->bag_of[share->first_bag + j], 1, dim);
}

void mrc_shard_add_bag_rows(const struct mrc_shard *s, uint32_t owner, uint32_t dim, float *scratch,
                            float *out)
{
    const struct mrc_share *share = &s->shares[owner];
    const struct mrc_rows expanded = mrc_rows_f32(scratch);
    for (uint32_t j = 0; j < share->bag_count; j++) {
        const float *in = (const float *)share->rows.values + (size_t)j * dim;
        float *sum = out + (size_t)s->bag_of[share->first_bag + j] * dim;
        if (share->rows.dtype != MR_F32) {
            mrc_rows_move(&expanded, 0, &share->rows, j, 1, dim);
            in = scratch;
        }
        for (uint32_t d = 0; d < dim; d++)
            sum[d] += in[d];
    }
}

void mrc_shard_split_csr(struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                         uint32_t bag_count)
{
    rewind_shares(s);
    for (uint32_t b = 0; b < bag_count; b++) {
        for (uint32_t o = 0; o < s->owner_count; o++)
            s->shares[o].offsets[b] = s->shares[o].next_key;
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
            struct mrc_share *share = &s->shares[s->owner_of[i]];
            share->keys[share->next_key++] = keys[i];
        }
    }
    for (uint32_t o = 0; o < s->owner_count; o++)
        s->shares[o].offsets[bag_count] = s->shares[o].next_key;
}

void mrc_divisors(uint32_t pooling, const float *weights, const uint32_t *offsets, uint32_t bag_count,
                  float *out)
{
    for (uint32_t b = 0; b < bag_count; b++)
        out[b] = divisor_of(pooling, weights, offsets, b);
}
