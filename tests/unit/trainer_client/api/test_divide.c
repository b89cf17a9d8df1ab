/* Random rows, divided by owner and by bytes, against plain loops, and put together again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "trainer_client/api/divide.h"
#include "tests/test.h"

enum { CORES = 5, KEYS = 600, DISTINCT = 50, BAGS = 150, DIM = 3, ROUNDS = 60 };

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- by owner ---- */

/* One round's input, and room for every core's share of it. */
struct round {
    uint16_t owners[MR_PARTITION_COUNT];
    uint64_t keys[KEYS];
    uint32_t key_count, bag_count;
    uint32_t offsets[BAGS + 1];
    uint64_t core_keys[CORES][KEYS];
    uint32_t core_offsets[CORES][BAGS + 1];
    float core_rows[CORES][KEYS * DIM];
};

static void make_round(struct round *r)
{
    memset(r, 0, sizeof(*r));
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        r->owners[p] = (uint16_t)(next_random() % CORES);
    r->bag_count = (uint32_t)(next_random() % (BAGS + 1));
    for (uint32_t b = 0; b < r->bag_count; b++) {
        uint32_t n = (uint32_t)(next_random() % 5);
        for (uint32_t i = 0; i < n && r->key_count < KEYS; i++)
            r->keys[r->key_count++] = next_random() % 40; /* repeats, in a bag, too */
        r->offsets[b + 1] = r->key_count;
    }
}

static struct mrc_rows_request request_of(const struct round *r, bool with_bags)
{
    return (struct mrc_rows_request){.keys = r->keys,
                                     .key_count = r->key_count,
                                     .offsets = with_bags ? r->offsets : NULL,
                                     .bag_count = with_bags ? r->bag_count : 0,
                                     .dim = DIM,
                                     .dtype = MR_F32};
}

/* Finds the owners, and points their shares to the round's room. Returns the only owner. */
static uint32_t divide(struct round *r, struct mrc_division *d, const struct mrc_rows_request *request,
                       uint64_t seed)
{
    const size_t bytes = mrc_division_bytes(request, CORES);
    uint8_t *memory = malloc(bytes + 8);
    assert_non_null(memory);
    assert_int_equal(bytes % 8, 0);
    const uint32_t only = mrc_divide_by_owner(d, request, r->owners, CORES, seed, memory);
    for (uint32_t c = 0; c < CORES; c++) {
        d->shares[c].keys = r->core_keys[c];
        d->shares[c].offsets = r->core_offsets[c];
        d->shares[c].rows = mrc_rows_f32(r->core_rows[c]);
    }
    return only;
}

static uint16_t owner(const struct round *r, uint64_t seed, uint64_t key)
{
    return r->owners[mr_key_hash(key, seed) >> 52];
}

static float value(uint64_t key, uint32_t d)
{
    return (float)key + 0.125f * (float)d;
}

TEST(test_keys_by_owner)
{
    static struct round r;
    static float rows[KEYS * DIM], joined[KEYS * DIM];
    for (uint32_t n = 0; n < ROUNDS; n++) {
        struct mrc_division d;
        uint64_t seed = next_random();
        uint32_t total = 0, next[CORES] = {0}, with_keys = 0, last_with_keys = 0;
        make_round(&r);
        if (n < 10) /* few keys: of one owner, or of none */
            r.key_count = n / 3 < r.key_count ? n / 3 : r.key_count;
        struct mrc_rows_request request = request_of(&r, false);
        request.gradients = mrc_rows_f32(rows);
        const uint32_t only = divide(&r, &d, &request, seed);
        for (uint32_t i = 0; i < r.key_count; i++)
            for (uint32_t e = 0; e < DIM; e++)
                rows[i * DIM + e] = value(r.keys[i], e);
        mrc_division_fill(&d);
        for (uint32_t i = 0; i < r.key_count; i++) {
            uint16_t c = owner(&r, seed, r.keys[i]);
            assert_int_equal(r.core_keys[c][next[c]], r.keys[i]);
            next[c]++;
        }
        for (uint32_t c = 0; c < CORES; c++) {
            assert_int_equal(d.shares[c].key_count, next[c]);
            total += next[c];
            with_keys += next[c] > 0;
            last_with_keys = next[c] > 0 ? c : last_with_keys;
            for (uint32_t i = 0; i < next[c]; i++)
                assert_true(r.core_rows[c][i * DIM + 1] == value(r.core_keys[c][i], 1));
        }
        assert_int_equal(total, r.key_count);
        assert_int_equal(only, with_keys > 1 ? MRC_SEVERAL_OWNERS : last_with_keys);
        mrc_division_join(&d, DIM, NULL, joined);
        assert_memory_equal(joined, rows, r.key_count * DIM * sizeof(float));
        free(d.memory);
    }
}

/* As a server does it. */
static void reduce(const uint64_t *keys, const uint32_t *offsets, uint32_t bags, const float *weights,
                   const float *divisors, float *out)
{
    memset(out, 0, bags * DIM * sizeof(float));
    for (uint32_t b = 0; b < bags; b++) {
        for (uint32_t d = 0; d < DIM; d++) {
            for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++)
                out[b * DIM + d] += value(keys[i], d) * weights[i];
            out[b * DIM + d] = divisors[b] == 0 ? 0 : out[b * DIM + d] / divisors[b];
        }
    }
}

/* What each key gets of the bags' gradients, in the order of its bags. */
static void spread(const uint64_t *keys, const uint32_t *offsets, uint32_t bags, const float *weights,
                   const float *divisors, const float *gradients, float out[40][DIM])
{
    for (uint32_t b = 0; b < bags; b++) {
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++)
            for (uint32_t d = 0; d < DIM; d++)
                out[keys[i]][d] += gradients[b * DIM + d] / divisors[b] * weights[i];
    }
}

static void check_bags(uint32_t pooling)
{
    static struct round r;
    static float expected[BAGS * DIM], got[BAGS * DIM], weights[KEYS], core_weights[CORES][KEYS];
    static float gradients[BAGS * DIM], core_gradients[CORES][BAGS * DIM];
    float divisors[BAGS], core_divisors[CORES][BAGS], scratch[DIM];
    struct mrc_division d;
    make_round(&r);
    for (uint32_t i = 0; i < KEYS; i++)
        weights[i] = (float)(i % 5) * 0.25f + 0.5f;
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = (float)(i % 17) - 8.0f;
    for (uint32_t b = 0; b < r.bag_count; b++)
        divisors[b] = mr_bag_divisor(pooling, weights + r.offsets[b], r.offsets[b + 1] - r.offsets[b]);
    struct mrc_rows_request request = request_of(&r, true);
    request.weights = weights;
    request.pooling = pooling;
    request.gradients = mrc_rows_f32(gradients);
    request.divisors = next_random() % 2 == 0 ? divisors : NULL; /* the same ones */
    (void)divide(&r, &d, &request, 1);
    for (uint32_t c = 0; c < CORES; c++) {
        d.shares[c].weights = core_weights[c];
        d.shares[c].divisors = core_divisors[c];
        d.shares[c].rows = mrc_rows_f32(core_gradients[c]);
    }
    mrc_division_fill(&d);
    for (uint32_t c = 0; c < CORES; c++) {
        const uint32_t bags = d.shares[c].bag_count;
        d.shares[c].rows = mrc_rows_f32(r.core_rows[c]);
        if (d.shares[c].key_count == 0)
            continue;
        assert_int_equal(r.core_offsets[c][0], 0);
        assert_int_equal(r.core_offsets[c][bags], d.shares[c].key_count);
        for (uint32_t b = 0; b < bags; b++)
            assert_true(r.core_offsets[c][b] < r.core_offsets[c][b + 1]); /* no empty ones */
        reduce(r.core_keys[c], r.core_offsets[c], bags, core_weights[c], core_divisors[c], r.core_rows[c]);
    }
    mrc_division_join(&d, DIM, scratch, got);
    reduce(r.keys, r.offsets, r.bag_count, weights, divisors, expected);
    for (uint32_t i = 0; i < r.bag_count * DIM; i++)
        assert_true(fabsf(got[i] - expected[i]) <= 1e-4f * (1.0f + fabsf(expected[i])));

    /* A bag's gradient, divided and spread by each core, gives each key the bits that it would have got
     * undivided. */
    float whole[40][DIM] = {{0}}, shared[40][DIM] = {{0}};

    spread(r.keys, r.offsets, r.bag_count, weights, divisors, gradients, whole);
    for (uint32_t c = 0; c < CORES; c++)
        spread(r.core_keys[c], r.core_offsets[c], d.shares[c].bag_count, core_weights[c], core_divisors[c],
               core_gradients[c], shared);
    assert_memory_equal(whole, shared, sizeof(whole));
    free(d.memory);
}

TEST(test_bags_by_owner)
{
    for (uint32_t n = 0; n < ROUNDS; n++) {
        check_bags(MR_POOL_SUM);
        check_bags(MR_POOL_MEAN);
        check_bags(MR_POOL_SQRTN);
    }
}

TEST(test_kept_bags_by_owner)
{
    static struct round r;
    static float core_divisors[CORES][BAGS];
    for (uint32_t n = 0; n < ROUNDS; n++) {
        struct mrc_division d;
        make_round(&r);
        struct mrc_rows_request request = request_of(&r, true);
        request.keeps_bags = true;
        request.pooling = MR_POOL_MEAN;
        (void)divide(&r, &d, &request, 9);
        for (uint32_t c = 0; c < CORES; c++)
            d.shares[c].divisors = core_divisors[c];
        mrc_division_fill(&d);
        for (uint32_t c = 0; c < CORES; c++) {
            uint32_t at = 0;
            assert_int_equal(d.shares[c].bag_count, r.bag_count);
            for (uint32_t b = 0; b < r.bag_count; b++) {
                const uint32_t keys = r.offsets[b + 1] - r.offsets[b];
                assert_int_equal(r.core_offsets[c][b], at);
                assert_true(core_divisors[c][b] == (keys == 0 ? 1.0f : (float)keys)); /* of the whole bag */
                for (uint32_t i = r.offsets[b]; i < r.offsets[b + 1]; i++)
                    if (owner(&r, 9, r.keys[i]) == c)
                        assert_int_equal(r.core_keys[c][at++], r.keys[i]);
            }
            assert_int_equal(r.core_offsets[c][r.bag_count], at);
            assert_int_equal(d.shares[c].key_count, at);
        }
        free(d.memory);
    }
}

/* ---- by bytes ---- */

struct bytes_round {
    struct mrc_rows_request of;
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1];
    float weights[KEYS], gradients[KEYS * DIM];
};

static void make_bytes_round(struct bytes_round *r, bool is_push)
{
    const bool has_bags = next_random() % 2 == 0;
    uint32_t count = 0;
    memset(r, 0, sizeof(*r));
    for (uint32_t b = 0; b < BAGS; b++) {
        count += (uint32_t)(next_random() % 5); /* some are empty */
        r->offsets[b + 1] = count < KEYS ? count : KEYS;
    }
    r->of = (struct mrc_rows_request){.keys = r->keys,
                                      .key_count = has_bags ? r->offsets[BAGS] : KEYS,
                                      .dim = is_push ? DIM : 0,
                                      .gradients = mrc_rows_f32(is_push ? r->gradients : NULL),
                                      .dtype = next_random() % 4 == 0 ? MR_I8 : MR_F32,
                                      .pooling = (uint32_t)(next_random() % 3)};
    if (has_bags) {
        r->of.offsets = r->offsets;
        r->of.bag_count = BAGS;
        r->of.weights = next_random() % 2 == 0 ? r->weights : NULL;
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        r->keys[i] = next_random() % DISTINCT; /* repeats, in a bag, too */
        r->weights[i] = (float)(next_random() % 9);
    }
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        r->gradients[i] = (float)(next_random() % 1000);
}

/* A share in memory of exactly its room. */
static void *take_share(const struct mrc_division *d, uint32_t i, struct mrc_rows_request *share)
{
    const size_t bytes = mrc_share_room_bytes(d, i);
    assert_int_equal(bytes % 8, 0);
    void *room = malloc(bytes + 8); /* not NULL */
    assert_non_null(room);
    memset((uint8_t *)room + bytes, 0x5a, 8);
    mrc_share_request(d, i, room, share);
    for (uint32_t b = 0; b < 8; b++)
        assert_int_equal(((uint8_t *)room)[bytes + b], 0x5a);
    return room;
}

static void check_sizes(const struct mrc_division *d, uint64_t bytes_max)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < d->share_count; i++) {
        const uint64_t bytes = mrc_share_bytes(d, i);
        largest = bytes > largest ? bytes : largest;
    }
    assert_int_equal(d->largest_bytes, largest);
    assert_true(largest <= bytes_max);
    assert_true(d->share_count >= mrc_rows_bytes(d->of, DIM) / bytes_max);
}

TEST(test_lookups_by_bytes_follow_each_other)
{
    static struct bytes_round r;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        const uint64_t bytes_max = 200 + next_random() % 4000;
        struct mrc_division d;
        uint32_t rows = 0, keys = 0;
        make_bytes_round(&r, false);
        assert_true(mrc_divide_by_bytes(&d, &r.of, DIM, bytes_max));
        check_sizes(&d, bytes_max);
        for (uint32_t i = 0; i < d.share_count; i++) {
            struct mrc_rows_request share;
            void *room = take_share(&d, i, &share);
            assert_int_equal(d.shares[i].first_bag, rows);
            assert_memory_equal(share.keys, r.keys + keys, share.key_count * sizeof(*share.keys));
            assert_int_equal(share.weights != NULL, r.of.weights != NULL);
            if (share.weights != NULL)
                assert_memory_equal(share.weights, r.weights + keys,
                                    share.key_count * sizeof(*share.weights));
            for (uint32_t b = 0; share.offsets != NULL && b <= share.bag_count; b++)
                assert_int_equal(share.offsets[b] + keys, r.offsets[rows + b]);
            rows += mrc_request_rows(&share);
            keys += share.key_count;
            free(room);
        }
        assert_int_equal(rows, mrc_request_rows(&r.of));
        assert_int_equal(keys, r.of.key_count);
        free(d.memory);
    }
}

/* What each key learns, in its order: a hash of gradients, divisors and weights. */
struct learnt {
    uint64_t of_key[DISTINCT];
};

static void divide_add(uint64_t *hash, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    *hash = (*hash ^ bits) * UINT64_C(0x100000001b3) + 1;
}

static void add_row(struct learnt *l, const struct mrc_rows_request *r, uint32_t row, uint32_t key,
                    float divisor)
{
    uint64_t *hash = &l->of_key[r->keys[key]];
    for (uint32_t d = 0; d < DIM; d++)
        divide_add(hash, ((const float *)r->gradients.values)[row * DIM + d]);
    divide_add(hash, divisor);
    divide_add(hash, r->weights == NULL ? 1.0f : r->weights[key]);
}

static void learn(struct learnt *l, const struct mrc_rows_request *r)
{
    for (uint32_t row = 0; row < mrc_request_rows(r); row++) {
        if (r->offsets == NULL) {
            add_row(l, r, row, row, 1.0f);
            continue;
        }
        const uint32_t first = r->offsets[row], count = r->offsets[row + 1] - first;
        const float divisor =
            r->divisors != NULL
                ? r->divisors[row]
                : mr_bag_divisor(r->pooling, r->weights == NULL ? NULL : r->weights + first, count);
        for (uint32_t k = first; k < first + count; k++)
            add_row(l, r, row, k, divisor);
    }
}

TEST(test_pushes_by_bytes_have_each_key_in_one_share)
{
    static struct bytes_round r;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        const uint64_t bytes_max = 1500 + next_random() % 4000;
        struct mrc_division d;
        struct learnt whole = {0}, together = {0};
        uint32_t share_of[DISTINCT] = {0};
        make_bytes_round(&r, true);
        assert_true(mrc_divide_by_bytes(&d, &r.of, DIM, bytes_max));
        check_sizes(&d, bytes_max);
        learn(&whole, &r.of);
        for (uint32_t i = 0; i < d.share_count; i++) {
            struct mrc_rows_request share;
            void *room = take_share(&d, i, &share);
            assert_true(share.key_count > 0);
            for (uint32_t k = 0; k < share.key_count; k++) {
                assert_true(share_of[share.keys[k]] == 0 || share_of[share.keys[k]] == i + 1);
                share_of[share.keys[k]] = i + 1;
            }
            for (uint32_t b = 0; share.offsets != NULL && d.share_count > 1 && b < share.bag_count; b++)
                assert_true(share.offsets[b + 1] > share.offsets[b]); /* empty ones teach nobody anything */
            learn(&together, &share);
            free(room);
        }
        assert_memory_equal(&together, &whole, sizeof(whole));
        free(d.memory);
    }
}

/* Bags of many keys, whose gradients are the most of it: shares have few gradients twice. */
TEST(test_gradients_of_long_bags_are_not_repeated_for_each_key)
{
    enum { LONG = 100, COUNT = 40, WIDE = 64 };
    static uint64_t keys[COUNT * LONG];
    static uint32_t offsets[COUNT + 1];
    static float gradients[COUNT * WIDE];
    struct mrc_rows_request r = {.keys = keys,
                                 .key_count = COUNT * LONG,
                                 .offsets = offsets,
                                 .bag_count = COUNT,
                                 .dim = WIDE,
                                 .gradients = mrc_rows_f32(gradients),
                                 .dtype = MR_F32};
    struct mrc_division d;
    for (uint32_t i = 0; i < COUNT * LONG; i++)
        keys[i] = i * 7919u;
    for (uint32_t b = 0; b < COUNT; b++)
        offsets[b + 1] = (b + 1) * LONG;
    const uint64_t whole = mrc_rows_bytes(&r, WIDE);
    assert_true(mrc_divide_by_bytes(&d, &r, WIDE, whole / 2));
    assert_true(d.largest_bytes <= whole / 2);
    assert_int_in_range(d.share_count, 3, 8);
    free(d.memory);
}

/* One that is too large for a share is a share, and is said to be so. */
TEST(test_what_cannot_be_divided)
{
    static uint64_t keys[KEYS]; /* one key */
    static float gradients[KEYS * DIM];
    uint32_t offsets[4] = {0, 1, 1 + 300, KEYS};
    struct mrc_rows_request r = {
        .keys = keys, .key_count = KEYS, .dim = DIM, .gradients = mrc_rows_f32(gradients), .dtype = MR_F32};
    struct mrc_division d;
    assert_true(mrc_divide_by_bytes(&d, &r, DIM, 1000));
    assert_int_equal(d.share_count, 1);
    assert_int_equal(d.largest_bytes, mrc_rows_bytes(&r, DIM));
    free(d.memory);
    r = (struct mrc_rows_request){
        .keys = keys, .key_count = KEYS, .offsets = offsets, .bag_count = 3, .dtype = MR_F32};
    assert_true(mrc_divide_by_bytes(&d, &r, DIM, 1000));
    assert_int_equal(d.share_count, 3);
    assert_true(d.largest_bytes > 300 * sizeof(*keys));
    free(d.memory);
    r.key_count = r.bag_count = 0;
    assert_true(mrc_divide_by_bytes(&d, &r, DIM, 1000));
    assert_int_equal(d.share_count, 1);
    assert_int_equal(d.shares[0].key_count, 0);
    free(d.memory);
}
