/* Mistakes of callers against a real node: each an error of its own that says what is wrong, and nothing
 * changed by it. What the library refuses by itself is sent past it, by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/format/op.h"
#include "millrace_admin.h"
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/wire_client.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { CORES = 2, DIM = 4, KEYS = 40, SAMPLES = 2, SLOTS = 3, BAGS = SAMPLES * SLOTS, ELEMENTS = 6 };
enum { PORT = 7700, TENSORS_MAX = 8, WAIT_MS = 60000 };

#define UNKNOWN      77u
#define BATCH_ID     (UINT64_C(3) << 48)
#define OTHER_BATCH  (UINT64_C(4) << 48)
#define AWAY_MS      2500  /* long enough for a client to see that it is silence, not slowness */
#define AWAY_MOST_MS 30000 /* a call that ends by its deadline, on a machine under load */

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct wire_client *wire; /* at the variable's core */
    uint16_t core;
    uint32_t table, other, variable;
    uint64_t mine[KEYS], theirs; /* keys of that core, and one of the other */
    /* before the mistakes */
    float rows[KEYS * DIM], values[ELEMENTS];
    uint64_t row_count, updates, pushes;
};

static uint64_t rows_held(struct fixture *x)
{
    return node_fixture_sum(x->client, "table.rows");
}

static void read_state(struct fixture *x, float rows[KEYS * DIM], float values[ELEMENTS])
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->mine, KEYS, &reply), MR_OK);
    memcpy(rows, mr_reply_tensor(reply, 0)->data, KEYS * DIM * sizeof(*rows));
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(x->client, NULL, x->variable, 0, 0, &reply), MR_OK);
    memcpy(values, mr_reply_tensor(reply, 0)->data, ELEMENTS * sizeof(*values));
    mr_reply_free(reply);
}

static void create_features(struct fixture *x)
{
    uint32_t dims[1] = {ELEMENTS}, ids[3];
    struct mr_feature features[3] = {mr_feature_table("rows", DIM), mr_feature_table("other", DIM),
                                     mr_feature_variable("dense", 1, dims)};
    features[0].initializer = MR_INIT_UNIFORM;
    features[0].init_b = 1;
    assert_int_equal(mr_create(x->client, NULL, features, 3, ids), MR_OK);
    x->table = ids[0];
    x->other = ids[1];
    x->variable = ids[2];
}

static enum mr_status calls_bad_ask(struct wire_client *wire, enum mr_op op, uint32_t table,
                                    const struct mr_tensor *tensors, uint32_t count, char *text)
{
    struct wire_client_request request = {
        .op = op, .table = (uint16_t)table, .tensors = tensors, .tensor_count = count};
    return wire_client_ask(wire, &request, WAIT_MS, text);
}

static struct wire_client *connect_to_core(uint16_t core)
{
    return wire_client_create(NETNS_SERVER_IPV4, (uint16_t)(PORT + core), core);
}

/* Connects to the core that holds the variable, and finds out which keys are its own: others it refuses. */
static void find_core(struct fixture *x)
{
    uint64_t range[2] = {0, 0};
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, 2, range);
    char text[WIRE_CLIENT_TEXT_BYTES];
    uint32_t mine = 0;
    x->wire = connect_to_core(0);
    if (calls_bad_ask(x->wire, MR_OP_VARIABLE_PULL, x->variable, &tensor, 1, text) != MR_OK) {
        wire_client_destroy(x->wire);
        x->core = 1;
        x->wire = connect_to_core(1);
    }
    for (uint64_t key = 0; mine < KEYS; key++) {
        tensor = mr_tensor_1d(MR_U64, 1, &key);
        if (calls_bad_ask(x->wire, MR_OP_LOOKUP, x->table, &tensor, 1, text) == MR_OK)
            x->mine[mine++] = key;
        else
            x->theirs = key;
    }
}

static int set_up_with(void **state, const char *const *settings)
{
    static struct fixture x;
    float gradients[KEYS * DIM];
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, CORES, settings);
    x.client = node_fixture_connect(&x.node);
    create_features(&x);
    find_core(&x);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = (float)i;
    assert_int_equal(mr_push_gradients(x.client, NULL, x.table, x.mine, KEYS, DIM, gradients), MR_OK);
    read_state(&x, x.rows, x.values);
    x.row_count = rows_held(&x);
    x.updates = node_fixture_sum(x.client, "table.updates");
    x.pushes = node_fixture_sum(x.client, "ps.pushes_applied");
    *state = &x;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, NULL);
}

static int set_up_short_lived(void **state)
{
    static const char *const settings[] = {"batches.ttl_ms=10", NULL};
    return set_up_with(state, settings);
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    wire_client_destroy(x->wire);
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

static void check_unchanged(struct fixture *x)
{
    float rows[KEYS * DIM], values[ELEMENTS];
    read_state(x, rows, values);
    assert_memory_equal(rows, x->rows, sizeof(rows));
    assert_memory_equal(values, x->values, sizeof(values));
    assert_int_equal(rows_held(x), x->row_count);
    assert_int_equal(node_fixture_sum(x->client, "table.updates"), x->updates);
    assert_int_equal(node_fixture_sum(x->client, "ps.pushes_applied"), x->pushes);
}

/* ---- by hand ---- */

struct mistake {
    enum mr_op op;
    uint32_t table;
    enum mr_status status;
    uint32_t count;
    const char *says;
    struct mr_tensor tensors[TENSORS_MAX];
};

static void check_mistakes(struct fixture *x, const struct mistake *mistakes, size_t count)
{
    char text[WIRE_CLIENT_TEXT_BYTES];
    for (size_t i = 0; i < count; i++) {
        const struct mistake *m = &mistakes[i];
        uint64_t refused = node_fixture_counter(x->client, x->core, "ps.requests_refused");
        enum mr_status status = calls_bad_ask(x->wire, m->op, m->table, m->tensors, m->count, text);
        if (status != m->status || strstr(text, m->says) == NULL)
            fail_msg("%s number %zu: %s \"%s\", not %s \"%s\"", mr_op_name(m->op), i, mr_status_name(status),
                     text, mr_status_name(m->status), m->says);
        assert_int_equal(node_fixture_counter(x->client, x->core, "ps.requests_refused"), refused + 1);
    }
    check_unchanged(x);
}

#define CHECK(x, list) check_mistakes(x, list, sizeof(list) / sizeof *(list))

TEST(test_lookup, set_up, tear_down)
{
    struct fixture *x = *state;
    uint32_t words[3] = {1, 2, 3}, from_one[3] = {1, 2, 3}, falling[4] = {0, 2, 1, 3}, beyond[3] = {0, 2, 4};
    uint64_t two[4] = {x->mine[0], x->theirs};
    struct mr_tensor keys = mr_tensor_1d(MR_U64, 3, x->mine), none = mr_tensor_1d(MR_U64, 0, x->mine);
    const struct mistake mistakes[] = {
        {MR_OP_LOOKUP, UNKNOWN, MR_UNKNOWN_TABLE, 1, "no table has number 77", {keys}},
        {MR_OP_LOOKUP, 0, MR_UNKNOWN_TABLE, 1, "no table has number 0", {keys}},
        {MR_OP_LOOKUP, x->variable, MR_UNKNOWN_TABLE, 1, "is a variable, not a table", {keys}},
        {MR_OP_LOOKUP, x->table, MR_WRONG_SHAPE, 0, "missing", {{0}}},
        {MR_OP_LOOKUP, x->table, MR_WRONG_DTYPE, 1, "u32", {mr_tensor_1d(MR_U32, 3, words)}},
        {MR_OP_LOOKUP, x->table, MR_WRONG_SHAPE, 1, "dimension", {mr_tensor_2d(MR_U64, 1, 3, x->mine)}},
        {MR_OP_LOOKUP, x->table, MR_INVALID_ARGUMENT, 1, "belongs to core", {mr_tensor_1d(MR_U64, 2, two)}},
        {MR_OP_LOOKUP,
         x->table,
         MR_INVALID_ARGUMENT,
         2,
         "offsets go from 1",
         {keys, mr_tensor_1d(MR_U32, 3, from_one)}},
        {MR_OP_LOOKUP,
         x->table,
         MR_INVALID_ARGUMENT,
         2,
         "offsets fall from 2 to 1",
         {keys, mr_tensor_1d(MR_U32, 4, falling)}},
        {MR_OP_LOOKUP,
         x->table,
         MR_INVALID_ARGUMENT,
         2,
         "to 4, not from 0 to the 3 keys",
         {keys, mr_tensor_1d(MR_U32, 3, beyond)}},
        {MR_OP_LOOKUP, x->table, MR_WRONG_DTYPE, 2, "u64", {keys, none}},
    };
    CHECK(x, mistakes);
}

/* The second table of a call is wrong, or what is between the tables. */
TEST(test_lookup_tables, set_up, tear_down)
{
    struct fixture *x = *state;
    uint32_t head[4] = {x->table, 0}, unknown[4] = {UNKNOWN, 0}, dense[4] = {x->variable, 0};
    uint32_t flagged[4] = {x->other, 1u << 9}, weighted[4] = {x->other, MR_BAG_WEIGHTS},
             last[4] = {x->other, 0, 0, 7};
    uint32_t falling[4] = {0, 2, 1, 3};
    uint64_t two[2] = {x->mine[0], x->theirs};
    struct mr_tensor keys = mr_tensor_1d(MR_U64, 3, x->mine), flat = mr_tensor_1d(MR_U32, 0, falling);
    struct mr_tensor h = mr_tensor_1d(MR_U32, 4, head), hu = mr_tensor_1d(MR_U32, 4, unknown);
    struct mr_tensor hv = mr_tensor_1d(MR_U32, 4, dense), hf = mr_tensor_1d(MR_U32, 4, flagged);
    struct mr_tensor hw = mr_tensor_1d(MR_U32, 4, weighted), hl = mr_tensor_1d(MR_U32, 4, last);
    struct mr_tensor bags = mr_tensor_1d(MR_U32, 4, falling), theirs = mr_tensor_1d(MR_U64, 2, two);
    struct mr_tensor many[(MR_LOOKUP_TABLES_MAX + 1) * 3];
    const struct mistake mistakes[] = {
        {MR_OP_LOOKUP_TABLES, 0, MR_WRONG_SHAPE, 0, "no tables", {{0}}},
        {MR_OP_LOOKUP_TABLES, 0, MR_UNKNOWN_TABLE, 6, "77", {h, keys, flat, hu, keys, flat}},
        {MR_OP_LOOKUP_TABLES, 0, MR_UNKNOWN_TABLE, 6, "is a variable", {h, keys, flat, hv, keys, flat}},
        {MR_OP_LOOKUP_TABLES, 0, MR_WRONG_SHAPE, 4, "offsets is missing", {h, keys, flat, h}},
        {MR_OP_LOOKUP_TABLES, 0, MR_WRONG_SHAPE, 5, "offsets is missing", {h, keys, flat, h, keys}},
        {MR_OP_LOOKUP_TABLES, 0, MR_WRONG_DTYPE, 6, "u32", {h, keys, flat, keys, keys, flat}},
        {MR_OP_LOOKUP_TABLES, 0, MR_WRONG_DTYPE, 6, "u64", {h, keys, flat, h, flat, flat}},
        {MR_OP_LOOKUP_TABLES, 0, MR_INVALID_ARGUMENT, 6, "flags", {h, keys, flat, hf, keys, flat}},
        {MR_OP_LOOKUP_TABLES,
         0,
         MR_INVALID_ARGUMENT,
         6,
         "its head are not 0",
         {h, keys, flat, hl, keys, flat}},
        {MR_OP_LOOKUP_TABLES, 0, MR_INVALID_ARGUMENT, 6, "are of bags", {h, keys, flat, hw, keys, flat}},
        {MR_OP_LOOKUP_TABLES, 0, MR_INVALID_ARGUMENT, 6, "offsets fall", {h, keys, flat, h, keys, bags}},
        {MR_OP_LOOKUP_TABLES, 0, MR_INVALID_ARGUMENT, 6, "belongs to core", {h, keys, flat, h, theirs, flat}},
    };
    char text[WIRE_CLIENT_TEXT_BYTES];
    CHECK(x, mistakes);
    for (uint32_t i = 0; i <= MR_LOOKUP_TABLES_MAX; i++)
        memcpy(&many[i * 3], (struct mr_tensor[]){h, keys, flat}, 3 * sizeof(many[0]));
    assert_int_equal(calls_bad_ask(x->wire, MR_OP_LOOKUP_TABLES, 0, many, MR_LOOKUP_TABLES_MAX * 3, text),
                     MR_OK);
    assert_int_equal(
        calls_bad_ask(x->wire, MR_OP_LOOKUP_TABLES, 0, many, (MR_LOOKUP_TABLES_MAX + 1) * 3, text),
        MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "more than 32 tables"));
    check_unchanged(x);
}

TEST(test_push, set_up, tear_down)
{
    struct fixture *x = *state;
    float g[KEYS * DIM] = {1, 2, 3};
    double wide[3 * DIM] = {0};
    uint32_t head[4] = {x->table, 0}, unknown[4] = {UNKNOWN, 0}, dense[4] = {x->variable, 0};
    uint32_t falling[4] = {0, 2, 1, 3};
    uint64_t two[2] = {x->mine[0], x->theirs};
    struct mr_tensor keys = mr_tensor_1d(MR_U64, 3, x->mine), flat = mr_tensor_1d(MR_U32, 0, falling);
    struct mr_tensor h = mr_tensor_1d(MR_U32, 4, head), hu = mr_tensor_1d(MR_U32, 4, unknown);
    struct mr_tensor hv = mr_tensor_1d(MR_U32, 4, dense), rows = mr_tensor_2d(MR_F32, 3, DIM, g);
    const struct mistake mistakes[] = {
        {MR_OP_PUSH_GRAD, 0, MR_UNKNOWN_TABLE, 4, "77", {hu, keys, flat, rows}},
        {MR_OP_PUSH_GRAD, 0, MR_WRONG_DIM, 4, "dim 4", {h, keys, flat, mr_tensor_2d(MR_F32, 3, DIM - 1, g)}},
        {MR_OP_PUSH_GRAD, 0, MR_WRONG_SHAPE, 4, "rows", {h, keys, flat, mr_tensor_2d(MR_F32, 2, DIM, g)}},
        {MR_OP_PUSH_GRAD, 0, MR_WRONG_DTYPE, 4, "f64", {h, keys, flat, mr_tensor_2d(MR_F64, 3, DIM, wide)}},
        {MR_OP_PUSH_GRAD, 0, MR_WRONG_SHAPE, 4, "dimension", {h, keys, flat, mr_tensor_1d(MR_F32, 12, g)}},
        {MR_OP_PUSH_GRAD,
         0,
         MR_INVALID_ARGUMENT,
         4,
         "offsets fall",
         {h, keys, mr_tensor_1d(MR_U32, 4, falling), rows}},
        {MR_OP_PUSH_GRAD,
         0,
         MR_INVALID_ARGUMENT,
         4,
         "belongs to core",
         {h, mr_tensor_1d(MR_U64, 2, two), flat, mr_tensor_2d(MR_F32, 2, DIM, g)}},
        {MR_OP_PUSH_GRAD, 0, MR_WRONG_SHAPE, 3, "missing", {h, keys, flat}},
        {MR_OP_PUSH_GRAD, 0, MR_WRONG_SHAPE, 2, "dense", {hv, mr_tensor_1d(MR_F32, ELEMENTS + 1, g)}},
        /* the first is right; it is left alone as well */
        {MR_OP_PUSH_GRAD, 0, MR_UNKNOWN_TABLE, 8, "77", {h, keys, flat, rows, hu, keys, flat, rows}},
        {MR_OP_PUSH_GRAD,
         0,
         MR_WRONG_SHAPE,
         6,
         "dense",
         {h, keys, flat, rows, hv, mr_tensor_1d(MR_F32, 1, g)}},
    };
    CHECK(x, mistakes);
}

TEST(test_feed, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t id = BATCH_ID, two[2] = {x->mine[0], x->theirs};
    uint32_t head[4] = {x->table, SAMPLES, SLOTS, 0}, unknown[4] = {UNKNOWN, SAMPLES, SLOTS, 0};
    uint32_t more[4] = {x->table, SAMPLES + 1, SLOTS, 0}, one[4] = {x->table, 1, 1, 0};
    uint32_t good[BAGS + 1] = {0, 1, 2, 3, 4, 5, 6}, bad[BAGS + 1] = {0, 1, 3, 2, 4, 5, 6}, small[2] = {0, 2};
    struct mr_tensor batch = mr_tensor_1d(MR_U64, 1, &id), h = mr_tensor_1d(MR_U32, 4, head);
    struct mr_tensor keys = mr_tensor_1d(MR_U64, BAGS, x->mine),
                     offsets = mr_tensor_1d(MR_U32, BAGS + 1, good);
    const struct mistake mistakes[] = {
        {MR_OP_FEED_SAMPLE, 0, MR_WRONG_SHAPE, 0, "missing", {{0}}},
        {MR_OP_FEED_SAMPLE, 0, MR_WRONG_SHAPE, 1, "slots, flags is missing", {batch}},
        {MR_OP_FEED_SAMPLE,
         0,
         MR_UNKNOWN_TABLE,
         4,
         "77",
         {batch, mr_tensor_1d(MR_U32, 4, unknown), keys, offsets}},
        {MR_OP_FEED_SAMPLE,
         0,
         MR_WRONG_SHAPE,
         4,
         "need 10 offsets, not 7",
         {batch, mr_tensor_1d(MR_U32, 4, more), keys, offsets}},
        {MR_OP_FEED_SAMPLE,
         0,
         MR_INVALID_ARGUMENT,
         4,
         "offsets fall from 3 to 2",
         {batch, h, keys, mr_tensor_1d(MR_U32, BAGS + 1, bad)}},
        {MR_OP_FEED_SAMPLE, 0, MR_WRONG_DTYPE, 4, "u32", {batch, h, offsets, offsets}},
        {MR_OP_FEED_SAMPLE,
         0,
         MR_INVALID_ARGUMENT,
         4,
         "belongs to core",
         {batch, mr_tensor_1d(MR_U32, 4, one), mr_tensor_1d(MR_U64, 2, two), mr_tensor_1d(MR_U32, 2, small)}},
        {MR_OP_FEED_SAMPLE,
         0,
         MR_INVALID_ARGUMENT,
         7,
         "named twice",
         {batch, h, keys, offsets, h, keys, offsets}},
        {MR_OP_LOOKUP_BATCH,
         x->table,
         MR_UNKNOWN_BATCH,
         1,
         "is not here",
         {batch}}, /* none of them came in */
    };
    CHECK(x, mistakes);
    assert_int_equal(node_fixture_sum(x->client, "ps.batches_fed"), 0);
}

static void feed(struct fixture *x, uint64_t batch_id)
{
    uint32_t offsets[BAGS + 1] = {0, 1, 2, 3, 4, 5, 6};
    struct mr_batch_keys keys = {x->table, SAMPLES, SLOTS, x->mine, offsets, NULL};
    assert_int_equal(mr_feed_sample(x->client, NULL, batch_id, &keys, 1, false), MR_OK);
}

TEST(test_batch, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t fed = BATCH_ID, unknown = OTHER_BATCH;
    float g[BAGS * DIM] = {1, 2, 3};
    double wide[BAGS * DIM] = {0};
    uint32_t head[4] = {x->table, 0}, other[4] = {x->other, 0}, dense[4] = {x->variable, 0};
    struct mr_tensor batch = mr_tensor_1d(MR_U64, 1, &fed), stranger = mr_tensor_1d(MR_U64, 1, &unknown);
    struct mr_tensor h = mr_tensor_1d(MR_U32, 4, head), hv = mr_tensor_1d(MR_U32, 4, dense);
    struct mr_tensor good = mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, g);
    const struct mistake mistakes[] = {
        {MR_OP_LOOKUP_BATCH, x->table, MR_UNKNOWN_BATCH, 1, "is not here", {stranger}},
        {MR_OP_LOOKUP_BATCH, x->other, MR_UNKNOWN_TABLE, 1, "other", {batch}},
        {MR_OP_LOOKUP_BATCH, UNKNOWN, MR_UNKNOWN_TABLE, 1, "77", {batch}},
        {MR_OP_PUSH_GRAD_BATCH, 0, MR_UNKNOWN_BATCH, 3, "is not here", {stranger, h, good}},
        {MR_OP_PUSH_GRAD_BATCH,
         0,
         MR_UNKNOWN_TABLE,
         3,
         "other",
         {batch, mr_tensor_1d(MR_U32, 4, other), good}},
        {MR_OP_PUSH_GRAD_BATCH,
         0,
         MR_WRONG_DIM,
         3,
         "dim 4",
         {batch, h, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM - 1, g)}},
        {MR_OP_PUSH_GRAD_BATCH,
         0,
         MR_WRONG_SHAPE,
         3,
         "rows",
         {batch, h, mr_tensor_3d(MR_F32, SLOTS, SAMPLES, DIM, g)}},
        {MR_OP_PUSH_GRAD_BATCH,
         0,
         MR_WRONG_DTYPE,
         3,
         "f64",
         {batch, h, mr_tensor_3d(MR_F64, SAMPLES, SLOTS, DIM, wide)}},
        {MR_OP_PUSH_GRAD_BATCH, 0, MR_WRONG_SHAPE, 2, "rows is missing", {batch, h}},
        {MR_OP_PUSH_GRAD_BATCH,
         0,
         MR_WRONG_SHAPE,
         5,
         "dense",
         {batch, h, good, hv, mr_tensor_1d(MR_F32, 2, g)}},
    };
    feed(x, fed);
    CHECK(x, mistakes);
    /* It is still to be applied. */
    struct mr_batch_gradient gradient = {x->table, good};
    bool applied = false;

    assert_int_equal(mr_push_gradients_batch(x->client, NULL, fed, &gradient, 1, &applied), MR_OK);
    assert_true(applied);
}

TEST(test_variable, set_up, tear_down)
{
    struct fixture *x = *state;
    float values[ELEMENTS + 1] = {9, 9};
    uint64_t first = 0, last = ELEMENTS, beyond = UINT64_MAX, range[2] = {2, ELEMENTS - 1};
    uint64_t wrapped[2] = {2, UINT64_MAX};
    struct mr_tensor six = mr_tensor_1d(MR_F32, ELEMENTS, values), zero = mr_tensor_1d(MR_U64, 1, &first);
    const struct mistake mistakes[] = {
        {MR_OP_VARIABLE_PUSH, UNKNOWN, MR_UNKNOWN_VARIABLE, 2, "77", {zero, six}},
        {MR_OP_VARIABLE_PUSH, x->table, MR_UNKNOWN_VARIABLE, 2, "is a table, not a variable", {zero, six}},
        {MR_OP_VARIABLE_PUSH,
         x->variable,
         MR_WRONG_SHAPE,
         2,
         "6 elements",
         {zero, mr_tensor_1d(MR_F32, ELEMENTS + 1, values)}},
        {MR_OP_VARIABLE_PUSH,
         x->variable,
         MR_WRONG_SHAPE,
         2,
         "6 elements",
         {mr_tensor_1d(MR_U64, 1, &last), mr_tensor_1d(MR_F32, 1, values)}},
        {MR_OP_VARIABLE_PUSH,
         x->variable,
         MR_WRONG_SHAPE,
         2,
         "6 elements",
         {mr_tensor_1d(MR_U64, 1, &beyond), six}},
        {MR_OP_VARIABLE_PUSH,
         x->variable,
         MR_WRONG_DTYPE,
         2,
         "f16",
         {zero, mr_tensor_1d(MR_F16, ELEMENTS, values)}},
        {MR_OP_VARIABLE_PULL, x->variable, MR_WRONG_SHAPE, 1, "6 elements", {mr_tensor_1d(MR_U64, 2, range)}},
        {MR_OP_VARIABLE_PULL,
         x->variable,
         MR_WRONG_SHAPE,
         1,
         "6 elements",
         {mr_tensor_1d(MR_U64, 2, wrapped)}},
        {MR_OP_VARIABLE_PULL, UNKNOWN, MR_UNKNOWN_VARIABLE, 1, "77", {mr_tensor_1d(MR_U64, 2, range)}},
    };
    CHECK(x, mistakes);
}

TEST(test_node, set_up, tear_down)
{
    struct fixture *x = *state;
    uint8_t bytes[8] = {0};
    uint64_t stream = 65536;
    char text[WIRE_CLIENT_TEXT_BYTES];
    const struct mistake mistakes[] = {
        {MR_OP_BATCH_STATE, 0, MR_INVALID_ARGUMENT, 1, "16 bits", {mr_tensor_1d(MR_U64, 1, &stream)}},
        {MR_OP_FORGET_BATCH, 0, MR_WRONG_DTYPE, 1, "u8", {mr_tensor_1d(MR_U8, 8, bytes)}},
    };
    CHECK(x, mistakes);
    assert_int_equal(calls_bad_ask(x->wire, MR_OP_HUB_STATUS, 0, NULL, 0, text),
                     MR_UNKNOWN_OP); /* that is the hub's */
}

/* Features that are no good, and control calls that are none. */
TEST(test_create, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_feature good = mr_feature_table("new", DIM), bad = good, named = good;
    struct mr_feature pair[2] = {good, mr_feature_table("rows", DIM + 1)};
    struct wire_client *wire = connect_to_core(0);
    struct mr_feature_info *infos;
    uint8_t cut[sizeof(struct mr_feature) - 1] = {0};
    uint32_t ids[2] = {UNKNOWN, UNKNOWN}, count, level = 3;
    char text[WIRE_CLIENT_TEXT_BYTES];
    struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(cut), cut);
    bad.learning_rate = -1;
    node_fixture_refused(mr_create(x->client, NULL, &bad, 1, ids), MR_INVALID_ARGUMENT, "learning_rate");
    memcpy(named.name, "a b", 4);
    node_fixture_refused(mr_create(x->client, NULL, &named, 1, ids), MR_INVALID_ARGUMENT, "name");
    node_fixture_refused(mr_create(x->client, NULL, pair, 2, ids), MR_FEATURE_MISMATCH, "dim");
    assert_int_not_equal(calls_bad_ask(wire, MR_OP_CREATE, 0, &tensor, 1, text), MR_OK);
    tensor = mr_tensor_1d(MR_U32, 1, &level);
    assert_int_equal(calls_bad_ask(wire, MR_OP_FREEZE, 0, &tensor, 1, text), MR_INVALID_ARGUMENT);
    wire_client_destroy(wire);
    assert_int_equal(ids[0], UNKNOWN);
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    free(infos);
    assert_int_equal(count, 3); /* all of a list or none */
    check_unchanged(x);
}

/* ---- frozen, expired ---- */

TEST(test_frozen, set_up, tear_down)
{
    struct fixture *x = *state;
    float g[KEYS * DIM] = {1, 2, 3};
    struct mr_batch_gradient gradient = {x->table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, g)};
    uint64_t unknown = UINT64_C(1) << 60;
    feed(x, BATCH_ID);
    assert_int_equal(mr_freeze(x->client, NULL, 2), MR_OK);
    node_fixture_refused(mr_push_gradients(x->client, NULL, x->table, x->mine, KEYS, DIM, g), MR_FROZEN,
                         "frozen");
    node_fixture_refused(mr_push_gradients_batch(x->client, NULL, BATCH_ID, &gradient, 1, NULL), MR_FROZEN,
                         "frozen");
    node_fixture_refused(mr_variable_push(x->client, NULL, x->variable, 0, 1, g), MR_FROZEN, "frozen");
    node_fixture_refused(mr_variable_push_gradient(x->client, NULL, x->variable, ELEMENTS, g), MR_FROZEN,
                         "frozen");
    assert_int_equal(mr_lookup(x->client, NULL, x->table, &unknown, 1, NULL), MR_OK);
    check_unchanged(x);
    assert_int_equal(mr_freeze(x->client, NULL, 0), MR_OK);
    assert_int_equal(mr_push_gradients_batch(x->client, NULL, BATCH_ID, &gradient, 1, NULL), MR_OK);
}

TEST(test_expired, set_up_short_lived, tear_down)
{
    struct fixture *x = *state;
    float g[BAGS * DIM] = {1, 2, 3};
    struct mr_batch_gradient gradient = {x->table, mr_tensor_3d(MR_F32, SAMPLES, SLOTS, DIM, g)};
    struct mr_reply *reply = NULL;
    feed(x, BATCH_ID);
    WAIT_UNTIL(node_fixture_sum(x->client, "ps.batches_expired") >= CORES);
    node_fixture_refused(mr_lookup_batch(x->client, NULL, BATCH_ID, x->table, &reply), MR_BATCH_EXPIRED,
                         "expired");
    assert_null(reply);
    node_fixture_refused(mr_push_gradients_batch(x->client, NULL, BATCH_ID, &gradient, 1, NULL),
                         MR_BATCH_EXPIRED, "expired");
    node_fixture_refused(mr_lookup_batch(x->client, NULL, OTHER_BATCH, x->table, &reply), MR_UNKNOWN_BATCH,
                         "is not here");
    check_unchanged(x);
    feed(x, BATCH_ID); /* again is fine */
}

/* ---- the server is away ---- */

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static enum mr_status look_up(struct fixture *x, const struct mr_options *options)
{
    struct mr_reply *reply = NULL;
    enum mr_status status = mr_lookup(x->client, options, x->table, x->mine, KEYS, &reply);
    assert_null(reply);
    return status;
}

static enum mr_status ask_cores(struct fixture *x, const struct mr_options *options)
{
    struct mr_core_state states[64];
    return mr_heartbeat(x->client, options, states);
}

static enum mr_status calls_bad_pull(struct fixture *x, const struct mr_options *options)
{
    struct mr_reply *reply = NULL;
    enum mr_status status = mr_variable_pull(x->client, options, x->variable, 0, 0, &reply);
    assert_null(reply);
    return status;
}

/* The call ends by its deadline, and says why; only of a client that did not run for a while, and so has not
 * noticed the silence, another call is needed. */
static void check_silent(struct fixture *x,
                         enum mr_status (*call)(struct fixture *, const struct mr_options *))
{
    const struct mr_options brief = {.deadline_ms = AWAY_MS};
    enum mr_status status;
    uint64_t took;
    do {
        uint64_t begin = now_ms();
        status = call(x, &brief);
        took = now_ms() - begin;
    } while (status == MR_DEADLINE_EXCEEDED);
    node_fixture_refused(status, MR_UNREACHABLE, NETNS_SERVER_IPV4 ":770");
    assert_int_in_range(took, AWAY_MS, AWAY_MOST_MS);
    assert_non_null(strstr(mr_last_error(), "silent for"));
}

static void check_away(struct fixture *x)
{
    const struct mr_options brief = {.deadline_ms = AWAY_MS};
    float g[KEYS * DIM] = {1};
    check_silent(x, look_up);
    check_silent(x, ask_cores);
    check_silent(x, calls_bad_pull);
    /* What was never sent whole cannot have happened; this one may have been. */
    enum mr_status status = mr_push_gradients(x->client, &brief, x->table, x->mine, KEYS, DIM, g);

    assert_true(status == MR_UNREACHABLE || status == MR_UNKNOWN_OUTCOME);
}

TEST(test_killed, set_up, tear_down)
{
    struct fixture *x = *state;
    struct mr_client_options options = {.server = x->node.address, .connect_ms = AWAY_MS};
    struct mr_client *late = NULL;
    struct mr_reply *reply;
    char error[512];
    node_fixture_kill(&x->node);
    check_away(x);
    assert_int_equal(mr_client_create(&options, &late, error, sizeof(error)), MR_UNREACHABLE);
    assert_non_null(strstr(error, x->node.address));
    assert_null(late);
    node_fixture_restart(&x->node);
    create_features(x);
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->mine, KEYS, &reply), MR_OK);
    mr_reply_free(reply);
}

/* It does not run for a while, and then goes on as if nothing had been. */
TEST(test_stopped, set_up, tear_down)
{
    struct fixture *x = *state;
    float g[KEYS * DIM] = {0};
    netns_suspend(x->node.server.pid);
    check_away(x);
    netns_resume(x->node.server.pid);
    assert_int_equal(mr_push_gradients(x->client, NULL, x->table, x->mine, KEYS, DIM, g), MR_OK);
    assert_int_equal(rows_held(x), x->row_count);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_calls_bad MILLRACED\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
