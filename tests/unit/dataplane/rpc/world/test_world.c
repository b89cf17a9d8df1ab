/* Joining and dying. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/format/capability.h"
#include "tests/test.h"
#include "tests/wait.h"

#define SECOND_US 1000000u

/* ---- joining ---- */

TEST(a_world_of_one_is_complete_at_once, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 1);
    net_function(net->workers[0].rpc, "f", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 0, "f", NULL, 0, NULL, NULL), MR_OK);
    assert_int_equal(mr_rpc_shutdown(net->workers[0].rpc, 0), MR_OK);
}

/* It does not join: within a millisecond, or, when it is refused, ever. */
static void expect_not_joined(struct net *net, uint32_t i, enum mr_status expected, const char *text)
{
    char error[256] = "";
    uint64_t deadline_us = expected == MR_INVALID_ARGUMENT || expected == MR_VERSION_MISMATCH
                               ? UINT64_MAX
                               : mr_agent_now(net->workers[i].rpc) + 1000;
    assert_int_equal(mr_workers_wait_joined(net->workers[i].rpc, deadline_us, error, sizeof(error)),
                     expected);
    assert_says(error, text);
}

/* What worker `of` knows of another. */
static bool is_dead(struct net *net, uint32_t of, uint32_t worker)
{
    struct mr_rpc_worker info;
    assert_int_equal(mr_worker_info(net->workers[of].rpc, worker, &info), MR_OK);
    return info.is_dead;
}

/* Whichever side is of another version, joining fails at once, and says so. */
TEST(a_rendezvous_of_an_older_version_is_named, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    net->say_no_version = true;
    (void)net_add(net, "a", 0);
    net->say_no_version = false;
    (void)net_add(net, "b", 1);
    expect_not_joined(net, 1, MR_VERSION_MISMATCH,
                      "the rendezvous has version before 0.3.0, and this worker ");
    expect_not_joined(net, 0, MR_DEADLINE_EXCEEDED, "1 of 2 workers");
}

TEST(a_worker_of_an_older_version_is_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    char says[200];
    net_start(net, 2);
    (void)net_add(net, "a", 0);
    net->say_no_rpc = true;
    (void)net_add(net, "b", 1);
    (void)snprintf(says, sizeof(says), "version is another, and the rendezvous has version %s",
                   mr_version_text());
    expect_not_joined(net, 1, MR_VERSION_MISMATCH, says);
    expect_not_joined(net, 0, MR_DEADLINE_EXCEEDED, "somebody of another version than this worker's");
}

TEST(who_is_missing_is_named, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 4);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "c", 2);
    net_skip(net, SECOND_US);
    for (uint32_t i = 0; i < 2; i++)
        expect_not_joined(net, i, MR_DEADLINE_EXCEEDED, "2 of 4 workers have joined; missing: rank 1 3");
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 1, "f", NULL, 0, NULL, NULL), MR_NOT_READY);
}

/* Worker 1 has asked, and does not hear that worker 2 completes the world. */
static void complete_without_1(struct net *net)
{
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_mute(net, 0, 1, true);
    (void)net_add(net, "c", 2);
    net_wait_joined(net, 2);
    net_skip(net, SECOND_US);
    assert_true(atomic_load(&net->workers[0].rpc->complete));
    assert_int_equal(atomic_load(&net->workers[0].rpc->joined) & MR_DONE, 0);
}

/* Its program might leave at once, and nobody else has the list. */
TEST(the_rendezvous_joins_after_all_have_the_list, net_setup, net_teardown)
{
    struct net *net = *state;
    complete_without_1(net);
    net_mute(net, 0, 1, false);
    net_wait_joined(net, 0);
    net_end(net, 0);
    net_wait_joined(net, 1);
}

TEST(the_rendezvous_does_not_wait_for_the_dead, net_setup, net_teardown)
{
    struct net *net = *state;
    complete_without_1(net);
    net_skip(net, 15 * SECOND_US);
    assert_int_not_equal(atomic_load(&net->workers[0].rpc->joined) & MR_DONE, 0);
    net_wait_joined(net, 0);
    assert_true(is_dead(net, 0, 1));
    net_mute(net, 0, 1, false);
}

/* Its time to join is over, and the world is there: it may be used. */
TEST(a_late_list_does_not_fail_the_rendezvous, net_setup, net_teardown)
{
    struct net *net = *state;
    char error[256] = "";
    complete_without_1(net);
    assert_int_equal(
        mr_workers_wait_joined(net->workers[0].rpc, mr_agent_now(net->workers[0].rpc), error, sizeof(error)),
        MR_OK);
    net_mute(net, 0, 1, false);
    net_wait_joined(net, 1);
}

TEST(nobody_at_the_rendezvous_is_said, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    (void)net_add(net, "a", 0);
    net_silence(net, 0, true);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    expect_not_joined(net, 1, MR_UNREACHABLE, "nobody answers at the rendezvous");
}

/* a and b have asked, and then comes one that does not fit: all learn why, and nobody joins. */
static void expect_no_world(void **state, const char *name, uint32_t rank, uint32_t world_size,
                            const char *text)
{
    struct net *net = *state;
    char why[300];
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    (void)net_add_with(net, name, rank, world_size, 0);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, text);
    snprintf(why, sizeof(why), "cannot come together, since worker \"%s\" (rank %u) was refused: %s", name,
             rank, text);
    expect_not_joined(net, 1, MR_INVALID_ARGUMENT, why);
    expect_not_joined(net, 0, MR_INVALID_ARGUMENT, why);
}

TEST(a_rank_that_is_taken_ends_the_world, net_setup, net_teardown)
{
    expect_no_world(state, "other", 1, 3, "rank 1 is taken by worker \"b\"");
}

TEST(a_name_that_is_taken_ends_the_world, net_setup, net_teardown)
{
    expect_no_world(state, "b", 2, 3, "the name \"b\" is taken by rank 1");
}

TEST(another_world_size_ends_the_world, net_setup, net_teardown)
{
    expect_no_world(state, "c", 2, 4,
                    "worker \"c\" (rank 2) says that world_size is 4, and the rendezvous expects 3");
}

/* Also one that has not asked before. */
TEST(who_comes_after_a_refusal_learns_it, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 4);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    (void)net_add(net, "a", 2);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, "the name \"a\" is taken by rank 0");
    expect_not_joined(net, 1, MR_INVALID_ARGUMENT, "cannot come together");
    (void)net_add(net, "d", 3);
    expect_not_joined(net, 3, MR_INVALID_ARGUMENT, "cannot come together");
    expect_not_joined(net, 0, MR_INVALID_ARGUMENT, "cannot come together");
}

/* The rendezvous does not wait for ever for one that has asked, and does not ask again. */
TEST(a_refusal_that_one_does_not_learn_ends_the_world, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 4);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    (void)net_add(net, "a", 2);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, "the name \"a\" is taken by rank 0");
    net_skip(net, 6 * SECOND_US);
    expect_not_joined(net, 0, MR_INVALID_ARGUMENT, "the name \"a\" is taken by rank 0");
}

/* Another process of the same rank: the first one is not there too. */
TEST(one_that_was_started_again_is_not_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    (void)net_add(net, "c", 2);
    net_skip(net, 6 * SECOND_US);
    net_wait_joined(net, 2);
    net_wait_joined(net, 0);
}

/* A node's world may be followed by another, for which it is worth waiting; a program's may not. */
TEST(the_rank_of_a_silent_one_is_taken_at_a_program, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 2);
    net_silence(net, 1, true);
    net_skip(net, 3 * SECOND_US);
    (void)net_add(net, "w1", 1);
    net_skip(net, SECOND_US);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, "rank 1 is taken by worker \"w1\"");
}

/* One that gave up before the world was complete makes room for its successor. */
TEST(one_who_gave_up_makes_room, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    (void)net_add(net, "a", 0);
    net_silence(net, 0, true); /* so that it does not become complete */
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    net_silence(net, 0, false);
    net_skip(net, 6 * SECOND_US);
    (void)net_add(net, "b", 1);
    net_wait_joined(net, 2);
}

/* Nor does the world become complete with it. */
TEST(one_who_gave_up_is_missing, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    net_skip(net, 6 * SECOND_US);
    (void)net_add(net, "c", 2);
    net_skip(net, SECOND_US);
    expect_not_joined(net, 2, MR_DEADLINE_EXCEEDED, "2 of 3 workers have joined; missing: rank 1");
    (void)net_add(net, "b", 1);
    net_wait_joined(net, 2);
}

TEST(a_bad_configuration_is_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    struct mr_rpc *rpc;
    char error[256] = "";
    net_start(net, 1);
    (void)net_add(net, "a", 0);
    struct mr_agent_config config = {.name = "x", .rank = 2, .world_size = 2};
    assert_int_equal(mr_agent_create(&config, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_says(error, "the rank must be 0");
    config = (struct mr_agent_config){.name = "", .rank = 0, .world_size = 2};
    assert_int_equal(mr_agent_create(&config, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_says(error, "needs a name");
    config = (struct mr_agent_config){.name = "x", .rank = 0, .world_size = MR_RPC_WORLD_MAX + 1};
    assert_int_equal(mr_agent_create(&config, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_says(error, "1 to 1024");
}

/* ---- dying ---- */

TEST(calls_to_a_worker_that_dies_end_and_name_it, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct mr_rpc_future *futures[2];
    net_world(net, 3);
    gate_init(&gate);
    net_function(net->workers[2].rpc, "block", "", "", gate_pass_call, &gate, 0);
    net_function(net->workers[1].rpc, "f", "", "", net_nothing, NULL, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mr_rpc_async(net->workers[i].rpc, 2, "block", NULL, 0, &patient, &futures[i]),
                         MR_OK);
    gate_wait_begun(&gate, 1);
    net_skip(net, 30 * SECOND_US); /* slow is not dead */
    assert_false(mr_rpc_done(futures[0]));
    net_silence(net, 2, true);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(mr_rpc_done(futures[i]));
        assert_int_equal(mr_rpc_wait(futures[i], NULL), MR_WORKER_DIED);
        assert_says(mr_rpc_last_error(), "block on worker \"w2\" (rank 2)");
        mr_rpc_future_destroy(futures[i]);
        assert_int_equal(mr_rpc_sync(net->workers[i].rpc, 2, "block", NULL, 0, NULL, NULL), MR_WORKER_DIED);
        assert_says(mr_rpc_last_error(), "worker \"w2\" (rank 2) died");
        assert_true(is_dead(net, i, 2));
    }
    /* The rest go on, and may leave. */
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 1, "f", NULL, 0, NULL, NULL), MR_OK);
    gate_open(&gate);
}

/* The same process, which has forgotten the session in which a call runs: what became of it, and of
 * references in it, is not known. */
TEST(a_worker_that_forgot_a_call_is_dead, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct mr_rpc_future *future;
    net_start(net, 2);
    net->dead_after_ms = 3600000;
    (void)net_add(net, "w0", 0);
    (void)net_add(net, "w1", 1);
    for (uint32_t i = 0; i < 2; i++)
        net_wait_joined(net, i);
    gate_init(&gate);
    net_function(net->workers[1].rpc, "block", "", "", gate_pass_call, &gate, 0);
    assert_int_equal(mr_rpc_async(net->workers[0].rpc, 1, "block", NULL, 0, &patient, &future), MR_OK);
    gate_wait_begun(&gate, 1);
    net_mute(net, 0, 1, true);
    net_skip(net, 90 * SECOND_US);
    assert_false(mr_rpc_done(future));
    net_mute(net, 0, 1, false);
    net_skip(net, 90 * SECOND_US);
    gate_open(&gate);
    assert_true(mr_rpc_done(future));
    assert_int_equal(mr_rpc_wait(future, NULL), MR_WORKER_DIED);
    mr_rpc_future_destroy(future);
    assert_true(is_dead(net, 0, 1));
}

/* Nobody calls it: the rendezvous notices, and tells the others. */
TEST(an_idle_worker_that_dies_is_noticed_by_all, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 4);
    net_silence(net, 3, true);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(is_dead(net, i, 3));
    for (uint32_t i = 0; i < 3; i++)
        assert_false(is_dead(net, i, (i + 1) % 3));
}

TEST(the_rest_go_on_without_the_rendezvous, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 4);
    for (uint32_t i = 0; i < 4; i++)
        net_function(net->workers[i].rpc, "f", "", "", net_nothing, NULL, 0);
    net_silence(net, 0, true);
    net_skip(net, 15 * SECOND_US);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 0, "f", NULL, 0, NULL, NULL), MR_WORKER_DIED);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
    /* From now on they ask each other. */
    net_silence(net, 3, true);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 1; i < 3; i++) {
        assert_true(is_dead(net, i, 3));
        assert_false(is_dead(net, i, 3 - i));
    }
    assert_int_equal(mr_rpc_shutdown(net->workers[1].rpc, 0), MR_WORKER_DIED);
    assert_says(mr_rpc_last_error(), "the rendezvous died");
}

/* It was cut off for too long: the others do not take it back, and it says so. */
TEST(one_who_was_taken_for_dead_learns_of_it, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_function(net->workers[2].rpc, "f", "", "", net_nothing, NULL, 0);
    net_function(net->workers[1].rpc, "f", "", "", net_nothing, NULL, 0);
    net_skip(net, 2 * SECOND_US);
    net_silence(net, 2, true);
    net_skip(net, 12 * SECOND_US);
    assert_true(is_dead(net, 0, 2));
    net_silence(net, 2, false);
    net_skip(net, 5 * SECOND_US);
    assert_int_equal(mr_rpc_sync(net->workers[2].rpc, 1, "f", NULL, 0, NULL, NULL), MR_WORKER_DIED);
}

TEST(a_short_silence_kills_nobody, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_function(net->workers[2].rpc, "f", "", "", net_nothing, NULL, 0);
    for (uint32_t round = 0; round < 3; round++) {
        net_silence(net, 2, true);
        net_skip(net, 6 * SECOND_US);
        net_silence(net, 2, false);
        net_skip(net, 3 * SECOND_US);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mr_rpc_sync(net->workers[i].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
}

/* The address answers, but it is another process that knows nothing of what the first promised. */
TEST(a_restarted_worker_is_a_dead_one, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_function(net->workers[2].rpc, "f", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
    net_replace(net, 2);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_WORKER_DIED);
}

/* Nobody had asked it for anything before, nor has the rendezvous heard of it. */
TEST(a_restarted_worker_is_known_by_its_first_answer, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_replace(net, 2);
    net_mute(net, 0, 1, true); /* which has nothing to tell */
    expect_error(MR_WORKER_DIED, mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), "w2");
    net_mute(net, 0, 1, false);
}

/* The same of the rendezvous, which nobody calls: what it knew of the world is gone. */
TEST(a_restarted_rendezvous_is_a_dead_one, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_skip(net, 2 * SECOND_US);
    net_replace(net, 0);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 1; i < 3; i++)
        assert_true(is_dead(net, i, 0));
    assert_int_equal(mr_rpc_shutdown(net->workers[1].rpc, 1000), MR_WORKER_DIED);
}
