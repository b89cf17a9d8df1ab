#include <stdio.h>
#include <string.h>

#include "tools/ckpt/ckpt_row.h"
#include "tests/test.h"

#define DIM 3u

static struct ckpt_row row_of(enum mr_dtype dtype, enum mr_optimizer optimizer, enum mr_eviction eviction,
                              struct mr_feature *feature)
{
    struct ckpt_row row;
    *feature = mr_feature_table("t", DIM);
    feature->dtype = dtype;
    mr_feature_set_optimizer(feature, optimizer);
    feature->eviction = eviction;
    feature->eviction_arg = eviction == MR_EVICT_NEVER ? 0 : 5;
    assert_null(ckpt_row_of(feature, &row));
    return row;
}

/* "values:f32[3]@0 sum:f32[3]@12 =24" */
static void expect(enum mr_dtype dtype, enum mr_optimizer optimizer, enum mr_eviction eviction,
                   const char *text)
{
    char got[300] = "";
    struct mr_feature feature;
    const struct ckpt_row row = row_of(dtype, optimizer, eviction, &feature);
    size_t at = 0;
    for (uint32_t i = 0; i < row.part_count; i++) {
        const struct ckpt_part *p = &row.parts[i];
        at += (size_t)snprintf(got + at, sizeof(got) - at, "%s:%s[%u]@%u ", p->name, mr_dtype_name(p->dtype),
                               p->columns, p->offset);
    }
    (void)snprintf(got + at, sizeof(got) - at, "state@%u =%u", row.state_offset, row.bytes);
    assert_string_equal(got, text);
}

TEST(test_parts_by_name)
{
    expect(MR_F32, MR_OPT_SGD, MR_EVICT_NEVER, "values:f32[3]@0 state@12 =12");
    expect(MR_F32, MR_OPT_ADAGRAD, MR_EVICT_NEVER, "values:f32[3]@0 sum:f32[3]@12 state@12 =24");
    expect(MR_F32, MR_OPT_ROWWISE_ADAGRAD, MR_EVICT_AGE,
           "values:f32[3]@0 seen:u32[0]@12 sum:f32[0]@16 state@16 =20");
    expect(MR_F16, MR_OPT_ADAM, MR_EVICT_LFU,
           "values:f16[3]@0 updates:u32[0]@8 seen:u32[0]@12 uses:u32[0]@16 m:f32[3]@20 v:f32[3]@32 "
           "step:u32[0]@44 "
           "state@20 =48");
    expect(MR_BF16, MR_OPT_FTRL, MR_EVICT_NEVER,
           "values:bf16[3]@0 updates:u32[0]@8 z:f32[3]@12 n:f32[3]@24 rate:f32[0]@36 state@12 =40");
    expect(MR_F32, MR_OPT_MOMENTUM, MR_EVICT_NEVER, "values:f32[3]@0 velocity:f32[3]@12 state@12 =24");
}

TEST(test_momentum_with_dampening_keeps_one_more)
{
    struct mr_feature feature = mr_feature_table("t", DIM);
    struct ckpt_row row;
    mr_feature_set_optimizer(&feature, MR_OPT_MOMENTUM);
    feature.optimizer_args[1] = 0.5f;
    assert_null(ckpt_row_of(&feature, &row));
    assert_int_equal(row.part_count, 3);
    assert_string_equal(row.parts[2].name, "was_updated");
    assert_int_equal(row.bytes, 28);
}

TEST(test_dense_optimizers_keep_a_step_after_their_state)
{
    struct mr_feature feature = mr_feature_table("t", DIM);
    struct ckpt_row row;
    feature.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    assert_null(ckpt_row_of(&feature, &row));
    assert_int_equal(row.part_count, 2);
    assert_string_equal(row.parts[1].name, "last_step");
    assert_int_equal(row.bytes, 16);
    mr_feature_set_optimizer(&feature, MR_OPT_MOMENTUM);
    feature.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    assert_null(ckpt_row_of(&feature, &row));
    assert_int_equal(row.part_count, 3);
    assert_string_equal(row.parts[1].name, "velocity");
    assert_string_equal(row.parts[2].name, "last_step");
    assert_int_equal(row.parts[2].offset, 24);
    assert_int_equal(row.bytes, 28);
}

TEST(test_unknown_optimizers_are_named)
{
    struct mr_feature feature = mr_feature_table("t", DIM);
    struct ckpt_row row;
    feature.optimizer = 77;
    assert_non_null(strstr(ckpt_row_of(&feature, &row), "optimizer"));
}

static void make_ckpt(const struct mr_feature *feature, const void *values, uint32_t *stored)
{
    struct ckpt_row_maker maker;
    ckpt_row_maker_init(&maker, feature);
    ckpt_row_make(&maker, values, (uint8_t *)stored);
}

TEST(test_rows_start_as_tables_make_them)
{
    const float values[DIM] = {1, -2, 0.5f};
    const uint16_t bf16[DIM] = {0x3f80, 0xc000, 0x3f00};
    uint32_t stored[16], number;
    float f;
    struct mr_feature feature;
    (void)row_of(MR_F32, MR_OPT_ADAGRAD, MR_EVICT_AGE, &feature);
    feature.optimizer_args[0] = 0.25f;
    memset(stored, 0xff, sizeof(stored));
    make_ckpt(&feature, values, stored);
    assert_memory_equal(stored, values, sizeof(values));
    assert_int_equal(stored[3], 0); /* seen: when the clock began */
    for (uint32_t i = 0; i < DIM; i++) {
        memcpy(&f, &stored[4 + i], sizeof(f));
        assert_true(f == 0.25f);
    }
    assert_int_equal(stored[7], UINT32_MAX);

    (void)row_of(MR_BF16, MR_OPT_ADAM, MR_EVICT_LFU, &feature);
    memset(stored, 0xff, sizeof(stored));
    make_ckpt(&feature, bf16, stored);
    assert_memory_equal(stored, bf16, sizeof(bf16));
    assert_int_equal(stored[1] >> 16, 0); /* filled up */
    assert_int_equal(stored[2], 0);       /* updates */
    assert_int_equal(stored[3], 0);       /* seen: LFU's clock begins with the restore */
    assert_int_equal(stored[4], 256);     /* one use */
    for (uint32_t i = 5; i < 12; i++)
        assert_int_equal(stored[i], 0);

    /* FTRL's weights follow from z: it must give the values back. */
    (void)row_of(MR_F32, MR_OPT_FTRL, MR_EVICT_NEVER, &feature);
    make_ckpt(&feature, values, stored);
    const float rate = feature.learning_rate, beta = feature.optimizer_args[1];
    for (uint32_t i = 0; i < DIM; i++) {
        memcpy(&f, &stored[3 + i], sizeof(f));
        const float value = -f / (beta / rate);
        assert_true(value > values[i] - 1e-5f && value < values[i] + 1e-5f);
    }
    memcpy(&number, &stored[9], sizeof(number));
    memcpy(&f, &number, sizeof(f));
    assert_true(f == rate);
}

/* The row with the most state. */
TEST(test_the_widest_row_is_made)
{
    enum { FLOATS = 3 * MR_DIM_MAX + 2 };
    static float values[MR_DIM_MAX];
    static uint32_t stored[FLOATS + 1];
    struct mr_feature feature = mr_feature_table("t", MR_DIM_MAX);
    struct ckpt_row row;
    mr_feature_set_optimizer(&feature, MR_OPT_ADAM);
    feature.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    assert_null(ckpt_row_of(&feature, &row));
    assert_int_equal(row.bytes, FLOATS * sizeof(float));
    memset(stored, 0xff, sizeof(stored));
    make_ckpt(&feature, values, stored);
    for (uint32_t i = 0; i < FLOATS; i++)
        assert_int_equal(stored[i], 0);
    assert_int_equal(stored[FLOATS], UINT32_MAX);
}
