/* One data core and three behind one queue compute the same: rows and what optimizers keep beside them to the
 * bit, bags up to the order of their sums. A checkpoint of one restores onto the other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum {
    DIM = 8,
    KEYS = 500,
    PUSHES = 5,
    KEYS_PER_PUSH = 700,
    SAMPLES = 25,
    SLOTS = 8,
    BAGS = SAMPLES * SLOTS
};

#define VARIABLE_ELEMENTS 10u
#define RANGE_VALUES      3u

struct values {
    float rows[KEYS * DIM], bags[BAGS * DIM], variable[VARIABLE_ELEMENTS];
};

struct features {
    uint32_t table, variable;
};

/* xorshift64* (Vigna, 2016). */
static uint64_t random_number(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static void fill_random(float *out, uint32_t count, uint64_t *random)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = (float)(int64_t)(random_number(random) >> 40) * 0x1p-23f - 1.0f;
}

static uint64_t key_of(uint32_t index)
{
    return (uint64_t)index * 0x9e3779b97f4a7c15u + 1;
}

static struct features cores_create(struct mr_client *client)
{
    uint32_t dims[1] = {VARIABLE_ELEMENTS}, ids[2];
    struct mr_feature features[2] = {mr_feature_table("rows", DIM), mr_feature_variable("dense", 1, dims)};
    features[0].initializer = MR_INIT_NORMAL;
    features[0].init_b = 0.1f;
    features[0].seed = 21;
    features[1].range_values = RANGE_VALUES;
    for (uint32_t i = 0; i < 2; i++) {
        features[i].optimizer = MR_OPT_ADAGRAD;
        features[i].learning_rate = 0.05f;
        features[i].optimizer_args[0] = 0.1f;
    }
    assert_int_equal(mr_create(client, NULL, features, 2, ids), MR_OK);
    return (struct features){ids[0], ids[1]};
}

static void push_keys(struct mr_client *client, struct features f, uint64_t *random)
{
    static uint64_t keys[KEYS_PER_PUSH];
    static float gradients[KEYS_PER_PUSH * DIM];
    for (uint32_t i = 0; i < KEYS_PER_PUSH; i++)
        keys[i] = key_of((uint32_t)(random_number(random) % KEYS));
    fill_random(gradients, KEYS_PER_PUSH * DIM, random);
    assert_int_equal(mr_lookup(client, NULL, f.table, keys, KEYS_PER_PUSH, NULL), MR_OK);
    assert_int_equal(mr_push_gradients(client, NULL, f.table, keys, KEYS_PER_PUSH, DIM, gradients), MR_OK);
}

/* What the batch's bags were goes to `bags`. */
static void push_batch(struct mr_client *client, struct features f, uint64_t batch_id, uint64_t *random,
                       float *bags)
{
    static uint64_t keys[BAGS * 3];
    static uint32_t offsets[BAGS + 1];
    static float gradients[BAGS * DIM], dense[VARIABLE_ELEMENTS];
    struct mr_batch_keys table_keys = {f.table, SAMPLES, SLOTS, keys, offsets, NULL};
    struct mr_batch_gradient pushed[2] = {
        {f.table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, gradients)},
        {f.variable, mr_tensor_1d(MR_F32, VARIABLE_ELEMENTS, dense)},
    };
    struct mr_reply *reply;
    bool applied = false;
    for (uint32_t b = 0; b < BAGS; b++) {
        offsets[b + 1] = offsets[b] + (uint32_t)(random_number(random) % 4);
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++)
            keys[i] = key_of((uint32_t)(random_number(random) % KEYS));
    }
    fill_random(gradients, BAGS * DIM, random);
    fill_random(dense, VARIABLE_ELEMENTS, random);
    assert_int_equal(mr_feed_sample(client, NULL, batch_id, &table_keys, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(client, NULL, batch_id, f.table, &reply), MR_OK);
    memcpy(bags, mr_reply_tensor(reply, 0)->data, BAGS * DIM * sizeof(*bags));
    mr_reply_free(reply);
    assert_int_equal(mr_push_gradients_batch(client, NULL, batch_id, pushed, 2, &applied), MR_OK);
    assert_true(applied);
}

static void read_values(struct mr_client *client, struct features f, struct values *v)
{
    uint64_t keys[KEYS];
    struct mr_reply *reply;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = key_of(i);
    assert_int_equal(mr_lookup(client, NULL, f.table, keys, KEYS, &reply), MR_OK);
    memcpy(v->rows, mr_reply_tensor(reply, 0)->data, sizeof(v->rows));
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(client, NULL, f.variable, 0, 0, &reply), MR_OK);
    memcpy(v->variable, mr_reply_tensor(reply, 0)->data, sizeof(v->variable));
    mr_reply_free(reply);
}

static void train(struct mr_client *client, struct features f, uint64_t first_batch, struct values *v)
{
    uint64_t random = 77 + first_batch;
    for (uint32_t i = 0; i < PUSHES; i++) {
        push_keys(client, f, &random);
        push_batch(client, f, first_batch + i, &random, v->bags);
    }
    read_values(client, f, v);
}

static void assert_same(const struct values *a, const struct values *b)
{
    assert_memory_equal(a->rows, b->rows, sizeof(a->rows));
    assert_memory_equal(a->variable, b->variable, sizeof(a->variable));
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        assert_true(fabsf(a->bags[i] - b->bags[i]) <= 1e-5f * (1 + fabsf(b->bags[i])));
}

/* Every core has a share of the rows, whatever way its packets came. */
static void assert_shared_out(struct mr_client *client, uint32_t cores)
{
    struct mr_core_state states[64];
    assert_int_equal(mr_client_core_count(client), cores);
    assert_int_equal(mr_heartbeat(client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < cores; i++)
        assert_true(states[i].rows > KEYS / cores / 2);
}

static void cores_run(uint32_t cores, const char *driver, struct values *v)
{
    const char *settings[] = {driver, NULL};
    struct node_fixture node;
    node_fixture_start(&node, cores, settings);

    struct mr_client *client = node_fixture_connect(&node);

    train(client, cores_create(client), 0, v);
    assert_shared_out(client, cores);
    if (cores > 1) { /* one queue: the rings carry the other cores' packets */
        assert_true(node_fixture_sum(client, "port.steered_out") > 0);
        assert_true(node_fixture_sum(client, "port.steered_in") > 0);
    }
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

static void check_driver(const char *driver)
{
    static struct values one, three;
    cores_run(1, driver, &one);
    cores_run(3, driver, &three);
    assert_same(&three, &one);
}

TEST(test_af_packet)
{
    check_driver("port.driver=af_packet");
}

TEST(test_af_xdp)
{
    check_driver("port.driver=af_xdp");
}

/* ---- a checkpoint of one number of cores on another ---- */

/* Goes on where the checkpoint was; `expected` is what came of it there. */
static void check_restored(struct mr_client *client, const struct values *saved,
                           const struct values *expected)
{
    static struct values v;
    uint64_t watermark, *bitmap;
    uint32_t words;
    struct features f = cores_create(client);
    memcpy(&v, saved, sizeof(v));
    read_values(client, f, &v);
    assert_same(&v, saved);
    assert_int_equal(mr_batch_state(client, NULL, 0, &watermark, &bitmap, &words), MR_OK);
    free(bitmap);
    assert_int_equal(watermark, PUSHES);
    train(client, f, PUSHES, &v);
    assert_same(&v, expected);
}

TEST(test_restore_on_others)
{
    static const uint32_t others[] = {3, 2, 1};
    static struct values saved, after;
    struct node_fixture node;
    node_fixture_start(&node, 1, NULL);

    struct mr_client *client = node_fixture_connect(&node);
    struct features f = cores_create(client);

    train(client, f, 0, &saved);
    node_fixture_save(client);
    train(client, f, PUSHES, &after);
    for (uint32_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        mr_client_destroy(client);
        node_fixture_kill(&node);
        node_fixture_restart_with(&node, others[i]);
        client = node_fixture_connect(&node);
        check_restored(client, &saved, &after);
        assert_shared_out(client, others[i]);
        assert_int_equal(restore_from(client, NULL, NULL, 0, NULL), MR_OK);
        node_fixture_save(client); /* the next one reads this one's */
    }
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

/* A client that saw one number of cores finds another after the restart: it asks for the new map by itself,
 * and makes calls that were split for the old number again. */
static void check_client_follows(uint32_t before, uint32_t after)
{
    static struct values v, found;
    struct node_fixture node;
    uint64_t key = key_of(0);
    struct mr_reply *reply;
    node_fixture_start(&node, before, NULL);

    struct mr_client *client = node_fixture_connect(&node);
    struct features f = cores_create(client);

    train(client, f, 0, &v);
    node_fixture_save(client);
    node_fixture_kill(&node);
    node_fixture_restart_with(&node, after);
    assert_int_equal(mr_variable_pull(client, NULL, f.variable, 0, 0, &reply), MR_OK);
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, v.variable, sizeof(v.variable));
    mr_reply_free(reply);
    assert_int_equal(mr_lookup(client, NULL, f.table, &key, 1, NULL), MR_OK);
    assert_int_equal(mr_client_core_count(client), after);
    memcpy(&found, &v, sizeof(found));
    read_values(client, f, &found);
    assert_same(&found, &v);
    assert_shared_out(client, after);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

TEST(test_client_follows)
{
    check_client_follows(1, 3);
    check_client_follows(3, 1);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_cores MILLRACED\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
