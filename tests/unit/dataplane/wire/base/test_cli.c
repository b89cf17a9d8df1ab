#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataplane/wire/base/cli.h"
#include "tests/test.h"

static struct {
    bool flag;
    const char *text;
    uint32_t u32;
    uint64_t u64;
    float number;
    double share;
    uint32_t bounded;
} got;
static const char *items[2];
static struct cli_list list = {.items = items, .items_max = 2};

static const struct cli_option options[] = {
    {"flag", CLI_FLAG, &got.flag, NULL, "a flag"},
    {"text", CLI_STRING, &got.text, "TEXT", "a text\nof two lines"},
    {"u32", CLI_U32, &got.u32, "N", "small"},
    {"u64", CLI_U64, &got.u64, "N", "large"},
    {"Further", CLI_HEADING, NULL, NULL, NULL},
    {"number", CLI_FLOAT, &got.number, "X", "float"},
    {"the-share", CLI_DOUBLE_IN(0, 0.9), &got.share, "X", "double"},
    {"bounded", CLI_U32_IN(2, 5), &got.bounded, "N", "of a few"},
    {"item", CLI_LIST, &list, "TEXT", "again and again"},
};
static const struct cli_usage usage = {
    .program = "millrace try it",
    .synopsis = "A [B]",
    .summary = "What it does.",
    CLI_OPTIONS(options),
    .words_min = 1,
    .words_max = 2,
    .has_version = true,
};

/* What was printed while the arguments were parsed, and how that ended: CLI_GOES_ON unless the program
 * did. */
#define CLI_GOES_ON 99
static char printed[4096];
static const char *words[2];
static uint32_t word_count;
static int exit_code;

/* Parses in this process, for the values; a child does it first, as a mistake ends the program. */
static bool parse_cli(int argc, char **argv)
{
    FILE *file = tmpfile();
    int status;
    assert_non_null(file);
    (void)fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(file), STDOUT_FILENO);
        dup2(fileno(file), STDERR_FILENO);
        (void)cli_parse(&usage, argc, argv, words);
        _exit(CLI_GOES_ON);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    exit_code = WEXITSTATUS(status);
    rewind(file);
    printed[fread(printed, 1, sizeof(printed) - 1, file)] = '\0';
    (void)fclose(file);
    memset(&got, 0, sizeof(got));
    list.count = 0;
    if (exit_code == CLI_GOES_ON)
        word_count = cli_parse(&usage, argc, argv, words);
    return exit_code == CLI_GOES_ON;
}

#define PARSE(...)                                                                                           \
    parse_cli((int)(sizeof((char *[]){"try", __VA_ARGS__}) / sizeof(char *)),                                \
              (char *[]){"try", __VA_ARGS__, NULL})

TEST(test_every_kind)
{
    assert_true(PARSE("a", "--flag", "--text", "x y", "--u32=4294967295", "--u64", "0xffffffffffffffff",
                      "--number", "-1.5e-3", "b"));
    assert_true(got.flag);
    assert_string_equal(got.text, "x y");
    assert_int_equal(got.u32, UINT32_MAX);
    assert_int_equal(got.u64, UINT64_MAX);
    assert_true(got.number == -1.5e-3f);
    assert_true(PARSE("a", "--the-share", "0.2", "--bounded=5", "--item", "x", "--item=y"));
    assert_true(got.share == 0.2);
    assert_int_equal(got.bounded, 5);
    assert_int_equal(list.count, 2);
    assert_string_equal(items[0], "x");
    assert_string_equal(items[1], "y");
    assert_true(PARSE("a", "--the_share=0", "b")); /* as torch's examples have it */
    assert_true(got.share == 0.0);
    assert_int_equal(word_count, 2);
    assert_string_equal(words[0], "a");
    assert_string_equal(words[1], "b");
    assert_string_equal(printed, "");
}

TEST(test_what_is_not_given_stays)
{
    assert_true(PARSE("a"));
    assert_false(got.flag);
    assert_null(got.text);
    assert_int_equal(word_count, 1);
}

TEST(test_empty_values_and_the_end_of_options)
{
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
    assert_int_equal(exit_code, CLI_EXIT_USAGE);
    assert_says(printed, text);
    assert_ptr_equal(strchr(printed, '\n'), printed + strlen(printed) - 1); /* one line */
    assert_true(strncmp(printed, "millrace try it: ", 17) == 0);
}

TEST(test_mistakes_are_named)
{
    expect_usage_error(PARSE("a", "--text", "x", "--text", "y"), "--text is given twice; see");
    expect_usage_error(PARSE("a", "--u32=1", "--flag", "--u32", "1"), "--u32 is given twice; see");
    assert_true(PARSE("a", "--text", "--text", "--u32=1")); /* the second one is the first one's value */
    assert_string_equal(got.text, "--text");
    expect_usage_error(PARSE("a", "--nope"), "unknown option --nope; see millrace try it --help");
    expect_usage_error(PARSE("a", "--fla"), "unknown option --fla");
    expect_usage_error(PARSE("a", "--flags"), "unknown option --flags");
    expect_usage_error(PARSE("a", "-x"), "unknown option -x");
    expect_usage_error(PARSE("a", "--text"), "--text needs a value");
    expect_usage_error(PARSE("a", "--flag=1"), "--flag takes no value");
    expect_usage_error(PARSE("a", "b", "c"), "unexpected argument \"c\"");
    expect_usage_error(PARSE("--flag"), "arguments are missing: A [B]");
    expect_usage_error(PARSE("a", "--u32", "4294967296"), "--u32 must be a whole number");
    expect_usage_error(PARSE("a", "--u32", "-1"), "not \"-1\"");
    expect_usage_error(PARSE("a", "--u32", "1k"), "not \"1k\"");
    expect_usage_error(PARSE("a", "--u32", ""), "not \"\"");
    expect_usage_error(PARSE("a", "--u64", "18446744073709551616"),
                       "--u64 must be a whole number from 0 to 18446744073709551615");
    expect_usage_error(PARSE("a", "--u64", "0x"),
                       "--u64 must be a whole number from 0 to 18446744073709551615");
    expect_usage_error(PARSE("a", "--number", "nan"), "--number must be a number");
    expect_usage_error(PARSE("a", "--number", "1,5"), "--number must be a number");
    expect_usage_error(PARSE("a", "--the-share", "0.91"), "--the-share must be a number from 0 to 0.9, not");
    expect_usage_error(PARSE("a", "--the-share=inf"), "not \"inf\"");
    expect_usage_error(PARSE("a", "--bounded", "1"),
                       "--bounded must be a whole number from 2 to 5, not \"1\"");
    expect_usage_error(PARSE("a", "--bounded", "6"), "not \"6\"");
    expect_usage_error(PARSE("a", "--item=1", "--item=2", "--item=3"), "--item may be given 2 times at most");
    expect_usage_error(PARSE("a", "--Further"), "unknown option --Further");
    expect_usage_error(PARSE("a", "--Further", "x"), "unknown option --Further");
}

TEST(test_help_tells_every_option)
{
    assert_false(PARSE("--help"));
    assert_int_equal(exit_code, 0);
    assert_non_null(strstr(printed, "usage: millrace try it A [B]"));
    assert_non_null(strstr(printed, "What it does."));
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        assert_non_null(strstr(printed, options[i].name));
        if (options[i].help != NULL && strchr(options[i].help, '\n') == NULL)
            assert_non_null(strstr(printed, options[i].help));
    }
    assert_non_null(strstr(printed, "  --text TEXT"
                                    "                     a text\n"
                                    "                                  of two lines\n"));
    assert_non_null(strstr(printed, "\nFurther:\n  --number X "));
    assert_non_null(strstr(printed, "\n  --version "));
    assert_false(PARSE("a", "--version"));
    assert_int_equal(exit_code, 0);
    assert_string_equal(printed, "millrace try it " MR_VERSION "\n");
    assert_false(PARSE("a", "-h"));
    assert_int_equal(exit_code, 0);
}
