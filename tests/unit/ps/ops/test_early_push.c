/* What a core does of a push while it arrives, and what becomes of it. */
#include <stdio.h>
#include <string.h>
#include "coop_task_fixture.h"
#include "fake_dp.h"
#include "ps/core/core.h"
#include "tests/test.h"

enum { KEYS = LONG_KEYS, UNIVERSE = 1000, TIMES = KEYS / UNIVERSE }; /* each key three times */

static const struct ps_early_push *early(void)
{
    return &((const struct ps_core *)fake_dp_app(0))->early;
}

/* A push of 1 for each of the keys, of which the client has sent only a part. */
struct arriving {
    struct node_call call;
    struct mr_call *handle;
    struct mr_tensor tensors[4];
    uint64_t keys[KEYS];
    uint32_t head[4];
};

static void send_until(struct node_fixture *n, const struct arriving *a, const void *end)
{
    mr_call_advance(n->client, a->handle, end);
    node_look(n);
}

/* Sends it up to the middle of the gradients; core 0 stands still, and goes on turn by turn. */
static void post_half(struct node_fixture *n, struct arriving *a, uint32_t table)
{
    struct mr_call_options options = {
        .op = MR_OP_PUSH_GRAD, .step = 1, .deadline_us = NEVER_US, .user = &a->call, .sequence = n->sequence};
    *a = (struct arriving){.head = {table, 0}};
    for (uint32_t i = 0; i < KEYS; i++)
        a->keys[i] = i % UNIVERSE;
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, a->head),
                                         mr_tensor_1d(MR_U64, KEYS, a->keys), mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, KEYS, NODE_DIM, long_gradients)};
    memcpy(a->tensors, tensors, sizeof(tensors));
    assert_int_equal(mr_call_begin(n->client, n->sessions[0], &options, a->tensors, 4, &a->handle), MR_OK);
    mr_call_advance(n->client, a->handle, (uint8_t *)a->tensors[3].data + a->tensors[3].bytes / 2);
    mr_call_send(n->client, a->handle, dp_now_us());
    node_look(n);
    for (uint32_t i = 0; i < 40; i++) { /* of a few hundred keys each */
        fake_dp_turn(0);
        node_look(n);
    }
}

static void send_rest(struct node_fixture *n, const struct arriving *a)
{
    send_until(n, a, (uint8_t *)a->tensors[3].data + a->tensors[3].bytes);
}

static void check_values(struct node_fixture *n, uint32_t table, float value)
{
    for (uint32_t key = 0; key < UNIVERSE; key += 37)
        assert_float_equal(node_value(n, table, key), value, 0);
}

TEST(keys_are_numbered_before_it_is_whole, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static struct arriving a;
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    post_half(n, &a, table);
    assert_int_equal(early()->state, PS_EARLY_BEGUN);
    assert_int_equal(early()->keys.numbered, KEYS);
    assert_int_equal(early()->keys.scratch.distinct_count, UNIVERSE);
    fake_dp_release(0);
    check_values(n, table, 1); /* nothing is applied */
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 0);
    send_rest(n, &a);
    node_check(node_wait(n, &a.call), MR_OK, NULL);
    check_values(n, table, 1 - TIMES);
    long_hold();
    assert_int_equal(early()->state, PS_EARLY_NONE);
    fake_dp_release(0);
    node_call_end(&a.call);
}

TEST(one_that_never_becomes_whole_makes_room_for_the_next, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static struct arriving lost, other, next;
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    post_half(n, &lost, table);
    struct mr_call_ref ref = early()->ref;
    post_half(n, &other, table); /* one at a time */
    assert_memory_equal(&early()->ref, &ref, sizeof(ref));
    fake_dp_release(0);
    send_rest(n, &other);
    node_check(node_wait(n, &other.call), MR_OK, NULL);
    node_leave(n, 0);
    assert_true(lost.call.is_answered); /* the client knows that it was not executed */
    node_join(n, 0);
    check_values(n, table, 1 - TIMES);
    long_hold();
    post_half(n, &next, table);
    assert_int_equal(early()->state, PS_EARLY_BEGUN);
    assert_true(memcmp(&early()->ref, &ref, sizeof(ref)) != 0);
    fake_dp_release(0);
    send_rest(n, &next);
    node_check(node_wait(n, &next.call), MR_OK, NULL);
    check_values(n, table, 1 - 2 * TIMES);
    node_call_end(&lost.call);
    node_call_end(&other.call);
    node_call_end(&next.call);
}

TEST(a_table_dropped_meanwhile_gets_nothing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static struct arriving a;
    uint32_t table = long_make_table(n);
    long_hold();
    post_half(n, &a, table);
    fake_dp_release(0);
    node_drop(n, "emb");
    uint32_t again = long_make_table(n);
    long_make_rows(n, again);
    send_rest(n, &a);
    node_check(node_wait(n, &a.call), MR_UNKNOWN_TABLE, NULL);
    check_values(n, again, 1);
    long_hold();
    post_half(n, &a, again); /* and the next is done early again */
    assert_int_equal(early()->state, PS_EARLY_BEGUN);
    fake_dp_release(0);
    send_rest(n, &a);
    node_check(node_wait(n, &a.call), MR_OK, NULL);
    check_values(n, again, 1 - TIMES);
    node_call_end(&a.call);
}

TEST(rows_restored_meanwhile_get_all_of_it, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static struct arriving a, before;
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    uint64_t id = node_save(n);
    long_hold();
    post_half(n, &before, table);
    fake_dp_release(0);
    send_rest(n, &before);
    node_check(node_wait(n, &before.call), MR_OK, NULL);
    long_hold();
    post_half(n, &a, table);
    assert_int_equal(early()->keys.numbered, KEYS);
    fake_dp_release(0);
    node_check(node_restore(n, id), MR_OK, NULL);
    check_values(n, table, 1);
    send_rest(n, &a);
    node_check(node_wait(n, &a.call), MR_OK, NULL);
    check_values(n, table, 1 - TIMES);
    node_call_end(&a.call);
    node_call_end(&before.call);
}

/* What the client says of the message is not believed before it was checked. */
TEST(what_is_no_push_of_rows_is_left_alone, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static struct arriving a;
    uint32_t table = long_make_table(n);
    long_hold();
    post_half(n, &a, table + 7); /* there is no such table */
    assert_int_equal(early()->state, PS_EARLY_UNFIT);
    fake_dp_release(0);
    send_rest(n, &a);
    node_check(node_wait(n, &a.call), MR_UNKNOWN_TABLE, NULL);
    node_call_end(&a.call);
}
