/* Nodes: held until their functions are there, and stopped while the others go on. */
#include <stdlib.h>
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/world/world.h"
#include "tests/test.h"

#define SECOND_US 1000000u
#define NEVER_MS  3600000u /* of silence: what is noticed is not noticed by it */

static void expect(enum mr_status got, enum mr_status status, const char *says)
{
    if (got != status || strstr(mr_rpc_last_error(), says) == NULL)
        fail_msg("%s, not %s, or not \"%s\": %s", mr_status_name(got), mr_status_name(status), says,
                 mr_rpc_last_error());
}

/* ---- functions that wait ---- */

static enum mr_status pass(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    gate_pass(mr_rpc_user(call));
    return mr_rpc_return(call, mr_value_i64(5));
}

/* ---- a world of a node, rank 0 or 1, and programs ---- */

static void world(struct net *net, uint32_t size, uint32_t node)
{
    net_start(net, size);
    net->dead_after_ms = NEVER_MS;
    for (uint32_t i = 0; i < size; i++) {
        const char *const names[] = {"w0", "w1", "w2"};
        net->are_nodes = i == node;
        (void)net_add(net, names[i], i);
    }
    for (uint32_t i = 0; i < size; i++)
        net_wait_joined(net, i);
}

static uint32_t unfinished(struct net *net, uint32_t node)
{
    pthread_mutex_lock(&net->lock);
    uint32_t left = mr_agent_unfinished(net->workers[node].rpc);
    pthread_mutex_unlock(&net->lock);
    return left;
}

static void say_goodbye(struct net *net, uint32_t node)
{
    bool waits;
    do {
        pthread_mutex_lock(&net->lock);
        waits = mr_agent_say_goodbye(net->workers[node].rpc);
        pthread_mutex_unlock(&net->lock);
    } while (waits);
}

TEST(what_runs_ends_and_nothing_else_begins, net_setup, net_teardown)
{
    struct net *net = *state;
    struct gate gate;
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;
    gate_init(&gate);
    world(net, 3, 1);
    net_function(net->workers[1].rpc, "pass", "", "i64", pass, &gate, 0);
    net_function(net->workers[1].rpc, "nothing", "", "", net_nothing, NULL, 0);
    net_function(net->workers[2].rpc, "nothing", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_async(net->workers[0].rpc, 1, "pass", NULL, 0, NULL, &future), MR_OK);
    gate_wait_begun(&gate, 1);
    pthread_mutex_lock(&net->lock);
    mr_agent_retire(net->workers[1].rpc);
    pthread_mutex_unlock(&net->lock);
    expect(mr_rpc_sync(net->workers[2].rpc, 1, "nothing", NULL, 0, NULL, NULL), MR_SHUTTING_DOWN,
           "nothing on worker \"w1\" (rank 1)");
    assert_true(unfinished(net, 1) > 0);
    /* It may still call, as what runs may need to. */
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "nothing", NULL, 0, NULL, NULL), MR_OK);
    gate_open(&gate);
    assert_int_equal(mr_rpc_wait(future, &result), MR_OK);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 5);
    mr_rpc_result_free(result);
    mr_rpc_future_destroy(future);
    while (unfinished(net, 1) > 0)
        ;
    say_goodbye(net, 1);
    /* Nobody waits for its silence; the others are as before, and leave. */
    expect(mr_rpc_sync(net->workers[0].rpc, 1, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED,
           "worker \"w1\" (rank 1)");
    expect(mr_rpc_sync(net->workers[2].rpc, 1, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED,
           "worker \"w1\" (rank 1)");
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 2, "nothing", NULL, 0, NULL, NULL), MR_OK);
}

TEST(the_rendezvous_says_goodbye_too, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 3, 0);
    net_function(net->workers[2].rpc, "nothing", "", "", net_nothing, NULL, 0);
    pthread_mutex_lock(&net->lock);
    mr_agent_retire(net->workers[0].rpc);
    pthread_mutex_unlock(&net->lock);
    say_goodbye(net, 0);
    expect(mr_rpc_sync(net->workers[1].rpc, 0, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED,
           "worker \"w0\" (rank 0)");
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "nothing", NULL, 0, NULL, NULL), MR_OK);
    expect(mr_rpc_shutdown(net->workers[1].rpc, 0), MR_WORKER_DIED, "the rendezvous died");
}

/* To one that does not answer it is said again, until it does. */
TEST(a_goodbye_is_said_until_it_is_heard, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 3, 1);
    net_function(net->workers[1].rpc, "nothing", "", "", net_nothing, NULL, 0);
    net_mute(net, 1, 0, true);
    for (uint32_t i = 0; i < 5; i++) {
        pthread_mutex_lock(&net->lock);
        bool waits = mr_agent_say_goodbye(net->workers[1].rpc);
        pthread_mutex_unlock(&net->lock);
        assert_true(waits);
        net_skip(net, SECOND_US);
    }
    expect(mr_rpc_sync(net->workers[2].rpc, 1, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED,
           "worker \"w1\" (rank 1)");
    net_mute(net, 1, 0, false);
    say_goodbye(net, 1);
    expect(mr_rpc_sync(net->workers[0].rpc, 1, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED,
           "worker \"w1\" (rank 1)");
}

/* One that leaves without the others is dead at once for all, and these leave together. */
static void expect_parted(struct net *net, uint32_t leaving, uint32_t first, uint32_t second)
{
    mr_agent_part(net->workers[leaving].rpc);
    net_end(net, leaving);
    expect(mr_rpc_sync(net->workers[first].rpc, leaving, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED, "");
    expect(mr_rpc_sync(net->workers[second].rpc, leaving, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED,
           "");
}

TEST(a_program_that_leaves_alone_says_goodbye, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 3, 0);
    expect_parted(net, 1, 0, 2);
    assert_int_equal(mr_rpc_shutdown(net->workers[2].rpc, 0), MR_OK);
}

TEST(a_rendezvous_that_leaves_alone_says_goodbye, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 3, 3);
    net_function(net->workers[2].rpc, "nothing", "", "", net_nothing, NULL, 0);
    expect_parted(net, 0, 1, 2);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "nothing", NULL, 0, NULL, NULL), MR_OK);
}

/* All have agreed that it may go, or it is in no world yet: it has nothing to say. */
TEST(who_leaves_with_the_others_says_no_goodbye, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 2, 0);
    assert_int_equal(mr_rpc_shutdown(net->workers[1].rpc, 0), MR_OK);
    mr_agent_part(net->workers[1].rpc);
    assert_int_equal(atomic_load(&net->workers[1].rpc->leaving.parted), 0);
}

TEST(a_node_does_not_shut_down, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 2, 0);
    expect(mr_rpc_shutdown(net->workers[0].rpc, 0), MR_INVALID_ARGUMENT, "until it is stopped");
    assert_int_equal(mr_rpc_shutdown(net->workers[1].rpc, 0), MR_OK);
}

/* Nobody joins, and it joins nobody, before it is released. */
TEST(a_held_one_waits_and_lets_wait, net_setup, net_teardown)
{
    struct net *net = *state;
    for (uint32_t held = 0; held < 2; held++) {
        if (held == 1)
            net_stop(net);
        net_start(net, 2);
        net->are_held = held == 0;
        (void)net_add(net, "w0", 0);
        net->are_held = held == 1;
        (void)net_add(net, "w1", 1);
        net_skip(net, SECOND_US);
        for (uint32_t i = 0; i < 2; i++)
            assert_false(atomic_load(&net->workers[i].rpc->complete));
        pthread_mutex_lock(&net->lock);
        mr_agent_release(net->workers[held].rpc);
        pthread_mutex_unlock(&net->lock);
        for (uint32_t i = 0; i < 2; i++)
            net_wait_joined(net, i);
    }
}

/* ---- one world after the other ---- */

static enum mr_agent_end end_of(struct net *net, uint32_t worker)
{
    char why[256];
    pthread_mutex_lock(&net->lock);
    enum mr_agent_end end = mr_agent_end(net->workers[worker].rpc, why, sizeof(why));
    pthread_mutex_unlock(&net->lock);
    return end;
}

static void *shut_down(void *rpc)
{
    return mr_rpc_shutdown(rpc, 0) == MR_OK ? NULL : rpc;
}

TEST(a_world_is_over_when_all_have_left, net_setup, net_teardown)
{
    struct net *net = *state;
    pthread_t thread;
    void *failed;
    world(net, 3, 0);
    assert_int_equal(end_of(net, 0), MR_AGENT_GOES_ON);
    assert_int_equal(pthread_create(&thread, NULL, shut_down, net->workers[1].rpc), 0);
    assert_int_equal(mr_rpc_shutdown(net->workers[2].rpc, 0), MR_OK);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(end_of(net, 0), MR_AGENT_OVER);
    /* Who comes now waits for the next one, at once. */
    (void)net_add(net, "w1", 1);
    net_skip(net, SECOND_US);
    assert_int_equal(atomic_load(&net->workers[3].rpc->joined) & MR_DONE, 0);
}

/* While anybody is alive, who wants the rank of another is refused; when nobody is heard of any more he is
 * told to wait. */
TEST(who_comes_late_is_refused_or_waits, net_setup, net_teardown)
{
    struct net *net = *state;
    char error[256] = "";
    net_start(net, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const char *const names[] = {"w0", "w1", "w2"};
        net->are_nodes = i == 0;
        (void)net_add(net, names[i], i);
    }
    for (uint32_t i = 0; i < 3; i++)
        net_wait_joined(net, i);
    net_silence(net, 1, true);
    net_skip(net, 2 * SECOND_US);
    (void)net_add(net, "w1", 1);
    assert_int_equal(mr_workers_wait_joined(net->workers[3].rpc, UINT64_MAX, error, sizeof(error)),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "rank 1 is taken by worker \"w1\""));
    net_silence(net, 2, true);
    net_skip(net, 2 * SECOND_US);
    (void)net_add(net, "w2", 2);
    net_skip(net, 4 * SECOND_US);
    assert_int_equal(atomic_load(&net->workers[4].rpc->joined) & MR_DONE, 0);
    assert_int_equal(end_of(net, 0), MR_AGENT_GOES_ON);
    net_skip(net, 20 * SECOND_US); /* now they are dead */
    assert_int_equal(atomic_load(&net->workers[4].rpc->joined) & MR_DONE, 0);
    assert_int_equal(end_of(net, 0), MR_AGENT_OVER);
}

TEST(one_that_is_refused_or_fenced_knows_it, net_setup, net_teardown)
{
    struct net *net = *state;
    char error[256] = "", why[256] = "";
    net_start(net, 2);
    (void)net_add(net, "w0", 0);
    (void)net_add(net, "w1", 1);
    for (uint32_t i = 0; i < 2; i++)
        net_wait_joined(net, i);
    (void)net_add(net, "w1", 1);
    (void)mr_workers_wait_joined(net->workers[2].rpc, UINT64_MAX, error, sizeof(error));
    pthread_mutex_lock(&net->lock);
    assert_int_equal(mr_agent_end(net->workers[2].rpc, why, sizeof(why)), MR_AGENT_REFUSED);
    pthread_mutex_unlock(&net->lock);
    assert_non_null(strstr(why, "rank 1 is taken by worker \"w1\""));
    /* One that was away for so long that the others took it for dead. */
    net_silence(net, 1, true);
    net_skip(net, 12 * SECOND_US);
    net_silence(net, 1, false);
    for (uint32_t i = 0; i < 100 && end_of(net, 1) == MR_AGENT_GOES_ON; i++)
        net_skip(net, SECOND_US / 5);
    assert_true(end_of(net, 1) != MR_AGENT_GOES_ON);
}

TEST(calls_are_counted, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 2, 0);
    const struct mr_agent_counters *caller = mr_agent_counters(net->workers[1].rpc);
    const struct mr_agent_counters *served = mr_agent_counters(net->workers[0].rpc);
    struct mr_value number = mr_value_i64(1);
    net_function(net->workers[0].rpc, "nothing", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 0, "nothing", NULL, 0, NULL, NULL), MR_OK);
    expect(mr_rpc_sync(net->workers[1].rpc, 0, "nothing", &number, 1, NULL, NULL), MR_WRONG_SIGNATURE, "");
    expect(mr_rpc_sync(net->workers[1].rpc, 0, "other", NULL, 0, NULL, NULL), MR_UNKNOWN_FUNCTION, "");
    pthread_mutex_lock(&net->lock);
    mr_agent_count(net->workers[0].rpc);
    assert_int_equal(served->calls_served, 3);
    assert_int_equal(served->calls_failed, 2);
    assert_int_equal(served->calls_refused, 2);
    assert_int_equal(served->members_joined, 2);
    assert_int_equal(served->members_dead, 0);
    assert_int_equal(served->functions_running, 0);
    assert_int_equal(caller->calls_made, 3);
    assert_int_equal(caller->calls_made_failed, 2);
    pthread_mutex_unlock(&net->lock);
}
