#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/tools/ckpt_fixture.h"
#include "tools/ckpt/ckpt_import_rows.h"

enum { ROWS = 3000, DIM = 3 };

static char keys_path[256], values_path[256], text[TOOL_NPY_TEXT_BYTES];

static void write_npy(const char *directory, const char *name, char path[256], enum mr_dtype dtype,
                      uint64_t rows, uint32_t columns, const void *data, size_t bytes)
{
    uint8_t header[256];
    const struct tool_npy_field field = {.dtype = dtype, .columns = columns};
    const size_t header_bytes = tool_npy_header(&field, 1, rows, header, sizeof(header));
    (void)snprintf(path, 256, "%s/%s", directory, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, header_bytes, f), header_bytes);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static uint64_t keys[ROWS];
static float values[ROWS * DIM];

static void ckpt_import_rows_fill(const char *directory)
{
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        values[i] = (float)i / 8;
    write_npy(directory, "k.npy", keys_path, MR_U64, ROWS, 0, keys, sizeof(keys));
    write_npy(directory, "v.npy", values_path, MR_F32, ROWS, DIM, values, sizeof(values));
}

static void open_table(struct ckpt_import_rows *r, enum mr_dtype dtype)
{
    struct mr_feature feature = mr_feature_table("t", DIM);
    feature.dtype = dtype;
    mr_feature_set_optimizer(&feature, MR_OPT_ROWWISE_ADAGRAD);
    feature.optimizer_args[0] = 0.5f;
    if (!ckpt_import_open(r, keys_path, values_path, text))
        fail_msg("%s", text);
    ckpt_row_maker_init(&r->maker, &feature);
}

TEST(test_rows_as_tables_store_them, temporary_directory_setup, temporary_directory_teardown)
{
    struct ckpt_import_rows r;
    uint64_t got_keys[CKPT_IMPORT_ROWS];
    static float rows[CKPT_IMPORT_ROWS * (DIM + 1)];
    ckpt_import_rows_fill(*state);
    open_table(&r, MR_F32);
    assert_int_equal(r.count, ROWS);
    assert_int_equal(r.dim, DIM);
    assert_int_equal(r.maker.layout.bytes, 4 * (DIM + 1));
    assert_true(ckpt_import_check_keys(&r, 1 << 20, text));
    assert_true(ckpt_import_check_keys(&r, 0, text)); /* in passes */
    assert_true(ckpt_import_read(&r, ROWS - 1000, 1000, got_keys, (uint8_t *)rows, text));
    assert_memory_equal(got_keys, keys + ROWS - 1000, 1000 * sizeof(*keys));
    for (uint32_t i = 0; i < 1000; i++) {
        assert_memory_equal(&rows[i * (DIM + 1)], &values[(ROWS - 1000 + i) * DIM], DIM * sizeof(float));
        assert_true(rows[i * (DIM + 1) + DIM] == 0.5f);
    }
    ckpt_import_close(&r);
}

static void expect_keys_refused(const char *says, uint64_t memory_bytes)
{
    struct ckpt_import_rows r;
    open_table(&r, MR_F32);
    assert_false(ckpt_import_check_keys(&r, memory_bytes, text));
    assert_says(text, says);
    ckpt_import_close(&r);
}

TEST(test_keys_that_come_twice, temporary_directory_setup, temporary_directory_teardown)
{
    ckpt_import_rows_fill(*state);
    keys[2999] = keys[17];
    write_npy(*state, "k.npy", keys_path, MR_U64, ROWS, 0, keys, sizeof(keys));
    expect_keys_refused("is there twice, the second time at 2999", 1 << 20);
    expect_keys_refused("is there twice, the second time at 2999", 0);
    for (uint32_t i = 0; i < ROWS; i++)
        keys[i] = i;
    keys[40] = (uint64_t)-7;
    write_npy(*state, "k.npy", keys_path, MR_I64, ROWS, 0, keys, sizeof(keys));
    expect_keys_refused("key 40 is below 0: -7", 0);
}

static void expect_row_refused(enum mr_dtype dtype, const char *says)
{
    struct ckpt_import_rows r;
    uint64_t got_keys[3];
    float rows[3 * (DIM + 2)];
    open_table(&r, dtype);
    assert_true(ckpt_import_read(&r, 0, 1, got_keys, (uint8_t *)rows, text));
    assert_false(ckpt_import_read(&r, 0, 3, got_keys, (uint8_t *)rows, text));
    assert_says(text, says);
    ckpt_import_close(&r);
}

TEST(test_values_that_are_no_numbers_of_the_table, temporary_directory_setup, temporary_directory_teardown)
{
    ckpt_import_rows_fill(*state);
    values[2 * DIM + 1] = 70000;
    write_npy(*state, "v.npy", values_path, MR_F32, ROWS, DIM, values, sizeof(values));
    expect_row_refused(MR_F16, "[2, 1] is 70000, more than f16 can hold");
    values[2 * DIM + 2] = NAN;
    write_npy(*state, "v.npy", values_path, MR_F32, ROWS, DIM, values, sizeof(values));
    expect_row_refused(MR_F32, "[2, 2] is nan");
}

static void expect_open_refused(const char *says)
{
    struct ckpt_import_rows r;
    assert_false(ckpt_import_open(&r, keys_path, values_path, text));
    assert_says(text, says);
}

TEST(test_files_that_do_not_belong_together, temporary_directory_setup, temporary_directory_teardown)
{
    struct ckpt_import_rows r;
    ckpt_import_rows_fill(*state);
    write_npy(*state, "k.npy", keys_path, MR_U64, ROWS - 1, 0, keys, sizeof(keys) - 8);
    expect_open_refused("they must be as many");
    write_npy(*state, "k.npy", keys_path, MR_F64, ROWS, 0, keys, sizeof(keys));
    expect_open_refused("k.npy: keys must be one dimension of u64 or i64");
    write_npy(*state, "k.npy", keys_path, MR_U64, ROWS, 0, keys, sizeof(keys));
    write_npy(*state, "v.npy", values_path, MR_F32, ROWS, 0, values, ROWS * 4);
    expect_open_refused("v.npy: values must have the shape [rows, dim]");
    write_npy(*state, "v.npy", values_path, MR_F64, ROWS, 1, values, (size_t)ROWS * 8);
    expect_open_refused("v.npy: values must be f32 or f16");
    write_npy(*state, "v.npy", values_path, MR_U16, ROWS, 1, values, (size_t)ROWS * 2);
    assert_true(ckpt_import_open(&r, keys_path, values_path, text));
    assert_true(ckpt_import_check_type(&r, MR_BF16, text));
    assert_false(ckpt_import_check_type(&r, MR_F32, text));
    assert_non_null(strstr(text, "--dtype bf16"));
    ckpt_import_close(&r);
    (void)snprintf(values_path, sizeof(values_path), "%s", (const char *)*state);
    expect_open_refused("no regular file");
    (void)snprintf(values_path, sizeof(values_path), "%s/none", (const char *)*state);
    expect_open_refused("No such file");
}
