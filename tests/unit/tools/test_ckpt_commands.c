/* The commands of `millrace ckpt`, as a user types them, on chains whose rows are known. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/unit/tools/ckpt_chain_fixture.h"
#include "tools/npy.h"

enum { LINKS = 4, LAST = CHAIN_FIRST + LINKS - 1, OUTPUT_BYTES = 1 << 20 };

static const char *millrace;
static char output[OUTPUT_BYTES]; /* standard output and error */

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char arguments[1200], command[2500];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    (void)snprintf(command, sizeof command, "exec 2>&1 </dev/null; %s ckpt %s", millrace, arguments);
    FILE *pipe = popen(command, "re");
    assert_non_null(pipe);
    const size_t bytes = fread(output, 1, sizeof output - 1, pipe);
    output[bytes] = '\0';
    assert_true(bytes < sizeof output - 1);
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_says(const char *says)
{
    if (!strstr(output, says))
        fail_msg("\"%s\" is not in:\n%s", says, output);
}

static json_t *parse_output(void)
{
    json_error_t error;
    json_t *value = json_loads(output, 0, &error);
    if (!value)
        fail_msg("%s: %s", error.text, output);
    return value;
}

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number \"%s\" in: %s", key, output);
    return json_integer_value(value);
}

static const char *word(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        fail_msg("no text \"%s\" in: %s", key, output);
    return json_string_value(value);
}

static const json_t *feature(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(word(json_array_get(list, i), "name"), name) == 0)
            return json_array_get(list, i);
    fail_msg("no feature %s in: %s", name, output);
    return NULL;
}

static void test_list(void **state)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(run("list %s --verify --json", directory), 0);
    json_t *list = parse_output();
    assert_int_equal(json_array_size(list), LINKS);
    for (uint32_t i = 0; i < LINKS; i++) {
        const json_t *one = json_array_get(list, i);
        assert_int_equal(number(one, "id"), CHAIN_FIRST + i);
        assert_string_equal(word(one, "kind"), i == 0 ? "full" : "delta");
        assert_true(i == 0 ? json_is_null(json_object_get(one, "parent"))
                           : number(one, "parent") == CHAIN_FIRST + i - 1);
        assert_int_equal(number(one, "step"), 10 * (CHAIN_FIRST + i));
        assert_true(json_is_true(json_object_get(one, "at_step")));
        assert_true(json_is_true(json_object_get(one, "verified")));
        assert_true(number(one, "bytes") > 2 << 20);
    }
    json_decref(list);
    assert_int_equal(run("list %s", directory), 0);
    expect_says("delta ");
    assert_int_equal(run("list %s/none", directory), 1);
    expect_says("none: No such file or directory; name a directory of checkpoints");
}

static void test_verify_names_file_and_block(void **state)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(run("verify %s", directory), 0);
    expect_says("ckpt-14: ok, ");
    ckpt_fixture_damage(directory, CHAIN_FIRST + 2, "core-001.mrc", 70000);
    assert_int_equal(run("verify %s --json", directory), 1);
    *strstr(output, "millrace ckpt verify: ") = '\0'; /* its last line */
    json_t *list = parse_output();
    for (uint32_t i = 0; i < LINKS; i++) {
        const json_t *one = json_array_get(list, i);
        assert_true(json_is_true(json_object_get(one, "ok")) == (i < 2));
        assert_true(i < 2 || strstr(word(one, "error"), "ckpt-13/core-001.mrc: block 0: ") != NULL);
    }
    json_decref(list);
    assert_int_equal(run("verify %s/ckpt-12", directory), 0);
    assert_int_equal(run("verify %s/ckpt-14", directory), 1);
    expect_says("ckpt-13/core-001.mrc: block 0: its hash does not match");
    assert_int_equal(run("list %s", directory), 0); /* looks at MANIFESTs */
    assert_int_equal(run("list %s --verify", directory), 1);
    expect_says("2 of 4 checkpoints cannot be restored");
}

/* None takes a damaged one for a good one, none leaves a file behind. */
static void test_every_command_says_what_is_damaged(void **state)
{
    const char *d = *state;
    chain_write(d, LINKS);
    ckpt_fixture_damage(d, CHAIN_FIRST + 1, "core-000.mrc", 555);
    const char *commands[] = {"info %s/ckpt-14",
                              "dump %s/ckpt-14 --table a >%s/made",
                              "diff %s/ckpt-11 %s/ckpt-14",
                              "export %s/ckpt-14 --table a --out %s/made.npy",
                              "export %s/ckpt-14 --table a --out %s/made.safetensors",
                              "dump %s/ckpt-14 --table a --out %s/made.csv",
                              "compact %s/ckpt-14",
                              "compact %s/ckpt-14 --out %s/other"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char arguments[1000];
        /* As many directories as the command names. */
        (void)snprintf(arguments, sizeof arguments, commands[i], d,
                       d); /* NOLINT(clang-diagnostic-format-nonliteral) */
        assert_int_equal(run("%s", arguments), 1);
        expect_says("ckpt-12/core-000.mrc: block 0: its hash does not match");
    }
    assert_int_equal(run("list %s", d), 0);
    assert_int_equal(run("list %s/other", d), 0); /* made, and empty */
    assert_string_equal(output, "");
    char command[600];
    (void)snprintf(command, sizeof command, "test -z \"$(find %s -name 'made.*' -o -name '.tmp*')\"", d);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void test_info(void **state)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    for (uint32_t memory_mib = 0; memory_mib < 20; memory_mib += 16) {
        assert_int_equal(run("info %s/ckpt-%d --json --memory-mib %u", directory, LAST, memory_mib), 0);
        json_t *info = parse_output();
        const json_t *features = json_object_get(info, "features");
        assert_string_equal(word(info, "kind"), "delta");
        assert_int_equal(json_array_size(json_object_get(info, "chain")), LINKS);
        assert_int_equal(number(info, "step"), 10 * LAST);
        assert_int_equal(number(info, "cores"), 2);
        assert_int_equal(number(feature(features, "a"), "rows"), chain_rows(LINKS, 1));
        assert_int_equal(number(feature(features, "b"), "rows"), chain_rows(LINKS, 2));
        assert_string_equal(word(feature(features, "b"), "optimizer"), "rowwise_adagrad");
        assert_string_equal(word(feature(features, "v"), "kind"), "variable");
        assert_int_equal(number(info, "sightings_bytes"), 16);
        json_decref(info);
    }
    assert_int_equal(run("info %s", directory), 0);
    expect_says("delta, on ckpt-11 ckpt-12 ckpt-13");
    assert_int_equal(run("info %s/ckpt-5", directory), 1);
    expect_says("there is no ckpt-5 here; see millrace ckpt list");
}

/* What diff has to find between two links. */
static void check_diff(const char *directory, uint32_t a, uint32_t b, uint32_t memory_mib)
{
    assert_int_equal(run("diff %s/ckpt-%u %s/ckpt-%u --json --memory-mib %u", directory, CHAIN_FIRST + a - 1,
                         directory, CHAIN_FIRST + b - 1, memory_mib),
                     3);
    json_t *diff = parse_output();
    for (uint32_t table = 1; table <= CHAIN_TABLES; table++) {
        int64_t added = 0, removed = 0, changed = 0;
        double largest = 0;
        for (uint32_t i = 0; i < CHAIN_KEYS; i++) {
            const uint32_t x = chain_model[a][table][i], y = chain_model[b][table][i];
            added += x == 0 && y != 0;
            removed += x != 0 && y == 0;
            changed += x != 0 && y != 0 && x != y;
            const double difference = x != 0 && y != 0 ? 10000.0 * (double)labs((long)x - (long)y) : 0;
            largest = difference > largest ? difference : largest;
        }
        assert_true(added > 0 && changed > 0);
        const json_t *found = feature(json_object_get(diff, "features"), table == 1 ? "a" : "b");
        assert_int_equal(number(found, "a_rows"), chain_rows(a, table));
        assert_int_equal(number(found, "b_rows"), chain_rows(b, table));
        assert_int_equal(number(found, "added"), added);
        assert_int_equal(number(found, "removed"), removed);
        assert_int_equal(number(found, "changed"), changed);
        assert_int_equal(number(found, "state_changed"), 0);
        assert_true(json_number_value(json_object_get(found, "largest_difference")) == largest);
    }
    const json_t *v = feature(json_object_get(diff, "features"), "v");
    assert_int_equal(number(v, "changed"), 1);
    assert_true(json_number_value(json_object_get(v, "largest_difference")) == (double)b - (double)a);
    json_decref(diff);
}

static void test_diff(void **state)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    check_diff(directory, 1, LINKS, 64);
    check_diff(directory, 1, LINKS, 0); /* in passes */
    check_diff(directory, 2, 3, 64);
    check_diff(directory, 2, 3, 0);
    assert_int_equal(run("diff %s/ckpt-13 %s/ckpt-13", directory, directory), 0);
}

static void test_compact(void **state)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(run("compact %s/ckpt-13", directory), 1);
    expect_says("ckpt-14 is newer");
    assert_int_equal(run("compact %s/ckpt-14 --memory-mib 0", directory), 0); /* in passes */
    expect_says("ckpt-15: full, ");
    assert_int_equal(run("compact %s/ckpt-13 --out %s/other", directory, directory), 0);
    expect_says("other/ckpt-13: full, ");
    assert_int_equal(run("diff %s/ckpt-14 %s/ckpt-15", directory, directory), 0);
    assert_int_equal(run("diff %s/ckpt-13 %s/other/ckpt-13", directory, directory), 0);
    assert_int_equal(run("verify %s", directory), 0);
    assert_int_equal(run("info %s/ckpt-15 --json", directory), 0);
    json_t *info = parse_output();
    assert_string_equal(word(info, "kind"), "full");
    assert_int_equal(number(info, "step"), 10 * LAST);
    assert_int_equal(number(info, "incarnation"), 3);
    assert_int_equal(number(info, "sightings_bytes"), 16);
    json_decref(info);
    assert_int_equal(run("compact %s/ckpt-15", directory), 0);
    expect_says("is a full already");
    assert_int_equal(run("compact %s/ckpt-13 --out %s/other", directory, directory), 1);
    expect_says("save under another id or remove it");
}

static void test_dump_csv(void **state)
{
    const char *directory = *state;
    uint64_t rows = 0;
    chain_write(directory, LINKS);
    assert_int_equal(run("dump %s/ckpt-%d --table b --state", directory, LAST), 0);
    char *rest = output, *line = strsep(&rest, "\n");
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
    assert_int_equal(run("dump %s/ckpt-%d --table nope", directory, LAST), 1);
    expect_says("it has no table nope; its tables are: a, b");
    assert_int_equal(run("dump %s/ckpt-%d", directory, LAST), 2);
    expect_says("--table is missing");
    assert_int_equal(run("dump %s/ckpt-%d --table a --format x", directory, LAST), 2);
    expect_says("--format must be csv or npy, not \"x\"");
}

/* Whoever reads a pipe may stop: no error, no word about it. */
static void test_pipes_that_end_early(void **state)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(run("dump %s/ckpt-%d --table b | head -n 1", directory, LAST), 0);
    assert_string_equal(output, "key,values0,values1,values2,values3,values4\n");
    assert_int_equal(run("dump %s/ckpt-%d --table b >/dev/full", directory, LAST), 1);
    expect_says("write the rows: No space left on device");
}

static uint8_t *read_npy(const char *directory, const char *name, struct tool_npy *array)
{
    static uint8_t file[1 << 20];
    char path[512], error[TOOL_NPY_ERROR_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t bytes = fread(file, 1, sizeof file, f);
    (void)fclose(f);
    if (!tool_npy_parse(file, bytes, bytes, array, error))
        fail_msg("%s: %s", path, error);
    return file + array->data_offset;
}

static void test_dump_npy_and_import(void **state)
{
    const char *d = *state;
    struct tool_npy array;
    chain_write(d, LINKS);
    assert_int_equal(run("dump %s/ckpt-%d --table b --format npy --state --out %s/npy", d, LAST, d), 0);
    const uint64_t rows = chain_rows(LINKS, 2);
    (void)read_npy(d, "npy/sum.npy", &array);
    assert_true(array.rank == 1 && array.shape[0] == rows && array.dtype == MR_F32);
    (void)read_npy(d, "npy/values.npy", &array);
    assert_true(array.rank == 2 && array.shape[0] == rows && array.shape[1] == 5);
    const uint64_t *keys = (const uint64_t *)(const void *)read_npy(d, "npy/keys.npy", &array);
    assert_true(array.rank == 1 && array.shape[0] == rows && array.dtype == MR_U64);
    for (uint64_t i = 0; i < rows; i++)
        assert_true(keys[i] != keys[(i + 1) % rows]);
    assert_int_equal(run("dump %s/ckpt-%d --table b --format npy", d, LAST), 2);
    expect_says("--out");

    assert_int_equal(
        run("import --keys %s/npy/keys.npy --values %s/npy/values.npy --table b --out %s/in --optimizer "
            "rowwise_adagrad --optimizer-args 0.25 --check-mib 0",
            d, d, d),
        0);
    expect_says("in/ckpt-1: ");
    assert_int_equal(run("verify %s/in", d), 0);
    assert_int_equal(run("diff %s %s/in --json", d, d), 3);
    json_t *diff = parse_output();
    const json_t *b = feature(json_object_get(diff, "features"), "b");
    assert_int_equal(number(b, "b_rows"), rows);
    assert_int_equal(number(b, "added") + number(b, "removed") + number(b, "changed"), 0);
    assert_int_equal(number(b, "state_changed"), rows); /* begins anew */
    assert_string_equal(word(b, "descriptor_differs"), "optimizer_args");
    json_decref(diff);
    assert_int_equal(run("dump %s/in --table b --state", d), 0);
    expect_says(",0.25\n");
    assert_int_equal(run("import --keys %s/npy/keys.npy --table b --out %s/in", d, d), 2);
    expect_says("--values is missing");
    assert_int_equal(
        run("import --keys %s/npy/keys.npy --values %s/npy/sum.npy --table b --out %s/in", d, d, d), 1);
    expect_says("sum.npy: values must have the shape [rows, dim]");
    assert_int_equal(
        run("import --keys %s/npy/keys.npy --values %s/npy/values.npy --table b --out %s/in --dim 4", d, d,
            d),
        1);
    expect_says("values.npy: its rows have 5 values, and --dim says 4");
    assert_int_equal(
        run("import --keys %s/npy/keys.npy --values %s/npy/values.npy --table b --out %s/in --dtype f64", d,
            d, d),
        2);
    expect_says("--dtype must be");
}

/* Tensors at their places: keys, values and state of a row belong together. */
static void test_export(void **state)
{
    const char *d = *state;
    static uint8_t file[1 << 20];
    char path[512];
    uint64_t header_bytes;
    chain_write(d, LINKS);
    assert_int_equal(run("export %s/ckpt-%d --table b --out %s/b.safetensors", d, LAST, d), 0);
    (void)snprintf(path, sizeof path, "%s/b.safetensors", d);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t bytes = fread(file, 1, sizeof file, f);
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
    assert_string_equal(word(json_object_get(header, "__metadata__"), "table"), "b");
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
    assert_int_equal(run("export %s/ckpt-%d --table b --out %s/b.pt", d, LAST, d), 2);
    expect_says("--out must name a file that ends in .safetensors or .npy");
    assert_int_equal(run("export %s/ckpt-%d --table b --out %s/none/b.npy", d, LAST, d), 1);
    expect_says("none/b.npy: No such file or directory");
}

static void test_help_and_version(void **state)
{
    (void)state;
    static const char *const names[] = {"list", "verify", "info",    "diff",
                                        "dump", "export", "compact", "import"};
    assert_int_equal(run("--help"), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(run("--help"), 0);
        expect_says(names[i]);
        assert_int_equal(run("%s --help", names[i]), 0);
        expect_says("usage: millrace ckpt ");
    }
    assert_int_equal(run("--version"), 0);
    expect_says("millrace " MR_VERSION);
    assert_int_equal(run("lost"), 2);
    expect_says("no command lost; see millrace ckpt --help");
}

#define CKPT_TEST(name) cmocka_unit_test_setup_teardown(name, ckpt_fixture_setup, ckpt_fixture_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CKPT_TEST(test_list),
        CKPT_TEST(test_verify_names_file_and_block),
        CKPT_TEST(test_every_command_says_what_is_damaged),
        CKPT_TEST(test_info),
        CKPT_TEST(test_diff),
        CKPT_TEST(test_compact),
        CKPT_TEST(test_dump_csv),
        CKPT_TEST(test_pipes_that_end_early),
        CKPT_TEST(test_dump_npy_and_import),
        CKPT_TEST(test_export),
        cmocka_unit_test(test_help_and_version),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_ckpt_commands MILLRACE\n");
        return 2;
    }
    millrace = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
