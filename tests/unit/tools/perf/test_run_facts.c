/* What differs between the nodes of two runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/run_facts.h"
#include "tests/test.h"

static char seen[1024];

static void run_facts_note(void *arg, const char *node, const char *name, const char *before,
                           const char *after)
{
    const size_t at = strlen(seen);
    (void)arg;
    snprintf(seen + at, sizeof(seen) - at, "%s.%s:%s>%s;", node, name, before, after);
}

static uint32_t differ(const char *before, const char *after)
{
    static struct tool_run a, b;
    a.header = json_loads(before, 0, NULL);
    b.header = json_loads(after, 0, NULL);
    assert_non_null(a.header);
    assert_non_null(b.header);
    seen[0] = '\0';
    const uint32_t count = tool_run_facts_differ(&a, &b, run_facts_note, NULL);
    json_decref(a.header);
    json_decref(b.header);
    return count;
}

TEST(what_differs_is_seen_once)
{
    assert_int_equal(differ("{\"facts\": {\"n\": {\"a\": \"1\", \"b\": \"2\", \"c\": \"3\"}}}",
                            "{\"facts\": {\"n\": {\"a\": \"1\", \"b\": \"9\", \"d\": \"4\"}}}"),
                     3);
    assert_non_null(strstr(seen, "n.b:2>9;"));
    assert_non_null(strstr(seen, "n.c:3>;"));
    assert_non_null(strstr(seen, "n.d:>4;"));
}

TEST(runs_without_facts_and_other_nodes_do_not_differ)
{
    static const char with[] = "{\"facts\": {\"n\": {\"a\": \"1\"}}}";
    assert_int_equal(differ(with, with), 0);
    assert_int_equal(differ("{}", with), 0);
    assert_int_equal(differ(with, "{}"), 0);
    assert_int_equal(differ(with, "{\"facts\": {\"m\": {\"a\": \"2\"}}}"), 0);
    assert_int_equal(differ(with, "{\"facts\": \"what?\"}"), 0);
    assert_int_equal(differ("{\"facts\": {\"n\": 5}}", with), 1); /* none were, and one is */
}

TEST(a_page_has_the_facts_as_text)
{
    static struct tool_run run;
    char *page = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&page, &bytes);
    run.header = json_loads("{\"facts\": {\"n<1>\": {\"a\": \"<b>\", \"c\": 7}}}", 0, NULL);
    tool_run_facts_html(&run, out);
    fclose(out);
    assert_non_null(strstr(page, "n&lt;1&gt;"));
    assert_non_null(strstr(page, "<td>a</td><td>&lt;b&gt;</td>"));
    assert_non_null(strstr(page, "<td>c</td><td></td>"));
    free(page);
    json_decref(run.header);
}
