/* A client with `replay` against a node that goes back to its last checkpoint: what comes out is what an
 * undisturbed run would have made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/unit/trainer_client/replay_fixture.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/replay/resend.h"
#include "trainer_client/socket/clock.h"

enum { FUTURES = 64 };

static void test_off_by_default(void **state)
{
    struct fake_node *node = fake_node_start(1);
    struct mr_client_options options = {.server = fake_node_address(node)};
    struct mr_client *client = NULL;
    struct mr_replay_info info;

    (void)state;
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
    fake_node_destroy(node);
}

static void test_what_was_lost_comes_back(void **state)
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

static void test_saved_pushes_are_let_go(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 10);
    fake_node_save(x.node);
    replay_push_steps(&x, 11, 12);
    assert_int_equal(replay_info_of(&x).kept, 2 * 2);
    assert_int_equal(replay_info_of(&x).oldest_step, 11);
    uint64_t applied = atomic_load(&x.node->applied);

    replay_crash(&x);
    replay_check_rows(&x);
    assert_int_equal(atomic_load(&x.node->applied) - applied, 2 * 2);
    replay_stop(&x);
}

/* Nothing was said to the other cores since: they get theirs again before the save goes out. */
static void test_a_save_comes_behind_all_of_it(void **state)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct replay_fixture x;
        struct mr_save_options wish = {.bytes = sizeof(wish), .directory = "/dir"};

        (void)state;
        replay_start(&x, 3, 0);
        replay_push_steps(&x, 1, 20);
        replay_crash(&x);
        uint64_t applied = atomic_load(&x.node->applied);

        /* The node answers as one of old, without the number of the save. */
        if (i == 0)
            assert_int_equal(mr_save(x.client, NULL, "/dir", NULL), MR_OK);
        else
            assert_int_equal(mr_checkpoint_save(x.client, NULL, &wish, NULL), MR_OK);
        assert_int_equal(atomic_load(&x.node->applied_at_save) - applied, 3 * 20);
        replay_stop(&x);
    }
}

static void test_a_save_that_cannot_come_behind_it_is_not_sent(void **state)
{
    struct replay_fixture x;
    struct mr_options soon = {.deadline_ms = 300};

    (void)state;
    replay_start(&x, 3, 0);
    replay_push_steps(&x, 1, 3);
    fake_node_kill(x.node);
    assert_int_not_equal(mr_save(x.client, &soon, "/dir", NULL), MR_OK);
    assert_non_null(strstr(mr_last_error(), "the save was not sent"));
    fake_node_restart(x.node);
    replay_check_rows(&x);
    assert_int_equal(x.node->checkpoint_id, 0);
    replay_stop(&x);
}

/* The server learns which pushes' lookups it has lost: of those sent again, of those under way, and of those
 * made since. */
static void test_lost_lookups_are_told(void **state)
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
static void test_crash_upon_crash(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 200);
    replay_crash(&x);
    uint64_t applied = atomic_load(&x.node->applied);

    atomic_store(&x.node->dumb, true); /* so that the first to get there stay unanswered */
    while (atomic_load(&x.node->applied) == applied)
        mr_client_progress(x.client);
    assert_true(replay_info_of(&x).replaying);
    fake_node_kill(x.node);
    atomic_store(&x.node->dumb, false);
    fake_node_restart(x.node);
    replay_push_steps(&x, 201, 210);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The server applies a push and dies before it answers, with or without a checkpoint that holds it. */
static void test_answer_lost(void **state)
{
    for (uint32_t saved = 0; saved < 2; saved++) {
        struct replay_fixture x;
        struct mr_future *future = NULL;
        struct mr_pushed pushed = {.sent = 77};
        struct mr_options options = {.step = 6, .future = &future, .pushed = &pushed};

        (void)state;
        replay_start(&x, 1, 0);
        replay_push_steps(&x, 1, 5);
        uint64_t applied = atomic_load(&x.node->applied);

        atomic_store(&x.node->dumb, true);
        assert_int_equal(replay_push(&x, &options, 1), MR_OK);
        while (atomic_load(&x.node->applied) == applied)
            mr_client_progress(x.client);
        if (saved)
            fake_node_save(x.node);
        fake_node_kill(x.node);
        atomic_store(&x.node->dumb, false);
        fake_node_restart(x.node);
        assert_int_equal(mr_future_wait(future, NULL), MR_OK);
        mr_future_destroy(future);
        /* What the checkpoint held was counted before the crash, for an answer that nobody has. */
        assert_int_equal(pushed.is_known, !saved);
        assert_int_equal(pushed.sent, saved ? 0 : REPLAY_KEYS);
        /* The oldest that was kept asks what the checkpoint held; then there is the one that was not
         * answered. */
        assert_int_equal(atomic_load(&x.node->known), saved * 2);
        replay_check_rows(&x);
        replay_stop(&x);
    }
}

/* The deadline passes while the server is away: the caller hears so, with the step, and the push is applied
 * all the same. */
static void test_deadline_while_away(void **state)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 77, .deadline_ms = 50};

    (void)state;
    replay_start(&x, 1, 0);
    replay_push_steps(&x, 1, 5);
    fake_node_kill(x.node);
    assert_int_equal(replay_push(&x, &options, 1), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "step 77"));
    assert_non_null(strstr(mr_last_error(), "must not be pushed again"));
    fake_node_restart(x.node);
    replay_push_steps(&x, 78, 80);
    while (replay_info_of(&x).replaying)
        mr_client_progress(x.client);
    replay_check_rows(&x);
    replay_stop(&x);
}

static enum mr_status push_to_busy(struct replay_fixture *x, uint32_t busy_cores)
{
    struct mr_options options = {.step = 77, .deadline_ms = 500};

    atomic_store(&x->node->busy, busy_cores);
    enum mr_status status = replay_push(x, &options, 1);

    atomic_store(&x->node->busy, 0);
    return status;
}

/* A node that has taken steps 1 to 5, and a push that every core only ever refuses. Where an attempt was in flight at
 * the deadline nobody can know that: from the start again. */
static void start_and_push_to_busy(struct replay_fixture *x, uint32_t cores)
{
    enum mr_status status = MR_UNKNOWN_OUTCOME;

    for (uint32_t tries = 0; tries < 50 && status == MR_UNKNOWN_OUTCOME; tries++) {
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
static void test_busy_until_the_deadline(void **state)
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
        fake_node_save(x.node);
        replay_push_steps(&x, 11, 11);
        assert_int_equal(replay_info_of(&x).kept, cores);
        replay_stop(&x);
    }
}

/* Others have numbers above it. */
static void test_busy_before_others(void **state)
{
    struct replay_fixture x;
    struct mr_future *futures[2] = {NULL, NULL};
    struct mr_options first = {.step = 6, .deadline_ms = 500, .future = &futures[0]};
    struct mr_options second = {.step = 7, .future = &futures[1]};

    (void)state;
    replay_start(&x, 1, 0);
    replay_push_steps(&x, 1, 5);
    atomic_store(&x.node->busy, 1);
    assert_int_equal(replay_push(&x, &first, 1), MR_OK);
    not_pushed(&x);
    assert_int_equal(replay_push(&x, &second, 1), MR_OK);
    assert_int_equal(mr_future_wait(futures[0], NULL), MR_BUSY);
    atomic_store(&x.node->busy, 0);
    assert_int_equal(mr_future_wait(futures[1], NULL), MR_OK);
    mr_future_destroy(futures[0]);
    mr_future_destroy(futures[1]);
    replay_push_steps(&x, 8, 9);
    replay_check_rows(&x);
    fake_node_save(x.node);
    while (replay_info_of(&x).kept > 1)
        replay_push_steps(&x, 10, 10);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* The others have applied it: it stays one push. */
static void test_busy_on_one_core(void **state)
{
    struct replay_fixture x;

    (void)state;
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

static void test_busy_without_replay(void **state)
{
    struct replay_fixture x;
    struct mr_client *with_replay;

    (void)state;
    replay_start(&x, 1, 0);
    struct mr_client_options options = {.server = fake_node_address(x.node)};

    with_replay = x.client;
    assert_int_equal(mr_client_create(&options, &x.client, NULL, 0), MR_OK);
    assert_int_equal(push_to_busy(&x, ~0u), MR_BUSY);
    not_pushed(&x);
    replay_push_steps(&x, 1, 2);
    replay_check_rows(&x);
    mr_client_destroy(x.client);
    x.client = with_replay;
    replay_stop(&x);
}

static void test_given_up_is_told_once(void **state)
{
    struct replay_fixture x;
    struct mr_options options = {.step = 101};
    char expected[64];

    (void)state;
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
    const struct mr_feature *f = &x->node->features[0].feature;
    uint32_t i = 0;

    while (fake_owner(x->node, mr_partition_of(mr_key_hash(x->keys[i], f->seed))) != core)
        i++;
    return i;
}

/* Whose core it was no caller knows: the next push reports it, to whatever core it goes. */
static void test_given_up_on_one_core_is_told_on_another(void **state)
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

static void test_given_up_but_saved_is_not_told(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 1, 8192);
    replay_push_steps(&x, 1, 50);
    fake_node_save(x.node);
    replay_crash(&x);
    replay_push_steps(&x, 51, 53);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* Many at once, from before the crash to behind it. */
static void test_many_under_way(void **state)
{
    struct replay_fixture x;
    struct mr_future *futures[FUTURES];

    (void)state;
    replay_start(&x, 3, 0);
    for (uint32_t i = 0; i < FUTURES; i++) {
        struct mr_options options = {.step = i, .future = &futures[i]};

        if (i == FUTURES / 2) {
            fake_node_save(x.node);
            fake_node_kill(x.node);
        }
        if (i == FUTURES * 3 / 4)
            fake_node_restart(x.node);
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
static void test_other_pushes(void **state)
{
    struct replay_fixture x;
    uint32_t offsets[2] = {0, REPLAY_KEYS}, dims[1] = {4}, variable;
    struct mr_feature feature = mr_feature_variable("v", 1, dims);
    float gradient[4] = {1, 2, 3, 4};
    struct mr_reply *reply;

    (void)state;
    replay_start(&x, 2, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &variable), MR_OK);
    fake_node_save(x.node);
    assert_int_equal(
        mr_push_gradients_bags(x.client, NULL, x.table, x.keys, offsets, 1, REPLAY_DIM, (float[]){2, 2}),
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
static void test_refused_when_sent_again(void **state)
{
    struct replay_fixture x;
    struct mr_feature feature = mr_feature_table("later", REPLAY_DIM);
    uint64_t key = 5;
    float gradient[REPLAY_DIM] = {1, 1};
    struct mr_options options = {.step = 9};
    uint32_t later;

    (void)state;
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

/* Somebody restores the node: what it took is not brought back by a replay, whether the client had heard of
 * it or not. */
static void test_restored_by_call_stays_so(void **state)
{
    for (uint32_t heard = 0; heard < 2; heard++) {
        for (uint32_t cores = 1; cores <= 3; cores++) {
            struct replay_fixture x;

            (void)state;
            replay_start(&x, 2, 0);
            replay_push_steps(&x, 1, 10);
            fake_node_save(x.node);
            replay_push_steps(&x, 11, 30);
            fake_node_take_back(x.node);
            for (uint32_t i = 0; i < REPLAY_KEYS; i++)
                x.expected[i] -= 20;
            if (heard) {
                replay_push_steps(&x, 31, 35);
                replay_check_rows(&x);
            }
            fake_node_kill(x.node);
            fake_node_restart_with(x.node, cores);
            replay_check_rows(&x);
            replay_push_steps(&x, 36, 40); /* nothing of it counts as lost */
            replay_crash(&x);
            replay_check_rows(&x);
            replay_stop(&x);
        }
    }
}

/* The restore comes while its client sends again what it takes. */
static void test_restored_while_it_is_sent_again(void **state)
{
    static const uint32_t at[] = {1, 2, 7, 20};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t cores = 1; cores <= 3; cores++) {
            struct replay_fixture x;

            replay_start(&x, 2, 0);
            replay_push_steps(&x, 1, 5);
            fake_node_save(x.node);
            replay_push_steps(&x, 6, 25);
            fake_node_kill(x.node);
            x.node->take_back_at = at[i];
            fake_node_restart_with(x.node, cores);
            for (uint32_t k = 0; k < REPLAY_KEYS; k++)
                x.expected[k] -= 20;
            replay_check_rows(&x);
            assert_int_equal(x.node->restores, 1);
            replay_push_steps(&x, 26, 30);
            replay_crash(&x);
            replay_check_rows(&x);
            replay_stop(&x);
        }
    }
}

/* It comes while one is in flight, whose answer is late: the client asks what was taken only when it has that
 * one back. */
static void test_restored_under_one_that_is_in_flight(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    fake_node_save(x.node);
    replay_push_steps(&x, 6, 25);
    fake_node_kill(x.node);
    x.node->takes_back_under = true;
    fake_node_restart_with(x.node, 2);
    for (uint32_t k = 0; k < REPLAY_KEYS; k++)
        x.expected[k] -= 20;
    replay_check_rows(&x);
    assert_int_equal(x.node->restores, 1);
    replay_stop(&x);
}

/* The numbers that the restore took are marked, so that what comes after it can become durable. */
static void test_restored_by_call_leaves_no_gap(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 1, 0);
    fake_node_save(x.node);
    replay_push_steps(&x, 1, 20);
    fake_node_take_back(x.node);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    replay_push_steps(&x, 21, 25);
    while (replay_info_of(&x).replaying || replay_info_of(&x).oldest_step != 21)
        mr_client_progress(x.client);
    fake_node_save(x.node);
    replay_push_steps(&x, 26, 27);
    assert_int_equal(replay_info_of(&x).kept, 2);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* To a client that came after a restore it is no news: it marks no numbers at the next restart. */
static void test_restored_before_it_came(void **state)
{
    struct mr_feature feature = mr_feature_table("t", REPLAY_DIM);
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 1, 0);
    fake_node_take_back(x.node);
    mr_client_destroy(x.client);
    x.client = replay_connect(x.node, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &x.table), MR_OK);
    replay_push_steps(&x, 1, 10);
    fake_node_save(x.node);
    replay_push_steps(&x, 11, 11);
    assert_int_equal(replay_info_of(&x).kept, 1);
    replay_crash(&x);
    replay_push_steps(&x, 12, 12);
    replay_check_rows(&x);
    assert_int_equal(x.node->known, 0);
    replay_stop(&x);
}

static void test_the_earliest_link_wakes_the_client(void **state)
{
    static struct mrc_link links[3] = {{.resend_us = 7}, {.resend_us = 5}, {.resend_us = MRC_NEVER_US}};
    static struct mr_client client;

    (void)state;
    assert_int_equal(mrc_resend_next_us(&client), MRC_NEVER_US);
    for (client.link_count = 0; client.link_count < 3; client.link_count++)
        client.links[client.link_count] = &links[client.link_count];
    assert_int_equal(mrc_resend_next_us(&client), 5);
}

/* An answer of before a restore comes when the client has looked already at what that took: it looks again,
 * or the number would stay open at the node, and with it all that comes after. */
static void test_an_answer_of_before_a_restore_comes_late(void **state)
{
    struct replay_fixture x;
    struct mr_future *future = NULL;
    struct mr_options options = {.step = 6, .future = &future};

    (void)state;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    atomic_store(&x.node->late, 2);
    const uint64_t applied = atomic_load(&x.node->applied);

    assert_int_equal(replay_push(&x, &options, 1), MR_OK);
    while (atomic_load(&x.node->applied) < applied + 2)
        mr_client_progress(x.client);
    fake_node_take_back(x.node);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    while (x.client->survey.restores < 1 || !mrc_survey_is_over(x.client)) {
        replay_check_rows(&x); /* its answers say that there was a restore */
        mr_client_progress(x.client);
    }
    atomic_store(&x.node->late, 0);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    replay_push_steps(&x, 7, 9);
    for (uint32_t tries = 0; tries < 300 && replay_info_of(&x).kept > 2; tries++) {
        fake_node_save(x.node);
        replay_push_steps(&x, 10, 10);
        usleep(1000);
    }
    assert_int_equal(replay_info_of(&x).kept, 2);
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* Another directory counts its restores by itself: nothing follows from a higher count. */
static void test_restores_of_another_directory(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 5);
    fake_node_kill(x.node);
    x.node->lineage++;
    x.node->whole = x.node->restores = 7;
    fake_node_restart(x.node);
    replay_check_rows(&x);
    replay_push_steps(&x, 6, 8);
    /* And an older copy of it: what was answered meanwhile is due all the same. */
    fake_node_kill(x.node);
    x.node->whole = x.node->restores = 2;
    fake_node_restart(x.node);
    replay_check_rows(&x);
    fake_node_take_back(x.node);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    replay_crash(&x);
    replay_check_rows(&x);
    replay_stop(&x);
}

/* One feature was put back by a restore: only what it had is taken. */
static void test_one_feature_restored_by_call(void **state)
{
    struct replay_fixture x;
    struct mr_feature feature = mr_feature_table("beside", REPLAY_DIM);
    uint64_t key = 5;
    float ones[REPLAY_DIM] = {1, 1};
    struct mr_reply *reply;
    uint32_t beside;

    (void)state;
    replay_start(&x, 1, 0);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &beside), MR_OK);
    fake_node_save(x.node);
    replay_push_steps(&x, 1, 9);
    assert_int_equal(mr_push_gradients(x.client, NULL, beside, &key, 1, REPLAY_DIM, ones), MR_OK);
    fake_node_kill(x.node); /* between the restore and this it would hold the same */
    x.node->replaced = ++x.node->restores;
    fake_node_restart(x.node);
    for (uint32_t i = 0; i < REPLAY_KEYS; i++)
        x.expected[i] = 0;
    replay_check_rows(&x);
    assert_int_equal(mr_lookup(x.client, NULL, beside, &key, 1, &reply), MR_OK);
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[0] == fake_initial(5, 0) - 1);
    mr_reply_free(reply);
    replay_stop(&x);
}

/* A directory that was wiped, or none and two starts in one second: the number of the start is the same. */
static void test_incarnation_comes_again(void **state)
{
    struct replay_fixture x;

    (void)state;
    replay_start(&x, 2, 0);
    replay_push_steps(&x, 1, 10);
    fake_node_kill(x.node);
    x.node->incarnation--;
    fake_node_restart(x.node);
    replay_check_rows(&x);
    assert_int_equal(replay_info_of(&x).replayed, 2 * 10);
    replay_stop(&x);
}

/* The node comes back with another job's table under the number. */
static void give_number_2_to_another(struct replay_fixture *x)
{
    fake_node_kill(x->node);
    x->node->saved[1] = x->node->saved[0];
    x->node->saved[1].feature = mr_feature_table("another", REPLAY_DIM);
    x->node->saved_feature_count = 2;
    fake_node_restart(x->node);
}

static void test_reused_number_is_not_taken_for_it(void **state)
{
    for (uint32_t cores = 1; cores <= 2; cores++) {
        struct replay_fixture x;
        struct mr_feature feature = mr_feature_table("later", REPLAY_DIM);
        uint64_t key = 5;
        float ones[REPLAY_DIM] = {1, 1};
        struct mr_future *future = NULL;
        struct mr_options under_way = {.future = &future}, step = {.step = 9};
        struct mr_reply *reply;
        uint32_t later, again;

        (void)state;
        replay_start(&x, cores, 0);
        assert_int_equal(mr_create(x.client, NULL, &feature, 1, &later), MR_OK);
        assert_int_equal(mr_push_gradients(x.client, &step, later, &key, 1, REPLAY_DIM, ones), MR_OK);
        uint64_t applied = atomic_load(&x.node->applied);

        fake_node_kill(x.node);
        assert_int_equal(mr_push_gradients(x.client, &under_way, later, &key, 1, REPLAY_DIM, ones), MR_OK);
        give_number_2_to_another(&x);
        assert_int_equal(mr_future_wait(future, NULL), MR_UNKNOWN_TABLE);
        assert_non_null(strstr(mr_last_error(), "no longer that feature's"));
        mr_future_destroy(future);
        assert_int_equal(mr_lookup(x.client, NULL, later, &key, 1, NULL), MR_UNKNOWN_TABLE);
        assert_non_null(strstr(mr_last_error(), "number 2 was \"later\""));
        assert_int_equal(mr_push_gradients(x.client, NULL, later, &key, 1, REPLAY_DIM, ones),
                         MR_UNKNOWN_TABLE);
        assert_int_equal(atomic_load(&x.node->applied), applied);
        assert_int_equal(replay_push(&x, &step, 0), MR_UNKNOWN_OUTCOME);
        assert_non_null(strstr(mr_last_error(), "refused 1 push of step 9"));
        feature = mr_feature_table("another", REPLAY_DIM); /* who asks for it may use it */
        assert_int_equal(mr_create(x.client, NULL, &feature, 1, &again), MR_OK);
        assert_int_equal(again, later);
        assert_int_equal(mr_lookup(x.client, NULL, again, &key, 1, &reply), MR_OK);
        mr_reply_free(reply);
        replay_stop(&x);
    }
}

/* The answer came before the node was restarted, and is taken in after it. */
static void test_answer_from_before_a_restart(void **state)
{
    struct replay_fixture x;
    struct mr_feature feature = mr_feature_table("later", REPLAY_DIM);
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    uint64_t key = 5;
    uint32_t later = 0;

    (void)state;
    replay_start(&x, 2, 0);
    assert_int_equal(mr_create(x.client, &options, &feature, 1, &later), MR_OK);
    while (!mr_future_done(future)) {
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_off_by_default),
        cmocka_unit_test(test_what_was_lost_comes_back),
        cmocka_unit_test(test_saved_pushes_are_let_go),
        cmocka_unit_test(test_a_save_comes_behind_all_of_it),
        cmocka_unit_test(test_a_save_that_cannot_come_behind_it_is_not_sent),
        cmocka_unit_test(test_lost_lookups_are_told),
        cmocka_unit_test(test_crash_upon_crash),
        cmocka_unit_test(test_answer_lost),
        cmocka_unit_test(test_deadline_while_away),
        cmocka_unit_test(test_busy_until_the_deadline),
        cmocka_unit_test(test_busy_before_others),
        cmocka_unit_test(test_busy_on_one_core),
        cmocka_unit_test(test_busy_without_replay),
        cmocka_unit_test(test_given_up_is_told_once),
        cmocka_unit_test(test_given_up_on_one_core_is_told_on_another),
        cmocka_unit_test(test_given_up_but_saved_is_not_told),
        cmocka_unit_test(test_many_under_way),
        cmocka_unit_test(test_other_pushes),
        cmocka_unit_test(test_refused_when_sent_again),
        cmocka_unit_test(test_restored_by_call_stays_so),
        cmocka_unit_test(test_restored_while_it_is_sent_again),
        cmocka_unit_test(test_restored_under_one_that_is_in_flight),
        cmocka_unit_test(test_restored_by_call_leaves_no_gap),
        cmocka_unit_test(test_an_answer_of_before_a_restore_comes_late),
        cmocka_unit_test(test_restored_before_it_came),
        cmocka_unit_test(test_the_earliest_link_wakes_the_client),
        cmocka_unit_test(test_restores_of_another_directory),
        cmocka_unit_test(test_one_feature_restored_by_call),
        cmocka_unit_test(test_incarnation_comes_again),
        cmocka_unit_test(test_reused_number_is_not_taken_for_it),
        cmocka_unit_test(test_answer_from_before_a_restart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
