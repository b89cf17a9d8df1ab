/* Splitting a kept push by another map, and making one push of its pieces again. */
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/ranges.h"
#include "trainer_client/replay/push.h"
#include "tests/test.h"

enum { KEYS = 100, BAGS = 10, DIM = 3, CORES = 3 };

static uint16_t map[MR_PARTITION_COUNT];
static uint64_t keys[KEYS];
static float rows[KEYS * DIM];
static uint32_t offsets[BAGS + 1];
static uint32_t head[4] = {1, 0};

static int set_up(void **state)
{
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        map[p] = (uint16_t)(p * 7 % CORES);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i * 7919u;
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        rows[i] = (float)i;
    for (uint32_t b = 0; b <= BAGS; b++)
        offsets[b] = b * (KEYS / BAGS);
    return 0;
}

static struct mrc_push *new_push(uint32_t bags)
{
    struct mr_tensor tensors[MRC_ROWS_TENSORS] = {
        mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, KEYS, keys),
        mr_tensor_1d(MR_U32, bags == 0 ? 0 : bags + 1, bags == 0 ? NULL : offsets),
        mr_tensor_2d(MR_F32, bags == 0 ? KEYS : bags, DIM, rows)};
    struct mrc_push *push = mrc_push_new(MR_OP_PUSH_GRAD, 1, 0, 5, tensors, MRC_ROWS_TENSORS);
    assert_non_null(push);
    return push;
}

/* What the push adds to each key's first element, for sum pooling. */
static void add_up(const struct mrc_push *push, float sums[KEYS])
{
    const struct mr_tensor *t = push->tensors;
    const uint64_t *key = t[1].data;
    const uint32_t *offset = t[2].data;
    const float *row = t[3].data;
    for (uint32_t i = 0, bag = 0; i < t[1].dims[0]; i++) {
        while (t[2].dims[0] > 0 && offset[bag + 1] <= i)
            bag++;
        sums[key[i] / 7919u] += row[(size_t)(t[2].dims[0] > 0 ? bag : i) * DIM];
    }
}

static void check_split_and_join(uint32_t bags, uint32_t pooling)
{
    struct mr_feature table = mr_feature_table("t", DIM);
    struct mrc_push *push = new_push(bags), *shares[CORES], *whole;
    float expected[KEYS] = {0}, split[KEYS] = {0}, joined[KEYS] = {0};
    table.pooling = pooling;
    add_up(push, expected);
    assert_true(mrc_push_split(push, map, CORES, &table, shares));
    for (uint32_t core = 0; core < CORES; core++) {
        assert_non_null(shares[core]);
        const uint64_t *key = shares[core]->tensors[1].data;

        for (uint32_t i = 0; i < shares[core]->tensors[1].dims[0]; i++)
            assert_int_equal(map[mr_partition_of(mr_key_hash(key[i], table.seed))], core);
        assert_int_equal(shares[core]->step, 5);
        assert_int_equal(shares[core]->tensor_count, push->tensor_count); /* without divisors */
        add_up(shares[core], split);
    }
    whole = mrc_push_join(shares, CORES);
    assert_non_null(whole);
    add_up(whole, joined);
    for (uint32_t k = 0; k < KEYS; k++)
        assert_true(split[k] == expected[k] && joined[k] == expected[k]);
    mrc_push_free(push);
    mrc_push_free(whole);
    for (uint32_t core = 0; core < CORES; core++)
        mrc_push_free(shares[core]);
}

TEST(test_rows, set_up)
{
    check_split_and_join(0, MR_POOL_SUM);
    check_split_and_join(0, MR_POOL_MEAN);
}

/* The floats behind a row's values are its optimizer's state, and stay with it. */
TEST(test_rows_that_are_set, set_up)
{
    const struct mr_feature table = mr_feature_table("t", 1);
    struct mrc_push *shares[CORES], *whole;
    head[1] = MR_PUSH_SET | MR_PUSH_STATE;
    struct mrc_push *push = new_push(0);
    head[1] = 0;
    assert_true(mrc_push_split(push, map, CORES, &table, shares));
    whole = mrc_push_join(shares, CORES);
    assert_non_null(whole);
    assert_int_equal(((const uint32_t *)whole->tensors[0].data)[1], MR_PUSH_SET | MR_PUSH_STATE);
    assert_int_equal(whole->tensors[3].dims[1], DIM);
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint64_t key = ((const uint64_t *)whole->tensors[1].data)[i] / 7919u;
        assert_memory_equal((const float *)whole->tensors[3].data + (size_t)i * DIM, rows + key * DIM,
                            DIM * sizeof(float));
    }
    for (uint32_t core = 0; core < CORES; core++) {
        assert_int_equal(((const uint32_t *)shares[core]->tensors[0].data)[1], MR_PUSH_SET | MR_PUSH_STATE);
        mrc_push_free(shares[core]);
    }
    mrc_push_free(push);
    mrc_push_free(whole);
}

TEST(test_bags, set_up)
{
    check_split_and_join(BAGS, MR_POOL_SUM);
}

/* Bags that average, with weights, in i8: shares take along, or get, the divisors of the whole bags; split
 * once more and joined, nothing of it is lost. */
TEST(test_weighted_bags_of_a_table_that_averages, set_up)
{
    struct mr_feature table = mr_feature_table("t", DIM);
    struct mr_push_head words = {.feature = 1, .flags = MR_BAG_WEIGHTS, .learning_rate = 0.5f};
    struct mrc_push *shares[CORES], *again[CORES], *whole;
    float weights[KEYS], scales[BAGS];
    int8_t gradients[BAGS * DIM];
    uint32_t bag_count = 0;
    table.pooling = MR_POOL_MEAN;
    for (uint32_t i = 0; i < KEYS; i++)
        weights[i] = (float)(i % 7) + 0.5f;
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = (int8_t)i;
    for (uint32_t b = 0; b < BAGS; b++)
        scales[b] = (float)b + 0.25f; /* tells the bags apart */
    struct mr_tensor tensors[6] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &words),
                                   mr_tensor_1d(MR_U64, KEYS, keys),
                                   mr_tensor_1d(MR_U32, BAGS + 1, offsets),
                                   mr_tensor_2d(MR_I8, BAGS, DIM, gradients),
                                   mr_tensor_1d(MR_F32, BAGS, scales),
                                   mr_tensor_1d(MR_F32, KEYS, weights)};
    struct mrc_push *push = mrc_push_new(MR_OP_PUSH_GRAD, 1, 0, 5, tensors, 6);

    assert_non_null(push);
    assert_true(mrc_push_split(push, map, CORES, &table, shares));
    whole = mrc_push_join(shares, CORES);
    assert_non_null(whole);
    assert_true(mrc_push_split(whole, map, CORES, &table, again));
    for (uint32_t core = 0; core < CORES; core++) {
        const struct mr_tensor *t = again[core]->tensors;
        const uint32_t *offset = t[2].data;
        assert_int_equal(again[core]->tensor_count, MRC_ROWS_TENSORS_MAX);
        assert_int_equal(again[core]->bytes, shares[core]->bytes);
        for (uint32_t i = 0; i < MRC_ROWS_TENSORS_MAX; i++)
            assert_memory_equal(t[i].data, shares[core]->tensors[i].data, t[i].bytes);
        assert_int_equal(((struct mr_push_head *)t[0].data)->flags, MR_BAG_WEIGHTS | MR_BAG_DIVISORS);
        for (uint32_t j = 0; j < t[3].dims[0]; j++, bag_count++) {
            uint32_t b = (uint32_t)((float *)t[4].data)[j];
            float sum = 0;
            for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++)
                sum += weights[i];
            assert_true(((float *)t[6].data)[j] == sum);
            assert_memory_equal((int8_t *)t[3].data + j * DIM, gradients + b * DIM, DIM);
            for (uint32_t i = offset[j]; i < offset[j + 1]; i++)
                assert_true(((float *)t[5].data)[i] == weights[((uint64_t *)t[1].data)[i] / 7919u]);
        }
    }
    assert_true(bag_count > BAGS);
    mrc_push_free(push);
    mrc_push_free(whole);
    for (uint32_t core = 0; core < CORES; core++) {
        mrc_push_free(shares[core]);
        mrc_push_free(again[core]);
    }
}

/* ---- pushes of variables ---- */

enum { ELEMENTS = 50, RANGE_VALUES = 4, RANGES = 13 };

static struct mr_feature spread_variable(void)
{
    const uint32_t dims[2] = {10, ELEMENTS / 10};
    struct mr_feature v = mr_feature_variable("wide", 2, dims);
    v.range_values = RANGE_VALUES;
    return v;
}

/* Each element's value in a share, or in a whole push, which names no pieces. */
static void spread_out(const struct mrc_push *push, float values[ELEMENTS])
{
    const struct mr_tensor *t = &push->tensors[push->tensor_count - 2];
    const float *from = push->tensors[push->tensor_count - 1].data;
    const uint64_t *words = t->data;
    for (uint32_t w = 0; w < t->dims[0]; w += MR_PIECE_WORDS)
        for (uint64_t i = 0; i < words[w + 1]; i++)
            values[words[w] + i] += *from++;
}

static void assert_lives_on(const struct mrc_push *share, uint32_t core)
{
    const struct mr_tensor *t = &share->tensors[share->tensor_count - 2];
    for (uint32_t w = 0; w < t->dims[0]; w += MR_PIECE_WORDS) {
        const uint64_t *piece = (const uint64_t *)t->data + w;
        for (uint64_t i = piece[0]; i < piece[0] + piece[1]; i++)
            assert_int_equal(map[mr_range_partition("wide", (uint32_t)(i / RANGE_VALUES))], core);
    }
}

/* Splits it, splits the shares' union again, and compares with what it was: `first` to `end`. */
static void check_variable_push(struct mrc_push *push, uint64_t first, uint64_t end)
{
    const struct mr_feature v = spread_variable();
    struct mrc_push *shares[CORES], *again[CORES], *pieces[CORES], *whole;
    float split[ELEMENTS] = {0}, joined[ELEMENTS] = {0}, twice[ELEMENTS] = {0};
    uint32_t count = 0;
    assert_true(mrc_variable_push_split(push, map, CORES, &v, shares));
    for (uint32_t core = 0; core < CORES; core++) {
        if (shares[core] == NULL)
            continue;
        assert_true(mrc_push_is_of_variable(shares[core]));
        assert_int_equal(shares[core]->op, push->op);
        assert_int_equal(shares[core]->step, push->step);
        assert_lives_on(shares[core], core);
        spread_out(shares[core], split);
        pieces[count++] = shares[core];
    }
    assert_true(count > 1);
    whole = mrc_variable_push_join(pieces, count);
    assert_non_null(whole);
    spread_out(whole, joined);
    assert_true(mrc_variable_push_split(whole, map, CORES, &v, again));
    for (uint32_t core = 0; core < CORES; core++)
        if (again[core] != NULL)
            spread_out(again[core], twice);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const float expected = i >= first && i < end ? (float)(i - first + 1) : 0;
        assert_true(split[i] == expected && joined[i] == expected && twice[i] == expected);
    }
    mrc_push_free(push);
    mrc_push_free(whole);
    for (uint32_t core = 0; core < CORES; core++) {
        mrc_push_free(shares[core]);
        mrc_push_free(again[core]);
    }
}

TEST(test_a_variables_gradient, set_up)
{
    float gradient[ELEMENTS];
    for (uint32_t i = 0; i < ELEMENTS; i++)
        gradient[i] = (float)(i + 1);
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U32, 4, head),
                                   mr_tensor_2d(MR_F32, 10, ELEMENTS / 10, gradient)};
    struct mrc_push *push = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 5, tensors, 2);
    assert_true(mrc_push_is_of_variable(push));
    check_variable_push(push, 0, ELEMENTS);
}

TEST(test_a_variables_values, set_up)
{
    float values[ELEMENTS];
    const uint64_t first = 7;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)(i + 1);
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, 40, values)};
    check_variable_push(mrc_push_new(MR_OP_VARIABLE_PUSH, 3, 0, 5, tensors, 2), first, first + 40);
}
