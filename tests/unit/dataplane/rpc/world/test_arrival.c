/* Open worlds: workers join and leave one by one. */
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"
#include "dataplane/rpc/world/world.h"
#include "tests/test.h"

#define SECOND_US 1000000u
#define PLACES    6u

/* Worker 0, alone. */
static void open_world(struct net *net)
{
    net_start(net, PLACES);
    net->is_open = true;
    (void)net_add(net, "w0", 0);
    net_wait_joined(net, 0);
}

/* A worker with a function that returns its arguments. */
static struct mr_rpc *arrival_add(struct net *net, const char *name, uint32_t rank)
{
    struct mr_rpc *rpc = net_add(net, name, rank);
    net_function(rpc, "mirror", "...", "...", net_mirror, NULL, 0);
    net_wait_joined(net, net->count - 1);
    return rpc;
}

static void expect_reaches(struct mr_rpc *from, uint32_t to)
{
    const struct mr_value five = mr_value_i64(5);
    struct mr_rpc_result *result;
    made(mr_rpc_sync(from, to, "mirror", &five, 1, NULL, &result));
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 5);
    mr_rpc_result_free(result);
}

static void expect_refused(struct net *net, const char *name, uint32_t rank, const char *part)
{
    char error[256] = "";
    struct mr_rpc *rpc = net_add(net, name, rank);
    assert_int_equal(mr_workers_wait_joined(rpc, UINT64_MAX, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_says(error, part);
}

TEST(who_has_joined_is_known_to_all, net_setup, net_teardown)
{
    struct net *net = *state;
    struct mr_rpc_worker info;
    open_world(net);
    struct mr_rpc *first = worker(state, 0), *third = arrival_add(net, "w2", 2);
    expect_reaches(first, 2);
    expect_error(MR_UNKNOWN_WORKER, mr_rpc_sync(third, 1, "mirror", NULL, 0, NULL, NULL),
                 "no worker has joined this world as rank 1");
    expect_error(MR_UNKNOWN_WORKER, mr_worker_info(third, 1, &info), "rank 1");
    expect_error(MR_UNKNOWN_WORKER, mr_worker_by_name(third, "w1", &info), "w1");
    struct mr_rpc *second = arrival_add(net, "w1", 1);

    made(mr_worker_by_name(third, "w1", &info));
    assert_int_equal(info.rank, 1);
    expect_reaches(third, 1);
    expect_reaches(second, 2);
    expect_reaches(first, 1);
}

TEST(many_come_at_once, net_setup, net_teardown)
{
    struct net *net = *state;
    open_world(net);
    net_loss(net, 50, 50, 3);
    for (uint32_t i = 1; i < PLACES; i++) {
        const char name[] = {'w', (char)('0' + i), 0};
        net_function(net_add(net, name, i), "mirror", "...", "...", net_mirror, NULL, 0);
    }
    for (uint32_t i = 1; i < PLACES; i++)
        net_wait_joined(net, i);
    for (uint32_t from = 0; from < PLACES; from++)
        for (uint32_t to = 1; to < PLACES; to++)
            if (to != from)
                expect_reaches(worker(state, from), to);
}

TEST(a_worker_leaves_by_itself, net_setup, net_teardown)
{
    struct net *net = *state;
    open_world(net);
    struct mr_rpc *first = worker(state, 0), *second = arrival_add(net, "w1", 1),
                  *third = arrival_add(net, "w2", 2);
    assert_int_equal(mr_rpc_staying(second), 1);
    made(mr_rpc_shutdown(second, 0));
    for (uint32_t i = 0; i < 3; i += 2)
        expect_error(MR_WORKER_DIED, mr_rpc_sync(worker(state, i), 1, "mirror", NULL, 0, NULL, NULL),
                     "worker \"w1\" (rank 1) has left the world");
    expect_reaches(first, 2);
    expect_refused(net, "new", 1, "rank 1 is taken by worker \"w1\", which is gone");
    expect_refused(net, "w2", 3, "the name \"w2\" is taken by rank 2");
    (void)arrival_add(net, "w1", 4); /* a name may be had again */
    struct mr_rpc_worker info;

    made(mr_worker_by_name(third, "w1", &info));
    assert_int_equal(info.rank, 4);
    expect_reaches(third, 4);
    made(mr_rpc_shutdown(first, 0)); /* the rendezvous: those who are there go on */
    expect_reaches(third, 4);
    made(mr_rpc_shutdown(third, 0));
}

static uint32_t values_of(struct net *net, uint32_t rank)
{
    uint64_t owned, holds;
    pthread_mutex_lock(&net->lock);
    mr_rrefs_count(net->workers[rank].rpc->rrefs, &owned, &holds);
    pthread_mutex_unlock(&net->lock);
    return (uint32_t)owned;
}

/* What it held is freed, after all others have been asked: the one that came later, too. */
TEST(holds_end_with_who_leaves, net_setup, net_teardown)
{
    struct net *net = *state;
    const struct mr_value seven = mr_value_i64(7);
    struct mr_rref *held[3];
    struct mr_rpc_result *copy;
    open_world(net);
    net_function(worker(state, 0), "mirror", "...", "...", net_mirror, NULL, 0);
    (void)arrival_add(net, "w1", 1);
    (void)arrival_add(net, "w2", 2);
    for (uint32_t i = 1; i < 3; i++) {
        made(mr_remote(worker(state, i), 0, "mirror", &seven, 1, NULL, &held[i]));
        made(mr_rref_confirm(held[i], 0));
    }
    assert_int_equal(values_of(net, 0), 2);
    made(mr_rpc_shutdown(worker(state, 1), 0));
    (void)arrival_add(net, "w3", 3);
    for (uint32_t i = 0; i < 1000 && values_of(net, 0) > 1; i++)
        net_skip(net, SECOND_US / 100);
    assert_int_equal(values_of(net, 0), 1);
    made(mr_rref_to_here(held[2], 0, &copy));
    assert_int_equal(mr_rpc_result_value(copy, 0)->i64, 7);
    mr_rpc_result_free(copy);
    for (uint32_t i = 1; i < 3; i++)
        mr_rref_release(held[i]);
}

/* Until it counts as dead: a call of the new one could be passed on to it. */
TEST(a_silent_member_holds_up_who_comes, net_setup, net_teardown)
{
    struct net *net = *state;
    char error[256] = "";
    open_world(net);
    (void)arrival_add(net, "w1", 1);
    net_silence(net, 1, true);
    struct mr_rpc *third = net_add(net, "w2", 2);

    net_function(third, "mirror", "...", "...", net_mirror, NULL, 0);
    net_skip(net, SECOND_US);
    assert_int_equal(mr_workers_wait_joined(third, mr_agent_now(third) + 1000, error, sizeof(error)),
                     MR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(error, "not all of 2 members have answered"));
    net_skip(net, 15 * SECOND_US);
    net_wait_joined(net, 2);
    expect_error(MR_WORKER_DIED, mr_rpc_sync(third, 1, "mirror", NULL, 0, NULL, NULL), "w1");
    expect_reaches(worker(state, 0), 2);
}

TEST(open_and_closed_do_not_mix, net_setup, net_teardown)
{
    struct net *net = *state;
    open_world(net);
    net->is_open = false;
    expect_refused(net, "w1", 1, "gives a world_size, and the rendezvous none");
}

TEST(who_waits_to_leave_is_told_why, net_setup, net_teardown)
{
    struct net *net = *state;
    open_world(net);
    struct mr_rpc *second = arrival_add(net, "w1", 1);

    net_function(worker(state, 0), "wait", "", "", net_nothing, NULL, 0);
    net_silence(net, 0, true);
    struct mr_rpc_future *future;

    made(mr_rpc_async(second, 0, "wait", NULL, 0, NULL, &future));
    expect_error(MR_DEADLINE_EXCEEDED, mr_rpc_shutdown(second, 1), "this worker has calls in flight");
    net_silence(net, 0, false);
    made(mr_rpc_wait(future, NULL));
    mr_rpc_future_destroy(future);
    made(mr_rpc_shutdown(second, 0));
}
