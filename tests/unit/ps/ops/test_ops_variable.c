/* Variables by name's number, whole or a range. */
#include <math.h>
#include <string.h>
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/core/core.h"
#include "tests/test.h"

static const struct node_reply *ops_variable_push(struct node_fixture *n, uint32_t variable, uint64_t first,
                                                  uint32_t count)
{
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, count, values)};
    return node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, tensors, 2);
}

static const struct node_reply *ops_variable_pull(struct node_fixture *n, uint32_t variable, uint64_t first,
                                                  uint64_t count)
{
    uint64_t range[2] = {first, count};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    return node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable, &t, 1);
}

TEST(moves_whole_and_ranges, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_variable("w", 8);
    uint32_t variable = node_create(n, &f);
    node_check(ops_variable_push(n, variable, 0, 8), MR_OK, NULL);
    node_check(ops_variable_push(n, variable, 6, 2), MR_OK, NULL);
    const struct node_reply *reply = ops_variable_pull(n, variable, 0, 0);
    node_check(reply, MR_OK, NULL);
    const float expected[8] = {1, 2, 3, 4, 5, 6, 1, 2};
    assert_int_equal(reply->tensors[0].bytes, sizeof(expected));
    assert_memory_equal(reply->tensors[0].data, expected, sizeof(expected));
    reply = ops_variable_pull(n, variable, 5, 2);
    assert_int_equal(reply->tensors[0].dims[0], 2);
    assert_memory_equal(reply->tensors[0].data, expected + 5, 2 * sizeof(float));
    reply = ops_variable_pull(n, variable, 5, 0); /* the rest */
    assert_int_equal(reply->tensors[0].dims[0], 3);
}

TEST(refuses_values_that_are_no_numbers, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_variable("w", 8);
    uint32_t variable = node_create(n, &f);
    uint64_t first = 4;
    float values[3] = {1, NAN, 2}, before[8];
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 3, values)};
    const struct node_reply *reply = ops_variable_pull(n, variable, 0, 0);
    memcpy(before, reply->tensors[0].data, sizeof(before));
    node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, tensors, 2), MR_INVALID_ARGUMENT,
               "variable w: element 5 would be nan");
    values[1] = -INFINITY;
    node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, tensors, 2), MR_INVALID_ARGUMENT,
               "element 5 would be -inf");
    reply = ops_variable_pull(n, variable, 0, 0);
    assert_memory_equal(reply->tensors[0].data, before, sizeof(before));
}

/* A long call is checked when its turn comes. */
TEST(refuses_one_of_many_values, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    enum { COUNT = 20000 };
    static float values[COUNT];
    struct mr_feature f = node_variable("w", COUNT);
    uint32_t variable = node_create(n, &f);
    uint64_t first = 0;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, COUNT, values)};
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = (float)i;
    node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, tensors, 2), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 1);
    values[0] = -1;
    values[COUNT - 1] = INFINITY;
    node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, tensors, 2), MR_INVALID_ARGUMENT,
               "variable w: element 19999 would be inf");
    const struct node_reply *reply = ops_variable_pull(n, variable, 0, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_float_equal(((const float *)reply->tensors[0].data)[i], i, 0);
}

TEST(refuses_what_is_wrong, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_variable("w", 8), t = node_table("emb", 0);
    uint32_t variable = node_create(n, &f), table = node_create(n, &t), level = MR_FREEZE_ALL;
    node_check(ops_variable_push(n, 99, 0, 8), MR_UNKNOWN_VARIABLE, "no variable has number 99");
    node_check(ops_variable_push(n, table, 0, 8), MR_UNKNOWN_VARIABLE, "is a table");
    node_check(ops_variable_push(n, variable, 1, 8), MR_WRONG_SHAPE, "8 elements; 8 from 1 on");
    node_check(ops_variable_push(n, variable, UINT64_MAX, 2), MR_WRONG_SHAPE, "beyond its end");
    node_check(ops_variable_pull(n, variable, 9, 0), MR_WRONG_SHAPE, "beyond its end");
    node_check(ops_variable_pull(n, variable, 4, UINT64_MAX), MR_WRONG_SHAPE, "beyond its end");
    node_check(ops_variable_pull(n, 99, 0, 0), MR_UNKNOWN_VARIABLE, "99");
    struct mr_tensor freeze = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &freeze, 1), MR_OK, NULL);
    node_check(ops_variable_push(n, variable, 0, 8), MR_FROZEN, "all");
    const struct node_reply *reply = ops_variable_pull(n, variable, 0, 1);
    node_check(reply, MR_OK, NULL);
    assert_float_equal(*(const float *)reply->tensors[0].data, 0, 0);
}

/* A cut that has still to write it gets a copy first. */
TEST(a_cut_has_it_as_it_was, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_variable("w", 8);
    uint32_t variable = node_create(n, &f);
    float before[8];
    node_check(ops_variable_push(n, variable, 0, 8), MR_OK, NULL);
    memcpy(before, ops_variable_pull(n, variable, 0, 0)->tensors[0].data, sizeof(before));
    struct ps_core *core = fake_dp_app(0);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    struct ps_range *w = &core->features[variable]->ranges[0];
    w->in_cut = true; /* as ps_save_begin() would have it */
    fake_dp_release(0);
    node_check(ops_variable_push(n, variable, 2, 6), MR_OK, NULL);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    const bool has_copy = w->cut_copy != NULL && w->cut_copy_bytes >= sizeof(before);
    float copied[8] = {0};
    if (has_copy)
        memcpy(copied, w->cut_copy, sizeof(copied));
    ps_save_range_end(core, w);
    const uint64_t left_bytes = core->save.variable_copy_bytes;
    fake_dp_release(0);
    assert_true(has_copy);
    assert_memory_equal(copied, before, sizeof(before));
    assert_int_equal(left_bytes, 0);
    assert_memory_not_equal(ops_variable_pull(n, variable, 0, 0)->tensors[0].data, before, sizeof(before));
}
