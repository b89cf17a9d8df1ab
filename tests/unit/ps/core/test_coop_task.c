/* Calls in slices, and what comes in between. */
#include <stdlib.h>
#include "fake_dp.h"
#include "ps/core/coop_task.h"
#include "coop_task_fixture.h"
#include "tests/test.h"

TEST(small_calls_go_before, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    uint32_t table = long_make_table(n);
    long_hold();
    long_post_lookup(n, &calls[0], table, LONG_KEYS);
    long_post_lookup(n, &calls[1], table, 5);
    long_slices(1);
    node_look(n);
    assert_true(calls[1].is_answered);
    assert_false(calls[0].is_answered);
    long_post_lookup(n, &calls[2], table, 6);
    long_post_push(n, &calls[3], table, 7, NEVER_US);
    long_slices(1);
    node_look(n);
    assert_true(calls[2].is_answered && calls[3].is_answered);
    assert_false(calls[0].is_answered);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[0]);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], LONG_KEYS);
    const float *rows = reply->tensors[0].data;
    assert_float_equal(rows[0], 1, 0); /* looked up before the push */
    assert_float_equal(rows[LONG_KEYS * NODE_DIM - 1], 1, 0);
    assert_float_equal(node_value(n, table, 0), 0, 0);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 1);
    assert_int_in_range(node_counter(n, 0, "ps.slices"), 4, 20);
    assert_int_equal(node_counter(n, 0, "ps.calls_between_slices"), 2);
    long_end_all(calls, 4);
}

TEST(a_reply_is_sent_as_it_grows, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_post_push(n, &calls[0], table, LONG_KEYS / 2, NEVER_US);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    const struct mr_wire_counters *counters = mr_endpoint_counters(n->client);
    uint64_t before = counters->rx_bytes;
    long_hold();
    long_post_lookup(n, &calls[1], table, LONG_KEYS);
    for (uint32_t i = 0; i < 6; i++) { /* reports on the request take a few bytes, too */
        fake_dp_turn(0);
        node_look(n);
    }
    assert_false(calls[1].is_answered);
    assert_true(counters->rx_bytes - before > LONG_KEYS * NODE_DIM * sizeof(float) / 3);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[1]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < LONG_KEYS; i++) { /* what was sent early, too, is what was looked up */
        bool is_pushed = i < LONG_KEYS / 2;
        assert_float_equal(((const float *)reply->tensors[0].data)[i * NODE_DIM], is_pushed ? 0 : 1, 0);
    }
    long_end_all(calls, 2);
}

enum { MANY_KEYS = 16000 }; /* some 70 slices of a core to which small calls come */

static void post_many(struct node_fixture *n, struct node_call *call, uint32_t table)
{
    static uint64_t keys[MANY_KEYS];
    struct mr_call_options options = {.op = MR_OP_LOOKUP, .table = (uint16_t)table, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U64, MANY_KEYS, keys);
    for (uint32_t i = 0; i < MANY_KEYS; i++)
        keys[i] = long_keys[i % LONG_KEYS];
    node_post(n, 0, call, &options, &t, 1);
}

/* A small call makes them short again, whenever it comes. */
TEST(slices_are_longer_while_no_small_calls_come, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call alone = {0}, disturbed = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    uint64_t before = node_counter(n, 0, "ps.slices");
    post_many(n, &alone, table);
    node_check(node_wait(n, &alone), MR_OK, NULL);
    uint64_t slices_alone = node_counter(n, 0, "ps.slices") - before;
    assert_int_in_range(slices_alone, PS_SLICES_ALONE + 1, 60);

    before = node_counter(n, 0, "ps.slices");
    long_hold();
    post_many(n, &disturbed, table);
    for (uint32_t turns = 0; !disturbed.is_answered; turns++) {
        struct node_call small = {0};
        assert_true(turns < 2 * MANY_KEYS);
        long_post_lookup(n, &small, table, 1);
        long_slices(1);
        node_look(n);
        assert_true(small.is_answered);
        node_call_end(&small);
    }
    fake_dp_release(0);
    node_check(node_wait(n, &disturbed), MR_OK, NULL);
    assert_true(node_counter(n, 0, "ps.slices") - before > slices_alone + 20);
    node_call_end(&alone);
    node_call_end(&disturbed);
}

TEST(long_calls_go_one_after_the_other, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_push(n, &calls[0], table, LONG_KEYS, NEVER_US);
    long_post_lookup(n, &calls[1], table, LONG_KEYS);
    long_post_push(n, &calls[2], table, LONG_KEYS, NEVER_US);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[1]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < LONG_KEYS * NODE_DIM; i++)
        assert_float_equal(((const float *)reply->tensors[0].data)[i], 0, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_check(node_wait(n, &calls[2]), MR_OK, NULL);
    assert_true(calls[0].order < calls[1].order && calls[1].order < calls[2].order);
    assert_float_equal(node_value(n, table, LONG_KEYS - 1), -1, 0);
    long_end_all(calls, 3);
}

TEST(what_is_wrong_is_refused_whole, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = long_make_table(n), head[4] = {table, 0};
    static uint32_t offsets[LONG_KEYS + 1];
    long_make_rows(n, table);
    for (uint32_t i = 0; i <= LONG_KEYS; i++)
        offsets[i] = i == LONG_KEYS - 1 ? LONG_KEYS - 3 : i; /* falls at its end */
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, LONG_KEYS, long_keys),
                                   mr_tensor_1d(MR_U32, LONG_KEYS + 1, offsets),
                                   mr_tensor_2d(MR_F32, LONG_KEYS, NODE_DIM, long_gradients)};
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_INVALID_ARGUMENT, "offsets fall");
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, tensors + 1, 2), MR_INVALID_ARGUMENT,
               "offsets fall");
    assert_float_equal(node_value(n, table, 0), 1, 0);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 2);
}

TEST(keys_of_another_core_are_found_among_many, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = long_make_table(n), count = 0, other = 0;
    static uint64_t mine[4 * LONG_KEYS];
    for (uint64_t key = 0; count < LONG_KEYS; key++)
        if (node_core_of_key(n, key, 0) == 0)
            mine[count++] = key;
        else
            other = (uint32_t)key;
    struct mr_tensor t = mr_tensor_1d(MR_U64, LONG_KEYS, mine);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    mine[LONG_KEYS - 1] = other;
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_INVALID_ARGUMENT, "belongs to core");
}

TEST(large_echoes_and_variables_come_whole, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    enum { COUNT = 100000 };
    struct mr_feature v = node_variable("dense", COUNT);
    uint32_t variable = node_create(n, &v);
    float *values = malloc(COUNT * sizeof(float));
    uint64_t range[2] = {0, COUNT}, first = 0;
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = (float)i;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, COUNT, values)};
    node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, tensors, 2), MR_OK, NULL);
    const struct node_reply *reply = node_call(n, 0, MR_OP_ECHO, 0, tensors, 2);
    node_check(reply, MR_OK, NULL);
    assert_memory_equal(reply->tensors[1].data, values, COUNT * sizeof(float));
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    reply = node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_memory_equal(reply->tensors[0].data, values, COUNT * sizeof(float));
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 3);
    free(values);
}

/* All of the variable, or a part of it. */
static void post_set(struct node_fixture *n, struct node_call *call, uint32_t variable, uint64_t first,
                     uint32_t count, const float *values)
{
    struct mr_call_options options = {
        .op = MR_OP_VARIABLE_PUSH, .table = (uint16_t)variable, .deadline_us = NEVER_US};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, count, values)};
    node_post(n, 0, call, &options, tensors, 2);
}

TEST(a_variable_is_not_set_while_it_is_read, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    enum { COUNT = 100000, PART = 1000, PART_FIRST = 16000 }; /* around the end of a slice of a pull */
    struct mr_feature v = node_variable("dense", COUNT);
    uint32_t variable = node_create(n, &v);
    float *ones = malloc(COUNT * sizeof(float));
    struct node_call calls[4] = {0};
    uint64_t range[2] = {0, COUNT};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    struct mr_call_options pull = {
        .op = MR_OP_VARIABLE_PULL, .table = (uint16_t)variable, .deadline_us = NEVER_US};
    for (uint32_t i = 0; i < COUNT; i++)
        ones[i] = 1;
    long_hold();
    node_post(n, 0, &calls[0], &pull, &t, 1);
    long_slices(1);
    post_set(n, &calls[1], variable, PART_FIRST, PART, ones);
    node_post(n, 0, &calls[2], &pull, &t, 1);
    post_set(n, &calls[3], variable, 0, COUNT, ones);
    fake_dp_release(0);
    for (uint32_t i = 0; i < 4; i++)
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    const float *before = calls[0].reply.tensors[0].data, *between = calls[2].reply.tensors[0].data;
    for (uint32_t i = 0; i < COUNT; i++) {
        bool is_in_part = i >= PART_FIRST && i < PART_FIRST + PART;
        assert_float_equal(before[i], 0, 0);
        assert_float_equal(between[i], is_in_part ? 1 : 0, 0);
    }
    long_end_all(calls, 4);
    free(ones);
}

/* Looking through its bags takes long, however few its keys are. */
TEST(a_push_of_many_empty_bags_is_long, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    enum { BAGS = 20000 };
    uint32_t table = long_make_table(n), head[4] = {table, 0};
    uint32_t *offsets = malloc((BAGS + 1) * sizeof(*offsets));
    float *bags = calloc(BAGS * NODE_DIM, sizeof(*bags));
    long_make_rows(n, table);
    for (uint32_t i = 0; i <= BAGS; i++)
        offsets[i] = i > BAGS / 2;
    bags[BAGS / 2 * NODE_DIM] = 3;
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, long_keys),
                                   mr_tensor_1d(MR_U32, BAGS + 1, offsets),
                                   mr_tensor_2d(MR_F32, BAGS, NODE_DIM, bags)};
    node_check(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 1, 0, tensors, 4), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 1);
    assert_float_equal(node_value(n, table, long_keys[0]), 1 - 3, 0);
    free(offsets);
    free(bags);
}
