/* Restores of single tables while training goes on, of damaged checkpoints, and a server that serves one read
 * only: real processes, from as many cores as the run says onto others. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { DIM = 16, KEYS = 20000, BLOCK_BYTES = 1 << 20, SETTING_BYTES = 256 };

static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t rows, other, bias;
    uint64_t keys[KEYS];
    char setting[SETTING_BYTES]; /* of the next start */
};

static float values[2][KEYS * DIM], gradients[KEYS * DIM];

static int set_up(void **state)
{
    static struct fixture x;
    uint32_t ids[3];
    struct mr_feature features[3] = {mr_feature_table("rows", DIM), mr_feature_table("other", DIM),
                                     mr_feature_variable("bias", 0, NULL)};
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, cores, NULL);
    x.client = node_fixture_connect(&x.node);
    for (uint32_t i = 0; i < 2; i++) {
        features[i].initializer = MR_INIT_NORMAL;
        features[i].init_b = 1;
        mr_feature_set_optimizer(&features[i], MR_OPT_ADAGRAD);
    }
    features[2].learning_rate = 1;
    assert_int_equal(mr_create(x.client, NULL, features, 3, ids), MR_OK);
    x.rows = ids[0];
    x.other = ids[1];
    x.bias = ids[2];
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = (float)(i % 17) - 8;
    for (uint32_t i = 0; i < KEYS; i++)
        x.keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    assert_int_equal(mr_lookup(x.client, NULL, x.rows, x.keys, KEYS, NULL), MR_OK);
    assert_int_equal(mr_lookup(x.client, NULL, x.other, x.keys, KEYS, NULL), MR_OK);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

static enum mr_status restore_push(struct mr_client *client, uint32_t table, const uint64_t *keys)
{
    return mr_push_gradients(client, NULL, table, keys, KEYS, DIM, gradients);
}

static void read_rows(struct fixture *x, uint32_t table, float *to)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, table, x->keys, KEYS, &reply), MR_OK);
    memcpy(to, mr_reply_tensor(reply, 0)->data, sizeof(values[0]));
    mr_reply_free(reply);
}

static void check_rows(struct fixture *x, uint32_t table, const float *expected)
{
    read_rows(x, table, values[1]);
    assert_memory_equal(values[1], expected, sizeof(values[1]));
}

/* Pushes, saves and pushes on; what was saved of `rows` is in values[0]. */
static uint64_t save_and_go_on(struct fixture *x)
{
    float one = -1;
    uint64_t id;
    assert_int_equal(restore_push(x->client, x->rows, x->keys), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x->client, NULL, x->bias, 1, &one), MR_OK);
    read_rows(x, x->rows, values[0]);
    id = node_fixture_save(x->client);
    assert_int_equal(restore_push(x->client, x->rows, x->keys), MR_OK);
    return id;
}

static uint32_t number_of(struct fixture *x, const char *name)
{
    struct mr_feature_info *infos;
    uint32_t count, id = 0;
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(infos[i].feature.name, name) == 0)
            id = infos[i].id;
    free(infos);
    return id;
}

/* ---- training meanwhile ---- */

struct trainer {
    struct mr_client *client;
    const struct fixture *x;
    atomic_bool stop;
    atomic_uint pushes;
    enum mr_status failed; /* read once it has ended */
};

static void *train(void *arg)
{
    struct trainer *t = arg;
    while (!atomic_load(&t->stop) && t->failed == MR_OK) {
        t->failed = restore_push(t->client, t->x->other, t->x->keys);
        atomic_fetch_add(&t->pushes, 1);
    }
    return NULL;
}

static void start_training(struct trainer *t, pthread_t *thread, const struct fixture *x)
{
    *t = (struct trainer){.client = node_fixture_connect(&x->node), .x = x};
    assert_int_equal(pthread_create(thread, NULL, train, t), 0);
    WAIT_UNTIL(atomic_load(&t->pushes) > 0);
}

static enum mr_status restore_named(const struct fixture *x, uint64_t id, const struct mr_restore_name *names,
                                    uint32_t count, bool replace, struct mr_restored *restored)
{
    const struct mr_restore_options what = {
        .bytes = sizeof(what), .id = id, .names = names, .name_count = count, .replace = replace};
    return mr_restore(x->client, NULL, &what, restored);
}

/* Beside what is there, and in its place, while another table learns. */
TEST(test_while_training, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct mr_restore_name beside[2] = {{"rows", "rows_old"}, {"bias", "bias_old"}},
                                 in_place = {"rows", NULL};
    struct mr_restored restored = {.bytes = sizeof(restored)};
    uint64_t id = save_and_go_on(x);
    struct trainer trainer;
    pthread_t thread;
    float bias;
    struct mr_reply *reply;
    start_training(&trainer, &thread, x);
    node_fixture_refused(restore_named(x, 0, &in_place, 1, false, NULL), MR_INVALID_ARGUMENT,
                         "rows is there already");
    assert_int_equal(restore_named(x, 0, beside, 2, false, &restored), MR_OK);
    assert_int_equal(restored.id, id);
    assert_int_equal(restored.tables, 1);
    assert_int_equal(restored.variables, 1);
    check_rows(x, number_of(x, "rows_old"), values[0]);
    read_rows(x, x->rows, values[1]);
    assert_memory_not_equal(values[1], values[0], sizeof(values[0]));
    assert_int_equal(mr_variable_pull(x->client, NULL, number_of(x, "bias_old"), 0, 0, &reply), MR_OK);
    memcpy(&bias, mr_reply_tensor(reply, 0)->data, sizeof(bias));
    mr_reply_free(reply);
    assert_true(bias == 1);
    assert_int_equal(restore_named(x, id, &in_place, 1, true, NULL), MR_OK);
    assert_int_equal(number_of(x, "rows"), x->rows);
    check_rows(x, x->rows, values[0]);
    atomic_store(&trainer.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    mr_client_destroy(trainer.client);
    assert_int_equal(trainer.failed, MR_OK);
    /* It goes on from its optimizer's state, as the copy beside it does. */
    assert_int_equal(restore_push(x->client, x->rows, x->keys), MR_OK);
    assert_int_equal(restore_push(x->client, number_of(x, "rows_old"), x->keys), MR_OK);
    read_rows(x, x->rows, values[0]);
    check_rows(x, number_of(x, "rows_old"), values[0]);
}

static void restart_with(struct fixture *x, const char *key, const char *value, uint32_t core_count)
{
    snprintf(x->setting, sizeof(x->setting), "%s=%s", key, value);
    x->node.settings[0] = x->setting;
    x->node.settings[1] = NULL;
    node_fixture_kill(&x->node);
    mr_client_destroy(x->client);
    node_fixture_restart_with(&x->node, core_count);
    x->client = node_fixture_connect(&x->node);
}

/* One table alone, into a node of another number of cores. */
TEST(test_into_an_empty_node, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct mr_restore_name one = {"rows", NULL};
    save_and_go_on(x);
    restart_with(x, "checkpoint.restore", "none", cores + 1);
    assert_int_equal(restore_named(x, 0, &one, 1, false, NULL), MR_OK);
    assert_int_equal(number_of(x, "other"), 0);
    check_rows(x, number_of(x, "rows"), values[0]);
}

/* ---- damage ---- */

static void damage(const struct fixture *x, uint64_t id, off_t at)
{
    char path[2 * NODE_PATH_BYTES];
    uint8_t byte;
    int fd;
    snprintf(path, sizeof(path), "%s/ckpt-%llu/core-000.mrc", x->node.checkpoints, (unsigned long long)id);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

TEST(test_damage, set_up, tear_down)
{
    struct fixture *x = *state;
    const struct mr_restore_name other = {"other", "other_old"};
    uint64_t good = save_and_go_on(x), bad = save_and_go_on(x), restored;
    damage(x, bad, BLOCK_BYTES + 5000);
    read_rows(x, x->rows, values[0]);
    node_fixture_refused(restore_from(x->client, NULL, NULL, bad, NULL), MR_CHECKPOINT_CORRUPT,
                         "core-000.mrc: block 1");
    node_fixture_refused(restore_named(x, bad, &other, 1, false, NULL), MR_CHECKPOINT_CORRUPT,
                         "core-000.mrc: block 1");
    assert_int_equal(number_of(x, "other_old"), 0);
    check_rows(x, x->rows, values[0]);
    assert_int_equal(restore_from(x->client, NULL, NULL, 0, &restored), MR_OK); /* passes it over */
    assert_int_equal(restored, good);
}

/* ---- read only ---- */

TEST(test_serve, set_up, tear_down)
{
    struct fixture *x = *state;
    char path[2 * NODE_PATH_BYTES];
    struct mr_core_state states[64];
    uint64_t id = save_and_go_on(x), new_key = 12345;
    snprintf(path, sizeof(path), "%s/ckpt-%llu", x->node.checkpoints, (unsigned long long)id);
    restart_with(x, "checkpoint.serve", path, cores + 1);
    check_rows(x, x->rows, values[0]);
    assert_int_equal(mr_heartbeat(x->client, NULL, states), MR_OK);
    assert_int_equal(states[0].state, 5);
    node_fixture_refused(restore_push(x->client, x->rows, x->keys), MR_FROZEN,
                         "read only (checkpoint.serve)");
    node_fixture_refused(save_into(x->client, NULL, x->node.checkpoints, NULL), MR_FROZEN, "read only");
    node_fixture_refused(restore_from(x->client, NULL, x->node.checkpoints, 0, NULL), MR_FROZEN, "read only");
    node_fixture_refused(mr_freeze(x->client, NULL, 0), MR_FROZEN, "read only");
    assert_int_equal(mr_lookup(x->client, NULL, x->rows, &new_key, 1, NULL), MR_OK);
    assert_int_equal(node_fixture_sum(x->client, "table.rows"), 2 * KEYS);
    check_rows(x, x->rows, values[0]);
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
