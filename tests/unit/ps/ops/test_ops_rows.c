/* What comes with bags and rows in a request: taken as described, or refused with a reason, and nothing
 * changed by it. */
#include <math.h>
#include "dataplane/wire/format/rows.h"
#include "node_fixture.h"
#include "tests/test.h"

enum { KEYS = 3, BAGS = 2 };

static const uint64_t keys[KEYS] = {5, 6, 7};
static const uint32_t offsets[BAGS + 1] = {0, 1, 3};
static const float weights[KEYS] = {2, 3, -1}, divisors[BAGS] = {4, 0};

#define TENSORS_MAX 6

struct request {
    uint32_t count;
    struct mr_tensor tensors[TENSORS_MAX];
};

static struct mr_tensor keys_tensor(void)
{
    return mr_tensor_1d(MR_U64, KEYS, keys);
}

static struct mr_tensor offsets_tensor(void)
{
    return mr_tensor_1d(MR_U32, BAGS + 1, offsets);
}

static struct mr_tensor floats(uint32_t count, const float *values)
{
    return mr_tensor_1d(MR_F32, count, values);
}

static uint32_t make_table(struct node_fixture *n, const char *name, uint32_t pooling)
{
    struct mr_feature f = node_table(name, 8);
    f.pooling = pooling;
    return node_create(n, &f);
}

static const struct node_reply *look_up(struct node_fixture *n, uint32_t table, uint16_t flags,
                                        const struct request *r)
{
    return node_call_step(n, 0, MR_OP_LOOKUP, (uint16_t)table, 0, flags, r->tensors, r->count);
}

/* ---- lookups ---- */

TEST(takes_weights_and_divisors, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", MR_POOL_MEAN);
    struct request r = {4, {keys_tensor(), offsets_tensor(), floats(KEYS, weights), floats(BAGS, divisors)}};
    const struct node_reply *reply = look_up(n, table, MR_BAG_WEIGHTS | MR_BAG_DIVISORS, &r);
    node_check(reply, MR_OK, NULL);
    const float *bags = reply->tensors[0].data;
    assert_float_equal(bags[0], 4, 0);        /* 2 * 8 / 4 */
    assert_float_equal(bags[NODE_DIM], 0, 0); /* by 0 */
    reply = look_up(n, table, MR_BAG_WEIGHTS | MR_I8 << MR_LOOKUP_DTYPE_SHIFT,
                    &(struct request){3, {keys_tensor(), offsets_tensor(), floats(KEYS, weights)}});
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 2);
    assert_int_equal(reply->tensors[0].dtype, MR_I8);
    assert_int_equal(((const int8_t *)reply->tensors[0].data)[0], 127);
    assert_float_equal(((const float *)reply->tensors[1].data)[1], 8.0f / 127, 1e-6);
}

TEST(refuses_lookups_that_do_not_hold_what_they_tell, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t sum = make_table(n, "sum", MR_POOL_SUM), mean = make_table(n, "mean", MR_POOL_MEAN),
             none = make_table(n, "none", MR_POOL_NONE);
    struct mr_tensor k = keys_tensor(), o = offsets_tensor(), w = floats(KEYS, weights),
                     d = floats(BAGS, divisors), few = floats(KEYS - 1, weights),
                     whole = mr_tensor_1d(MR_U32, KEYS, offsets);
    const struct {
        uint32_t table;
        uint32_t flags;
        enum mr_status status;
        const char *text;
        struct request r;
    } bad[] = {
        {mean, MR_BAG_WEIGHTS, MR_WRONG_SHAPE, "weights is missing", {2, {k, o}}},
        {mean, MR_BAG_WEIGHTS, MR_WRONG_SHAPE, "weights has 2 elements, not 3", {3, {k, o, few}}},
        {mean, MR_BAG_WEIGHTS, MR_WRONG_DTYPE, "weights is u32", {3, {k, o, whole}}},
        {mean, MR_BAG_WEIGHTS, MR_INVALID_ARGUMENT, "give offsets", {1, {k}}},
        {mean, MR_BAG_DIVISORS, MR_WRONG_SHAPE, "divisors is missing", {2, {k, o}}},
        {mean, MR_BAG_DIVISORS, MR_WRONG_SHAPE, "divisors has 3 elements, not 2", {3, {k, o, w}}},
        {mean, MR_BAG_WEIGHTS | MR_BAG_DIVISORS, MR_WRONG_SHAPE, "weights has 2", {4, {k, o, d, w}}},
        {sum, MR_BAG_DIVISORS, MR_INVALID_ARGUMENT, "sum pools by sum", {3, {k, o, d}}},
        {none, 0, MR_INVALID_ARGUMENT, "none has no pooling", {2, {k, o}}},
        {sum, 1u << 5, MR_INVALID_ARGUMENT, "does not know 0x20", {1, {k}}},
        {sum, MR_U64 << MR_LOOKUP_DTYPE_SHIFT, MR_WRONG_DTYPE, "rows as u64", {1, {k}}},
        {sum, 200u << MR_LOOKUP_DTYPE_SHIFT, MR_WRONG_DTYPE, "(200)", {1, {k}}},
        /* what no flag tells of */
        {mean, 0, MR_WRONG_SHAPE, "3 tensors, not 2", {3, {k, o, w}}},
        {mean, MR_BAG_WEIGHTS, MR_WRONG_SHAPE, "4 tensors, not 3", {4, {k, o, w, d}}},
    };
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        node_check(look_up(n, bad[i].table, (uint16_t)bad[i].flags, &bad[i].r), bad[i].status, bad[i].text);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
}

/* ---- pushes ---- */

static const struct node_reply *ops_rows_push(struct node_fixture *n, const struct request *r)
{
    return node_call(n, 0, MR_OP_PUSH_GRAD, 0, r->tensors, r->count);
}

TEST(refuses_pushes_that_do_not_hold_what_they_tell, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static const int8_t quarters[KEYS * NODE_DIM] = {4, 4, 4, 4};
    static const float gradients[KEYS * NODE_DIM] = {1, 1, 1, 1};
    uint32_t sum = make_table(n, "sum", MR_POOL_SUM), mean = make_table(n, "mean", MR_POOL_MEAN);
    struct mr_push_head plain[2] = {{.feature = sum}, {.feature = mean}};
    struct mr_push_head weighted[2] = {{sum, MR_BAG_WEIGHTS, 0, 0}, {mean, MR_BAG_WEIGHTS, 0, 0}};
    struct mr_push_head divided[2] = {{sum, MR_BAG_DIVISORS, 0, 0}, {mean, MR_BAG_DIVISORS, 0, 0}};
#define HEAD(which) mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &(which))
    struct mr_tensor k = keys_tensor(), o = offsets_tensor(), flat = mr_tensor_1d(MR_U32, 0, NULL);
    struct mr_tensor per_key = mr_tensor_2d(MR_F32, KEYS, NODE_DIM, gradients),
                     per_bag = mr_tensor_2d(MR_F32, BAGS, NODE_DIM, gradients);
    struct mr_tensor narrow = mr_tensor_2d(MR_I8, BAGS, NODE_DIM, quarters), w = floats(KEYS, weights),
                     d = floats(BAGS, divisors);
    const struct {
        enum mr_status status;
        const char *text;
        struct request r;
    } bad[] = {
        {MR_INVALID_ARGUMENT, "give offsets", {5, {HEAD(weighted[0]), k, flat, per_key, w}}},
        {MR_WRONG_SHAPE, "weights is missing", {4, {HEAD(weighted[0]), k, o, per_bag}}},
        {MR_WRONG_SHAPE, "weights has 2 elements, not 3", {5, {HEAD(weighted[0]), k, o, per_bag, d}}},
        {MR_INVALID_ARGUMENT, "sum pools by sum", {5, {HEAD(divided[0]), k, o, per_bag, d}}},
        {MR_WRONG_SHAPE, "divisors has 3 elements, not 2", {5, {HEAD(divided[1]), k, o, per_bag, w}}},
        {MR_WRONG_SHAPE, "scales is missing", {4, {HEAD(plain[0]), k, o, narrow}}},
        {MR_WRONG_SHAPE, "scales has 3 elements, not 2", {5, {HEAD(plain[0]), k, o, narrow, w}}},
        {MR_WRONG_DTYPE, "u32, not f32", {5, {HEAD(plain[0]), k, o, narrow, o}}},
        {MR_WRONG_DTYPE, "head of the push is f32", {5, {HEAD(plain[0]), k, o, per_bag, w}}},
        {MR_INVALID_ARGUMENT, "named twice", {5, {HEAD(plain[0]), k, o, per_bag, HEAD(plain[0])}}},
    };
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        node_check(ops_rows_push(n, &bad[i].r), bad[i].status, bad[i].text);
    assert_int_equal(node_counter(n, 0, "ps.pushes_applied"), 0);
}

TEST(numbers_that_are_none_are_left_out, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    static const float gradients[BAGS * NODE_DIM] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const int8_t ones[BAGS * NODE_DIM] = {1, 1, 1, 1, 1, 1, 1, 1};
    float w[KEYS] = {NAN, 1, INFINITY}, d[BAGS] = {1, 2}, scales[BAGS] = {1, NAN};
    uint32_t table = make_table(n, "mean", MR_POOL_MEAN);
    struct mr_push_head head = {table, MR_BAG_WEIGHTS | MR_BAG_DIVISORS, 0, 0}, narrow = {.feature = table};
    struct request all = {1, {keys_tensor()}};
    node_check(look_up(n, table, 0, &all), MR_OK, NULL);
    struct request r = {6,
                        {HEAD(head), keys_tensor(), offsets_tensor(),
                         mr_tensor_2d(MR_F32, BAGS, NODE_DIM, gradients), floats(KEYS, w), floats(BAGS, d)}};
    node_check(ops_rows_push(n, &r), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 8, 0);
    assert_float_equal(node_value(n, table, 6), 7.5f, 0);
    assert_float_equal(node_value(n, table, 7), 8, 0);
    d[1] = -2;
    w[0] = w[2] = 0;
    node_check(ops_rows_push(n, &r), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 6), 8, 0);
    assert_float_equal(node_value(n, table, 7), 8, 0);
    r = (struct request){5,
                         {HEAD(narrow), keys_tensor(), offsets_tensor(),
                          mr_tensor_2d(MR_I8, BAGS, NODE_DIM, ones), floats(BAGS, scales)}};
    node_check(ops_rows_push(n, &r), MR_OK, NULL);
    assert_float_equal(node_value(n, table, 5), 7, 0);
    assert_float_equal(node_value(n, table, 6), 8, 0);
    assert_float_equal(node_value(n, table, 7), 8, 0);
    assert_int_equal(node_counter(n, 0, "table.gradients_skipped"), 4);
}

/* ---- feeds ---- */

TEST(refuses_feeds_that_do_not_hold_what_they_tell, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t sum = make_table(n, "sum", MR_POOL_SUM), mean = make_table(n, "mean", MR_POOL_MEAN);
    uint64_t id = 3;
    uint32_t plain[4] = {mean, BAGS, 1, 0}, weighted[4] = {mean, BAGS, 1, MR_BAG_WEIGHTS},
             divided[4] = {sum, BAGS, 1, MR_BAG_DIVISORS}, unknown[4] = {mean, BAGS, 1, 1u << 3};
    struct mr_tensor b = mr_tensor_1d(MR_U64, 1, &id), k = keys_tensor(), o = offsets_tensor(),
                     w = floats(KEYS, weights), d = floats(BAGS, divisors);
#define FED(head) mr_tensor_1d(MR_U32, 4, head)
    const struct {
        enum mr_status status;
        const char *text;
        struct request r;
    } bad[] = {
        {MR_WRONG_SHAPE, "weights is missing", {4, {b, FED(weighted), k, o}}},
        {MR_WRONG_SHAPE, "weights has 2 elements, not 3", {5, {b, FED(weighted), k, o, d}}},
        {MR_INVALID_ARGUMENT, "sum pools by sum", {5, {b, FED(divided), k, o, d}}},
        {MR_INVALID_ARGUMENT, "does not know 0x8", {4, {b, FED(unknown), k, o}}},
        {MR_WRONG_DTYPE, "slots, flags is f32", {5, {b, FED(plain), k, o, w}}},
    };
    for (uint32_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, bad[i].r.tensors, bad[i].r.count), bad[i].status,
                   bad[i].text);
    }
    assert_int_equal(node_counter(n, 0, "ps.batches_fed"), 0);
    /* Lookups of a batch have no flags but the answer's type. */
    node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, (struct mr_tensor[]){b, FED(plain), k, o}, 4), MR_OK,
               NULL);
    node_check(node_call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)mean, (struct mr_tensor[]){b, w}, 2),
               MR_WRONG_SHAPE, "2 tensors, not 1");
    node_check(node_call_step(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)mean, 0, MR_BAG_WEIGHTS, &b, 1),
               MR_INVALID_ARGUMENT, "does not know 0x2");
    node_check(
        node_call_step(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)mean, 0, MR_F64 << MR_LOOKUP_DTYPE_SHIFT, &b, 1),
        MR_WRONG_DTYPE, "f64");
}

/* Averages over several cores are of whole bags. */
TEST(feeds_of_several_cores_need_divisors, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t mean = make_table(n, "mean", MR_POOL_MEAN), none[BAGS + 1] = {0};
    uint64_t id = 3;
    uint32_t head[4] = {mean, BAGS, 1, 0}, divided[4] = {mean, BAGS, 1, MR_BAG_DIVISORS};
    struct mr_tensor tensors[5] = {mr_tensor_1d(MR_U64, 1, &id), FED(head), mr_tensor_1d(MR_U64, 0, NULL),
                                   mr_tensor_1d(MR_U32, BAGS + 1, none), floats(BAGS, divisors)};
    node_check(node_call(n, 1, MR_OP_FEED_SAMPLE, 0, tensors, 4), MR_INVALID_ARGUMENT, "need divisors");
    tensors[1] = FED(divided);
    node_check(node_call(n, 1, MR_OP_FEED_SAMPLE, 0, tensors, 5), MR_OK, NULL);
    /* of no bags: no divisors are some, too */
    divided[1] = 0;
    tensors[3] = mr_tensor_1d(MR_U32, 1, none);
    tensors[4] = floats(0, divisors);
    node_check(node_call(n, 1, MR_OP_FEED_SAMPLE, 0, tensors, 5), MR_OK, NULL);
}
