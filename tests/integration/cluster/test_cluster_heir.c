/* A node by itself takes the place of a cluster of three, at the address of one of them, from the cluster's
 * checkpoint: the client that pushed to the three goes on with it, and each push is applied once. */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "tests/checkpoint_calls.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"

#define NODES 3u
#define KEYS  600u
#define DIM   4u

static const char *millraced;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];
static char *directory;

struct trainer {
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float rows[KEYS][DIM]; /* what SGD makes of them */
};

static void cluster_heir_begin(struct trainer *t)
{
    char servers[96], error[512] = "";
    struct mr_feature feature = mr_feature_table("t", DIM);
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1;
    memset(t, 0, sizeof(*t));
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", nodes[0].port,
                   nodes[1].port, nodes[2].port);
    const struct mr_client_options options = {
        .server = servers, .deadline_ms = 120000, .connect_ms = 60000, .replay = true};
    if (mr_client_create(&options, &t->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    for (uint32_t i = 0; i < KEYS; i++)
        t->keys[i] = i * UINT64_C(2654435761) + 1;
    if (mr_create(t->client, NULL, &feature, 1, &t->table) != MR_OK)
        fail_msg("%s", mr_last_error());
}

/* Each push has other gradients, whose sums are exact in any order. */
static enum mr_status cluster_heir_push(struct trainer *t, uint64_t step, struct mr_future **future)
{
    static float gradients[KEYS][DIM];
    const struct mr_options options = {.step = step, .future = future};
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t d = 0; d < DIM; d++) {
            gradients[i][d] = (float)(step * step + i + d);
            t->rows[i][d] -= gradients[i][d];
        }
    }
    return mr_push_gradients(t->client, &options, t->table, t->keys, KEYS, DIM, gradients[0]);
}

static void push_steps(struct trainer *t, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++)
        if (cluster_heir_push(t, step, NULL) != MR_OK)
            fail_msg("step %u: %s", (unsigned)step, mr_last_error());
}

static void check_rows(const struct trainer *t)
{
    struct mr_reply *reply;
    if (mr_lookup(t->client, NULL, t->table, t->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, t->rows, sizeof(t->rows));
    mr_reply_free(reply);
}

/* Waits until the cluster's checkpoint is committed. */
static void cluster_heir_save(struct trainer *t)
{
    uint64_t id;
    char pattern[160];
    glob_t found = {.gl_pathc = 0};
    if (save_into(t->client, NULL, NULL, &id) != MR_OK)
        fail_msg("%s", mr_last_error());
    (void)snprintf(pattern, sizeof(pattern), "%s/CLUSTER-*", directory);
    WAIT_UNTIL(glob(pattern, 0, NULL, &found) == 0);
    globfree(&found);
}

static int start_all(void **state)
{
    char settings[300];
    directory = temporary_directory_make();
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings),
                   "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = 3000\n[checkpoint]\ndirectory = %s\n"
                   "every_s = 0\n",
                   server.port, NODES, directory);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_create(&nodes[i], millraced, i, settings);
    return 0;
}

static int end_all(void **state)
{
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return temporary_directory_remove(directory);
}

/* The node starts again with other cores and in no cluster. */
static void start_heir(struct cluster_node *n)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/conf", n->directory);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(
        f,
        "[node]\nname = test-%u\n[port]\ndriver = socket\nipv4 = 127.0.0.1/8\nudp_port = %u\n"
        "[cores]\ncount = 3\npoll_mode = adaptive\n"
        "[memory]\nlimit_mib = 256\npackets_mib = 64\nmessages_mib = 64\n[batches]\nmemory_mib = 16\n"
        "[checkpoint]\ndirectory = %s\nevery_s = 0\nsave_on_stop = no\n",
        n->port, n->port, directory);
    assert_int_equal(fclose(f), 0);
    cluster_node_start(n, millraced);
}

TEST(a_single_node_goes_on)
{
    enum { LATE = 10 };
    static struct trainer t;
    struct mr_future *late[LATE];
    struct mr_replay_info info;
    cluster_heir_begin(&t);
    push_steps(&t, 1, 20);
    cluster_heir_save(&t);
    push_steps(&t, 21, 40);
    for (uint32_t i = 0; i < LATE; i++)
        assert_int_equal(cluster_heir_push(&t, 41 + i, &late[i]), MR_OK);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_kill(&nodes[i]);
    start_heir(&nodes[1]);
    for (uint32_t i = 0; i < LATE; i++) {
        if (mr_future_wait(late[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(late[i]);
    }
    cluster_node_wait_says(&nodes[1], "restored checkpoint");
    push_steps(&t, 51, 60);
    check_rows(&t);
    mr_client_replay_info(t.client, &info);
    assert_true(info.replayed >= 20);
    assert_int_equal(info.dropped, 0);
    assert_int_equal(mr_client_core_count(t.client), 3);
    /* It goes on as a node by itself: also what it got from the client survives it. */
    cluster_node_kill(&nodes[1]);
    cluster_node_start(&nodes[1], millraced);
    push_steps(&t, 61, 62);
    check_rows(&t);
    mr_client_destroy(t.client);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s MILLRACED\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(tests_run(start_all, end_all));
}
