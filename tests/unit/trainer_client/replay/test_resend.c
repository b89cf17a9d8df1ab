/* A client with `replay` against a node that goes back to its last checkpoint: what comes out is what an
 * undisturbed run would have made. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/replay_fixture.h"
#include "tests/wait.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/replay/resend.h"
#include "trainer_client/replay/replay_hooks.h"
#include "dataplane/wire/base/clock.h"

enum { FUTURES = 64 };

TEST(test_off_by_default)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client_options options = {.server = live_node_address(node)};
    struct mr_client *client = NULL;
    struct mr_replay_info info;
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    mr_client_replay_info(client, &info);
    assert_false(info.on);
    mr_client_destroy(client);
    setenv("MILLRACE_REPLAY", "on", 1);
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    mr_client_replay_info(client, &info);
    assert_true(info.on);
    mr_client_destroy(client);
    setenv("MILLRACE_REPLAY", "off", 1);
    options.replay = true;
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    mr_client_replay_info(client, &info);
    assert_false(info.on);
    mr_client_destroy(client);
    setenv("MILLRACE_REPLAY", "perhaps", 1);
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "MILLRACE_REPLAY"));
    unsetenv("MILLRACE_REPLAY");
    live_node_destroy(node);
}

TEST(test_what_was_lost_comes_back)
{
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        struct replay_fixture x;
        (void)state;
        replay_start(&x, cores, 0);
        replay_push_steps(&x, 1, 20);
        assert_int_equal(replay_info_of(&x).kept, 20 * cores);
        assert_int_equal(replay_info_of(&x).oldest_step, 1);
        replay_crash(&x);
        replay_check_rows(&x);
        assert_int_equal(replay_info_of(&x).replayed, 20 * cores);
        assert_false(replay_info_of(&x).replaying);
        replay_push_steps(&x, 21, 30);
        replay_check_rows(&x);
        replay_stop(&x);
    }
}

TEST(test_saved_pushes_are_let_go)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 10);
    live_node_save(x.node);
    replay_push_steps(&x, 11, 12);
    assert_int_equal(replay_info_of(&x).kept, 2 * 2);
    assert_int_equal(replay_info_of(&x).oldest_step, 11);
    uint64_t applied = live_node_applied(x.node);

    replay_crash(&x);
    replay_check_rows(&x);
    assert_int_equal(live_node_applied(x.node) - applied, 2 * 2);
    replay_stop(&x);
}

/* Nothing was said to the other cores since: they get theirs again before the save goes out. */
TEST(test_a_save_comes_behind_all_of_it)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct replay_fixture x;
        struct mr_save_options wanted = {.bytes = sizeof(wanted)};
        uint64_t number;
        (void)state;
        replay_start(&x, 3, 0);
        replay_push_steps(&x, 1, 20);
        replay_crash(&x);
        uint64_t applied = live_node_applied(x.node);

        assert_int_equal(mr_save(x.client, NULL, &wanted, NULL, i == 0 ? NULL : &number), MR_OK);
        assert_int_equal(atomic_load(&x.node->applied_at_save) - applied, 3 * 20);
        replay_stop(&x);
    }
}

static void *save_in_thread(void *arg)
{
    const struct replay_fixture *x = arg;
    return (void *)(uintptr_t)save_into(x->client, NULL, NULL, NULL);
}

/* The server is killed while it has the save and has not answered, twice: a save is asked of the next one,
 * and after all pushes. */
TEST(test_a_save_that_dies_with_the_server_is_made_again)
{
    struct replay_fixture x;
    pthread_t saver;
    void *status;
    replay_start(&x, 3, 0);
    const uint64_t applied = live_node_applied(x.node);
    const uint32_t saves = atomic_load(&x.node->asked[MR_OP_SAVE]);

    replay_push_steps(&x, 1, 20);
    live_node_refuse(x.node, MR_OP_SAVE, LIVE_SILENT, LIVE_ALL_CORES);
    assert_int_equal(pthread_create(&saver, NULL, save_in_thread, &x), 0);
    for (uint32_t i = 1; i <= 2; i++) {
        WAIT_UNTIL(atomic_load(&x.node->asked[MR_OP_SAVE]) == saves + i);
        live_node_kill(x.node);
        live_node_refuse(x.node, MR_OP_SAVE, i < 2 ? LIVE_SILENT : MR_OK, LIVE_ALL_CORES);
        live_node_restart(x.node);
    }
    assert_int_equal(pthread_join(saver, &status), 0);
    assert_int_equal((uintptr_t)status, MR_OK);
    assert_int_equal(atomic_load(&x.node->applied_at_save) - applied, 3 * 3 * 20);
    replay_stop(&x);
}

/* Nothing can be said of an asynchronous one, whose caller may have gone on. */
TEST(test_a_save_in_flight_is_not_made_again)
{
    struct replay_fixture x;
    struct mr_future *future = NULL;
    const struct mr_options options = {.future = &future};
    replay_start(&x, 1, 0);
    const uint32_t saves = atomic_load(&x.node->asked[MR_OP_SAVE]);

    live_node_refuse(x.node, MR_OP_SAVE, LIVE_SILENT, LIVE_ALL_CORES);
    assert_int_equal(save_into(x.client, &options, NULL, NULL), MR_OK);
    WAIT_UNTIL(atomic_load(&x.node->asked[MR_OP_SAVE]) == saves + 1);
    replay_crash(&x);
    assert_int_equal(mr_future_wait(future, NULL), MR_UNKNOWN_OUTCOME);
    mr_future_destroy(future);
    assert_int_equal(atomic_load(&x.node->asked[MR_OP_SAVE]), saves + 1);
    replay_stop(&x);
}

TEST(test_a_save_that_cannot_come_behind_it_is_not_sent)
{
    struct replay_fixture x;
    struct mr_options soon = {.deadline_ms = 300};
    replay_start(&x, 3, 0);
    replay_push_steps(&x, 1, 3);
    const uint32_t saves = atomic_load(&x.node->asked[MR_OP_SAVE]);

    live_node_kill(x.node);
    assert_int_not_equal(save_into(x.client, &soon, NULL, NULL), MR_OK);
    assert_non_null(strstr(mr_last_error(), "the save was not sent"));
    live_node_restart(x.node);
    replay_check_rows(&x);
    assert_int_equal(atomic_load(&x.node->asked[MR_OP_SAVE]), saves);
    replay_stop(&x);
}

/* The server learns which pushes' lookups it has lost: of those sent again, of those in flight, and of those
 * made since. */
TEST(test_lost_lookups_are_told)
{
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        struct replay_fixture x;
        (void)state;
        replay_start(&x, cores, 0);
        replay_push_steps(&x, 1, 5); /* nothing was looked up for these */
        replay_check_rows(&x);
        replay_push_steps(&x, 6, 9);
        assert_int_equal(atomic_load(&x.node->unseen), 0);
        replay_crash(&x);
        replay_push_steps(&x, 10, 11); /* the first before the client knows */
        assert_int_equal(atomic_load(&x.node->unseen), 6 * cores);
        replay_check_rows(&x);
        replay_push_steps(&x, 12, 13);
        assert_int_equal(atomic_load(&x.node->unseen), 6 * cores);
        replay_crash(&x);
        replay_check_rows(&x);
        assert_int_equal(atomic_load(&x.node->unseen), (6 + 8) * cores);
        replay_stop(&x);
    }
}

/* Twice in a row, the second time while pushes are sent again for the first: some of them have got there, and
 * not all. */
TEST(test_crash_upon_crash)
{
    struct replay_fixture x;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 200);
    replay_crash(&x);
    uint64_t applied = live_node_applied(x.node);

    atomic_store(&x.node->dumb, true); /* so that the first to get there stay unanswered */
    while (live_node_applied(x.node) == applied)
        mr_client_progress(x.client);
    assert_true(replay_info_of(&x).replaying);
    live_node_kill(x.node);
    atomic_store(&x.node->dumb, false);
    live_node_restart(x.node);
    replay_push_steps(&x, 201, 210);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The server applies a push and dies before it answers, with or without a checkpoint that holds it. */
TEST(test_answer_lost)
{
    for (uint32_t saved = 0; saved < 2; saved++) {
        struct replay_fixture x;
        struct mr_future *future = NULL;
        struct mr_pushed pushed = {.sent = 77};
        struct mr_options options = {.step = 6, .future = &future, .pushed = &pushed};
        (void)state;
        replay_start(&x, 1, 0);
        replay_push_steps(&x, 1, 5);
        uint64_t applied = live_node_applied(x.node);

        atomic_store(&x.node->dumb, true);
        assert_int_equal(replay_push(&x, &options, 1), MR_OK);
        while (live_node_applied(x.node) == applied)
            mr_client_progress(x.client);
        if (saved)
            live_node_save(x.node);
        live_node_kill(x.node);
        atomic_store(&x.node->dumb, false);
        live_node_restart(x.node);
        assert_int_equal(mr_future_wait(future, NULL), MR_OK);
        mr_future_destroy(future);
        /* What the checkpoint held was counted before the crash, for an answer that nobody has. */
        assert_int_equal(pushed.is_known, !saved);
        assert_int_equal(pushed.sent, saved ? 0 : REPLAY_KEYS);
        /* The oldest that was kept asks what the checkpoint held; then there is the one that was not
         * answered. */
        assert_int_equal(live_node_repeated(x.node), saved * 2);
        replay_check_rows(&x);
        replay_stop(&x);
    }
}

/* The deadline passes while the server is away: the caller hears so, with the step, and the push is applied
 * all the same. */
TEST(test_deadline_while_away)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 77, .deadline_ms = 50};
    replay_start(&x, 1, 0);
    replay_push_steps(&x, 1, 5);
    live_node_kill(x.node);
    assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "step 77"));
    assert_non_null(strstr(mr_last_error(), "must not be pushed again"));
    live_node_restart(x.node);
    replay_push_steps(&x, 78, 80);
    while (replay_info_of(&x).replaying)
        mr_client_progress(x.client);
    replay_check_rows(&x);
    replay_stop(&x);
}

TEST(test_given_up_is_told_once)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 101};
    char expected[64];
    replay_start(&x, 1, 8192);
    replay_push_steps(&x, 1, 50);
    struct mr_replay_info info = replay_info_of(&x);

    assert_true(info.given_up > 0 && info.kept_bytes <= 8192);
    replay_crash(&x);
    replay_push_steps(
        &x, 51,
        /* finds no room before the restart is noticed; its answer shows what the server was restored from */
        51);
    info = replay_info_of(&x);
    snprintf(expected, sizeof(expected), "steps 1..%llu", (unsigned long long)info.given_up);
    assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), expected));
    assert_non_null(strstr(mr_last_error(), "raise replay_bytes, or save more often"));
    assert_non_null(strstr(mr_last_error(), "step 101 was not sent"));
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] -= (float)(1 + info.given_up);
    replay_push_steps(&x, 101, 102);
    replay_check_rows(&x);
    replay_stop(&x);
}

static enum mr_status push_key(struct replay_fixture *x, uint64_t step, uint32_t i)
{
    const float ones[REPLAY_DIM] = {1, 1};
    const struct mr_options options = {.step = step};
    x->expected[i] += 1;
    return mr_push_gradients(x->client, &options, x->table, &x->keys[i], 1, REPLAY_DIM, ones);
}

/* The first of the keys that is this core's. */
static uint32_t key_of_core(const struct replay_fixture *x, uint16_t core)
{
    uint32_t i = 0;
    while (live_owner(x->node->core_count, mr_partition_of(mr_key_hash(x->keys[i], 0))) != core)
        i++;
    return i;
}

/* Whose core it was no caller knows: the next push reports it, to whatever core it goes. */
TEST(test_given_up_on_one_core_is_told_on_another)
{
    for (uint16_t lossy = 0; lossy < 2; lossy++) {
        struct replay_fixture x;
        (void)state;
        replay_start(&x, 2, 2048);
        const uint32_t mine = key_of_core(&x, lossy), other = key_of_core(&x, 1 - lossy);

        for (uint64_t step = 1; step <= 50; step++)
            assert_int_equal(push_key(&x, step, mine), MR_OK);
        const uint64_t lost = replay_info_of(&x).given_up;

        assert_true(lost > 0);
        replay_crash(&x);
        x.expected[mine] -= (float)lost;
        replay_check_rows(&x); /* what was kept is there again, so the core has answered */
        assert_int_equal(push_key(&x, 51, other), MR_UNKNOWN_OUTCOME);
        assert_non_null(strstr(mr_last_error(), "of steps 1.."));
        x.expected[other] -= 1;
        assert_int_equal(push_key(&x, 51, other), MR_OK);
        replay_check_rows(&x);
        replay_stop(&x);
    }
}

TEST(test_given_up_but_saved_is_not_told)
{
    struct replay_fixture x;
    replay_start(&x, 1, 8192);
    replay_push_steps(&x, 1, 50);
    live_node_save(x.node);
    replay_crash(&x);
    replay_push_steps(&x, 51, 53);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* Many at once, from before the crash to after it. */
TEST(test_many_under_way)
{
    struct replay_fixture x;
    struct mr_future *futures[FUTURES];
    replay_start(&x, 3, 0);
    for (uint32_t i = 0; i < FUTURES; i++) {
        struct mr_options options = {.step = i, .future = &futures[i]};
        if (i == FUTURES / 2) {
            live_node_save(x.node);
            live_node_kill(x.node);
        }
        if (i == FUTURES * 3 / 4)
            live_node_restart(x.node);
        if (replay_push(&x, &options, 1) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_client_progress(x.client);
    }
    for (uint32_t i = 0; i < FUTURES; i++) {
        if (mr_future_wait(futures[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(futures[i]);
    }
    replay_check_rows(&x);
    replay_stop(&x);
}

/* Bags, variables and batches are pushes, too. */
TEST(test_other_pushes)
{
    struct replay_fixture x;
    uint32_t offsets[2] = {0, REPLAY_KEYS}, dims[1] = {4}, variable;
    struct mr_feature feature = mr_feature_variable("v", 1, dims);
    float gradient[4] = {1, 2, 3, 4};
    struct mr_reply *reply;
    replay_start(&x, 2, 0);
    feature.learning_rate = 1;
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &variable), MR_OK);
    live_node_save(x.node);
    assert_int_equal(mr_push_gradients_bags(x.client, NULL, x.table, x.keys, NULL, offsets, 1, REPLAY_DIM,
                                            (float[]){2, 2}),
                     MR_OK);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] += 2;
    assert_int_equal(mr_variable_push(x.client, NULL, variable, 1, 2, (float[]){50, 60}), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x.client, NULL, variable, 4, gradient), MR_OK);
    replay_crash(&x);
    replay_check_rows(&x);
    assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 0, &reply), MR_OK);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[i] == (i == 1   ? 50
                                                                            : i == 2 ? 60
                                                                                     : 0) -
                                                                               gradient[i]);
    mr_reply_free(reply);
    replay_stop(&x);
}

/* The table was made after the last checkpoint: what was pushed to it is lost, and that is said. */
TEST(test_refused_when_sent_again)
{
    struct replay_fixture x;
    struct mr_feature feature = mr_feature_table("later", REPLAY_DIM);
    uint64_t key = 5;
    float gradient[REPLAY_DIM] = {1, 1};
    struct mr_options options = {.step = 9};
    uint32_t later;
    replay_start(&x, 1, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &later), MR_OK);
    assert_int_equal(mr_push_gradients(x.client, &options, later, &key, 1, REPLAY_DIM, gradient), MR_OK);
    replay_crash(&x);
    replay_check_rows(&x);
    options.step = 10;
    assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "refused 1 push of step 9"));
    assert_int_equal(replay_info_of(&x).dropped, 1);
    replay_stop(&x);
}

TEST(test_the_earliest_link_wakes_the_client)
{
    static struct mrc_link_replay replays[3] = {
        {.resend_us = 7}, {.resend_us = 5}, {.resend_us = UINT64_MAX}};
    static struct mrc_link links[3] = {
        {.replay = &replays[0]}, {.replay = &replays[1]}, {.replay = &replays[2]}};
    static struct mrc_link *all[3] = {&links[0], &links[1], &links[2]};
    static struct mr_client client;
    assert_int_equal(mrc_resend_next_us(&client), UINT64_MAX);
    client.links = all;
    client.link_count = 3;
    assert_int_equal(mrc_resend_next_us(&client), 5);
}
