/* The nodes of a cluster are workers of one world, each under its own name; they meet at one of them. What a
 * worker has left on a node stays there from world to world, and a node that was killed comes again. */
#include <stdio.h>
#include <string.h>

#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/rpc/node_network.h"
#include "tests/integration/rpc/rpc_workers.h"
#include "tests/test.h"

#define NODES         3u
#define WORKER        NODES /* the rank of the only program */
#define STEPS         5u
#define DEAD_AFTER_MS 3000u

static const char *millraced, *module, *layers;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];

/* All nodes have the same line for where they meet: the second one finds that it is there. */
static int start_all(void **state)
{
    static char settings[2048];
    zookeeper_server_create(&server);
    for (uint32_t i = 0; i < NODES; i++) {
        (void)snprintf(settings, sizeof(settings),
                       "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = 3000\n"
                       "[rpc]\nworld_size = %u\nrank = %u\nrendezvous = localhost:7710\ndead_after_ms = %u\n"
                       "module = %s 2.5\nmodule = %s\n",
                       server.port, NODES, NODES + 1, i, DEAD_AFTER_MS, module, layers);
        cluster_node_create(&nodes[i], millraced, i, settings);
    }
    return 0;
}

static int end_all(void **state)
{
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return 0;
}

/* The worker names all nodes, as a client of tables does, and those first where the workers do not meet. */
static void cluster_worlds_join(struct rpc_workers *workers)
{
    *workers = (struct rpc_workers){.rendezvous = "127.0.0.1:7700,127.0.0.1:7720,127.0.0.1:7710",
                                    .world_size = NODES + 1,
                                    .dead_after_ms = DEAD_AFTER_MS};
    rpc_workers_join(workers, WORKER, 1);
}

static uint32_t rank_of(struct mr_rpc *rpc, const char *name)
{
    struct mr_rpc_worker info;
    assert_int_equal(mr_worker_by_name(rpc, name, &info), MR_OK);
    assert_true(info.is_node);
    return info.rank;
}

/* Returns how many steps the optimizer had made before. */
static uint64_t train(struct mr_rpc *rpc, const char *node)
{
    struct node_network network;
    uint64_t before;
    node_network_make(&network, rpc, rank_of(rpc, node), "net");
    assert_int_equal(mr_dist_optimizer_steps(network.optimizer, &before), MR_OK);
    for (uint32_t step = 0; step < STEPS; step++)
        (void)node_network_train(&network, step);
    node_network_let_go(&network);
    return before;
}

TEST(test_each_node_is_a_worker_of_its_own_name)
{
    struct rpc_workers workers;
    cluster_worlds_join(&workers);
    struct mr_rpc *rpc = workers.rpcs[0];
    for (uint32_t i = 0; i < NODES; i++) {
        struct mr_rref *object;
        uint32_t rank = rank_of(rpc, nodes[i].name), other = (i + 1) % NODES;
        struct mr_value of = mr_value_i64(other);
        assert_int_equal(rank, i);
        rpc_workers_string(rpc, rank, "whoami", NULL, 0, nodes[i].name);
        rpc_workers_string(rpc, rank, "ask", &of, 1, nodes[other].name);
        assert_int_equal(mr_remote(rpc, rank, "make", NULL, 0, NULL, &object), MR_OK);
        while (rpc_workers_i64(rpc, rank, "objects", NULL, 0) != 1)
            ;
        assert_int_equal(rpc_workers_i64(rpc, other, "objects", NULL, 0),
                         0); /* it is there, and nowhere else */
        mr_rref_release(object);
        while (rpc_workers_i64(rpc, rank, "objects", NULL, 0) != 0)
            ;
    }
    rpc_workers_leave(&workers, MR_OK);
}

TEST(test_a_node_is_killed_and_comes_again)
{
    struct rpc_workers workers;
    cluster_worlds_join(&workers);
    assert_int_equal(train(workers.rpcs[0], "n0"), 0);
    assert_int_equal(train(workers.rpcs[0], "n2"), 0);
    cluster_node_kill(&nodes[2]);
    cluster_node_start(&nodes[2], millraced);
    rpc_workers_refused(mr_rpc_sync(workers.rpcs[0], 2, "whoami", NULL, 0, NULL, NULL), MR_WORKER_DIED,
                        "worker \"n2\" (rank 2)");
    assert_int_equal(train(workers.rpcs[0], "n0"), STEPS); /* the others go on */
    rpc_workers_leave(&workers, MR_OK);
    cluster_worlds_join(&workers);
    assert_int_equal(train(workers.rpcs[0], "n0"), 2 * STEPS);
    assert_int_equal(train(workers.rpcs[0], "n2"), 0); /* it has saved nothing */
    assert_int_equal(train(workers.rpcs[0], "n2"), STEPS);
    rpc_workers_leave(&workers, MR_OK);
}

/* The node where they meet: nobody can leave together with the others, and all meet there again. */
TEST(test_the_rendezvous_is_killed_and_comes_again)
{
    struct rpc_workers workers;
    cluster_worlds_join(&workers);
    for (uint32_t i = 0; i < NODES; i++) /* all of them know that the world is complete */
        rpc_workers_string(workers.rpcs[0], i, "whoami", NULL, 0, nodes[i].name);
    cluster_node_kill(&nodes[1]);
    rpc_workers_refused(mr_rpc_sync(workers.rpcs[0], 1, "whoami", NULL, 0, NULL, NULL), MR_WORKER_DIED,
                        "worker \"n1\" (rank 1)");
    rpc_workers_string(workers.rpcs[0], 0, "whoami", NULL, 0, "n0");
    rpc_workers_leave(&workers, MR_WORKER_DIED);
    cluster_node_start(&nodes[1], millraced);
    cluster_worlds_join(&workers);
    for (uint32_t i = 0; i < NODES; i++)
        rpc_workers_string(workers.rpcs[0], i, "whoami", NULL, 0, nodes[i].name);
    rpc_workers_leave(&workers, MR_OK);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_stop(&nodes[i]);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fprintf(stderr, "usage: %s MILLRACED MODULE LAYERS_MODULE\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    module = argv[2];
    layers = argv[3];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(tests_run(start_all, end_all));
}
