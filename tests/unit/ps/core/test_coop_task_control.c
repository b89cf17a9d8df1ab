/* Calls in slices, and what the control thread does: cuts, freezes, restores, the end. */
#include "dataplane/wire/base/buddy.h"
#include "dataplane/wire/endpoint_internal.h"
#include "fake_dp.h"
#include "coop_task_fixture.h"
#include "ps/core/core.h"
#include "tests/test.h"

TEST(a_cut_waits_for_the_push_under_way, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_push(n, &calls[0], table, LONG_KEYS, NEVER_US);
    long_post_text(n, &calls[1], MR_OP_SAVE, 0);
    long_post_push(n, &calls[2], table, LONG_KEYS, NEVER_US); /* waits, and is not in the checkpoint */
    long_slices(4);                                           /* the push is about to change rows */
    fake_dp_wait_posted(0, 1);                                /* the cut */
    fake_dp_release(0);
    for (uint32_t i = 0; i < 3; i++)
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    uint64_t id = *(const uint64_t *)calls[1].reply.tensors[0].data;
    assert_float_equal(node_value(n, table, 0), -1, 0);
    while (node_restore(n, id)->status == MR_CHECKPOINT_RUNNING) {
    }
    for (uint64_t key = 0; key < LONG_KEYS; key++)
        assert_float_equal(node_value(n, table, key), 0, 0);
    long_end_all(calls, 3);
}

/* Pushes go on while a checkpoint is written: each hands over the rows it changes, in slices, and small ones
 * in between. */
TEST(a_checkpoint_holds_the_rows_as_of_its_cut, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[8] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_text(n, &calls[0], MR_OP_SAVE, 0);
    fake_dp_turn(0);
    fake_dp_turn(0);
    for (uint32_t i = 1; i < 8; i++)
        long_post_push(n, &calls[i], table, i % 2 == 1 ? LONG_KEYS : 50, NEVER_US);
    fake_dp_wait_posted(0, 1); /* the cut, in the same turn as the pushes */
    fake_dp_release(0);
    for (uint32_t i = 0; i < 8; i++)
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    uint64_t id = *(const uint64_t *)calls[0].reply.tensors[0].data;
    assert_float_equal(node_value(n, table, 0), -6, 0);
    assert_float_equal(node_value(n, table, LONG_KEYS - 1), -3, 0);
    while (node_restore(n, id)->status == MR_CHECKPOINT_RUNNING) {
    }
    for (uint64_t key = 0; key < LONG_KEYS; key++)
        assert_float_equal(node_value(n, table, key), 1, 0);
    long_end_all(calls, 8);
}

TEST(a_push_in_slices_keeps_its_room_in_a_checkpoint, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[2] = {0};
    uint32_t table = long_make_table(n);
    const struct ps_core *core = fake_dp_app(0);
    long_make_rows(n, table);
    long_hold();
    long_post_text(n, &calls[0], MR_OP_SAVE, 0);
    fake_dp_turn(0);
    fake_dp_turn(0);
    fake_dp_wait_posted(0, 1); /* the cut */
    long_post_push(n, &calls[1], table, LONG_KEYS, NEVER_US);
    long_slices(1);
    assert_non_null(core->save.writer);
    assert_true(core->save.reserved_bytes > LONG_KEYS * NODE_DIM * sizeof(float));
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    long_hold();
    assert_int_equal(core->save.reserved_bytes, 0);
    fake_dp_release(0);
    long_end_all(calls, 2);
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

TEST(a_push_that_cannot_be_answered_keeps_no_room, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    uint32_t table = long_make_table(n);
    struct ps_core *core = fake_dp_app(0);
    struct block *taken = NULL;
    long_make_rows(n, table);
    long_post_feed(n, &calls[0], table, 7, LONG_KEYS, 0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    long_hold();
    long_post_text(n, &calls[1], MR_OP_SAVE, 0);
    fake_dp_turn(0);
    fake_dp_turn(0);
    fake_dp_wait_posted(0, 1); /* the cut */
    long_post_lookup(n, &calls[2], table, LONG_KEYS);
    long_post_push_batch(n, &calls[3], 7, table, LONG_KEYS);
    while (core->coop_tasks.count + (core->coop_tasks.running != NULL) < 2)
        fake_dp_turn(0);
    assert_non_null(core->save.writer);
    core->save.wanted_bytes = core->save.capacity_bytes; /* the cursor waits */
    core->save.wanted_until_us = NEVER_US;
    uint64_t busy_before = core->ep->counters.busy_sent;
    while (core->ep->counters.busy_sent == busy_before) {
        take_memory(core->ep, &taken);
        fake_dp_turn(0);
    }
    uint64_t need_bytes = ps_save_need_bytes(core, ps_core_feature(core, table), LONG_KEYS);
    uint64_t reserved_bytes = core->save.reserved_bytes;
    core->save.wanted_until_us = 0;
    give_memory(core->ep, taken);
    fake_dp_release(0);
    for (uint32_t i = 0; i < 4; i++)
        node_check(node_wait(n, &calls[i]), MR_OK, NULL);
    assert_true(need_bytes > 0);
    assert_int_equal(reserved_bytes, 0);
    assert_float_equal(node_value(n, table, 0), 0, 0);
    long_end_all(calls, 4);
}

TEST(a_freeze_falls_between_calls, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = long_make_table(n);
    long_hold();
    long_post_lookup(n, &calls[0], table, LONG_KEYS);
    long_post_freeze(n, &calls[1], MR_FREEZE_ALL);
    long_post_push(n, &calls[2], table, LONG_KEYS, NEVER_US);
    long_slices(2);
    fake_dp_wait_posted(0, 1);
    fake_dp_release(0);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    node_check(node_wait(n, &calls[2]), MR_FROZEN, NULL);
    assert_int_equal(node_counter(n, 0, "table.rows"), LONG_KEYS); /* all, not those before the freeze */
    long_end_all(calls, 3);
}

TEST(a_restore_falls_between_calls, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[3] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    uint64_t id = node_save(n);
    long_post_push(n, &calls[0], table, LONG_KEYS, NEVER_US);
    node_check(node_wait(n, &calls[0]), MR_OK, NULL);
    long_hold();
    long_post_lookup(n, &calls[0], table, LONG_KEYS);
    long_post_text(n, &calls[1], MR_OP_RESTORE, id);
    long_post_lookup(n, &calls[2], table, LONG_KEYS);
    long_slices(2);
    fake_dp_wait_posted(0, 1);
    fake_dp_release(0);
    const struct node_reply *before = node_wait(n, &calls[0]), *after = node_wait(n, &calls[2]);
    node_check(node_wait(n, &calls[1]), MR_OK, NULL);
    node_check(before, MR_OK, NULL);
    node_check(after, MR_OK, NULL);
    for (uint32_t i = 0; i < LONG_KEYS * NODE_DIM; i++) {
        assert_float_equal(((const float *)before->tensors[0].data)[i], 0, 0);
        assert_float_equal(((const float *)after->tensors[0].data)[i], 1, 0);
    }
    long_end_all(calls, 3);
}

TEST(a_node_stops_in_the_middle, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct node_call calls[4] = {0};
    uint32_t table = long_make_table(n);
    long_make_rows(n, table);
    long_hold();
    long_post_feed(n, &calls[0], table, 8, LONG_KEYS, 0);
    long_post_push(n, &calls[1], table, LONG_KEYS, NEVER_US);
    long_post_lookup(n, &calls[2], table, LONG_KEYS);
    long_slices(2);
    fake_dp_release(0);
    node_stop(n);
    node_start(n, 1);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
    long_end_all(calls, 4);
}
