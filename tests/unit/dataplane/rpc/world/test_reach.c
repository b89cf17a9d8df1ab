/* Where workers meet when several places are named, and members that do not reach each other everywhere. */
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/world/world.h"
#include "tests/test.h"

#define SECOND_US 1000000u

static void reach_call(struct net *net, uint32_t from, uint32_t to)
{
    made(mr_rpc_sync(net->workers[from].rpc, to, "f", NULL, 0, NULL, NULL));
}

static void reach_add(struct net *net, const char *name, uint32_t rank)
{
    net_function(net_add(net, name, rank), "f", "", "", net_nothing, NULL, 0);
}

/* ---- several places ---- */

/* The first one named is a worker that meets elsewhere itself, or nobody, or cannot be reached. */
TEST(the_place_is_found_among_others, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    reach_add(net, "w0", 0);
    reach_add(net, "w1", 1);
    net->rendezvous_count = 3;
    net->rendezvous[0] = 1;
    net->rendezvous[1] = 3; /* nobody has this address */
    net->workers[3].address = (struct mr_address){.ip = {[15] = 1}, .port = 999};
    net->rendezvous[2] = 0;
    reach_add(net, "w2", 2);
    for (uint32_t i = 0; i < 3; i++)
        net_wait_joined(net, i);
    reach_call(net, 2, 0);
    reach_call(net, 2, 1);
    reach_call(net, 0, 2);
    made(mr_rpc_sync(net->workers[2].rpc, 1, "f", NULL, 0, NULL, NULL));
}

TEST(a_place_that_cannot_be_reached_is_passed_over, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    reach_add(net, "w0", 0);
    net->rendezvous_count = 2;
    net->rendezvous[0] = 4;
    net->workers[4].address = (struct mr_address){.ip = {[15] = 1}, .port = 1004};
    net->rendezvous[1] = 0;
    pthread_mutex_lock(&net->lock); /* before it looks for the place */
    net->apart = 1u << 4;
    pthread_mutex_unlock(&net->lock);
    reach_add(net, "w1", 1);
    net_wait_joined(net, 1);
    reach_call(net, 1, 0);
}

/* Where none of them is the one, the line says who is. */
TEST(a_wrong_place_names_the_right_one, net_setup, net_teardown)
{
    struct net *net = *state;
    char error[256] = "";
    net_start(net, 3);
    reach_add(net, "w0", 0);
    reach_add(net, "w1", 1);
    net->rendezvous_count = 2;
    net->rendezvous[0] = net->rendezvous[1] = 1;
    reach_add(net, "w2", 2);
    assert_int_equal(mr_workers_wait_joined(net->workers[2].rpc, UINT64_MAX, error, sizeof(error)),
                     MR_UNKNOWN_OP);
    assert_non_null(
        strstr(error, "worker \"w1\" (rank 1) is not where the workers meet: that is the first worker"));
}

/* ---- addresses ---- */

TEST(who_cannot_be_reached_is_named_at_once, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    net->apart = 1u << 2;
    reach_add(net, "w0", 0);
    reach_add(net, "w1", 1);
    reach_add(net, "w2", 2);
    for (uint32_t i = 0; i < 3; i++)
        net_wait_joined(net, i);
    expect_error(MR_UNREACHABLE, mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL),
                 "worker \"w2\" (rank 2) cannot be reached at port 1002: they are apart");
    reach_call(net, 1, 0);
    reach_call(net, 0, 1);
}

/* It joined from one address, and says that it has another. */
TEST(the_other_address_is_tried, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    net->have_two = true;
    net->apart = 1u << 2;
    reach_add(net, "w0", 0);
    reach_add(net, "w1", 1);
    reach_add(net, "w2", 2);
    for (uint32_t i = 0; i < 3; i++)
        net_wait_joined(net, i);
    reach_call(net, 1, 2);
    reach_call(net, 2, 1);
    reach_call(net, 0, 2);
    pthread_mutex_lock(&net->lock);
    const struct mr_member *m = &net->workers[1].rpc->members[2];
    assert_int_equal(m->address.port, net->workers[2].address.port);
    assert_int_equal(m->other_address.port, net->workers[2].other.port);
    assert_memory_equal(m->other_address.ip, net->workers[2].other.ip, 16);
    pthread_mutex_unlock(&net->lock);
}
