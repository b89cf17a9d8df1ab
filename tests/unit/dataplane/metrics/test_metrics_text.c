/* Families and samples as text: names, units, labels, and the two forms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/metrics/metrics_process.h"
#include "dataplane/metrics/metrics_text.h"
#include "tests/test.h"

static const struct mr_counter counters[] = {
    {"rx_bytes", MR_COUNTER, MR_UNIT_BYTES, "bytes received"},
    {"bytes", MR_COUNTER, MR_UNIT_BYTES, "all bytes"},
    {"bytes_written", MR_COUNTER, MR_UNIT_BYTES, "bytes written"},
    {"running_bytes_total", MR_GAUGE, MR_UNIT_BYTES, "bytes that it will have"},
    {"write_us", MR_COUNTER, MR_UNIT_MICROSECONDS, "time to write"},
    {"behind_s", MR_GAUGE, MR_UNIT_SECONDS, "time behind"},
    {"last_s", MR_GAUGE, MR_UNIT_TIMESTAMP, "when it was"},
    {"busy_ppm", MR_GAUGE, MR_UNIT_PPM, "share of time"},
    {"kilobytes_read", MR_GAUGE, MR_UNIT_NONE, "a \\ and a \"name\""},
};
static const struct mr_counter_set set = {.name = "test", MR_COUNTERS(counters)};

TEST(names_end_with_their_base_unit)
{
    static const char *const names[] = {
        "millrace_test_rx_bytes",
        "millrace_test_bytes",
        "millrace_test_written_bytes",
        "millrace_test_running_total_bytes",
        "millrace_test_write_seconds",
        "millrace_test_behind_seconds",
        "millrace_test_last_timestamp_seconds",
        "millrace_test_busy_ratio",
        "millrace_test_kilobytes_read",
    };
    char name[MR_METRIC_NAME_BYTES];
    for (uint32_t i = 0; i < set.count; i++) {
        mr_metric_name(&set, &counters[i], name);
        assert_string_equal(name, names[i]);
    }
}

static void write_three(struct mr_metrics_text *text)
{
    struct mr_labels labels = {.bytes = 0};
    mr_labels_add(&labels, "node", "a\"b\\c\nd");
    mr_labels_add_number(&labels, "core", 3);
    mr_metrics_family(text, &set, &counters[0]);
    mr_metrics_sample(text, &labels, UINT64_MAX);
    mr_metrics_family(text, &set, &counters[4]);
    mr_metrics_sample(text, NULL, 1000002);
    mr_metrics_family(text, &set, &counters[8]);
    mr_metrics_sample(text, &labels, 0);
    mr_metrics_sample(text, NULL, 5);
    assert_true(mr_metrics_end(text));
}

TEST(the_older_form_names_a_counter_with_its_total)
{
    struct mr_metrics_text text = {.open_metrics = false};
    write_three(&text);
    assert_string_equal(text.data, "# HELP millrace_test_rx_bytes_total bytes received\n"
                                   "# TYPE millrace_test_rx_bytes_total counter\n"
                                   "millrace_test_rx_bytes_total{node=\"a\\\"b\\\\c\\nd\",core=\"3\"} "
                                   "18446744073709551615\n"
                                   "# HELP millrace_test_write_seconds_total time to write\n"
                                   "# TYPE millrace_test_write_seconds_total counter\n"
                                   "millrace_test_write_seconds_total 1.000002\n"
                                   "# HELP millrace_test_kilobytes_read a \\\\ and a \"name\"\n"
                                   "# TYPE millrace_test_kilobytes_read gauge\n"
                                   "millrace_test_kilobytes_read{node=\"a\\\"b\\\\c\\nd\",core=\"3\"} 0\n"
                                   "millrace_test_kilobytes_read 5\n");
    free(text.data);
}

TEST(openmetrics_has_units_and_an_end)
{
    struct mr_metrics_text text = {.open_metrics = true};
    write_three(&text);
    assert_string_equal(text.data, "# HELP millrace_test_rx_bytes bytes received\n"
                                   "# TYPE millrace_test_rx_bytes counter\n"
                                   "# UNIT millrace_test_rx_bytes bytes\n"
                                   "millrace_test_rx_bytes_total{node=\"a\\\"b\\\\c\\nd\",core=\"3\"} "
                                   "18446744073709551615\n"
                                   "# HELP millrace_test_write_seconds time to write\n"
                                   "# TYPE millrace_test_write_seconds counter\n"
                                   "# UNIT millrace_test_write_seconds seconds\n"
                                   "millrace_test_write_seconds_total 1.000002\n"
                                   "# HELP millrace_test_kilobytes_read a \\\\ and a \\\"name\\\"\n"
                                   "# TYPE millrace_test_kilobytes_read gauge\n"
                                   "millrace_test_kilobytes_read{node=\"a\\\"b\\\\c\\nd\",core=\"3\"} 0\n"
                                   "millrace_test_kilobytes_read 5\n"
                                   "# EOF\n");
    free(text.data);
}

TEST(a_long_text_grows)
{
    struct mr_metrics_text text = {.open_metrics = true};
    size_t lines = 0;
    mr_metrics_family(&text, &set, &counters[5]);
    for (uint32_t i = 0; i < 10000; i++) {
        struct mr_labels labels = {.bytes = 0};
        mr_labels_add_number(&labels, "core", i);
        mr_metrics_sample(&text, &labels, i);
    }
    assert_true(mr_metrics_end(&text));
    assert_int_equal(text.bytes, strlen(text.data));
    for (const char *at = text.data; *at != '\0'; at++)
        lines += *at == '\n';
    assert_int_equal(lines, 3 + 10000 + 1);
    assert_non_null(strstr(text.data, "millrace_test_behind_seconds{core=\"9999\"} 9999\n# EOF\n"));
    free(text.data);
}

/* A pair that has no room is left out whole, so that what is there can be read. */
TEST(labels_without_room_are_left_out)
{
    struct mr_labels labels = {.bytes = 0};
    char quotes[MR_LABELS_BYTES];
    memset(quotes, '"', sizeof(quotes) - 1);
    quotes[sizeof(quotes) - 1] = '\0';
    mr_labels_add(&labels, "first", "1");
    mr_labels_add(&labels, "quotes", quotes);
    mr_labels_add(&labels, "last", "2");
    assert_string_equal(labels.text, "first=\"1\",last=\"2\"");
}

TEST(histograms_have_cumulative_buckets)
{
    struct mr_metrics_text text = {.open_metrics = true};
    struct mr_labels labels = {.bytes = 0};
    static struct mr_histogram written, copy;
    mr_labels_add(&labels, "op", "lookup");
    mr_histogram_add(&written, 1023, 1);
    mr_histogram_add(&written, 1025, 2);
    mr_histogram_add(&written, 3000000000, 1);
    mr_histogram_add(&written, 60000000000, 1);
    mr_histogram_read(&written, &copy);
    mr_metrics_histogram_family(&text, "millrace_call_seconds", "how long");
    mr_metrics_histogram(&text, &labels, &copy);
    assert_true(mr_metrics_end(&text));
    static const char *const lines[] = {
        "# TYPE millrace_call_seconds histogram\n# UNIT millrace_call_seconds seconds\n",
        "\nmillrace_call_seconds_bucket{op=\"lookup\",le=\"1.024e-06\"} 1\n",
        "\nmillrace_call_seconds_bucket{op=\"lookup\",le=\"2.048e-06\"} 3\n",
        "\nmillrace_call_seconds_bucket{op=\"lookup\",le=\"2.147483648\"} 3\n",
        "\nmillrace_call_seconds_bucket{op=\"lookup\",le=\"4.294967296\"} 4\n",
        "\nmillrace_call_seconds_bucket{op=\"lookup\",le=\"17.179869184\"} 4\n",
        "\nmillrace_call_seconds_bucket{op=\"lookup\",le=\"+Inf\"} 5\n",
        "\nmillrace_call_seconds_sum{op=\"lookup\"} 63.000003073\n",
        "\nmillrace_call_seconds_count{op=\"lookup\"} 5\n# EOF\n"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (strstr(text.data, lines[i]) == NULL)
            fail_msg("there is no %s in\n%s", lines[i], text.data);
    free(text.data);
}

static double value_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

TEST(a_process_says_when_it_started_and_what_it_takes)
{
    struct mr_metrics_text text = {.open_metrics = false};
    struct mr_labels labels = {.bytes = 0};
    const time_t now = time(NULL);
    mr_labels_add(&labels, "job", "x");
    mr_metrics_process(&text, &labels);
    assert_true(mr_metrics_end(&text));
    assert_non_null(strstr(text.data, "\nmillrace_build_info{job=\"x\",version=\"" MR_VERSION "\"} 1\n"));
    double started = value_of(text.data, "\nprocess_start_time_seconds{job=\"x\"} ");
    assert_true(started <= (double)now + 2 && started > (double)now - 600);
    assert_true(value_of(text.data, "\nprocess_resident_memory_bytes{job=\"x\"} ") > 65536);
    assert_true(value_of(text.data, "\nprocess_cpu_seconds_total{job=\"x\"} ") >= 0);
    free(text.data);
}
