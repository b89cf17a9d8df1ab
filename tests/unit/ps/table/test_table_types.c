/* Lookups that answer in other types than f32, in steps: as the f32 answer, converted. Of tables of all
 * types. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

enum { KEYS = 700, UNIVERSE = 400, BAGS = 90, DIM_MAX = 100 };

struct call {
    uint64_t keys[KEYS];
    uint32_t offsets[BAGS + 1]; /* some bags are empty, the first and the last too */
};

static void fill_call(struct call *c, uint64_t *rng)
{
    for (uint32_t i = 0; i < KEYS; i++)
        c->keys[i] = random_below(rng, UNIVERSE);
    c->offsets[0] = 0;
    for (uint32_t b = 1; b <= BAGS; b++) {
        uint32_t left = KEYS - c->offsets[b - 1];
        uint32_t size = b < 3 || random_below(rng, 3) == 0 ? 0 : random_below(rng, 50);
        c->offsets[b] = c->offsets[b - 1] + (size < left ? size : left);
    }
    c->offsets[BAGS - 1] = c->offsets[BAGS] = KEYS;
}

/* In steps; what is said to be final does not change any more, and other calls of the same table come in
 * between. */
static void lookup_in_steps(struct ps_table *t, struct ps_table_lookup *l, size_t row_bytes, uint64_t *rng)
{
    uint32_t rows = l->in.offsets != NULL ? l->in.bag_count : l->in.key_count, final = 0;
    uint8_t *seen = malloc(rows * row_bytes);
    assert_non_null(seen);
    for (bool whole = false; !whole;) {
        uint64_t budget = 1 + random_below(rng, 30000), other = UNIVERSE + random_below(rng, 1000);
        float row[DIM_MAX];
        whole = ps_table_lookup_step(t, l, &budget);
        assert_true(l->rows_done >= final && l->rows_done <= rows);
        assert_memory_equal(seen, l->out, final * row_bytes);
        final = l->rows_done;
        memcpy(seen, l->out, final * row_bytes);
        table_lookup(t, &other, 1, true, row);
    }
    assert_int_equal(final, rows);
    free(seen);
}

static void check_answer(const struct mr_feature *f, enum mr_dtype out_dtype, bool bags, bool insert,
                         uint64_t rng)
{
    struct ps_table *t = fixture_table(f, fixture_arena);
    static struct call c;
    static float expected_f32[KEYS * DIM_MAX], expected_scales[KEYS], scales[KEYS];
    static uint8_t expected[KEYS * DIM_MAX * sizeof(float)], out[KEYS * DIM_MAX * sizeof(float) + 1];
    fill_call(&c, &rng);
    uint32_t dim = f->dims[0], rows = bags ? BAGS : KEYS;
    uint32_t keys_with_row = random_below(&rng, KEYS);
    table_lookup(t, c.keys, keys_with_row, true, expected_f32);
    if (bags)
        table_lookup_bags(t, c.keys, c.offsets, BAGS, insert, expected_f32);
    else
        table_lookup(t, c.keys, KEYS, insert, expected_f32);
    mr_convert_from_f32(out_dtype, expected, expected_scales, expected_f32, rows, dim);
    float sum[DIM_MAX];
    struct ps_table_lookup l = {.in.keys = c.keys,
                                .in.key_count = KEYS,
                                .insert = insert,
                                .out_dtype = out_dtype,
                                .out = out,
                                .scales = scales,
                                .sum = sum};
    if (bags) {
        l.in.offsets = c.offsets;
        l.in.bag_count = BAGS;
    }
    memset(out, 0xff, sizeof(out));
    memset(scales, 0xff, sizeof(scales));
    memset(sum, 0xff, sizeof(sum));
    size_t row_bytes = (size_t)dim * mr_dtype_bytes(out_dtype);
    lookup_in_steps(t, &l, row_bytes, &rng);
    assert_memory_equal(out, expected, rows * row_bytes);
    assert_int_equal(out[rows * row_bytes], 0xff);
    if (out_dtype == MR_I8)
        assert_memory_equal(scales, expected_scales, rows * sizeof(float));
    ps_table_destroy(t);
}

TEST(answers_of_every_type, fixture_arena_create, fixture_arena_destroy)
{
    uint64_t rng = fixture_seed("answers");
    static const enum mr_dtype out_dtypes[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    static const uint32_t dims[] = {1, 3, 16, 33, DIM_MAX};
    static const uint32_t poolings[] = {MR_POOL_SUM, MR_POOL_MEAN, MR_POOL_SQRTN};
    for (uint32_t d = 0; d < 5; d++)
        for (uint32_t o = 0; o < 4; o++)
            for (uint32_t i = 0; i < 2 * 3; i++) {
                bool insert = i % 2 != 0;
                struct mr_feature f = fixture_adagrad(dims[d]);
                f.dtype = (uint32_t)out_dtypes[i / 2]; /* f32, f16, bf16 */
                check_answer(&f, out_dtypes[o], false, insert, random_next(&rng));
                for (uint32_t p = 0; p < 3; p++) {
                    f.pooling = poolings[p];
                    check_answer(&f, out_dtypes[o], true, insert, random_next(&rng));
                }
            }
}
