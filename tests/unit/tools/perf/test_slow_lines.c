/* Which slow calls get into a run's file. */
#include <stdio.h>
#include <string.h>
#include "millrace_observe.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tools/perf/slow_lines.h"

enum { SLOW_NS = 5000000 };

static char *directory;
static char path[256];
static struct tool_slow_lines lines;

static int set_up(void **state)
{
    directory = temporary_directory_make();
    snprintf(path, sizeof(path), "%s/run.mrp", directory);
    lines = (struct tool_slow_lines){.file = tool_run_create(path), .slow_ns = SLOW_NS};
    assert_non_null(lines.file);
    assert_true(tool_run_write(
        lines.file, json_pack("{s:s, s:i}", "format", TOOL_RUN_FORMAT, "version", TOOL_RUN_VERSION)));
    return 0;
}

static int tear_down(void **state)
{
    return temporary_directory_remove(directory);
}

struct read {
    uint64_t calls, lost, left_out;
    json_t *last; /* call */
    uint64_t last_ms;
};

static bool take_line(void *arg, const json_t *line)
{
    struct read *r = arg;
    json_t *call = json_object_get(line, "call");
    r->lost += (uint64_t)json_integer_value(json_object_get(line, "calls_lost"));
    r->left_out += (uint64_t)json_integer_value(json_object_get(line, "calls_left_out"));
    if (call == NULL)
        return true;
    r->calls++;
    json_decref(r->last);
    r->last = json_incref(call);
    r->last_ms = (uint64_t)json_integer_value(json_object_get(line, "t"));
    return true;
}

static struct read read_back(void)
{
    struct read r = {0};
    char error[256];
    assert_false(lines.failed);
    assert_true(tool_run_close(lines.file));
    const struct tool_run_visitor visitor = {.line = take_line};
    assert_true(tool_run_read(path, &visitor, &r, error, sizeof(error)));
    return r;
}

static void slow_lines_add(uint64_t time_ms, uint64_t total_ns, uint32_t count)
{
    const struct mr_recent_call call = {.total_ns = total_ns, .op = "echo", .client = "10.0.0.7:1"};
    for (uint32_t i = 0; i < count; i++)
        tool_slow_lines_add(&lines, 0, time_ms, &call);
}

TEST(a_line_has_all_that_is_known, set_up, tear_down)
{
    const struct mr_recent_call call = {.number = 77,
                                        .arrived_ns = UINT64_C(9000000000),
                                        .total_ns = SLOW_NS,
                                        .is_timed = true,
                                        .wait_ns = 11,
                                        .work_ns = 12,
                                        .op = "lookup",
                                        .status = MR_NO_MEMORY,
                                        .table = 3,
                                        .keys = 4000,
                                        .request_bytes = 100,
                                        .reply_bytes = 200,
                                        .client = "10.0.0.7:41000"};
    tool_slow_lines_add(&lines, 2, 1234, &call);
    struct read r = read_back();
    json_t *expected =
        json_loads("{\"n\": 77, \"at\": 9000000000, \"op\": \"lookup\", \"total\": 5000000, \"in\": 100,"
                   " \"out\": 200, \"from\": \"10.0.0.7:41000\", \"wait\": 11, \"work\": 12,"
                   " \"table\": 3, \"keys\": 4000, \"status\": \"NO_MEMORY\"}",
                   0, NULL);
    assert_true(json_equal(r.last, expected));
    assert_int_equal(r.last_ms, 1234);
    json_decref(r.last);
    json_decref(expected);
}

TEST(what_is_not_known_is_left_away, set_up, tear_down)
{
    slow_lines_add(0, 700, 1);
    struct read r = read_back();
    assert_null(json_object_get(r.last, "wait"));
    assert_null(json_object_get(r.last, "work"));
    assert_null(json_object_get(r.last, "table"));
    assert_null(json_object_get(r.last, "keys"));
    assert_null(json_object_get(r.last, "status"));
    json_decref(r.last);
}

/* Neighbours may take half of a second's lines, slow calls the rest. */
TEST(a_second_is_bounded_and_what_is_left_out_is_counted, set_up, tear_down)
{
    const uint32_t half = TOOL_SLOW_LINES_A_SECOND / 2;
    slow_lines_add(500, 100, half + 30);
    tool_slow_lines_end(&lines, 0, 600, 0);
    slow_lines_add(900, SLOW_NS, half + 20);
    tool_slow_lines_end(&lines, 0, 990, 4);
    tool_slow_lines_end(&lines, 0, 995, 0); /* nothing new: no line */
    assert_int_equal(lines.slow, half);
    assert_int_equal(lines.slow_left_out, 20);
    assert_int_equal(lines.left_out, 50);
    assert_int_equal(lines.lost, 4);
    slow_lines_add(1000, 100, 1); /* the next second */
    assert_int_equal(lines.left_out, 50);
    struct read r = read_back();
    assert_int_equal(r.calls, TOOL_SLOW_LINES_A_SECOND + 1);
    assert_int_equal(r.left_out, 50);
    assert_int_equal(r.lost, 4);
    json_decref(r.last);
}

TEST(a_run_is_bounded, set_up, tear_down)
{
    for (uint32_t second = 0; second < TOOL_SLOW_LINES_MAX / TOOL_SLOW_LINES_A_SECOND + 2; second++)
        slow_lines_add(second * 1000, SLOW_NS, TOOL_SLOW_LINES_A_SECOND);
    assert_int_equal(lines.slow, TOOL_SLOW_LINES_MAX);
    assert_int_equal(lines.slow_left_out, 2 * TOOL_SLOW_LINES_A_SECOND);
    struct read r = read_back();
    assert_int_equal(r.calls, TOOL_SLOW_LINES_MAX);
    json_decref(r.last);
}

TEST(spans_have_units)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"5ms", 5000000},
                {"500us", 500000},
                {"1s", 1000000000},
                {"1.5ms", 1500000},
                {"0.25s", 250000000},
                {"1us", 1000},
                {"1000s", UINT64_C(1000000000000)}};
    static const char *const bad[] = {"",    "5",     "ms",   "5 ms", "-5ms", "5m",    "5msx",  "0ms",
                                      "inf", "nanms", "1e9s", "+5ms", " 5ms", "1001s", "0.5us", "5ns"};
    uint64_t ns;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(tool_span_ns(good[i].text, &ns));
        assert_int_equal(ns, good[i].ns);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(tool_span_ns(bad[i], &ns));
}
