#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/mix.h"
#include "tests/test.h"

#define DRAWS 100000u

static struct tool_mix mix;
static struct tool_range range;
static char error_text[256];

static void mix_parse(const char *text)
{
    if (!tool_mix_parse(text, &mix, error_text, sizeof(error_text)))
        fail_msg("%s: %s", text, error_text);
}

static void expect_said(const char *text, const char *says)
{
    if (strstr(error_text, says) == NULL || strchr(error_text, '\n') != NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, error_text, says);
}

static void refuse(const char *text, const char *says)
{
    const struct tool_mix before = mix;
    assert_false(tool_mix_parse(text, &mix, error_text, sizeof(error_text)));
    expect_said(text, says);
    assert_memory_equal(&mix, &before, sizeof(mix));
}

TEST(test_mixes)
{
    mix_parse("lookup=80,push=15,echo=5");
    assert_int_equal(mix.weights[TOOL_LOOKUP], 80);
    assert_int_equal(mix.weights[TOOL_PUSH], 15);
    assert_int_equal(mix.weights[TOOL_ECHO], 5);
    assert_int_equal(mix.weights[TOOL_BAGS], 0);
    assert_int_equal(mix.total, 100);
    mix_parse("bags=1,variable=1000000,variable-push=0");
    assert_int_equal(mix.weights[TOOL_BAGS], 1);
    assert_int_equal(mix.weights[TOOL_VARIABLE], 1000000);
    assert_int_equal(mix.weights[TOOL_LOOKUP], 0);
    assert_int_equal(mix.total, 1000001);
}

TEST(test_mistakes_in_mixes)
{
    refuse("", "no call \"\"; there are lookup, bags, push, variable, variable-push, echo");
    refuse("read=5", "no call \"read\"");
    refuse("lookup=5,", "no call \"\"");
    refuse("lookup", "the weight of lookup must be a whole number from 0 to 1000000, as in lookup=80");
    refuse("lookup=", "not \"\"");
    refuse("lookup=-1", "not \"-1\"");
    refuse("lookup=1.5", "not \"1.5\"");
    refuse("lookup=1000001", "from 0 to 1000000");
    refuse("lookup=5=5", "not \"5=5\"");
    refuse("lookup=5, push=5", "no call \" push\"");
    refuse("lookup=5,lookup=6", "names lookup twice");
    refuse("lookup=0,echo=0", "makes no call");
    char longest[300];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    refuse(longest, "longer than 255 bytes");
}

/* Shares as asked for, within 5 standard deviations. */
TEST(test_draws)
{
    uint32_t counts[TOOL_OPS] = {0};
    uint64_t random = 4;
    mix_parse("lookup=70,push=20,variable=9,echo=1");
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[tool_mix_draw(&mix, &random)]++;
    for (uint32_t op = 0; op < TOOL_OPS; op++) {
        const double share = mix.weights[op] / 100.0;
        assert_true(fabs(counts[op] - share * DRAWS) <= 5 * sqrt(DRAWS * share * (1 - share)));
    }
}

TEST(test_names)
{
    for (uint32_t op = 0; op < TOOL_OPS; op++) {
        char text[64];
        uint64_t random = 1;
        snprintf(text, sizeof(text), "%s=3", tool_op_name((enum tool_op)op));
        mix_parse(text);
        assert_int_equal(tool_mix_draw(&mix, &random), op);
    }
}

static void expect_range(const char *text, uint32_t min, uint32_t max)
{
    if (!tool_range_parse("keys-per-call", text, 1000, &range, error_text, sizeof(error_text)))
        fail_msg("%s: %s", text, error_text);
    assert_int_equal(range.min, min);
    assert_int_equal(range.max, max);
}

static void refuse_range(const char *text, const char *says)
{
    assert_false(tool_range_parse("keys-per-call", text, 1000, &range, error_text, sizeof(error_text)));
    expect_said(text, says);
}

TEST(test_ranges)
{
    bool seen[4] = {false};
    uint64_t random = 2;
    expect_range("1", 1, 1);
    expect_range("1000", 1000, 1000);
    expect_range("7..7", 7, 7);
    assert_int_equal(tool_range_draw(&range, &random), 7);
    expect_range("2..5", 2, 5);
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t n = tool_range_draw(&range, &random);
        assert_int_in_range(n, 2, 5);
        seen[n - 2] = true;
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
    refuse_range("0",
                 "--keys-per-call must be a whole number from 1 to 1000, or two as in 10..200, not \"0\"");
    refuse_range("1001", "not \"1001\"");
    refuse_range("", "not \"\"");
    refuse_range("5..", "not \"5..\"");
    refuse_range("..5", "not \"..5\"");
    refuse_range("5..1001", "not \"5..1001\"");
    refuse_range("5...6", "not \"5...6\"");
    refuse_range("5-6", "not \"5-6\"");
    refuse_range("6..5", "the first number must not be above the second");
}
