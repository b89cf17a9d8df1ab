/* Calls in slices. The core goes turn by turn, so that each test knows what has been done when. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "dataplane/wire/buddy.h"
#include "dataplane/wire/endpoint_internal.h"
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/core.h"

enum { KEYS = 3000 }; /* of NODE_DIM: several slices */

#define NEVER_US UINT64_MAX

static uint64_t keys[KEYS];
static float gradients[KEYS * NODE_DIM];

static uint32_t make_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("emb", 1);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    for (uint32_t i = 0; i < KEYS * NODE_DIM; i++) {
        gradients[i] = 1;
    }
    return node_create(n, &f);
}

/* Makes the rows, in calls that are small. */
static void make_rows(struct node_fixture *n, uint32_t table)
{
    for (uint32_t i = 0; i < KEYS; i += 100) {
        struct mr_tensor t = mr_tensor_1d(MR_U64, 100, keys + i);
        node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    }
}

static void post_lookup(struct node_fixture *n, struct node_call *call, uint32_t table, uint32_t key_count)
{
    struct mr_call_options options = {.op = MR_OP_LOOKUP, .table = (uint16_t)table, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U64, key_count, keys);
    node_post(n, 0, call, &options, &t, 1);
}

static void post_push(struct node_fixture *n, struct node_call *call, uint32_t table, uint32_t key_count,
                      uint64_t deadline_us)
{
    uint32_t head[4] = {table, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .step = 1, .deadline_us = deadline_us};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, key_count, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, key_count, NODE_DIM, gradients)};
    node_post(n, 0, call, &options, tensors, 4);
}

static void post_feed(struct node_fixture *n, struct node_call *call, uint32_t table, uint64_t batch_id,
                      uint32_t key_count, uint32_t flags)
{
    static uint32_t offsets[KEYS + 1];
    uint32_t head[4] = {table, key_count, 1, flags};
    for (uint32_t i = 0; i <= key_count; i++) {
        offsets[i] = i;
    }
    struct mr_call_options options = {.op = MR_OP_FEED_SAMPLE, .deadline_us = NEVER_US};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U64, 1, &batch_id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_1d(MR_U64, key_count, keys),
                                   mr_tensor_1d(MR_U32, key_count + 1, offsets)};
    node_post(n, 0, call, &options, tensors, 4);
}

static void post_push_batch(struct node_fixture *n, struct node_call *call, uint64_t batch_id, uint32_t table,
                            uint32_t samples)
{
    uint32_t head[4] = {table, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD_BATCH, .step = 1, .deadline_us = NEVER_US};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &batch_id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_3d(MR_F32, samples, 1, NODE_DIM, gradients)};
    node_post(n, 0, call, &options, tensors, 3);
}

static void post_id(struct node_fixture *n, struct node_call *call, uint8_t op, uint32_t table, uint64_t id)
{
    struct mr_call_options options = {.op = op, .table = (uint16_t)table, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &id);
    node_post(n, 0, call, &options, &t, 1);
}

static void post_text(struct node_fixture *n, struct node_call *call, uint8_t op, uint64_t id)
{
    struct mr_call_options options = {.op = op, .deadline_us = NEVER_US};
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, NULL), mr_tensor_1d(MR_U64, 1, &id)};
    node_post(n, 0, call, &options, tensors, op == MR_OP_SAVE ? 1 : 2);
}

static void post_freeze(struct node_fixture *n, struct node_call *call, uint32_t level)
{
    struct mr_call_options options = {.op = MR_OP_FREEZE, .deadline_us = NEVER_US};
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_post(n, 0, call, &options, &t, 1);
}

static void hold(void)
{
    fake_dp_hold(0);
    fake_dp_wait_held(0);
}

/* What was posted to a core that is held is taken in, and `count` slices are done of it. */
static void slices(uint32_t count)
{
    for (uint32_t i = 0; i <= count; i++) {
        fake_dp_turn(0);
    }
}

static void end_all(struct node_call *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        node_call_end(&calls[i]);
    }
}

/* ---- what comes in between ---- */

static void small_calls_go_before(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    uint32_t table = make_table(n);
    hold();
    post_lookup(n, &calls[0], table, KEYS);
    post_lookup(n, &calls[1], table, 5);
    slices(1);
    node_look(n);
    assert_true(calls[1].is_answered);
    assert_false(calls[0].is_answered);
    post_lookup(n, &calls[2], table, 6);
    post_push(n, &calls[3], table, 7, NEVER_US);
    slices(1);
    node_look(n);
    assert_true(calls[2].is_answered && calls[3].is_answered);
    assert_false(calls[0].is_answered);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[0]);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], KEYS);
    const float *rows = reply->tensors[0].data;
    assert_float_equal(rows[0], 1, 0); /* looked up before the push */
    assert_float_equal(rows[KEYS * NODE_DIM - 1], 1, 0);
    assert_float_equal(node_value(n, table, 0), 0, 0);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 1);
    assert_in_range(node_counter(n, 0, "ps.slices"), 4, 20);
    assert_int_equal(node_counter(n, 0, "ps.calls_between_slices"), 2);
    end_all(calls, 4);
}

static void a_reply_is_sent_as_it_grows(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    post_push(n, &calls[0], table, KEYS / 2, NEVER_US);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    const struct mr_wire_counters *counters = mr_endpoint_counters(n->client);
    uint64_t before = counters->rx_bytes;
    hold();
    post_lookup(n, &calls[1], table, KEYS);
    for (uint32_t i = 0; i < 6; i++) { /* reports on the request take a few bytes, too */
        fake_dp_turn(0);
        node_look(n);
    }
    assert_false(calls[1].is_answered);
    assert_true(counters->rx_bytes - before > KEYS * NODE_DIM * sizeof(float) / 3);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[1]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < KEYS; i++) { /* what was sent early, too, is what was looked up */
        bool is_pushed = i < KEYS / 2;
        assert_float_equal(((const float *)reply->tensors[0].data)[i * NODE_DIM], is_pushed ? 0 : 1, 0);
    }
    end_all(calls, 2);
}

static void long_calls_go_one_after_the_other(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_push(n, &calls[0], table, KEYS, NEVER_US);
    post_lookup(n, &calls[1], table, KEYS);
    post_push(n, &calls[2], table, KEYS, NEVER_US);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[1]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < KEYS * NODE_DIM; i++) {
        assert_float_equal(((const float *)reply->tensors[0].data)[i], 0, 0);
    }
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_check(node_wait(n, &calls[2]), MR_OK, NULL);
    assert_true(calls[0].order < calls[1].order && calls[1].order < calls[2].order);
    assert_float_equal(node_value(n, table, KEYS - 1), -1, 0);
    end_all(calls, 3);
}

static void what_is_wrong_is_refused_whole(void **state)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n), head[4] = {table, 0};
    static uint32_t offsets[KEYS + 1];
    make_rows(n, table);
    for (uint32_t i = 0; i <= KEYS; i++) {
        offsets[i] = i == KEYS - 1 ? KEYS - 3 : i; /* falls at its end */
    }
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, KEYS, keys),
                                   mr_tensor_1d(MR_U32, KEYS + 1, offsets),
                                   mr_tensor_2d(MR_F32, KEYS, NODE_DIM, gradients)};
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, tensors, 4), MR_INVALID_ARGUMENT, "offsets fall");
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, tensors + 1, 2), MR_INVALID_ARGUMENT,
               "offsets fall");
    assert_float_equal(node_value(n, table, 0), 1, 0);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 2);
}

static void keys_of_another_core_are_found_among_many(void **state)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n), count = 0, other = 0;
    static uint64_t mine[4 * KEYS];
    for (uint64_t key = 0; count < KEYS; key++) {
        if (node_core_of_key(n, key, 0) == 0) {
            mine[count++] = key;
        } else {
            other = (uint32_t)key;
        }
    }
    struct mr_tensor t = mr_tensor_1d(MR_U64, KEYS, mine);
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    mine[KEYS - 1] = other;
    node_check(node_call(n, 0, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_INVALID_ARGUMENT, "belongs to core");
}

static void large_echoes_and_variables_come_whole(void **state)
{
    struct node_fixture *n = *state;
    enum { COUNT = 100000 };
    struct mr_feature v = node_variable("dense", COUNT);
    uint32_t variable = node_create(n, &v);
    float *values = malloc(COUNT * sizeof(float));
    uint64_t range[2] = {0, COUNT}, first = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        values[i] = (float)i;
    }
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

static void a_variable_is_not_set_while_it_is_read(void **state)
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
    for (uint32_t i = 0; i < COUNT; i++) {
        ones[i] = 1;
    }
    hold();
    node_post(n, 0, &calls[0], &pull, &t, 1);
    slices(1);
    post_set(n, &calls[1], variable, PART_FIRST, PART, ones);
    node_post(n, 0, &calls[2], &pull, &t, 1);
    post_set(n, &calls[3], variable, 0, COUNT, ones);
    fake_dp_release(0);
    for (uint32_t i = 0; i < 4; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    }
    const float *before = calls[0].reply.tensors[0].data, *between = calls[2].reply.tensors[0].data;
    for (uint32_t i = 0; i < COUNT; i++) {
        bool is_in_part = i >= PART_FIRST && i < PART_FIRST + PART;
        assert_float_equal(before[i], 0, 0);
        assert_float_equal(between[i], is_in_part ? 1 : 0, 0);
    }
    end_all(calls, 4);
    free(ones);
}

/* Looking through its bags takes long, however few its keys are. */
static void a_push_of_many_empty_bags_is_long(void **state)
{
    struct node_fixture *n = *state;
    enum { BAGS = 20000 };
    uint32_t table = make_table(n), head[4] = {table, 0};
    uint32_t *offsets = malloc((BAGS + 1) * sizeof(*offsets));
    float *bags = calloc(BAGS * NODE_DIM, sizeof(*bags));
    make_rows(n, table);
    for (uint32_t i = 0; i <= BAGS; i++) {
        offsets[i] = i > BAGS / 2;
    }
    bags[BAGS / 2 * NODE_DIM] = 3;
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, keys),
                                   mr_tensor_1d(MR_U32, BAGS + 1, offsets),
                                   mr_tensor_2d(MR_F32, BAGS, NODE_DIM, bags)};
    node_check(node_call_step(n, 0, MR_OP_PUSH_GRAD, 0, 1, 0, tensors, 4), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.calls_in_slices"), 1);
    assert_float_equal(node_value(n, table, keys[0]), 1 - 3, 0);
    free(offsets);
    free(bags);
}

/* ---- batches ---- */

static void a_batch_is_there_once_it_is_whole(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = make_table(n);
    hold();
    post_feed(n, &calls[0], table, 8, KEYS, 0);
    slices(1);
    post_id(n, &calls[1], MR_OP_LOOKUP_BATCH, table, 8);
    slices(1);
    node_look(n);
    assert_true(calls[1].is_answered);
    node_check(&calls[1].reply, MR_UNKNOWN_BATCH, NULL);
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    post_id(n, &calls[1], MR_OP_LOOKUP_BATCH, table, 8);
    const struct node_reply *reply = node_wait(n, &calls[1]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < KEYS * NODE_DIM; i++) {
        assert_float_equal(((const float *)reply->tensors[0].data)[i], 1, 0);
    }
    end_all(calls, 3);
}

static void a_batch_under_a_push_is_nobody_elses(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[5] = {0};
    struct mr_feature v = node_variable("bias", NODE_DIM);
    uint32_t table = make_table(n), variable = node_create(n, &v);
    post_feed(n, &calls[0], table, 8, KEYS, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    hold();
    post_push_batch(n, &calls[0], 8, table, KEYS);
    slices(2);
    post_id(n, &calls[1], MR_OP_FORGET_BATCH, 0, 8);
    post_feed(n, &calls[2], table, 8, 4, 0); /* takes the place of what is being learnt */
    uint64_t id = 8;
    uint32_t head[4] = {variable, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD_BATCH, .deadline_us = NEVER_US};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_1d(MR_F32, NODE_DIM, gradients)};
    node_post(n, 0, &calls[3], &options, tensors, 3); /* small, but of the same batch */
    slices(1);
    node_look(n);
    assert_false(calls[0].is_answered || calls[3].is_answered);
    assert_true(calls[1].is_answered && calls[2].is_answered);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[0]);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint32_t *)reply->tensors[0].data, 1);
    reply = node_wait(n, &calls[3]);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint32_t *)reply->tensors[0].data, 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_learnt"), 1);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 1);
    assert_int_equal(node_counter(n, 0, "ps.batch_bytes"), 0);
    for (uint64_t key = 0; key < KEYS; key += 499) {
        assert_float_equal(node_value(n, table, key), 0, 0);
    }
    end_all(calls, 5);
}

static void a_batch_may_be_forgotten_while_it_is_read(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    struct mr_feature wide = node_table("wide", 2);
    wide.dims[0] = 256;
    uint32_t table = node_create(n, &wide), small = make_table(n);
    post_feed(n, &calls[0], table, 8, 400, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    hold();
    post_id(n, &calls[0], MR_OP_LOOKUP_BATCH, table, 8);
    slices(2);
    post_id(n, &calls[1], MR_OP_FORGET_BATCH, 0, 8);
    post_feed(n, &calls[2], small, 8, 4, 0);
    slices(1);
    post_id(n, &calls[3], MR_OP_LOOKUP_BATCH, small, 8);
    slices(1);
    node_look(n);
    assert_false(calls[0].is_answered);
    node_check(&calls[3].reply, MR_OK, NULL);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[0]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < 400 * 256; i++) {
        assert_float_equal(((const float *)reply->tensors[0].data)[i], 2, 0);
    }
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 1);
    post_id(n, &calls[1], MR_OP_FORGET_BATCH, 0, 8);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.batch_bytes"), 0);
    end_all(calls, 4);
}

/* ---- sessions that end ---- */

static void check_nothing_is_held(struct node_fixture *n)
{
    hold();
    size_t used = mr_endpoint_memory_used(dp_core_endpoint(fake_dp_core(0)));
    fake_dp_release(0);
    assert_in_range(used, 0, 16384); /* of small answers that are not acknowledged yet */
    assert_int_equal(node_counter(n, 0, "ps.batch_bytes"), 0);
}

static void a_push_that_was_begun_survives_its_session(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_push(n, &calls[0], table, KEYS, NEVER_US);
    post_push(n, &calls[1], table, KEYS, NEVER_US);
    slices(3);
    node_leave(n, 0);
    assert_true(calls[0].is_answered && calls[1].is_answered);
    fake_dp_release(0);
    node_join(n, 0);
    while (node_counter(n, 0, "ps.pushes_applied") == 0) {
    }
    check_nothing_is_held(n);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 1); /* the other was not begun */
    for (uint64_t key = 0; key < KEYS; key += 499) {
        assert_float_equal(node_value(n, table, key), 0, 0);
    }
    end_all(calls, 2);
}

static void lookups_and_feeds_end_with_their_session(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = make_table(n);
    post_feed(n, &calls[0], table, 9, KEYS, MR_FEED_READ_ONLY);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    hold();
    post_feed(n, &calls[0], table, 8, KEYS, 0);
    slices(2);
    node_leave(n, 0);
    fake_dp_release(0);
    node_join(n, 0);
    node_value(n, table, 0);
    hold();
    post_lookup(n, &calls[1], table, KEYS);
    slices(2);
    node_leave(n, 0);
    fake_dp_release(0);
    node_join(n, 0);
    node_value(n, table, 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 1);
    post_id(n, &calls[0], MR_OP_FORGET_BATCH, 0, 9);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    check_nothing_is_held(n);
    end_all(calls, 3);
}

static void a_call_whose_deadline_has_passed_is_not_begun(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_lookup(n, &calls[0], table, KEYS);
    post_push(n, &calls[1], table, KEYS, dp_now_us() + 20000);
    slices(1);
    node_wait(n, &calls[1]); /* its client gives it up, the core holding still */
    nanosleep(&(struct timespec){.tv_nsec = 40000000}, NULL);
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 0), 1, 0);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 0);
    end_all(calls, 2);
}

/* The queue has a place per call slot. What a session left in it takes places, too, as long as a push is brought to its end. */
static void more_calls_than_places_are_told_to_try_again(void **state)
{
    struct node_fixture *n = *state;
    enum { WINDOW = 64 };
    static struct node_call calls[WINDOW], again[WINDOW];
    n->config.transport_sessions_max = 1;
    node_restart(n, 1);
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_push(n, &calls[0], table, KEYS, NEVER_US);
    for (uint32_t i = 1; i < WINDOW; i++) {
        post_lookup(n, &calls[i], table, KEYS / 5);
    }
    slices(2);
    node_leave(n, 0);
    node_join(n, 0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        post_lookup(n, &again[i], table, KEYS / 5);
    }
    for (uint32_t i = 0; i < 5; i++) { /* the handshake, then the calls, while the push goes on */
        node_look(n);
        fake_dp_turn(0);
    }
    fake_dp_release(0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        node_check(node_wait(n, &again[i]), MR_OK, NULL);
        assert_int_equal(again[i].reply.tensors[0].dims[0], KEYS / 5);
    }
    assert_true(mr_endpoint_counters(n->client)->busy_received > 0);
    assert_float_equal(node_value(n, table, KEYS - 1), 0, 0);
    end_all(calls, WINDOW);
    end_all(again, WINDOW);
}

/* ---- what the control thread does ---- */

static void a_cut_waits_for_the_push_under_way(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_push(n, &calls[0], table, KEYS, NEVER_US);
    post_text(n, &calls[1], MR_OP_SAVE, 0);
    post_push(n, &calls[2], table, KEYS, NEVER_US); /* waits, and is not in the checkpoint */
    slices(4);                                      /* the push is about to change rows */
    fake_dp_wait_posted(0, 1);                      /* the cut */
    fake_dp_release(0);
    for (uint32_t i = 0; i < 3; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    }
    uint64_t id = *(const uint64_t *)calls[1].reply.tensors[0].data;
    assert_float_equal(node_value(n, table, 0), -1, 0);
    while (node_restore(n, id)->status == MR_CHECKPOINT_RUNNING) {
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        assert_float_equal(node_value(n, table, key), 0, 0);
    }
    end_all(calls, 3);
}

/* Pushes go on while a checkpoint is written: each hands over the rows it changes, in slices, and small ones in between. */
static void a_checkpoint_holds_the_rows_as_of_its_cut(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[8] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_text(n, &calls[0], MR_OP_SAVE, 0);
    fake_dp_turn(0);
    fake_dp_turn(0);
    for (uint32_t i = 1; i < 8; i++) {
        post_push(n, &calls[i], table, i % 2 == 1 ? KEYS : 50, NEVER_US);
    }
    fake_dp_wait_posted(0, 1); /* the cut, in the same turn as the pushes */
    fake_dp_release(0);
    for (uint32_t i = 0; i < 8; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    }
    uint64_t id = *(const uint64_t *)calls[0].reply.tensors[0].data;
    assert_float_equal(node_value(n, table, 0), -6, 0);
    assert_float_equal(node_value(n, table, KEYS - 1), -3, 0);
    while (node_restore(n, id)->status == MR_CHECKPOINT_RUNNING) {
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        assert_float_equal(node_value(n, table, key), 1, 0);
    }
    end_all(calls, 8);
}

static void a_push_in_slices_keeps_its_room_in_a_checkpoint(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = make_table(n);
    const struct ps_core *core = fake_dp_app(0);
    make_rows(n, table);
    hold();
    post_text(n, &calls[0], MR_OP_SAVE, 0);
    fake_dp_turn(0);
    fake_dp_turn(0);
    fake_dp_wait_posted(0, 1); /* the cut */
    post_push(n, &calls[1], table, KEYS, NEVER_US);
    slices(1);
    assert_non_null(core->save.writer);
    assert_true(core->save.reserved_bytes > KEYS * NODE_DIM * sizeof(float));
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    hold();
    assert_int_equal(core->save.reserved_bytes, 0);
    fake_dp_release(0);
    end_all(calls, 2);
}

/* Takes all that is left of a core's memory for messages, and gives it back. The core stands still. */
struct block {
    struct block *next;
};

static void take_memory(struct mr_endpoint *ep, struct block **taken)
{
    for (size_t bytes = 1u << 20; bytes >= sizeof(struct block); bytes /= 2) {
        struct block *block;
        while ((block = mr_buddy_alloc(ep->memory, bytes)) != NULL) {
            block->next = *taken;
            *taken = block;
        }
    }
}

static void give_memory(struct mr_endpoint *ep, struct block *taken)
{
    while (taken != NULL) {
        struct block *next = taken->next;
        mr_buddy_free(ep->memory, taken);
        taken = next;
    }
}

static void a_push_that_cannot_be_answered_keeps_no_room(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    uint32_t table = make_table(n);
    struct ps_core *core = fake_dp_app(0);
    struct block *taken = NULL;
    make_rows(n, table);
    post_feed(n, &calls[0], table, 7, KEYS, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    hold();
    post_text(n, &calls[1], MR_OP_SAVE, 0);
    fake_dp_turn(0);
    fake_dp_turn(0);
    fake_dp_wait_posted(0, 1); /* the cut */
    post_lookup(n, &calls[2], table, KEYS);
    post_push_batch(n, &calls[3], 7, table, KEYS);
    while (core->long_calls.count + (core->long_calls.running != NULL) < 2) {
        fake_dp_turn(0);
    }
    assert_non_null(core->save.writer);
    core->save.wanted_bytes = core->save.capacity_bytes; /* the cursor waits */
    core->save.wanted_until_us = NEVER_US;
    uint64_t busy_before = core->ep->counters.busy_sent;
    while (core->ep->counters.busy_sent == busy_before) {
        take_memory(core->ep, &taken);
        fake_dp_turn(0);
    }
    uint64_t need_bytes = ps_save_need_bytes(core, ps_core_feature(core, table), KEYS);
    uint64_t reserved_bytes = core->save.reserved_bytes;
    core->save.wanted_until_us = 0;
    give_memory(core->ep, taken);
    fake_dp_release(0);
    for (uint32_t i = 0; i < 4; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    }
    assert_true(need_bytes > 0);
    assert_int_equal(reserved_bytes, 0);
    assert_float_equal(node_value(n, table, 0), 0, 0);
    end_all(calls, 4);
}

static void a_freeze_falls_between_calls(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = make_table(n);
    hold();
    post_lookup(n, &calls[0], table, KEYS);
    post_freeze(n, &calls[1], MR_FREEZE_ALL);
    post_push(n, &calls[2], table, KEYS, NEVER_US);
    slices(2);
    fake_dp_wait_posted(0, 1);
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    node_check(node_wait(n, &calls[2]), MR_FROZEN, NULL);
    assert_int_equal(node_counter(n, 0, "table.rows"), KEYS); /* all, not those before the freeze */
    end_all(calls, 3);
}

static void a_restore_falls_between_calls(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    uint64_t id = node_save(n);
    post_push(n, &calls[0], table, KEYS, NEVER_US);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    hold();
    post_lookup(n, &calls[0], table, KEYS);
    post_text(n, &calls[1], MR_OP_RESTORE, id);
    post_lookup(n, &calls[2], table, KEYS);
    slices(2);
    fake_dp_wait_posted(0, 1);
    fake_dp_release(0);
    const struct node_reply *before = node_wait(n, &calls[0]), *after = node_wait(n, &calls[2]);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    node_check(before, MR_OK, NULL);
    node_check(after, MR_OK, NULL);
    for (uint32_t i = 0; i < KEYS * NODE_DIM; i++) {
        assert_float_equal(((const float *)before->tensors[0].data)[i], 0, 0);
        assert_float_equal(((const float *)after->tensors[0].data)[i], 1, 0);
    }
    end_all(calls, 3);
}

static void a_node_stops_in_the_middle(void **state)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    uint32_t table = make_table(n);
    make_rows(n, table);
    hold();
    post_feed(n, &calls[0], table, 8, KEYS, 0);
    post_push(n, &calls[1], table, KEYS, NEVER_US);
    post_lookup(n, &calls[2], table, KEYS);
    slices(2);
    fake_dp_release(0);
    node_stop(n);
    node_start(n, 1);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
    end_all(calls, 4);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, node_setup, node_teardown)
    const struct CMUnitTest tests[] = {
        TEST(small_calls_go_before),
        TEST(a_reply_is_sent_as_it_grows),
        TEST(long_calls_go_one_after_the_other),
        TEST(what_is_wrong_is_refused_whole),
        cmocka_unit_test_setup_teardown(keys_of_another_core_are_found_among_many, node_setup_3_cores,
                                        node_teardown),
        TEST(large_echoes_and_variables_come_whole),
        TEST(a_variable_is_not_set_while_it_is_read),
        TEST(a_push_of_many_empty_bags_is_long),
        TEST(a_batch_is_there_once_it_is_whole),
        TEST(a_batch_under_a_push_is_nobody_elses),
        TEST(a_batch_may_be_forgotten_while_it_is_read),
        TEST(a_push_that_was_begun_survives_its_session),
        TEST(lookups_and_feeds_end_with_their_session),
        TEST(a_call_whose_deadline_has_passed_is_not_begun),
        TEST(more_calls_than_places_are_told_to_try_again),
        TEST(a_cut_waits_for_the_push_under_way),
        TEST(a_checkpoint_holds_the_rows_as_of_its_cut),
        TEST(a_push_in_slices_keeps_its_room_in_a_checkpoint),
        TEST(a_push_that_cannot_be_answered_keeps_no_room),
        TEST(a_freeze_falls_between_calls),
        TEST(a_restore_falls_between_calls),
        TEST(a_node_stops_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
