/* Every call against a real millraced on a real DPDK port, with one data core and with three. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum { DIM = 4, KEYS = 200, SAMPLES = 20, SLOTS = 6, BAGS = SAMPLES * SLOTS };

#define INITIAL 2.0f
#define RATE    0.5f

static uint32_t cores; /* of this run */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table, mean, bias;
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1];
};

static struct mr_feature table_of(const char *name, uint32_t pooling)
{
    struct mr_feature f = mr_feature_table(name, DIM);
    f.init_a = INITIAL;
    f.learning_rate = RATE;
    f.seed = 7;
    f.pooling = pooling;
    return f;
}

static struct mr_feature bias_of(void)
{
    uint32_t dims[2] = {2, 3};
    struct mr_feature f = mr_feature_variable("bias", 2, dims);
    f.learning_rate = RATE;
    return f;
}

static void create_features(struct fixture *x)
{
    struct mr_feature features[3] = {table_of("rows", MR_POOL_SUM), table_of("means", MR_POOL_MEAN),
                                     bias_of()};
    uint32_t ids[3];
    assert_int_equal(mr_create(x->client, NULL, features, 3, ids), MR_OK);
    x->table = ids[0];
    x->mean = ids[1];
    x->bias = ids[2];
}

static int set_up(void **state)
{
    static struct fixture x;
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, cores, NULL);
    x.client = node_fixture_connect(&x.node);
    create_features(&x);
    for (uint32_t i = 0; i < KEYS; i++)
        x.keys[i] = i * 37u % 97u; /* all of them, twice or more */
    for (uint32_t b = 0; b < BAGS; b++)
        x.offsets[b + 1] = x.offsets[b] + (b % 7 == 0 ? 0 : 1 + b % 2);
    assert_true(x.offsets[BAGS] <= KEYS);
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

static const float *floats(const struct mr_reply *reply)
{
    return mr_reply_tensor(reply, 0)->data;
}

static void assert_close(float got, float expected)
{
    if (!(fabsf(got - expected) <= 1e-4f * (1.0f + fabsf(expected))))
        fail_msg("%f is not %f", (double)got, (double)expected);
}

static void assert_refused(enum mr_status status, enum mr_status expected, const char *says)
{
    assert_int_equal(status, expected);
    assert_says(mr_last_error(), says);
}

/* How often `key` is among the first `count` keys. */
static uint32_t key_times(const struct fixture *x, uint64_t key, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += x->keys[i] == key;
    return n;
}

static uint64_t rows_held(struct fixture *x)
{
    struct mr_core_state states[64];
    uint64_t rows = 0;
    assert_int_equal(mr_heartbeat(x->client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < mr_client_core_count(x->client); i++)
        rows += states[i].rows;
    return rows;
}

/* ---- Create ---- */

TEST(test_create, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature same = table_of("rows", MR_POOL_SUM), other = same,
                      later = table_of("later", MR_POOL_SUM);
    struct mr_feature_info *infos;
    uint32_t id = 0, count;
    assert_int_equal(mr_create(x->client, NULL, &same, 1, &id), MR_OK);
    assert_int_equal(id, x->table);
    other.learning_rate = 0.25f;
    assert_refused(mr_create(x->client, NULL, &other, 1, &id), MR_FEATURE_MISMATCH, "learning_rate");
    later.optimizer = MR_OPT_FTRL;
    later.optimizer_args[1] = -1;
    assert_refused(mr_create(x->client, NULL, &later, 1, &id), MR_INVALID_ARGUMENT, "optimizer_args");
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 3);
    for (uint32_t i = 0; i < count; i++)
        if (infos[i].id == x->table)
            assert_null(mr_feature_diff(&infos[i].feature, &same));
    free(infos);
}

/* ---- Freeze ---- */

TEST(test_freeze, set_up, tear_down)
{
    struct fixture *x = *state;
    float gradient[DIM] = {1, 1, 1, 1};
    struct mr_reply *reply;
    uint64_t known = 5, unknown = 1000;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, &known, 1, NULL), MR_OK);
    assert_int_equal(rows_held(x), 1);
    assert_int_equal(mr_freeze(x->client, NULL, 1), MR_OK);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, &unknown, 1, &reply), MR_OK);
    assert_close(floats(reply)[0], INITIAL); /* answered, not kept */
    mr_reply_free(reply);
    assert_int_equal(rows_held(x), 1);
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, &known, 1, DIM, gradient), MR_OK);
    assert_int_equal(mr_freeze(x->client, NULL, 2), MR_OK);
    assert_refused(mr_push_gradients(x->client, NULL, x->table, &known, 1, DIM, gradient), MR_FROZEN,
                   "frozen");
    assert_refused(mr_variable_push(x->client, NULL, x->bias, 0, 1, gradient), MR_FROZEN, "frozen");
    assert_int_equal(mr_lookup(x->client, NULL, x->table, &known, 1, &reply), MR_OK);
    assert_close(floats(reply)[0], INITIAL - RATE);
    mr_reply_free(reply);
    assert_int_equal(mr_freeze(x->client, NULL, 0), MR_OK);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, &unknown, 1, NULL), MR_OK);
    assert_int_equal(rows_held(x), 2);
}

/* ---- FeedSample, EmbeddingLookup and PushGrad by batch id ---- */

TEST(test_batches, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_batch_keys keys = {x->table, SAMPLES, SLOTS, x->keys, x->offsets, NULL};
    uint64_t batch = UINT64_C(9) << 48, watermark, *bitmap;
    uint32_t words, key_count = x->offsets[BAGS];
    float *gradient = calloc(BAGS * DIM, sizeof(*gradient));
    float bias[6] = {1, 2, 3, 4, 5, 6};
    uint32_t dims[2] = {2, 3};
    struct mr_batch_gradient gradients[2] = {{x->table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, gradient)},
                                             {x->bias, mr_tensor_2d(MR_F32, dims[0], dims[1], bias)}};
    struct mr_reply *reply;
    bool applied = false;
    assert_non_null(gradient);
    assert_int_equal(mr_feed_sample(x->client, NULL, batch, &keys, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(x->client, NULL, batch, x->table, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->rank, 3);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[1], SLOTS);
    for (uint32_t i = 0; i < BAGS * DIM; i++) {
        uint32_t b = i / DIM;
        assert_close(floats(reply)[i], INITIAL * (float)(x->offsets[b + 1] - x->offsets[b]));
    }
    mr_reply_free(reply);
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradient[i] = 0.25f;
    for (uint32_t round = 0; round < 2; round++) {
        assert_int_equal(mr_push_gradients_batch(x->client, NULL, batch, gradients, 2, &applied), MR_OK);
        assert_int_equal(applied, round == 0);
    }
    free(gradient);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, key_count, &reply), MR_OK);
    for (uint32_t i = 0; i < key_count * DIM; i++) {
        uint64_t key = x->keys[i / DIM];
        assert_close(floats(reply)[i], INITIAL - RATE * 0.25f * (float)key_times(x, key, key_count));
    }
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(x->client, NULL, x->bias, 0, 0, &reply), MR_OK);
    assert_close(floats(reply)[5], -RATE * 6);
    mr_reply_free(reply);
    assert_int_equal(mr_batch_state(x->client, NULL, 9, &watermark, &bitmap, &words), MR_OK);
    assert_int_equal(watermark, 1);
    free(bitmap);
}

TEST(test_batches_refused, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_batch_keys keys = {x->table, SAMPLES, SLOTS, x->keys, x->offsets, NULL};
    struct mr_batch_keys none = {77, SAMPLES, SLOTS, x->keys, x->offsets, NULL};
    float gradient[BAGS * DIM] = {0};
    struct mr_batch_gradient right = {x->table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, gradient)};
    struct mr_batch_gradient shape = {x->table, mr_tensor_3d(MR_F32, SLOTS, SAMPLES, DIM, gradient)};
    struct mr_batch_gradient dim = {x->table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM - 1, gradient)};
    struct mr_reply *reply = NULL;
    uint64_t id = UINT64_C(4) << 48;
    assert_refused(mr_lookup_batch(x->client, NULL, id, x->table, &reply), MR_UNKNOWN_BATCH, "is not here");
    assert_refused(mr_push_gradients_batch(x->client, NULL, id, &right, 1, NULL), MR_UNKNOWN_BATCH,
                   "is not here");
    assert_refused(mr_feed_sample(x->client, NULL, id, &none, 1, false), MR_UNKNOWN_TABLE, "77");
    assert_int_equal(mr_feed_sample(x->client, NULL, id, &keys, 1, false), MR_OK);
    assert_refused(mr_lookup_batch(x->client, NULL, id, x->mean, &reply), MR_UNKNOWN_TABLE, "means");
    assert_refused(mr_push_gradients_batch(x->client, NULL, id, &shape, 1, NULL), MR_WRONG_SHAPE, "rows");
    assert_refused(mr_push_gradients_batch(x->client, NULL, id, &dim, 1, NULL), MR_WRONG_DIM, "rows");
    for (uint64_t i = 1; i < 8; i++)
        assert_int_equal(mr_feed_sample(x->client, NULL, id + i, &keys, 1, false), MR_OK);
    assert_refused(mr_feed_sample(x->client, NULL, id + 8, &keys, 1, false), MR_BATCH_CACHE_FULL,
                   "beside those that are kept, 8");
    assert_int_equal(mr_forget_batches(x->client, NULL, &id, 1), MR_OK);
    assert_int_equal(mr_feed_sample(x->client, NULL, id + 8, &keys, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(x->client, NULL, id, x->table, &reply), MR_UNKNOWN_BATCH);
    assert_null(reply);
}

/* Read-only batches make no rows and are gone with their lookup. */
TEST(test_batch_for_evaluation, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_batch_keys keys = {x->table, SAMPLES, SLOTS, x->keys, x->offsets, NULL};
    struct mr_reply *reply;
    uint64_t id = UINT64_C(5) << 48;
    assert_int_equal(mr_feed_sample(x->client, NULL, id, &keys, 1, true), MR_OK);
    assert_int_equal(rows_held(x), 0);
    assert_int_equal(mr_lookup_batch(x->client, NULL, id, x->table, &reply), MR_OK);
    assert_close(floats(reply)[DIM], INITIAL * (float)x->offsets[2]);
    mr_reply_free(reply);
    assert_int_equal(mr_lookup_batch(x->client, NULL, id, x->table, &reply), MR_UNKNOWN_BATCH);
}

/* ---- EmbeddingLookup and PushGrad by keys ---- */

TEST(test_rows, set_up, tear_down)
{
    struct fixture *x = *state;
    float gradients[KEYS * DIM];
    struct mr_reply *reply = NULL;
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = (float)(1 + i % DIM);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], KEYS);
    mr_reply_free(reply);
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, x->keys, KEYS, DIM, gradients), MR_OK);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        float sum = (float)(1 + i % DIM) * (float)key_times(x, x->keys[i / DIM], KEYS);
        assert_close(floats(reply)[i], INITIAL - RATE * sum);
    }
    mr_reply_free(reply);
    reply = NULL;
    assert_refused(mr_lookup(x->client, NULL, 500, x->keys, KEYS, &reply), MR_UNKNOWN_TABLE, "500");
    assert_refused(mr_lookup(x->client, NULL, x->bias, x->keys, KEYS, &reply), MR_UNKNOWN_TABLE, "table");
    assert_refused(mr_push_gradients(x->client, NULL, x->table, x->keys, KEYS, DIM - 1, gradients),
                   MR_WRONG_DIM, "rows");
    assert_null(reply);
}

/* Of one key of a bag in its reduced value. */
static float share(const struct fixture *x, uint32_t b)
{
    return 1.0f / (float)(x->offsets[b + 1] - x->offsets[b]);
}

static uint64_t rows_of(struct fixture *x, uint32_t table)
{
    struct mr_feature_info *infos;
    uint64_t rows = UINT64_MAX;
    uint32_t count;
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    for (uint32_t i = 0; i < count; i++)
        if (infos[i].id == table)
            rows = infos[i].rows;
    free(infos);
    return rows;
}

/* A lookup that only reads makes no rows; a push of rows that are set needs no lookup at all. */
TEST(test_set_and_read, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature set = table_of("set", MR_POOL_SUM);
    const struct mr_options read_only = {.read_only = true},
                            rate = {.learning_rate = 0.25f, .has_learning_rate = true};
    struct mr_future *future;
    struct mr_options later = {.read_only = true, .future = &future};
    float rows[KEYS * DIM];
    struct mr_reply *reply;
    uint32_t id;
    mr_feature_set_optimizer(&set, MR_OPT_ASSIGN);
    assert_int_equal(mr_create(x->client, NULL, &set, 1, &id), MR_OK);
    assert_int_equal(mr_lookup(x->client, &read_only, id, x->keys, KEYS, &reply), MR_OK);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_close(((const float *)mr_reply_tensor(reply, 0)->data)[i], INITIAL);
    mr_reply_free(reply);
    assert_int_equal(rows_of(x, id), 0);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < KEYS * DIM; i++) { /* keys come twice, with the same row */
            uint64_t value = x->keys[i / DIM] * 10 + i % DIM + turn;
            rows[i] = (float)value;
        }
        assert_int_equal(mr_push_gradients(x->client, turn == 0 ? NULL : &rate, id, x->keys, KEYS, DIM, rows),
                         MR_OK);
        assert_int_equal(rows_of(x, id), 97);
        assert_int_equal(mr_lookup(x->client, &later, id, x->keys, KEYS, NULL), MR_OK);
        assert_int_equal(mr_future_wait(future, &reply), MR_OK);
        mr_future_destroy(future);
        assert_memory_equal(mr_reply_tensor(reply, 0)->data, rows, sizeof(rows));
        mr_reply_free(reply);
    }
}

TEST(test_bags, set_up, tear_down)
{
    struct fixture *x = *state;
    uint32_t key_count = x->offsets[BAGS];
    float gradients[BAGS * DIM], rows[97];
    struct mr_reply *reply;
    for (uint32_t k = 0; k < 97; k++)
        rows[k] = INITIAL;
    for (uint32_t b = 0; b < BAGS; b++) {
        for (uint32_t i = x->offsets[b]; i < x->offsets[b + 1]; i++)
            rows[x->keys[i]] -= RATE * (float)b * share(x, b);
        for (uint32_t d = 0; d < DIM; d++)
            gradients[b * DIM + d] = (float)b;
    }
    assert_int_equal(mr_lookup_bags(x->client, NULL, x->mean, x->keys, NULL, x->offsets, BAGS, NULL), MR_OK);
    assert_int_equal(
        mr_push_gradients_bags(x->client, NULL, x->mean, x->keys, NULL, x->offsets, BAGS, DIM, gradients),
        MR_OK);
    assert_int_equal(mr_lookup(x->client, NULL, x->mean, x->keys, key_count, &reply), MR_OK);
    for (uint32_t i = 0; i < key_count * DIM; i++)
        assert_close(floats(reply)[i], rows[x->keys[i / DIM]]);
    mr_reply_free(reply);
    assert_int_equal(mr_lookup_bags(x->client, NULL, x->mean, x->keys, NULL, x->offsets, BAGS, &reply),
                     MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], BAGS);
    for (uint32_t b = 0; b < BAGS; b++) {
        float sum = 0;
        for (uint32_t i = x->offsets[b]; i < x->offsets[b + 1]; i++)
            sum += rows[x->keys[i]] * share(x, b);
        assert_close(floats(reply)[b * DIM + 3], sum);
    }
    mr_reply_free(reply);
}

/* Larger than many packets both ways, and asked for twice at the same time. */
TEST(test_large, set_up, tear_down)
{
    enum { COUNT = 60000 };
    struct fixture *x = *state;
    uint64_t *keys = calloc(COUNT, sizeof(*keys));
    float *gradients = calloc(COUNT * DIM, sizeof(*gradients));
    struct mr_future *futures[2];
    struct mr_reply *reply;

    assert_non_null(keys);
    assert_non_null(gradients);
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = i;
        gradients[i * DIM] = (float)(i % 100);
    }
    assert_int_equal(mr_lookup(x->client, NULL, x->table, keys, COUNT, NULL), MR_OK);
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, keys, COUNT, DIM, gradients), MR_OK);
    for (uint32_t f = 0; f < 2; f++) {
        struct mr_options options = {.future = &futures[f]};
        assert_int_equal(mr_lookup(x->client, &options, x->table, keys, COUNT, NULL), MR_OK);
    }
    for (uint32_t f = 0; f < 2; f++) {
        assert_int_equal(mr_future_wait(futures[f], &reply), MR_OK);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_close(floats(reply)[i * DIM], INITIAL - RATE * (float)(i % 100));
        mr_reply_free(reply);
        mr_future_destroy(futures[f]);
    }
    assert_int_equal(rows_held(x), COUNT);
    free(keys);
    free(gradients);
}

/* ---- Push, Pull ---- */

TEST(test_variables, set_up, tear_down)
{
    struct fixture *x = *state;
    float values[6] = {1, 2, 3, 4, 5, 6}, gradient[6] = {1, 1, 1, 1, 1, 1};
    struct mr_reply *reply;
    assert_int_equal(mr_variable_push(x->client, NULL, x->bias, 0, 6, values), MR_OK);
    assert_int_equal(mr_variable_push(x->client, NULL, x->bias, 4, 1, values), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x->client, NULL, x->bias, 6, gradient), MR_OK);
    assert_int_equal(mr_variable_pull(x->client, NULL, x->bias, 3, 2, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], 2);
    assert_close(floats(reply)[0], 4 - RATE);
    assert_close(floats(reply)[1], 1 - RATE);
    mr_reply_free(reply);
    assert_refused(mr_variable_pull(x->client, NULL, x->bias, 5, 2, &reply), MR_WRONG_SHAPE, "6 elements");
    assert_refused(mr_variable_pull(x->client, NULL, 77, 0, 0, &reply), MR_UNKNOWN_VARIABLE, "77");
    assert_refused(mr_variable_push(x->client, NULL, x->table, 0, 1, values), MR_UNKNOWN_VARIABLE,
                   "variable");
}

/* ---- Save, Restore ---- */

static void wait_until_saved(struct fixture *x, uint64_t id)
{
    struct mr_checkpoint_info status = node_fixture_wait_saved(x->client);
    assert_int_equal(status.last_good_id, id);
    assert_true(status.bytes_done > 0);
}

static void push_ones(struct fixture *x)
{
    float gradients[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = 1;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, NULL), MR_OK);
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, x->keys, KEYS, DIM, gradients), MR_OK);
}

static void check_pushed(struct fixture *x, const struct mr_reply *reply, float pushes)
{
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        float sum = pushes * (float)key_times(x, x->keys[i / DIM], KEYS);
        assert_close(floats(reply)[i], INITIAL - RATE * sum);
    }
}

TEST(test_save_restore, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_reply *reply = NULL;
    uint64_t id = 0, restored = 0;
    push_ones(x);
    assert_int_equal(save_into(x->client, NULL, NULL, &id), MR_OK);
    wait_until_saved(x, id);
    push_ones(x);
    assert_int_equal(restore_from(x->client, NULL, NULL, id, &restored), MR_OK);
    assert_int_equal(restored, id);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    check_pushed(x, reply, 1);
    mr_reply_free(reply);
    assert_refused(restore_from(x->client, NULL, NULL, 999, &restored), MR_CHECKPOINT_NOT_FOUND, "999");
    assert_refused(save_into(x->client, NULL, "/proc/nowhere", &id), MR_INVALID_ARGUMENT, "checkpoint.allow");
    /* Refused calls change nothing. */
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    check_pushed(x, reply, 1);
    mr_reply_free(reply);
}

/* ---- Heartbeat ---- */

TEST(test_heartbeat, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_core_state states[64];
    struct mr_options options = {.step = 42};
    float gradients[KEYS * DIM] = {0};
    assert_int_equal(mr_client_core_count(x->client), cores);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, NULL), MR_OK);
    assert_int_equal(mr_push_gradients(x->client, &options, x->table, x->keys, KEYS, DIM, gradients), MR_OK);
    assert_int_equal(mr_heartbeat(x->client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < cores; i++) {
        assert_int_equal(states[i].core, i);
        assert_int_equal(states[i].state, 1);
        assert_int_equal(states[i].incarnation, mr_client_incarnation(x->client));
        assert_int_equal(states[i].last_step, 42);
        assert_true(states[i].rows > 0 && states[i].memory_bytes > 0 && states[i].uptime_us > 0);
        assert_true(states[i].busy_share >= 0 && states[i].busy_share <= 1);
        assert_true(node_fixture_counter(x->client, i, "wire.calls_served") > 0);
    }
    assert_int_equal(rows_held(x), 97);
}

/* ---- a restart ---- */

TEST(test_kill_and_restart, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_reply *reply = NULL;
    struct mr_future *future;
    struct mr_options async = {.future = &future}, brief = {.deadline_ms = 1500};
    uint32_t incarnation = mr_client_incarnation(x->client);
    enum mr_status status;
    uint64_t id;
    push_ones(x);
    assert_int_equal(save_into(x->client, NULL, NULL, &id), MR_OK);
    wait_until_saved(x, id);
    push_ones(x);
    node_fixture_kill(&x->node);
    do /* until it has noticed the silence, as it has in time unless it does not run for a while */
        status = mr_lookup(x->client, &brief, x->table, x->keys, KEYS, &reply);
    while (status == MR_DEADLINE_EXCEEDED);
    assert_refused(status, MR_UNREACHABLE, "silent for");
    assert_null(reply);
    /* Begun while nobody is there: it ends by itself once the server is back. */
    assert_int_equal(mr_lookup(x->client, &async, x->table, x->keys, KEYS, NULL), MR_OK);
    node_fixture_restart(&x->node);
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    mr_future_destroy(future);
    check_pushed(x, reply, 1); /* what the checkpoint has */
    mr_reply_free(reply);
    assert_true(mr_client_incarnation(x->client) > incarnation);
    push_ones(x);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    check_pushed(x, reply, 2);
    mr_reply_free(reply);
}

int main(int argc, char **argv)
{
    if (!node_fixture_arguments(argc, argv, &cores))
        return 2;
    return tests_run(NULL, NULL);
}
