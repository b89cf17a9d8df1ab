/* Rows by key, and bags of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "node_fixture.h"

static uint32_t make_table(struct node_fixture *n, const char *name, float init)
{
    struct mr_feature f = node_table(name, init);
    return node_create(n, &f);
}

static void gives_rows_in_the_order_of_the_keys(void **state)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -1;
    f.init_b = 1;
    uint32_t table = node_create(n, &f);
    uint64_t keys[4] = {5, 6, 5, 7};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 4, keys);
    const struct node_reply *reply = node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], 4);
    assert_int_equal(reply->tensors[0].dims[1], NODE_DIM);
    const float *rows = reply->tensors[0].data;
    assert_memory_equal(rows, rows + 2 * NODE_DIM, NODE_DIM * sizeof(float));
    assert_memory_not_equal(rows, rows + NODE_DIM, NODE_DIM * sizeof(float));
    assert_int_equal(node_counter(n, 0, "table.rows"), 3);
}

static void sums_bags(void **state)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 2), offsets[4] = {0, 0, 3, 4};
    uint64_t keys[4] = {5, 6, 5, 7};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 4, keys), mr_tensor_1d(MR_U32, 4, offsets)};
    const struct node_reply *reply = node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, tensors, 2);
    node_check(reply, MR_OK, NULL);
    const float *bags = reply->tensors[0].data;
    assert_int_equal(reply->tensors[0].dims[0], 3);
    assert_float_equal(bags[0], 0, 0);
    assert_float_equal(bags[NODE_DIM], 6, 0);
    assert_float_equal(bags[2 * NODE_DIM], 2, 0);
}

static void makes_no_rows_when_told_so(void **state)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 2), level = MR_FREEZE_ADMIT;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    assert_float_equal(node_value(n, table, 9), 2, 0); /* read only */
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    uint64_t key = 9;
    t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
    level = MR_FREEZE_OFF;
    t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "table.rows"), 1);
}

static void refuses_what_is_wrong(void **state)
{
    struct node_fixture *n = *state;
    struct mr_feature v = node_variable("bias", 2), wide = node_table("wide", 0);
    wide.dims[0] = 1024;
    uint32_t table = make_table(n, "emb", 2), variable = node_create(n, &v);
    uint32_t wide_table = node_create(n, &wide);
    static uint64_t keys[5000];
    uint32_t offsets[2] = {0, 4};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 4, keys), mr_tensor_1d(MR_U32, 2, offsets)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, 99, tensors, 1), MR_UNKNOWN_TABLE, "no table has number 99");
    node_check(node_call(n, 0, MR_OP_LOOKUP, 0, tensors, 1), MR_UNKNOWN_TABLE, "0");
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)variable, tensors, 1), MR_UNKNOWN_TABLE,
               "is a variable");
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, NULL, 0), MR_WRONG_SHAPE, "keys is missing");
    tensors[1] = mr_tensor_1d(MR_U32, 0, NULL);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, tensors, 2), MR_WRONG_SHAPE,
               "offsets are empty");
    tensors[0] = mr_tensor_2d(MR_U64, 2, 2, keys);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, tensors, 1), MR_WRONG_SHAPE,
               "2 dimensions, not 1");
    tensors[0] = mr_tensor_1d(MR_U64, 5000, keys); /* 20 MB of answer; a message has at most 16 MiB here */
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)wide_table, tensors, 1), MR_TOO_LARGE, "16777216");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, node_setup, node_teardown)
    const struct CMUnitTest tests[] = {
        TEST(gives_rows_in_the_order_of_the_keys),
        TEST(sums_bags),
        TEST(makes_no_rows_when_told_so),
        TEST(refuses_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
