#include "dataplane/wire/format/message.h"
#include "tests/test.h"

TEST(element_sizes_and_names)
{
    static const struct {
        enum mr_dtype dtype;
        uint32_t value, bytes;
        const char *name;
    } expected[] = {
        {MR_U8, 1, 1, "u8"},     {MR_I8, 2, 1, "i8"},    {MR_U16, 3, 2, "u16"},  {MR_F16, 4, 2, "f16"},
        {MR_BF16, 5, 2, "bf16"}, {MR_U32, 6, 4, "u32"},  {MR_I32, 7, 4, "i32"},  {MR_F32, 8, 4, "f32"},
        {MR_U64, 9, 8, "u64"},   {MR_I64, 10, 8, "i64"}, {MR_F64, 11, 8, "f64"},
    };
    size_t count = sizeof(expected) / sizeof(expected[0]);
    assert_int_equal(MR_DTYPE_COUNT, count + 1);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(expected[i].dtype, expected[i].value);
        assert_int_equal(mr_dtype_bytes(expected[i].dtype), expected[i].bytes);
        assert_string_equal(mr_dtype_name(expected[i].dtype), expected[i].name);
    }
}

TEST(unknown_dtypes_have_no_size)
{
    static const uint32_t unknown[] = {0, MR_DTYPE_COUNT, 255};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_int_equal(mr_dtype_bytes((enum mr_dtype)unknown[i]), 0);
        assert_string_equal(mr_dtype_name((enum mr_dtype)unknown[i]), "?");
    }
}

TEST(shapes_give_bytes)
{
    float value = 1.0f;
    struct mr_tensor t = mr_tensor_0d(MR_F32, &value);
    assert_int_equal(t.rank, 0);
    assert_int_equal(t.bytes, 4);
    assert_ptr_equal(t.data, &value);

    t = mr_tensor_1d(MR_U64, 5, NULL);
    assert_int_equal(t.rank, 1);
    assert_int_equal(t.dims[0], 5);
    assert_int_equal(t.bytes, 40);
    assert_null(t.data);

    t = mr_tensor_2d(MR_U16, 3, 7, NULL);
    assert_int_equal(t.bytes, 42);

    t = mr_tensor_3d(MR_F32, 512, 26, 16, NULL);
    assert_int_equal(t.rank, 3);
    assert_int_equal(t.dims[2], 16);
    assert_int_equal(t.dims[3], 0);
    assert_int_equal(t.bytes, 512 * 26 * 16 * 4);

    t = mr_tensor_2d(MR_F32, 0, 7, NULL);
    assert_int_equal(t.bytes, 0);
}

TEST(a_shape_beyond_64_bits_fits_no_message)
{
    struct mr_tensor t = mr_tensor_3d(MR_F64, UINT32_MAX, UINT32_MAX, UINT32_MAX, NULL);
    assert_true(t.bytes == UINT64_MAX);
    assert_int_equal(mr_message_bytes(&t, 1), 0);
}
