/* Files made with numpy 1.24: tests/unit/tools/data/npy_*.npy. */
#include <stdio.h>
#include <string.h>

#include "tools/arrays/npy.h"
#include "tests/test.h"

static uint8_t file[4096];
static size_t file_bytes;
static struct tool_npy npy;
static char error_text[TOOL_NPY_ERROR_BYTES];

static void read_file(const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof(path), TEST_DATA "/npy_%s.npy", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    file_bytes = fread(file, 1, sizeof(file), f);
    (void)fclose(f);
    assert_true(file_bytes > 0 && file_bytes < sizeof(file));
}

static void expect(const char *name, enum mr_dtype dtype, uint32_t rank, const uint64_t *shape)
{
    read_file(name);
    if (!tool_npy_parse(file, file_bytes, file_bytes, &npy, error_text))
        fail_msg("%s: %s", name, error_text);
    assert_int_equal(npy.dtype, dtype);
    assert_int_equal(npy.rank, rank);
    for (uint32_t i = 0; i < rank; i++)
        assert_int_equal(npy.shape[i], shape[i]);
    assert_int_equal(npy.data_offset % 64, 0);
    assert_int_equal(npy.data_offset + npy.data_bytes, file_bytes);
}

TEST(test_reads_what_numpy_wrote)
{
    expect("u64", MR_U64, 1, (uint64_t[]){4});
    const uint64_t keys[] = {0, 1, UINT64_C(1) << 63, UINT64_MAX};
    assert_memory_equal(file + npy.data_offset, keys, sizeof(keys));
    expect("f32", MR_F32, 2, (uint64_t[]){2, 3});
    expect("empty", MR_F16, 2, (uint64_t[]){0, 5});
    expect("scalar", MR_F64, 0, NULL);
    expect("v2", MR_I8, 3, (uint64_t[]){1, 2, 3});
    expect("v3", MR_U16, 1, (uint64_t[]){4});
    expect("wide", MR_F32, 2, (uint64_t[]){1000000000000, 0});
}

static void expect_refused(const char *says)
{
    memset(&npy, 0x55, sizeof(npy));
    const struct tool_npy before = npy;
    assert_false(tool_npy_parse(file, file_bytes, file_bytes, &npy, error_text));
    assert_says(error_text, says);
    assert_memory_equal(&npy, &before, sizeof(npy));
}

TEST(test_refuses_other_arrays_by_name)
{
    read_file("fortran");
    expect_refused("column-major order; save numpy.ascontiguousarray(a)");
    read_file("big");
    expect_refused("big-endian ('>f8'); save a.astype('<f8')");
    read_file("records");
    expect_refused("records");
}

static void put_header(uint8_t major, const char *header, const char *data)
{
    const size_t bytes = strlen(header), data_bytes = strlen(data);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = major;
    file[7] = 0;
    file[8] = (uint8_t)bytes;
    file[9] = (uint8_t)(bytes >> 8);
    memcpy(file + 10, header, bytes);
    memcpy(file + 10 + bytes, data, data_bytes);
    file_bytes = 10 + bytes + data_bytes;
}

TEST(test_refuses_malformed_headers)
{
    static const struct {
        const char *header, *data, *says;
    } cases[] = {
        {"", "", "no dictionary"},
        {"{}", "", "no dictionary"},
        {"{'descr': '<u1', 'fortran_order': False}", "x", "no dictionary"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (1,)} {", "x", "no dictionary"},
        {"{'descr': '<u1' 'fortran_order': False, 'shape': (1,)}", "x", "no dictionary"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (1,), 'more': 1}", "x", "'more'"},
        {"{'descr': '<u1', 'descr': '<u1', 'shape': (1,)}", "x", "'descr' twice"},
        {"{'descr': '<u1', 'fortran_order': 0, 'shape': (1,)}", "x", "fortran_order"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "x", "'|O'"},
        {"{'descr': '<U", "", "descr"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (1)}", "x", "shape"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (,)}", "x", "shape"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (1 1)}", "x", "shape"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (-1,)}", "x", "shape"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (1,1,1,1,1)}", "x", "dimensions"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (18446744073709551616,)}", "x", "shape"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615,)}", "x",
         "larger than any file"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (3,)}", "xx", "cut short: 2 bytes"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (1,)}", "xx", "something follows"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        put_header(1, cases[i].header, cases[i].data);
        expect_refused(cases[i].says);
    }
    put_header(1, "{ \"shape\" :(2 ,) ,'descr':'<u1','fortran_order':True}", "xy"); /* odd, but right */
    assert_true(tool_npy_parse(file, file_bytes, file_bytes, &npy, error_text));
    assert_int_equal(npy.data_bytes, 2);
}

TEST(test_refuses_other_files)
{
    put_header(4, "{}", "");
    expect_refused("version 4.0");
    put_header(1, "{}", "");
    file[0] = 'N';
    expect_refused("no .npy file");
    put_header(1, "{}", "");
    file_bytes = 7;
    expect_refused("no .npy file");
    put_header(1, "{}", "");
    file_bytes = 9;
    expect_refused("cut short in its header");
    put_header(1, "{}", "");
    file_bytes = 11;
    expect_refused("cut short in its header");
    put_header(2, "{}", "");
    expect_refused("longer than any array");
}

/* The very bytes of numpy.save(). */
TEST(test_writes_as_numpy_does)
{
    static const struct {
        const char *name;
        struct tool_npy_field fields[3];
        uint32_t count;
        uint64_t rows;
    } cases[] = {
        {"u64", {{NULL, MR_U64, 0, {0}}}, 1, 4},
        {"f32", {{NULL, MR_F32, 3, {0}}}, 1, 2},
        {"empty", {{NULL, MR_F16, 5, {0}}}, 1, 0},
        {"records", {{"key", MR_U64, 0, {0}}, {"values", MR_F32, 3, {0}}, {"sum", MR_F32, 0, {0}}}, 3, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint8_t header[1024];
        read_file(cases[i].name);
        size_t bytes =
            tool_npy_header(cases[i].fields, cases[i].count, cases[i].rows, header, sizeof(header));
        assert_true(bytes > 0 && bytes <= file_bytes);
        assert_memory_equal(header, file, bytes);
        assert_int_equal(tool_npy_header(cases[i].fields, cases[i].count, cases[i].rows, header, bytes),
                         bytes);
        assert_int_equal(tool_npy_header(cases[i].fields, cases[i].count, cases[i].rows, header, bytes - 1),
                         0);
    }
}

/* Of every length that the fields can have, so that each remainder of the alignment comes up. */
TEST(test_reads_what_it_wrote)
{
    uint8_t header[256];
    for (uint64_t rows = 1; rows < UINT64_C(1) << 40; rows = rows * 3 + 1) {
        for (uint32_t columns = 0; columns < 2000; columns = columns * 5 + 1) {
            const struct tool_npy_field field = {.dtype = MR_BF16, .columns = columns};
            const size_t bytes = tool_npy_header(&field, 1, rows, header, sizeof(header));
            const uint64_t data_bytes = rows * (columns > 0 ? columns : 1) * 2;
            assert_int_equal(bytes % 64, 0);
            assert_true(tool_npy_parse(header, bytes, bytes + data_bytes, &npy, error_text));
            assert_int_equal(npy.dtype, MR_U16);
            assert_int_equal(npy.rank, columns > 0 ? 2 : 1);
            assert_int_equal(npy.shape[0], rows);
            assert_int_equal(npy.data_offset, bytes);
        }
    }
}

TEST(test_further_dimensions)
{
    uint8_t header[256];
    const struct tool_npy_field field = {.dtype = MR_F32, .columns = 3, .more = {5, 7}};
    const size_t bytes = tool_npy_header(&field, 1, 2, header, sizeof(header));
    assert_true(tool_npy_parse(header, bytes, bytes + 2 * 3 * 5 * 7 * 4, &npy, error_text));
    assert_int_equal(npy.rank, 4);
    assert_int_equal(npy.shape[0], 2);
    assert_int_equal(npy.shape[1], 3);
    assert_int_equal(npy.shape[2], 5);
    assert_int_equal(npy.shape[3], 7);
}
