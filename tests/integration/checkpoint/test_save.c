/* A checkpoint taken while pushes go on holds the moment that Save returned: rows, what optimizers keep
 * beside them, variables and batches applied. Nothing of what came later is in it. */
#include <stdio.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum { DIM = 32, KEYS = 20000, CHUNK = 2000, CHUNKS = KEYS / CHUNK, SAVES = 3 };

static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table, variable;
    uint64_t keys[KEYS];
    uint32_t pushes;
};

struct values {
    float rows[KEYS * DIM], variable;
};

static int set_up(void **state)
{
    static struct fixture x;
    uint32_t ids[2];
    struct mr_feature features[2] = {mr_feature_table("rows", DIM), mr_feature_variable("counter", 0, NULL)};
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, cores, NULL);
    x.client = node_fixture_connect(&x.node);
    features[0].initializer = MR_INIT_NORMAL;
    features[0].init_b = 1;
    features[0].optimizer = MR_OPT_ADAGRAD;
    features[0].learning_rate = 0.1f;
    features[0].optimizer_args[0] = 0.01f;
    features[1].learning_rate = 1;
    assert_int_equal(mr_create(x.client, NULL, features, 2, ids), MR_OK);
    x.table = ids[0];
    x.variable = ids[1];
    for (uint32_t i = 0; i < KEYS; i++)
        x.keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, KEYS, NULL), MR_OK);
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

/* To some rows, others the next time, and to the variable. */
static void save_push(struct fixture *x)
{
    static float gradients[CHUNK * DIM];
    float one = -1;
    for (uint32_t i = 0; i < CHUNK * DIM; i++)
        gradients[i] = (float)((i + x->pushes) % 17) - 8;
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, x->keys + x->pushes % CHUNKS * CHUNK, CHUNK,
                                       DIM, gradients),
                     MR_OK);
    assert_int_equal(mr_variable_push_gradient(x->client, NULL, x->variable, 1, &one), MR_OK);
    x->pushes++;
}

static void read_values(struct fixture *x, struct values *v)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    memcpy(v->rows, mr_reply_tensor(reply, 0)->data, sizeof(v->rows));
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(x->client, NULL, x->variable, 0, 0, &reply), MR_OK);
    memcpy(&v->variable, mr_reply_tensor(reply, 0)->data, sizeof(v->variable));
    mr_reply_free(reply);
}

static void assert_same(const struct values *a, const struct values *b)
{
    assert_memory_equal(a->rows, b->rows, sizeof(a->rows));
    assert_true(a->variable == b->variable);
}

/* Pushes until the checkpoint is on disk; its progress never falls. */
static void push_until_saved(struct fixture *x, uint64_t id, const char *directory)
{
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    uint64_t bytes = 0;
    do {
        save_push(x);
        assert_int_equal(mr_checkpoint_info(x->client, NULL, 0, &status, NULL, NULL), MR_OK);
        assert_int_equal(status.id, id);
        assert_true(status.bytes_done >= bytes);
        bytes = status.bytes_done;
    } while (status.state == MR_CHECKPOINT_SAVING);
    assert_int_equal(status.last_status, MR_OK);
    assert_true(bytes >= (uint64_t)KEYS * DIM * sizeof(float));
    if (directory == NULL)
        assert_int_equal(status.last_good_id, id);
}

static void train(struct fixture *x, uint32_t pushes)
{
    for (uint32_t i = 0; i < pushes; i++)
        save_push(x);
}

static void check_save(struct fixture *x, const char *directory)
{
    static struct values at_cut, after, found;
    uint64_t id, restored = 0;
    uint32_t pushes;
    train(x, CHUNKS + 3);
    read_values(x, &at_cut);
    pushes = x->pushes;
    assert_int_equal(save_into(x->client, NULL, directory, &id), MR_OK);
    push_until_saved(x, id, directory);
    assert_true(x->pushes > pushes);
    assert_int_equal(restore_from(x->client, NULL, directory, id, &restored), MR_OK);
    assert_int_equal(restored, id);
    read_values(x, &found);
    assert_same(&found, &at_cut);
    /* What the optimizer keeps is there, too: going on from here twice comes to the same. */
    x->pushes = pushes;
    train(x, CHUNKS + 3);
    read_values(x, &after);
    assert_int_equal(restore_from(x->client, NULL, directory, id, &restored), MR_OK);
    x->pushes = pushes;
    train(x, CHUNKS + 3);
    read_values(x, &found);
    assert_same(&found, &after);
}

TEST(test_save_while_pushing, set_up, tear_down)
{
    for (uint32_t i = 0; i < SAVES; i++)
        check_save(*state, NULL);
}

/* Into a directory of the caller's, and from there into a node that was started again. */
TEST(test_directory, set_up, tear_down)
{
    struct fixture *x = *state;
    static struct values saved, found;
    struct mr_core_state states[64];
    char directory[2 * NODE_PATH_BYTES];
    uint64_t id = 77;
    snprintf(directory, sizeof(directory), "%s/elsewhere", x->node.directory);
    check_save(x, directory);
    node_fixture_refused(restore_from(x->client, NULL, NULL, 0, &id), MR_CHECKPOINT_NOT_FOUND, "");
    assert_int_equal(restore_from(x->client, NULL, directory, 0, &id), MR_OK);
    read_values(x, &saved);
    node_fixture_kill(&x->node);
    node_fixture_restart(&x->node); /* goes on from there */
    assert_int_equal(mr_heartbeat(x->client, NULL, states),
                     MR_OK); /* a Restore sent to the old one ends with MR_UNKNOWN_OUTCOME */
    assert_int_equal(restore_from(x->client, NULL, directory, 0, &id), MR_OK);
    read_values(x, &found);
    assert_same(&found, &saved);
}

/* A save is running, or has just ended: another one is refused by name or begins. Never two at once. */
TEST(test_two_saves, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t first, second = 0;
    assert_int_equal(save_into(x->client, NULL, NULL, &first), MR_OK);

    enum mr_status again = save_into(x->client, NULL, NULL, &second);

    assert_true(again == MR_CHECKPOINT_RUNNING || (again == MR_OK && second > first));
    assert_int_equal(node_fixture_wait_saved(x->client).last_good_id, again == MR_OK ? second : first);
}

static void note_save(void *arg, const struct mr_save_info *save)
{
    *(struct mr_save_info *)arg = *save;
}

static void wait_for_save(struct fixture *x, uint64_t number, struct mr_save_info *save)
{
    do {
        assert_int_equal(mr_checkpoint_info(x->client, NULL, number, NULL, note_save, save), MR_OK);
        assert_int_equal(save->number, number);
    } while (save->state != MR_SAVE_ENDED);
    assert_int_equal(save->status, MR_OK);
    assert_string_equal(save->error, "");
    assert_true(save->bytes > 0);
}

/* The second waits for the first where it is asked to. */
TEST(test_queue, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_save_options wanted = {.bytes = sizeof(wanted), .queue = true, .kind = MR_SAVE_FULL};
    struct mr_checkpoint_info info = {.bytes = sizeof(info)};
    struct mr_save_info saves[2];
    uint64_t numbers[2];
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mr_save(x->client, NULL, &wanted, NULL, &numbers[i]), MR_OK);
    assert_true(numbers[1] > numbers[0]);
    for (uint32_t i = 0; i < 2; i++)
        wait_for_save(x, numbers[i], &saves[i]);
    assert_int_equal(saves[1].id, saves[0].id + 1);
    assert_int_equal(saves[1].kind, MR_SAVE_FULL);
    assert_int_equal(mr_checkpoint_info(x->client, NULL, 0, &info, NULL, NULL), MR_OK);
    assert_int_equal(info.last_good_id, saves[1].id);
    assert_int_equal(info.saves_queued, 0);
    node_fixture_refused(mr_checkpoint_info(x->client, NULL, 999, NULL, NULL, NULL), MR_CHECKPOINT_NOT_FOUND,
                         "save 999 is not known");
    wanted.bytes = 0;
    node_fixture_refused(mr_save(x->client, NULL, &wanted, NULL, NULL), MR_INVALID_ARGUMENT,
                         "save->bytes is 0");
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
