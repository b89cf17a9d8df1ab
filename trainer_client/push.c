#include "trainer_client/push.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/shard.h"

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

struct mrc_push *mrc_push_new(uint8_t op, uint16_t table, uint8_t priority, uint64_t step,
                              const struct mr_tensor *tensors, uint32_t tensor_count)
{
    size_t head_bytes = aligned(sizeof(struct mrc_push) + tensor_count * sizeof *tensors);
    size_t bytes = head_bytes;

    for (uint32_t t = 0; t < tensor_count; t++)
        bytes += aligned(tensors[t].bytes);
    struct mrc_push *push = aligned_alloc(64, bytes);

    if (push == NULL)
        return NULL;
    *push = (struct mrc_push){.op = op,
                              .priority = priority,
                              .table = table,
                              .step = step,
                              .tensor_count = tensor_count,
                              .tensors = (struct mr_tensor *)(push + 1),
                              .bytes = bytes};
    uint8_t *data = (uint8_t *)push + head_bytes;

    for (uint32_t t = 0; t < tensor_count; t++) {
        push->tensors[t] = tensors[t];
        push->tensors[t].data = data;
        if (tensors[t].data != NULL && tensors[t].bytes > 0)
            memcpy(data, tensors[t].data, tensors[t].bytes);
        data += aligned(tensors[t].bytes);
    }
    return push;
}

void mrc_push_free(struct mrc_push *push)
{
    assert(push == NULL || push->state == MRC_PUSH_NEW);
    free(push);
}

/* A push with this core's share of the rows, to be filled in. */
static struct mrc_push *new_share(const struct mrc_push *push, uint32_t keys, uint32_t bags)
{
    uint32_t dim = push->tensors[3].dims[1];
    bool single = push->tensors[2].dims[0] == 0;
    struct mr_tensor tensors[MRC_ROWS_TENSORS] = {push->tensors[0], mr_tensor_1d(MR_U64, keys, NULL),
                                                  mr_tensor_1d(MR_U32, single ? 0 : bags + 1, NULL),
                                                  mr_tensor_2d(MR_F32, single ? keys : bags, dim, NULL)};

    return mrc_push_new(push->op, push->table, push->priority, push->step, tensors, MRC_ROWS_TENSORS);
}

static void fill_shares(struct mrc_shard *shard, uint32_t pooling, const struct mrc_push *push,
                        struct mrc_push *const shares[])
{
    const struct mr_tensor *t = push->tensors;
    uint64_t *keys[MR_CORE_MAX] = {NULL};
    uint32_t *offsets[MR_CORE_MAX] = {NULL};
    float *gradients[MR_CORE_MAX] = {NULL};

    for (uint32_t core = 0; core < MR_CORE_MAX; core++) {
        if (shares[core] == NULL)
            continue;
        keys[core] = shares[core]->tensors[1].data;
        offsets[core] = shares[core]->tensors[2].data;
        gradients[core] = shares[core]->tensors[3].data;
    }
    if (t[2].dims[0] == 0) {
        mrc_shard_split_keys(shard, t[1].data, keys);
        mrc_shard_split_rows(shard, t[3].data, t[3].dims[1], gradients);
        return;
    }
    mrc_shard_split_bags(shard, pooling, t[1].data, t[2].data, t[2].dims[0] - 1, keys, offsets);
    for (uint32_t core = 0; core < MR_CORE_MAX; core++) {
        if (shares[core] != NULL)
            mrc_shard_split_bag_rows(shard, core, t[3].data, t[3].dims[1], gradients[core]);
    }
}

bool mrc_push_split(const struct mrc_push *push, const uint8_t partition_core[MR_PARTITION_COUNT],
                    const struct mr_feature *table, struct mrc_push *shares[MR_CORE_MAX])
{
    const struct mr_tensor *t = push->tensors;
    struct mrc_shard shard;
    bool ok = true, bags = t[2].dims[0] > 0;

    for (uint32_t core = 0; core < MR_CORE_MAX; core++)
        shares[core] = NULL;
    if (!mrc_shard_keys(&shard, partition_core, table->seed, t[1].data, t[1].dims[0], bags))
        return false;
    if (bags)
        mrc_shard_bags(&shard, t[2].data, t[2].dims[0] - 1);
    for (uint32_t core = 0; core < MR_CORE_MAX && ok; core++) {
        if (shard.keys[core] > 0)
            ok = (shares[core] = new_share(push, shard.keys[core], shard.bags[core])) != NULL;
    }
    if (ok)
        fill_shares(&shard, table->pooling, push, shares);
    for (uint32_t core = 0; core < MR_CORE_MAX && !ok; core++) {
        mrc_push_free(shares[core]);
        shares[core] = NULL;
    }
    free(shard.memory);
    return ok;
}

struct mrc_push *mrc_push_join(struct mrc_push *const pieces[], uint32_t count)
{
    const struct mrc_push *first = pieces[0];
    uint32_t keys = 0, bags = 0, dim = first->tensors[3].dims[1];
    bool single = first->tensors[2].dims[0] == 0;

    for (uint32_t i = 0; i < count; i++) {
        keys += pieces[i]->tensors[1].dims[0];
        bags += single ? 0 : pieces[i]->tensors[2].dims[0] - 1;
    }
    struct mrc_push *push = new_share(first, keys, bags);

    if (push == NULL)
        return NULL;
    uint64_t *key = push->tensors[1].data;
    uint32_t *offset = push->tensors[2].data, done = 0;
    float *gradient = push->tensors[3].data;

    for (uint32_t i = 0; i < count; i++) {
        const struct mr_tensor *t = pieces[i]->tensors;

        memcpy(key + done, t[1].data, t[1].bytes);
        memcpy(gradient, t[3].data, t[3].bytes);
        gradient += (size_t)t[3].dims[0] * dim;
        for (uint32_t b = 0; !single && b + 1 < t[2].dims[0]; b++)
            *offset++ = done + ((const uint32_t *)t[2].data)[b];
        done += t[1].dims[0];
    }
    if (!single)
        *offset = done;
    return push;
}
