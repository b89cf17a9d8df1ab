/* checkpoint.durability = log: server and trainer are killed together, at any moment, again and again, while
 * the trainer pushes, saves, and alters a table. After each restart every push that was acknowledged is there
 * exactly once, with the same bits; the one that nobody has heard of is there once or not at all.
 *
 * MILLRACE_KILLS: how many (10 unless set). */
#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define KILLS_DEFAULT 10u

enum { DIM = 8, KEYS = 300, PUSH_KEYS = 6, PUSHES_MAX = 1 << 20, SAVE_EVERY = 150, ALTER_EVERY = 40 };

static uint32_t cores;

/* Written by the trainer, which dies. */
struct progress {
    _Atomic uint32_t begun, acknowledged;
};

/* What is to be there: element 0 of each row counts its pushes. */
struct model {
    float rows[KEYS + 1][DIM];
    float bias[DIM];
};

struct log_test {
    struct node_fixture node;
    struct progress *progress;
    struct model model;
    uint32_t applied; /* pushes that the model has */
    uint32_t ids[2];
};

static uint32_t kill_count(void)
{
    const char *given = getenv("MILLRACE_KILLS");
    return given ? (uint32_t)strtoul(given, NULL, 10) : KILLS_DEFAULT;
}

static uint64_t log_next(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *random >> 33;
}

/* The table's, which is altered now and then: powers of two, so that the model rounds as the optimizer does.
 * */
static float rate_of(uint32_t n)
{
    return n / ALTER_EVERY % 2 == 0 ? 1.0f : 0.5f;
}

static bool is_of_variable(uint32_t n)
{
    return n % 5 == 4;
}

/* Push number n: different keys, and gradients whose first element adds 1; of the variable every 5th. */
static void draw_push(uint32_t n, uint64_t keys[PUSH_KEYS], float gradients[PUSH_KEYS][DIM])
{
    uint64_t random = n * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint32_t i = 0; i < PUSH_KEYS; i++) {
        keys[i] = 1 + i * (KEYS / PUSH_KEYS) + log_next(&random) % (KEYS / PUSH_KEYS);
        gradients[i][0] = is_of_variable(n) ? -1 : -1 / rate_of(n);
        for (uint32_t d = 1; d < DIM; d++)
            gradients[i][d] = (float)(log_next(&random) % 20001) * 1.7e-3f - 17.0f;
    }
}

/* ---- the trainer, a process ---- */

static void trainer_expect(enum mr_status status)
{
    if (status == MR_OK)
        return;
    fprintf(stderr, "trainer: %s: %s\n", mr_status_name(status), mr_last_error());
    _exit(1);
}

static void trainer_alter(struct mr_client *client, uint32_t n)
{
    struct mr_feature_info *infos;
    uint32_t count;
    trainer_expect(mr_list(client, NULL, &infos, &count));
    for (uint32_t i = 0; i < count; i++) {
        struct mr_feature after = infos[i].feature;
        after.learning_rate = rate_of(n);
        if (after.kind == MR_TABLE && infos[i].feature.learning_rate != after.learning_rate)
            trainer_expect(mr_alter(client, NULL, &infos[i].feature, &after));
    }
    free(infos);
}

static void trainer_push(struct mr_client *client, const uint32_t ids[2], uint32_t n)
{
    uint64_t keys[PUSH_KEYS];
    float gradients[PUSH_KEYS][DIM];
    draw_push(n, keys, gradients);
    if (is_of_variable(n))
        trainer_expect(mr_variable_push_gradient(client, NULL, ids[1], DIM, gradients[0]));
    else
        trainer_expect(mr_push_gradients(client, NULL, ids[0], keys, PUSH_KEYS, DIM, gradients[0]));
}

static void trainer_run(const struct log_test *x, uint32_t first, bool has_replay)
{
    struct mr_client_options options = {.server = x->node.address,
                                        .connect_ms = NODE_READY_MS,
                                        .deadline_ms = NODE_READY_MS,
                                        .replay = has_replay};
    struct mr_client *client;
    char error[512];
    uint64_t id, keys[KEYS];
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK) {
        fprintf(stderr, "trainer: %s\n", error);
        _exit(1);
    }
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i + 1;
    trainer_expect(
        mr_lookup(client, NULL, x->ids[0], keys, KEYS, NULL)); /* pushes without a number make no rows */
    for (uint32_t n = first; n < PUSHES_MAX; n++) {
        if (n == first || n % ALTER_EVERY == 0)
            trainer_alter(client, n);
        atomic_store(&x->progress->begun, n + 1);
        trainer_push(client, x->ids, n);
        atomic_store(&x->progress->acknowledged, n + 1);
        if (n % SAVE_EVERY == SAVE_EVERY - 1)
            (void)save_into(client, NULL, NULL, &id); /* one may be running */
    }
    _exit(1);
}

/* ---- what is there ---- */

static void log_expect(enum mr_status status)
{
    if (status != MR_OK)
        fail_msg("%s: %s", mr_status_name(status), mr_last_error());
}

static void read_state(struct mr_client *client, const uint32_t ids[2], struct model *out)
{
    uint64_t keys[KEYS];
    struct mr_reply *reply;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i + 1;
    log_expect(mr_lookup(client, &(struct mr_options){.read_only = true}, ids[0], keys, KEYS, &reply));
    memcpy(out->rows[1], mr_reply_tensor(reply, 0)->data, KEYS * sizeof(out->rows[1]));
    mr_reply_free(reply);
    log_expect(mr_variable_pull(client, NULL, ids[1], 0, DIM, &reply));
    memcpy(out->bias, mr_reply_tensor(reply, 0)->data, sizeof(out->bias));
    mr_reply_free(reply);
}

static void model_step(float *row, const float *gradient, float rate)
{
    for (uint32_t d = 0; d < DIM; d++)
        row[d] -= rate * gradient[d];
}

/* Push n is in the model from now on: all of it, or, as nobody heard of it, what `there` counts. */
static void model_push(struct model *m, uint32_t n, const struct model *there)
{
    uint64_t keys[PUSH_KEYS];
    float gradients[PUSH_KEYS][DIM];
    draw_push(n, keys, gradients);
    if (is_of_variable(n)) {
        if (there == NULL || there->bias[0] > m->bias[0])
            model_step(m->bias, gradients[0], 1);
        return;
    }
    for (uint32_t i = 0; i < PUSH_KEYS; i++)
        if (there == NULL || there->rows[keys[i]][0] > m->rows[keys[i]][0])
            model_step(m->rows[keys[i]], gradients[i], rate_of(n));
}

/* After a restart. */
static void check_state(struct log_test *x)
{
    struct mr_client *client = node_fixture_connect(&x->node);
    struct model there;
    memset(&there, 0, sizeof(there));
    read_state(client, x->ids, &there);
    const uint32_t acknowledged = atomic_load(&x->progress->acknowledged),
                   begun = atomic_load(&x->progress->begun);
    for (; x->applied < acknowledged; x->applied++)
        model_push(&x->model, x->applied, NULL);
    for (; x->applied < begun; x->applied++)
        model_push(&x->model, x->applied, &there);
    for (uint32_t key = 1; key <= KEYS; key++)
        if (memcmp(there.rows[key], x->model.rows[key], sizeof(there.rows[key])) != 0)
            fail_msg("row %u: %g pushes of %g, its second value is %.9g and not %.9g", (unsigned)key,
                     (double)there.rows[key][0], (double)x->model.rows[key][0], (double)there.rows[key][1],
                     (double)x->model.rows[key][1]);
    assert_memory_equal(there.bias, x->model.bias, sizeof(there.bias));
    mr_client_destroy(client);
}

static void log_create(struct log_test *x)
{
    struct mr_client *client = node_fixture_connect(&x->node);
    uint32_t dims[1] = {DIM};
    struct mr_feature features[2] = {mr_feature_table("rows", DIM), mr_feature_variable("bias", 1, dims)};
    for (uint32_t i = 0; i < 2; i++) {
        features[i].optimizer = MR_OPT_SGD;
        features[i].learning_rate = 1;
        features[i].initializer = MR_INIT_CONSTANT;
    }
    log_expect(mr_create(client, NULL, features, 2, x->ids));
    mr_client_destroy(client);
}

/* Trains until `pushes` more are acknowledged, and then a little longer. */
static void train_and_kill(struct log_test *x, uint32_t pushes, uint32_t more_us, bool has_replay)
{
    const uint32_t first = x->applied;
    fflush(NULL);
    const pid_t trainer = fork();
    assert_true(trainer >= 0);
    if (trainer == 0)
        trainer_run(x, first, has_replay);
    while (atomic_load(&x->progress->acknowledged) < first + pushes) {
        siginfo_t info = {.si_pid = 0};
        assert_int_equal(waitid(P_PID, (id_t)trainer, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        assert_int_equal(info.si_pid, 0); /* it goes on until it is killed */
        wait_pause();
    }
    usleep(more_us);
    node_fixture_kill(&x->node);
    assert_int_equal(kill(trainer, SIGKILL), 0);
    assert_int_equal(waitpid(trainer, NULL, 0), trainer);
}

static uint32_t count_segments(const struct log_test *x)
{
    char path[NODE_PATH_BYTES + 8];
    uint32_t count = 0;
    snprintf(path, sizeof(path), "%s/log", x->node.checkpoints);
    DIR *directory = opendir(path);
    for (const struct dirent *e; directory != NULL && (e = readdir(directory)) != NULL;)
        count += strncmp(e->d_name, "segment-", 8) == 0;
    if (directory != NULL)
        (void)closedir(directory);
    return count;
}

TEST(test_acknowledged_pushes_survive_the_death_of_everybody)
{
    static struct log_test x;
    static const char *const settings[] = {"memory.limit_mib=512", "checkpoint.durability=log",
                                           "checkpoint.every_s=0", NULL};
    const uint32_t kills = kill_count();
    uint64_t random = 7;
    memset(&x, 0, sizeof(x));
    x.progress = mmap(NULL, sizeof(*x.progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(x.progress != MAP_FAILED);
    node_fixture_start(&x.node, cores, settings);
    log_create(&x);
    for (uint32_t i = 0; i < kills; i++) {
        train_and_kill(&x, 20 + (uint32_t)log_next(&random) % 200, (uint32_t)log_next(&random) % 3000,
                       i % 2 == 0);
        node_fixture_restart(&x.node);
        check_state(&x);
    }
    struct mr_client *client = node_fixture_connect(&x.node);
    (void)node_fixture_save(client);
    while (count_segments(&x) > cores) /* the checkpoint covers the others */
        wait_pause();
    mr_client_destroy(client);
    print_message("%u kills, %u pushes\n", (unsigned)kills, (unsigned)x.applied);
    node_fixture_stop(&x.node);
    munmap(x.progress, sizeof(*x.progress));
}

int main(int argc, char **argv)
{
    return node_fixture_arguments(argc, argv, &cores) ? tests_run(NULL, NULL) : 2;
}
