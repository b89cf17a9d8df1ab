#include "trainer_client/replay/push.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "dataplane/wire/format/op.h"
#include "trainer_client/api/divide.h"

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

struct mrc_push *mrc_push_new(uint8_t op, uint16_t table, uint8_t priority, uint64_t step,
                              const struct mr_tensor *tensors, uint32_t tensor_count)
{
    size_t head_bytes = aligned(sizeof(struct mrc_push) + tensor_count * sizeof(*tensors));
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
                              .restores = MRC_PUSH_UNANSWERED,
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

uint32_t mrc_push_feature(const struct mrc_push *push)
{
    uint32_t id = push->table;
    if (push->op == MR_OP_PUSH_GRAD && push->tensor_count > 0)
        memcpy(&id, push->tensors[0].data, sizeof(id));
    return id;
}

void mrc_push_free(struct mrc_push *push)
{
    assert(push == NULL || push->state == MRC_PUSH_NEW);
    free(push);
}

/* ---- pushes of rows: splitting and joining ---- */

/* The tensors of a push of rows. */
struct parts {
    struct mr_push_head head;
    uint32_t keys, bags, dim; /* bags 0: a gradient per key */
    enum mr_dtype dtype;
    uint64_t *key;
    uint32_t *offsets;
    struct mrc_rows gradients;
    float *weights, *divisors; /* NULL where there are none */
};

static struct parts parts_of(const struct mrc_push *push)
{
    const struct mr_tensor *t = push->tensors;
    struct parts p = {.keys = t[1].dims[0],
                      .bags = t[2].dims[0] == 0 ? 0 : t[2].dims[0] - 1,
                      .dim = t[3].dims[1],
                      .dtype = t[3].dtype,
                      .key = t[1].data,
                      .offsets = t[2].data,
                      .gradients = mrc_rows_of(&t[3])};
    uint32_t at = t[3].dtype == MR_I8 ? 5 : 4;
    memcpy(&p.head, t[0].data, sizeof(p.head));
    if ((p.head.flags & MR_BAG_WEIGHTS) != 0)
        p.weights = t[at++].data;
    if ((p.head.flags & MR_BAG_DIVISORS) != 0)
        p.divisors = t[at].data;
    return p;
}

/* Makes a push with room for parts of this shape, and copies the head. */
static struct mrc_push *new_push(const struct mrc_push *like, const struct parts *p)
{
    bool single = like->tensors[2].dims[0] == 0;
    struct mr_tensor tensors[MRC_ROWS_TENSORS_MAX] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &p->head),
                                                      mr_tensor_1d(MR_U64, p->keys, NULL),
                                                      mr_tensor_1d(MR_U32, single ? 0 : p->bags + 1, NULL)};
    struct mr_tensor gradients = mr_tensor_2d(MR_F32, single ? p->keys : p->bags, p->dim, NULL);
    uint32_t count = 3 + mr_rows_tensors(gradients, p->dtype, &tensors[3]);
    if ((p->head.flags & MR_BAG_WEIGHTS) != 0)
        tensors[count++] = mr_tensor_1d(MR_F32, p->keys, NULL);
    if ((p->head.flags & MR_BAG_DIVISORS) != 0)
        tensors[count++] = mr_tensor_1d(MR_F32, p->bags, NULL);
    struct mrc_push *push = mrc_push_new(like->op, like->table, like->priority, like->step, tensors, count);

    if (push != NULL) {
        push->looked_up_in = like->looked_up_in;
        push->era = like->era;
        push->restores = like->restores;
    }
    return push;
}

uint32_t mrc_push_only_owner(const struct mrc_push *push, const uint16_t owners[MR_PARTITION_COUNT],
                             const struct mr_feature *table)
{
    const struct mr_tensor *t = &push->tensors[1];
    const uint64_t *keys = t->data;
    uint32_t only = UINT32_MAX;
    for (uint32_t i = 0; i < t->dims[0]; i++) {
        const uint32_t owner = owners[mr_partition_of(mr_key_hash(keys[i], table->seed))];
        if (i > 0 && owner != only)
            return UINT32_MAX;
        only = owner;
    }
    return only;
}

bool mrc_push_split(const struct mrc_push *push, const uint16_t owners[MR_PARTITION_COUNT],
                    uint32_t owner_count, const struct mr_feature *table, struct mrc_push *shares[])
{
    const bool bags = push->tensors[2].dims[0] > 0;
    struct parts parts = parts_of(push);
    const struct mrc_rows_request whole = {.keys = parts.key,
                                           .key_count = parts.keys,
                                           .offsets = bags ? parts.offsets : NULL,
                                           .bag_count = parts.bags,
                                           .weights = parts.weights,
                                           .dim = parts.dim,
                                           .gradients = parts.gradients,
                                           .dtype = parts.dtype,
                                           .pooling = table->pooling,
                                           .divisors = parts.divisors};
    struct mrc_division d;
    bool ok = true;
    void *memory = malloc(mrc_division_bytes(&whole, owner_count));
    memset((void *)shares, 0, owner_count * sizeof(*shares));
    if (memory == NULL)
        return false;
    (void)mrc_divide_by_owner(&d, &whole, owners, owner_count, table->seed, memory);
    /* Shares of bags have the divisors of the whole bags, unless they pool by sum. */
    if (bags && mr_pooling_averages(table->pooling))
        parts.head.flags |= MR_BAG_DIVISORS;
    for (uint32_t owner = 0; owner < owner_count && ok; owner++) {
        struct mrc_share *share = &d.shares[owner];
        parts.keys = share->key_count;
        parts.bags = share->bag_count;
        if (share->key_count == 0)
            continue;
        shares[owner] = new_push(push, &parts);
        ok = shares[owner] != NULL;
        if (!ok)
            break;
        const struct parts made = parts_of(shares[owner]);

        share->keys = made.key;
        share->offsets = made.offsets;
        share->weights = made.weights;
        share->divisors = made.divisors;
        share->rows = made.gradients;
    }
    if (ok)
        mrc_division_fill(&d);
    for (uint32_t owner = 0; owner < owner_count && !ok; owner++) {
        mrc_push_free(shares[owner]);
        shares[owner] = NULL;
    }
    free(memory);
    return ok;
}

/* The shares come from one push: what comes with their bags is the same. */
struct mrc_push *mrc_push_join(struct mrc_push *const shares[], uint32_t count)
{
    struct parts shape = parts_of(shares[0]);
    bool single = shares[0]->tensors[2].dims[0] == 0;
    shape.keys = shape.bags = 0;
    for (uint32_t i = 0; i < count; i++) {
        shape.keys += parts_of(shares[i]).keys;
        shape.bags += parts_of(shares[i]).bags;
    }
    struct mrc_push *push = new_push(shares[0], &shape);

    if (push == NULL)
        return NULL;
    struct parts to = parts_of(push);
    uint32_t keys = 0, bags = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct parts from = parts_of(shares[i]);
        uint32_t rows = single ? from.keys : from.bags;
        memcpy(to.key + keys, from.key, from.keys * sizeof(*to.key));
        mrc_rows_move(&to.gradients, single ? keys : bags, &from.gradients, 0, rows, to.dim);
        if (to.weights != NULL && from.weights != NULL)
            memcpy(to.weights + keys, from.weights, from.keys * sizeof(*to.weights));
        if (to.divisors != NULL && from.divisors != NULL)
            memcpy(to.divisors + bags, from.divisors, from.bags * sizeof(*to.divisors));
        for (uint32_t b = 0; b < from.bags; b++)
            to.offsets[bags + b] = keys + from.offsets[b];
        keys += from.keys;
        bags += from.bags;
    }
    if (!single)
        to.offsets[bags] = keys;
    return push;
}
