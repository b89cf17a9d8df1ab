/* The commands of `millrace ckpt` that look at checkpoints and compact them, as a user types them, on chains
 * whose rows are known. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps/checkpoint/checkpoint.h"
#include "tests/command.h"
#include "tests/test.h"
#include "tests/unit/ps/checkpoint_fixture.h"
#include "tests/unit/tools/ckpt_chain_fixture.h"
#include "tests/unit/tools/ckpt_program.h"
#include "tools/arrays/npy.h"

enum { LINKS = 4, LAST = CHAIN_FIRST + LINKS - 1 };

TEST(test_list, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(ckpt_run("list %s --verify --json", directory), 0);
    json_t *list = ckpt_json();
    assert_int_equal(json_array_size(list), LINKS);
    for (uint32_t i = 0; i < LINKS; i++) {
        const json_t *one = json_array_get(list, i);
        assert_int_equal(ckpt_number(one, "id"), CHAIN_FIRST + i);
        assert_string_equal(ckpt_word(one, "kind"), i == 0 ? "full" : "delta");
        assert_true(i == 0 ? json_is_null(json_object_get(one, "parent"))
                           : ckpt_number(one, "parent") == CHAIN_FIRST + i - 1);
        assert_int_equal(ckpt_number(one, "step"), 10 * (CHAIN_FIRST + i));
        assert_true(json_is_true(json_object_get(one, "at_step")));
        assert_true(json_is_true(json_object_get(one, "verified")));
        assert_true(ckpt_number(one, "bytes") > 2 << 20);
    }
    json_decref(list);
    assert_int_equal(ckpt_run("list %s", directory), 0);
    ckpt_expect("delta ");
    assert_int_equal(ckpt_run("list %s/ckpt-13 --json", directory), 0);
    list = ckpt_json();
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(ckpt_number(json_array_get(list, 0), "id"), 13);
    json_decref(list);
    assert_int_equal(ckpt_run("list %s/none", directory), 1);
    ckpt_expect("none: No such file or directory; name a directory of checkpoints");
}

TEST(test_verify_names_file_and_block, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(ckpt_run("verify %s", directory), 0);
    ckpt_expect("ckpt-14: ok, ");
    fixture_flip(fixture_path(directory, CHAIN_FIRST + 2, "core-001.mrc"), 70000, 1);
    assert_int_equal(ckpt_run("verify %s --json", directory), 1);
    *strstr(ckpt_output_text, "millrace ckpt verify: ") = '\0'; /* its last line */
    json_t *list = ckpt_json();
    for (uint32_t i = 0; i < LINKS; i++) {
        const json_t *one = json_array_get(list, i);
        assert_true(json_is_true(json_object_get(one, "ok")) == (i < 2));
        assert_true(i < 2 || strstr(ckpt_word(one, "error"), "ckpt-13/core-001.mrc: block 0: ") != NULL);
    }
    json_decref(list);
    assert_int_equal(ckpt_run("verify %s/ckpt-12", directory), 0);
    assert_int_equal(ckpt_run("verify %s/ckpt-14", directory), 1);
    ckpt_expect("ckpt-13/core-001.mrc: block 0: its hash does not match");
    assert_int_equal(ckpt_run("list %s", directory), 0); /* looks at MANIFESTs */
    assert_int_equal(ckpt_run("list %s --verify", directory), 1);
    ckpt_expect("2 of 4 checkpoints cannot be restored");
}

/* None takes a damaged one for a good one, none leaves a file behind. */
TEST(test_every_command_says_what_is_damaged, temporary_directory_setup, temporary_directory_teardown)
{
    const char *d = *state;
    chain_write(d, LINKS);
    fixture_flip(fixture_path(d, CHAIN_FIRST + 1, "core-000.mrc"), 555, 1);
    const char *commands[] = {"info %s/ckpt-14",
                              "dump %s/ckpt-14 --table a >%s/made",
                              "diff %s/ckpt-11 %s/ckpt-14",
                              "export %s/ckpt-14 --table a --out %s/made.npy",
                              "export %s/ckpt-14 --table a --out %s/made.safetensors",
                              "dump %s/ckpt-14 --table a --out %s/made.csv",
                              "compact %s/ckpt-14",
                              "compact %s/ckpt-14 --out %s/other"};
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        char arguments[1000];
        /* As many directories as the command names. */
        (void)snprintf(arguments, sizeof(arguments), commands[i], d,
                       d); /* NOLINT(clang-diagnostic-format-nonliteral) */
        assert_int_equal(ckpt_run("%s", arguments), 1);
        ckpt_expect("ckpt-12/core-000.mrc: block 0: its hash does not match");
    }
    assert_int_equal(ckpt_run("list %s", d), 0);
    assert_int_equal(ckpt_run("list %s/other", d), 0); /* made, and empty */
    ckpt_expect("other: there is no checkpoint in this directory");
    assert_int_equal(command_run("test -z \"$(find %s -name 'made.*' -o -name '.tmp*')\"", d), 0);
}

/* The directory of an output may be /tmp, where another user may have made the link. */
TEST(test_an_output_goes_through_no_link, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char link[PS_PATH_BYTES], victim[PS_PATH_BYTES];
    chain_write(directory, LINKS);
    (void)snprintf(link, sizeof(link), "%s/made.npy.part", directory);
    (void)snprintf(victim, sizeof(victim), "%s/victim", directory);
    assert_int_equal(symlink(victim, link), 0);
    assert_int_equal(ckpt_run("export %s/ckpt-14 --table a --out %s/made.npy", directory, directory), 0);
    assert_int_equal(access(victim, F_OK), -1);
}

TEST(test_info, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    for (uint32_t memory_mib = 0; memory_mib < 20; memory_mib += 16) {
        assert_int_equal(ckpt_run("info %s/ckpt-%d --json --memory-mib %u", directory, LAST, memory_mib), 0);
        json_t *info = ckpt_json();
        const json_t *features = json_object_get(info, "features");
        assert_string_equal(ckpt_word(info, "kind"), "delta");
        assert_int_equal(json_array_size(json_object_get(info, "chain")), LINKS);
        assert_int_equal(ckpt_number(info, "step"), 10 * LAST);
        assert_int_equal(ckpt_number(info, "cores"), 2);
        assert_int_equal(ckpt_number(ckpt_feature(features, "a"), "rows"), chain_rows(LINKS, 1));
        assert_int_equal(ckpt_number(ckpt_feature(features, "b"), "rows"), chain_rows(LINKS, 2));
        assert_string_equal(ckpt_word(ckpt_feature(features, "b"), "optimizer"), "rowwise_adagrad");
        assert_string_equal(ckpt_word(ckpt_feature(features, "v"), "kind"), "variable");
        assert_int_equal(ckpt_number(info, "observations_bytes"), 16);
        json_decref(info);
    }
    assert_int_equal(ckpt_run("info %s", directory), 0);
    ckpt_expect("delta, on ckpt-11 ckpt-12 ckpt-13");
    assert_int_equal(ckpt_run("info %s/ckpt-5", directory), 1);
    ckpt_expect("there is no ckpt-5 here; see millrace ckpt list");
}

/* What diff has to find between two links. */
static void check_diff(const char *directory, uint32_t a, uint32_t b, uint32_t memory_mib)
{
    assert_int_equal(ckpt_run("diff %s/ckpt-%u %s/ckpt-%u --json --memory-mib %u", directory,
                              CHAIN_FIRST + a - 1, directory, CHAIN_FIRST + b - 1, memory_mib),
                     3);
    json_t *diff = ckpt_json();
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
        const json_t *found = ckpt_feature(json_object_get(diff, "features"), table == 1 ? "a" : "b");
        assert_int_equal(ckpt_number(found, "a_rows"), chain_rows(a, table));
        assert_int_equal(ckpt_number(found, "b_rows"), chain_rows(b, table));
        assert_int_equal(ckpt_number(found, "added"), added);
        assert_int_equal(ckpt_number(found, "removed"), removed);
        assert_int_equal(ckpt_number(found, "changed"), changed);
        assert_int_equal(ckpt_number(found, "state_changed"), 0);
        assert_true(json_number_value(json_object_get(found, "largest_difference")) == largest);
    }
    const json_t *v = ckpt_feature(json_object_get(diff, "features"), "v");
    assert_int_equal(ckpt_number(v, "changed"), 1);
    assert_true(json_number_value(json_object_get(v, "largest_difference")) == (double)b - (double)a);
    json_decref(diff);
}

/* ---- a variable that is whole in one checkpoint and in ranges in the other ---- */

enum { SPREAD_ELEMENTS = 11, SPREAD_EACH = 4, SPREAD_RANGES = 3 };

/* Adagrad keeps as much beside each value: for each range its values, then their state. `first`: of the
 * values. */
static void write_spread(const char *directory, uint64_t id, uint32_t range_values, float first)
{
    const uint32_t dims[1] = {SPREAD_ELEMENTS}, each = range_values == 0 ? SPREAD_ELEMENTS : range_values;
    struct mr_feature f = mr_feature_variable("w", 1, dims);
    struct ckpt_fixture_writer w;
    uint64_t offset = 0;
    mr_feature_set_optimizer(&f, MR_OPT_ADAGRAD);
    f.range_values = range_values;
    ckpt_fixture_start(&w, directory, id, 0, &f, 1, 2);
    for (uint32_t at = 0; at < SPREAD_ELEMENTS; at += each) {
        const uint32_t count = SPREAD_ELEMENTS - at < each ? SPREAD_ELEMENTS - at : each;
        float stored[2 * SPREAD_ELEMENTS];
        for (uint32_t i = 0; i < count; i++) {
            stored[i] = (float)(at + i) + first;
            stored[count + i] = 100;
        }
        const uint64_t bytes = 2 * count * sizeof(float);
        for (uint64_t done = 0; done < bytes; done += 20) { /* pieces reach from the values into the state */
            const uint64_t part = bytes - done < 20 ? bytes - done : 20;
            const struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                                             .feature = 1,
                                             .count = (uint32_t)part,
                                             .offset = offset + done,
                                             .bytes = part};
            ckpt_fixture_record(&w, (uint32_t)(at / each) % 2, &record, (const uint8_t *)stored + done);
        }
        offset += bytes;
    }
    ckpt_fixture_publish(&w, 2);
}

TEST(test_diff_of_a_variable_in_ranges, temporary_directory_setup, temporary_directory_teardown)
{
    char other[PS_PATH_BYTES];
    const char *directory = *state;
    (void)snprintf(other, sizeof(other), "%s/spread", directory);
    assert_int_equal(mkdir(other, 0700), 0);
    write_spread(other, 1, 0, 0);
    write_spread(other, 2, SPREAD_EACH, 0);
    write_spread(other, 3, SPREAD_EACH, 0.5f);
    for (uint32_t a = 1; a <= 3; a++) {
        for (uint32_t b = 1; b <= 3; b++) {
            const bool moved = (a == 3) != (b == 3), split = (a == 1) != (b == 1);
            assert_int_equal(ckpt_run("diff %s/ckpt-%u %s/ckpt-%u --json", other, a, other, b),
                             moved || split ? 3 : 0);
            json_t *diff = ckpt_json();
            const json_t *w = ckpt_feature(json_object_get(diff, "features"), "w");

            assert_int_equal(ckpt_number(w, "changed"), moved ? SPREAD_ELEMENTS : 0);
            assert_int_equal(ckpt_number(w, "state_changed"), 0);
            assert_true(json_number_value(json_object_get(w, "largest_difference")) == (moved ? 0.5 : 0));
            json_decref(diff);
        }
    }
}

TEST(test_diff, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    check_diff(directory, 1, LINKS, 64);
    check_diff(directory, 1, LINKS, 0); /* in passes */
    check_diff(directory, 2, 3, 64);
    check_diff(directory, 2, 3, 0);
    assert_int_equal(ckpt_run("diff %s/ckpt-13 %s/ckpt-13", directory, directory), 0);
}

TEST(test_compact, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    assert_int_equal(ckpt_run("compact %s/ckpt-13", directory), 1);
    ckpt_expect("ckpt-14 is newer");
    assert_int_equal(ckpt_run("compact %s/ckpt-14 --memory-mib 0", directory), 0); /* in passes */
    ckpt_expect("ckpt-15: full, ");
    assert_int_equal(ckpt_run("compact %s/ckpt-13 --out %s/other", directory, directory), 0);
    ckpt_expect("other/ckpt-13: full, ");
    assert_int_equal(ckpt_run("diff %s/ckpt-14 %s/ckpt-15", directory, directory), 0);
    assert_int_equal(ckpt_run("diff %s/ckpt-13 %s/other/ckpt-13", directory, directory), 0);
    assert_int_equal(ckpt_run("verify %s", directory), 0);
    assert_int_equal(ckpt_run("info %s/ckpt-15 --json", directory), 0);
    json_t *info = ckpt_json();
    assert_string_equal(ckpt_word(info, "kind"), "full");
    assert_int_equal(ckpt_number(info, "step"), 10 * LAST);
    assert_int_equal(ckpt_number(info, "incarnation"), 3);
    assert_int_equal(ckpt_number(info, "observations_bytes"), 16);
    json_decref(info);
    assert_int_equal(ckpt_run("compact %s/ckpt-15", directory), 0);
    ckpt_expect("is a full already");
    assert_int_equal(ckpt_run("compact %s/ckpt-13 --out %s/other", directory, directory), 1);
    ckpt_expect("save under another id or remove it");
}

/* A delta that dropped a table and a variable: no command takes their rows in earlier links for damage, or
 * for rows that are there. */
TEST(test_what_was_dropped, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct mr_feature features[3];
    struct ckpt_fixture_writer w;
    chain_write(directory, LINKS);
    chain_features(features);
    ckpt_fixture_start(&w, directory, LAST + 1, LAST, features, 1, 2);
    ckpt_fixture_publish(&w, 2);
    assert_int_equal(ckpt_run("verify %s", directory), 0);
    ckpt_expect("ckpt-15: ok, ");
    assert_int_equal(ckpt_run("info %s/ckpt-15 --json", directory), 0);
    json_t *info = ckpt_json();
    assert_int_equal(json_array_size(json_object_get(info, "features")), 1);
    json_decref(info);
    assert_int_equal(ckpt_run("export %s/ckpt-15 --table b --out %s/b.npy", directory, directory), 1);
    assert_int_equal(ckpt_run("compact %s/ckpt-15", directory), 0);
    ckpt_expect("ckpt-16: full, ");
    assert_int_equal(ckpt_run("diff %s/ckpt-15 %s/ckpt-16", directory, directory), 0);
}

/* What an older version cannot read is shown, and what this one cannot read is not called damaged. */
TEST(test_what_a_checkpoint_needs, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    struct mr_feature features[3];
    struct ckpt_fixture_writer w;
    chain_features(features);
    ckpt_fixture_start(&w, directory, 1, 0, features, 1, 2);
    ckpt_fixture_publish(&w, 2);
    mr_feature_set_optimizer(&features[0], MR_OPT_ADAM);
    features[0].optimizer_args[3] = features[0].optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1;
    ckpt_fixture_start(&w, directory, 2, 0, features, 1, 2);
    ckpt_fixture_publish(&w, 2);
    for (int id = 1; id <= 2; id++) {
        assert_int_equal(ckpt_run("info %s/ckpt-%d --json", directory, id), 0);
        json_t *info = ckpt_json();
        assert_int_equal(ckpt_number(info, "format"), id == 2 ? 7 : 6);
        assert_int_equal(json_array_size(json_object_get(info, "needs")), id == 2 ? 2 : 0);
        json_decref(info);
    }
    assert_int_equal(ckpt_run("info %s/ckpt-2", directory), 0);
    ckpt_expect("needs        adam_step, dense (written by version " MR_VERSION);
    fixture_rewrite(fixture_path(directory, 2, "MANIFEST"), "features", "optimizer", json_integer(17));
    assert_int_equal(ckpt_run("verify %s/ckpt-2", directory), 1);
    ckpt_expect("ckpt-2: NEWER: ");
    ckpt_expect("does not know its content");
    ckpt_expect("use the version that wrote it");
    assert_int_equal(ckpt_run("list %s --json", directory), 1);
    ckpt_expect("\"damaged\": false, \"newer\": true");
}

/* Checkpoints with a parameter of 1000 elements, and the state of an optimizer beside it. `bytes`: of a
 * record. */
static void save_parameter(const char *directory, uint64_t id, float last, const char *optimizer,
                           uint32_t bytes)
{
    struct ps_saved_parameter list[2] = {
        {.name = "net/w", .rank = 1, .dims = {1000}, .step = 3},
        {.name = "net/w", .rule = MR_OPT_MOMENTUM, .rank = 1, .dims = {1000}, .step = 3}};
    char text[PS_TEXT_BYTES];
    struct ps_writer *w;
    (void)snprintf(list[1].optimizer, sizeof(list[1].optimizer), "%s", optimizer);
    assert_int_equal(fixture_start(NULL, directory, id, &w, text), MR_OK);
    assert_int_equal(ps_writer_set_parameters(w, list, 2), MR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t at = 0; at < 4000; at += bytes) {
            const uint32_t count = 4000 - at < bytes ? 4000 - at : bytes;
            const struct ps_record record = {
                .kind = PS_RECORD_PARAMETER, .feature = i, .count = count, .offset = at, .bytes = count};
            float *out = (float *)(void *)fixture_append(w, 0, &record);
            for (uint32_t k = 0; k < count / 4; k++)
                out[k] = at / 4 + k == 999 ? last : 0.5f;
        }
    }
    for (uint32_t core = 0; core < FIXTURE_CORES; core++) {
        assert_true(fixture_fill(w, 1, core, 10)); /* all have the same rows */
        ps_writer_core_done(w, core);
    }
    assert_int_equal(fixture_finish(w).status, MR_OK);
}

TEST(test_parameters_are_the_same_or_differ, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    save_parameter(directory, 1, 2.0f, "sgd", 4000);
    save_parameter(directory, 2, 2.0f, "sgd", 1200); /* cut into other records */
    save_parameter(directory, 3, 2.5f, "sgd", 4000);
    save_parameter(directory, 4, 2.0f, "other", 4000);
    assert_int_equal(ckpt_run("diff %s/ckpt-1 %s/ckpt-2", directory, directory), 0);
    ckpt_expect("same");
    assert_int_equal(ckpt_run("diff %s/ckpt-1 %s/ckpt-3", directory, directory), 3);
    ckpt_expect("differs");
    assert_int_equal(ckpt_run("diff %s/ckpt-1 %s/ckpt-4 --json", directory, directory), 3);
    json_t *diff = ckpt_json();
    const json_t *list = json_object_get(diff, "parameters");
    assert_int_equal(json_array_size(list), 3);
    assert_true(json_is_false(json_object_get(json_array_get(list, 0), "differs")));
    assert_string_equal(ckpt_word(json_array_get(list, 1), "optimizer"), "other");
    assert_string_equal(ckpt_word(json_array_get(list, 1), "only_in"), "b");
    assert_string_equal(ckpt_word(json_array_get(list, 2), "only_in"), "a");
    json_decref(diff);
}

/* The same file in one's own memory; free() it. */
static uint8_t *read_whole(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    uint8_t *all = malloc(1 << 20);
    assert_non_null(all);
    *bytes = fread(all, 1, 1 << 20, f);
    assert_true(*bytes > 0 && *bytes < 1 << 20);
    (void)fclose(f);
    return all;
}

static float float_at(const uint8_t *bytes, size_t index)
{
    float value;
    memcpy(&value, bytes + index * sizeof(value), sizeof(value));
    return value;
}

TEST(test_dump_a_parameter, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char path[512], error[TOOL_NPY_TEXT_BYTES];
    struct tool_npy_file npy;
    float values[1000];
    save_parameter(directory, 1, 2.5f, "sgd/1", 1200);
    assert_int_equal(ckpt_run("dump %s/ckpt-1 --parameter net/w", directory), 0);
    ckpt_expect("part,index,value\nvalues,0,0.5\n");
    ckpt_expect("values,999,2.5\n");
    assert_null(strstr(ckpt_output_text, "velocity"));
    assert_int_equal(ckpt_run("dump %s/ckpt-1 --parameter net/w --state", directory), 0);
    ckpt_expect("\nsgd/1.velocity,999,2.5\n");
    assert_int_equal(ckpt_run("dump %s/ckpt-1 --parameter net/w --state --format npy --out %s/arrays",
                              directory, directory),
                     0);
    (void)snprintf(path, sizeof(path), "%s/arrays/sgd_1.velocity.npy", directory);
    assert_true(tool_npy_open(&npy, path, error));
    assert_int_equal(npy.array.rank, 1);
    assert_int_equal(npy.array.shape[0], 1000);
    assert_true(tool_npy_read(&npy, 0, 1000, values, error));
    assert_true(values[0] == 0.5f && values[999] == 2.5f);
    tool_npy_close(&npy);
    assert_int_equal(ckpt_run("dump %s/ckpt-1 --parameter net/b", directory), 1);
    ckpt_expect("it has no parameter net/b (of 2 parameters and states, the first is net/w)");
    assert_int_equal(ckpt_run("dump %s/ckpt-1 --parameter net/w --table a", directory), 2);
    ckpt_expect("--table or --parameter, not both");
}

TEST(test_export_a_parameter, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char path[512];
    size_t bytes;
    save_parameter(directory, 1, 2.5f, "sgd", 4000);
    assert_int_equal(
        ckpt_run("export %s/ckpt-1 --parameter net/w --out %s/w.safetensors", directory, directory), 0);
    (void)snprintf(path, sizeof(path), "%s/w.safetensors", directory);
    uint8_t *file = read_whole(path, &bytes);
    uint64_t length;
    memcpy(&length, file, sizeof(length));
    json_t *root = json_loadb((const char *)file + 8, length, 0, NULL);
    assert_non_null(root);
    assert_string_equal(ckpt_word(json_object_get(root, "__metadata__"), "sgd.steps"), "3");
    const char *const names[] = {"values", "sgd.velocity"};
    for (uint32_t i = 0; i < 2; i++) {
        const json_t *offsets = json_object_get(json_object_get(root, names[i]), "data_offsets");
        const size_t begin = 8 + length + (size_t)json_integer_value(json_array_get(offsets, 0));
        assert_true(begin + 4000 <= bytes && float_at(file + begin, 0) == 0.5f &&
                    float_at(file + begin, 999) == 2.5f);
    }
    json_decref(root);
    free(file);
    assert_int_equal(ckpt_run("export %s/ckpt-1 --parameter net/w --out %s/w.npy", directory, directory), 0);
    (void)snprintf(path, sizeof(path), "%s/w.npy", directory);
    file = read_whole(path, &bytes);
    assert_true(float_at(file + bytes - 4000, 998) == 0.5f && float_at(file + bytes - 4, 0) == 2.5f);
    free(file);
    assert_int_equal(
        ckpt_run("export %s/ckpt-1 --parameter net/w --i64-keys --out %s/w.npy", directory, directory), 2);
    ckpt_expect("a parameter has no keys");
}

/* A state of another version's optimizer, or one of another length, is written as it lies there. */
TEST(test_a_state_of_unknown_parts, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    char text[PS_TEXT_BYTES];
    struct ps_writer *w;
    const struct ps_saved_parameter list[2] = {
        {.name = "p", .rank = 2, .dims = {1, 2}, .step = 3},
        {.name = "p", .optimizer = "o", .rule = MR_OPT_ADAM, .rank = 1, .dims = {3}, .step = 3}};
    assert_int_equal(fixture_start(NULL, directory, 1, &w, text), MR_OK);
    assert_int_equal(ps_writer_set_parameters(w, list, 2), MR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t bytes = i == 0 ? 8 : 12;
        const struct ps_record record = {
            .kind = PS_RECORD_PARAMETER, .feature = i, .count = bytes, .bytes = bytes};
        float *out = (float *)(void *)fixture_append(w, 0, &record);
        for (uint32_t k = 0; k < bytes / 4; k++)
            out[k] = (float)(10 * i + k);
    }
    fixture_publish(w, FIXTURE_CORES);
    assert_int_equal(ckpt_run("dump %s/ckpt-1 --parameter p --state", directory), 0);
    assert_string_equal(ckpt_output_text,
                        "part,index,value\nvalues,0,0\nvalues,1,1\no.state,0,10\no.state,1,11\n"
                        "o.state,2,12\n");
}

/* Killed at any time: the chain is as it was, a new checkpoint is whole or not there, and the next attempt
 * succeeds. */
TEST(test_compact_killed, temporary_directory_setup, temporary_directory_teardown)
{
    const char *directory = *state;
    chain_write(directory, LINKS);
    for (uint32_t ms = 1; ms < 60; ms += 3) {
        assert_int_equal(
            command_run(
                "%s ckpt compact %s/ckpt-14 --out %s/other --memory-mib 0 >/dev/null 2>&1 & "
                "sleep 0.%03u; kill -KILL $! 2>/dev/null; wait $! 2>/dev/null; " /* until it is gone */
                "test -d %s/other || mkdir %s/other",
                ckpt_program, directory, directory, ms, directory, directory),
            0);
        assert_int_equal(ckpt_run("list %s/other --json --verify", directory), 0);
        json_t *list = ckpt_json();
        if (json_array_size(list) == 0)
            assert_int_equal(ckpt_run("compact %s/ckpt-14 --out %s/other", directory, directory), 0);
        json_decref(list);
        assert_int_equal(ckpt_run("diff %s/ckpt-14 %s/other", directory, directory), 0);
        assert_int_equal(command_run("rm -r %s/other", directory), 0);
    }
    assert_int_equal(ckpt_run("verify %s", directory), 0);
}

TEST(test_help_and_version)
{
    static const char *const names[] = {"list", "verify", "info",    "diff",
                                        "dump", "export", "compact", "import"};
    assert_int_equal(ckpt_run("--help"), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        assert_int_equal(ckpt_run("--help"), 0);
        ckpt_expect(names[i]);
        assert_int_equal(ckpt_run("%s --help", names[i]), 0);
        ckpt_expect("usage: millrace ckpt ");
    }
    assert_int_equal(ckpt_run("--version"), 0);
    ckpt_expect("millrace " MR_VERSION);
    assert_int_equal(ckpt_run("lost"), 2);
    ckpt_expect("no command lost; see millrace ckpt --help");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_ckpt_commands MILLRACE\n");
        return 2;
    }
    ckpt_program = argv[1];
    return tests_run(NULL, NULL);
}
