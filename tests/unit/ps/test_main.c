/* millraced's command line: what it prints, and with which code it ends. argv[1] is the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/test.h"

static const char *millraced;
static char output[65536];

/* The exit code; what it printed, errors too, is in `output`. */
static int main_run(const char *arguments)
{
    char command[1024];
    snprintf(command, sizeof(command), "%s %s 2>&1", millraced, arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    output[fread(output, 1, sizeof(output) - 1, f)] = '\0';
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void main_check(const char *arguments, int code, const char *text)
{
    int got = main_run(arguments);
    if (got != code || strstr(output, text) == NULL) {
        fail_msg("millraced %s: exit %d, \"%.300s\"; expected %d, \"%s\"", arguments, got, output, code,
                 text);
    }
}

TEST(says_what_it_is)
{
    main_check("--version", 0, "millraced " MR_VERSION "\n");
    main_check("--help", 0, "--check-config FILE");
    main_check("--print-config", 0, "[checkpoint]\n");
}

TEST(the_page_of_counters_is_what_it_prints)
{
    static char page[sizeof(output)];
    FILE *f = fopen(COUNTERS_MD, "r");
    assert_non_null(f);
    page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
    fclose(f);
    assert_int_equal(main_run("--print-counters"), 0);
    if (strcmp(page, output) != 0)
        fail_msg("docs/counters.md is out of date: millraced --print-counters > docs/counters.md");
}

TEST(mistakes_are_one_line_and_exit_2)
{
    const char *const mistakes[][2] = {
        {"", "--config FILE is missing"},
        {"--bogus", "bogus"},
        {"--config", "--config needs a value"},
        {"--config a --config b", "--config is given twice"},
        {"--config a --check-config b", "cannot be used together"},
        {"extra --config a", "unexpected argument \"extra\""},
        {"--config /nonexistent.conf", "/nonexistent.conf: No such file"},
        {"--check-config /nonexistent.conf", "/nonexistent.conf: No such file"},
        {"--config " DEMO_CONF " --restore newest", "latest, none, or the number"},
        {"--config " DEMO_CONF " --serve ''", "--serve: the path of a checkpoint"},
        {"--config " DEMO_CONF " --serve /x --restore none", "cannot be used together"},
        {"--config " DEMO_CONF " --set cores.count=0", "from 1 to 64"},
        {"--config " DEMO_CONF " --set cores.cuont=1", "did you mean count"},
        {"--check-config " MILLRACED_CONF, "port.device is not set"},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        main_check(mistakes[i][0], 2, mistakes[i][1]);
        char *newline = strchr(output, '\n');
        assert_non_null(newline);
        assert_int_equal(newline[1], '\0');
    }
}

TEST(checks_a_file_without_serving)
{
    main_check("--check-config " DEMO_CONF " --set node.key_file=", 0, "demo.conf: ok");
    main_check("--check-config " DEMO_CONF " --set node.key_file=/nonexistent.key", 2,
               "/nonexistent.key: No such file");
    main_check("--check-config " DEMO_CONF " --set node.key_file= --set node.key=trainer:/nonexistent.key", 2,
               "/nonexistent.key: No such file");
    main_check("--check-config " MILLRACED_CONF " --set port.device=mr0", 0, "millraced.conf: ok");
}

TEST(a_missing_key_file_ends_the_start)
{
    main_check("--config " DEMO_CONF " --set node.key_file=/nonexistent.key", 1, "/nonexistent.key");
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return EXIT_FAILURE;
    millraced = argv[1];
    return tests_run(NULL, NULL);
}
