/* millrace ckpt dump, export and import, as a user types them: rows that go out and come back. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"
#include "tests/unit/tools/ckpt_program.h"
#include "tools/arrays/npy.h"

enum { LINKS = 4, LAST = CHAIN_FIRST + LINKS - 1 };

TEST(test_dump_csv, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    uint64_t rows = 0;
    chain_write(directory, LINKS);
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table b --state", directory, LAST), 0);
    char *rest = ckpt_output_text, *line = strsep(&rest, "\n");
    assert_string_equal(line, "key,values0,values1,values2,values3,values4,sum");
    while ((line = strsep(&rest, "\n")) && *line != '\0') {
        char *end;
        const uint64_t key = strtoull(line, &end, 10);
        const uint32_t value = (uint32_t)strtod(end + 1, &end), i = value % 10000;
        assert_int_equal(key, chain_key(i));
        assert_int_equal(value / 10000, chain_model[LINKS][2][i]);
        for (uint32_t column = 1; column < 6; column++)
            assert_int_equal(strtod(end + 1, &end), value);
        assert_int_equal(*end, '\0');
        rows++;
    }
    assert_int_equal(rows, chain_rows(LINKS, 2));
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table nope", directory, LAST), 1);
    ckpt_expect("it has no table nope; its tables are: a, b");
    assert_int_equal(ckpt_run("dump %s/ckpt-%d", directory, LAST), 2);
    ckpt_expect("name a table with --table, or a parameter with --parameter");
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table a --format x", directory, LAST), 2);
    ckpt_expect("--format must be csv or npy, not \"x\"");
}

/* Whoever reads a pipe may stop: no error, no word about it. */
TEST(test_pipes_that_end_early, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table b | head -n 1", directory, LAST), 0);
    assert_string_equal(ckpt_output_text, "key,values0,values1,values2,values3,values4\n");
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table b >/dev/full", directory, LAST), 1);
    ckpt_expect("write the rows: No space left on device");
}

static uint8_t *read_npy(const char *directory, const char *name, struct tool_npy *array)
{
    static uint8_t file[1 << 20];
    char path[512], error[TOOL_NPY_ERROR_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t bytes = fread(file, 1, sizeof(file), f);
    (void)fclose(f);
    if (!tool_npy_parse(file, bytes, bytes, array, error))
        fail_msg("%s: %s", path, error);
    return file + array->data_offset;
}

TEST(test_dump_npy_and_import, temporary_directory_setup, temporary_directory_teardown)
{
    const char *d = *state;
    struct tool_npy array;
    chain_write(d, LINKS);
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table b --format npy --state --out %s/npy", d, LAST, d), 0);
    const uint64_t rows = chain_rows(LINKS, 2);
    (void)read_npy(d, "npy/sum.npy", &array);
    assert_true(array.rank == 1 && array.shape[0] == rows && array.dtype == MR_F32);
    (void)read_npy(d, "npy/values.npy", &array);
    assert_true(array.rank == 2 && array.shape[0] == rows && array.shape[1] == 5);
    const uint64_t *keys = (const uint64_t *)(const void *)read_npy(d, "npy/keys.npy", &array);
    assert_true(array.rank == 1 && array.shape[0] == rows && array.dtype == MR_U64);
    for (uint64_t i = 0; i < rows; i++)
        assert_true(keys[i] != keys[(i + 1) % rows]);
    assert_int_equal(ckpt_run("dump %s/ckpt-%d --table b --format npy", d, LAST), 2);
    ckpt_expect("--out");

    assert_int_equal(
        ckpt_run("import --keys %s/npy/keys.npy --values %s/npy/values.npy --table b --out %s/in --optimizer "
                 "rowwise_adagrad --optimizer-args 0.25 --check-mib 0",
                 d, d, d),
        0);
    ckpt_expect("in/ckpt-1: ");
    assert_int_equal(ckpt_run("verify %s/in", d), 0);
    assert_int_equal(ckpt_run("diff %s %s/in --json", d, d), 3);
    json_t *diff = ckpt_json();
    const json_t *b = ckpt_feature(json_object_get(diff, "features"), "b");
    assert_int_equal(ckpt_number(b, "b_rows"), rows);
    assert_int_equal(ckpt_number(b, "added") + ckpt_number(b, "removed") + ckpt_number(b, "changed"), 0);
    assert_int_equal(ckpt_number(b, "state_changed"), rows); /* starts again */
    assert_string_equal(ckpt_word(b, "descriptor_differs"), "optimizer_args");
    json_decref(diff);
    assert_int_equal(ckpt_run("dump %s/in --table b --state", d), 0);
    ckpt_expect(",0.25\n");
    assert_int_equal(ckpt_run("import --keys %s/npy/keys.npy --table b --out %s/in", d, d), 2);
    ckpt_expect("--values is missing");
    assert_int_equal(
        ckpt_run("import --keys %s/npy/keys.npy --values %s/npy/sum.npy --table b --out %s/in", d, d, d), 1);
    ckpt_expect("sum.npy: values must have the shape [rows, dim]");
    assert_int_equal(
        ckpt_run("import --keys %s/npy/keys.npy --values %s/npy/values.npy --table b --out %s/in --dim 4", d,
                 d, d),
        1);
    ckpt_expect("values.npy: its rows have 5 values, and --dim says 4");
    assert_int_equal(
        ckpt_run("import --keys %s/npy/keys.npy --values %s/npy/values.npy --table b --out %s/in --dtype f64",
                 d, d, d),
        2);
    ckpt_expect("--dtype must be");
}

/* Tensors at their places: keys, values and state of a row belong together. */
TEST(test_export, temporary_directory_setup, temporary_directory_teardown)
{
    const char *d = *state;
    static uint8_t file[1 << 20];
    char path[512];
    uint64_t header_bytes;
    chain_write(d, LINKS);
    assert_int_equal(ckpt_run("export %s/ckpt-%d --table b --out %s/b.safetensors", d, LAST, d), 0);
    (void)snprintf(path, sizeof(path), "%s/b.safetensors", d);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t bytes = fread(file, 1, sizeof(file), f);
    (void)fclose(f);
    memcpy(&header_bytes, file, 8);
    json_t *header = json_loadb((const char *)file + 8, header_bytes, 0, NULL);
    assert_non_null(header);
    const uint64_t rows = chain_rows(LINKS, 2);
    assert_int_equal(bytes, 8 + header_bytes + rows * (8 + 6 * 4));
    const uint8_t *data[3];
    static const char *const names[] = {"keys", "values", "sum"};
    for (uint32_t i = 0; i < 3; i++) {
        const json_t *offsets = json_object_get(json_object_get(header, names[i]), "data_offsets");
        data[i] = file + 8 + header_bytes + json_integer_value(json_array_get(offsets, 0));
    }
    assert_string_equal(ckpt_word(json_object_get(header, "__metadata__"), "table"), "b");
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t key;
        float values[5], sum;
        memcpy(&key, data[0] + r * 8, 8);
        memcpy(values, data[1] + r * 20, 20);
        memcpy(&sum, data[2] + r * 4, 4);
        const uint32_t i = (uint32_t)sum % 10000;
        assert_int_equal(key, chain_key(i));
        assert_true(sum == chain_value(i, chain_model[LINKS][2][i]) && values[0] == sum && values[4] == sum);
    }
    json_decref(header);
    assert_int_equal(ckpt_run("export %s/ckpt-%d --table b --out %s/b.pt", d, LAST, d), 2);
    ckpt_expect("--out must name a file that ends in .safetensors or .npy");
    assert_int_equal(ckpt_run("export %s/ckpt-%d --table b --out %s/none/b.npy", d, LAST, d), 1);
    ckpt_expect("none/b.npy: No such file or directory");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_ckpt_rows MILLRACE\n");
        return 2;
    }
    ckpt_program = argv[1];
    return tests_run(NULL, NULL);
}
