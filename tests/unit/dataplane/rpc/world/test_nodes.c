/* Worlds of several nodes: how they end, and nodes that come again. Ranks 0 and 1 are nodes, the others
 * programs; they meet at rank 0. */
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "tests/test.h"

#define SECOND_US 1000000u
#define NEVER_MS  3600000u /* of silence: what is noticed is not noticed by it */

static void world(struct net *net, uint32_t size, uint32_t dead_after_ms)
{
    net_start(net, size);
    net->dead_after_ms = dead_after_ms;
    for (uint32_t i = 0; i < size; i++) {
        const char *const names[] = {"n0", "n1", "w2", "w3"};
        net->are_nodes = i < 2;
        net_function(net_add(net, names[i], i), "f", "", "", net_nothing, NULL, 0);
    }
    for (uint32_t i = 0; i < size; i++)
        net_wait_joined(net, i);
}

static enum mr_agent_end end_of(struct net *net, uint32_t worker, char why[256])
{
    pthread_mutex_lock(&net->lock);
    enum mr_agent_end end = mr_agent_end(net->workers[worker].rpc, why, 256);
    pthread_mutex_unlock(&net->lock);
    return end;
}

static void expect_end(struct net *net, uint32_t worker, enum mr_agent_end expected)
{
    char why[256];
    for (uint32_t i = 0; i < 1000 && end_of(net, worker, why) != expected; i++)
        net_skip(net, SECOND_US / 5);
    assert_int_equal(end_of(net, worker, why), expected);
}

static void *shut_down(void *rpc)
{
    return mr_rpc_shutdown(rpc, 0) == MR_OK ? NULL : rpc;
}

/* The other node does not leave, and keeps no world going. */
TEST(a_world_is_over_when_the_programs_have_left, net_setup, net_teardown)
{
    struct net *net = *state;
    char why[256];
    pthread_t thread;
    void *failed;
    world(net, 4, NEVER_MS);
    assert_int_equal(end_of(net, 0, why), MR_AGENT_GOES_ON);
    assert_int_equal(pthread_create(&thread, NULL, shut_down, net->workers[2].rpc), 0);
    made(mr_rpc_shutdown(net->workers[3].rpc, 0));
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(end_of(net, 0, why), MR_AGENT_OVER);
    /* Whoever comes now waits for the next one: a program, and the other node, which may have noticed
     * first. */
    (void)net_add(net, "w2", 2);
    net->are_nodes = true;
    net_restart(net, 1, "n1", 1);
    net_skip(net, SECOND_US);
    assert_int_equal(atomic_load(&net->workers[4].rpc->joined) & MR_DONE, 0);
    assert_int_equal(atomic_load(&net->workers[1].rpc->joined) & MR_DONE, 0);
}

TEST(a_world_is_over_when_the_programs_are_dead, net_setup, net_teardown)
{
    struct net *net = *state;
    world(net, 3, 10000);
    net_silence(net, 2, true);
    expect_end(net, 0, MR_AGENT_OVER);
    expect_end(net, 1, MR_AGENT_OVER); /* it is told */
}

/* Where there is no program, each node that lives keeps the others. */
TEST(a_world_of_nodes_is_over_when_the_others_are_dead, net_setup, net_teardown)
{
    struct net *net = *state;
    char why[256];
    world(net, 2, 10000);
    net_skip(net, 20 * SECOND_US);
    assert_int_equal(end_of(net, 0, why), MR_AGENT_GOES_ON);
    net_silence(net, 1, true);
    expect_end(net, 0, MR_AGENT_OVER);
}

/* The programs and the first node have a new world; the other node is of the old one, and hears it before the
 * new one is complete, which waits for it. */
TEST(a_member_of_an_old_world_is_told_so, net_setup, net_teardown)
{
    struct net *net = *state;
    char why[256];
    world(net, 3, NEVER_MS);
    /* Its process is the same: only the agent is another. */
    pthread_mutex_lock(&net->lock);
    atomic_store(&net->workers[0].rpc->complete, false);
    pthread_mutex_unlock(&net->lock);
    expect_end(net, 1, MR_AGENT_FENCED);
    assert_int_equal(end_of(net, 0, why), MR_AGENT_GOES_ON);
}

/* Its former process is dead at once, for everybody, and it waits until that world is over. */
TEST(a_node_that_is_started_again_is_noticed, net_setup, net_teardown)
{
    struct net *net = *state;
    struct mr_rpc_worker info;
    char why[256];
    world(net, 4, NEVER_MS);
    net->are_nodes = true;
    net_restart(net, 1, "n1", 1);
    expect_end(net, 1, MR_AGENT_REFUSED);
    (void)end_of(net, 1, why);
    assert_non_null(strstr(why, "rank 1 is taken by worker \"n1\", which died: it is free when this world"));
    do {
        net_skip(net, SECOND_US / 5);
        made(mr_worker_info(net->workers[2].rpc, 1, &info));
    } while (!info.is_dead);
    expect_error(MR_WORKER_DIED, mr_rpc_sync(net->workers[2].rpc, 1, "f", NULL, 0, NULL, NULL),
                 "worker \"n1\" (rank 1) died");
    made(mr_rpc_sync(net->workers[2].rpc, 0, "f", NULL, 0, NULL, NULL));
    made(mr_rpc_sync(net->workers[3].rpc, 2, "f", NULL, 0, NULL, NULL));
}

/* Two nodes of one name and rank are a mistake in their configurations, and the first one is not dead. */
TEST(a_node_elsewhere_of_the_same_rank_kills_nobody, net_setup, net_teardown)
{
    struct net *net = *state;
    char why[256];
    world(net, 3, NEVER_MS);
    net->are_nodes = true;
    (void)net_add(net, "n1", 1);
    expect_end(net, 3, MR_AGENT_REFUSED);
    (void)end_of(net, 3, why);
    assert_non_null(strstr(why, "rank 1 is taken by worker \"n1\""));
    made(mr_rpc_sync(net->workers[2].rpc, 1, "f", NULL, 0, NULL, NULL));
}
