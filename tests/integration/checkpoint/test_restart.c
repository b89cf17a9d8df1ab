/* Server, hub and trainer are killed in the middle of training, each with whatever it has in flight: nothing
 * hangs, what is left goes on by itself, and every batch is applied exactly once.
 *
 * Trainers are processes of their own: this program again, with other arguments. Their gradients make the
 * model a record: a row falls by one per key learnt, an element of the ledger rises by one per time its batch
 * was applied. A gate in shared memory holds the trainers until the test has done its killing, so that it
 * always comes in the middle. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/hub_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { SAMPLES = 1500, BATCH = 10, EPOCHS = 2, BATCHES = EPOCHS * SAMPLES / BATCH, DIM = 4, TRAINERS = 2 };
enum { ALL = 1 << 30 }; /* tickets: nobody is held any more */

#define CALL_DEADLINE_MS 2000

struct gate {
    atomic_uint allowed; /* batches that may be pushed */
    atomic_uint taken;   /* batches that trainers hold or held */
};

static struct gate *map_gate(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *gate = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof(struct gate)) == 0)
        gate = mmap(NULL, sizeof(struct gate), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (gate == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(fd);
    return gate;
}

/* ---- a trainer ---- */

struct trainer {
    struct mr_client *hub, *server;
    struct gate *gate;
    struct mr_sample_plan plan;
    struct mr_sample_info info;
    uint32_t table, ledger;
};

static struct mr_client *connect_to(const char *address)
{
    struct mr_client_options options = {
        .server = address, .connect_ms = NODE_READY_MS, .deadline_ms = CALL_DEADLINE_MS};
    struct mr_client *client;
    char error[512];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK) {
        fprintf(stderr, "trainer: %s\n", error);
        exit(1);
    }
    return client;
}

/* What passes once server and hub are back. Anything else ends the trainer, and the test with it. */
static void expect_passing(enum mr_status status, const char *call)
{
    switch (status) {
    case MR_DEADLINE_EXCEEDED:
    case MR_UNKNOWN_OUTCOME:
    case MR_UNREACHABLE:
    case MR_BUSY: /* it restores for longer than a call may take */
    case MR_UNKNOWN_BATCH:
    case MR_BATCH_EXPIRED:
    case MR_UNKNOWN_TABLE:
    case MR_UNKNOWN_VARIABLE:
    case MR_NOT_READY:
    case MR_NOT_STARTED:
        wait_pause();
        return;
    default:
        fprintf(stderr, "trainer: %s: %s: %s\n", call, mr_status_name(status), mr_last_error());
        exit(1);
    }
}

static void start_samples(struct trainer *t)
{
    enum mr_status status;
    while ((status = mr_start_sample(t->hub, NULL, &t->plan, &t->info)) != MR_OK)
        expect_passing(status, "StartSample");
}

static void create_features(struct trainer *t)
{
    uint32_t ids[2], dims[1] = {BATCHES};
    struct mr_feature features[2] = {mr_feature_table("clicks", DIM), mr_feature_variable("ledger", 1, dims)};
    enum mr_status status;
    features[0].learning_rate = features[1].learning_rate = 1;
    while ((status = mr_create(t->server, NULL, features, 2, ids)) != MR_OK)
        expect_passing(status, "Create");
    t->table = ids[0];
    t->ledger = ids[1];
}

static enum mr_status restart_push(struct trainer *t, const struct mr_batch *batch)
{
    static float rows[BATCH * HUB_SLOTS * DIM], ledger[BATCHES];
    struct mr_batch_gradient gradients[2] = {
        {t->table, mr_tensor_3d(MR_F32, batch->samples, HUB_SLOTS, DIM, rows)},
        {t->ledger, mr_tensor_1d(MR_F32, BATCHES, ledger)},
    };
    uint64_t sequence = batch->id & ((UINT64_C(1) << 48) - 1);
    for (uint32_t i = 0; i < BATCH * HUB_SLOTS * DIM; i++)
        rows[i] = 1;
    memset(ledger, 0, sizeof(ledger));
    ledger[sequence] = -1;
    return mr_push_gradients_batch(t->server, NULL, batch->id, gradients, 2, NULL);
}

static void learn(struct trainer *t, const struct mr_batch *batch)
{
    uint32_t ticket = atomic_fetch_add(&t->gate->taken, 1);
    enum mr_status status = mr_lookup_batch(t->server, NULL, batch->id, t->table, NULL);
    while (ticket >= atomic_load(&t->gate->allowed))
        wait_pause();
    if (status == MR_OK)
        status = restart_push(t, batch);
    if (status == MR_OK)
        return;
    expect_passing(status, "Lookup or PushGrad");
    if (status == MR_UNKNOWN_TABLE || status == MR_UNKNOWN_VARIABLE)
        create_features(t); /* the server came back without a checkpoint */
}

static int run_trainer(const char *hub, const char *server, const char *samples, const char *gate)
{
    struct trainer t = {.hub = connect_to(hub),
                        .server = connect_to(server),
                        .gate = map_gate(gate),
                        .plan = {.path = samples,
                                 .format = "criteo",
                                 .batch_samples = BATCH,
                                 .epochs = EPOCHS,
                                 .shuffle_seed = 3,
                                 .table = "clicks"}};
    struct mr_batch batch;
    uint64_t done = 0;
    uint32_t done_count = 0;
    enum mr_status status;
    start_samples(&t);
    create_features(&t);
    while ((status = mr_read_sample(t.hub, NULL, &done, done_count, &batch)) != MR_END_OF_DATA) {
        if (status == MR_OK) {
            learn(&t, &batch);
            done = batch.id;
            done_count = 1;
            mr_reply_free(batch.reply);
            continue;
        }
        if (status == MR_NOT_READY)
            done_count = 0; /* the hub knows */
        expect_passing(status, "ReadSample");
        if (status == MR_NOT_STARTED)
            start_samples(&t);
        if (status == MR_NOT_READY)
            create_features(&t); /* a server without them is fed nothing */
    }
    mr_client_destroy(t.hub);
    mr_client_destroy(t.server);
    return 0;
}

/* ---- the test's side ---- */

static const char *self;
static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct hub_fixture hub;
    struct netns_process trainers[TRAINERS];
    struct gate *gate;
    char gate_path[NODE_PATH_BYTES];
    struct mr_client *server, *watcher; /* the watcher is at the hub */
};

static void spawn_trainer(struct fixture *x, uint32_t i)
{
    char hub[] = HUB_ADDRESS;
    char *argv[] = {(char *)self, "--trainer", hub, x->node.address, x->hub.samples, x->gate_path, NULL};
    netns_spawn(&x->node.net, NETNS_CLIENT, argv, &x->trainers[i]);
}

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, cores, NULL);
    hub_fixture_start(&x.hub, &x.node, "--trainer-timeout 1");
    hub_fixture_write_samples(&x.hub, SAMPLES, UINT32_MAX);
    snprintf(x.gate_path, sizeof(x.gate_path), "%.40s/gate", x.node.directory);
    x.gate = map_gate(x.gate_path);
    x.server = node_fixture_connect(&x.node);
    x.watcher = hub_fixture_connect();
    for (uint32_t i = 0; i < TRAINERS; i++)
        spawn_trainer(&x, i);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->watcher);
    mr_client_destroy(x->server);
    hub_fixture_stop(&x->hub);
    node_fixture_stop(&x->node);
    munmap(x->gate, sizeof(*x->gate));
    return 0;
}

/* Lets the trainers have `batches` batches in all and returns while they are at it, or just before or
 * behind. */
static void train_until(struct fixture *x, uint32_t batches)
{
    atomic_store(&x->gate->allowed, batches);
    while (atomic_load(&x->gate->taken) + TRAINERS < batches)
        wait_pause();
}

/* The same, and each trainer holds a batch that it may not push. */
static void train_up_to(struct fixture *x, uint32_t batches)
{
    atomic_store(&x->gate->allowed, batches);
    while (atomic_load(&x->gate->taken) < batches + TRAINERS)
        wait_pause();
}

static void train_to_the_end(struct fixture *x)
{
    atomic_store(&x->gate->allowed, ALL);
    for (uint32_t i = 0; i < TRAINERS; i++)
        assert_int_equal(netns_end(&x->trainers[i], 0), 0);
}

static uint32_t feature(struct fixture *x, const char *name)
{
    struct mr_feature_info *infos;
    uint32_t count, id = 0;
    assert_int_equal(mr_list(x->server, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(infos[i].feature.name, name) == 0)
            id = infos[i].id;
    free(infos);
    assert_int_not_equal(id, 0);
    return id;
}

static void check_ledger(struct fixture *x)
{
    struct mr_reply *reply;
    assert_int_equal(mr_variable_pull(x->server, NULL, feature(x, "ledger"), 0, 0, &reply), MR_OK);
    for (uint32_t i = 0; i < BATCHES; i++)
        assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[i] == 1);
    mr_reply_free(reply);
}

static void check_rows(struct fixture *x)
{
    static uint64_t keys[SAMPLES];
    uint32_t table = feature(x, "clicks");
    struct mr_reply *reply;
    for (uint32_t slot = 0; slot < HUB_SLOTS; slot++) {
        for (uint32_t i = 0; i < SAMPLES; i++)
            keys[i] = hub_fixture_key(i, slot);
        assert_int_equal(mr_lookup(x->server, NULL, table, keys, SAMPLES, &reply), MR_OK);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            uint32_t times = 0;
            for (uint32_t j = 0; j < SAMPLES; j++)
                times += keys[j] == keys[i];
            assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[i * DIM] ==
                        -(float)(EPOCHS * times));
        }
        mr_reply_free(reply);
    }
}

/* By the rows, by the ledger, and by the server's record of batches. */
static void check_exactly_once(struct fixture *x)
{
    struct mr_hub_status status;
    struct mr_sample_info info;
    struct mr_sample_plan plan = hub_fixture_plan(&x->hub, BATCH);
    uint64_t watermark, *bitmap;
    uint32_t words;
    plan.epochs = EPOCHS;
    plan.shuffle_seed = 3;
    assert_int_equal(mr_start_sample(x->watcher, NULL, &plan, &info), MR_OK);
    assert_int_equal(info.batches, BATCHES);
    do { /* a hub that was asked to start again reads the record first */
        assert_int_equal(mr_hub_status(x->watcher, NULL, &status), MR_OK);
    } while (!status.at_end);
    assert_int_equal(status.batches_applied, BATCHES);
    assert_int_equal(mr_batch_state(x->server, NULL, info.stream, &watermark, &bitmap, &words), MR_OK);
    free(bitmap);
    assert_int_equal(watermark, BATCHES);
    assert_int_equal(node_fixture_sum(x->server, "ps.batches_applied"), (uint64_t)BATCHES * cores);
    check_ledger(x);
    check_rows(x);
}

TEST(test_no_kill, set_up, tear_down)
{
    struct fixture *x = *state;
    train_to_the_end(x);
    check_exactly_once(x);
}

TEST(test_server, set_up, tear_down)
{
    struct fixture *x = *state;
    uint32_t incarnation = mr_client_incarnation(x->server);
    train_until(x, 40);
    atomic_store(&x->gate->allowed, 120); /* so that pushes go on while it is saved */
    node_fixture_save(x->server);
    train_until(x, 120);
    node_fixture_kill(&x->node);
    atomic_store(&x->gate->allowed, ALL);
    node_fixture_restart(&x->node);
    train_to_the_end(x);
    check_exactly_once(x);
    assert_true(mr_client_incarnation(x->server) > incarnation);
}

/* Twice, and the second time while it has just come back. */
TEST(test_server_again, set_up, tear_down)
{
    struct fixture *x = *state;
    train_until(x, 30);
    node_fixture_save(x->server);
    train_until(x, 60);
    node_fixture_kill(&x->node);
    node_fixture_restart(&x->node);
    train_until(x, 90);
    node_fixture_kill(&x->node);
    atomic_store(&x->gate->allowed, ALL);
    node_fixture_restart(&x->node);
    train_to_the_end(x);
    check_exactly_once(x);
}

/* All that was applied is gone, and applied again. */
TEST(test_server_without_checkpoint, set_up, tear_down)
{
    struct fixture *x = *state;
    train_until(x, 60);
    node_fixture_kill(&x->node);
    atomic_store(&x->gate->allowed, ALL);
    node_fixture_restart(&x->node);
    train_to_the_end(x);
    check_exactly_once(x);
}

TEST(test_restore_by_call, set_up, tear_down)
{
    struct fixture *x = *state;
    train_until(x, 40);
    node_fixture_save(x->server);
    train_until(x, 100);
    atomic_store(&x->gate->allowed, 160);
    assert_int_equal(restore_from(x->server, NULL, NULL, 0, NULL), MR_OK);
    train_to_the_end(x);
    check_exactly_once(x);
}

TEST(test_hub, set_up, tear_down)
{
    struct fixture *x = *state;
    train_until(x, 80);
    hub_fixture_kill(&x->hub);
    atomic_store(&x->gate->allowed, ALL);
    hub_fixture_restart(&x->hub);
    train_to_the_end(x);
    check_exactly_once(x);
}

/* One trainer dies with a batch in its hands: the other gets it. */
TEST(test_trainer, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_hub_status status;
    train_up_to(x, 50);
    assert_int_equal(netns_end(&x->trainers[0], SIGKILL), 128 + SIGKILL);
    spawn_trainer(x, 0);
    train_to_the_end(x);
    check_exactly_once(x);
    assert_int_equal(mr_hub_status(x->watcher, NULL, &status), MR_OK);
    assert_true(status.batches_handed_again > 0);
}

TEST(test_all_of_them, set_up, tear_down)
{
    struct fixture *x = *state;
    train_until(x, 40);
    node_fixture_save(x->server);
    train_until(x, 80);
    hub_fixture_kill(&x->hub);
    node_fixture_kill(&x->node);
    assert_int_equal(netns_end(&x->trainers[1], SIGKILL), 128 + SIGKILL);
    atomic_store(&x->gate->allowed, ALL);
    node_fixture_restart(&x->node);
    hub_fixture_restart(&x->hub);
    spawn_trainer(x, 1);
    train_to_the_end(x);
    check_exactly_once(x);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--trainer") == 0)
        return run_trainer(argv[2], argv[3], argv[4], argv[5]);
    if (argc != 4 || (cores = (uint32_t)strtoul(argv[3], NULL, 10)) == 0) {
        fprintf(stderr, "usage: test_restart MILLRACED MILLRACE_HUB CORES\n");
        return 2;
    }
    self = argv[0];
    node_fixture_server = argv[1];
    hub_fixture_program = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
