/* Calls in slices: batches that change meanwhile, sessions that end, deadlines, and a full queue. */
#include "dataplane/wire/endpoint_internal.h"
#include "fake_dp.h"
#include "coop_task_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

/* ---- batches ---- */

TEST(a_batch_is_there_once_it_is_whole, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = long_make_table(n);
    long_hold();
    long_post_feed(n, &calls[0], table, 8, LONG_KEYS, 0);
    long_slices(1);
    long_post_id(n, &calls[1], MR_OP_LOOKUP_BATCH, table, 8);
    long_slices(1);
    node_look(n);
    assert_true(calls[1].is_answered);
    node_check(&calls[1].reply, MR_UNKNOWN_BATCH, NULL);
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    long_post_id(n, &calls[1], MR_OP_LOOKUP_BATCH, table, 8);
    const struct node_reply *reply = node_wait(n, &calls[1]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < LONG_KEYS * NODE_DIM; i++)
        assert_float_equal(((const float *)reply->tensors[0].data)[i], 1, 0);
    long_end_all(calls, 3);
}

TEST(a_batch_under_a_push_is_nobody_elses, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[5] = {0};
    struct mr_feature v = node_variable("bias", NODE_DIM);
    uint32_t table = long_make_table(n), variable = node_create(n, &v);
    long_post_feed(n, &calls[0], table, 8, LONG_KEYS, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    long_hold();
    long_post_push_batch(n, &calls[0], 8, table, LONG_KEYS);
    long_slices(2);
    long_post_id(n, &calls[1], MR_OP_FORGET_BATCH, 0, 8);
    long_post_feed(n, &calls[2], table, 8, 4, 0); /* takes the place of what is being applied */
    uint64_t id = 8;
    uint32_t head[4] = {variable, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD_BATCH, .deadline_us = NEVER_US};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_1d(MR_F32, NODE_DIM, long_gradients)};
    node_post(n, 0, &calls[3], &options, tensors, 3); /* small, but of the same batch */
    long_slices(1);
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
    assert_int_equal(node_counter(n, 0, "ps.batches_applied"), 1);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 1);
    assert_int_equal(node_counter(n, 0, "ps.batch_bytes"), 0);
    for (uint64_t key = 0; key < LONG_KEYS; key += 499)
        assert_float_equal(node_value(n, table, key), 0, 0);
    long_end_all(calls, 5);
}

TEST(a_batch_may_be_forgotten_while_it_is_read, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    struct mr_feature wide = node_table("wide", 2);
    wide.dims[0] = 256;
    uint32_t table = node_create(n, &wide), small = long_make_table(n);
    long_post_feed(n, &calls[0], table, 8, 400, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    long_hold();
    long_post_id(n, &calls[0], MR_OP_LOOKUP_BATCH, table, 8);
    long_slices(2);
    long_post_id(n, &calls[1], MR_OP_FORGET_BATCH, 0, 8);
    long_post_feed(n, &calls[2], small, 8, 4, 0);
    long_slices(1);
    long_post_id(n, &calls[3], MR_OP_LOOKUP_BATCH, small, 8);
    long_slices(1);
    node_look(n);
    assert_false(calls[0].is_answered);
    node_check(&calls[3].reply, MR_OK, NULL);
    fake_dp_release(0);
    const struct node_reply *reply = node_wait(n, &calls[0]);
    node_check(reply, MR_OK, NULL);
    for (uint32_t i = 0; i < 400 * 256; i++)
        assert_float_equal(((const float *)reply->tensors[0].data)[i], 2, 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 1);
    long_post_id(n, &calls[1], MR_OP_FORGET_BATCH, 0, 8);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.batch_bytes"), 0);
    long_end_all(calls, 4);
}

/* ---- sessions that end ---- */

static size_t memory_used(struct node_fixture *n)
{
    node_look(n);
    long_hold();
    const size_t used = mr_endpoint_memory_used(dp_core_endpoint(fake_dp_core(0)));
    fake_dp_release(0);
    return used;
}

/* What calls hold is over 64 KiB; answers that the client has not acknowledged yet go as it does. */
static void check_nothing_is_held(struct node_fixture *n)
{
    WAIT_UNTIL(memory_used(n) <= 65536);
    assert_int_equal(node_counter(n, 0, "ps.batch_bytes"), 0);
}

TEST(a_push_that_was_begun_survives_its_session, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_push(n, &calls[0], table, LONG_KEYS, NEVER_US);
    long_post_push(n, &calls[1], table, LONG_KEYS, NEVER_US);
    long_slices(3);
    node_leave(n, 0);
    assert_true(calls[0].is_answered && calls[1].is_answered);
    fake_dp_release(0);
    node_join(n, 0);
    while (node_counter(n, 0, "ps.pushes_applied") == 0) {
    }
    check_nothing_is_held(n);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 1); /* the other was not begun */
    for (uint64_t key = 0; key < LONG_KEYS; key += 499)
        assert_float_equal(node_value(n, table, key), 0, 0);
    long_end_all(calls, 2);
}

TEST(lookups_and_feeds_end_with_their_session, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = long_make_table(n);
    long_post_feed(n, &calls[0], table, 9, LONG_KEYS, MR_FEED_READ_ONLY);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    long_hold();
    long_post_feed(n, &calls[0], table, 8, LONG_KEYS, 0);
    long_slices(2);
    node_leave(n, 0);
    fake_dp_release(0);
    node_join(n, 0);
    node_value(n, table, 0);
    long_hold();
    long_post_lookup(n, &calls[1], table, LONG_KEYS);
    long_slices(2);
    node_leave(n, 0);
    fake_dp_release(0);
    node_join(n, 0);
    node_value(n, table, 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 1);
    long_post_id(n, &calls[0], MR_OP_FORGET_BATCH, 0, 9);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    check_nothing_is_held(n);
    long_end_all(calls, 3);
}

TEST(a_call_whose_deadline_has_passed_is_not_begun, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_lookup(n, &calls[0], table, LONG_KEYS);
    const uint64_t deadline_us = dp_now_us() + 20000;
    long_post_push(n, &calls[1], table, LONG_KEYS, deadline_us);
    long_slices(1);
    node_wait(n, &calls[1]); /* its client gives it up, the core holding still */
    WAIT_UNTIL(dp_now_us() > deadline_us + 20000);
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 0), 1, 0);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 0);
    long_end_all(calls, 2);
}

/* The queue has a place per call slot. What a session left in it takes places, too, as long as a push is
 * brought to its end. */
TEST(more_calls_than_places_are_told_to_try_again, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    enum { WINDOW = 64, ROUNDS_MAX = 100 };
    static struct node_call calls[WINDOW], again[WINDOW];
    n->config.transport_sessions_max = 1;
    node_restart(n, 1);
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_push(n, &calls[0], table, LONG_KEYS, NEVER_US);
    for (uint32_t i = 1; i < WINDOW; i++)
        long_post_lookup(n, &calls[i], table, LONG_KEYS / 5);
    long_slices(2);
    node_leave(n, 0);
    node_join(n, 0);
    for (uint32_t i = 0; i < WINDOW; i++)
        long_post_lookup(n, &again[i], table, LONG_KEYS / 5);
    const struct mr_wire_counters *counters = mr_endpoint_counters(n->client);
    /* The handshake, then the calls, while the push goes on. */
    for (uint32_t i = 0; i < ROUNDS_MAX && counters->busy_received == 0; i++) {
        node_look(n);
        fake_dp_turn(0);
    }
    fake_dp_release(0);
    for (uint32_t i = 0; i < WINDOW; i++) {
        node_check(node_wait(n, &again[i]), MR_OK, NULL);
        assert_int_equal(again[i].reply.tensors[0].dims[0], LONG_KEYS / 5);
    }
    assert_true(counters->busy_received > 0);
    assert_float_equal(node_value(n, table, LONG_KEYS - 1), 0, 0);
    long_end_all(calls, WINDOW);
    long_end_all(again, WINDOW);
}
