/* Calls for several tables, beside the calls for each of them: what comes out is the same, whatever the
 * number of cores, the types on the wire and the server's version. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/api/short_memory.h"
#include "tests/unit/trainer_client/live_node.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"

enum { TABLES = 3, KEYS = 60, DISTINCT = 41, BAGS = 25, DIM = 3 };

struct fixture {
    struct live_node *node;
    struct mr_client *client;
    uint32_t tables[TABLES]; /* pooled by sum, mean, sqrtn */
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1], one_bag[2];
    float weights[KEYS];
};

static void set_up(struct fixture *x, uint32_t core_count, bool replay)
{
    static const char *const names[TABLES] = {"sum", "mean", "sqrtn"};
    struct mr_feature features[TABLES];
    char error[512] = "";
    memset(x, 0, sizeof(*x));
    x->node = live_node_start_new(core_count);
    struct mr_client_options options = {.server = live_node_address(x->node), .replay = replay};
    if (mr_client_create(&options, &x->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    for (uint32_t i = 0; i < TABLES; i++) {
        features[i] = mr_feature_table(names[i], DIM + i);
        features[i].pooling = i;
        features[i].seed = 1000 + i;
    }
    assert_int_equal(mr_create(x->client, NULL, features, TABLES, x->tables), MR_OK);
    for (uint32_t i = 0; i < DISTINCT; i++)
        x->keys[i] = i;
    for (uint32_t i = 0; i < TABLES; i++)
        live_node_fill(x->node, x->tables[i], DIM + i, x->keys, DISTINCT);
    for (uint32_t i = 0; i < KEYS; i++) {
        x->keys[i] = (i * 37u) % DISTINCT; /* repeats */
        x->weights[i] = (float)(i % 4) - 0.5f;
    }
    for (uint32_t b = 0; b < BAGS; b++)
        x->offsets[b + 1] = b % 5 == 0 ? x->offsets[b] : x->offsets[b] + 1 + b % 4;
    x->one_bag[1] = 1;
}

static void tear_down(struct fixture *x)
{
    mr_client_destroy(x->client);
    live_node_destroy(x->node);
}

/* Rows, bags, weighted bags, nothing, a single key: for call i. */
static struct mr_table_keys keys_of(const struct fixture *x, uint32_t i)
{
    struct mr_table_keys k = {.table = x->tables[i % TABLES], .keys = x->keys};
    switch (i % 5) {
    case 0:
        k.key_count = KEYS;
        break;
    case 1:
    case 2:
        k.offsets = x->offsets;
        k.bag_count = BAGS;
        k.weights = i % 5 == 2 ? x->weights : NULL;
        break;
    case 3:
        k.keys = NULL;
        break;
    default:
        k.offsets = x->one_bag;
        k.bag_count = 1;
    }
    return k;
}

static struct mr_reply *look_up_one(const struct fixture *x, const struct mr_options *options,
                                    const struct mr_table_keys *k)
{
    struct mr_reply *reply = NULL;
    if (k->offsets == NULL)
        assert_int_equal(mr_lookup(x->client, options, k->table, k->keys, k->key_count, &reply), MR_OK);
    else
        assert_int_equal(mr_lookup_bags(x->client, options, k->table, k->keys, k->weights, k->offsets,
                                        k->bag_count, &reply),
                         MR_OK);
    return reply;
}

static void assert_same(const struct mr_tensor *got, const struct mr_tensor *expected)
{
    assert_non_null(got);
    assert_int_equal(got->dtype, MR_F32);
    assert_int_equal(got->rank, 2);
    assert_memory_equal(got->dims, expected->dims, sizeof(got->dims));
    assert_memory_equal(got->data, expected->data, expected->bytes);
}

/* Looks up `count` tables at once, and each by itself. */
static void check_lookup(struct fixture *x, uint32_t count, enum mr_dtype dtype, bool with_future)
{
    struct mr_table_keys keys[100];
    struct mr_future *future = NULL;
    struct mr_options one = {.wire_dtype = dtype}, all = {.wire_dtype = dtype};
    struct mr_reply *reply = NULL;
    for (uint32_t i = 0; i < count; i++)
        keys[i] = keys_of(x, i);
    all.future = with_future ? &future : NULL;
    assert_int_equal(mr_lookup_tables(x->client, &all, keys, count, &reply), MR_OK);
    memset(keys, 0, with_future ? sizeof(keys) : 0); /* the caller's again */
    if (with_future)
        assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    mr_future_destroy(future);
    assert_int_equal(mr_reply_tensor_count(reply), count);
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_table_keys k = keys_of(x, i);
        struct mr_reply *alone = look_up_one(x, &one, &k);
        assert_same(mr_reply_tensor(reply, i), mr_reply_tensor(alone, 0));
        mr_reply_free(alone);
    }
    mr_reply_free(reply);
}

TEST(test_lookups)
{
    static const enum mr_dtype dtypes[] = {MR_DTYPE_NONE, MR_F32, MR_F16, MR_I8};
    struct fixture x;
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        set_up(&x, cores, false);
        for (uint32_t i = 0; i < 4; i++) {
            check_lookup(&x, 5, dtypes[i], i % 2 == 0);
            check_lookup(&x, 100, dtypes[i], i % 2 == 1); /* more than one message has */
            check_lookup(&x, 1, dtypes[i], false);
        }
        tear_down(&x);
    }
}

TEST(test_a_call_is_a_message_to_each_core)
{
    struct fixture x;
    struct mr_table_keys keys[30];
    set_up(&x, 3, false);
    for (uint32_t i = 0; i < 30; i++)
        keys[i] = keys_of(&x, 0);
    const uint64_t before = live_node_requests(x.node);
    assert_int_equal(mr_lookup_tables(x.client, NULL, keys, 30, NULL), MR_OK);
    assert_int_equal(live_node_requests(x.node) - before, 3);
    tear_down(&x);
}

/* An older server does not know the operation: it gets the calls that it knows. Another start of it may be
 * newer. */
TEST(test_a_server_without_it)
{
    struct fixture x;
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        for (uint32_t with_future = 0; with_future < 2; with_future++) {
            set_up(&x, cores, false);
            live_node_refuse(x.node, MR_OP_LOOKUP_TABLES, MR_UNKNOWN_OP, LIVE_ALL_CORES);
            check_lookup(&x, 7, MR_F32, with_future != 0);
            check_lookup(&x, 7, MR_F16, with_future != 0);
            check_lookup(&x, 40, MR_I8, with_future != 0);
            tear_down(&x);
        }
    }
}

static uint32_t distinct_of(const uint64_t *keys, uint32_t count)
{
    bool seen[DISTINCT] = {false};
    uint32_t distinct = 0;
    for (uint32_t i = 0; i < count; i++) {
        distinct += !seen[keys[i]];
        seen[keys[i]] = true;
    }
    return distinct;
}

/* Pushes to the tables at once, and on another node to each by itself. */
static void check_push(uint32_t cores, bool replay, enum mr_dtype dtype)
{
    static const uint32_t kinds[TABLES] = {0, 1, 2}; /* rows, bags, weighted bags */
    float gradients[KEYS * (DIM + TABLES)];
    struct mr_table_gradients pushed[TABLES];
    struct mr_pushed counts;
    struct mr_options all = {
        .wire_dtype = dtype, .pushed = &counts, .learning_rate = 0.5f, .has_learning_rate = true};
    struct mr_options one = all;
    struct fixture x, y;
    set_up(&x, cores, replay);
    set_up(&y, cores, false);
    one.pushed = NULL;
    for (uint32_t i = 0; i < sizeof(gradients) / sizeof(*gradients); i++)
        gradients[i] = (float)(i % 7) - 3;
    for (uint32_t i = 0; i < TABLES; i++) {
        pushed[i] = (struct mr_table_gradients){keys_of(&x, kinds[i]), DIM + i, gradients};
        pushed[i].of.table = x.tables[i];
    }
    assert_int_equal(mr_push_gradients_tables(x.client, &all, pushed, TABLES), MR_OK);
    assert_true(counts.is_known);
    assert_int_equal(counts.sent, DISTINCT + 2 * distinct_of(x.keys, x.offsets[BAGS]));
    assert_int_equal(counts.applied, counts.sent);
    for (uint32_t i = 0; i < TABLES; i++) {
        const struct mr_table_keys *k = &pushed[i].of;
        enum mr_status status =
            k->offsets == NULL
                ? mr_push_gradients(y.client, &one, y.tables[i], k->keys, k->key_count, DIM + i, gradients)
                : mr_push_gradients_bags(y.client, &one, y.tables[i], k->keys, k->weights, k->offsets,
                                         k->bag_count, DIM + i, gradients);
        assert_int_equal(status, MR_OK);
        const struct mr_table_keys rows = {.table = x.tables[i], .keys = x.keys, .key_count = KEYS};
        struct mr_reply *ours = look_up_one(&x, NULL, &rows), *theirs = look_up_one(&y, NULL, &rows);
        assert_same(mr_reply_tensor(ours, 0), mr_reply_tensor(theirs, 0));
        mr_reply_free(ours);
        mr_reply_free(theirs);
    }
    tear_down(&x);
    tear_down(&y);
}

TEST(test_pushes)
{
    for (uint32_t cores = 1; cores <= 3; cores += 2) {
        for (uint32_t replay = 0; replay < 2; replay++) {
            check_push(cores, replay != 0, MR_F32);
            check_push(cores, replay != 0, MR_F16);
            check_push(cores, replay != 0, MR_I8);
        }
    }
}

/* ---- memory that runs out ---- */

/* Wherever it is in a call, the call says so, and the next one is as ever. */
TEST(test_without_memory)
{
    struct fixture x;
    float gradients[KEYS * (DIM + TABLES)] = {0};
    struct mr_table_gradients pushed[TABLES];
    struct mr_table_keys keys[TABLES];
    struct mr_reply *reply = NULL;
    set_up(&x, 3, false);
    for (uint32_t i = 0; i < TABLES; i++) {
        keys[i] = keys_of(&x, i);
        pushed[i] = (struct mr_table_gradients){keys[i], DIM + i, gradients};
    }
    for (uint32_t push = 0; push < 2; push++) {
        enum mr_status status = MR_NO_MEMORY;
        int failures = -1;
        for (; status != MR_OK; failures++) {
            assert_true(failures < 40);
            allocations_left = failures + 1;
            status = push != 0 ? mr_push_gradients_tables(x.client, NULL, pushed, TABLES)
                               : mr_lookup_tables(x.client, NULL, keys, TABLES, &reply);
            allocations_left = -1;
            if (status != MR_OK)
                assert_int_equal(status, MR_NO_MEMORY);
        }
        assert_true(failures >= 2);
    }
    mr_reply_free(reply);
    check_lookup(&x, 5, MR_F32, false);
    tear_down(&x);
}

static void refused(enum mr_status status, enum mr_status expected, const char *part)
{
    assert_int_equal(status, expected);
    assert_says(mr_last_error(), part);
}

/* With replay each table has a message of its own to each core, and these are what is counted. */
TEST(test_partly_applied)
{
    struct fixture x;
    float gradients[KEYS * (DIM + TABLES)] = {0};
    struct mr_table_gradients pushed[TABLES];
    for (uint32_t replay = 0; replay < 2; replay++) {
        set_up(&x, 3, replay != 0);
        for (uint32_t i = 0; i < TABLES; i++) {
            const struct mr_table_keys keys = {.table = x.tables[i], .keys = x.keys, .key_count = KEYS};
            pushed[i] = (struct mr_table_gradients){keys, DIM + i, gradients};
        }
        live_node_refuse(x.node, MR_OP_PUSH_GRAD, MR_FROZEN, LIVE_ALL_CORES - 1);
        refused(mr_push_gradients_tables(x.client, NULL, pushed, TABLES), MR_UNKNOWN_OUTCOME,
                replay != 0 ? "; 3 of the call's 9 messages to cores have been applied"
                            : "; 1 of the call's 3 messages to cores has been applied");
        tear_down(&x);
    }
}

TEST(test_arguments)
{
    struct fixture x;
    float gradients[KEYS * DIM] = {0};
    uint32_t falling[3] = {0, 2, 1};
    set_up(&x, 1, false);
    const uint64_t applied = live_node_applied(x.node);
    struct mr_table_keys keys[2] = {keys_of(&x, 0), keys_of(&x, 1)};
    struct mr_table_gradients pushed[2] = {{keys[0], DIM, gradients}, {keys[0], DIM, gradients}};
    refused(mr_lookup_tables(NULL, NULL, keys, 2, NULL), MR_INVALID_ARGUMENT, "client is NULL");
    refused(mr_lookup_tables(x.client, NULL, NULL, 2, NULL), MR_INVALID_ARGUMENT, "tables is NULL");
    refused(mr_lookup_tables(x.client, NULL, keys, 0, NULL), MR_INVALID_ARGUMENT, "from 1 to 65535");
    keys[1].keys = NULL;
    refused(mr_lookup_tables(x.client, NULL, keys, 2, NULL), MR_INVALID_ARGUMENT, "tables[1].keys is NULL");
    keys[1] =
        (struct mr_table_keys){.table = x.tables[0], .keys = x.keys, .offsets = falling, .bag_count = 2};
    refused(mr_lookup_tables(x.client, NULL, keys, 2, NULL), MR_INVALID_ARGUMENT, "is below offsets[1]");
    keys[1] =
        (struct mr_table_keys){.table = x.tables[0], .keys = x.keys, .key_count = 2, .weights = x.weights};
    refused(mr_lookup_tables(x.client, NULL, keys, 2, NULL), MR_INVALID_ARGUMENT, "weights without offsets");
    keys[1] = (struct mr_table_keys){.table = 77, .keys = x.keys, .key_count = 2};
    refused(mr_lookup_tables(x.client, NULL, keys, 2, NULL), MR_UNKNOWN_TABLE, "77");
    refused(mr_push_gradients_tables(x.client, NULL, pushed, 2), MR_INVALID_ARGUMENT, "a push has each once");
    pushed[1].of.table = x.tables[1];
    pushed[1].gradients = NULL;
    refused(mr_push_gradients_tables(x.client, NULL, pushed, 2), MR_INVALID_ARGUMENT,
            "tables[1].gradients is NULL");
    pushed[1] = (struct mr_table_gradients){pushed[1].of, 0, gradients};
    refused(mr_push_gradients_tables(x.client, NULL, pushed, 2), MR_INVALID_ARGUMENT, "tables[1].dim is 0");
    pushed[1].dim = DIM; /* the table's is another: neither is pushed */
    refused(mr_push_gradients_tables(x.client, NULL, pushed, 2), MR_WRONG_DIM, "rows have 3");
    assert_int_equal(live_node_applied(x.node), applied);
    tear_down(&x);
}
