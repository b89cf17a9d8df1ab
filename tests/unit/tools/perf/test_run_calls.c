/* The slow calls of a run: the slowest, when they came, and what the cores did meanwhile. */
#include <string.h>
#include "tests/test.h"
#include "tests/unit/tools/perf/slow_calls.h"

static struct tool_run_calls calls;

static int set_up(void **state)
{
    memset(&calls, 0, sizeof(calls));
    calls.slow_ns = SLOW_NS;
    return 0;
}

static int tear_down(void **state)
{
    tool_run_calls_free(&calls);
    return 0;
}

TEST(other_lines_are_not_about_calls, set_up, tear_down)
{
    json_t *line = json_pack("{s:[i, i]}", "v", 1, 2);
    assert_false(tool_run_calls_take(&calls, 0, 0, line));
    json_decref(line);
}

TEST(the_slowest_come_first, set_up, tear_down)
{
    const struct tool_run_call *slowest[3];
    slow_calls_add(&calls, 0, 0, "a", 6, 0, 6);
    slow_calls_add(&calls, 0, 10, "b", 4, 0, 4); /* not slow */
    slow_calls_add(&calls, 0, 20, "c", 9, 0, 9);
    slow_calls_add(&calls, 1, 30, "d", 5, 0, 5);
    assert_int_equal(calls.slow, 3);
    assert_int_equal(tool_run_slowest(&calls, slowest, 2), 2);
    assert_string_equal(slowest[0]->op, "c");
    assert_string_equal(slowest[1]->op, "a");
    assert_int_equal(tool_run_slowest(&calls, slowest, 3), 3);
    assert_string_equal(slowest[2]->op, "d");
}

/* The slow call was there from 100 to 112 ms. Other calls count with the time in which the core worked on
 * them within that; calls of other cores and those that are not timed do not. */
TEST(what_the_core_did_meanwhile_explains_a_wait, set_up, tear_down)
{
    struct tool_beside beside[TOOL_SLOW_BESIDE_MAX];
    slow_calls_add(&calls, 0, 90, "before", 10, 0, 10);
    slow_calls_add(&calls, 0, 95, "into", 12, 0, 7);        /* 2 ms within */
    slow_calls_add(&calls, 0, 96, "waits", 15, 6, 8);       /* 102 to 110: 8 ms */
    slow_calls_add(&calls, 1, 100, "elsewhere", 12, 0, 12); /* another core */
    slow_calls_add(&calls, 0, 100, "unknown", 12, -1, 0);
    slow_calls_add(&calls, 0, 100, "slow", 12, 11, 1);
    slow_calls_add(&calls, 0, 104, "past", 20, 7, 10); /* from 111: 1 ms */
    slow_calls_add(&calls, 0, 111, "also", 3, 0, 3);   /* 1 ms */
    slow_calls_add(&calls, 0, 112, "after", 3, 0, 3);
    const struct tool_run_call *slow = &calls.list[5];
    assert_string_equal(slow->op, "slow");
    assert_int_equal(tool_run_beside(&calls, slow, beside), 3);
    assert_string_equal(beside[0].call->op, "waits");
    assert_int_equal(beside[0].ns, 8 * MS);
    assert_string_equal(beside[1].call->op, "into");
    assert_int_equal(beside[1].ns, 2 * MS);
    assert_int_equal(beside[2].ns, 1 * MS);
}

TEST(slow_calls_that_are_close_are_one_burst, set_up, tear_down)
{
    slow_calls_add(&calls, 0, 5000, "b", 7, 0,
                   7); /* cores come one after the other: not in the order of time */
    slow_calls_add(&calls, 0, 100, "a", 6, 0, 6);
    slow_calls_add(&calls, 0, 900, "a", 14, 0, 14);
    slow_calls_add(&calls, 0, 950, "fast", 1, 0, 1);
    slow_calls_add(&calls, 0, 1800, "a", 6, 0, 6);
    tool_run_calls_end(&calls, 10000);
    assert_int_equal(calls.burst_count, 2);
    assert_int_equal(calls.bursts[0].time_ms, 100);
    assert_int_equal(calls.bursts[0].end_ms, 1800);
    assert_string_equal(calls.bursts[0].text, "3 slow calls, up to 14 ms");
    assert_string_equal(calls.bursts[1].text, "1 slow call, 7 ms");
}

TEST(there_is_room_for_the_bursts_of_a_long_run, set_up, tear_down)
{
    uint32_t counted = 0;
    for (uint64_t time = 0; time < 3600000; time += 2000)
        slow_calls_add(&calls, 0, time, "a", 6, 0, 6);
    tool_run_calls_end(&calls, 3600000);
    assert_int_in_range(calls.burst_count, 1, TOOL_SLOW_BURSTS_MAX);
    for (uint32_t i = 0; i < calls.burst_count; i++)
        counted += calls.bursts[i].calls;
    assert_int_equal(counted, calls.slow);
}
