/* Real data over one, two and three nodes of a cluster, with a real ZooKeeper server, and over three whose
 * partitions move meanwhile.
 *
 * A trainer that looks single keys up and adds bags up by itself ends with the same bits wherever the keys
 * live. Bags that nodes add up are equal to that only as far as f32 reaches (ADR 74), and those of one key
 * are equal. With a hub and two trainers batches are of other ages in each run, so it is the quality that
 * must agree; each batch is applied once, as all nodes have it on record. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/command.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"
#include "trainer_client/examples/common/fm_model.h"
#include "trainer_client/hub/open_source.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"
#include "tests/integration/end_with_test.h"

#define NODES         3u
#define MOVED         (NODES + 1) /* in place of a number of nodes: all of them, and partitions that move */
#define RUNS          (NODES + 2)
#define FACTORS       4u
#define DIM           (1u + FACTORS)
#define BATCHES       30u /* of the trainer that goes by single keys */
#define CALL_MS       60000u
#define MOVES_S       600u
#define HUB           "127.0.0.1:7800"
#define AUC_TOLERANCE 0.002
#define SUM_TOLERANCE 1e-5f
#define COMMAND_BYTES 1024u
#define OUTPUT_BYTES  4096u

static const char *millraced, *millrace_hub, *fm;
static char *directory;
static struct hub_formats *formats;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];
static char servers[64], servers_backwards[64];

enum { FLIGHTS, A9A, DATA_SETS };

/* Of a trainer that goes by single keys: the rows of all keys in their order, and the bias. */
struct model {
    uint64_t *keys;
    float *rows;
    uint32_t count;
    float bias;
};

static struct {
    const char *name, *format, *packed; /* the file as it comes */
    uint32_t lines;                     /* of it, the first ones */
    const char *options;                /* of fm */
    uint32_t batch_samples;
    struct model models[RUNS]; /* by the number of nodes */
    double auc[RUNS];
} sets[DATA_SETS] = {
    [FLIGHTS] = {.name = "flights",
                 .format = "flights",
                 .lines = 120000,
                 .batch_samples = 512,
                 .options = "--epochs 1"},
    [A9A] = {.name = "a9a",
             .format = "libsvm",
             .lines = UINT32_MAX,
             .batch_samples = 128,
             .options = "--batch 128 --epochs 3 --factors 4"},
};

static void cluster_training_check(enum mr_status status)
{
    if (status != MR_OK)
        fail_msg("%s", mr_last_error());
}

static void path_of(uint32_t set, char path[COMMAND_BYTES])
{
    (void)snprintf(path, COMMAND_BYTES, "%s/%s", directory, sets[set].name);
}

/* ---- a cluster of so many nodes ---- */

static void start_cluster(uint32_t count)
{
    char settings[96];
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = 4000\n",
                   server.port, count);
    servers[0] = servers_backwards[0] = '\0';
    for (uint32_t i = 0; i < count; i++)
        cluster_node_create(&nodes[i], millraced, i, settings);
    for (uint32_t i = 0; i < count; i++) {
        const size_t bytes = strlen(servers), other_bytes = strlen(servers_backwards);
        (void)snprintf(servers + bytes, sizeof(servers) - bytes, "%s127.0.0.1:%u", i > 0 ? "," : "",
                       nodes[i].port);
        (void)snprintf(servers_backwards + other_bytes, sizeof(servers_backwards) - other_bytes,
                       "%s127.0.0.1:%u", i > 0 ? "," : "", nodes[count - 1 - i].port);
    }
}

/* ---- a thread that drains a node and gives it its share again ---- */

static struct {
    pthread_t thread;
    bool runs;
    atomic_bool stop;
    uint32_t rounds, rounds_max;
    char error[512]; /* "": all went well */
} mover;

static void stop_mover(void)
{
    atomic_store(&mover.stop, true);
    if (mover.runs)
        (void)pthread_join(mover.thread, NULL);
    mover.runs = false;
}

static int end_cluster(void **state)
{
    (void)state;
    stop_mover();
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return 0;
}

static void show_logs(void)
{
    for (uint32_t i = 0; i < NODES; i++)
        if (nodes[i].pid != 0)
            (void)command_run("tail -n 20 %s/log >&2", nodes[i].directory);
}

static struct mr_client *connect_to(const char *list)
{
    const struct mr_client_options options = {
        .server = list, .deadline_ms = CALL_MS, .connect_ms = CALL_MS, .replay = true};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK) {
        show_logs();
        fail_msg("%s", error);
    }
    return client;
}

/* ---- the trainer that goes by single keys ---- */

struct trainer {
    struct mr_client *client;
    struct hub_batch_source *source;
    struct hub_batch batch;
    uint32_t table, bias;
    uint64_t *keys; /* of the batch, each once, in their order */
    uint32_t key_count;
    float *pooled, *pooled_gradients, *gradients; /* of the bags; of the keys */
};

static int by_key(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint32_t sort_once(uint64_t *keys, uint32_t count)
{
    uint32_t kept = 0;
    qsort(keys, count, sizeof(*keys), by_key);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || keys[i] != keys[kept - 1])
            keys[kept++] = keys[i];
    return kept;
}

static uint32_t place_of(const struct trainer *t, uint64_t key)
{
    const uint64_t *at = bsearch(&key, t->keys, t->key_count, sizeof(key), by_key);
    assert_non_null(at);
    return (uint32_t)(at - t->keys);
}

static void *cluster_training_grow(void *memory, size_t bytes)
{
    void *grown = realloc(memory, bytes + 1);
    assert_non_null(grown);
    return grown;
}

static void read_batch(struct trainer *t, uint64_t number)
{
    char error[HUB_ERROR_BYTES] = "";
    struct hub_batch *b = &t->batch;
    if (hub_batch_source_build(t->source, 0, number, b, error) != MR_OK)
        fail_msg("%s", error);
    const size_t bags = (size_t)b->samples * b->slots;
    t->keys = cluster_training_grow(t->keys, b->key_count * sizeof(*t->keys));
    memcpy(t->keys, b->keys, b->key_count * sizeof(*t->keys));
    t->key_count = sort_once(t->keys, b->key_count);
    t->pooled = cluster_training_grow(t->pooled, bags * DIM * sizeof(float));
    t->pooled_gradients = cluster_training_grow(t->pooled_gradients, bags * DIM * sizeof(float));
    t->gradients = cluster_training_grow(t->gradients, (size_t)t->key_count * DIM * sizeof(float));
}

/* Looks each key up once, and adds the rows of a bag up in its order. */
static void look_up(struct trainer *t)
{
    const struct hub_batch *b = &t->batch;
    struct mr_reply *reply;
    cluster_training_check(mr_lookup(t->client, NULL, t->table, t->keys, t->key_count, &reply));
    const float *rows = mr_reply_tensor(reply, 0)->data;
    for (uint32_t bag = 0; bag < b->samples * b->slots; bag++) {
        float *sum = t->pooled + (size_t)bag * DIM;
        memset(sum, 0, DIM * sizeof(float));
        for (uint32_t k = b->offsets[bag]; k < b->offsets[bag + 1]; k++)
            for (uint32_t d = 0; d < DIM; d++)
                sum[d] += rows[(size_t)place_of(t, b->keys[k]) * DIM + d];
    }
    mr_reply_free(reply);
}

static float pull_bias(const struct trainer *t)
{
    struct mr_reply *reply;
    cluster_training_check(mr_variable_pull(t->client, NULL, t->bias, 0, 0, &reply));
    const float bias = *(const float *)mr_reply_tensor(reply, 0)->data;
    mr_reply_free(reply);
    return bias;
}

static void learn(struct trainer *t, uint64_t step)
{
    const struct hub_batch *b = &t->batch;
    const struct mr_options options = {.step = step};
    const struct fm_shape shape = {.samples = b->samples, .slots = b->slots, .factors = FACTORS};
    struct fm_gradients all = {.pooled = t->pooled_gradients};
    look_up(t);
    const struct fm_parameters parameters = {.bias = pull_bias(t)};
    (void)fm_backward(&shape, &parameters, t->pooled, NULL, b->labels, &all);
    memset(t->gradients, 0, (size_t)t->key_count * DIM * sizeof(float));
    for (uint32_t bag = 0; bag < b->samples * b->slots; bag++)
        for (uint32_t k = b->offsets[bag]; k < b->offsets[bag + 1]; k++)
            for (uint32_t d = 0; d < DIM; d++)
                t->gradients[(size_t)place_of(t, b->keys[k]) * DIM + d] += all.pooled[(size_t)bag * DIM + d];
    cluster_training_check(
        mr_push_gradients(t->client, &options, t->table, t->keys, t->key_count, DIM, t->gradients));
    cluster_training_check(mr_variable_push_gradient(t->client, &options, t->bias, 1, &all.bias));
}

static void create_model(struct trainer *t, const char *name)
{
    const uint32_t one = 1;
    struct mr_feature features[2] = {mr_feature_table(name, DIM)};
    char bias[80];
    uint32_t ids[2];
    (void)snprintf(bias, sizeof(bias), "%s.bias", name);
    features[1] = mr_feature_variable(bias, 1, &one);
    features[0].initializer = MR_INIT_NORMAL;
    features[0].init_b = 0.05f;
    features[0].seed = 1;
    for (uint32_t i = 0; i < 2; i++) {
        mr_feature_set_optimizer(&features[i], MR_OPT_ADAGRAD);
        features[i].learning_rate = 0.05f;
    }
    cluster_training_check(mr_create(t->client, NULL, features, 2, ids));
    t->table = ids[0];
    t->bias = ids[1];
}

static void cluster_training_begin(struct trainer *t, uint32_t set)
{
    char name[64], error[HUB_ERROR_BYTES] = "";
    struct hub_request request = {
        .table = "t", .batch_samples = sets[set].batch_samples, .epochs = 1, .shuffle_seed = 1};
    path_of(set, request.path);
    (void)snprintf(request.format, sizeof(request.format), "%s", sets[set].format);
    (void)snprintf(name, sizeof(name), "single.%s", sets[set].name);
    *t = (struct trainer){.client = connect_to(servers)};
    if (hub_batch_source_open(&(struct hub_batch_source_options){.request = &request, .formats = formats},
                              &t->source, error) != MR_OK)
        fail_msg("%s", error);
    create_model(t, name);
}

static void cluster_training_end(struct trainer *t)
{
    mr_client_destroy(t->client);
    hub_batch_source_close(t->source);
    hub_batch_free(&t->batch);
    free(t->keys);
    free(t->pooled);
    free(t->pooled_gradients);
    free(t->gradients);
}

/* The rows of all keys that were met. */
static void read_model(struct trainer *t, struct model *out)
{
    struct mr_reply *reply;
    *out = (struct model){.bias = pull_bias(t)};
    for (uint64_t n = 0; n < BATCHES; n++) {
        read_batch(t, n);
        out->keys = cluster_training_grow(out->keys, ((size_t)out->count + t->key_count) * sizeof(uint64_t));
        memcpy(out->keys + out->count, t->keys, t->key_count * sizeof(uint64_t));
        out->count = sort_once(out->keys, out->count + t->key_count);
    }
    cluster_training_check(mr_lookup(t->client, NULL, t->table, out->keys, out->count, &reply));
    out->rows = cluster_training_grow(NULL, mr_reply_tensor(reply, 0)->bytes);
    memcpy(out->rows, mr_reply_tensor(reply, 0)->data, mr_reply_tensor(reply, 0)->bytes);
    mr_reply_free(reply);
}

static bool is_close(const float *a, const float *b)
{
    for (uint32_t d = 0; d < DIM; d++)
        if (fabsf(a[d] - b[d]) > SUM_TOLERANCE)
            return false;
    return true;
}

/* Compares the sums of nodes with the trainer's own. Clients that have the same map get the same bits. */
static void check_bags(struct trainer *t)
{
    const struct hub_batch *b = &t->batch;
    const uint32_t bags = b->samples * b->slots;
    struct mr_client *other = connect_to(servers_backwards);
    struct mr_reply *reply, *again;
    look_up(t);
    cluster_training_check(
        mr_lookup_bags(t->client, NULL, t->table, b->keys, NULL, b->offsets, bags, &reply));
    cluster_training_check(mr_lookup_bags(other, NULL, t->table, b->keys, NULL, b->offsets, bags, &again));
    const float *sums = mr_reply_tensor(reply, 0)->data, *others = mr_reply_tensor(again, 0)->data;
    if (!mover.runs)
        assert_memory_equal(sums, others, (size_t)bags * DIM * sizeof(float));
    for (size_t at = 0; at < (size_t)bags * DIM; at += DIM) {
        const size_t bag = at / DIM;
        if (b->offsets[bag + 1] - b->offsets[bag] <= 1)
            assert_memory_equal(sums + at, t->pooled + at, DIM * sizeof(float));
        else
            assert_true(is_close(sums + at, t->pooled + at));
        assert_true(is_close(sums + at, others + at));
    }
    mr_reply_free(reply);
    mr_reply_free(again);
    mr_client_destroy(other);
}

static void train_by_single_keys(uint32_t set, uint32_t run)
{
    static struct trainer t;
    struct model *model = &sets[set].models[run], *one = &sets[set].models[1];
    cluster_training_begin(&t, set);
    for (uint64_t n = 0; n < BATCHES; n++) {
        read_batch(&t, n);
        learn(&t, n + 1);
    }
    read_model(&t, model);
    check_bags(&t);
    cluster_training_end(&t);
    assert_int_equal(model->count, one->count);
    assert_memory_equal(model->keys, one->keys, model->count * sizeof(uint64_t));
    assert_memory_equal(model->rows, one->rows, (size_t)model->count * DIM * sizeof(float));
    assert_memory_equal(&model->bias, &one->bias, sizeof(float));
    assert_true(fabsf(model->bias) > 0); /* it learned something */
}

/* ---- a hub and two trainers ---- */

static pid_t start_hub(void)
{
    char log[COMMAND_BYTES];
    (void)snprintf(log, sizeof(log), "%s/hub.log", directory);
    const pid_t test = getpid();
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        end_with_test(test);
        (void)!freopen(log, "ae", stderr);
        (void)execl(millrace_hub, millrace_hub, "--listen", HUB, "--allow", "/", "--server", servers,
                    (char *)NULL);
        _exit(127);
    }
    return pid;
}

static FILE *start_fm(const char *subcommand, uint32_t set)
{
    char command[2 * COMMAND_BYTES], path[COMMAND_BYTES];
    path_of(set, path);
    (void)snprintf(command, sizeof(command),
                   "exec %s %s --hub " HUB " --server %s --data %s --format %s --table %s --quiet --ledger "
                   "--replay on --give-up 60 %s 2>>%s/fm.log",
                   fm, subcommand, servers, path, sets[set].format, sets[set].name, sets[set].options,
                   directory);
    FILE *f = popen(command, "re"); /* NOLINT(cert-env33-c): a program of our own */
    assert_non_null(f);
    return f;
}

/* Waits for its end, which must be a good one. */
static void end_fm(FILE *f, char out[OUTPUT_BYTES])
{
    out[fread(out, 1, OUTPUT_BYTES - 1, f)] = '\0';
    if (pclose(f) == 0)
        return;
    (void)command_run("cat %s/fm.log %s/hub.log >&2", directory, directory);
    fail_msg("fm failed: see above");
}

static double field(const char *json, const char *name)
{
    char quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\": ", name);
    const char *at = strstr(json, quoted);
    if (at == NULL)
        fail_msg("no %s in %s", name, json);
    return at == NULL ? 0 : strtod(at + strlen(quoted), NULL);
}

static void train_by_a_hub(uint32_t set, uint32_t run)
{
    char out[OUTPUT_BYTES];
    int status;
    const pid_t hub = start_hub();
    FILE *trainers[2] = {start_fm("train", set), start_fm("train", set)};
    end_fm(trainers[0], out);
    end_fm(trainers[1], out);
    end_fm(start_fm("record", set), out);
    assert_true(field(out, "batches") > 100);
    assert_int_equal(field(out, "applied"), field(out, "batches"));
    assert_int_equal(field(out, "pushes_lost"), 0);
    assert_int_equal(field(out, "pushes_twice"), 0);
    end_fm(start_fm("evaluate", set), out);
    sets[set].auc[run] = field(out, "auc");
    (void)printf("%s: %u node%s%s: AUC %.4f\n", sets[set].name, run == MOVED ? NODES : run,
                 run == 1 ? "" : "s", run == MOVED ? ", partitions move" : "", sets[set].auc[run]);
    assert_true(fabs(sets[set].auc[run] - sets[set].auc[1]) <= AUC_TOLERANCE);
    assert_int_equal(kill(hub, SIGTERM), 0);
    assert_int_equal(waitpid(hub, &status, 0), hub);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- partitions that move ---- */

static bool cluster_training_move(struct mr_client *client, const struct mr_move_request *request)
{
    struct mr_moves_state moves = {.balances = true};
    bool ok = mr_move(client, NULL, request) == MR_OK;
    (void)WAIT_WITHIN(MOVES_S, ok = ok && mr_moves(client, NULL, &moves, NULL, NULL) == MR_OK,
                      !ok || (!moves.balances && moves.count == 0));
    if (!ok)
        (void)snprintf(mover.error, sizeof(mover.error), "%s", mr_last_error());
    return ok;
}

static void *run_mover(void *arg)
{
    const struct mr_move_request drain = {.kind = MR_REQUEST_DRAIN, .from = nodes[1].name},
                                 back = {.kind = MR_REQUEST_REBALANCE};
    struct mr_client *client = arg;
    while (mover.rounds < mover.rounds_max && !atomic_load(&mover.stop) &&
           cluster_training_move(client, &drain) && cluster_training_move(client, &back))
        mover.rounds++;
    mr_client_destroy(client);
    return NULL;
}

static void start_mover(uint32_t rounds_max)
{
    memset(&mover, 0, sizeof(mover));
    mover.rounds_max = rounds_max;
    assert_int_equal(pthread_create(&mover.thread, NULL, run_mover, connect_to(servers)), 0);
    mover.runs = true;
}

static void end_mover(void)
{
    stop_mover();
    assert_string_equal(mover.error, "");
    assert_true(mover.rounds > 0);
    (void)printf("a node was drained and got its share again %u times\n", mover.rounds);
}

/* ---- tests, in this order ---- */

static void train_on(uint32_t run)
{
    start_cluster(run == MOVED ? NODES : run);
    if (run == MOVED)
        start_mover(UINT32_MAX);
    for (uint32_t set = 0; set < DATA_SETS; set++)
        train_by_single_keys(set, run);
    if (run == MOVED)
        end_mover();
    for (uint32_t set = 0; set < DATA_SETS && run != 2; set++) {
        if (set == FLIGHTS && run == NODES)
            continue;     /* these train over three nodes while partitions move */
        if (run == MOVED) /* each time batches that were fed go, and come again later, in another order */
            start_mover(1);
        train_by_a_hub(set, run);
        if (run == MOVED)
            end_mover();
    }
}

static void test_one_node(void **state)
{
    (void)state;
    train_on(1);
}

static void test_two_nodes(void **state)
{
    (void)state;
    train_on(2);
}

static void test_three_nodes(void **state)
{
    (void)state;
    train_on(3);
}

static void test_three_nodes_while_partitions_move(void **state)
{
    (void)state;
    train_on(MOVED);
}

static int unpack(void **state)
{
    (void)state;
    directory = temporary_directory_make();
    formats = hub_formats_create();
    assert_non_null(formats);
    for (uint32_t set = 0; set < DATA_SETS; set++) {
        char path[COMMAND_BYTES];
        path_of(set, path);
        assert_int_equal(command_run("xz -dc '%s' | head -n %u >%s", sets[set].packed, sets[set].lines, path),
                         0);
    }
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    hub_formats_destroy(formats);
    for (uint32_t set = 0; set < DATA_SETS; set++) {
        for (uint32_t n = 1; n < RUNS; n++) {
            free(sets[set].models[n].keys);
            free(sets[set].models[n].rows);
        }
    }
    return temporary_directory_remove(directory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_node, end_cluster),
        cmocka_unit_test_teardown(test_two_nodes, end_cluster),
        cmocka_unit_test_teardown(test_three_nodes, end_cluster),
        cmocka_unit_test_teardown(test_three_nodes_while_partitions_move, end_cluster),
    };
    if (argc != 6) {
        (void)fprintf(stderr, "usage: %s MILLRACED MILLRACE-HUB FM FLIGHTS.XZ A9A.XZ\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    millrace_hub = argv[2];
    fm = argv[3];
    sets[FLIGHTS].packed = argv[4];
    sets[A9A].packed = argv[5];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(cmocka_run_group_tests(tests, unpack, clean_up));
}
