/* Bags with weights and divisors, and gradients of every type: lookups against rows summed one by one, pushes
 * against pushes of plain gradients per key that were worked out by hand; bit for bit, at once and in
 * steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/bag.h"
#include "dataplane/wire/format/convert.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

enum { DIM = 21, BAGS = 80, KEYS_MAX = BAGS * 20, UNIVERSE = 250 };

struct call {
    uint32_t pooling, key_count;
    uint64_t keys[KEYS_MAX];
    uint32_t offsets[BAGS + 1];
    float weights[KEYS_MAX], divisors[BAGS];
    bool has_weights, has_divisors, is_single;
    enum mr_dtype dtype;
    float gradients[BAGS * DIM]; /* what the pushed ones are made of */
    uint8_t pushed[BAGS * DIM * sizeof(float)];
    float scales[BAGS];
    const uint64_t *excluded;
};

static void make_call(struct call *c, uint64_t *rng)
{
    c->key_count = 0;
    c->excluded = NULL;
    for (uint32_t b = 0; b < BAGS; b++) {
        uint32_t size = c->is_single ? 1 : random_below(rng, 4) == 0 ? 0 : random_below(rng, 20);
        c->offsets[b] = c->key_count;
        c->divisors[b] = random_below(rng, 9) == 0 ? 0 : random_float(rng) * 10;
        for (uint32_t i = 0; i < size; i++) {
            c->weights[c->key_count] = random_below(rng, 6) == 0 ? 0 : random_float(rng) * 3;
            c->keys[c->key_count++] = random_below(rng, UNIVERSE);
        }
        if (random_below(rng, 10) == 0 && size >= 2) { /* a mean by 0 */
            memset(c->weights + c->offsets[b], 0, size * sizeof(float));
            c->weights[c->offsets[b]] = 1;
            c->weights[c->offsets[b] + 1] = -1;
        }
    }
    c->offsets[BAGS] = c->key_count;
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        c->gradients[i] = random_float(rng) * 2;
    if (random_below(rng, 2) == 0)
        c->gradients[random_below(rng, BAGS * DIM)] = NAN;
    if (random_below(rng, 2) == 0)
        c->gradients[random_below(rng, BAGS * DIM)] = 3e38f; /* overflows by some divisors and weights */
    mr_convert_from_f32(c->dtype, c->pushed, c->scales, c->gradients, BAGS, DIM);
    mr_convert_to_f32(c->dtype, c->gradients, c->pushed, c->scales, BAGS, DIM);
}

static float divisor_of(const struct call *c, uint32_t bag)
{
    double sum = 0, squares = 0;
    if (c->has_divisors)
        return c->divisors[bag];
    if (c->offsets[bag] == c->offsets[bag + 1])
        return 1;
    for (uint32_t i = c->offsets[bag]; i < c->offsets[bag + 1]; i++) {
        double w = c->has_weights ? (double)c->weights[i] : 1;
        sum += w;
        squares += w * w;
    }
    return c->pooling == MR_POOL_SUM ? 1 : (float)(c->pooling == MR_POOL_MEAN ? sum : sqrt(squares));
}

static float over(float x, float divisor)
{
    return divisor == 0 ? 0 : x / divisor;
}

static void check_lookup(struct ps_table *t, const struct call *c, uint64_t *rng)
{
    static float out[BAGS * DIM], row[DIM];
    struct ps_table_lookup l = {.in.keys = c->keys,
                                .in.key_count = c->key_count,
                                .in.offsets = c->offsets,
                                .in.bag_count = BAGS,
                                .in.is_single = c->is_single,
                                .in.weights = c->has_weights ? c->weights : NULL,
                                .in.divisors = c->has_divisors ? c->divisors : NULL,
                                .insert = true,
                                .out = out};
    memset(out, 0xff, sizeof(out));
    for (bool whole = false; !whole;) {
        uint64_t budget_bytes = 1 + random_below(rng, 40000);
        whole = ps_table_lookup_step(t, &l, &budget_bytes);
    }
    for (uint32_t b = 0; b < BAGS; b++) {
        float sum[DIM] = {0};
        for (uint32_t i = c->offsets[b]; i < c->offsets[b + 1]; i++) {
            table_lookup(t, &c->keys[i], 1, false, row);
            for (uint32_t d = 0; d < DIM; d++)
                sum[d] += c->has_weights ? row[d] * c->weights[i] : row[d];
        }
        for (uint32_t d = 0; d < DIM; d++)
            sum[d] = c->pooling != MR_POOL_SUM ? over(sum[d], divisor_of(c, b)) : sum[d];
        assert_memory_equal(out + b * DIM, sum, sizeof(sum));
    }
}

static void table_bags_push(struct ps_table *t, const struct call *c, uint64_t *rng)
{
    bool is_plain = c->dtype == MR_F32;
    struct ps_table_push p = {.in.keys = c->keys,
                              .in.key_count = c->key_count,
                              .in.offsets = c->offsets,
                              .in.bag_count = BAGS,
                              .in.is_single = c->is_single,
                              .gradients_dtype = c->dtype,
                              .gradients = is_plain ? (const void *)c->gradients : c->pushed,
                              .gradient_scales = c->dtype == MR_I8 ? c->scales : NULL,
                              .in.weights = c->has_weights ? c->weights : NULL,
                              .in.divisors = c->has_divisors ? c->divisors : NULL,
                              .excluded = c->excluded};
    for (bool whole = false; !whole;) {
        uint64_t budget_bytes = 1 + random_below(rng, 40000);
        whole = ps_table_push_step(t, &p, &budget_bytes);
    }
}

static bool is_left_out(const struct call *c, uint64_t key)
{
    uint32_t partition = mr_partition_of(mr_key_hash(key, 0));
    return c->excluded != NULL && (c->excluded[partition / 64] >> (partition % 64) & 1) != 0;
}

/* The same by hand: a gradient per key. */
static void push_plainly(struct ps_table *t, const struct call *c)
{
    static float gradients[KEYS_MAX * DIM];
    static uint64_t keys[KEYS_MAX];
    uint32_t count = 0;
    for (uint32_t b = 0; b < BAGS; b++)
        for (uint32_t i = c->offsets[b]; i < c->offsets[b + 1]; i++) {
            if (is_left_out(c, c->keys[i]))
                continue;
            for (uint32_t d = 0; d < DIM; d++) {
                float g = c->gradients[b * DIM + d];
                g = c->pooling != MR_POOL_SUM ? over(g, divisor_of(c, b)) : g;
                gradients[count * DIM + d] = c->has_weights ? g * c->weights[i] : g;
            }
            keys[count++] = c->keys[i];
        }
    table_push(t, keys, count, gradients);
}

static void table_bags_check(uint32_t pooling, enum mr_dtype dtype, bool has_weights, bool has_divisors,
                             uint64_t *rng)
{
    static struct call c;
    static uint64_t excluded[MR_PARTITION_COUNT / 64];
    struct mr_feature f = fixture_adagrad(DIM);
    f.pooling = pooling;
    f.seed = 0;
    struct ps_table *t = fixture_table(&f, fixture_arena), *plain = fixture_table(&f, fixture_arena);
    static float a[UNIVERSE * DIM], b[UNIVERSE * DIM];
    uint64_t keys[UNIVERSE];
    for (uint32_t i = 0; i < UNIVERSE; i++)
        keys[i] = i;
    table_lookup(t, keys, UNIVERSE, true, a);
    table_lookup(plain, keys, UNIVERSE, true, b);
    for (uint32_t round = 0; round < 6; round++) {
        c = (struct call){.pooling = pooling,
                          .dtype = dtype,
                          .has_weights = has_weights,
                          .is_single = round % 2 == 1,
                          .has_divisors = has_divisors && pooling != MR_POOL_SUM};
        make_call(&c, rng);
        for (uint32_t i = 0; i < MR_PARTITION_COUNT / 64; i++)
            excluded[i] = random_next(rng);
        c.excluded = round >= 4 ? excluded : NULL;
        check_lookup(t, &c, rng);
        table_bags_push(t, &c, rng);
        push_plainly(plain, &c);
        table_lookup(t, keys, UNIVERSE, false, a);
        table_lookup(plain, keys, UNIVERSE, false, b);
        assert_memory_equal(a, b, sizeof(a));
        assert_int_equal(ps_table_counters(t)->updates, ps_table_counters(plain)->updates);
    }
    ps_table_destroy(t);
    ps_table_destroy(plain);
}

TEST(test_bags_against_single_keys, fixture_arena_create, fixture_arena_destroy)
{
    static const uint32_t poolings[] = {MR_POOL_SUM, MR_POOL_MEAN, MR_POOL_SQRTN};
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    uint64_t rng = fixture_seed("table_bags");
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t d = 0; d < 4; d++)
            for (uint32_t options = 0; options < 4; options++)
                table_bags_check(poolings[p], dtypes[d], (options & 1) != 0, (options & 2) != 0, &rng);
}

/* A sum begins with 0, to which -0 adds nothing. */
TEST(test_single_keys_are_summed, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.initializer = MR_INIT_CONSTANT;
    f.init_a = -0.0f;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint64_t keys[BAGS], budget_bytes = UINT64_MAX;
    uint32_t offsets[BAGS + 1];
    static float out[BAGS * DIM];
    for (uint32_t b = 0; b <= BAGS; b++)
        offsets[b] = b;
    for (uint32_t b = 0; b < BAGS; b++)
        keys[b] = b / 2;
    struct ps_table_lookup l = {
        .in = {.keys = keys, .key_count = BAGS, .offsets = offsets, .bag_count = BAGS, .is_single = true},
        .insert = true,
        .out = out};
    assert_true(ps_table_lookup_step(t, &l, &budget_bytes));
    for (uint32_t i = 0; i < BAGS * DIM; i++)
        assert_true(out[i] == 0 && !signbit(out[i]));
    ps_table_destroy(t);
}

TEST(test_divisors)
{
    static const float weights[4] = {1, -2, 0.5f, 4};
    assert_true(mr_bag_divisor(MR_POOL_SUM, weights, 4) == 1);
    assert_true(mr_bag_divisor(MR_POOL_MEAN, weights, 4) == 3.5f);
    assert_true(mr_bag_divisor(MR_POOL_SQRTN, weights, 4) == sqrtf(21.25f));
    assert_true(mr_bag_divisor(MR_POOL_MEAN, NULL, 7) == 7);
    assert_true(mr_bag_divisor(MR_POOL_SQRTN, NULL, 7) == sqrtf(7));
    assert_true(mr_bag_divisor(MR_POOL_MEAN, weights, 0) == 1);
    assert_true(mr_bag_divisor(MR_POOL_MEAN, (const float[2]){1, -1}, 2) == 0);
    for (uint32_t count = 1; count < 2000; count++) { /* weights of 1 are as none */
        static float ones[2000];
        ones[count - 1] = 1;
        assert_true(mr_bag_divisor(MR_POOL_SQRTN, ones, count) == mr_bag_divisor(MR_POOL_SQRTN, NULL, count));
        assert_true(mr_bag_divisor(MR_POOL_MEAN, ones, count) == mr_bag_divisor(MR_POOL_MEAN, NULL, count));
    }
}
