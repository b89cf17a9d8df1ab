#include <stdio.h>
#include <string.h>
#include "dataplane/rpc/base/functions.h"
#include "tests/test.h"

static bool matches(const char *text, const struct mr_value *values, uint32_t count)
{
    struct mr_signature signature;
    char error[256];
    assert_int_equal(mr_signature_read(text, &signature, error, sizeof(error)), MR_OK);
    bool yes = mr_signature_matches(&signature, values, count);
    mr_signature_free(&signature);
    return yes;
}

TEST(tensors_match_by_dtype_and_dims)
{
    struct mr_value two_three = mr_value_tensor(mr_tensor_2d(MR_F32, 2, 3, NULL));
    struct mr_value scalar = mr_value_tensor(mr_tensor_0d(MR_F32, NULL));
    assert_true(matches("f32[2,3]", &two_three, 1));
    assert_true(matches(" f32[ ? , 3 ] ", &two_three, 1));
    assert_true(matches("f32[...]", &two_three, 1));
    assert_true(matches("tensor", &two_three, 1));
    assert_true(matches("f32[]", &scalar, 1));
    assert_true(matches("f32[...]", &scalar, 1));
    assert_false(matches("f32[3,2]", &two_three, 1));
    assert_false(matches("f32[?]", &two_three, 1));
    assert_false(matches("f32[?,?,?]", &two_three, 1));
    assert_false(matches("f64[2,3]", &two_three, 1));
    assert_false(matches("f32[]", &two_three, 1));
    assert_false(matches("i64", &two_three, 1));
}

TEST(kinds_and_numbers_of_values)
{
    struct mr_value values[] = {mr_value_i64(1),
                                mr_value_f64(2),
                                mr_value_string("three"),
                                {.kind = MR_VALUE_RREF},
                                {.kind = MR_VALUE_OBJECT}};
    assert_true(matches("i64, f64, string, ref, object", values, 5));
    assert_false(matches("i64, f64, string, ref", values, 5));
    assert_true(matches("i64, f64, ...", values, 5));
    assert_true(matches("i64, f64, ...", values, 2));
    assert_false(matches("i64, f64, ...", values, 1));
    assert_true(matches("...", values, 5));
    assert_true(matches("...", values, 0));
    assert_true(matches("", values, 0));
    assert_true(matches(NULL, values, 0));
    assert_false(matches("", values, 1));
    assert_false(matches("f64, i64", values, 2));
    assert_true(matches("object", &values[3], 1)); /* a reference to one */
    assert_false(matches("ref", &values[4], 1));
}

TEST(what_cannot_be_read_is_said)
{
    static const char *const wrong[] = {"f31[2]",  "f32",       "f32[2", "f32[2,,3]", "f32[1,2,3,4,5]",
                                        "i64,",    "i64 f64",   "i640",  "..., i64",  "f32[99999999999]",
                                        "f32[-1]", "tensor[2]", "none",  "f32[?]x",   ", i64"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct mr_signature signature;
        char error[512] = "";
        assert_int_equal(mr_signature_read(wrong[i], &signature, error, sizeof(error)), MR_INVALID_ARGUMENT);
        assert_non_null(strstr(error, wrong[i]));
        assert_non_null(strstr(error, "f32[32,?]"));
    }
}

TEST(no_more_than_there_may_be)
{
    char text[5 * (MR_RPC_ARGUMENTS_MAX + 1) + 1] = "";
    struct mr_signature signature;
    char error[2048];
    for (uint32_t i = 0; i < MR_RPC_ARGUMENTS_MAX; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), i == 0 ? "i64" : ",i64");
    assert_int_equal(mr_signature_read(text, &signature, error, sizeof(error)), MR_OK);
    assert_int_equal(signature.count, MR_RPC_ARGUMENTS_MAX);
    mr_signature_free(&signature);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), ",i64");
    assert_int_equal(mr_signature_read(text, &signature, error, sizeof(error)), MR_INVALID_ARGUMENT);
}

TEST(values_are_described)
{
    struct mr_value values[] = {mr_value_tensor(mr_tensor_2d(MR_F32, 2, 3, NULL)), mr_value_i64(1),
                                mr_value_tensor(mr_tensor_0d(MR_U8, NULL)), mr_value_string("x"),
                                mr_value_none()};
    char text[64];
    mr_signature_describe(values, 5, text, sizeof(text));
    assert_string_equal(text, "f32[2,3], i64, u8[], string, none");
    mr_signature_describe(values, 5, text, 8);
    assert_string_equal(text, "f32[2,3");
    mr_signature_describe(values, 0, text, sizeof(text));
    assert_string_equal(text, "");
}
