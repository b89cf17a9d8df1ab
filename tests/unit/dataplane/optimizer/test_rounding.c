/* Stochastic rounding: all vector widths against one number at a time, neighbours only, finite to finite, and
 * unbiased within five standard deviations, with fixed seeds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "dataplane/optimizer/rounding.h"
#include "dataplane/wire/format/mr_feature.h"
#include "random_fixture.h"
#include "tests/test.h"

#define SEED UINT64_C(20261121)

static uint16_t round_one(bool is_f16, float x, uint32_t bits)
{
    return is_f16 ? mr_f16_round(x, bits) : mr_bf16_round(x, bits);
}

static float value(bool is_f16, uint16_t x)
{
    return is_f16 ? mr_f32_from_f16(x) : mr_f32_from_bf16(x);
}

static float largest(bool is_f16)
{
    return value(is_f16, is_f16 ? MR_F16_LARGEST_BITS : MR_BF16_LARGEST_BITS);
}

static bool same_value(float a, float b)
{
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

/* To one of the two neighbours (or the number itself), whatever the random bits. */
static void check_neighbour(bool is_f16, float x, uint32_t bits)
{
    float rounded = value(is_f16, round_one(is_f16, x, bits));
    if (!isfinite(x)) {
        assert_true(same_value(rounded, x));
        return;
    }
    assert_true(isfinite(rounded) && !signbit(rounded) == !signbit(x));
    if (fabsf(x) >= largest(is_f16)) {
        assert_true(fabsf(rounded) == largest(is_f16));
        return;
    }
    uint16_t at = round_one(is_f16, x, 0); /* towards zero */
    float low = value(is_f16, at), high = value(is_f16, (uint16_t)(at + 1));
    assert_true(fabsf(low) <= fabsf(x) && fabsf(x) < fabsf(high));
    assert_true(rounded == low || (rounded == high && x != low));
}

TEST(only_neighbours_and_nothing_infinite)
{
    static const uint32_t bits[] = {0, 1, 0x7fff, 0x8000, 0xffff};
    for (uint32_t is_f16 = 0; is_f16 < 2; is_f16++) {
        for (uint32_t i = 0; i < 1 << 20; i++)
            for (uint32_t b = 0; b < 5; b++)
                check_neighbour(is_f16 != 0, mr_f32_of_bits(i * 4099u + (i >> 7)), bits[b]);
        for (uint32_t b = 0; b < 5; b++) {
            check_neighbour(is_f16 != 0, 3.4028234e38f, bits[b]);
            check_neighbour(is_f16 != 0, INFINITY, bits[b]);
            check_neighbour(is_f16 != 0, -NAN, bits[b]);
            check_neighbour(is_f16 != 0, mr_f32_of_bits(0x7f800001), bits[b]);
            check_neighbour(is_f16 != 0, nextafterf(largest(is_f16 != 0), INFINITY), bits[b]);
        }
    }
}

TEST(numbers_of_the_type_stay)
{
    for (uint32_t x = 0; x < 65536; x++)
        for (uint32_t is_f16 = 0; is_f16 < 2; is_f16++) {
            float in = value(is_f16 != 0, (uint16_t)x);
            if (!isnan(in)) {
                assert_int_equal(round_one(is_f16 != 0, in, 0), x);
                assert_int_equal(round_one(is_f16 != 0, in, 0xffff), x);
            }
        }
}

/* The kernels' rows: read, summed, rounded; odd places and dims. */
static void check_kernels(bool is_f16, size_t dim, uint64_t seed)
{
    enum { ROWS = 5, DIM_MAX = 140 };
    static uint16_t stored[ROWS * DIM_MAX + 1], rounded[ROWS * DIM_MAX + 1];
    static float values[ROWS * DIM_MAX], out[ROWS * DIM_MAX], sum[DIM_MAX], weighted[DIM_MAX], weights[ROWS];
    uint64_t seeds[ROWS];
    const void *rows[ROWS];
    void *targets[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) {
        rows[r] = stored + 1 + r * dim;
        targets[r] = rounded + 1 + r * dim;
        seeds[r] = random_next(&seed);
        for (size_t i = 0; i < dim; i++) {
            stored[1 + r * dim + i] = (uint16_t)random_next(&seed) & (is_f16 ? 0xbbff : 0xbf7f); /* below 2 */
            values[r * dim + i] = mr_f32_of_bits((uint32_t)random_next(&seed));
        }
    }
    const struct mr_kernels *k;
    for (uint32_t n = 0; (k = mr_kernels_at(n)) != NULL; n++) {
        const struct mr_half_kernels *half = is_f16 ? k->f16 : k->bf16;
        for (size_t i = 0; i < dim; i++)
            sum[i] = (float)i;
        half->copy_rows(out, rows, ROWS, dim);
        half->add_rows(sum, rows, ROWS, dim);
        for (uint32_t r = 0; r < ROWS; r++)
            weights[r] = 0.3f * (float)r;
        for (size_t i = 0; i < dim; i++)
            weighted[i] = (float)i;
        half->add_weighted_rows(weighted, rows, weights, ROWS, dim);
        half->round_rows(targets, values, seeds, ROWS, dim);
        for (uint32_t r = 0; r < ROWS; r++)
            for (size_t i = 0; i < dim; i++) {
                assert_true(same_value(out[r * dim + i], value(is_f16, stored[1 + r * dim + i])));
                assert_int_equal(
                    rounded[1 + r * dim + i],
                    round_one(is_f16, values[r * dim + i], mr_rounding_bits(seeds[r], (uint32_t)i)));
            }
        for (size_t i = 0; i < dim; i++) {
            volatile float expected = (float)i, expected_weighted = (float)i;
            for (uint32_t r = 0; r < ROWS; r++) {
                volatile float product = weights[r] * value(is_f16, stored[1 + r * dim + i]);
                expected = expected + value(is_f16, stored[1 + r * dim + i]);
                expected_weighted = expected_weighted + product;
            }
            assert_true(sum[i] == expected);
            assert_true(weighted[i] == expected_weighted);
        }
    }
}

TEST(every_width_gives_the_same)
{
    uint64_t seed = SEED;
    for (size_t dim = 1; dim <= 140; dim++)
        for (uint32_t turn = 0; turn < 5; turn++) {
            check_kernels(false, dim, random_next(&seed));
            check_kernels(true, dim, random_next(&seed));
        }
}

/* Ups among `trials` of probability p, within five standard deviations: one good generator in two million
 * fails. */
static void check_share(const char *what, uint64_t ups, uint64_t trials, double p)
{
    double n = (double)trials, deviation = ((double)ups - n * p) / sqrt(n * p * (1 - p));
    if (fabs(deviation) > 5)
        fail_msg("%s: %.0f of %.0f with p = %g are %.1f standard deviations off", what, (double)ups, n, p,
                 deviation);
}

#define KEYS     64u
#define UPDATES  64u
#define ELEMENTS 64u

static bool up(uint64_t key, uint32_t updates, uint32_t element, double p)
{
    uint64_t seed = mr_rounding_seed(mr_key_hash(key, 7), updates);
    return mr_rounding_bits(seed, element) < p * 65536;
}

/* Neighbours in keys, in updates and in elements are independent of each other. */
TEST(ups_are_as_likely_as_they_should_be)
{
    static const double shares[] = {0x1p-8, 0.125, 0.5, 0.8125};
    for (uint32_t s = 0; s < 4; s++) {
        uint64_t ups = 0, with_key = 0, with_update = 0, with_element = 0;
        double p = shares[s];
        for (uint64_t key = 0; key < KEYS; key++)
            for (uint32_t u = 0; u < UPDATES; u++)
                for (uint32_t e = 0; e < ELEMENTS; e++) {
                    if (!up(key, u, e, p))
                        continue;
                    ups++;
                    with_key += up(key + 1, u, e, p);
                    with_update += up(key, u + 1, e, p);
                    with_element += up(key, u, e + 1, p);
                }
        uint64_t trials = (uint64_t)KEYS * UPDATES * ELEMENTS;
        check_share("ups", ups, trials, p);
        check_share("ups of neighbouring keys", with_key, trials, p * p);
        check_share("ups of consecutive updates", with_update, trials, p * p);
        check_share("ups of neighbouring elements", with_element, trials, p * p);
    }
}

/* x between two neighbours goes up as often as its place between them says: also among f16's denormals, and
 * negative. */
TEST(rounding_is_unbiased)
{
    static const float between[] = {1.00390625f, 0x1.002p0f,     -3.1415927f, 1e-3f,
                                    0x1.8p-24f,  -0x1.2345p-20f, 60001.0f};
    for (uint32_t is_f16 = 0; is_f16 < 2; is_f16++)
        for (uint32_t b = 0; b < sizeof(between) / sizeof(between[0]); b++) {
            float x = between[b];
            uint16_t at = round_one(is_f16 != 0, x, 0);
            double low = (double)value(is_f16 != 0, at),
                   high = (double)value(is_f16 != 0, (uint16_t)(at + 1));
            double p = ((double)x - low) / (high - low);
            uint64_t ups = 0, trials = 0;
            for (uint64_t key = 0; key < 256; key++)
                for (uint32_t e = 0; e < 256; e++, trials++)
                    ups += round_one(is_f16 != 0, x,
                                     mr_rounding_bits(mr_rounding_seed(mr_key_hash(key, SEED), 3), e)) != at;
            if (p == 0)
                assert_int_equal(ups, 0);
            else
                check_share("a number between two", ups, trials, p);
        }
}
