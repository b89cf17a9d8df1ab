#include "ps/row/row_layout.h"
#include "table_fixture.h"
#include "tests/test.h"

static struct mr_feature table(uint32_t dim, enum mr_dtype dtype, enum mr_eviction eviction)
{
    struct mr_feature f = mr_feature_table("t", dim);
    f.dtype = (uint32_t)dtype;
    f.eviction = (uint32_t)eviction;
    return f;
}

TEST(a_plain_row_is_values_and_state)
{
    struct mr_feature f = table(16, MR_F32, MR_EVICT_NEVER);
    struct ps_row_layout l = ps_row_layout_of(&f, 16);
    assert_int_equal(l.values_bytes, 64);
    assert_int_equal(l.updates_offset, PS_ROW_NO_FIELD);
    assert_int_equal(l.seen_offset, PS_ROW_NO_FIELD);
    assert_int_equal(l.uses_offset, PS_ROW_NO_FIELD);
    assert_int_equal(l.state_offset, 64);
    assert_int_equal(l.bytes, 128);
}

TEST(narrow_values_are_padded_and_counted)
{
    struct mr_feature f = table(3, MR_BF16, MR_EVICT_NEVER);
    struct ps_row_layout l = ps_row_layout_of(&f, 1);
    assert_int_equal(l.values_bytes, 6);
    assert_int_equal(l.updates_offset, 8);
    assert_int_equal(l.seen_offset, PS_ROW_NO_FIELD);
    assert_int_equal(l.state_offset, 12);
    assert_int_equal(l.bytes, 16);
}

TEST(eviction_has_its_fields_beside_the_values)
{
    static const enum mr_eviction stamped[] = {MR_EVICT_AGE, MR_EVICT_STEPS, MR_EVICT_LRU, MR_EVICT_NORM};
    for (size_t i = 0; i < sizeof(stamped) / sizeof(*stamped); i++) {
        struct mr_feature f = table(4, MR_F32, stamped[i]);
        struct ps_row_layout l = ps_row_layout_of(&f, 4);
        assert_int_equal(l.seen_offset, 16);
        assert_int_equal(l.uses_offset, PS_ROW_NO_FIELD);
        assert_int_equal(l.state_offset, 20);
        assert_int_equal(l.bytes, 36);
    }
    struct mr_feature f = table(4, MR_F16, MR_EVICT_LFU);
    struct ps_row_layout l = ps_row_layout_of(&f, 0);
    assert_int_equal(l.updates_offset, 8);
    assert_int_equal(l.seen_offset, 12);
    assert_int_equal(l.uses_offset, 16);
    assert_int_equal(l.bytes, 20);
}
