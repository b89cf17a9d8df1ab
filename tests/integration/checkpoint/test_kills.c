/* The server is killed at random moments while trainers learn and checkpoints are made all the time: also
 * while it starts and restores. Each restart finds the newest checkpoint whole, and the trainers bring what
 * it lacks. With the demo's trainers and data no push is lost or made twice in the end. With one trainer that
 * looks up, computes, pushes and waits for each answer the model is, bit for bit, that of a run that nobody
 * disturbed. (The demo's would not be: the hub feeds its batches ahead, and their rows are as of then.)
 *
 * The last argument is checkpoint.deltas: with 0 every checkpoint is full, else most of those restored are
 * chains.
 *
 * MILLRACE_KILLS: how many for each test (3 unless set); the data is applied again until there were that
 * many. */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/checkpoint/checkpoint_content.h"
#include "tests/integration/hub_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"
#include "tests/wait.h"

#define KILLS_DEFAULT    3u
#define TRAINERS_MAX     2
#define SERVED_MS_MAX    1000u  /* between a restart and the next kill */
#define STARTED_MS_MAX   600u   /* the same, for a kill that does not wait until it serves */
#define CALL_DEADLINE_MS 600000 /* over many kills, should each come before a call gets through */
#define COMMAND_BYTES    1024
#define SETTING_BYTES    32
#define OUTPUT_BYTES     4096
#define PLAN             "--format flights --epochs 2 --batch 512"

enum { DIM = 8, BATCHES = 1500, BATCH_KEYS = 400, SAVE_EVERY = 20 };

static const char *fm, *data;
static uint32_t cores, deltas; /* deltas: after each full checkpoint */

struct fixture {
    struct node_fixture node;
    struct hub_fixture hub;
    struct netns_process trainers[TRAINERS_MAX];
    uint32_t trainer_count;
    char samples[NODE_PATH_BYTES];
    pthread_t learner; /* of the test without a hub */
    bool has_learner;
    atomic_bool is_applied;
    atomic_uint batches;
    uint64_t random;
    uint32_t restored, chains; /* checkpoints restored, and how many of them were deltas */
};

static uint32_t kill_count(void)
{
    const char *given = getenv("MILLRACE_KILLS");
    return given ? (uint32_t)strtoul(given, NULL, 10) : KILLS_DEFAULT;
}

static uint32_t draw(struct fixture *x, uint32_t below)
{
    x->random = x->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(x->random >> 33) % below;
}

static void wait_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void kills_start(struct fixture *x, uint64_t seed)
{
    static char of_deltas[SETTING_BYTES];
    static const char *const settings[] = {"memory.limit_mib=512", "batches.count_max=64",
                                           "checkpoint.delta_share_percent=1000", of_deltas, NULL};
    snprintf(of_deltas, sizeof(of_deltas), "checkpoint.deltas=%u", (unsigned)deltas);
    memset(x, 0, sizeof(*x));
    x->random = seed;
    node_fixture_start(&x->node, cores, settings);
}

static void start_hub(struct fixture *x)
{
    hub_fixture_start(&x->hub, &x->node, "--trainer-timeout 60");
    snprintf(x->samples, sizeof(x->samples), "%.40s/flights.csv", x->node.directory);
    assert_int_equal(netns_run(&x->node.net, NETNS_CLIENT, "xz -dc %s >%s", data, x->samples), 0);
}

static void start_trainers(struct fixture *x, uint32_t count, const char *options)
{
    char command[COMMAND_BYTES];
    x->trainer_count = count;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(command, sizeof(command),
                 "exec %s train --hub " HUB_ADDRESS " --server %s --data %s " PLAN
                 " --ledger --replay on --give-up 600 --quiet %s >%.40s/trainer%u.json",
                 fm, x->node.address, x->samples, options, x->node.directory, (unsigned)i);
        netns_spawn(&x->node.net, NETNS_CLIENT, (char *[]){"/bin/sh", "-c", command, NULL}, &x->trainers[i]);
    }
}

/* Ended ones stay to be waited for. */
static bool is_training(const struct fixture *x)
{
    if (x->has_learner)
        return !atomic_load(&x->is_applied);
    for (uint32_t i = 0; i < x->trainer_count; i++) {
        siginfo_t info = {.si_pid = 0};
        assert_int_equal(waitid(P_PID, (id_t)x->trainers[i].pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        if (info.si_pid == 0)
            return true;
    }
    return false;
}

static void await_trainers(struct fixture *x)
{
    if (x->has_learner)
        assert_int_equal(pthread_join(x->learner, NULL), 0);
    for (uint32_t i = 0; i < x->trainer_count; i++)
        assert_int_equal(netns_end(&x->trainers[i], 0), 0);
}

static uint64_t newest_checkpoint(const struct fixture *x)
{
    uint64_t newest = 0;
    DIR *directory = opendir(x->node.checkpoints);
    for (const struct dirent *e; directory != NULL && (e = readdir(directory)) != NULL;) {
        uint64_t id = strncmp(e->d_name, "ckpt-", 5) == 0 ? strtoull(e->d_name + 5, NULL, 10) : 0;
        newest = id > newest ? id : newest;
    }
    if (directory != NULL)
        (void)closedir(directory);
    return newest;
}

/* While no server runs, which might remove it. */
static bool is_delta(const struct fixture *x, uint64_t id)
{
    struct ps_reader *reader;
    char text[256];
    if (ps_reader_open_unread(NULL, x->node.checkpoints, id, &reader, text) != MR_OK)
        fail_msg("%s", text);
    bool delta = ps_reader_chain(reader)->count > 1;

    ps_reader_close(reader);
    return delta;
}

/* Now and then the trainers get on, and so far that a checkpoint is made: on a machine with too much to do
 * they might not between any two kills. */
static void let_learn(const struct fixture *x)
{
    const uint32_t before = atomic_load(&x->batches);
    const uint64_t newest = newest_checkpoint(x);
    while (is_training(x) &&
           (x->has_learner ? atomic_load(&x->batches) == before : newest_checkpoint(x) == newest))
        wait_pause();
}

/* A kill, at any moment; and now and then another before the server is back. Returns how many. */
static uint32_t crash(struct fixture *x, uint32_t kills_left)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    uint32_t kills = 1;
    if (draw(x, 4) == 0)
        let_learn(x);
    wait_ms(draw(x, SERVED_MS_MAX));
    node_fixture_kill(&x->node);
    for (; kills < kills_left && draw(x, 4) == 0; kills++) {
        node_fixture_launch(&x->node);
        wait_ms(draw(x, STARTED_MS_MAX));
        node_fixture_kill(&x->node);
    }
    const uint64_t newest = newest_checkpoint(x);

    x->restored++;
    x->chains += is_delta(x, newest);
    node_fixture_restart(&x->node);
    struct mr_client *client = node_fixture_connect(&x->node);

    assert_int_equal(mr_checkpoint_info(client, NULL, 0, &status, NULL, NULL), MR_OK);
    if (status.last_status != MR_OK)
        fail_msg("%s", status.last_error);
    assert_true(status.id >= newest); /* a trainer may have begun a save by now */
    mr_client_destroy(client);
    return kills;
}

static uint32_t train_and_kill(struct fixture *x, uint32_t kills_max)
{
    uint32_t kills = 0;
    while (newest_checkpoint(x) == 0 && is_training(x)) /* without one the features are gone, too */
        wait_pause();
    while (kills < kills_max && is_training(x))
        kills += crash(x, kills_max - kills);
    await_trainers(x);
    print_message("%u kills: %u restores, %u of deltas\n", (unsigned)kills, (unsigned)x->restored,
                  (unsigned)x->chains);
    return kills;
}

/* That this test is about what it should be about. Nobody saves meanwhile. */
static void check_kinds(const struct fixture *x)
{
    uint64_t ids[64];
    uint32_t count = ps_checkpoint_list(NULL, x->node.checkpoints, ids, 64), found = 0;
    assert_true(count > 0 && count <= 64);
    for (uint32_t i = 0; i < count; i++)
        found += is_delta(x, ids[i]);
    assert_int_equal(found > 0, deltas > 0);
}

/* What fm says of the server's record; the ledger in it counts each batch. */
static void check_record(struct fixture *x)
{
    static struct program_result result;
    program_run(&x->node.net, NETNS_CLIENT, &result,
                "%s record --hub " HUB_ADDRESS " --server %s --data %s " PLAN " --ledger --quiet", fm,
                x->node.address, x->samples);
    program_expect(&result, 0, "");
    if (strstr(result.out, "\"pushes_lost\": 0") == NULL || strstr(result.out, "\"pushes_twice\": 0") == NULL)
        fail_msg("%s", result.out);
}

static void kills_save(struct fixture *x)
{
    struct mr_client *client = node_fixture_connect(&x->node);
    uint64_t id;
    enum mr_status saved;
    while ((saved = save_into(client, NULL, NULL, &id)) == MR_CHECKPOINT_RUNNING) /* the trainer's last */
        wait_pause();
    assert_int_equal(saved, MR_OK);
    assert_int_equal(node_fixture_wait_saved(client).last_good_id, id);
    mr_client_destroy(client);
}

/* ---- one trainer, call by call ---- */

static void expect(enum mr_status status)
{
    if (status != MR_OK) {
        fprintf(stderr, "trainer: %s: %s\n", mr_status_name(status), mr_last_error());
        abort();
    }
}

static uint64_t kills_next(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *random >> 33;
}

/* Few keys often, many seldom, and some twice. */
static void draw_keys(uint32_t batch, uint64_t keys[BATCH_KEYS])
{
    uint64_t random = batch * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < BATCH_KEYS; i++) {
        uint32_t bits = 4 + (uint32_t)kills_next(&random) % 14;
        keys[i] = kills_next(&random) % (UINT64_C(1) << bits) + 1;
    }
}

/* What is pushed depends on what was looked up: a push that is missing shows in all that follow. */
static void learn_batch(struct mr_client *client, const uint32_t ids[2], uint32_t batch)
{
    static float gradients[BATCH_KEYS * DIM];
    uint64_t keys[BATCH_KEYS];
    struct mr_options options = {.step = batch + 1};
    struct mr_reply *reply;
    float bias = 0;
    draw_keys(batch, keys);
    expect(mr_lookup(client, &options, ids[0], keys, BATCH_KEYS, &reply));
    const float *rows = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < BATCH_KEYS; i++) {
        float sum = 0;
        for (uint32_t d = 0; d < DIM; d++)
            sum += rows[i * DIM + d];
        for (uint32_t d = 0; d < DIM; d++)
            gradients[i * DIM + d] = tanhf(sum) - (keys[i] % 3 == 0 ? 0.7f : -0.2f) + 0.01f * (float)d;
        bias += gradients[i * DIM];
    }
    mr_reply_free(reply);
    expect(mr_push_gradients(client, &options, ids[0], keys, BATCH_KEYS, DIM, gradients));
    expect(mr_variable_push_gradient(client, &options, ids[1], 1, &bias));
}

/* What is answered on every core, so also behind what a restarted server got again; which server it was. */
static uint32_t meet_all_cores(struct mr_client *client, uint32_t table)
{
    uint64_t keys[BATCH_KEYS];
    draw_keys(0, keys);
    expect(mr_lookup(client, NULL, table, keys, BATCH_KEYS, NULL));
    return mr_client_incarnation(client);
}

static bool save_succeeds(struct mr_client *client)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    uint64_t id;
    if (save_into(client, NULL, NULL, &id) != MR_OK)
        return false;
    do {
        wait_pause();
        if (mr_checkpoint_info(client, NULL, 0, &status, NULL, NULL) != MR_OK)
            return false;
    } while (status.state != MR_CHECKPOINT_IDLE);
    return status.last_good_id >= id;
}

/* Until all is on disk: a trainer that leaves takes what it could bring again along. */
static void save_all(struct mr_client *client, uint32_t table)
{
    uint32_t incarnation;
    bool is_saved;
    do {
        incarnation = meet_all_cores(client, table);
        is_saved = save_succeeds(client);
    } while (!is_saved || meet_all_cores(client, table) != incarnation);
}

static void *learn_in_order(void *arg)
{
    struct fixture *x = arg;
    struct mr_client_options options = {.server = x->node.address,
                                        .connect_ms = NODE_READY_MS,
                                        .deadline_ms = CALL_DEADLINE_MS,
                                        .replay = true};
    struct mr_feature features[2] = {mr_feature_table("rows", DIM), mr_feature_variable("bias", 0, NULL)};
    struct mr_client *client;
    char error[512];
    uint32_t ids[2];
    uint64_t id;
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK) {
        fprintf(stderr, "trainer: %s\n", error);
        abort();
    }
    features[0].initializer = MR_INIT_NORMAL;
    features[0].init_b = 0.1f;
    for (uint32_t i = 0; i < 2; i++) {
        features[i].optimizer = MR_OPT_ADAGRAD;
        features[i].learning_rate = 0.05f;
        features[i].optimizer_args[0] = 0.1f;
        features[i].optimizer_args[1] = 1e-8f;
    }
    expect(mr_create(client, NULL, features, 2, ids));
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        if (batch % SAVE_EVERY == 0)
            (void)save_into(client, NULL, NULL, &id); /* one may be running, or the server may be down */
        learn_batch(client, ids, batch);
        atomic_store(&x->batches, batch);
    }
    save_all(client, ids[0]);
    mr_client_destroy(client);
    atomic_store(&x->is_applied, true);
    return NULL;
}

/* Learns all of it, killed `kills_max` times at most; the model in the end. Returns the kills. */
static uint32_t learn_alone(uint64_t seed, uint32_t kills_max, struct content *content)
{
    static struct fixture x;
    kills_start(&x, seed);
    x.has_learner = true;
    assert_int_equal(pthread_create(&x.learner, NULL, learn_in_order, &x), 0);
    uint32_t kills = train_and_kill(&x, kills_max);

    kills_save(&x);
    check_kinds(&x);
    content_read(x.node.checkpoints, 0, content);
    node_fixture_stop(&x.node);
    return kills;
}

TEST(test_one_trainer_ends_with_the_same_bits)
{
    struct content calm, disturbed;
    const uint32_t count = kill_count();
    assert_int_equal(learn_alone(0, 0, &calm), 0);
    for (uint32_t kills = 0, round = 1; kills < count; round++) {
        kills += learn_alone(round, count - kills, &disturbed);
        uint64_t differences = content_differences(&calm, &disturbed);

        print_message("%u kills, %llu rows and variables, %llu differ\n", (unsigned)kills,
                      (unsigned long long)calm.count, (unsigned long long)differences);
        assert_int_equal(differences, 0);
        content_free(&disturbed);
    }
    content_free(&calm);
}

/* ---- the demo's ---- */

TEST(test_two_trainers_lose_and_double_nothing)
{
    static struct fixture x;
    const uint32_t count = kill_count();
    for (uint32_t kills = 0, round = 1; kills < count; round++) {
        kills_start(&x, round + 1000);
        start_hub(&x);
        start_trainers(&x, 2, "--save-every 20");
        kills += train_and_kill(&x, count - kills);
        /* What a kill behind the trainers' end has undone is handed out again. */
        start_trainers(&x, 1, "");
        await_trainers(&x);
        check_record(&x);
        kills_save(&x);
        check_kinds(&x);
        hub_fixture_stop(&x.hub);
        node_fixture_stop(&x.node);
        print_message("%u kills, no push lost or made twice\n", (unsigned)kills);
    }
}

int main(int argc, char **argv)
{
    if (argc != 7 || (cores = (uint32_t)strtoul(argv[5], NULL, 10)) == 0) {
        (void)fputs("usage: test_kills MILLRACED MILLRACE-HUB FM FLIGHTS.CSV.XZ CORES DELTAS\n", stderr);
        return 2;
    }
    netns_require_root();
    node_fixture_server = argv[1];
    hub_fixture_program = argv[2];
    fm = argv[3];
    data = argv[4];
    deltas = (uint32_t)strtoul(argv[6], NULL, 10);
    return tests_run(NULL, NULL);
}
