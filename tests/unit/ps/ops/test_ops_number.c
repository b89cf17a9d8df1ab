/* Numbered pushes to a node: applied once, refused without a mark, and what the answers say. */
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/exactly_once/pushes.h"
#include "tests/test.h"

#define BATCH(sequence) ((uint64_t)3 << MR_BATCH_SEQUENCE_BITS | (sequence))

static uint32_t make_table(struct node_fixture *n)
{
    struct mr_feature f = node_table("emb", 100);
    return node_create(n, &f);
}

/* A gradient of 1 for one key, under a number. */
static const struct node_reply *push_with(struct node_fixture *n, uint64_t sequence, uint32_t table,
                                          uint64_t key, uint16_t flags)
{
    static const float ones[NODE_DIM] = {1, 1, 1, 1};
    uint32_t head[4] = {table, 0};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 1, NODE_DIM, ones)};
    n->sequence = sequence;
    const struct node_reply *reply =
        node_call_step(n, node_core_of_key(n, key, 0), MR_OP_PUSH_GRAD, 0, sequence, flags, tensors, 4);
    n->sequence = 0;
    return reply;
}

static const struct node_reply *ops_number_push(struct node_fixture *n, uint64_t sequence, uint32_t table,
                                                uint64_t key)
{
    return push_with(n, sequence, table, key, 0);
}

static const struct node_reply *push_nothing(struct node_fixture *n, uint32_t core, uint64_t sequence)
{
    n->sequence = sequence;
    const struct node_reply *reply = node_call(n, core, MR_OP_PUSH_GRAD, 0, NULL, 0);
    n->sequence = 0;
    return reply;
}

TEST(applies_a_number_once, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 3, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 3, table, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 98, 0);
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(1, 0), 2), table, 5), MR_OK,
               NULL); /* the same push stream */
    assert_float_equal(node_value(n, table, 5), 97, 0);
    node_check(ops_number_push(n, 0, table, 5), MR_OK, NULL); /* without a number as ever */
    node_check(ops_number_push(n, 0, table, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 95, 0);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 5);
    assert_int_equal(node_counter(n, 0, "ps.pushes_repeated"), 3);
    assert_int_equal(node_counter(n, 0, "ps.last_step"), 3);
}

/* One that is sent again names the restores that its client knows of. */
TEST(what_a_restore_may_have_taken_is_not_applied, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const uint16_t one = 1u << MR_PUSH_RESTORES_SHIFT;
    uint32_t table = make_table(n);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    uint64_t id = node_save(n);
    node_check(push_with(n, 2, table, 5, MR_PUSH_AGAIN | one), MR_BUSY, NULL);
    node_check(push_with(n, 2, table, 5, MR_PUSH_AGAIN), MR_OK, NULL);
    node_check(node_restore(n, id), MR_OK, NULL);
    node_check(push_with(n, 2, table, 5, MR_PUSH_AGAIN), MR_BUSY, NULL);
    node_check(push_with(n, 1, table, 5, MR_PUSH_AGAIN), MR_BUSY, NULL);
    assert_float_equal(node_value(n, table, 5), 99, 0);
    node_check(ops_number_push(n, 3, table, 5), MR_OK, NULL); /* for the first time */
    assert_float_equal(node_value(n, table, 5), 98, 0);
    node_check(push_with(n, 2, table, 5, MR_PUSH_AGAIN | one), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 97, 0);
}

/* The answer to a push that was applied before has no counts: they were reported then, and are kept
 * nowhere. */
TEST(a_number_that_comes_again_tells_no_counts, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    const struct node_reply *reply = push_with(n, 1, table, 5, MR_PUSH_COUNTS);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 1);
    assert_int_equal(((const uint32_t *)reply->tensors[0].data)[MR_PUSHED_APPLIED], 1);
    reply = push_with(n, 1, table, 5, MR_PUSH_COUNTS);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 0);
    assert_float_equal(node_value(n, table, 5), 99, 0);
}

TEST(a_number_far_ahead_gives_up_what_is_missing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 3 + MR_PUSH_WINDOW, table, 5), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.pushes_skipped"), 2); /* 1 and 3 */
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 4, table, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 97, 0);
}

/* What was applied is answered so, whatever the node thinks of it now. */
TEST(what_was_applied_is_ok_even_when_it_would_be_refused, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n), level = MR_FREEZE_ALL;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 2, table, 5), MR_FROZEN, "all");
    level = MR_FREEZE_OFF;
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL); /* the refusal did not mark it */
    assert_float_equal(node_value(n, table, 5), 98, 0);
}

TEST(a_refused_push_is_not_marked, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    node_check(ops_number_push(n, 1, 99, 5), MR_UNKNOWN_TABLE, "99");
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 99, 0);
}

TEST(numbers_that_make_no_sense_are_refused, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    uint64_t key = 5;
    uint32_t core = node_core_of_key(n, key, 0), other = (core + 1) % 3;
    node_check(ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(2, 0), 0), table, key),
               MR_INVALID_ARGUMENT, "numbered from 1");
    node_check(ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(2, 2), 1), table, key),
               MR_INVALID_ARGUMENT, "core 2 of 2");
    node_check(
        ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(MR_CORE_MAX + 1, 0), 1), table, key),
        MR_INVALID_ARGUMENT, "no such core");
    node_check(ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(3, other), 1), table, key),
               MR_INVALID_ARGUMENT, "this is core");
    node_check(ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(2, 1), 1), table, key), MR_OK,
               NULL);
    node_check(ops_number_push(n, mr_push_sequence(mr_push_stream_of_core(3, core), 1), table, key), MR_OK,
               NULL);
    assert_float_equal(node_value(n, table, key), 98, 0);
}

static void set_freeze(struct node_fixture *n, uint32_t level)
{
    const struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
}

/* The level outlives the node. What clients send again after its end precedes it, also where it makes
 * rows. */
TEST(a_freeze_outlives_the_node, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    (void)node_save(n);
    n->config.checkpoint_save_on_stop = false;
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL);
    node_check(ops_number_push(n, 3, table, 6), MR_OK, NULL);
    set_freeze(n, MR_FREEZE_ALL);
    node_restart(n, n->core_count);
    assert_int_equal(node_counter(n, 0, "ps.freeze"), MR_FREEZE_ALL);
    node_check(ops_number_push(n, 2, table, 5), MR_FROZEN, "level all");
    node_check(push_with(n, 2, table, 5, MR_PUSH_AGAIN), MR_OK, NULL);
    node_check(push_with(n, 3, table, 6, MR_PUSH_AGAIN), MR_OK, NULL);
    node_check(push_with(n, 0, table, 5, MR_PUSH_AGAIN), MR_FROZEN, "level all"); /* without a number */
    assert_float_equal(node_value(n, table, 5), 98, 0);
    assert_float_equal(node_value(n, table, 6), 99, 0);
    set_freeze(n, MR_FREEZE_ALL); /* by somebody who knows this start */
    node_check(push_with(n, 4, table, 5, MR_PUSH_AGAIN), MR_FROZEN, "level all");
    set_freeze(n, MR_FREEZE_ADMIT);
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "1");
    node_restart(n, 2); /* also with a checkpoint that is named */
    assert_int_equal(node_counter(n, 1, "ps.freeze"), MR_FREEZE_ADMIT);
    node_check(ops_number_push(n, 5, table, 7), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 7), 100, 0); /* no row was made */
    set_freeze(n, MR_FREEZE_OFF);
    node_restart(n, 1);
    assert_int_equal(node_counter(n, 0, "ps.freeze"), MR_FREEZE_OFF);
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL);
}

/* A row that no lookup has made since the start. */
TEST(a_numbered_push_makes_rows, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n), level = MR_FREEZE_ADMIT;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(ops_number_push(n, 0, table, 5), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "table.gradients_without_row"), 1);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 99, 0);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    node_check(ops_number_push(n, 2, table, 6), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 6), 100, 0);
}

TEST(a_variable_is_set_once, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature v = node_variable("bias", 1);
    uint32_t variable = node_create(n, &v), head[4] = {variable, 0};
    uint64_t first = 0, range[2] = {0, 0};
    float ten = 10, one = 1;
    struct mr_tensor set[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 1, &ten)};
    struct mr_tensor gradient[2] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_F32, 1, &one)};
    struct mr_tensor all = mr_tensor_1d(MR_U64, 2, range);
    for (uint32_t i = 0; i < 2; i++) { /* the second time changes nothing */
        n->sequence = 1;
        node_check(node_call(n, 0, MR_OP_VARIABLE_PUSH, (uint16_t)variable, set, 2), MR_OK, NULL);
        n->sequence = 2;
        node_check(node_call(n, 0, MR_OP_PUSH_GRAD, 0, gradient, 2), MR_OK, NULL);
    }
    n->sequence = 0;
    const struct node_reply *reply = node_call(n, 0, MR_OP_VARIABLE_PULL, (uint16_t)variable, &all, 1);
    node_check(reply, MR_OK, NULL);
    assert_float_equal(*(const float *)reply->tensors[0].data, 9, 0);
}

static uint64_t durable(struct node_fixture *n, uint64_t sequence)
{
    const struct node_reply *reply = push_nothing(n, 0, sequence);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(mr_push_stream_id(reply->sequence), mr_push_stream_id(sequence));
    return mr_push_number(reply->sequence);
}

/* The batch's record decides; the number is marked with its outcome. */
TEST(a_push_by_batch_is_marked_too, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    const uint64_t key = 5;
    node_feed(n, BATCH(0), table, &key, 1);
    n->sequence = 1;
    assert_int_equal(node_push_batch(n, 0, BATCH(0), table, 1, 1), 1);
    assert_int_equal(node_push_batch(n, 0, BATCH(0), table, 1, 1), 0);
    n->sequence = 2; /* somebody else has applied it */
    assert_int_equal(node_push_batch(n, 0, BATCH(0), table, 1, 1), 0);
    float gradient[NODE_DIM] = {1, 1, 1, 1};
    uint64_t unknown = BATCH(1);
    uint32_t head[4] = {table, 0};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U64, 1, &unknown), mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_3d(MR_F32, 1, 1, NODE_DIM, gradient)};
    n->sequence = 3;
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, tensors, 3), MR_UNKNOWN_BATCH, "number 1");
    n->sequence = 0;
    assert_float_equal(node_value(n, table, key), 99, 0);
    node_save(n);
    assert_int_equal(durable(n, 2), 2);
    node_check(ops_number_push(n, 3, table, key), MR_OK, NULL); /* was not marked */
    assert_float_equal(node_value(n, table, key), 98, 0);
}

TEST(only_a_checkpoint_that_a_start_finds_is_durable, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    char elsewhere[80];
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    assert_int_equal(ops_number_push(n, 2, table, 5)->sequence, 0);
    assert_int_equal(durable(n, 2), 0);
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", n->directory);
    struct mr_tensor t = mr_tensor_1d(MR_U8, (uint32_t)strlen(elsewhere), elsewhere);
    node_check(node_call(n, 0, MR_OP_SAVE, 0, &t, 1), MR_OK, NULL);
    node_wait_saved(n);
    assert_int_equal(durable(n, 2), 0);
    node_save(n);
    const struct node_reply *reply = ops_number_push(n, 3, table, 5);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->sequence, 2);
    assert_int_equal(ops_number_push(n, 4, 99, 5)->sequence, 2); /* a refusal tells it, too */
    assert_int_equal(durable(n, mr_push_sequence(mr_push_stream_of_core(1, 0), 3)), 2);
    assert_int_equal(durable(n, mr_push_sequence(mr_push_stream_of_core(2, 0), 1)),
                     0); /* another push stream */
}

/* A gap, as of a push without effect, is filled by one without tensors. */
TEST(an_empty_push_marks_its_number, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n);
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL);
    node_save(n);
    assert_int_equal(durable(n, 2), 0);
    assert_int_equal(durable(n, 1), 0);
    node_save(n);
    assert_int_equal(durable(n, 2), 2);
    node_check(ops_number_push(n, 1, table, 5), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 99, 0);
}

/* ---- a push in slices ---- */

enum { LONG_KEYS = 3000 };

static void post_long_push(struct node_fixture *n, struct node_call *call, uint32_t table)
{
    static float gradients[LONG_KEYS * NODE_DIM];
    static uint64_t keys[LONG_KEYS];
    uint32_t head[4] = {table, 0};
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .deadline_us = UINT64_MAX};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, LONG_KEYS, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, LONG_KEYS, NODE_DIM, gradients)};
    for (uint32_t i = 0; i < LONG_KEYS; i++) {
        keys[i] = i;
        gradients[i * NODE_DIM] = 1;
    }
    node_post(n, 0, call, &options, tensors, 4);
}

/* What comes while it is being applied waits: the same once more, and what would give it up. */
TEST(a_push_under_way_is_not_begun_again, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    struct mr_call_options nothing = {.op = MR_OP_PUSH_GRAD, .deadline_us = UINT64_MAX};
    uint32_t table = make_table(n);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    n->sequence = 1;
    post_long_push(n, &calls[0], table);
    for (uint32_t turn = 0; turn < 4; turn++)
        fake_dp_turn(0);
    post_long_push(n, &calls[1], table);
    node_post(n, 0, &calls[2], &nothing, NULL, 0);
    n->sequence = 2 + MR_PUSH_WINDOW;
    node_post(n, 0, &calls[3], &nothing, NULL, 0);
    n->sequence = 0;
    fake_dp_turn(0);
    node_look(n);
    for (uint32_t i = 0; i < 4; i++)
        assert_false(calls[i].is_answered);
    fake_dp_release(0);
    for (uint32_t i = 0; i < 4; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
        node_call_end(&calls[i]);
    }
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 2);
    assert_int_equal(node_counter(n, 0, "ps.pushes_repeated"), 2);
    assert_true(node_counter(n, 0, "ps.pushes_waiting") >= 3);
    for (uint64_t key = 0; key < LONG_KEYS; key += 499)
        assert_float_equal(node_value(n, table, key), 99, 0);
}

/* The part of all push streams that it may have of sessions: of those beyond, some have no older one of their
 * client's whose place they could take, and wait. */
TEST(a_network_has_its_share_of_streams, node_setup, node_teardown)
{
    enum { SHARE = 64, MORE = 8 };
    struct node_fixture *n = *state;
    struct node_call calls[MORE] = {0};
    const struct mr_call_options nothing = {.op = MR_OP_PUSH_GRAD, .deadline_us = UINT64_MAX};
    uint32_t answered = 0;
    n->config.transport_sessions_per_address = n->config.transport_sessions_max * SHARE / PS_PUSH_STREAMS_MAX;
    node_restart(n, 1);
    for (uint32_t i = 1; i <= SHARE; i++)
        node_check(push_nothing(n, 0, mr_push_sequence(mr_push_stream_chosen(i), 1)), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.pushes_waiting"), 0);
    for (uint32_t i = 0; i < MORE; i++) {
        n->sequence = mr_push_sequence(mr_push_stream_chosen(SHARE + 1 + i), 1);
        node_post(n, 0, &calls[i], &nothing, NULL, 0);
    }
    for (uint32_t turn = 0; turn < 10; turn++) {
        fake_dp_turn(0);
        node_look(n);
    }
    for (uint32_t i = 0; i < MORE; i++)
        answered += calls[i].is_answered;
    assert_true(answered < MORE);
    assert_true(node_counter(n, 0, "ps.pushes_waiting") >= MORE - answered);
    node_leave(n, 0);
    for (uint32_t i = 0; i < MORE; i++)
        node_call_end(&calls[i]);
}

struct search {
    const char *name;
    uint64_t value;
};

static void compare(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                    uint64_t value)
{
    struct search *search = arg;
    (void)set;
    search->value = strcmp(counter->name, search->name) == 0 ? value : search->value;
}

/* Of core 0, which stands still. */
static uint64_t counter_of_held(const char *name)
{
    struct search search = {.name = name};
    dp_core_each_counter(fake_dp_core(0), compare, &search);
    return search.value;
}

/* A number whose client has given up on its push, and sends one without tensors, while the first is still
 * being checked: that takes several slices for so many bags. */
TEST(a_number_taken_while_its_push_is_checked_is_not_applied, node_setup, node_teardown)
{
    enum { BAGS = 30000 };
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    static uint32_t offsets[BAGS + 1];
    static float gradients[BAGS * NODE_DIM];
    uint32_t table = make_table(n), head[4] = {table, 0};
    static uint64_t keys[LONG_KEYS]; /* all the same, in the last bag */
    struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .deadline_us = UINT64_MAX};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, LONG_KEYS, keys),
                                   mr_tensor_1d(MR_U32, BAGS + 1, offsets),
                                   mr_tensor_2d(MR_F32, BAGS, NODE_DIM, gradients)};
    offsets[BAGS] = LONG_KEYS;
    gradients[(BAGS - 1) * NODE_DIM] = 1;
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    n->sequence = 1;
    node_post(n, 0, &calls[0], &options, tensors, 4);
    while (counter_of_held("slices") == 0) {
        fake_dp_turn(0);
        node_look(n);
    }
    assert_int_equal(counter_of_held("slices"), 1);
    node_post(n, 0, &calls[1], &options, NULL, 0);
    n->sequence = 0;
    fake_dp_release(0);
    for (uint32_t i = 0; i < 2; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
        node_call_end(&calls[i]);
    }
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 1);
    assert_int_equal(node_counter(n, 0, "ps.pushes_repeated"), 1);
    assert_float_equal(node_value(n, table, 0), 100, 0);
}

/* Both wait for their turn before either is begun. */
TEST(of_two_in_the_queue_one_is_applied, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = make_table(n);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    n->sequence = 1;
    post_long_push(n, &calls[0], table);
    post_long_push(n, &calls[1], table);
    n->sequence = 0;
    fake_dp_release(0);
    for (uint32_t i = 0; i < 2; i++) {
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
        node_call_end(&calls[i]);
    }
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 1);
    assert_float_equal(node_value(n, table, 7), 99, 0);
}

/* Of a table that admits keys with their second observation. */
TEST(a_push_whose_lookup_was_lost_counts_as_one, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("seen", 100);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 2;
    uint32_t table = node_create(n, &f);
    node_check(push_with(n, 1, table, 5, MR_PUSH_UNSEEN), MR_OK, NULL);
    node_check(push_with(n, 1, table, 5, MR_PUSH_UNSEEN), MR_OK, NULL); /* again: applied once, seen once */
    node_check(ops_number_push(n, 2, table, 5), MR_OK, NULL);
    node_check(push_with(n, 0, table, 5, MR_PUSH_UNSEEN), MR_OK, NULL); /* no number: nobody sends it again */
    assert_float_equal(node_value(n, table, 5), 100, 0);
    node_check(push_with(n, 3, table, 5, MR_PUSH_UNSEEN), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 99, 0);
}
