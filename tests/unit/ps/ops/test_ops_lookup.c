/* Rows by key, and bags of them. */
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "node_fixture.h"
#include "tests/test.h"

static uint32_t make_table(struct node_fixture *n, const char *name, float init)
{
    struct mr_feature f = node_table(name, init);
    return node_create(n, &f);
}

TEST(gives_rows_in_the_order_of_the_keys, node_setup, node_teardown)
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

TEST(sums_bags, node_setup, node_teardown)
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

TEST(makes_no_rows_when_told_so, node_setup, node_teardown)
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

TEST(refuses_what_is_wrong, node_setup, node_teardown)
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

/* ---- several tables ---- */

/* A lookup of several tables that is being made. */
struct request {
    struct mr_table_head heads[MR_LOOKUP_TABLES_MAX + 1];
    struct mr_tensor tensors[MR_TENSORS_MAX];
    uint32_t table_count, tensor_count;
};

static void ops_lookup_add(struct request *r, uint32_t table, uint32_t flags, const uint64_t *keys,
                           uint32_t key_count, const uint32_t *offsets, uint32_t offset_count)
{
    struct mr_table_head *head = &r->heads[r->table_count++];
    *head = (struct mr_table_head){.table = table, .flags = flags};
    r->tensors[r->tensor_count++] = mr_tensor_1d(MR_U32, MR_TABLE_HEAD_WORDS, head);
    r->tensors[r->tensor_count++] = mr_tensor_1d(MR_U64, key_count, keys);
    r->tensors[r->tensor_count++] = mr_tensor_1d(MR_U32, offset_count, offsets);
}

static const struct node_reply *look_up(struct node_fixture *n, struct request *r, uint16_t flags)
{
    return node_call_step(n, 0, MR_OP_LOOKUP_TABLES, 0, 0, flags, r->tensors, r->tensor_count);
}

TEST(looks_up_several_tables, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("mean", 3);
    f.pooling = MR_POOL_MEAN;
    uint32_t sums = make_table(n, "sums", 2), means = node_create(n, &f);
    const uint64_t keys[4] = {5, 6, 5, 7};
    const uint32_t offsets[4] = {0, 0, 3, 4}, whole[2] = {0, 4};
    const float weights[4] = {1, 2, 1, 0}, divisor = 8;
    struct request r = {.table_count = 0};
    ops_lookup_add(&r, sums, 0, keys, 4, NULL, 0);
    ops_lookup_add(&r, means, 0, keys, 4, offsets, 4);
    ops_lookup_add(&r, sums, 0, NULL, 0, NULL, 0);
    ops_lookup_add(&r, means, MR_BAG_WEIGHTS | MR_BAG_DIVISORS, keys, 4, whole, 2);
    r.tensors[r.tensor_count++] = mr_tensor_1d(MR_F32, 4, weights);
    r.tensors[r.tensor_count++] = mr_tensor_1d(MR_F32, 1, &divisor);
    ops_lookup_add(&r, sums, 0, keys, 4, offsets, 4);
    const struct node_reply *reply = look_up(n, &r, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 5);
    const uint32_t rows[5] = {4, 3, 0, 1, 3};
    const float first[5] = {2, 0, 0, 1.5f, 0}, last[5] = {2, 3, 0, 1.5f, 2};
    for (uint32_t i = 0; i < 5; i++) {
        const struct mr_tensor *t = &reply->tensors[i];
        assert_int_equal(t->dims[0], rows[i]);
        assert_int_equal(t->dims[1], NODE_DIM);
        if (rows[i] == 0)
            continue;
        assert_float_equal(*(const float *)t->data, first[i], 0);
        assert_float_equal(((const float *)t->data)[(rows[i] - 1) * NODE_DIM], last[i], 0);
    }
    assert_int_equal(node_counter(n, 0, "table.rows"), 6);
}

TEST(flags_of_the_call_hold_for_all_its_tables, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t a = make_table(n, "a", 2), b = make_table(n, "b", 3);
    const uint64_t keys[2] = {5, 6};
    const uint32_t offsets[2] = {0, 2};
    struct request r = {.table_count = 0};
    ops_lookup_add(&r, a, 0, keys, 2, NULL, 0);
    ops_lookup_add(&r, b, 0, keys, 2, offsets, 2);
    const struct node_reply *reply =
        look_up(n, &r, (uint16_t)(MR_FEED_READ_ONLY | MR_I8 << MR_LOOKUP_DTYPE_SHIFT));
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 4);
    float values[2 * NODE_DIM];
    mr_convert_to_f32(MR_I8, values, reply->tensors[0].data, reply->tensors[1].data, 2, NODE_DIM);
    assert_float_equal(values[NODE_DIM], 2, 0.02);
    assert_int_equal(reply->tensors[2].dims[0], 1);
    mr_convert_to_f32(MR_I8, values, reply->tensors[2].data, reply->tensors[3].data, 1, NODE_DIM);
    assert_float_equal(values[0], 6, 0.05);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
}

/* A long call is done in slices: the answer is the same, whichever parts they end in. */
TEST(a_long_lookup_of_several_tables, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t tables[3] = {make_table(n, "a", 1), make_table(n, "b", 2), make_table(n, "c", 3)};
    static uint64_t keys[20000];
    static uint32_t offsets[10001];
    struct request r = {.table_count = 0};
    for (uint32_t i = 0; i < 20000; i++)
        keys[i] = i % 1000;
    for (uint32_t i = 0; i <= 10000; i++)
        offsets[i] = 2 * i;
    for (uint32_t i = 0; i < 9; i++)
        ops_lookup_add(&r, tables[i % 3], 0, keys, 20000, i % 2 == 0 ? offsets : NULL,
                       i % 2 == 0 ? 10001 : 0);
    const struct node_reply *reply = look_up(n, &r, (uint16_t)((uint32_t)MR_F16 << MR_LOOKUP_DTYPE_SHIFT));
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < 9; i++) {
        const uint32_t rows = i % 2 == 0 ? 10000 : 20000;
        assert_int_equal(reply->tensors[i].dims[0], rows);
        static float values[20000 * NODE_DIM];
        mr_convert_to_f32(MR_F16, values, reply->tensors[i].data, NULL, rows, NODE_DIM);
        for (uint32_t v = 0; v < rows * NODE_DIM; v++)
            assert_float_equal(values[v], (float)(i % 3 + 1) * (i % 2 == 0 ? 2 : 1), 0);
    }
    assert_true(node_counter(n, 0, "ps.calls_in_slices") > 0);
}

TEST(refuses_a_lookup_of_tables_that_is_wrong, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 2);
    const uint64_t keys[2] = {5, 6};
    const uint32_t offsets[2] = {0, 3};
    struct request r = {.table_count = 0};
    node_check(look_up(n, &r, 0), MR_WRONG_SHAPE, "no tables");
    ops_lookup_add(&r, table, 0, keys, 2, NULL, 0);
    node_check(look_up(n, &r, MR_BAG_WEIGHTS), MR_INVALID_ARGUMENT, "does not know 0x2");
    ops_lookup_add(&r, 99, 0, keys, 2, NULL, 0);
    node_check(look_up(n, &r, 0), MR_UNKNOWN_TABLE, "no table has number 99");
    r.heads[1] = (struct mr_table_head){.table = table, .zero = {0, 1}};
    node_check(look_up(n, &r, 0), MR_INVALID_ARGUMENT, "0x1 of its head");
    r.heads[1] = (struct mr_table_head){.table = table, .flags = MR_BAG_WEIGHTS};
    node_check(look_up(n, &r, 0), MR_INVALID_ARGUMENT, "give offsets");
    r.heads[1].flags = 64;
    node_check(look_up(n, &r, 0), MR_INVALID_ARGUMENT, "does not know 0x40");
    r.heads[1].flags = 0;
    r.tensors[5] = mr_tensor_1d(MR_U32, 2, offsets);
    node_check(look_up(n, &r, 0), MR_INVALID_ARGUMENT, "from 0 to 3, not from 0 to the 2 keys");
    r.tensor_count = 5;
    node_check(look_up(n, &r, 0), MR_WRONG_SHAPE, "offsets is missing");
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
    r = (struct request){.table_count = 0};
    for (uint32_t i = 0; i <= MR_LOOKUP_TABLES_MAX; i++)
        ops_lookup_add(&r, table, 0, keys, 2, NULL, 0);
    node_check(look_up(n, &r, 0), MR_INVALID_ARGUMENT, "more than 32 tables");
}
