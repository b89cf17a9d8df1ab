/* The language of descriptions, piece by piece. */
#include <stdio.h>
#include <string.h>
#include <math.h>
#include "trainer_client/hub/format/description_terms.h"
#include "tests/test.h"

TEST(calls)
{
    struct hub_term term;
    assert_true(hub_term_parse(" origin ", &term));
    assert_string_equal(term.function, "");
    assert_int_equal(term.count, 1);
    assert_string_equal(term.arguments[0], "origin");
    assert_true(hub_term_parse("cross( hours per week ,hour(date), c )", &term));
    assert_string_equal(term.function, "cross");
    assert_int_equal(term.count, 3);
    assert_string_equal(term.arguments[0], "hours per week");
    assert_string_equal(term.arguments[1], "hour(date)");
    assert_string_equal(term.arguments[2], "c");
    static const char *const bad[] = {"",      "f(",  "f)",       "f()",   "f(a,)",   "f(a))",
                                      "f(a)b", "(a)", "f(a, (b)", "f(,a)", "f(a)(b))"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(hub_term_parse(bad[i], &term));
}

TEST(terms_are_bounded)
{
    struct hub_term term;
    char text[HUB_TERM_BYTES + 4] = "", many[4 * HUB_TERM_ARGUMENTS] = "f(a";
    memset(text, 'a', HUB_TERM_BYTES);
    assert_false(hub_term_parse(text, &term));
    text[HUB_TERM_BYTES - 1] = '\0';
    assert_true(hub_term_parse(text, &term));
    size_t at = strlen(many);
    for (uint32_t i = 1; i < HUB_TERM_ARGUMENTS; i++)
        at += (size_t)snprintf(many + at, sizeof(many) - at, ",a");
    (void)snprintf(many + at, sizeof(many) - at, ")");
    assert_true(hub_term_parse(many, &term));
    (void)snprintf(many + at, sizeof(many) - at, ",a)");
    assert_false(hub_term_parse(many, &term));
}

TEST(bounds)
{
    double low = -1, high = 1;
    assert_true(hub_bounds_parse("0.5..", &low, &high));
    assert_true(fabs(low - 0.5) < 1e-9 && fabs(high - 1) < 1e-9);
    assert_true(hub_bounds_parse("..9", &low, &high));
    assert_true(fabs(low - 0.5) < 1e-9 && fabs(high - 9) < 1e-9);
    assert_true(hub_bounds_parse("-3..-2", &low, &high));
    assert_true(fabs(low + 3) < 1e-9 && fabs(high + 2) < 1e-9);
    static const char *const bad[] = {"", "..", "1", "1...2", "a..b", "1..b", "1..2..3", "nan..1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(hub_bounds_parse(bad[i], &low, &high));
}

TEST(separators_and_classes)
{
    uint64_t class[4];
    char c;
    assert_true(hub_separator_parse("tab", &c) && c == '\t');
    assert_true(hub_separator_parse("semicolon", &c) && c == ';');
    assert_true(hub_separator_parse("^", &c) && c == '^');
    static const char *const bad[] = {"", "tabs", "a", "1", "\"", "||"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(hub_separator_parse(bad[i], &c));
    assert_true(hub_class_parse("0-9_-", class));
    assert_int_equal(class[0], UINT64_C(0x3ff) << '0' | UINT64_C(1) << '-');
    assert_int_equal(class[1], UINT64_C(1) << ('_' - 64));
    assert_false(hub_class_parse("", class));
    assert_false(hub_class_parse("9-0", class));
}

TEST(ranges_of_names)
{
    char out[40];
    assert_int_equal(hub_range_count("c1..c26"), 26);
    assert_int_equal(hub_range_count("log(c1..c26)"), 26);
    assert_int_equal(hub_range_count("c5..c5"), 1);
    assert_int_equal(hub_range_count("c9..c1"), 0);
    /* No ranges: bounds, and names that differ. */
    assert_int_equal(hub_range_count("integer(0..9)"), 1);
    assert_int_equal(hub_range_count("c1..d26"), 1);
    assert_int_equal(hub_range_count("c1.."), 1);
    assert_true(hub_range_expand("cross(c08..c10, d1..d3, e)", 3, 1, out, sizeof(out)));
    assert_string_equal(out, "cross(c09, d2, e)");
    assert_true(hub_range_expand("integer(0..9)", 3, 1, out, sizeof(out)));
    assert_string_equal(out, "integer(0..9)");
    assert_false(hub_range_expand("c1..c4", 3, 1, out, sizeof(out)));
    assert_false(hub_range_expand("c1..c3", 3, 1, out, 2));
}
