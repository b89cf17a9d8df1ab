/* All vector widths that this processor runs, against each other, bit for bit; and the widest against plain
 * loops. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "random_fixture.h"
#include "tests/test.h"

#define ROWS 5u

struct data {
    size_t dim;
    float *memory;
    float *rows[ROWS];
    const float *gradients[ROWS];
    float *out;
    size_t floats;
};

static void data_make(struct data *d, size_t dim, uint64_t seed)
{
    d->dim = dim;
    d->floats = (ROWS * 4) * dim + 1;
    d->memory = malloc(d->floats * sizeof(float));
    assert_non_null(d->memory);
    for (size_t i = 0; i < d->floats; i++)
        d->memory[i] = random_float(&seed) * (i % 7 == 0 ? 1e-3f : 3.0f);
    float *at = d->memory + 1; /* aligned to a float and no more */
    for (uint32_t r = 0; r < ROWS; r++) {
        d->rows[r] = at + r * 2 * dim;
        d->gradients[r] = at + (ROWS * 2 + r) * dim;
    }
    d->out = at + ROWS * 3 * dim;
}

static void run_all(const struct mr_kernels *k, struct data *d)
{
    const void *const *rows = (const void *const *)d->rows;
    k->add_rows(d->out, rows, ROWS, d->dim);
    k->add_rows(d->out, rows, 0, d->dim);
    k->add_weighted_rows(d->out, rows, d->gradients[1], d->dim < ROWS ? 1 : ROWS, d->dim);
    k->scale(d->out, d->out, 1.7f, d->dim);
    k->divide(d->out, d->out, 3.0f, d->dim);
    assert_true(k->add_finite(d->out, d->gradients[0], d->dim));
    k->copy_rows(d->out, rows, ROWS / 2, d->dim);
    k->copy_sums(d->out + ROWS / 2 * d->dim, rows + ROWS / 2, ROWS - ROWS / 2, d->dim);
}

TEST(test_all_widths_give_the_same_bits)
{
    uint64_t seed = fixture_seed("widths");
    for (size_t dim = 1; dim <= 1024; dim += dim < 70 ? 1 : 53) {
        struct data reference;
        data_make(&reference, dim, seed + dim);
        run_all(mr_kernels_at(0), &reference);
        for (uint32_t i = 1; mr_kernels_at(i) != NULL; i++) {
            struct data d;
            data_make(&d, dim, seed + dim);
            run_all(mr_kernels_at(i), &d);
            assert_memory_equal(d.memory, reference.memory, d.floats * sizeof(float));
            free(d.memory);
        }
        free(reference.memory);
    }
}

/* NaN and the sign of 0 are copied, too; of a sum that begins with 0 only the latter is lost. */
TEST(test_copies_differ_from_sums_in_the_sign_of_0)
{
    static const float from[] = {-0.0f, 0.0f, 1.5f, -1e-45f, INFINITY, -INFINITY, -0.0f};
    for (uint32_t set = 0; mr_kernels_at(set) != NULL; set++)
        for (size_t dim = 1; dim < 40; dim++) {
            float row[40], copy[40], sum[40];
            const void *rows[] = {row};
            for (size_t i = 0; i < dim; i++)
                row[i] = from[i % 7];
            mr_kernels_at(set)->copy_rows(copy, rows, 1, dim);
            mr_kernels_at(set)->copy_sums(sum, rows, 1, dim);
            assert_memory_equal(copy, row, dim * sizeof(float));
            for (size_t i = 0; i < dim; i++) {
                assert_true(sum[i] == row[i]);
                assert_true(sum[i] != 0 || !signbit(sum[i]));
            }
        }
}

TEST(test_there_is_always_a_baseline)
{
    uint32_t count = 0;
    while (mr_kernels_at(count) != NULL)
        count++;
    assert_int_in_range(count, 1, 3);
    assert_string_equal(mr_kernels_at(count - 1)->name, "baseline");
    assert_ptr_equal(mr_kernels_best(), mr_kernels_at(0));
}

TEST(test_rows_are_copied_and_summed_in_order)
{
    uint64_t seed = fixture_seed("sums");
    for (size_t dim = 1; dim < 40; dim++) {
        struct data d;
        data_make(&d, dim, seed);
        float *copy = malloc(ROWS * dim * sizeof(float)), *sum = calloc(dim, sizeof(float));
        const void *const *rows = (const void *const *)d.rows;
        mr_kernels_best()->copy_rows(copy, rows, ROWS, dim);
        mr_kernels_best()->add_rows(sum, rows, ROWS, dim);
        for (size_t i = 0; i < dim; i++) {
            float expected = 0;
            for (uint32_t r = 0; r < ROWS; r++) {
                assert_true(copy[r * dim + i] == d.rows[r][i]);
                expected += d.rows[r][i];
            }
            assert_true(sum[i] == expected);
        }
        free(copy);
        free(sum);
        free(d.memory);
    }
}

TEST(test_nan_and_infinity_are_seen_at_every_place)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[67], out[67];
    for (uint32_t k = 0; mr_kernels_at(k) != NULL; k++) {
        const struct mr_kernels *kernels = mr_kernels_at(k);
        for (size_t dim = 1; dim <= 67; dim++) {
            for (size_t i = 0; i < dim; i++)
                x[i] = i % 2 == 0 ? FLT_MAX : -FLT_MIN;
            memset(out, 0, sizeof(out));
            assert_true(kernels->all_finite(x, dim));
            for (size_t at = 0; at < dim; at++) {
                float good = x[at];
                x[at] = bad[at % 3];
                assert_false(kernels->all_finite(x, dim));
                assert_false(kernels->add_finite(out, x, dim));
                assert_true(out[0] == 0 && out[dim - 1] == 0);
                x[at] = good;
            }
        }
    }
}

/* Sums that build on each other, up to the first bad one. */
TEST(test_pairs_are_added_until_a_sum_is_bad)
{
    uint64_t seed = fixture_seed("pairs");
    for (uint32_t k = 0; mr_kernels_at(k) != NULL; k++)
        for (size_t dim = 1; dim <= 67; dim++) {
            struct data d;
            data_make(&d, dim, seed);
            float *outs[3] = {d.rows[0], d.out, d.out}, expected[67];
            const float *before[3] = {d.rows[0], d.rows[0], d.out};
            for (size_t i = 0; i < dim; i++)
                expected[i] = d.rows[0][i] + d.gradients[0][i] + d.gradients[1][i] + d.gradients[2][i];
            assert_int_equal(mr_kernels_at(k)->add_pairs(outs, before, d.gradients, 3, dim), 3);
            assert_memory_equal(d.out, expected, dim * sizeof(float));
            d.rows[1][dim - 1] = INFINITY;
            before[1] = d.rows[1];
            assert_int_equal(mr_kernels_at(k)->add_pairs(outs, before, d.gradients, 3, dim), 1);
            assert_memory_equal(d.out, expected, dim * sizeof(float));
            d.rows[0][0] = FLT_MAX;
            d.rows[2][0] = FLT_MAX;
            before[0] = d.rows[2];
            assert_int_equal(
                mr_kernels_at(k)->add_pairs(outs, before, (const float *const[]){d.rows[0]}, 1, dim), 0);
            free(d.memory);
        }
}
