#include "tests/test.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TESTS_MAX 256u

static struct CMUnitTest tests[TESTS_MAX];
static unsigned lines[TESTS_MAX];
static size_t test_count;

void test_add(unsigned line, struct CMUnitTest test)
{
    assert(test_count < TESTS_MAX);
    size_t i = test_count++;
    for (; i > 0 && lines[i - 1] > line; i--) {
        lines[i] = lines[i - 1];
        tests[i] = tests[i - 1];
    }
    lines[i] = line;
    tests[i] = test;
}

int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    const char *names = getenv("MILLRACE_TEST");
    if (names != NULL)
        cmocka_set_test_filter(names);
    return _cmocka_run_group_tests("tests", tests, test_count, set_up, tear_down);
}

void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}
