/* Splitting and joining against plain loops over random keys and bags. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "trainer_client/api/shard.h"

enum { CORES = 5, KEYS = 500, BAGS = 120, DIM = 3, ROUNDS = 50 };

static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* One round's input, and room for every core's part of it. */
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

/* Finds the owners, and points their shares to the round's room. */
static void split(struct round *r, struct mrc_shard *s, uint64_t seed, bool with_bags)
{
    assert_true(mrc_shard_keys(s, r->owners, CORES, seed, r->keys, r->key_count, with_bags));
    for (uint32_t c = 0; c < CORES; c++) {
        s->shares[c].keys = r->core_keys[c];
        s->shares[c].offsets = r->core_offsets[c];
        s->shares[c].rows = mrc_rows_f32(r->core_rows[c]);
    }
}

static uint16_t owner(const struct round *r, uint64_t seed, uint64_t key)
{
    return r->owners[mr_key_hash(key, seed) >> 52];
}

static float value(uint64_t key, uint32_t d)
{
    return (float)key + 0.125f * (float)d;
}

static void test_keys(void **state)
{
    static struct round r;
    static float rows[KEYS * DIM], joined[KEYS * DIM];
    for (uint32_t n = 0; n < ROUNDS; n++) {
        struct mrc_shard s;
        uint64_t seed = next_random();
        uint32_t total = 0, next[CORES] = {0}, with_keys = 0, last = 0, last_with_keys = 0;
        make_round(&r);
        split(&r, &s, seed, false);
        mrc_shard_split_keys(&s, r.keys);
        for (uint32_t i = 0; i < r.key_count; i++) {
            uint16_t c = owner(&r, seed, r.keys[i]);
            assert_int_equal(r.core_keys[c][next[c]], r.keys[i]);
            next[c]++;
            for (uint32_t d = 0; d < DIM; d++)
                rows[i * DIM + d] = value(r.keys[i], d);
        }
        for (uint32_t c = 0; c < CORES; c++) {
            assert_int_equal(s.shares[c].key_count, next[c]);
            total += next[c];
            with_keys += next[c] > 0;
            last_with_keys = next[c] > 0 ? c : last_with_keys;
        }
        assert_int_equal(total, r.key_count);
        assert_int_equal(mrc_shard_owners(&s, &last), with_keys);
        assert_int_equal(last, last_with_keys);
        struct mrc_rows from = mrc_rows_f32(rows);

        mrc_shard_split_rows(&s, &from, DIM);
        for (uint32_t c = 0; c < CORES; c++)
            for (uint32_t i = 0; i < next[c]; i++)
                assert_true(r.core_rows[c][i * DIM + 1] == value(r.core_keys[c][i], 1));
        mrc_shard_join_rows(&s, DIM, joined);
        assert_memory_equal(joined, rows, r.key_count * DIM * sizeof(float));
        free(s.memory);
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
    float divisors[BAGS], core_divisors[CORES][BAGS], scratch[DIM];
    struct mrc_shard s;
    make_round(&r);
    for (uint32_t i = 0; i < KEYS; i++)
        weights[i] = (float)(i % 5) * 0.25f + 0.5f;
    split(&r, &s, 1, true);
    for (uint32_t c = 0; c < CORES; c++)
        s.shares[c].weights = core_weights[c];
    mrc_shard_bags(&s, r.offsets, r.bag_count);
    mrc_shard_split_bags(&s, r.keys, r.offsets, r.bag_count);
    mrc_shard_split_weights(&s, weights);
    mrc_divisors(pooling, weights, r.offsets, r.bag_count, divisors);
    memset(got, 0, sizeof(got));
    for (uint32_t c = 0; c < CORES; c++) {
        const uint32_t bags = s.shares[c].bag_count;
        float again[BAGS];
        if (s.shares[c].key_count == 0)
            continue;
        assert_int_equal(r.core_offsets[c][0], 0);
        assert_int_equal(r.core_offsets[c][bags], s.shares[c].key_count);
        for (uint32_t b = 0; b < bags; b++)
            assert_true(r.core_offsets[c][b] < r.core_offsets[c][b + 1]); /* no empty ones */
        mrc_shard_divisors(&s, c, pooling, weights, r.offsets, core_divisors[c]);
        mrc_shard_split_bag_floats(&s, c, divisors, again);
        assert_memory_equal(core_divisors[c], again, bags * sizeof(float));
        reduce(r.core_keys[c], r.core_offsets[c], bags, core_weights[c], core_divisors[c], r.core_rows[c]);
        mrc_shard_add_bag_rows(&s, c, DIM, scratch, got);
    }
    reduce(r.keys, r.offsets, r.bag_count, weights, divisors, expected);
    for (uint32_t i = 0; i < r.bag_count * DIM; i++)
        assert_true(fabsf(got[i] - expected[i]) <= 1e-4f * (1.0f + fabsf(expected[i])));

    /* A bag's gradient, split and spread by each core, gives each key the bits that it would have got
     * undivided. */
    float gradients[BAGS * DIM], whole[40][DIM] = {{0}}, shared[40][DIM] = {{0}};
    const struct mrc_rows from = mrc_rows_f32(gradients);

    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = (float)(i % 17) - 8.0f;
    spread(r.keys, r.offsets, r.bag_count, weights, divisors, gradients, whole);
    for (uint32_t c = 0; c < CORES; c++) {
        mrc_shard_split_bag_rows(&s, c, &from, DIM);
        spread(r.core_keys[c], r.core_offsets[c], s.shares[c].bag_count, core_weights[c], core_divisors[c],
               r.core_rows[c], shared);
    }
    assert_memory_equal(whole, shared, sizeof(whole));
    free(s.memory);
}

static void test_bags(void **state)
{
    for (uint32_t n = 0; n < ROUNDS; n++) {
        check_bags(MR_POOL_SUM);
        check_bags(MR_POOL_MEAN);
        check_bags(MR_POOL_SQRTN);
    }
}

static void test_csr(void **state)
{
    static struct round r;
    for (uint32_t n = 0; n < ROUNDS; n++) {
        struct mrc_shard s;
        make_round(&r);
        split(&r, &s, 9, false);
        mrc_shard_split_csr(&s, r.keys, r.offsets, r.bag_count);
        for (uint32_t c = 0; c < CORES; c++) {
            uint32_t at = 0;
            for (uint32_t b = 0; b < r.bag_count; b++) {
                assert_int_equal(r.core_offsets[c][b], at);
                for (uint32_t i = r.offsets[b]; i < r.offsets[b + 1]; i++)
                    if (owner(&r, 9, r.keys[i]) == c)
                        assert_int_equal(r.core_keys[c][at++], r.keys[i]);
            }
            assert_int_equal(r.core_offsets[c][r.bag_count], at);
            assert_int_equal(s.shares[c].key_count, at);
        }
        free(s.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_bags),
        cmocka_unit_test(test_csr),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
