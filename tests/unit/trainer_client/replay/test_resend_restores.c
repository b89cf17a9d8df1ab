/* A client with `replay`, and a node that somebody restores, or that comes back as another: what is not sent
 * again. */
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/replay_fixture.h"
#include "tests/wait.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/replay/replay_hooks.h"
#include "dataplane/wire/base/clock.h"
#include "millrace_admin.h"
#include "tests/command.h"

#define HELD_US                                                                                              \
    300000u /* an answer that the client is to wait for comes so late, if it does not ask before */

/* Somebody restores the node: what it took is not brought back by a replay, whether the client had heard of
 * it or not. */
TEST(test_restored_by_call_stays_so)
{
    for (uint32_t heard = 0; heard < 2; heard++) {
        for (uint32_t cores = 1; cores <= 3; cores++) {
            struct replay_fixture x;
            (void)state;
            replay_start(&x, 2, 0);
            replay_push_steps(&x, 1, 10);
            live_node_save(x.node);
            replay_push_steps(&x, 11, 30);
            live_node_take_back(x.node, 0);
            for (uint32_t i = 0; i < REPLAY_KEYS; i++)
                x.expected[i] -= 20;
            if (heard) {
                replay_push_steps(&x, 31, 35);
                replay_check_rows(&x);
            }
            live_node_kill(x.node);
            live_node_restart_with(x.node, cores);
            replay_check_rows(&x);
            replay_push_steps(&x, 36, 40); /* nothing of it counts as lost */
            replay_crash(&x);
            replay_check_rows(&x);
            replay_stop(&x);
        }
    }
}

/* The node comes back with so many cores, and is restored just before it executes the n-th push that its
 * client sends again, or the n-th at one core. */
static void hold_and_take_back(struct replay_fixture *x, uint32_t n, uint32_t core, uint32_t cores)
{
    atomic_store(&x->node->hold_core, core);
    atomic_store(&x->node->hold_at, n);
    live_node_restart_with(x->node, cores);
    WAIT_UNTIL(mr_client_progress(x->client), atomic_load(&x->node->is_held));
    live_node_take_back(x->node, 0);
    const uint32_t lists = atomic_load(&x->node->asked[MR_OP_LIST]);
    const uint64_t until_us = mr_clock_us() + HELD_US;
    while (core != LIVE_ALL_CORES && mr_clock_us() < until_us &&
           atomic_load(&x->node->asked[MR_OP_LIST]) == lists)
        (void)mr_client_progress(x->client);
    atomic_store(&x->node->is_let_go, true);
}

/* The restore comes while its client sends again what it takes. */
TEST(test_restored_while_it_is_sent_again)
{
    static const uint32_t at[] = {1, 2, 7, 20};
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t cores = 1; cores <= 3; cores++) {
            struct replay_fixture x;
            replay_start(&x, 2, 0);
            replay_push_steps(&x, 1, 5);
            live_node_save(x.node);
            replay_push_steps(&x, 6, 25);
            live_node_kill(x.node);
            hold_and_take_back(&x, at[i], LIVE_ALL_CORES, cores);
            for (uint32_t k = 0; k < REPLAY_KEYS; k++)
                x.expected[k] -= 20;
            replay_check_rows(&x);
            replay_push_steps(&x, 26, 30);
            replay_crash(&x);
            replay_check_rows(&x);
            replay_stop(&x);
        }
    }
}

/* It comes while one is in flight, whose answer is late: the client asks what was taken only when it has that
 * one back. */
TEST(test_restored_under_one_that_is_in_flight)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    live_node_save(x.node);
    replay_push_steps(&x, 6, 25);
    live_node_kill(x.node);
    hold_and_take_back(&x, 1, 1, 2);
    for (uint32_t k = 0; k < REPLAY_KEYS; k++)
        x.expected[k] -= 20;
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The numbers that the restore took are marked, so that what comes after it can become durable. */
TEST(test_restored_by_call_leaves_no_gap)
{
    struct replay_fixture x;
    replay_start(&x, 1, 0);
    live_node_save(x.node);
    replay_push_steps(&x, 1, 20);
    live_node_take_back(x.node, 0);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    replay_push_steps(&x, 21, 25);
    while (replay_info_of(&x).replaying || replay_info_of(&x).oldest_step != 21)
        mr_client_progress(x.client);
    live_node_save(x.node);
    replay_push_steps(&x, 26, 27);
    assert_int_equal(replay_info_of(&x).kept, 2);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* To a client that came after a restore it is no news: it marks no numbers at the next restart. */
TEST(test_restored_before_it_came)
{
    struct mr_feature feature = replay_table("t");
    struct replay_fixture x;
    replay_start(&x, 1, 0);
    live_node_take_back(x.node, 0);
    mr_client_destroy(x.client);
    x.client = replay_connect(x.node, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &x.table), MR_OK);
    replay_push_steps(&x, 1, 10);
    live_node_save(x.node);
    replay_push_steps(&x, 11, 11);
    assert_int_equal(replay_info_of(&x).kept, 1);
    replay_crash(&x);
    replay_push_steps(&x, 12, 12);
    replay_check_rows(&x);
    assert_int_equal(live_node_repeated(x.node), 0);
    replay_stop(&x);
}

/* An answer of before a restore comes when the client has looked already at what that took: it looks again,
 * or the number would stay open at the node, and with it all that comes after. */
TEST(test_an_answer_of_before_a_restore_comes_late)
{
    struct replay_fixture x;
    struct mr_future *future = NULL;
    struct mr_options options = {.step = 6, .future = &future};
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    atomic_store(&x.node->late, 2);
    const uint64_t applied = live_node_applied(x.node);

    assert_int_equal(replay_push(&x, &options, 1), MR_OK);
    while (live_node_applied(x.node) < applied + 2)
        mr_client_progress(x.client);
    live_node_take_back(x.node, 0);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    while (x.client->nodes[0]->replay->probe.restores < 1 || !mrc_state_probe_is_over(x.client->nodes[0])) {
        replay_check_rows(&x); /* its answers say that there was a restore */
        mr_client_progress(x.client);
    }
    atomic_store(&x.node->late, 0);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    replay_push_steps(&x, 7, 9);
    WAIT_UNTIL(live_node_save(x.node), replay_push_steps(&x, 10, 10), replay_info_of(&x).kept <= 2);
    assert_int_equal(replay_info_of(&x).kept, 2);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* Has the node find other checkpoints at its next start. */
static void use_directory(struct replay_fixture *x, const char *name)
{
    (void)snprintf(x->node->config.checkpoint_directory, sizeof(x->node->config.checkpoint_directory),
                   "%s/%s", x->node->directory, name);
}

/* A directory with the same table, that has seen three restores, and a copy of it that has seen one. */
static void make_other_directories(struct replay_fixture *x)
{
    const struct mr_feature feature = replay_table("t");
    uint32_t table;
    use_directory(x, "other");
    live_node_restart_aside(x->node);
    struct mr_client *client = live_node_operator(x->node);
    assert_int_equal(mr_create(client, NULL, &feature, 1, &table), MR_OK);
    mr_client_destroy(client);
    live_node_fill(x->node, table, REPLAY_DIM, x->keys, REPLAY_KEYS);
    live_node_save(x->node);
    live_node_take_back(x->node, 0);
    assert_int_equal(command_run("cp -a %s/other %s/older", x->node->directory, x->node->directory), 0);
    live_node_take_back(x->node, 0);
    live_node_take_back(x->node, 0);
    live_node_kill(x->node);
}

/* Another directory counts its restores by itself: nothing follows from a higher count. */
TEST(test_restores_of_another_directory)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    live_node_kill(x.node);
    make_other_directories(&x);
    live_node_restart(x.node);
    replay_check_rows(&x);
    replay_push_steps(&x, 6, 8);
    /* And an older copy of it: what was answered meanwhile is due all the same. */
    live_node_kill(x.node);
    use_directory(&x, "older");
    live_node_restart(x.node);
    replay_check_rows(&x);
    live_node_take_back(x.node, 0);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* One feature was put back by a restore: only what it had is taken. */
TEST(test_one_feature_restored_by_call)
{
    struct replay_fixture x;
    struct mr_feature feature = replay_table("beside");
    uint64_t key = 5;
    float ones[REPLAY_DIM] = {1, 1};
    struct mr_reply *reply;
    uint32_t beside;
    replay_start(&x, 1, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &beside), MR_OK);
    live_node_fill(x.node, beside, REPLAY_DIM, &key, 1);
    live_node_save(x.node);
    replay_push_steps(&x, 1, 9);
    assert_int_equal(mr_push_gradients(x.client, NULL, beside, &key, 1, REPLAY_DIM, ones), MR_OK);
    const struct mr_restore_name name = {"t", NULL};
    const struct mr_restore_options what = {
        .bytes = sizeof(what), .names = &name, .name_count = 1, .replace = true};
    struct mr_client *other = live_node_operator(x.node);

    assert_int_equal(mr_restore(other, NULL, &what, NULL), MR_OK);
    mr_client_destroy(other);
    replay_crash(&x); /* before its client has heard of it */
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    replay_check_rows(&x);
    assert_int_equal(mr_lookup(x.client, NULL, beside, &key, 1, &reply), MR_OK);
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[0] == live_value(5, 0) - 1);
    mr_reply_free(reply);
    replay_stop(&x);
}

/* A directory that was wiped, or none and two starts in one second: the number of the start is the same. */
TEST(test_incarnation_comes_again)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 10);
    live_node_kill(x.node);
    x.node->incarnation = mr_client_incarnation(x.client);
    live_node_restart(x.node);
    replay_check_rows(&x);
    assert_int_equal(replay_info_of(&x).replayed, 2 * 10);
    replay_stop(&x);
}

/* After a kill: the node comes back with a directory that knows nothing of number 2, and with another job's
 * table under it. */
static void give_number_2_to_another(struct replay_fixture *x)
{
    const struct mr_feature feature = replay_table("another");
    uint32_t number;
    replay_put_back(x, "before");
    live_node_restart_aside(x->node);
    struct mr_client *client = live_node_operator(x->node);
    assert_int_equal(mr_create(client, NULL, &feature, 1, &number), MR_OK);
    assert_int_equal(number, 2);
    mr_client_destroy(client);
    live_node_fill(x->node, number, REPLAY_DIM, (const uint64_t[]){5}, 1);
    live_node_save(x->node);
    live_node_kill(x->node);
    live_node_restart(x->node);
}

TEST(test_reused_number_is_not_taken_for_it)
{
    for (uint32_t cores = 1; cores <= 2; cores++) {
        struct replay_fixture x;
        struct mr_feature feature = replay_table("later");
        uint64_t key = 5;
        float ones[REPLAY_DIM] = {1, 1};
        struct mr_future *future = NULL;
        struct mr_options in_flight = {.future = &future}, step = {.step = 9};
        struct mr_reply *reply;
        uint32_t later, again;
        (void)state;
        replay_start(&x, cores, 0);
        replay_copy_directory(&x, "before");
        assert_int_equal(mr_create(x.client, NULL, &feature, 1, &later), MR_OK);
        live_node_fill(x.node, later, REPLAY_DIM, &key, 1);
        assert_int_equal(mr_push_gradients(x.client, &step, later, &key, 1, REPLAY_DIM, ones), MR_OK);
        live_node_kill(x.node);
        assert_int_equal(mr_push_gradients(x.client, &in_flight, later, &key, 1, REPLAY_DIM, ones), MR_OK);
        give_number_2_to_another(&x);
        assert_int_equal(mr_future_wait(future, NULL), MR_UNKNOWN_TABLE);
        assert_non_null(strstr(mr_last_error(), "no longer that feature's"));
        mr_future_destroy(future);
        assert_int_equal(mr_lookup(x.client, NULL, later, &key, 1, NULL), MR_UNKNOWN_TABLE);
        assert_non_null(strstr(mr_last_error(), "number 2 was \"later\""));
        assert_int_equal(mr_push_gradients(x.client, NULL, later, &key, 1, REPLAY_DIM, ones),
                         MR_UNKNOWN_TABLE);
        assert_int_equal(replay_push(&x, &step, 0), MR_UNKNOWN_OUTCOME);
        assert_non_null(strstr(mr_last_error(), "refused 1 push of step 9"));
        feature = replay_table("another"); /* who asks for it may use it */
        assert_int_equal(mr_create(x.client, NULL, &feature, 1, &again), MR_OK);
        assert_int_equal(again, later);
        assert_int_equal(mr_lookup(x.client, NULL, again, &key, 1, &reply), MR_OK);
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[0] ==
                    live_value(key, 0)); /* as it was */
        mr_reply_free(reply);
        replay_stop(&x);
    }
}

/* The answer came before the node was restarted, and is taken in after it. */
TEST(test_answer_from_before_a_restart)
{
    struct replay_fixture x;
    struct mr_feature feature = replay_table("later");
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    uint64_t key = 5;
    uint32_t later = 0;
    replay_start(&x, 2, 0);
    replay_copy_directory(&x, "before");
    assert_int_equal(mr_create(x.client, &options, &feature, 1, &later), MR_OK);
    while (!mr_future_done(future)) {
    }
    live_node_kill(x.node);
    give_number_2_to_another(&x);
    replay_check_rows(&x); /* the client has noticed */
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    const struct mr_feature *known = mrc_features_get(&x.client->features, later);

    assert_true(known == NULL || strcmp(known->name, "another") == 0);
    assert_int_equal(mr_lookup(x.client, NULL, later, &key, 1, NULL), MR_UNKNOWN_TABLE);
    replay_check_rows(&x);
    assert_int_equal(mr_lookup(x.client, NULL, later, &key, 1, NULL), MR_UNKNOWN_TABLE);
    replay_stop(&x);
}
