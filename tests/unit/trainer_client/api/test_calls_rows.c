/* Lookups and pushes of rows against a node, with one core and with three: what comes out must not
 * depend on it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "tests/unit/trainer_client/api/calls_fixture.h"
#include "tests/unit/trainer_client/api/short_memory.h"
#include "tests/unit/trainer_client/canned_answers.h"

/* ---- memory that runs out ---- */

/* Wherever it is in a lookup, the call says so, and the next one is as ever. */
TEST(test_a_lookup_without_memory)
{
    struct fixture x;
    struct mr_reply *reply = NULL;
    enum mr_status status = MR_NO_MEMORY;
    int failures = -1;
    set_up(&x, 1);
    for (; status != MR_OK; failures++) {
        assert_true(failures < 20);
        assert_int_equal(mr_lookup(x.client, NULL, 60000, x.keys, 1, &reply), MR_UNKNOWN_TABLE);
        allocations_left = failures + 1;
        status = mr_lookup(x.client, NULL, x.tables[0], x.keys, KEYS, &reply);
        allocations_left = -1;
        if (status == MR_OK)
            continue;
        assert_int_equal(status, MR_NO_MEMORY);
        assert_non_null(strstr(mr_last_error(), "no memory"));
        assert_null(reply);
    }
    assert_true(failures >= 2); /* the call's own, and the reply's */
    mr_reply_free(reply);
    tear_down(&x);
}

/* ---- rows ---- */

static void check_rows(uint32_t core_count)
{
    struct fixture x;
    struct mr_reply *reply = NULL;
    float gradients[KEYS * DIM], pushed[DISTINCT][DIM] = {{0}};
    set_up(&x, core_count);
    assert_int_equal(mr_lookup(x.client, NULL, x.tables[0], x.keys, KEYS, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], KEYS);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[1], DIM);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_true(floats(reply)[i] == live_value(x.keys[i / DIM], i % DIM));
    mr_reply_free(reply);
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        gradients[i] = (float)(i % 11) * 0.5f;
        pushed[x.keys[i / DIM]][i % DIM] += gradients[i];
    }
    assert_int_equal(mr_push_gradients(x.client, NULL, x.tables[0], x.keys, KEYS, DIM, gradients), MR_OK);
    assert_int_equal(mr_lookup(x.client, NULL, x.tables[0], x.keys, KEYS, &reply), MR_OK);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_close(floats(reply)[i],
                     live_value(x.keys[i / DIM], i % DIM) - pushed[x.keys[i / DIM]][i % DIM]);
    mr_reply_free(reply);
    /* No keys, and one: with several cores, too. */
    assert_int_equal(mr_lookup(x.client, NULL, x.tables[1], NULL, 0, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], 0);
    mr_reply_free(reply);
    for (uint64_t key = 0; key < 20; key++) {
        assert_int_equal(mr_lookup(x.client, NULL, x.tables[1], &key, 1, &reply), MR_OK);
        assert_true(floats(reply)[2] == live_value(key, 2));
        mr_reply_free(reply);
    }
    assert_int_equal(mr_lookup(x.client, NULL, x.tables[1], x.keys, KEYS, NULL), MR_OK);
    tear_down(&x);
}

/* Of keys of all cores, each of which has to get its own rows. */
static void check_stored_rows(uint32_t core_count)
{
    enum { COUNT = 30 };
    struct fixture x;
    struct mr_reply *reply = NULL;
    struct mr_future *future;
    struct mr_options async = {.future = &future};
    uint64_t keys[COUNT];
    float rows[COUNT * DIM];
    set_up(&x, core_count);
    for (uint32_t i = 0; i < COUNT; i++)
        keys[i] = 1000 + 7 * i;
    for (uint32_t i = 0; i < COUNT * DIM; i++)
        rows[i] = (float)i;
    assert_int_equal(mr_get_rows(x.client, NULL, x.tables[0], keys, COUNT, false, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[1], DIM + 1);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(floats(reply)[i * (DIM + 1)] == 0 && floats(reply)[i * (DIM + 1) + DIM] == 0);
    mr_reply_free(reply);
    assert_int_equal(mr_set_rows(x.client, NULL, x.tables[0], keys, COUNT, DIM, false, rows), MR_OK);
    assert_int_equal(mr_get_rows(x.client, &async, x.tables[0], keys, COUNT, false, NULL), MR_OK);
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    mr_future_destroy(future);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_memory_equal(&floats(reply)[i * (DIM + 1)], &rows[i * DIM], DIM * sizeof(float));
        assert_true(floats(reply)[i * (DIM + 1) + DIM] == 1);
    }
    mr_reply_free(reply);
    tear_down(&x);
}

static void check_learning_rates(uint32_t core_count)
{
    struct fixture x;
    struct mr_reply *reply = NULL;
    struct mr_options half = {.learning_rate = 0.5f, .has_learning_rate = true},
                      none = {.has_learning_rate = true};
    uint32_t one = 1, variable, offsets[2] = {0, 1};
    uint64_t key = 5, batch = UINT64_C(1) << 48;
    float gradient[DIM], bias = 2;
    struct mr_feature feature = mr_feature_variable("bias", 1, &one);
    feature.learning_rate = 1;
    set_up(&x, core_count);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &variable), MR_OK);
    struct mr_batch_keys keys = {x.tables[0], 1, 1, &key, offsets, NULL};
    struct mr_batch_gradient pushed[2] = {{x.tables[0], mr_tensor_3d(MR_F32, 1, 1, DIM, gradient)},
                                          {variable, mr_tensor_1d(MR_F32, 1, &bias)}};
    for (uint32_t d = 0; d < DIM; d++)
        gradient[d] = 2;
    assert_int_equal(mr_push_gradients(x.client, &half, x.tables[0], &key, 1, DIM, gradient), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x.client, &half, variable, 1, &bias), MR_OK);
    assert_int_equal(mr_feed_sample(x.client, NULL, batch, &keys, 1, false), MR_OK);
    assert_int_equal(mr_push_gradients_batch(x.client, &half, batch, pushed, 2, NULL), MR_OK);
    assert_int_equal(mr_push_gradients(x.client, &none, x.tables[0], &key, 1, DIM, gradient), MR_OK);
    assert_int_equal(mr_variable_push_gradient(x.client, &none, variable, 1, &bias), MR_OK);
    assert_int_equal(mr_lookup(x.client, NULL, x.tables[0], &key, 1, &reply), MR_OK);
    assert_close(floats(reply)[0], live_value(key, 0) - 2);
    mr_reply_free(reply);
    assert_int_equal(mr_variable_pull(x.client, NULL, variable, 0, 1, &reply), MR_OK);
    assert_close(floats(reply)[0], -2);
    mr_reply_free(reply);
    tear_down(&x);
}

TEST(test_pushes_with_a_learning_rate)
{
    check_learning_rates(1);
    check_learning_rates(3);
}

static void check_pooling(uint32_t core_count, uint32_t pooling)
{
    struct fixture x;
    struct mr_reply *reply = NULL;
    float gradients[BAGS * DIM], rows[DISTINCT][DIM];
    uint32_t table, pushes = 2;
    set_up(&x, core_count);
    table = x.tables[pooling];
    for (uint32_t k = 0; k < DISTINCT; k++)
        for (uint32_t d = 0; d < DIM; d++)
            rows[k][d] = live_value(k, d);
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = (float)(i % 7) - 3.0f;
    for (uint32_t n = 0; n <= pushes; n++) {
        assert_int_equal(mr_lookup_bags(x.client, NULL, table, x.keys, NULL, x.offsets, BAGS, &reply), MR_OK);
        assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], BAGS);
        for (uint32_t b = 0; b < BAGS; b++) {
            for (uint32_t d = 0; d < DIM; d++) {
                float sum = 0;
                for (uint32_t i = x.offsets[b]; i < x.offsets[b + 1]; i++)
                    sum += rows[x.keys[i]][d] * factor(pooling, x.offsets[b + 1] - x.offsets[b]);
                assert_close(floats(reply)[b * DIM + d], sum);
            }
        }
        mr_reply_free(reply);
        if (n == pushes)
            break;
        assert_int_equal(
            mr_push_gradients_bags(x.client, NULL, table, x.keys, NULL, x.offsets, BAGS, DIM, gradients),
            MR_OK);
        for (uint32_t b = 0; b < BAGS; b++) {
            for (uint32_t i = x.offsets[b]; i < x.offsets[b + 1]; i++) {
                for (uint32_t d = 0; d < DIM; d++)
                    rows[x.keys[i]][d] -=
                        gradients[b * DIM + d] * factor(pooling, x.offsets[b + 1] - x.offsets[b]);
            }
        }
    }
    tear_down(&x);
}

TEST(test_rows)
{
    check_rows(1);
    check_rows(3);
    check_stored_rows(1);
    check_stored_rows(3);
}

TEST(test_pooling)
{
    for (uint32_t pooling = MR_POOL_SUM; pooling <= MR_POOL_SQRTN; pooling++) {
        check_pooling(1, pooling);
        check_pooling(3, pooling);
    }
}

/* ---- counts ---- */

/* Made up: of keys at a core all were applied, but that the second was refused where there are two, the third
 * has no row, and the fourth's gradient holds NaN. */
static struct mr_pushed counts_of(uint32_t sent)
{
    const uint32_t refused = sent >= 2, without_row = sent >= 3, not_finite = sent >= 4;
    return (struct mr_pushed){.is_known = true,
                              .sent = sent,
                              .applied = sent - refused - without_row - not_finite,
                              .refused = refused,
                              .without_row = without_row,
                              .not_finite = not_finite};
}

static bool answer_with_counts(struct mr_endpoint *ep, uint32_t core, const struct mr_request *request)
{
    if (request->message->preamble.op != MR_OP_PUSH_GRAD)
        return false;
    const struct mr_pushed c = counts_of(request->message->tensors[1].dims[0]);
    uint32_t words[MR_PUSHED_WORDS] = {[MR_PUSHED_SENT] = (uint32_t)c.sent,
                                       [MR_PUSHED_APPLIED] = (uint32_t)c.applied,
                                       [MR_PUSHED_REFUSED] = (uint32_t)c.refused,
                                       [MR_PUSHED_WITHOUT_ROW] = (uint32_t)c.without_row,
                                       [MR_PUSHED_NOT_FINITE] = (uint32_t)c.not_finite};
    struct mr_tensor t = mr_tensor_1d(MR_U32, MR_PUSHED_WORDS, words);
    canned_reply(ep, request, &t, 1);
    return true;
}

static void assert_pushed(const struct mr_pushed *got, const struct mr_pushed *expected)
{
    assert_true(got->is_known);
    assert_int_equal(got->sent, expected->sent);
    assert_int_equal(got->applied, expected->applied);
    assert_int_equal(got->refused, expected->refused);
    assert_int_equal(got->without_row, expected->without_row);
    assert_int_equal(got->not_finite, expected->not_finite);
}

/* Each core's counts add up. */
static struct mr_pushed expect_split(const struct fixture *x, uint32_t table, const uint64_t *keys,
                                     uint32_t count)
{
    struct mr_pushed sum = {.is_known = true};
    uint32_t of_core[LIVE_CORES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++)
        of_core[live_owner(x->node->core_count, mr_partition_of(mr_key_hash(keys[i], 1000 + table)))]++;
    for (uint32_t core = 0; core < LIVE_CORES_MAX; core++) {
        const struct mr_pushed c = counts_of(of_core[core]);
        sum.sent += c.sent;
        sum.applied += c.applied;
        sum.refused += c.refused;
        sum.without_row += c.without_row;
        sum.not_finite += c.not_finite;
    }
    return sum;
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

static struct mr_pushed expect_applied(uint32_t count)
{
    return (struct mr_pushed){.is_known = true, .sent = count, .applied = count};
}

/* Of keys, of a variable and of a batch. */
static void check_counts(uint32_t core_count)
{
    static const struct mr_pushed nothing = {.is_known = false, .sent = 77};
    struct fixture x;
    float gradients[KEYS * DIM] = {0};
    struct mr_pushed pushed = nothing, expected;
    struct mr_future *future;
    struct mr_reply *reply;
    struct mr_options options = {.pushed = &pushed};
    struct mr_batch_keys fed;
    struct mr_batch_gradient batch;
    bool applied;
    set_up(&x, core_count);
    assert_int_equal(mr_lookup(x.client, &options, x.tables[0], x.keys, KEYS, NULL), MR_OK);
    assert_int_equal(pushed.sent, 77); /* no push */
    expected = expect_split(&x, 0, x.keys, KEYS);
    atomic_store(&x.node->answer, answer_with_counts);
    assert_int_equal(mr_push_gradients(x.client, &options, x.tables[0], x.keys, KEYS, DIM, gradients), MR_OK);
    assert_pushed(&pushed, &expected);
    options.wire_dtype = MR_I8;
    options.future = &future;
    pushed = nothing;
    assert_int_equal(mr_push_gradients(x.client, &options, x.tables[0], x.keys, KEYS, DIM, gradients), MR_OK);
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    assert_null(reply);
    assert_pushed(&pushed, &expected);
    mr_future_destroy(future);
    options.wire_dtype = 0;
    options.future = NULL;
    atomic_store(&x.node->answer, NULL);

    expected = expect_applied(1);
    assert_int_equal(mr_variable_push_gradient(x.client, &options, x.variable, 6, gradients), MR_OK);
    assert_pushed(&pushed, &expected);

    expected = expect_applied(distinct_of(x.keys, x.offsets[BAGS]));
    fed = (struct mr_batch_keys){x.tables[0], BAGS, 1, x.keys, x.offsets, NULL};
    batch = (struct mr_batch_gradient){x.tables[0], mr_tensor_3d(MR_F32, BAGS, 1, DIM, gradients)};
    assert_int_equal(mr_feed_sample(x.client, NULL, 0, &fed, 1, false), MR_OK);
    assert_int_equal(mr_push_gradients_batch(x.client, &options, 0, &batch, 1, &applied), MR_OK);
    assert_true(applied);
    assert_pushed(&pushed, &expected);
    assert_int_equal(mr_push_gradients_batch(x.client, &options, 0, &batch, 1, &applied), MR_OK);
    assert_false(applied); /* it was counted then, and not for this call */
    assert_false(pushed.is_known);
    assert_int_equal(pushed.sent, 0);

    pushed = nothing; /* a call that fails leaves it alone */
    assert_int_equal(mr_push_gradients(x.client, &options, 99, x.keys, KEYS, DIM, gradients),
                     MR_UNKNOWN_TABLE);
    assert_int_equal(pushed.sent, 77);
    tear_down(&x);
}

TEST(test_counts_of_pushes)
{
    check_counts(1);
    check_counts(3);
}
