/* Splitting and joining against plain loops over random keys and bags. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "trainer_client/shard.h"

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
    uint8_t partition_core[MR_PARTITION_COUNT];
    uint64_t keys[KEYS];
    uint32_t key_count, bag_count;
    uint32_t offsets[BAGS + 1];
    uint64_t core_keys[CORES][KEYS];
    uint32_t core_offsets[CORES][BAGS + 1];
    float core_rows[CORES][KEYS * DIM];
    uint64_t *keys_out[CORES];
    uint32_t *offsets_out[CORES];
    float *rows_out[CORES];
};

static void make_round(struct round *r)
{
    memset(r, 0, sizeof *r);
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        r->partition_core[p] = (uint8_t)(next_random() % CORES);
    r->bag_count = (uint32_t)(next_random() % (BAGS + 1));
    for (uint32_t b = 0; b < r->bag_count; b++) {
        uint32_t n = (uint32_t)(next_random() % 5);

        for (uint32_t i = 0; i < n && r->key_count < KEYS; i++)
            r->keys[r->key_count++] = next_random() % 40; /* repeats, in a bag, too */
        r->offsets[b + 1] = r->key_count;
    }
    for (uint32_t c = 0; c < CORES; c++) {
        r->keys_out[c] = r->core_keys[c];
        r->offsets_out[c] = r->core_offsets[c];
        r->rows_out[c] = r->core_rows[c];
    }
}

static uint8_t owner(const struct round *r, uint64_t seed, uint64_t key)
{
    return r->partition_core[mr_key_hash(key, seed) >> 52];
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
        uint32_t total = 0, next[CORES] = {0};

        make_round(&r);
        assert_true(mrc_shard_keys(&s, r.partition_core, seed, r.keys, r.key_count, false));
        mrc_shard_split_keys(&s, r.keys, r.keys_out);
        for (uint32_t i = 0; i < r.key_count; i++) {
            uint8_t c = owner(&r, seed, r.keys[i]);

            assert_int_equal(r.core_keys[c][next[c]], r.keys[i]);
            next[c]++;
            for (uint32_t d = 0; d < DIM; d++)
                rows[i * DIM + d] = value(r.keys[i], d);
        }
        for (uint32_t c = 0; c < CORES; c++) {
            assert_int_equal(s.keys[c], next[c]);
            total += s.keys[c];
        }
        assert_int_equal(total, r.key_count);
        mrc_shard_split_rows(&s, rows, DIM, r.rows_out);
        for (uint32_t c = 0; c < CORES; c++) {
            for (uint32_t i = 0; i < s.keys[c]; i++)
                assert_true(r.core_rows[c][i * DIM + 1] == value(r.core_keys[c][i], 1));
        }
        mrc_shard_join_rows(&s, (const float *const *)r.rows_out, DIM, joined);
        assert_memory_equal(joined, rows, r.key_count * DIM * sizeof(float));
        free(s.memory);
    }
}

static float factor(uint32_t pooling, uint32_t keys)
{
    if (pooling == MR_POOL_MEAN)
        return 1.0f / (float)keys;
    return pooling == MR_POOL_SQRTN ? 1.0f / sqrtf((float)keys) : 1.0f;
}

static void reduce(uint32_t pooling, const uint64_t *keys, const uint32_t *offsets, uint32_t bags, float *out)
{
    memset(out, 0, bags * DIM * sizeof(float));
    for (uint32_t b = 0; b < bags; b++) {
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
            for (uint32_t d = 0; d < DIM; d++)
                out[b * DIM + d] += value(keys[i], d) * factor(pooling, offsets[b + 1] - offsets[b]);
        }
    }
}

static void check_bags(uint32_t pooling)
{
    static struct round r;
    static float expected[BAGS * DIM], got[BAGS * DIM];
    struct mrc_shard s;

    make_round(&r);
    assert_true(mrc_shard_keys(&s, r.partition_core, 1, r.keys, r.key_count, true));
    mrc_shard_bags(&s, r.offsets, r.bag_count);
    mrc_shard_split_bags(&s, pooling, r.keys, r.offsets, r.bag_count, r.keys_out, r.offsets_out);
    memset(got, 0, sizeof got);
    for (uint32_t c = 0; c < CORES; c++) {
        if (s.keys[c] == 0)
            continue;
        assert_int_equal(r.core_offsets[c][0], 0);
        assert_int_equal(r.core_offsets[c][s.bags[c]], s.keys[c]);
        for (uint32_t b = 0; b < s.bags[c]; b++)
            assert_true(r.core_offsets[c][b] < r.core_offsets[c][b + 1]); /* no empty ones */
        reduce(pooling, r.core_keys[c], r.core_offsets[c], s.bags[c], r.core_rows[c]);
        mrc_shard_add_bag_rows(&s, c, r.core_rows[c], DIM, got);
    }
    reduce(pooling, r.keys, r.offsets, r.bag_count, expected);
    for (uint32_t i = 0; i < r.bag_count * DIM; i++)
        assert_true(fabsf(got[i] - expected[i]) <= 1e-4f * (1.0f + fabsf(expected[i])));

    /* A bag's gradient, split and spread by each core, gives each key what it would have got undivided. */
    float gradients[BAGS * DIM], whole[40][DIM] = {{0}}, split[40][DIM] = {{0}};

    for (uint32_t i = 0; i < BAGS * DIM; i++)
        gradients[i] = (float)(i % 17) - 8.0f;
    for (uint32_t b = 0; b < r.bag_count; b++) {
        for (uint32_t i = r.offsets[b]; i < r.offsets[b + 1]; i++) {
            for (uint32_t d = 0; d < DIM; d++)
                whole[r.keys[i]][d] +=
                    gradients[b * DIM + d] * factor(pooling, r.offsets[b + 1] - r.offsets[b]);
        }
    }
    for (uint32_t c = 0; c < CORES; c++) {
        const uint32_t *offsets = r.core_offsets[c];

        mrc_shard_split_bag_rows(&s, c, gradients, DIM, r.core_rows[c]);
        for (uint32_t b = 0; b < s.bags[c]; b++) {
            for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
                for (uint32_t d = 0; d < DIM; d++)
                    split[r.core_keys[c][i]][d] +=
                        r.core_rows[c][b * DIM + d] * factor(pooling, offsets[b + 1] - offsets[b]);
            }
        }
    }
    for (uint32_t k = 0; k < 40; k++) {
        for (uint32_t d = 0; d < DIM; d++)
            assert_true(fabsf(whole[k][d] - split[k][d]) <= 1e-3f);
    }
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
        assert_true(mrc_shard_keys(&s, r.partition_core, 9, r.keys, r.key_count, false));
        mrc_shard_split_csr(&s, r.keys, r.offsets, r.bag_count, r.keys_out, r.offsets_out, CORES);
        for (uint32_t c = 0; c < CORES; c++) {
            uint32_t at = 0;

            for (uint32_t b = 0; b < r.bag_count; b++) {
                assert_int_equal(r.core_offsets[c][b], at);
                for (uint32_t i = r.offsets[b]; i < r.offsets[b + 1]; i++) {
                    if (owner(&r, 9, r.keys[i]) == c)
                        assert_int_equal(r.core_keys[c][at++], r.keys[i]);
                }
            }
            assert_int_equal(r.core_offsets[c][r.bag_count], at);
            assert_int_equal(s.keys[c], at);
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
