/* Bags of every pooling, with weights and without, by key and by batch id, in every type that rows travel in:
 * on nodes of 1, 2 and 4 data cores. Gradients give the same bits on all of them; lookups are as their rows
 * say. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum { DIM = 5, UNIVERSE = 61, SAMPLES = 10, SLOTS = 4, BAGS = SAMPLES * SLOTS, KEYS_MAX = BAGS * 6 };
enum { POOLINGS = 3, DTYPES = 4, TABLES = POOLINGS * DTYPES * 2 };

static const enum mr_dtype dtypes[DTYPES] = {MR_F32, MR_F16, MR_BF16, MR_I8};

/* What a node of some number of cores holds at the end: rows of all tables. */
struct outcome {
    float rows[TABLES][UNIVERSE * DIM];
};

struct bags {
    uint64_t keys[KEYS_MAX];
    uint32_t offsets[BAGS + 1], key_count;
    float weights[KEYS_MAX], gradients[BAGS * DIM];
};

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Repeated keys within bags and over them, empty bags, a weight of 0, weights that cancel out. */
static void make_bags(struct bags *b, uint32_t seed)
{
    b->key_count = 0;
    for (uint32_t bag = 0; bag < BAGS; bag++) {
        uint32_t size = draw(&seed) % 6;
        b->offsets[bag] = b->key_count;
        for (uint32_t i = 0; i < size; i++) {
            b->weights[b->key_count] = (float)(draw(&seed) % 13) * 0.3f - 1.1f;
            b->keys[b->key_count++] = draw(&seed) % UNIVERSE * UINT64_C(0x9e3779b97f4a7c15);
        }
        if (size == 2) {
            b->weights[b->offsets[bag]] = 0.5f;
            b->weights[b->offsets[bag] + 1] = bag % 2 == 0 ? -0.5f : 0;
        }
        for (uint32_t d = 0; d < DIM; d++)
            b->gradients[bag * DIM + d] = (float)(draw(&seed) % 1000) * 0.003f - 1.4f;
    }
    b->offsets[BAGS] = b->key_count;
}

static const float *floats(const struct mr_reply *reply)
{
    return mr_reply_tensor(reply, 0)->data;
}

static void read_rows(struct mr_client *client, uint32_t table, float *rows)
{
    struct mr_reply *reply = NULL;
    uint64_t keys[UNIVERSE];
    for (uint32_t i = 0; i < UNIVERSE; i++)
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    assert_int_equal(mr_lookup(client, NULL, table, keys, UNIVERSE, &reply), MR_OK);
    memcpy(rows, floats(reply), UNIVERSE * DIM * sizeof(*rows));
    mr_reply_free(reply);
}

static float *row_of(float *rows, uint64_t key)
{
    for (uint32_t i = 0; i < UNIVERSE; i++)
        if (i * UINT64_C(0x9e3779b97f4a7c15) == key)
            return rows + (size_t)i * DIM;
    fail();
    return NULL;
}

/* Of one rounding to the type, for numbers up to `largest`. */
static float error_of(enum mr_dtype dtype, float largest)
{
    switch (dtype) {
    case MR_F16:
        return largest * 0x1p-11f + 0x1p-24f;
    case MR_BF16:
        return largest * 0x1p-8f;
    case MR_I8:
        return largest / 127;
    default:
        return 0;
    }
}

/* A bag over several cores is rounded once per core; a share may be larger than the sum. */
static void check_lookup(const float *got, float *rows, const struct bags *b, uint32_t pooling,
                         const float *weights, enum mr_dtype dtype, uint32_t cores)
{
    for (uint32_t bag = 0; bag < BAGS; bag++) {
        uint32_t first = b->offsets[bag], count = b->offsets[bag + 1] - first;
        float divisor = mr_bag_divisor(pooling, weights == NULL ? NULL : weights + first, count);
        double sums[DIM] = {0}, largest = 0;
        for (uint32_t i = first; i < first + count && divisor != 0; i++) {
            for (uint32_t d = 0; d < DIM; d++) {
                double part = (double)row_of(rows, b->keys[i])[d] *
                              (weights == NULL ? 1 : (double)weights[i]) / (double)divisor;
                sums[d] += part;
                largest += fabs(part);
            }
        }
        for (uint32_t d = 0; d < DIM; d++) {
            double error = fabs((double)got[bag * DIM + d] - sums[d]);
            assert_true(error <= (double)error_of(dtype, (float)largest) * cores + 1e-5 * (1 + largest));
        }
    }
}

static struct mr_feature table_of(uint32_t number, uint32_t pooling)
{
    char name[16] = "t00";
    name[1] = (char)('0' + number / 10);
    name[2] = (char)('0' + number % 10);
    struct mr_feature f = mr_feature_table(name, DIM);

    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -1;
    f.init_b = 1;
    f.seed = 40 + number;
    f.pooling = pooling;
    f.optimizer = MR_OPT_ADAGRAD;
    f.optimizer_args[0] = 0.1f;
    f.learning_rate = 0.2f;
    return f;
}

/* Looks up and pushes by key, then by batch id. */
static void exercise(struct mr_client *client, uint32_t number, uint32_t cores, struct outcome *out)
{
    static struct bags b;
    uint32_t pooling = number % POOLINGS, table;
    enum mr_dtype dtype = dtypes[number / POOLINGS % DTYPES];
    const float *weights = number >= POOLINGS * DTYPES ? b.weights : NULL;
    struct mr_feature feature = table_of(number, pooling);
    struct mr_options options = {.wire_dtype = dtype};
    struct mr_reply *reply = NULL;
    float *rows = out->rows[number];
    uint64_t batch = (UINT64_C(5) << 48) | number;
    assert_int_equal(mr_create(client, NULL, &feature, 1, &table), MR_OK);
    make_bags(&b, number + 1);
    read_rows(client, table, rows);
    assert_int_equal(mr_lookup_bags(client, &options, table, b.keys, weights, b.offsets, BAGS, &reply),
                     MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dtype, MR_F32);
    assert_int_equal(mr_reply_tensor_count(reply), 1);
    check_lookup(floats(reply), rows, &b, pooling, weights, dtype, cores);
    mr_reply_free(reply);
    assert_int_equal(
        mr_push_gradients_bags(client, &options, table, b.keys, weights, b.offsets, BAGS, DIM, b.gradients),
        MR_OK);
    assert_int_equal(mr_push_gradients(client, &options, table, b.keys, BAGS, DIM, b.gradients), MR_OK);

    make_bags(&b, number + 1001);
    read_rows(client, table, rows);
    struct mr_batch_keys fed = {table, SAMPLES, SLOTS, b.keys, b.offsets, weights};
    struct mr_batch_gradient pushed = {table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, b.gradients)};

    assert_int_equal(mr_feed_sample(client, NULL, batch, &fed, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(client, &options, batch, table, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->rank, 3);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[1], SLOTS);
    check_lookup(floats(reply), rows, &b, pooling, weights, dtype, cores);
    mr_reply_free(reply);
    assert_int_equal(mr_push_gradients_batch(client, &options, batch, &pushed, 1, NULL), MR_OK);
    read_rows(client, table, rows);
}

static void run_node(uint32_t cores, struct outcome *out)
{
    static const char *const settings[] = {"memory.limit_mib=1024", NULL}; /* for 4 cores */
    struct node_fixture node;
    node_fixture_start(&node, cores, settings);
    struct mr_client *client = node_fixture_connect(&node);

    for (uint32_t number = 0; number < TABLES; number++)
        exercise(client, number, cores, out);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

TEST(test_same_bits_on_any_number_of_cores)
{
    static struct outcome one, more;
    run_node(1, &one);
    for (uint32_t cores = 2; cores <= 4; cores += 2) {
        run_node(cores, &more);
        for (uint32_t t = 0; t < TABLES; t++)
            assert_memory_equal(one.rows[t], more.rows[t], sizeof(one.rows[t]));
    }
}

TEST(test_what_is_refused)
{
    struct node_fixture node;
    struct mr_feature none = mr_feature_table("raw", DIM);
    struct mr_options narrow = {.wire_dtype = MR_F64};
    uint64_t keys[2] = {1, 2};
    uint32_t table, offsets[2] = {0, 2};
    float weights[2] = {1, NAN};
    struct mr_reply *reply = NULL;
    none.pooling = MR_POOL_NONE;
    node_fixture_start(&node, 2, NULL);
    struct mr_client *client = node_fixture_connect(&node);

    assert_int_equal(mr_create(client, NULL, &none, 1, &table), MR_OK);
    assert_int_equal(mr_lookup(client, NULL, table, keys, 2, &reply), MR_OK);
    mr_reply_free(reply);
    node_fixture_refused(mr_lookup_bags(client, NULL, table, keys, NULL, offsets, 1, &reply),
                         MR_INVALID_ARGUMENT, "raw has no pooling");
    node_fixture_refused(mr_lookup(client, &narrow, table, keys, 2, &reply), MR_WRONG_DTYPE, "f64");
    node_fixture_refused(mr_lookup_bags(client, NULL, table, keys, weights, offsets, 1, &reply),
                         MR_INVALID_ARGUMENT, "weights[1] is nan");
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: test_wire_types MILLRACED\n", stderr);
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
