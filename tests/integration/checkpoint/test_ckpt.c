/* `millrace ckpt` on checkpoints of a real node, and a real node on what it makes of them. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"

enum { CHAIN_LINKS = 5, CORES = 2, KEYS = 900, DIM = 8, PUSHED = 123, PATH_BYTES = 256 };

static const char *millrace;

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct program_result result;
    uint32_t user, half, bias;
    uint64_t keys[KEYS];
};

struct values {
    float user[KEYS * DIM], half[KEYS * DIM], bias[3];
};

static void features_of(struct mr_feature features[3])
{
    features[0] = mr_feature_table("user", DIM);
    features[0].initializer = MR_INIT_NORMAL;
    features[0].init_b = 1;
    mr_feature_set_optimizer(&features[0], MR_OPT_ADAGRAD);
    features[1] = mr_feature_table("half", DIM);
    features[1].dtype = MR_BF16;
    features[1].init_a = 0.5f;
    mr_feature_set_optimizer(&features[1], MR_OPT_ADAM);
    features[1].eviction = MR_EVICT_LRU;
    features[1].capacity_rows = UINT64_C(2) * KEYS;
    features[2] = mr_feature_variable("bias", 1, (uint32_t[]){3});
}

static void ckpt_push(struct fixture *x, uint32_t first, uint32_t count)
{
    static float gradients[KEYS * DIM];
    const float bias[3] = {1, -2, 0.5f};
    for (uint32_t i = 0; i < count * DIM; i++)
        gradients[i] = (float)(i % 17) - 8.5f;
    assert_int_equal(mr_push_gradients(x->client, NULL, x->user, x->keys + first, count, DIM, gradients),
                     MR_OK);
    assert_int_equal(mr_push_gradients(x->client, NULL, x->half, x->keys + first, count, DIM, gradients),
                     MR_OK);
    assert_int_equal(mr_variable_push_gradient(x->client, NULL, x->bias, 3, bias), MR_OK);
}

static int set_up_with(void **state, const char *const *settings)
{
    static struct fixture x;
    struct mr_feature features[3];
    uint32_t ids[3];
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, CORES, settings);
    x.client = node_fixture_connect(&x.node);
    features_of(features);
    assert_int_equal(mr_create(x.client, NULL, features, 3, ids), MR_OK);
    x.user = ids[0];
    x.half = ids[1];
    x.bias = ids[2];
    for (uint32_t i = 0; i < KEYS; i++)
        x.keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    assert_int_equal(mr_lookup(x.client, NULL, x.user, x.keys, KEYS, NULL), MR_OK);
    assert_int_equal(mr_lookup(x.client, NULL, x.half, x.keys, KEYS, NULL), MR_OK);
    ckpt_push(&x, 0, KEYS);
    *state = &x;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, NULL);
}

static int set_up_deltas(void **state)
{
    static const char *const settings[] = {"checkpoint.deltas=8", "checkpoint.delta_share_percent=1000",
                                           NULL};
    return set_up_with(state, settings);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

static void look_up(struct fixture *x, uint32_t table, float *out)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, table, x->keys, KEYS, &reply), MR_OK);
    memcpy(out, mr_reply_tensor(reply, 0)->data, sizeof(float) * KEYS * DIM);
    mr_reply_free(reply);
}

static void read_values(struct fixture *x, struct values *v)
{
    struct mr_reply *reply;
    look_up(x, x->user, v->user);
    look_up(x, x->half, v->half);
    assert_int_equal(mr_variable_pull(x->client, NULL, x->bias, 0, 0, &reply), MR_OK);
    memcpy(v->bias, mr_reply_tensor(reply, 0)->data, sizeof(v->bias));
    mr_reply_free(reply);
}

static void ckpt_run(struct fixture *x, int code, const char *says, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void ckpt_run(struct fixture *x, int code, const char *says, const char *format, ...)
{
    char arguments[600];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof(arguments), format, list);
    va_end(list);
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s ckpt %s", millrace, arguments);
    program_expect(&x->result, code, code == 0 || code == 3 ? "" : says);
    if ((code == 0 || code == 3) && strstr(x->result.out, says) == NULL)
        fail_msg("\"%s\" is not in:\n%s", says, x->result.out);
}

static const json_t *feature(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(list, i), "name")), name) == 0)
            return json_array_get(list, i);
    fail_msg("no feature %s", name);
    return NULL;
}

static json_t *ckpt_parse(const struct fixture *x)
{
    json_error_t error;
    json_t *value = json_loads(x->result.out, 0, &error);
    if (value == NULL)
        fail_msg("%s: %s", error.text, x->result.out);
    return value;
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number %s", key);
    return json_integer_value(value);
}

static uint32_t key_index(const struct fixture *x, uint64_t key)
{
    for (uint32_t i = 0; i < KEYS; i++)
        if (x->keys[i] == key)
            return i;
    fail_msg("key %" PRIu64 " was never used", key);
    return 0;
}

/* CSV has the values that lookups answer, to the bit. */
static void check_csv(const struct fixture *x, const char *path, const float *values)
{
    static char line[4096];
    uint32_t rows = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file)); /* the heading */
    while (fgets(line, sizeof(line), file) != NULL) {
        char *at;
        const uint32_t row = key_index(x, strtoull(line, &at, 10));
        for (uint32_t i = 0; i < DIM; i++) {
            assert_int_equal(*at, ',');
            assert_true(strtof(at + 1, &at) == values[row * DIM + i]);
        }
        rows++;
    }
    (void)fclose(file);
    assert_int_equal(rows, KEYS);
}

TEST(test_what_a_node_saved, set_up, tear_down)
{
    struct fixture *x = *state;
    static struct values v;
    const char *d = x->node.checkpoints;
    char path[PATH_BYTES];
    const uint64_t id = node_fixture_save(x->client);
    read_values(x, &v);
    ckpt_run(x, 0, ": ok, ", "verify %s", d);
    ckpt_run(x, 0, "full", "list %s --verify", d);
    ckpt_run(x, 0, "", "info %s/ckpt-%" PRIu64 " --json", d, id);
    json_t *info = ckpt_parse(x);
    const json_t *features = json_object_get(info, "features");
    assert_int_equal(number(info, "cores"), CORES);
    assert_int_equal(number(feature(features, "user"), "rows"), KEYS);
    assert_int_equal(number(feature(features, "half"), "rows"), KEYS);
    assert_string_equal(json_string_value(json_object_get(feature(features, "half"), "eviction")), "lru");
    json_decref(info);
    snprintf(path, sizeof(path), "%s/user.csv", x->node.directory);
    ckpt_run(x, 0, "", "dump %s/ckpt-%" PRIu64 " --table user --out %s", d, id, path);
    check_csv(x, path, v.user);
    snprintf(path, sizeof(path), "%s/half.csv", x->node.directory);
    ckpt_run(x, 0, "", "dump %s/ckpt-%" PRIu64 " --table half --out %s", d, id, path);
    check_csv(x, path, v.half);
    ckpt_run(x, 0, "900 rows of half", "export %s/ckpt-%" PRIu64 " --table half --out %s/half.safetensors", d,
             id, x->node.directory);
}

/* Pushes between two saves are what diff finds, rows and optimizer state; largest difference and all. */
TEST(test_what_changed, set_up, tear_down)
{
    struct fixture *x = *state;
    static struct values before, after;
    const char *d = x->node.checkpoints;
    const uint64_t first = node_fixture_save(x->client);
    double largest = 0;
    read_values(x, &before);
    ckpt_push(x, 200, PUSHED);
    const uint64_t second = node_fixture_save(x->client);
    read_values(x, &after);
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        double change = fabs((double)before.user[i] - (double)after.user[i]);
        largest =
            change > largest ? change : largest; /* fmax() here is an internal error of GCC 12 for aarch64 */
    }
    ckpt_run(x, 3, "", "diff %s/ckpt-%" PRIu64 " %s/ckpt-%" PRIu64 " --json", d, first, d, second);
    json_t *diff = ckpt_parse(x);
    const json_t *user = feature(json_object_get(diff, "features"), "user");
    const json_t *bias = feature(json_object_get(diff, "features"), "bias");
    assert_int_equal(number(user, "changed"), PUSHED);
    assert_int_equal(number(user, "added") + number(user, "removed") + number(user, "state_changed"), 0);
    assert_true(fabs(json_number_value(json_object_get(user, "largest_difference")) - largest) <
                1e-6 * largest);
    assert_int_equal(number(bias, "changed"), 3);
    json_decref(diff);
    ckpt_run(x, 0, "", "diff %s/ckpt-%" PRIu64 " %s/ckpt-%" PRIu64, d, second, d, second);
}

static void check_info_of_delta(struct fixture *x, uint64_t first, uint64_t id)
{
    const char *d = x->node.checkpoints;
    ckpt_run(x, 0, "", "info %s/ckpt-%" PRIu64 " --json", d, id);
    json_t *info = ckpt_parse(x);
    const json_t *chain = json_object_get(info, "chain");

    assert_string_equal(json_string_value(json_object_get(info, "kind")), "delta");
    assert_int_equal(json_array_size(chain), id - first + 1);
    assert_int_equal(number(feature(json_object_get(info, "features"), "user"), "rows"), KEYS);
    json_decref(info);
    ckpt_run(x, 0, "", "list %s --json", d);
    json_t *list = ckpt_parse(x);
    uint32_t deltas = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        deltas += strcmp(json_string_value(json_object_get(json_array_get(list, i), "kind")), "delta") == 0;
    assert_int_equal(json_array_size(list), id - first + 1);
    assert_int_equal(deltas, id - first);
    json_decref(list);
}

/* A chain that a node wrote: each link shows what changed since the one before, and the last has what
 * the node has. */
TEST(test_deltas_of_a_node, set_up_deltas, tear_down)
{
    enum { DELTAS = 3 };
    struct fixture *x = *state;
    static struct values v;
    const char *d = x->node.checkpoints, *own = x->node.directory;
    char path[PATH_BYTES];
    const uint64_t first = node_fixture_save(x->client);
    uint64_t id = first;

    for (uint32_t i = 1; i <= DELTAS; i++) {
        ckpt_push(x, i * 100, PUSHED);
        id = node_fixture_save(x->client);
        ckpt_run(x, 3, "", "diff %s/ckpt-%" PRIu64 " %s/ckpt-%" PRIu64 " --json", d, id - 1, d, id);
        json_t *diff = ckpt_parse(x);
        const json_t *user = feature(json_object_get(diff, "features"), "user");

        assert_int_equal(number(user, "changed"), PUSHED);
        assert_int_equal(number(user, "added") + number(user, "removed") + number(user, "state_changed"), 0);
        json_decref(diff);
    }
    read_values(x, &v);
    check_info_of_delta(x, first, id);
    ckpt_run(x, 0, ": ok, ", "verify %s", d);
    snprintf(path, sizeof(path), "%s/user.csv", own);
    ckpt_run(x, 0, "", "dump %s/ckpt-%" PRIu64 " --table user --out %s", d, id, path);
    check_csv(x, path, v.user);
    ckpt_run(x, 0, "from 4 checkpoints", "compact %s/ckpt-%" PRIu64 " --out %s/other", d, id, own);
    ckpt_run(x, 0, "", "diff %s/ckpt-%" PRIu64 " %s/other", d, id, own);
}

/* A delta tells the rows that made room for others. */
TEST(test_rows_that_went, set_up_deltas, tear_down)
{
    enum { NEW_KEYS = 2 * KEYS };
    struct fixture *x = *state;
    static uint64_t others[NEW_KEYS];
    const char *d = x->node.checkpoints;

    node_fixture_save(x->client);
    for (uint32_t i = 0; i < NEW_KEYS; i++)
        others[i] = (KEYS + i) * UINT64_C(0x9e3779b97f4a7c15);
    assert_int_equal(mr_lookup(x->client, NULL, x->half, others, NEW_KEYS, NULL), MR_OK);
    const uint64_t id = node_fixture_save(x->client);

    ckpt_run(x, 0, "delta", "info %s/ckpt-%" PRIu64, d, id);
    ckpt_run(x, 3, "", "diff %s/ckpt-%" PRIu64 " %s/ckpt-%" PRIu64 " --json", d, id - 1, d, id);
    json_t *diff = ckpt_parse(x);
    const json_t *half = feature(json_object_get(diff, "features"), "half");

    assert_true(number(half, "removed") > 0 && number(half, "added") > 0);
    assert_int_equal(number(feature(json_object_get(diff, "features"), "user"), "removed"), 0);
    json_decref(diff);
}

/* Restored from, a full that the tool wrote is the same as the server's own: values, and how training goes
 * on. */
TEST(test_restoring_what_was_compacted, set_up, tear_down)
{
    struct fixture *x = *state;
    static struct values on, found;
    const char *d = x->node.checkpoints;
    char other[PATH_BYTES];
    uint64_t restored = 0;
    node_fixture_save(x->client);
    ckpt_push(x, 100, PUSHED);
    const uint64_t id = node_fixture_save(x->client);
    ckpt_push(x, 150, PUSHED);
    read_values(x, &on);
    snprintf(other, sizeof(other), "%s/other", x->node.directory);
    ckpt_run(x, 0, "full", "compact %s/ckpt-%" PRIu64 " --out %s", d, id, other);
    ckpt_run(x, 0, "", "diff %s/ckpt-%" PRIu64 " %s", d, id, other);
    ckpt_push(x, 0, KEYS);
    assert_int_equal(restore_from(x->client, NULL, other, 0, &restored), MR_OK);
    assert_int_equal(restored, id);
    ckpt_push(x, 150, PUSHED); /* needs the optimizers' states */
    read_values(x, &found);
    assert_memory_equal(&found, &on, sizeof(on));
}

/* Restored as it was written; every key of each table is the model's. */
static void check_chain(struct fixture *x, const char *directory, uint64_t id)
{
    static uint64_t keys[CHAIN_KEYS];
    struct mr_feature features[3];
    uint32_t ids[3];
    uint64_t restored = 0;
    chain_features(features);
    assert_int_equal(restore_from(x->client, NULL, directory, id, &restored), MR_OK);
    assert_int_equal(mr_create(x->client, NULL, features, 3, ids), MR_OK);
    for (uint32_t i = 0; i < CHAIN_KEYS; i++)
        keys[i] = chain_key(i);
    for (uint32_t table = 1; table <= CHAIN_TABLES; table++) {
        struct mr_reply *reply;
        const uint32_t dim = features[table - 1].dims[0];
        assert_int_equal(mr_lookup(x->client, NULL, ids[table - 1], keys, CHAIN_KEYS, &reply), MR_OK);
        const float *values = mr_reply_tensor(reply, 0)->data;
        for (uint32_t i = 0; i < CHAIN_KEYS; i++) {
            const uint32_t link = chain_model[CHAIN_LINKS][table][i];
            assert_true(values[i * dim] == (link > 0 ? chain_value(i, link) : 0));
            assert_true(values[i * dim + dim - 1] == values[i * dim]);
        }
        mr_reply_free(reply);
    }
}

/* A node restores a chain, and the full that the tool made of it, to the same rows: those of the last link's
 * word. */
TEST(test_restoring_a_chain_and_its_full, set_up, tear_down)
{
    struct fixture *x = *state;
    char chain[PATH_BYTES], full[PATH_BYTES];
    snprintf(chain, sizeof(chain), "%s/chain", x->node.directory);
    snprintf(full, sizeof(full), "%s/full", x->node.directory);
    chain_write_for_node(chain, CHAIN_LINKS);
    check_chain(x, chain, CHAIN_FIRST + CHAIN_LINKS - 1);
    ckpt_run(x, 0, "from 5 checkpoints", "compact %s --out %s --memory-mib 0", chain, full);
    check_chain(x, full, CHAIN_FIRST + CHAIN_LINKS - 1);
}

/* A table from arrays, in a node that answers with them and trains on. */
TEST(test_restoring_what_was_imported, set_up, tear_down)
{
    struct fixture *x = *state;
    static struct values v;
    static float found[KEYS * DIM];
    const char *d = x->node.checkpoints, *own = x->node.directory;
    struct mr_feature table = mr_feature_table("imported", DIM);
    uint64_t restored = 0;
    char in[PATH_BYTES];
    const uint64_t id = node_fixture_save(x->client);
    read_values(x, &v);
    ckpt_run(x, 0, "", "dump %s/ckpt-%" PRIu64 " --table user --format npy --out %s/npy", d, id, own);
    snprintf(in, sizeof(in), "%s/in", own);
    ckpt_run(
        x, 0, "900 rows of imported",
        "import --keys %s/npy/keys.npy --values %s/npy/values.npy --table imported --out %s --optimizer adam",
        own, own, in);
    assert_int_equal(restore_from(x->client, NULL, in, 0, &restored), MR_OK);
    mr_feature_set_optimizer(&table, MR_OPT_ADAM);
    assert_int_equal(mr_create(x->client, NULL, &table, 1, &x->user), MR_OK); /* the same: it is there */
    look_up(x, x->user, found);
    assert_memory_equal(found, v.user, sizeof(found));
    memset(v.half, 0, sizeof(v.half));
    v.half[0] = 1;
    assert_int_equal(mr_push_gradients(x->client, NULL, x->user, x->keys, KEYS, DIM, v.half), MR_OK);
    look_up(x, x->user, found);
    /* Adam's first step is the learning rate. */
    assert_true(fabsf(v.user[0] - found[0] - table.learning_rate) < 1e-5f);
    assert_true(found[1] == v.user[1]);
    /* One of bf16, from its bits. */
    ckpt_run(x, 0, "", "dump %s/ckpt-%" PRIu64 " --table half --format npy --out %s/npy", d, id, own);
    ckpt_run(x, 0, "",
             "import --keys %s/npy/keys.npy --values %s/npy/values.npy --table half --out %s --dtype bf16 "
             "--eviction lfu",
             own, own, in);
    assert_int_equal(restore_from(x->client, NULL, in, 0, &restored), MR_OK);
    assert_int_equal(restored, 2);
    struct mr_feature_info *infos;
    uint32_t count;
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    assert_string_equal(infos[0].feature.name, "half");
    assert_int_equal(mr_lookup(x->client, NULL, infos[0].id, x->keys, 1, NULL), MR_OK);
    free(infos);
}

TEST(test_damage, set_up, tear_down)
{
    struct fixture *x = *state;
    const char *d = x->node.checkpoints;
    char path[PATH_BYTES];
    const uint64_t id = node_fixture_save(x->client);
    snprintf(path, sizeof(path), "%s/ckpt-%" PRIu64 "/core-001.mrc", d, id);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 5000, SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, 5000, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 4, file), byte ^ 4);
    assert_int_equal(fclose(file), 0);
    ckpt_run(x, 1, "1 of 1 checkpoints cannot be restored", "verify %s", d);
    if (strstr(x->result.out, "core-001.mrc: block 0: its hash does not match its bytes") == NULL)
        fail_msg("%s", x->result.out);
    ckpt_run(x, 1, "core-001.mrc: block 0", "dump %s/ckpt-%" PRIu64 " --table user --out %s/x.csv", d, id,
             x->node.directory);
    ckpt_run(x, 1, "core-001.mrc: block 0", "compact %s/ckpt-%" PRIu64 " --out %s/other", d, id,
             x->node.directory);
    ckpt_run(x, 0, "", "list %s/other", x->node.directory);
    assert_string_equal(x->result.out, "");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_ckpt MILLRACED MILLRACE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
