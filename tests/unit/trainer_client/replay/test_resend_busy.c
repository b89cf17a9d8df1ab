/* A client with `replay`, and a node that refuses pushes as it is busy: what counts, and what is sent
 * again. */
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/replay_fixture.h"

#define BUSY_MS 500u
/* Of a push that is to be refused until its deadline, and in between two attempts at that moment. */
#define TRIES 50u

static enum mr_status push_to_busy(struct replay_fixture *x, uint32_t busy_cores)
{
    struct mr_options options = {.step = 77, .deadline_ms = BUSY_MS};
    live_node_refuse(x->node, MR_OP_PUSH_GRAD, MR_BUSY, busy_cores);
    enum mr_status status = replay_push(x, &options, 1);

    live_node_refuse(x->node, MR_OP_PUSH_GRAD, MR_OK, 0);
    if (status == MR_BUSY && strstr(mr_last_error(), "moving what it has (millrace ctl status") == NULL)
        fail_msg("%s", mr_last_error());
    return status;
}

/* A node that has taken steps 1 to 5, and a push that every core only ever refuses. Where an attempt was in
 * flight at the deadline nobody can know that: from the start again. */
static void start_and_push_to_busy(struct replay_fixture *x, uint32_t cores)
{
    enum mr_status status = MR_UNKNOWN_OUTCOME;
    for (uint32_t tries = 0; tries < TRIES && status == MR_UNKNOWN_OUTCOME; tries++) {
        if (tries > 0)
            replay_stop(x);
        replay_start(x, cores, 0);
        replay_push_steps(x, 1, 5);
        status = push_to_busy(x, ~0u);
    }
    assert_int_equal(status, MR_BUSY);
}

static void not_pushed(struct replay_fixture *x)
{
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x->expected[i] -= 1;
}

/* What every core only ever refused is taken back: it is not sent again, and its number holds up no other. */
TEST(test_busy_until_the_deadline)
{
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        struct replay_fixture x;
        (void)state;
        start_and_push_to_busy(&x, cores);
        not_pushed(&x);
        assert_non_null(strstr(mr_last_error(), "has not executed it"));
        assert_int_equal(replay_info_of(&x).kept, 5 * cores);
        replay_push_steps(&x, 6, 10);
        replay_check_rows(&x);
        replay_crash(&x);
        replay_check_rows(&x);
        assert_int_equal(replay_info_of(&x).replayed, 10 * cores);
        live_node_save(x.node);
        replay_push_steps(&x, 11, 11);
        assert_int_equal(replay_info_of(&x).kept, cores);
        replay_stop(&x);
    }
}

/* The first push is refused until its deadline, the second until the node takes pushes again. */
static enum mr_status push_one_and_another(struct replay_fixture *x)
{
    struct mr_future *futures[2] = {NULL, NULL};
    struct mr_options first = {.step = 6, .deadline_ms = BUSY_MS, .future = &futures[0]};
    struct mr_options second = {.step = 7, .future = &futures[1]};
    live_node_refuse(x->node, MR_OP_PUSH_GRAD, MR_BUSY, 1);
    assert_int_equal(replay_push(x, &first, 1), MR_OK);
    not_pushed(x);
    assert_int_equal(replay_push(x, &second, 1), MR_OK);
    enum mr_status status = mr_future_wait(futures[0], NULL);

    live_node_refuse(x->node, MR_OP_PUSH_GRAD, MR_OK, 0);
    assert_int_equal(mr_future_wait(futures[1], NULL), MR_OK);
    mr_future_destroy(futures[0]);
    mr_future_destroy(futures[1]);
    return status;
}

/* Others have numbers above it. */
TEST(test_busy_before_others)
{
    struct replay_fixture x;
    enum mr_status status = MR_UNKNOWN_OUTCOME;
    for (uint32_t tries = 0; tries < TRIES && status == MR_UNKNOWN_OUTCOME; tries++) {
        if (tries > 0)
            replay_stop(&x);
        replay_start(&x, 1, 0);
        replay_push_steps(&x, 1, 5);
        status = push_one_and_another(&x);
    }
    assert_int_equal(status, MR_BUSY);
    replay_push_steps(&x, 8, 9);
    replay_check_rows(&x);
    live_node_save(x.node);
    while (replay_info_of(&x).kept > 1)
        replay_push_steps(&x, 10, 10);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The others have applied it: it stays one push. */
TEST(test_busy_on_one_core)
{
    struct replay_fixture x;
    replay_start(&x, 3, 0);
    replay_push_steps(&x, 1, 5);
    assert_int_equal(push_to_busy(&x, 2), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "must not be pushed again"));
    while (replay_info_of(&x).replaying)
        mr_client_progress(x.client);
    replay_check_rows(&x);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

TEST(test_busy_without_replay)
{
    struct replay_fixture x;
    enum mr_status status = MR_UNKNOWN_OUTCOME;
    for (uint32_t tries = 0; tries < TRIES && status == MR_UNKNOWN_OUTCOME; tries++) {
        if (tries > 0)
            replay_stop(&x);
        replay_start(&x, 1, 0);
        mr_client_destroy(x.client);
        struct mr_client_options options = {.server = live_node_address(x.node)};

        assert_int_equal(mr_client_create(&options, &x.client, NULL, 0), MR_OK);
        status = push_to_busy(&x, ~0u);
    }
    assert_int_equal(status, MR_BUSY);
    not_pushed(&x);
    replay_push_steps(&x, 1, 2);
    replay_check_rows(&x);
    replay_stop(&x);
}
