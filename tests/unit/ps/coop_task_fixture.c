#include "coop_task_fixture.h"

#include "fake_dp.h"
#include "tests/test.h"

uint64_t long_keys[LONG_KEYS];
float long_gradients[LONG_KEYS * NODE_DIM];

uint32_t long_make_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("emb", 1);
    for (uint32_t i = 0; i < LONG_KEYS; i++)
        long_keys[i] = i;
    for (uint32_t i = 0; i < LONG_KEYS * NODE_DIM; i++)
        long_gradients[i] = 1;
    return node_create(n, &f);
}

void long_make_rows(struct node_fixture *n, uint32_t table)
{
    for (uint32_t i = 0; i < LONG_KEYS; i += 100) {
        struct mr_tensor t = mr_tensor_1d(MR_U64, 100, long_keys + i);
        node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    }
}

void long_post_lookup(struct node_fixture *n, struct node_call *call, uint32_t table, uint32_t key_count)
{
    struct mr_call_options options = {.op = MR_OP_LOOKUP, .table = (uint16_t)table, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U64, key_count, long_keys);
    node_post(n, 0, call, &options, &t, 1);
}

void long_post_push(struct node_fixture *n, struct node_call *call, uint32_t table, uint32_t key_count,
                    uint64_t deadline_us)
{
    uint32_t head[4] = {table, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .step = 1, .deadline_us = deadline_us};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, key_count, long_keys),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, key_count, NODE_DIM, long_gradients)};
    node_post(n, 0, call, &options, tensors, 4);
}

void long_post_feed(struct node_fixture *n, struct node_call *call, uint32_t table, uint64_t batch_id,
                    uint32_t key_count, uint32_t flags)
{
    static uint32_t offsets[LONG_KEYS + 1];
    uint32_t head[4] = {table, key_count, 1, flags};
    for (uint32_t i = 0; i <= key_count; i++)
        offsets[i] = i;
    struct mr_call_options options = {.op = MR_OP_FEED_SAMPLE, .deadline_us = NEVER_US};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U64, 1, &batch_id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_1d(MR_U64, key_count, long_keys),
                                   mr_tensor_1d(MR_U32, key_count + 1, offsets)};
    node_post(n, 0, call, &options, tensors, 4);
}

void long_post_push_batch(struct node_fixture *n, struct node_call *call, uint64_t batch_id, uint32_t table,
                          uint32_t samples)
{
    uint32_t head[4] = {table, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD_BATCH, .step = 1, .deadline_us = NEVER_US};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &batch_id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_3d(MR_F32, samples, 1, NODE_DIM, long_gradients)};
    node_post(n, 0, call, &options, tensors, 3);
}

void long_post_id(struct node_fixture *n, struct node_call *call, uint8_t op, uint32_t table, uint64_t id)
{
    struct mr_call_options options = {.op = op, .table = (uint16_t)table, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &id);
    node_post(n, 0, call, &options, &t, 1);
}

void long_post_text(struct node_fixture *n, struct node_call *call, uint8_t op, uint64_t id)
{
    struct mr_call_options options = {.op = op, .deadline_us = NEVER_US};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_tensor_1d(MR_U64, 1, &id)};
    node_post(n, 0, call, &options, tensors, op == MR_OP_SAVE ? 1 : 2);
}

void long_post_freeze(struct node_fixture *n, struct node_call *call, uint32_t level)
{
    struct mr_call_options options = {.op = MR_OP_FREEZE, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_post(n, 0, call, &options, &t, 1);
}

void long_hold(void)
{
    fake_dp_hold(0);
    fake_dp_wait_held(0);
}

void long_slices(uint32_t count)
{
    for (uint32_t i = 0; i <= count; i++)
        fake_dp_turn(0);
}

void long_end_all(struct node_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        node_call_end(&calls[i]);
}
