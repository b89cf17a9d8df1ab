/* A client of three real nodes of one cluster: tables over all of them, and a node that is killed and comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "trainer_client/millrace.h"

#define NODES 3u
#define KEYS  600u
#define DIM   4u
#define STEPS 60u

static const char *millraced;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];

struct trainer {
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float rows[KEYS][DIM]; /* what SGD makes of them, one push after the other */
};

static struct mr_client *connect_to(const char *servers)
{
    const struct mr_client_options options = {
        .server = servers, .deadline_ms = 60000, .connect_ms = 60000, .replay = true};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

static void begin(struct trainer *t, const char *name)
{
    char servers[64];
    struct mr_feature feature = mr_feature_table(name, DIM);
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1;
    memset(t, 0, sizeof(*t));
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u,127.0.0.1:%u", nodes[0].port, nodes[2].port);
    t->client = connect_to(servers);
    for (uint32_t i = 0; i < KEYS; i++)
        t->keys[i] = i * UINT64_C(2654435761) + 1;
    if (mr_create(t->client, NULL, &feature, 1, &t->table) != MR_OK)
        fail_msg("%s", mr_last_error());
}

/* Each push has other gradients. Those of a push that is waited for are fractions, so that the order of pushes shows
 * in the bits; pushes that are in flight together may overtake each other. */
static enum mr_status push(struct trainer *t, uint64_t step, struct mr_future **future)
{
    static float gradients[KEYS][DIM];
    const struct mr_options options = {.step = step, .future = future};
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t d = 0; d < DIM; d++) {
            gradients[i][d] =
                future == NULL ? 1.0f / (float)(step + i + d + 1) : (float)(step * step + i + d);
            t->rows[i][d] -= gradients[i][d];
        }
    }
    return mr_push_gradients(t->client, &options, t->table, t->keys, KEYS, DIM, gradients[0]);
}

static void check_rows(const struct trainer *t)
{
    struct mr_reply *reply;
    if (mr_lookup(t->client, NULL, t->table, t->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, t->rows, sizeof(t->rows));
    mr_reply_free(reply);
}

static int start_all(void **state)
{
    char settings[96];
    (void)state;
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = 3000\n",
                   server.port, NODES);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_create(&nodes[i], millraced, i, settings);
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return 0;
}

static void test_a_table_over_all_nodes(void **state)
{
    static struct trainer t;
    struct mr_core_state states[NODES * CLUSTER_NODE_CORES];
    struct mr_feature_info *infos;
    uint32_t count;
    (void)state;
    begin(&t, "spread");
    assert_int_equal(mr_client_core_count(t.client), NODES * CLUSTER_NODE_CORES);
    for (uint64_t step = 1; step <= 5; step++)
        assert_int_equal(push(&t, step, NULL), MR_OK);
    check_rows(&t);
    assert_int_equal(mr_heartbeat(t.client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < NODES * CLUSTER_NODE_CORES; i++)
        assert_in_range(states[i].rows, 1, KEYS / 2);
    assert_int_equal(mr_list(t.client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    assert_int_equal(infos[0].rows, KEYS);
    free(infos);
    mr_client_destroy(t.client);
}

/* A push is applied once, in order, also by the node that was killed and has lost everything. */
static void test_a_node_is_killed_amid_pushes(void **state)
{
    static struct trainer t;
    static struct mr_future *futures[STEPS];
    (void)state;
    begin(&t, "killed");
    for (uint64_t step = 0; step < STEPS; step++) {
        assert_int_equal(push(&t, step + 1, &futures[step]), MR_OK);
        if (step == STEPS / 3)
            cluster_node_kill(&nodes[1]);
        if (step == STEPS / 2)
            cluster_node_start(&nodes[1], millraced);
        if (step < STEPS / 3)
            assert_int_equal(mr_future_wait(futures[step], NULL), MR_OK);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        if (step >= STEPS / 3 && mr_future_wait(futures[step], NULL) != MR_OK)
            fail_msg("step %u: %s", step + 1, mr_last_error());
        mr_future_destroy(futures[step]);
    }
    struct mr_replay_info info;

    mr_client_replay_info(t.client, &info);
    assert_true(info.replayed > 0);
    assert_int_equal(info.dropped, 0);
    check_rows(&t);
    mr_client_destroy(t.client);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_over_all_nodes),
        cmocka_unit_test(test_a_node_is_killed_amid_pushes),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s MILLRACED\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    if (!zookeeper_server_is_installed()) {
        (void)printf("skipped: install Debian's package zookeeper\n");
        return 77;
    }
    cluster_nodes_isolate();
    return cmocka_run_group_tests(tests, start_all, end_all);
}
