/* How the slow calls of a run are shown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/test.h"
#include "tests/unit/tools/perf/slow_calls.h"
#include "tools/perf/slow_report.h"

static struct tool_run run;

static int set_up(void **state)
{
    memset(&run, 0, sizeof(run));
    run.calls.slow_ns = SLOW_NS;
    return 0;
}

static int tear_down(void **state)
{
    tool_run_calls_free(&run.calls);
    return 0;
}

static void miss(int lost, int left_out)
{
    json_t *line = json_pack("{s:i, s:i}", "calls_lost", lost, "calls_left_out", left_out);
    assert_true(tool_run_calls_take(&run.calls, 0, 0, line));
    json_decref(line);
}

/* The caller frees it. */
static char *text_of(void (*write)(const struct tool_run *run, FILE *out))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(&run, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is not in: %s", part, text);
}

TEST(all_of_it_is_shown, set_up, tear_down)
{
    slow_calls_add(&run.calls, 0, 96, "save", 15, 6, 8);
    slow_calls_add(&run.calls, 0, 100, "lookup", 12, 11, 1);
    slow_calls_add(&run.calls, 0, 100, "push_grad", 13, -1, 0);
    miss(7, 8);
    tool_run_calls_end(&run.calls, 1000);
    char *text = text_of(tool_slow_print);
    has(text, "3 slow calls, of 5 ms or longer");
    has(text, "15 more slow calls or neighbours of such are missing: the cores no longer had 7, and 8 were");
    has(text, "lookup of 4000 keys, table 3, 10 bytes in, 20 out, of 10.0.0.<7>:1");
    has(text, "meanwhile: 8 ms save of 4000 keys, table 3, of 10.0.0.<7>:1");
    free(text);
    text = text_of(tool_slow_html);
    has(text, "<h2>Slow calls</h2><p>3 calls took 5 ms or longer");
    has(text, "<td>12 ms</td><td>11 ms</td><td>1 ms</td>");
    has(text, "<td>13 ms</td><td>-</td><td>-</td><td>-</td>");
    has(text, "8 ms save of 4000 keys, table 3, of 10.0.0.&lt;7&gt;:1");
    assert_null(strstr(text, "<7>"));
    free(text);
    json_t *json = tool_slow_json(&run);
    assert_int_equal(json_integer_value(json_object_get(json, "count")), 3);
    assert_int_equal(json_integer_value(json_object_get(json, "lost")), 7);
    assert_int_equal(json_integer_value(json_object_get(json, "left_out")), 8);
    const json_t *lookup = json_array_get(json_object_get(json, "slowest"), 2);
    assert_string_equal(json_string_value(json_object_get(lookup, "op")), "lookup");
    assert_int_equal(json_integer_value(json_object_get(lookup, "wait_ns")), 11 * MS);
    const json_t *other = json_array_get(json_object_get(lookup, "meanwhile"), 0);
    assert_string_equal(json_string_value(json_object_get(other, "op")), "save");
    assert_int_equal(json_integer_value(json_object_get(other, "within_ns")), 8 * MS);
    json_decref(json);
}

TEST(a_call_alone_is_explained_by_no_other, set_up, tear_down)
{
    slow_calls_add(&run.calls, 0, 100, "lookup", 12, 11, 1);
    tool_run_calls_end(&run.calls, 1000);
    char *text = text_of(tool_slow_print);
    has(text, "meanwhile: no other call");
    free(text);
}

TEST(a_run_without_slow_calls_shows_nothing, set_up, tear_down)
{
    run.calls.slow_ns = 0;
    char *text = text_of(tool_slow_print), *html = text_of(tool_slow_html);
    assert_string_equal(text, "");
    assert_string_equal(html, "");
    assert_null(tool_slow_json(&run));
    free(text);
    free(html);
}
