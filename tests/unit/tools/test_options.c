#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/options.h"

static struct {
    bool flag;
    const char *text;
    uint32_t u32;
    uint64_t u64;
    float number;
} got;

static const struct tool_option options[] = {
    {"flag", TOOL_FLAG, &got.flag, NULL, "a flag"},    {"text", TOOL_STRING, &got.text, "TEXT", "a text"},
    {"u32", TOOL_U32, &got.u32, "N", "small"},         {"u64", TOOL_U64, &got.u64, "N", "large"},
    {"number", TOOL_FLOAT, &got.number, "X", "float"},
};
static const struct tool_usage usage = {
    .command = "try it",
    .synopsis = "A [B]",
    .summary = "What it does.",
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .words_min = 1,
    .words_max = 2,
};

/* What was printed while the arguments were parsed. */
static char printed[4096];
static const char *words[2];
static uint32_t word_count;
static int exit_code;

/* Standard output and error go to a file meanwhile. */
static bool parse(int argc, char **argv)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    dup2(fileno(file), STDOUT_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    memset(&got, 0, sizeof(got));
    word_count = 99;
    exit_code = 99;
    bool go_on = tool_options_parse(&usage, argc, argv, words, &word_count, &exit_code);
    (void)fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    rewind(file);
    printed[fread(printed, 1, sizeof(printed) - 1, file)] = '\0';
    (void)fclose(file);
    return go_on;
}

#define PARSE(...)                                                                                           \
    parse((int)(sizeof((char *[]){"try", __VA_ARGS__}) / sizeof(char *)),                                    \
          (char *[]){"try", __VA_ARGS__, NULL})

static void test_every_kind(void **state)
{
    (void)state;
    assert_true(PARSE("a", "--flag", "--text", "x y", "--u32=4294967295", "--u64", "0xffffffffffffffff",
                      "--number", "-1.5e-3", "b"));
    assert_true(got.flag);
    assert_string_equal(got.text, "x y");
    assert_int_equal(got.u32, UINT32_MAX);
    assert_int_equal(got.u64, UINT64_MAX);
    assert_true(got.number == -1.5e-3f);
    assert_int_equal(word_count, 2);
    assert_string_equal(words[0], "a");
    assert_string_equal(words[1], "b");
    assert_string_equal(printed, "");
}

static void test_what_is_not_given_stays(void **state)
{
    (void)state;
    assert_true(PARSE("a"));
    assert_false(got.flag);
    assert_null(got.text);
    assert_int_equal(word_count, 1);
}

static void test_empty_values_and_the_end_of_options(void **state)
{
    (void)state;
    assert_true(PARSE("--text=", "--", "--flag"));
    assert_string_equal(got.text, "");
    assert_false(got.flag);
    assert_string_equal(words[0], "--flag");
    assert_true(PARSE("-"));
    assert_string_equal(words[0], "-");
}

static void expect_usage_error(bool went_on, const char *text)
{
    assert_false(went_on);
    assert_int_equal(exit_code, TOOL_EXIT_USAGE);
    if (!strstr(printed, text))
        fail_msg("\"%s\" does not say \"%s\"", printed, text);
    assert_ptr_equal(strchr(printed, '\n'), printed + strlen(printed) - 1); /* one line */
    assert_true(strncmp(printed, "millrace try it: ", 17) == 0);
}

static void test_mistakes_are_named(void **state)
{
    expect_usage_error(PARSE("a", "--text", "x", "--text", "y"), "given twice: --text; see");
    expect_usage_error(PARSE("a", "--u32=1", "--flag", "--u32", "1"), "given twice: --u32; see");
    assert_true(PARSE("a", "--text", "--text", "--u32=1")); /* the second one is the first one's value */
    assert_string_equal(got.text, "--text");
    (void)state;
    expect_usage_error(PARSE("a", "--nope"), "unknown option --nope; see millrace try it --help");
    expect_usage_error(PARSE("a", "--fla"), "unknown option --fla");
    expect_usage_error(PARSE("a", "--flags"), "unknown option --flags");
    expect_usage_error(PARSE("a", "-x"), "unknown option -x");
    expect_usage_error(PARSE("a", "--text"), "a value is missing behind --text");
    expect_usage_error(PARSE("a", "--flag=1"), "no value belongs to --flag");
    expect_usage_error(PARSE("a", "b", "c"), "one argument too many: c");
    expect_usage_error(PARSE("--flag"), "arguments are missing: A [B]");
    expect_usage_error(PARSE("a", "--u32", "4294967296"), "--u32 must be a whole number");
    expect_usage_error(PARSE("a", "--u32", "-1"), "not \"-1\"");
    expect_usage_error(PARSE("a", "--u32", "1k"), "not \"1k\"");
    expect_usage_error(PARSE("a", "--u32", ""), "not \"\"");
    expect_usage_error(PARSE("a", "--u64", "18446744073709551616"), "--u64 must be");
    expect_usage_error(PARSE("a", "--u64", "0x"), "--u64 must be");
    expect_usage_error(PARSE("a", "--number", "nan"), "--number must be a number");
    expect_usage_error(PARSE("a", "--number", "1,5"), "--number must be a number");
}

static void test_help_tells_every_option(void **state)
{
    (void)state;
    assert_false(PARSE("--help"));
    assert_int_equal(exit_code, 0);
    assert_non_null(strstr(printed, "usage: millrace try it A [B]"));
    assert_non_null(strstr(printed, "What it does."));
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        assert_non_null(strstr(printed, options[i].name));
        assert_non_null(strstr(printed, options[i].help));
    }
    assert_false(PARSE("a", "-h"));
    assert_int_equal(exit_code, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),
        cmocka_unit_test(test_what_is_not_given_stays),
        cmocka_unit_test(test_empty_values_and_the_end_of_options),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_help_tells_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
