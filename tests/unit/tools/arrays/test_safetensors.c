#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/arrays/safetensors.h"
#include "tests/test.h"

static json_t *safetensors_parse(const char *header, size_t bytes)
{
    uint64_t length;
    memcpy(&length, header, sizeof(length));
    assert_int_equal(length + 8, bytes);
    assert_int_equal(length % 8, 0);
    assert_int_equal(header[8], '{'); /* the README's readers ask for it */
    json_t *root = json_loadb(header + 8, length, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    return root;
}

/* The example of the README: names, types, shapes, and offsets behind the header without a hole. */
TEST(test_header)
{
    struct tool_safetensor tensors[] = {
        {.name = "values", .dtype = MR_F16, .rows = 3, .columns = 5},
        {.name = "sum", .dtype = MR_F32, .rows = 3},
        {.name = "keys", .dtype = MR_U64, .rows = 3},
    };
    size_t bytes;
    json_t *metadata = json_pack("{s:s}", "table", "user/\"id\"");
    char *header = tool_safetensors_header(tensors, 3, metadata, &bytes);
    json_decref(metadata);
    assert_non_null(header);
    json_t *root = safetensors_parse(header, bytes);
    json_t *expected =
        json_pack("{s:{s:s}, s:{s:s, s:[i], s:[i,i]}, s:{s:s, s:[i], s:[i,i]}, s:{s:s, s:[i,i], s:[i,i]}}",
                  "__metadata__", "table", "user/\"id\"", "keys", "dtype", "U64", "shape", 3, "data_offsets",
                  0, 24, "sum", "dtype", "F32", "shape", 3, "data_offsets", 24, 36, "values", "dtype", "F16",
                  "shape", 3, 5, "data_offsets", 36, 66);
    assert_true(json_equal(root, expected));
    assert_int_equal(tensors[2].offset, bytes);
    assert_int_equal(tensors[1].offset, bytes + 24);
    assert_int_equal(tensors[0].offset, bytes + 36);
    json_decref(expected);
    json_decref(root);
    free(header);
}

TEST(test_every_type_has_its_name)
{
    static const char *const names[] = {"U8",  "I8",  "U16", "F16", "BF16", "U32",
                                        "I32", "F32", "U64", "I64", "F64"};
    for (uint32_t dtype = 1; dtype < MR_DTYPE_COUNT; dtype++) {
        struct tool_safetensor t = {.name = "t", .dtype = (enum mr_dtype)dtype, .rows = 0, .columns = 7};
        size_t bytes;
        char *header = tool_safetensors_header(&t, 1, NULL, &bytes);
        assert_non_null(header);
        json_t *root = safetensors_parse(header, bytes), *tensor = json_object_get(root, "t");
        assert_string_equal(json_string_value(json_object_get(tensor, "dtype")), names[dtype - 1]);
        assert_int_equal(t.offset, bytes); /* empty: its data begin and end there */
        json_decref(root);
        free(header);
    }
}

TEST(test_further_dimensions)
{
    struct tool_safetensor tensors[] = {
        {.name = "w", .dtype = MR_F32, .rows = 2, .columns = 3, .more = {5, 7}},
        {.name = "b", .dtype = MR_F32, .rows = 2, .columns = 3, .more = {5}},
    };
    size_t bytes;
    char *header = tool_safetensors_header(tensors, 2, NULL, &bytes);
    assert_non_null(header);
    json_t *root = safetensors_parse(header, bytes);
    json_t *expected = json_pack("{s:{s:s, s:[i,i,i,i], s:[i,i]}, s:{s:s, s:[i,i,i], s:[i,i]}}", "w", "dtype",
                                 "F32", "shape", 2, 3, 5, 7, "data_offsets", 0, 840, "b", "dtype", "F32",
                                 "shape", 2, 3, 5, "data_offsets", 840, 960);
    assert_true(json_equal(root, expected));
    json_decref(expected);
    json_decref(root);
    free(header);
}

TEST(test_too_large)
{
    struct tool_safetensor t = {.name = "t", .dtype = MR_F32, .rows = UINT64_MAX / 8, .columns = 4};
    size_t bytes;
    assert_null(tool_safetensors_header(&t, 1, NULL, &bytes));
    t = (struct tool_safetensor){.name = "t\xff", .dtype = MR_F32, .rows = 1}; /* no UTF-8 */
    assert_null(tool_safetensors_header(&t, 1, NULL, &bytes));
}
