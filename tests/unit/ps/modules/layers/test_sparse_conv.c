/* The loops of every vector set next to plain ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "layers_fixture.h"
#include "ps/modules/layers/elementwise.h"
#include "ps/modules/layers/sparse_conv.h"
#include "ps/modules/layers/vector_sets.h"
#include "tests/test.h"

#define SETS 3u

static const uint32_t blocks[] = {8, 16};

static float *drawn_floats(uint64_t stream, size_t count)
{
    float *out = zeros(count, sizeof(*out));
    for (size_t i = 0; i < count; i++)
        out[i] = drawn(stream, i);
    return out;
}

/* Sizes that fill no vector, windows that overlap, and equals: the first counts. */
static void check_pool(const struct ps_pool *p, uint32_t block)
{
    const uint32_t count = p->out_height * p->out_width;
    float *plane = drawn_floats(1, (size_t)p->height * p->width * block),
          *out = zeros((size_t)block * count, sizeof(float));
    uint16_t *places = zeros((size_t)block * count, sizeof(*places));
    for (size_t i = 0; i < (size_t)p->height * p->width * block; i++)
        plane[i] = rintf(plane[i] * 4);
    ps_pool_plane(p, plane, block, out, places);
    for (uint32_t c = 0; c < block; c++)
        for (uint32_t o = 0; o < count; o++) {
            uint32_t y = o / p->out_width * p->stride[0], x = o % p->out_width * p->stride[1], place = 0;
            float most = -INFINITY;
            for (uint32_t k = 0; k < p->kernel[0] * p->kernel[1]; k++) {
                uint32_t row = y + k / p->kernel[1], column = x + k % p->kernel[1];
                float v = plane[(row * p->width + column) * block + c];
                if (v > most) {
                    most = v;
                    place = row * p->pitch + column;
                }
            }
            assert_true(out[c * count + o] == most);
            assert_int_equal(places[c * count + o], place);
        }
    free(plane);
    free(out);
    free(places);
}

TEST(test_pool)
{
    static const struct ps_pool pools[] = {{8, 6, 4, 3, {2, 2}, {2, 2}, 9},
                                           {24, 24, 12, 12, {2, 2}, {2, 2}, 26},
                                           {7, 9, 3, 7, {3, 3}, {2, 1}, 11},
                                           {1, 1, 1, 1, {1, 1}, {1, 1}, 3}};
    for (uint32_t set = 0; set < SETS; set++)
        for (size_t b = 0; b < COUNT_OF(blocks); b++)
            for (size_t i = 0; i < COUNT_OF(pools); i++) {
                ps_vector_set_limit(set);
                check_pool(&pools[i], blocks[b]);
            }
}

#define GRADIENTS 61u

TEST(test_take)
{
    float gradients[GRADIENTS], outputs[GRADIENTS], values[GRADIENTS + PS_SPARSE_ROOM];
    uint16_t places[GRADIENTS];
    uint32_t at[GRADIENTS + PS_SPARSE_ROOM];
    for (uint32_t set = 0; set < SETS; set++)
        for (uint32_t count = 0; count <= GRADIENTS; count++) {
            struct ps_sparse s = {.at = at, .values = values};
            uint32_t left = 0;
            ps_vector_set_limit(set);
            for (uint32_t i = 0; i < count; i++) {
                gradients[i] = drawn(count, i) < -0.3f ? 0 : drawn(count + 100, i);
                outputs[i] = drawn(count + 200, i);
                places[i] = (uint16_t)(65535 - i);
            }
            ps_sparse_take(&s, gradients, outputs, places, count, 16);
            for (uint32_t i = 0; i < count; i++)
                if (gradients[i] != 0 && outputs[i] > 0) {
                    assert_true(left < s.count);
                    assert_int_equal(s.at[left], places[i] * 16u);
                    assert_true(s.values[left++] == gradients[i]);
                }
            assert_int_equal(s.count, left);
        }
}

#define HEIGHT 7u
#define WIDTH  6u

static void check_window(uint32_t block)
{
    const size_t floats = (size_t)HEIGHT * WIDTH * block;
    uint32_t at[] = {0, block, 2 * WIDTH * block, (2 * WIDTH + 1) * block, (4 * WIDTH + 3) * block},
             row = WIDTH * block;
    float values[] = {0.5f, -1, 0.25f, 2, -0.75f};
    const struct ps_sparse s = {COUNT_OF(at), at, values};
    float *plane = drawn_floats(1, floats), *weights = drawn_floats(2, PS_SPARSE_WINDOW * block);
    double *plane_expected = zeros(floats, sizeof(double)),
           *weights_expected = zeros(PS_SPARSE_WINDOW * block, sizeof(double));
    for (size_t i = 0; i < floats; i++)
        plane_expected[i] = (double)plane[i];
    for (uint32_t i = 0; i < PS_SPARSE_WINDOW * block; i++)
        weights_expected[i] = (double)weights[i];
    for (uint32_t i = 0; i < COUNT_OF(at); i++)
        for (uint32_t k = 0; k < PS_SPARSE_WINDOW; k++)
            for (uint32_t c = 0; c < block; c++) {
                uint32_t where = at[i] + k / 3 * row + k % 3 * block + c;
                weights_expected[k * block + c] += (double)values[i] * (double)drawn(1, where);
                plane_expected[where] += (double)values[i] * (double)drawn(2, k * block + c);
            }
    float *given = drawn_floats(2, PS_SPARSE_WINDOW * block), *source = drawn_floats(1, floats);
    ps_sparse_weights(&s, source, row, block, weights);
    ps_sparse_data(&s, plane, row, block, given);
    for (uint32_t i = 0; i < PS_SPARSE_WINDOW * block; i++)
        assert_true(fabs((double)weights[i] - weights_expected[i]) < 1e-6);
    for (size_t i = 0; i < floats; i++)
        assert_true(fabs((double)plane[i] - plane_expected[i]) < 1e-6);
    free(plane);
    free(weights);
    free(plane_expected);
    free(weights_expected);
    free(given);
    free(source);
}

TEST(test_windows)
{
    for (uint32_t set = 0; set < SETS; set++)
        for (size_t b = 0; b < COUNT_OF(blocks); b++) {
            ps_vector_set_limit(set);
            check_window(blocks[b]);
        }
}

#define ELEMENTS 77u

TEST(test_elementwise)
{
    float x[SETS][ELEMENTS], gradient[SETS][ELEMENTS];
    uint8_t kept[SETS][ELEMENTS];
    for (uint32_t set = 0; set < SETS; set++) {
        ps_vector_set_limit(set);
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            x[set][i] = drawn(1, i);
            gradient[set][i] = drawn(2, i);
        }
        x[set][5] = NAN;
        ps_relu_forward(x[set], ELEMENTS);
        assert_true(isnan(x[set][5]));
        x[set][5] = 0;
        ps_relu_backward(gradient[set], x[set], ELEMENTS);
        for (uint32_t i = 0; i < ELEMENTS; i++) {
            float before = i == 5 ? 0 : drawn(1, i);
            assert_true(x[set][i] == (before > 0 ? before : 0));
            assert_true(gradient[set][i] == (before > 0 ? drawn(2, i) : 0));
        }
        ps_dropout_forward(ps_drop_key(1, 2, 3, 4), 1u << 30, 4.0f / 3, x[set], kept[set], ELEMENTS);
        ps_dropout_backward(gradient[set], kept[set], 4.0f / 3, ELEMENTS);
        assert_memory_equal(kept[set], kept[0], sizeof(kept[0]));
        assert_memory_equal(x[set], x[0], sizeof(x[0]));
        assert_memory_equal(gradient[set], gradient[0], sizeof(gradient[0]));
    }
}
