/* What calls are counted as, and how that reads. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/load_report.h"
#include "tests/test.h"

#define US UINT64_C(1000)

static struct tool_bench_plan plan;
static struct tool_load_block block;

/* 98 lookups of 10 keys in 100 us each, one that ran into its deadline and one that was refused; 4 echoes. */
static int load_report_fill(void **state)
{
    char error[128];
    plan = (struct tool_bench_plan){.clients = 2, .rate = 100, .in_flight = 4, .wire_dtype = MR_F32};
    memset(&block, 0, sizeof(block));
    assert_true(tool_mix_parse("lookup=1,echo=1", &plan.mix, error, sizeof(error)));
    assert_true(tool_key_law_parse("zipf:500:1.05", &plan.keys, error, sizeof(error)));
    for (uint32_t i = 0; i < 98; i++)
        tool_load_stats_ended(&block.stats, TOOL_LOOKUP, MR_OK, 100 * US, 10, 720);
    tool_load_stats_ended(&block.stats, TOOL_LOOKUP, MR_DEADLINE_EXCEEDED, 50000 * US, 10, 720);
    tool_load_stats_ended(&block.stats, TOOL_LOOKUP, MR_FROZEN, 70 * US, 10, 720);
    for (uint32_t i = 0; i < 4; i++)
        tool_load_stats_ended(&block.stats, TOOL_ECHO, MR_OK, 20 * US, 0, 0);
    tool_load_stats_warm_up(&block.stats);
    /* as a reader has it */
    static struct tool_load_stats copy;
    tool_load_stats_read(&block.stats, &copy);
    block.stats = copy;
    block.seconds = block.end_s = 2;
    return 0;
}

TEST(test_counts, load_report_fill)
{
    const struct tool_op_stats *lookup = &block.stats.ops[TOOL_LOOKUP];
    assert_int_equal(lookup->counts[TOOL_ENDED], 100);
    assert_int_equal(lookup->counts[TOOL_FAILED], 2);
    assert_int_equal(lookup->counts[TOOL_TIMEOUTS], 1);
    assert_int_equal(lookup->counts[TOOL_KEYS], 980);
    assert_int_equal(lookup->counts[TOOL_BYTES], 98 * 720);
    assert_int_equal(lookup->latency.count, 100);
    assert_int_equal(lookup->latency.max_ns, 50000 * US);
    assert_int_equal(block.stats.statuses[MR_FROZEN], 1);
    assert_int_equal(block.stats.statuses[MR_OK], 102);
    assert_int_equal(block.stats.warm_up, 1);
}

TEST(test_windows_and_sums, load_report_fill)
{
    static struct tool_load_stats both, window;
    struct tool_op_stats sum;
    both = block.stats;
    tool_load_stats_merge(&both, &block.stats);
    assert_int_equal(both.ops[TOOL_LOOKUP].counts[TOOL_ENDED], 200);
    assert_int_equal(both.statuses[MR_FROZEN], 2);
    window = both;
    tool_load_stats_subtract(&window, &block.stats);
    for (uint32_t op = 0; op < TOOL_OPS; op++) {
        assert_memory_equal(window.ops[op].counts, block.stats.ops[op].counts, sizeof(window.ops[op].counts));
        assert_int_equal(window.ops[op].latency.count, block.stats.ops[op].latency.count);
    }
    tool_load_stats_sum(&block.stats, &sum);
    assert_int_equal(sum.counts[TOOL_ENDED], 104);
    assert_int_equal(sum.counts[TOOL_FAILED], 2);
    assert_int_equal(sum.latency.count, 104);
}

static void expect_written(void (*write)(FILE *out), const char *const *says, uint32_t count)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(out);
    assert_int_equal(fclose(out), 0);
    for (uint32_t i = 0; i < count; i++)
        if (strstr(text, says[i]) == NULL)
            fail_msg("\"%s\" is not in:\n%s", says[i], text);
    free(text);
}

static void write_lines(FILE *out)
{
    tool_load_heading(out);
    tool_load_lines(out, "2 s", &plan, &block);
}

static void write_failures(FILE *out)
{
    tool_load_failures(out, &block, "lookup: 10.0.0.1:7700 core 0: away");
}

TEST(test_text, load_report_fill)
{
    static const char *const lines[] = {
        "calls/s",
        "2 s lookup              49      490      0.0",
        "        echo                 2        0      0.0      20",
        "50000        2\n",
        "        all                 51      490",
    };
    static const char *const failures[] = {
        "2 of 104 calls failed:\n",
        "  1 call: the deadline passed before an answer came",
        "  1 call: the node is frozen",
        "the first failure: lookup: 10.0.0.1:7700 core 0: away\n",
    };
    expect_written(write_lines, lines, sizeof(lines) / sizeof(*lines));
    expect_written(write_failures, failures, sizeof(failures) / sizeof(*failures));
}

TEST(test_what_could_not_be_sent, load_report_fill)
{
    static const char *const says[] = {
        "did not keep up with --rate: 2 calls that were due could not be sent, and sending was 1.5 s behind"};
    char text[32];
    assert_false(tool_load_behind(&block, 0, text, sizeof(text)));
    tool_load_stats_unsent(&block.stats, TOOL_LOOKUP, 1500000 * US);
    tool_load_stats_unsent(&block.stats, TOOL_ECHO, 1000000 * US);
    block.behind_ns = 1500000 * US;
    assert_int_equal(block.stats.ops[TOOL_LOOKUP].counts[TOOL_UNSENT], 1);
    assert_int_equal(block.stats.ops[TOOL_LOOKUP].counts[TOOL_ENDED], 100);
    assert_int_equal(block.stats.ops[TOOL_LOOKUP].latency.max_ns, 1500000 * US);
    expect_written(write_failures, says, 1);
    block.behind_ns = 12345 * US;
    assert_true(tool_load_behind(&block, 10000 * US, text, sizeof(text)));
    assert_string_equal(text, "12 ms");
    assert_false(tool_load_behind(&block, 13000 * US, text, sizeof(text)));
}

static json_int_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no whole number \"%s\"", key);
    return json_integer_value(value);
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\"", key);
    return json_number_value(value);
}

TEST(test_json, load_report_fill)
{
    json_t *json = tool_load_block_json(&plan, &block, true);
    const json_t *ops = json_object_get(json, "ops"), *lookup = json_object_get(ops, "lookup");
    const json_t *latency = json_object_get(lookup, "latency_us");
    const json_t *histogram = json_object_get(lookup, "histogram");
    json_int_t counted = 0;
    assert_int_equal(json_object_size(ops), 2); /* those of the mix */
    assert_int_equal(number(json, "calls"), 104);
    assert_int_equal(number(json, "warm_up_calls"), 1);
    assert_int_equal(number(lookup, "calls"), 100);
    assert_int_equal(number(lookup, "failed"), 2);
    assert_int_equal(number(lookup, "timeouts"), 1);
    assert_true(real(lookup, "calls_per_s") == 49 && real(lookup, "keys_per_s") == 490);
    assert_true(real(latency, "p50") > 98 && real(latency, "p50") < 102);
    assert_true(real(latency, "max") == 50000);
    for (size_t i = 0; i < json_array_size(histogram); i++)
        counted += json_integer_value(json_array_get(json_array_get(histogram, i), 1));
    assert_int_equal(json_array_size(histogram), 3);
    assert_int_equal(counted, 100);
    json_decref(json);
    json = tool_load_block_json(&plan, &block, false);
    assert_null(json_object_get(json_object_get(json_object_get(json, "ops"), "lookup"), "histogram"));
    json_decref(json);
    json = tool_load_failures_json(&block.stats);
    assert_int_equal(json_object_size(json), 2);
    assert_int_equal(number(json, mr_status_text(MR_FROZEN)), 1);
    json_decref(json);
    json = tool_load_plan_json(&plan);
    assert_string_equal(json_string_value(json_object_get(json, "keys")), "zipf:500:1.05");
    assert_string_equal(json_string_value(json_object_get(json, "arrivals")), "poisson");
    assert_int_equal(number(json_object_get(json, "mix"), "echo"), 1);
    json_decref(json);
}

TEST(test_counters_of_the_server)
{
    struct tool_load_server server = {.is_known = true};
    tool_load_server_counter(&server, "wire.segments_resent", 3);
    tool_load_server_counter(&server, "wire.segments_resent", 4); /* of another core */
    tool_load_server_counter(&server, "wire.calls_expired", 5);
    tool_load_server_counter(&server, "wire.calls_served", 6);
    json_t *json = tool_load_server_json(&server);
    assert_int_equal(number(json, "segments_resent"), 7);
    assert_int_equal(number(json, "calls_expired"), 5);
    assert_int_equal(number(json, "busy_sent"), 0);
    json_decref(json);
    server.is_known = false;
    json = tool_load_server_json(&server);
    assert_true(json_is_null(json));
    json_decref(json);
}
