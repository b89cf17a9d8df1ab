/* Rows that are set by a push and read as they are stored: once for each number, in checkpoints, and refused
 * with a reason where they do not fit. */
#include <string.h>
#include "node_fixture.h"
#include "tests/test.h"

enum { KEYS = 3, STATE = 2 * NODE_DIM + 1, RECORD = NODE_DIM + STATE + 1 };

static const uint64_t keys[KEYS] = {5, 6, 7};

static uint32_t make_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("emb", 8);
    mr_feature_set_optimizer(&f, MR_OPT_ADAM);
    f.pooling = MR_POOL_SUM;
    return node_create(n, &f);
}

static struct mr_tensor head_of(const struct mr_push_head *head)
{
    return mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head);
}

static const struct node_reply *set_rows(struct node_fixture *n, uint32_t table, uint32_t flags,
                                         uint32_t floats, const float *rows)
{
    const struct mr_push_head head = {.feature = table, .flags = MR_PUSH_SET | flags};
    const struct mr_tensor tensors[] = {head_of(&head), mr_tensor_1d(MR_U64, KEYS, keys),
                                        mr_tensor_1d(MR_U32, 0, NULL),
                                        mr_tensor_2d(MR_F32, KEYS, floats, rows)};
    return node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 0, MR_PUSH_COUNTS, tensors, 4);
}

/* [KEYS, RECORD], or without state [KEYS, NODE_DIM + 1] */
static const float *read_rows(struct node_fixture *n, uint32_t table, uint32_t flags)
{
    const struct mr_tensor of = mr_tensor_1d(MR_U64, KEYS, keys);
    const struct node_reply *reply =
        node_call_step(n, 0, MR_OP_LOOKUP, (uint16_t)table, 0, (uint16_t)(MR_LOOKUP_STORED | flags), &of, 1);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], KEYS);
    assert_int_equal(reply->tensors[0].dims[1], (flags & MR_LOOKUP_STATE) != 0 ? RECORD : NODE_DIM + 1);
    return reply->tensors[0].data;
}

TEST(sets_and_reads_rows, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const uint32_t table = make_table(n);
    float rows[KEYS][NODE_DIM + STATE];
    for (uint32_t k = 0; k < KEYS; k++)
        for (uint32_t i = 0; i < NODE_DIM + STATE; i++)
            rows[k][i] = (float)(100 * k + i);
    const float *read = read_rows(n, table, 0);
    for (uint32_t k = 0; k < KEYS; k++)
        assert_true(read[k * (NODE_DIM + 1)] == 8 && read[k * (NODE_DIM + 1) + NODE_DIM] == 0);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
    const struct node_reply *reply = set_rows(n, table, MR_PUSH_STATE, NODE_DIM + STATE, rows[0]);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(((const uint32_t *)reply->tensors[0].data)[MR_PUSHED_APPLIED], KEYS);
    read = read_rows(n, table, MR_LOOKUP_STATE);
    for (uint32_t k = 0; k < KEYS; k++) {
        assert_memory_equal(read + k * RECORD, rows[k], sizeof(rows[k]));
        assert_true(read[(k + 1) * RECORD - 1] == 1);
    }
}

/* Under its number it is applied once, also after a restart that has it in a checkpoint. */
TEST(a_set_is_applied_once, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const uint32_t table = make_table(n);
    float rows[2][KEYS * NODE_DIM] = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 2}};
    for (n->sequence = 1; n->sequence <= 2; n->sequence++)
        node_check(set_rows(n, table, 0, NODE_DIM, rows[n->sequence - 1]), MR_OK, NULL);
    n->sequence = 1;
    node_check(set_rows(n, table, 0, NODE_DIM, rows[0]), MR_OK, NULL);
    n->sequence = 0;
    assert_true(node_value(n, table, keys[0]) == 2);
    (void)node_save(n);
    node_restart(n, 1);
    n->sequence = 1;
    node_check(set_rows(n, table, 0, NODE_DIM, rows[0]), MR_OK, NULL);
    n->sequence = 0;
    assert_true(node_value(n, table, keys[0]) == 2);
}

TEST(refuses_what_does_not_fit, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static const float rows[KEYS * (NODE_DIM + STATE)];
    static const uint16_t narrow[KEYS * NODE_DIM];
    static const uint32_t offsets[KEYS + 1] = {0, 1, 2, 3};
    const uint32_t table = make_table(n);
    const struct mr_push_head set = {.feature = table, .flags = MR_PUSH_SET},
                              with_state = {.feature = table, .flags = MR_PUSH_SET | MR_PUSH_STATE},
                              state_alone = {.feature = table, .flags = MR_PUSH_STATE},
                              weighted = {.feature = table, .flags = MR_PUSH_SET | MR_BAG_WEIGHTS},
                              rated = {table, MR_PUSH_SET | MR_PUSH_LEARNING_RATE, 0.5f, 0};
    const struct mr_tensor k = mr_tensor_1d(MR_U64, KEYS, keys), none = mr_tensor_1d(MR_U32, 0, NULL),
                           bags = mr_tensor_1d(MR_U32, KEYS + 1, offsets),
                           w = mr_tensor_1d(MR_F32, KEYS, rows),
                           plain = mr_tensor_2d(MR_F32, KEYS, NODE_DIM, rows),
                           whole = mr_tensor_2d(MR_F32, KEYS, NODE_DIM + STATE, rows),
                           f16 = mr_tensor_2d(MR_F16, KEYS, NODE_DIM, narrow);
    const struct {
        enum mr_status status;
        uint32_t count;
        const char *text;
        struct mr_tensor tensors[5];
    } bad[] = {
        {MR_WRONG_DIM, 4, "the pushed rows have 13", {head_of(&set), k, none, whole}},
        {MR_WRONG_DIM,
         4,
         "dim 4 and 9 of state; the pushed rows have 4",
         {head_of(&with_state), k, none, plain}},
        {MR_INVALID_ARGUMENT, 4, "without bags", {head_of(&state_alone), k, none, whole}},
        {MR_INVALID_ARGUMENT, 4, "without bags", {head_of(&set), k, bags, plain}},
        {MR_INVALID_ARGUMENT, 5, "without bags", {head_of(&weighted), k, bags, plain, w}},
        {MR_INVALID_ARGUMENT, 4, "f32 rows", {head_of(&set), k, none, f16}},
        {MR_INVALID_ARGUMENT, 4, "learning rate", {head_of(&rated), k, none, plain}},
    };
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, bad[i].tensors, bad[i].count), bad[i].status,
                   bad[i].text);
    const struct mr_tensor bagged[] = {k, bags};
    node_check(node_call_step(n, 0, MR_OP_LOOKUP, (uint16_t)table, 0, MR_LOOKUP_STORED, bagged, 2),
               MR_WRONG_SHAPE, "2 tensors, not 1");
    node_check(node_call_step(n, 0, MR_OP_LOOKUP, (uint16_t)table, 0,
                              MR_LOOKUP_STORED | MR_F16 << MR_LOOKUP_DTYPE_SHIFT, &k, 1),
               MR_INVALID_ARGUMENT, "does not know");
    node_check(node_call_step(n, 0, MR_OP_LOOKUP, (uint16_t)table, 0, MR_LOOKUP_STATE, &k, 1),
               MR_INVALID_ARGUMENT, "does not know 0x10");
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
}

TEST(a_frozen_node_makes_none, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const uint32_t table = make_table(n), level = MR_FREEZE_ADMIT;
    static const float rows[KEYS * NODE_DIM];
    const struct mr_tensor freeze = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &freeze, 1), MR_OK, NULL);
    const struct node_reply *reply = set_rows(n, table, 0, NODE_DIM, rows);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(((const uint32_t *)reply->tensors[0].data)[MR_PUSHED_WITHOUT_ROW], KEYS);
    assert_true(read_rows(n, table, 0)[NODE_DIM] == 0);
}
