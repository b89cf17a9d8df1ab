/* Pushes by batch and by key: applied once, or refused whole with a reason. */
#include <math.h>
#include <string.h>
#include "node_fixture.h"
#include "tests/test.h"

#define BATCH(stream, sequence) ((uint64_t)(stream) << MR_BATCH_SEQUENCE_BITS | (sequence))

static const uint64_t keys[4] = {11, 12, 13, 11};

TEST(applies_a_batch_once, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10);
    uint32_t table = node_create(n, &f);
    node_feed(n, BATCH(1, 0), table, keys, 4);
    assert_int_equal(node_push_batch(n, 0, BATCH(1, 0), table, 4, 1), 1);
    assert_float_equal(node_value(n, table, 12), 9, 0);
    assert_float_equal(node_value(n, table, 11), 8, 0); /* twice in the batch: summed */
    assert_int_equal(node_push_batch(n, 0, BATCH(1, 0), table, 4, 1), 0);
    assert_float_equal(node_value(n, table, 12), 9, 0);
    assert_int_equal(node_counter(n, 0, "ps.pushes_refused_applied"), 1);
    assert_int_equal(node_counter(n, 0, "ps.batches_applied"), 1);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
}

TEST(an_applied_batch_fed_again_is_not_applied_again, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10);
    uint32_t table = node_create(n, &f);
    node_feed(n, BATCH(1, 0), table, keys, 4);
    assert_int_equal(node_push_batch(n, 0, BATCH(1, 0), table, 4, 1), 1);
    node_feed(n, BATCH(1, 0), table, keys, 4);
    assert_int_equal(node_push_batch(n, 0, BATCH(1, 0), table, 4, 1), 0);
    assert_float_equal(node_value(n, table, 12), 9, 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
}

struct batch_push {
    uint64_t batch_id;
    uint32_t feature;
    uint32_t samples, slots, dim;
};

static const struct node_reply *ops_push(struct node_fixture *n, struct batch_push p)
{
    static const float gradient[64];
    uint32_t head[4] = {p.feature, 0};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &p.batch_id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_3d(MR_F32, p.samples, p.slots, p.dim, gradient)};
    return node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, tensors, 3);
}

TEST(refuses_what_does_not_fit_the_batch, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10), other = node_table("other", 0), v = node_variable("bias", 3);
    uint32_t table = node_create(n, &f), unfed = node_create(n, &other), variable = node_create(n, &v);
    uint64_t id = BATCH(2, 0);
    node_feed(n, id, table, keys, 4);
    node_check(ops_push(n, (struct batch_push){BATCH(2, 1), table, 4, 1, 4}), MR_UNKNOWN_BATCH,
               "number 1 of stream 2");
    node_check(ops_push(n, (struct batch_push){id, 99, 4, 1, 4}), MR_UNKNOWN_TABLE, "99");
    node_check(ops_push(n, (struct batch_push){id, unfed, 4, 1, 4}), MR_UNKNOWN_TABLE, "other");
    node_check(ops_push(n, (struct batch_push){id, table, 4, 1, 3}), MR_WRONG_DIM, "dim 4");
    node_check(ops_push(n, (struct batch_push){id, table, 3, 1, 4}), MR_WRONG_SHAPE, "3 samples");
    node_check(ops_push(n, (struct batch_push){id, table, 2, 2, 4}), MR_WRONG_SHAPE, "2 slots");
    node_check(ops_push(n, (struct batch_push){id, variable, 1, 1, 3}), MR_WRONG_SHAPE, "3 dimensions");
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 1);
    assert_int_equal(node_push_batch(n, 0, id, table, 4, 1), 1);
}

TEST(refuses_all_features_when_one_is_wrong, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10), v = node_variable("bias", 3);
    uint32_t table = node_create(n, &f), variable = node_create(n, &v);
    uint64_t id = BATCH(2, 0);
    float gradient[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    uint32_t heads[2][4] = {{table, 0}, {variable, 0}};
    struct mr_tensor tensors[5] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, heads[0]),
                                   mr_tensor_3d(MR_F32, 4, 1, 4, gradient), mr_tensor_1d(MR_U32, 4, heads[1]),
                                   mr_tensor_1d(MR_F32, 2, gradient)};
    node_feed(n, id, table, keys, 4);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, tensors, 5), MR_WRONG_SHAPE, "bias");
    assert_float_equal(node_value(n, table, 12), 10, 0);
    tensors[4] = mr_tensor_1d(MR_F32, 3, gradient);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, tensors, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 12), 9, 0);
    tensors[3] = mr_tensor_1d(MR_U32, 4, heads[0]);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, tensors, 5), MR_INVALID_ARGUMENT, "named twice");
}

TEST(a_frozen_node_takes_no_gradients, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10);
    uint32_t table = node_create(n, &f), level = MR_FREEZE_ALL;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_feed(n, BATCH(1, 0), table, keys, 4);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    node_check(ops_push(n, (struct batch_push){BATCH(1, 0), table, 4, 1, 4}), MR_FROZEN, "all");
    assert_float_equal(node_value(n, table, 12), 10, 0);
    level = MR_FREEZE_OFF;
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    assert_int_equal(node_push_batch(n, 0, BATCH(1, 0), table, 4, 1), 1);
}

TEST(refuses_a_batch_too_far_ahead, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10);
    uint32_t table = node_create(n, &f);
    uint64_t far = BATCH(1, 1u << 20);
    node_feed(n, far, table, keys, 4);
    node_check(ops_push(n, (struct batch_push){far, table, 4, 1, 4}), MR_INVALID_ARGUMENT, "ahead of 0");
    assert_int_equal(node_counter(n, 0, "ps.batches_applied"), 0);
}

TEST(pushes_by_key_and_by_bag, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    uint32_t table = node_create(n, &f);
    float gradients[16] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    uint32_t head[4] = {table, 0}, offsets[3] = {0, 3, 4};
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 4, keys);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &lookup, 1), MR_OK, NULL);
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 4, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 4, 4, gradients)};
    node_check(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 17, 0, tensors, 4), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 11), -5, 0);
    assert_float_equal(node_value(n, table, 12), -2, 0);
    tensors[2] = mr_tensor_1d(MR_U32, 3, offsets);
    tensors[3] = mr_tensor_2d(MR_F32, 2, 4, gradients);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 11), -8, 0);
    assert_float_equal(node_value(n, table, 12), -3, 0);
    assert_int_equal(node_counter(n, 0, "ps.last_step"), 17);
    offsets[1] = 5;
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_INVALID_ARGUMENT, "fall from 5 to 4");
    tensors[3] = mr_tensor_2d(MR_F32, 4, 2, gradients);
    offsets[1] = 3;
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_WRONG_DIM, "dim 4");
    tensors[3] = mr_tensor_2d(MR_F32, 4, 4, gradients);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_WRONG_SHAPE, "4 gradients for 2 bags");
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 3), MR_WRONG_SHAPE, "gradient is missing");
    tensors[1] = mr_tensor_1d(MR_U32, 4, gradients);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_WRONG_DTYPE, "keys is u32, not u64");
    assert_float_equal(node_value(n, table, 11), -8, 0);
}

/* Nobody has to look a row up before it is set. A node that admits no new rows sets those that are there. */
TEST(a_push_of_rows_that_are_set_makes_them, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 9), learns = node_table("learns", 9);
    mr_feature_set_optimizer(&f, MR_OPT_ASSIGN);
    uint32_t table = node_create(n, &f), other = node_create(n, &learns), level = MR_FREEZE_ADMIT;
    uint64_t more[2] = {11, 99};
    float rows[16] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4};
    uint32_t head[4] = {table, 0}, other_head[4] = {other, 0};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 4, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 4, 4, rows)};
    struct mr_tensor freeze = mr_tensor_1d(MR_U32, 1, &level);
    float rate = 0.125f;
    head[1] = MR_PUSH_LEARNING_RATE;
    memcpy(&head[2], &rate, sizeof(rate)); /* there is none that it could change */
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 12), 2, 0);
    assert_float_equal(node_value(n, table, 13), 3, 0);
    assert_float_equal(node_value(n, table, 11), 4, 0); /* the last of two */
    tensors[0] = mr_tensor_1d(MR_U32, 4, other_head);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
    assert_float_equal(node_value(n, other, 12), 9, 0);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &freeze, 1), MR_OK, NULL);
    tensors[0] = mr_tensor_1d(MR_U32, 4, head);
    tensors[1] = mr_tensor_1d(MR_U64, 2, more);
    tensors[3] = mr_tensor_2d(MR_F32, 2, 4, rows);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 11), 1, 0);
    assert_float_equal(node_value(n, table, 99), 9, 0);
    level = MR_FREEZE_OFF;
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &freeze, 1), MR_OK, NULL);
}

/* What a push's answer says of it. */
static void check_counts(const struct node_reply *reply, uint32_t at, uint32_t applied, uint32_t refused,
                         uint32_t without_row, uint32_t not_finite)
{
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, at + 1);
    assert_int_equal(reply->tensors[at].dtype, MR_U32);
    assert_int_equal(reply->tensors[at].dims[0], MR_PUSHED_WORDS);
    const uint32_t *words = reply->tensors[at].data;
    assert_int_equal(words[MR_PUSHED_SENT], applied + refused + without_row + not_finite);
    assert_int_equal(words[MR_PUSHED_APPLIED], applied);
    assert_int_equal(words[MR_PUSHED_REFUSED], refused);
    assert_int_equal(words[MR_PUSHED_WITHOUT_ROW], without_row);
    assert_int_equal(words[MR_PUSHED_NOT_FINITE], not_finite);
}

/* Of several parts, each with a reason of its own; who does not ask gets an answer without tensors. */
TEST(the_answer_counts_what_became_of_a_push, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0), set = node_table("set", 0), v = node_variable("bias", 1);
    mr_feature_set_optimizer(&set, MR_OPT_ASSIGN);
    set.capacity_rows = 2;
    uint32_t heads[3][4] = {{node_create(n, &f)}, {node_create(n, &set)}, {node_create(n, &v)}};
    const uint64_t known[3] = {1, 2, 3}, pushed[6] = {1, 2, 2, 3, 4, 5};
    float gradients[24], ones[12];
    for (uint32_t i = 0; i < 24; i++)
        gradients[i] = ones[i / 2] = 1;
    gradients[1 * 4] = NAN;          /* one of the two of key 2 */
    gradients[3 * 4 + 1] = INFINITY; /* key 3 */
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 3, known);
    struct mr_tensor tensors[10] = {mr_tensor_1d(MR_U32, 4, heads[0]), mr_tensor_1d(MR_U64, 6, pushed),
                                    mr_tensor_1d(MR_U32, 0, NULL),     mr_tensor_2d(MR_F32, 6, 4, gradients),
                                    mr_tensor_1d(MR_U32, 4, heads[1]), mr_tensor_1d(MR_U64, 3, known),
                                    mr_tensor_1d(MR_U32, 0, NULL),     mr_tensor_2d(MR_F32, 3, 4, ones),
                                    mr_tensor_1d(MR_U32, 4, heads[2]), mr_tensor_1d(MR_F32, 1, gradients)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)heads[0][0], &lookup, 1), MR_OK, NULL);
    /* emb: 1 and 2 learn, but for one gradient of 2; 3 does not; 4 and 5 have no row. set: two rows of three.
     * bias learns. */
    check_counts(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 1, MR_PUSH_COUNTS, tensors, 10), 0, 2 + 2 + 1, 1, 2,
                 2);
    assert_int_equal(node_counter(n, 0, "table.rows_refused"), 1);
    assert_int_equal(node_counter(n, 0, "table.gradients_without_row"), 3);
    assert_int_equal(node_counter(n, 0, "table.gradients_skipped"), 2);
    gradients[0] = NAN; /* the variable's as well */
    check_counts(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 2, MR_PUSH_COUNTS, tensors + 8, 2), 0, 0, 0, 0, 1);
    const struct node_reply *reply = node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 10);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 0);
    check_counts(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 3, MR_PUSH_COUNTS, NULL, 0), 0, 0, 0, 0, 0);

    /* Each feature has its own in the list, ... */
    reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[2].dims[1], MR_LIST_WORDS);
    const uint64_t(*words)[MR_LIST_WORDS] = reply->tensors[2].data;
    assert_int_equal(words[0][MR_LIST_REFUSED], 0);
    assert_int_equal(words[0][MR_LIST_WITHOUT_ROW], 2 + 2);
    assert_int_equal(words[0][MR_LIST_SKIPPED], 2 + 3);
    assert_int_equal(words[1][MR_LIST_REFUSED], 2);
    assert_int_equal(words[1][MR_LIST_WITHOUT_ROW], 2);
    assert_int_equal(words[2][MR_LIST_SKIPPED], 2);
    /* ... and the core their sum. */
    reply = node_call(n, 0, MR_OP_HEARTBEAT, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], MR_HEARTBEAT_WORDS);
    const uint64_t *core = reply->tensors[0].data;
    assert_int_equal(core[MR_HEARTBEAT_REFUSED], 2);
    assert_int_equal(core[MR_HEARTBEAT_WITHOUT_ROW], 4 + 2);
    assert_int_equal(core[MR_HEARTBEAT_SKIPPED], 5 + 2);
}

/* Behind the word that says whether it was applied; a batch that was applied before was counted then. */
TEST(the_answer_counts_what_became_of_a_batch, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 10);
    f.capacity_rows = 2; /* 13 gets no row */
    uint64_t id = BATCH(1, 0);
    uint32_t table = node_create(n, &f), head[4] = {table, 0};
    float gradients[16] = {1, 1, 1, 1, 1, NAN, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_3d(MR_F32, 4, 1, 4, gradients)};
    node_feed(n, id, table, keys, 4);
    check_counts(node_call_step(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, 1, MR_PUSH_COUNTS, tensors, 3), 1, 1, 0, 1,
                 1);
    const struct node_reply *reply =
        node_call_step(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, 1, MR_PUSH_COUNTS, tensors, 3);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 1);
    assert_int_equal(*(const uint32_t *)reply->tensors[0].data, 0);
}

/* Done in slices, the counts are those of all of it. */
TEST(the_counts_of_a_long_push_are_whole, node_setup, node_teardown)
{
    enum { COUNT = 20000 };
    static uint64_t many[COUNT];
    static float gradients[COUNT * 4];
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    uint32_t table = node_create(n, &f), head[4] = {table, 0};
    for (uint32_t i = 0; i < COUNT; i++) {
        many[i] = i;
        gradients[4 * i] = i % 5 == 0 ? NAN : 1;
    }
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, COUNT / 2, many);
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, COUNT, many),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, COUNT, 4, gradients)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &lookup, 1), MR_OK, NULL);
    check_counts(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 1, MR_PUSH_COUNTS, tensors, 4), 0,
                 COUNT / 2 * 4 / 5, 0, COUNT / 2, COUNT / 2 / 5);
    assert_true(node_counter(n, 0, "ps.slices") > 2);
}

TEST(a_variable_gradient_with_nan_is_left_out, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature v = node_variable("bias", 2);
    uint32_t variable = node_create(n, &v), head[4] = {variable, 0};
    float gradient[2] = {1, NAN};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_F32, 2, gradient)};
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 2), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.variable_gradients_skipped"), 1);
    gradient[1] = 1;
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 2), MR_OK, NULL);
    uint64_t range[2] = {0, 0};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    const struct node_reply *reply = node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_float_equal(((const float *)reply->tensors[0].data)[0], -1, 0);
}

TEST(a_push_may_have_a_learning_rate_of_its_own, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0), v = node_variable("bias", 1);
    struct mr_push_head table = {node_create(n, &f), MR_PUSH_LEARNING_RATE, 0.25f, 0},
                        variable = {node_create(n, &v), MR_PUSH_LEARNING_RATE, 0.5f, 0};
    float gradient[4] = {1, 1, 1, 1};
    uint64_t id = BATCH(1, 0), range[2] = {0, 0};
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 1, keys), all = mr_tensor_1d(MR_U64, 2, range);
    struct mr_tensor tensors[6] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &table),
                                   mr_tensor_1d(MR_U64, 1, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, 1, 4, gradient),
                                   mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &variable),
                                   mr_tensor_1d(MR_F32, 1, gradient)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table.feature, &lookup, 1), MR_OK, NULL);
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 6), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -0.25f, 0);
    const struct node_reply *reply =
        node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable.feature, &all, 1);
    assert_float_equal(((const float *)reply->tensors[0].data)[0], -0.5f, 0);

    node_feed(n, id, table.feature, keys, 1);
    struct mr_tensor batch[3] = {mr_tensor_1d(MR_U64, 1, &id), tensors[0],
                                 mr_tensor_3d(MR_F32, 1, 1, 4, gradient)};
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, batch, 3), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -0.5f, 0);
    table.learning_rate = variable.learning_rate = 0; /* at which nothing moves */
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 6), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -0.5f, 0);
    reply = node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable.feature, &all, 1);
    assert_float_equal(((const float *)reply->tensors[0].data)[0], -0.5f, 0);
    table.flags = 0; /* the table's own is 1 */
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -1.5f, 0);
}

TEST(a_schedule_goes_by_the_steps_of_pushes, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0), v = node_variable("bias", 1);
    f.schedule = v.schedule = MR_SCHEDULE_LINEAR; /* from 1 to 0 in 4 steps */
    f.schedule_steps = v.schedule_steps = 4;
    struct mr_push_head table = {.feature = node_create(n, &f)}, variable = {.feature = node_create(n, &v)};
    float gradient[4] = {1, 1, 1, 1};
    uint64_t range[2] = {0, 0};
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 1, keys), all = mr_tensor_1d(MR_U64, 2, range);
    struct mr_tensor tensors[6] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &table),
                                   mr_tensor_1d(MR_U64, 1, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, 1, 4, gradient),
                                   mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &variable),
                                   mr_tensor_1d(MR_F32, 1, gradient)};
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table.feature, &lookup, 1), MR_OK, NULL);
    node_check(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 1, 0, tensors, 6), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -0.75f, 0);
    node_check(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 2, 0, tensors, 6), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -1.25f, 0);
    node_check(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 4, 0, tensors, 6), MR_OK, NULL);
    assert_float_equal(node_value(n, table.feature, keys[0]), -1.25f, 0);
    const struct node_reply *reply =
        node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable.feature, &all, 1);
    assert_float_equal(((const float *)reply->tensors[0].data)[0], -1.25f, 0);
}

TEST(refuses_heads_that_say_what_has_no_meaning, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    uint32_t table = node_create(n, &f);
    float gradient[4] = {1, 1, 1, 1};
    const struct {
        struct mr_push_head head;
        const char *text;
    } bad[] = {
        {{table, 0x80000000u, 0, 0}, "emb: flags 0x80000000"},
        {{table, 0, 0, 7}, "last word 0x7"},
        {{table, MR_PUSH_LEARNING_RATE, -0.5f, 0}, "emb: learning rate -0.5"},
        {{table, MR_PUSH_LEARNING_RATE, NAN, 0}, "learning rate"},
        {{table, MR_PUSH_LEARNING_RATE, INFINITY, 0}, "learning rate inf"},
        {{table, 0, 0.5f, 0}, "emb: learning rate 0.5 of the push without flag 0x8"},
    };
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &bad[i].head),
                                       mr_tensor_1d(MR_U64, 1, keys), mr_tensor_1d(MR_U32, 0, NULL),
                                       mr_tensor_2d(MR_F32, 1, 4, gradient)};
        node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_INVALID_ARGUMENT, bad[i].text);
    }
}

TEST(keys_of_another_core_are_refused, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0), v = node_variable("bias", 2);
    uint32_t table = node_create(n, &f), variable = node_create(n, &v);
    float gradient[4] = {1, 1, 1, 1};
    uint32_t head[4] = {table, 0};
    uint64_t key = 5;
    uint32_t other = (node_core_of_key(n, key, 0) + 1) % 3;
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 1, 4, gradient)};
    node_check(node_call(n, other, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_INVALID_ARGUMENT,
               "key 5 belongs to core");
    node_check(node_call(n, other, MR_OP_LOOKUP, (uint16_t)table, tensors + 1, 1), MR_INVALID_ARGUMENT,
               "key 5");
    head[0] = variable;
    tensors[1] = mr_tensor_1d(MR_F32, 2, gradient);
    other = (node_core_of_variable(n, "bias") + 1) % 3;
    node_check(node_call(n, other, MR_OP_PUSH_GRAD, 0, tensors, 2), MR_INVALID_ARGUMENT,
               "bias belongs to core");
}
