/* The cut of a node with several cores is one instant: no core goes on behind its own cut while another has
 * yet to make it. */
#include "fake_dp.h"
#include "node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define LOOKS 20u

static void save_instant_push(struct node_fixture *n, uint32_t core, uint32_t table, uint64_t *key,
                              struct node_call *call)
{
    static const float gradient[NODE_DIM] = {-1, -1, -1, -1};
    const uint32_t head[4] = {table, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    const struct mr_call_options options = {.op = MR_OP_PUSH_GRAD, .deadline_us = UINT64_MAX};
    node_post(n, core, call, &options, tensors, 4);
}

/* Core 2 stands still when the cut is asked for: what comes to core 1 then has to wait for it. Core 1 would
 * answer at once if it had made its cut alone, and a push sent behind that answer could be in core 2's. */
TEST(no_core_goes_on_before_all_have_cut, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature feature = node_table("t", 0);
    feature.learning_rate = 1;
    const uint32_t table = node_create(n, &feature);
    uint64_t key = 1;
    while (node_core_of_key(n, key, 0) != 1)
        key++;
    struct node_call before = {0}, behind = {0};
    struct mr_tensor lookup = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, 1, MR_OP_LOOKUP, (uint16_t)table, &lookup, 1), MR_OK, NULL);
    save_instant_push(n, 1, table, &key, &before);
    node_check(node_wait(n, &before), MR_OK, NULL);

    fake_dp_hold(2);
    fake_dp_hold(1);
    fake_dp_wait_held(2);
    fake_dp_wait_held(1);
    struct mr_tensor directory = mr_tensor_1d(MR_U8, 0, NULL);
    node_begin(n, 0, MR_OP_SAVE, 0, &directory, 1);
    fake_dp_wait_posted(1, 1);
    fake_dp_wait_posted(2, 1);
    save_instant_push(n, 1, table, &key, &behind);
    fake_dp_release(1);
    for (uint32_t i = 0; i < LOOKS && !behind.is_answered; i++) {
        node_look(n);
        wait_pause();
    }
    const bool went_on = behind.is_answered;
    fake_dp_release(2);
    assert_false(went_on);
    node_check(node_end(n), MR_OK, NULL);
    node_check(node_wait(n, &behind), MR_OK, NULL);
    assert_true(node_value(n, table, key) == 2);

    node_wait_saved(n);
    node_check(node_restore(n, 1), MR_OK, NULL);
    assert_true(node_value(n, table, key) == 1);
    node_call_end(&before);
    node_call_end(&behind);
}
