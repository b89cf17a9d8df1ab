#include "trainer_client/api/shard.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"

bool mrc_shard_keys(struct mrc_shard *s, const uint8_t partition_core[MR_PARTITION_COUNT], uint64_t seed,
                    const uint64_t *keys, uint32_t key_count, bool with_bags)
{
    size_t n = key_count == 0 ? 1 : key_count;
    size_t bag_bytes = with_bags ? sizeof(*s->bag_of) : 0;
    void *memory = malloc(n * (bag_bytes + 1));
    if (memory == NULL)
        return false;
    *s = (struct mrc_shard){.key_count = key_count, .memory = memory};
    if (with_bags) {
        s->bag_of = memory;
        memory = s->bag_of + n;
    }
    s->core_of = memory;
    for (uint32_t i = 0; i < key_count; i++) {
        uint8_t core = partition_core[mr_partition_of(mr_key_hash(keys[i], seed))];
        s->core_of[i] = core;
        s->keys[core]++;
    }
    return true;
}

void mrc_shard_split_keys(const struct mrc_shard *s, const uint64_t *keys, uint64_t *const out[])
{
    uint32_t next[MR_CORE_MAX] = {0};
    for (uint32_t i = 0; i < s->key_count; i++) {
        uint8_t core = s->core_of[i];
        out[core][next[core]++] = keys[i];
    }
}

void mrc_shard_split_floats(const struct mrc_shard *s, const float *values, float *const out[])
{
    uint32_t next[MR_CORE_MAX] = {0};
    for (uint32_t i = 0; i < s->key_count; i++) {
        uint8_t core = s->core_of[i];
        out[core][next[core]++] = values[i];
    }
}

void mrc_shard_split_rows(const struct mrc_shard *s, const struct mrc_rows *rows, uint32_t dim,
                          const struct mrc_rows out[])
{
    uint32_t next[MR_CORE_MAX] = {0};
    for (uint32_t i = 0; i < s->key_count; i++) {
        uint8_t core = s->core_of[i];
        mrc_rows_move(&out[core], next[core]++, rows, i, 1, dim);
    }
}

void mrc_shard_join_rows(const struct mrc_shard *s, const struct mrc_rows in[], uint32_t dim, float *out)
{
    const struct mrc_rows whole = mrc_rows_f32(out);
    uint32_t next[MR_CORE_MAX] = {0};
    for (uint32_t i = 0; i < s->key_count; i++) {
        uint8_t core = s->core_of[i];
        mrc_rows_move(&whole, i, &in[core], next[core]++, 1, dim);
    }
}

void mrc_shard_bags(struct mrc_shard *s, const uint32_t *offsets, uint32_t bag_count)
{
    uint32_t last[MR_CORE_MAX] = {0}; /* the last bag counted for the core, from 1 */
    memset(s->bags, 0, sizeof(s->bags));
    for (uint32_t b = 0; b < bag_count; b++) {
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
            uint8_t core = s->core_of[i];
            if (last[core] != b + 1) {
                last[core] = b + 1;
                s->bags[core]++;
            }
        }
    }
}

/* Returns where a core's entries of bag_of begin. */
static uint32_t first_bag(const struct mrc_shard *s, uint32_t core)
{
    uint32_t first = 0;
    for (uint32_t c = 0; c < core; c++)
        first += s->bags[c];
    return first;
}

void mrc_shard_split_bags(struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                          uint32_t bag_count, uint64_t *const keys_out[], uint32_t *const offsets_out[])
{
    uint32_t next_key[MR_CORE_MAX] = {0}, next_bag[MR_CORE_MAX] = {0}, first[MR_CORE_MAX];
    for (uint32_t c = 0, sum = 0; c < MR_CORE_MAX; c++) {
        first[c] = sum;
        sum += s->bags[c];
        if (s->keys[c] > 0)
            offsets_out[c][0] = 0;
    }
    for (uint32_t b = 0; b < bag_count; b++) {
        uint32_t begin = offsets[b], end = offsets[b + 1];
        for (uint32_t i = begin; i < end; i++) {
            uint8_t core = s->core_of[i];
            keys_out[core][next_key[core]++] = keys[i];
        }
        /* Close the bag on every core that got a key of it; a second visit finds nothing new. */
        for (uint32_t i = begin; i < end; i++) {
            uint8_t core = s->core_of[i];
            uint32_t bag = next_bag[core];
            if (bag == s->bags[core] || offsets_out[core][bag] == next_key[core])
                continue;
            s->bag_of[first[core] + bag] = b;
            offsets_out[core][bag + 1] = next_key[core];
            next_bag[core]++;
        }
    }
}

static float divisor_of(uint32_t pooling, const float *weights, const uint32_t *offsets, uint32_t bag)
{
    uint32_t first = offsets[bag];
    return mr_bag_divisor(pooling, weights == NULL ? NULL : weights + first, offsets[bag + 1] - first);
}

void mrc_shard_divisors(const struct mrc_shard *s, uint32_t core, uint32_t pooling, const float *weights,
                        const uint32_t *offsets, float *out)
{
    const uint32_t *bag_of = s->bag_of + first_bag(s, core);
    for (uint32_t j = 0; j < s->bags[core]; j++)
        out[j] = divisor_of(pooling, weights, offsets, bag_of[j]);
}

void mrc_shard_split_bag_floats(const struct mrc_shard *s, uint32_t core, const float *values, float *out)
{
    const uint32_t *bag_of = s->bag_of + first_bag(s, core);
    for (uint32_t j = 0; j < s->bags[core]; j++)
        out[j] = values[bag_of[j]];
}

void mrc_shard_split_bag_rows(const struct mrc_shard *s, uint32_t core, const struct mrc_rows *rows,
                              uint32_t dim, const struct mrc_rows *out)
{
    const uint32_t *bag_of = s->bag_of + first_bag(s, core);
    for (uint32_t j = 0; j < s->bags[core]; j++)
        mrc_rows_move(out, j, rows, bag_of[j], 1, dim);
}

void mrc_shard_add_bag_rows(const struct mrc_shard *s, uint32_t core, const struct mrc_rows *rows,
                            uint32_t dim, float *scratch, float *out)
{
    const uint32_t *bag_of = s->bag_of + first_bag(s, core);
    const struct mrc_rows expanded = mrc_rows_f32(scratch);
    for (uint32_t j = 0; j < s->bags[core]; j++) {
        const float *in = (const float *)rows->values + (size_t)j * dim;
        float *sum = out + (size_t)bag_of[j] * dim;
        if (rows->dtype != MR_F32) {
            mrc_rows_move(&expanded, 0, rows, j, 1, dim);
            in = scratch;
        }
        for (uint32_t d = 0; d < dim; d++)
            sum[d] += in[d];
    }
}

void mrc_shard_split_csr(const struct mrc_shard *s, const uint64_t *keys, const uint32_t *offsets,
                         uint32_t bag_count, uint64_t *const keys_out[], uint32_t *const offsets_out[],
                         uint32_t core_count)
{
    uint32_t next[MR_CORE_MAX] = {0};
    for (uint32_t b = 0; b < bag_count; b++) {
        for (uint32_t c = 0; c < core_count; c++)
            offsets_out[c][b] = next[c];
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
            uint8_t core = s->core_of[i];
            keys_out[core][next[core]++] = keys[i];
        }
    }
    for (uint32_t c = 0; c < core_count; c++)
        offsets_out[c][bag_count] = next[c];
}

void mrc_divisors(uint32_t pooling, const float *weights, const uint32_t *offsets, uint32_t bag_count,
                  float *out)
{
    for (uint32_t b = 0; b < bag_count; b++)
        out[b] = divisor_of(pooling, weights, offsets, b);
}
