#include <string.h>
#include "tools/log_state.h"
#include "tests/test.h"

static const struct {
    const char *name;
    uint64_t value;
} counters[] = {{"log.is_kept", 1},
                {"log.stalled", 0},
                {"log.kept_bytes", 3 << 20},
                {"log.flushes", 10},
                {"log.flush_us", 8000},
                {"log.flush_last_us", 600},
                {"log.flush_max_us", 12000},
                {"log.answers_waiting", 1},
                {"log.errors", 0},
                {"log.records", 99},
                {"ps.rows", 5}};

static void log_count(struct tool_log_state *log)
{
    for (uint32_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
        tool_log_counter(log, counters[i].name, counters[i].value);
}

TEST(test_a_line_over_all_cores)
{
    struct tool_log_state log = {0};
    char line[TOOL_LOG_LINE_BYTES];
    log_count(&log);
    tool_log_line(&log, line, sizeof(line));
    assert_string_equal(line,
                        "3.0 MiB in no checkpoint yet; a flush takes 0.8 ms, the last 0.6 ms, the longest "
                        "12.0 ms; 1 answer waits");
    log_count(&log);
    tool_log_counter(&log, "log.flush_last_us", 700);
    assert_int_equal(log.cores, 2);
    tool_log_line(&log, line, sizeof(line));
    assert_string_equal(line,
                        "6.0 MiB in no checkpoint yet; a flush takes 0.8 ms, the last 0.7 ms, the longest "
                        "12.0 ms; 2 answers wait");
    log = (struct tool_log_state){.cores = 1, .stalled = 1};
    tool_log_line(&log, line, sizeof(line));
    assert_string_equal(line,
                        "0.0 MiB in no checkpoint yet; nothing flushed yet; it cannot be written, and pushes "
                        "wait (the server's log says why)");
}

TEST(test_json)
{
    struct tool_log_state log = {0};
    log_count(&log);
    json_t *json = tool_log_json(&log);
    assert_int_equal(json_integer_value(json_object_get(json, "kept_bytes")), 3 << 20);
    assert_int_equal(json_integer_value(json_object_get(json, "flush_last_us")), 600);
    assert_int_equal(json_integer_value(json_object_get(json, "answers_waiting")), 1);
    json_decref(json);
}
