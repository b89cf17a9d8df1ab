/* Quantities, escapes and plots; figures of two runs compared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/run_summary.h"
#include "tools/perf/svg.h"
#include "tests/test.h"

static void says(double value, enum tool_unit unit, const char *expected)
{
    char text[24];
    tool_quantity(value, unit, text);
    assert_string_equal(text, expected);
}

TEST(quantities_have_units)
{
    says(0, TOOL_UNIT_COUNT, "0");
    says(1234567, TOOL_UNIT_COUNT, "1.23M");
    says(0.5, TOOL_UNIT_COUNT, "0.50");
    says(1536, TOOL_UNIT_BYTES, "1.5 KiB");
    says(8.0 * 1024 * 1024, TOOL_UNIT_BYTES, "8 MiB");
    says(850, TOOL_UNIT_NS, "850 ns");
    says(12345, TOOL_UNIT_NS, "12.3 us");
    says(0.453, TOOL_UNIT_SHARE, "45.3 %");
}

static uint32_t occurrences(const char *text, const char *of)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, of); at != NULL; at = strstr(at + 1, of))
        count++;
    return count;
}

TEST(lines_break_where_nothing_is_known)
{
    const double values[6] = {1, 2, NAN, 4, 5, 3};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const struct tool_plot_annotation annotation = {2, "a < b & \"c\""};
    const struct tool_plot plot = {.title = "calls",
                                   .seconds = 5,
                                   .points = 6,
                                   .line_count = 1,
                                   .lines = {{"all", values}},
                                   .annotation_count = 1,
                                   .annotations = &annotation};
    tool_plot_lines(&plot, out);
    assert_int_equal(fclose(out), 0);
    char *line = strstr(text, "<path class=\"line c0\" d=\"");
    assert_non_null(line);
    char *end = strstr(line, "\"/>");
    assert_non_null(end);
    *end = '\0';
    assert_int_equal(occurrences(line, "M"), 2); /* 1 2, then 4 5 3 */
    assert_int_equal(occurrences(line, "L"), 3);
    *end = '"';
    assert_non_null(strstr(text, "a &lt; b &amp; &quot;c&quot;"));
    assert_null(strstr(text, "nan"));
    free(text);
}

TEST(maps_show_a_single_call_beside_a_million)
{
    enum { COLUMNS = 3, ROWS = 4 };
    const uint32_t counts[COLUMNS * ROWS] = {0, 1000000, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
    const double low_ns[ROWS + 1] = {100, 200, 400, 800, 1600};
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const struct tool_map map = {.title = "lookup",
                                 .seconds = 3,
                                 .columns = COLUMNS,
                                 .rows = ROWS,
                                 .counts = counts,
                                 .low_ns = low_ns};
    tool_plot_map(&map, out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(occurrences(text, "class=\"s8\""), 1);
    assert_int_equal(occurrences(text, "class=\"s1\""), 1);
    assert_non_null(strstr(text, ">200 ns<")); /* empty rows below and above are left out */
    assert_null(strstr(text, ">100 ns<"));
    free(text);
}

static struct tool_figures figures(double calls, double p99, double losses)
{
    struct tool_figures f = {.count = 3};
    f.list[0] = (struct tool_figure){"calls", TOOL_UNIT_COUNT, calls};
    f.list[1] = (struct tool_figure){"p99", TOOL_UNIT_NS, p99};
    f.list[2] = (struct tool_figure){"losses", TOOL_UNIT_COUNT, losses};
    return f;
}

TEST(what_changed_most_comes_first)
{
    static struct tool_figures before, after;
    static struct tool_change changes[TOOL_FIGURES_MAX];
    before = figures(1000, 50, 0);
    after = figures(900, 200, 3);
    assert_int_equal(tool_run_compare(&before, &after, changes), 3);
    assert_string_equal(changes[0].before->name, "losses"); /* from none to some */
    assert_true(isinf(changes[0].ratio));
    assert_string_equal(changes[1].before->name, "p99");
    assert_true(changes[1].ratio == 4);
    assert_string_equal(changes[2].before->name, "calls");
    after = figures(900, 200, 0);
    assert_int_equal(tool_run_compare(&before, &after, changes),
                     2); /* nothing before and after is no change */
}
