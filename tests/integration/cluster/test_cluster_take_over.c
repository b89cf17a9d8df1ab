/* Nodes of a cluster die and stay dead: the others go on with their partitions from the cluster's checkpoint,
 * or, with replication 2, from copies, and a client that waits for each answer ends with the bits that it
 * would have had without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "dataplane/wire/base/clock.h"
#include "tests/command.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"
#include "trainer_client/millrace_observe.h"

#define NODES  3u
#define KEYS   600u
#define DIM    4u
#define VALUES 3000u /* of a variable in ranges ... */
#define RANGE  500u  /* ... of so many */

static const char *millraced, *millrace;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];
static char *directory, servers[96];

struct trainer {
    struct mr_client *client;
    uint32_t table, variable;
    uint64_t keys[KEYS];
    _Atomic uint64_t step;
    float rows[KEYS][DIM], values[VALUES]; /* what SGD makes of them */
};

static void trainer_begin(struct trainer *t, bool replay)
{
    char error[512] = "";
    struct mr_feature features[2] = {mr_feature_table("t", DIM),
                                     mr_feature_variable("v", 1, (uint32_t[]){VALUES})};
    uint32_t ids[2];
    memset(t, 0, sizeof(*t));
    const struct mr_client_options options = {
        .server = servers, .deadline_ms = 120000, .connect_ms = 60000, .replay = replay};
    if (mr_client_create(&options, &t->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    for (uint32_t i = 0; i < KEYS; i++)
        t->keys[i] = i * UINT64_C(2654435761) + 1;
    for (uint32_t i = 0; i < 2; i++) {
        features[i].optimizer = MR_OPT_SGD;
        features[i].learning_rate = 1;
    }
    features[1].range_values = RANGE;
    if (mr_create(t->client, NULL, features, 2, ids) != MR_OK)
        fail_msg("%s", mr_last_error());
    t->table = ids[0];
    t->variable = ids[1];
}

/* Gradients are fractions, so that the order of pushes shows in the bits. */
static void trainer_step(struct trainer *t, float gradients[KEYS][DIM], float of_variable[VALUES])
{
    const uint64_t step = ++t->step;
    for (uint32_t i = 0; i < KEYS; i++) {
        for (uint32_t d = 0; d < DIM; d++) {
            gradients[i][d] = 1.0f / (float)(step + i + d);
            t->rows[i][d] -= gradients[i][d];
        }
    }
    for (uint32_t i = 0; i < VALUES; i++) {
        of_variable[i] = 1.0f / (float)(step * 3 + i);
        t->values[i] -= of_variable[i];
    }
}

/* Every other push is in flight together with one of the variable. */
static void push(struct trainer *t, uint32_t times)
{
    static float gradients[KEYS][DIM], of_variable[VALUES];
    for (uint32_t n = 0; n < times; n++) {
        struct mr_future *future = NULL;
        trainer_step(t, gradients, of_variable);
        const struct mr_options options = {.step = t->step, .future = n % 2 == 0 ? &future : NULL};
        if (mr_push_gradients(t->client, &options, t->table, t->keys, KEYS, DIM, gradients[0]) != MR_OK ||
            mr_variable_push_gradient(t->client, NULL, t->variable, VALUES, of_variable) != MR_OK ||
            (future != NULL && mr_future_wait(future, NULL) != MR_OK))
            fail_msg("step %u: %s", (unsigned)t->step, mr_last_error());
        mr_future_destroy(future);
    }
}

static void trainer_check(const struct trainer *t)
{
    struct mr_reply *reply;
    if (mr_lookup(t->client, NULL, t->table, t->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, t->rows, sizeof(t->rows));
    mr_reply_free(reply);
    if (mr_variable_pull(t->client, NULL, t->variable, 0, 0, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, t->values, sizeof(t->values));
    mr_reply_free(reply);
}

static size_t checkpoints(void)
{
    char pattern[160];
    glob_t found = {.gl_pathc = 0};
    (void)snprintf(pattern, sizeof(pattern), "%s/CLUSTER-*", directory);
    (void)glob(pattern, 0, NULL, &found);
    const size_t count = found.gl_pathc;
    globfree(&found);
    return count;
}

static void save(const struct trainer *t)
{
    uint64_t id;
    const size_t before = checkpoints();
    if (save_into(t->client, NULL, NULL, &id) != MR_OK)
        fail_msg("%s", mr_last_error());
    WAIT_UNTIL(checkpoints() > before);
}

static int start_nodes(const char *of_cluster)
{
    char settings[400];
    directory = temporary_directory_make();
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings),
                   "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = 2000\n%s"
                   "[checkpoint]\ndirectory = %s\nevery_s = 0\nkeep = 10\n",
                   server.port, NODES, of_cluster, directory);
    for (uint32_t i = 0; i < NODES; i++) {
        char own[440]; /* as if each was a machine of its own */
        (void)snprintf(own, sizeof(own), "host = h%u\n%s", i, settings);
        cluster_node_create(&nodes[i], millraced, i, own);
    }
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", nodes[0].port,
                   nodes[1].port, nodes[2].port);
    return 0;
}

static int start_all(void **state)
{
    (void)state;
    return start_nodes("take_over_s = 1\n");
}

static int start_copies(void **state)
{
    (void)state;
    return start_nodes("take_over_s = 0\nreplication = 2\n");
}

static int start_copies_sync(void **state)
{
    (void)state;
    return start_nodes("take_over_s = 0\nreplication = 2\ncopies = sync\n");
}

static int end_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return temporary_directory_remove(directory);
}

static bool has_lease(const struct cluster_shown *s)
{
    return s->words[MR_CLUSTER_LEASE_LEFT_US] > 0;
}

/* One node dies, and comes back later, when it owns nothing; then another one, before there is another
 * checkpoint of what the first take-over has brought; and, after one, the third. */
static void nodes_die_and_training_goes_on(void **state)
{
    static struct trainer t;
    static struct cluster_shown shown;
    struct mr_replay_info info;
    (void)state;
    trainer_begin(&t, true);
    push(&t, 10);
    save(&t);
    push(&t, 10);
    cluster_node_kill(&nodes[1]);
    push(&t, 5);
    trainer_check(&t);
    assert_int_equal(mr_client_core_count(t.client), (NODES - 1) * CLUSTER_NODE_CORES);
    mr_client_replay_info(t.client, &info);
    assert_true(info.replayed >= 10);
    cluster_node_start(&nodes[1], millraced);
    cluster_node_wait(&nodes[1], &shown, has_lease, "it has a lease");
    push(&t, 3);
    cluster_node_kill(&nodes[0]);
    push(&t, 3);
    trainer_check(&t);
    save(&t);
    push(&t, 3);
    cluster_node_kill(&nodes[2]);
    push(&t, 3);
    trainer_check(&t);
    mr_client_replay_info(t.client, &info);
    assert_int_equal(info.dropped, 0);
    assert_int_equal(mr_client_core_count(t.client), CLUSTER_NODE_CORES);
    save(&t);
    mr_client_destroy(t.client);
}

static bool has_copies(const struct cluster_shown *s)
{
    return (s->words[MR_CLUSTER_TOLERANCE] & ((1u << MR_TOLERANCE_NODE_SHIFT) - 1)) == MR_TOLERATES_ONE;
}

/* Kills a node once the trainer has come to a step, while it goes on. */
struct killer {
    const struct trainer *trainer;
    uint64_t step, killed_us;
    struct cluster_node *node;
};

static void *killer_main(void *arg)
{
    struct killer *k = arg;
    while (atomic_load(&k->trainer->step) < k->step)
        (void)sched_yield();
    cluster_node_kill(k->node);
    k->killed_us = mr_clock_us();
    return NULL;
}

static void push_and_kill(struct trainer *t, struct cluster_node *node)
{
    struct killer k = {.trainer = t, .step = t->step + 5, .node = node};
    uint64_t longest_us = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, killer_main, &k), 0);
    for (uint32_t i = 0; i < 20; i++) {
        const uint64_t now_us = mr_clock_us();
        push(t, 2);
        longest_us = mr_clock_us() - now_us > longest_us ? mr_clock_us() - now_us : longest_us;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("the longest push took %u ms\n", (unsigned)(longest_us / 1000));
}

/* Rows that are kept for another node are not listed twice, and the tool shows who keeps how much. */
static void check_counts(const struct trainer *t)
{
    struct mr_feature_info *infos;
    static struct mr_core_state states[NODES * CLUSTER_NODE_CORES];
    char out[4096];
    uint32_t count;
    uint64_t rows = 0;
    assert_int_equal(mr_list(t->client, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        if (infos[i].id == t->table)
            assert_int_equal(infos[i].rows, KEYS);
    free(infos);
    assert_int_equal(mr_client_core_count(t->client), NODES * CLUSTER_NODE_CORES);
    assert_int_equal(mr_heartbeat(t->client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < NODES * CLUSTER_NODE_CORES; i++)
        rows += states[i].rows;
    assert_int_equal(rows, KEYS);
    assert_int_equal(command_output(out, sizeof(out), "%s ctl nodes --server %s 2>&1", millrace, servers), 0);
    if (strstr(out, "backups  uncopied  behind") == NULL || strstr(out, " MiB ") == NULL)
        fail_msg("%s", out);
}

/* There is no checkpoint at all: each node goes on from what it has kept of the one that dies. */
static void backups_go_on(void **state)
{
    static struct trainer t;
    static struct cluster_shown shown;
    struct mr_replay_info info;
    (void)state;
    trainer_begin(&t, true);
    push(&t, 10);
    cluster_node_wait(&nodes[0], &shown, has_copies, "each partition has a copy that is in sync");
    push(&t, 10);
    check_counts(&t);
    push_and_kill(&t, &nodes[1]);
    trainer_check(&t);
    assert_int_equal(mr_client_core_count(t.client), (NODES - 1) * CLUSTER_NODE_CORES);
    /* one of the others may have all of the copies */
    assert_true(cluster_node_says(&nodes[0], "go on here from the copy") ||
                cluster_node_says(&nodes[2], "go on here from the copy"));
    cluster_node_wait(&nodes[0], &shown, has_copies, "each partition has a copy again");
    push(&t, 3);
    save(&t);
    push(&t, 3);
    push_and_kill(&t, &nodes[0]);
    trainer_check(&t);
    mr_client_replay_info(t.client, &info);
    assert_int_equal(info.dropped, 0);
    mr_client_destroy(t.client);
}

static bool answers_wait(const struct cluster_shown *s)
{
    return has_copies(s) && s->words[MR_CLUSTER_ANSWERS_WAIT] != 0;
}

/* A process that pushes, keeps nothing that was answered, and says how far it has come. */
static pid_t start_pushing(_Atomic uint64_t *answered)
{
    static struct trainer t;
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct mr_reply *reply;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    trainer_begin(&t, false);
    if (mr_lookup(t.client, NULL, t.table, t.keys, KEYS, &reply) != MR_OK) /* makes the rows */
        _exit(1);
    mr_reply_free(reply);
    for (;;) {
        push(&t, 1);
        atomic_store(answered, t.step);
    }
}

static void check_is_one_of(const void *is, const void *a, const void *b, size_t bytes)
{
    if (memcmp(is, a, bytes) != 0)
        assert_memory_equal(is, b, bytes);
}

/* A node dies, and at the same time all who could send again what it had answered. The last push may have
 * come to some of the nodes. */
static void what_was_answered_survives_a_node_and_its_client(void **state)
{
    static struct trainer before, after;
    static struct cluster_shown shown;
    static float gradients[KEYS][DIM], of_variable[VALUES];
    struct mr_reply *reply;
    (void)state;
    _Atomic uint64_t *answered =
        mmap(NULL, sizeof(*answered), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(answered, MAP_FAILED);
    const pid_t client = start_pushing(answered);
    cluster_node_wait(&nodes[0], &shown, answers_wait, "each partition has a copy that is in sync");
    const uint64_t until = atomic_load(answered) + 50;
    WAIT_UNTIL(atomic_load(answered) >= until);
    assert_int_equal(kill(nodes[1].pid, SIGKILL), 0);
    assert_int_equal(kill(client, SIGKILL), 0);
    cluster_node_kill(&nodes[1]);
    assert_int_equal(waitpid(client, NULL, 0), client);
    trainer_begin(&before, false);
    while (before.step < atomic_load(answered))
        trainer_step(&before, gradients, of_variable);
    after = before;
    trainer_step(&after, gradients, of_variable);
    if (mr_lookup(before.client, NULL, before.table, before.keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    for (uint32_t i = 0; i < KEYS; i++)
        check_is_one_of((const float *)mr_reply_tensor(reply, 0)->data + i * DIM, before.rows[i],
                        after.rows[i], sizeof(before.rows[i]));
    mr_reply_free(reply);
    if (mr_variable_pull(before.client, NULL, before.variable, 0, 0, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    for (uint32_t i = 0; i < VALUES; i += RANGE)
        check_is_one_of((const float *)mr_reply_tensor(reply, 0)->data + i, before.values + i,
                        after.values + i, RANGE * sizeof(float));
    mr_reply_free(reply);
    mr_client_destroy(before.client);
    (void)munmap(answered, sizeof(*answered));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_die_and_training_goes_on, start_all, end_all),
        cmocka_unit_test_setup_teardown(backups_go_on, start_copies, end_all),
        cmocka_unit_test_setup_teardown(what_was_answered_survives_a_node_and_its_client, start_copies_sync,
                                        end_all)};
    if (argc != 3) {
        (void)fprintf(stderr, "usage: %s MILLRACED MILLRACE\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    millrace = argv[2];
    cmocka_set_test_filter(getenv("MILLRACE_TEST"));
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(cmocka_run_group_tests(tests, NULL, NULL));
}
