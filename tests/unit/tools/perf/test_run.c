/* A run's file, and what is made of it in memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tools/perf/run.h"
#include "tools/perf/run_file.h"
#include "tools/perf/run_summary.h"

static char *directory;
static char path[256];
static char error_text[256];

static int set_up(void **state)
{
    directory = temporary_directory_make();
    snprintf(path, sizeof(path), "%s/run.mrp", directory);
    return 0;
}

static int tear_down(void **state)
{
    return temporary_directory_remove(directory);
}

static struct tool_run_writer *run_begin(uint32_t interval_ms)
{
    struct tool_run_writer *w = tool_run_create(path);
    assert_non_null(w);
    assert_true(
        tool_run_write(w, json_pack("{s:s, s:i, s:i, s:s}", "format", TOOL_RUN_FORMAT, "version",
                                    TOOL_RUN_VERSION, "interval_ms", (int)interval_ms, "server", "there")));
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "name", 0, "is", "wire.calls_served")));
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "name", 1, "is", "table.rows")));
    return w;
}

static void sample(struct tool_run_writer *w, uint64_t time_ms, uint32_t core, int64_t calls, int64_t rows)
{
    assert_true(tool_run_write(w, json_pack("{s:I, s:i, s:[i, I, i, I]}", "t", (json_int_t)time_ms, "c",
                                            (int)core, "v", 0, (json_int_t)calls, 1, (json_int_t)rows)));
}

static struct tool_run *run_load(void)
{
    struct tool_run *run = tool_run_load(path, error_text, sizeof(error_text));
    if (run == NULL)
        fail_msg("%s", error_text);
    return run;
}

TEST(counters_become_rates_of_cores_and_of_all, set_up, tear_down)
{
    struct tool_run_writer *w = run_begin(100);
    for (uint32_t i = 0; i < 20; i++) {
        sample(w, i * 100, 0, i == 0 ? 5000 : 10, i == 0 ? 7 : 0);
        sample(w, i * 100, 1, i == 0 ? 9000 : 30, i == 0 ? 0 : 1);
    }
    assert_true(tool_run_close(w));
    struct tool_run *run = run_load();
    const int calls = tool_run_counter(run, "wire.calls_served"), rows = tool_run_counter(run, "table.rows");
    assert_int_equal(run->bin_count, 20);
    assert_int_equal(run->core_count, 2);
    assert_string_equal(json_string_value(json_object_get(run->header, "server")), "there");
    assert_true(tool_run_rate(run, calls, -1, 0) == 0);
    assert_true(fabs(tool_run_rate(run, calls, -1, 5) - 400) < 1e-6);
    assert_true(fabs(tool_run_rate(run, calls, 1, 5) - 300) < 1e-6);
    assert_true(tool_run_rise(run, calls, -1) == 19 * 40);
    assert_true(fabs(tool_run_seconds(run) - 1.9) < 1e-9);
    assert_true(tool_run_value(run, rows, -1, 19) == 7 + 19);
    assert_int_equal(tool_run_counter(run, "nothing"), -1);
    assert_true(tool_run_value(run, -1, -1, 3) == 0);
    tool_run_free(run);
}

/* Lines of counters are read by a parser of their own if they look as the program writes them, and otherwise
 * as any JSON: the same comes of both, and of both in turn. */
TEST(counters_may_be_written_in_any_way, set_up, tear_down)
{
    static const char *const ways[] = {
        "{\"t\":%d,\"c\":0,\"v\":[0,10,1,-2]}\n", "{\"t\": %d, \"c\": 0, \"v\": [0, 10, 1, -2]}\n",
        "{\"c\":0,\"v\":[0,10,1,-2],\"t\":%d}\n", "{\"t\":%d,\"c\":0,\"v\":[0,10,1,-2],\"x\":[]}\n",
        "{\"t\":%d,\"c\":0,\"v\":[0,1e1,1,-2]}\n"}; /* no whole number: it is none */
    gzFile file = gzopen(path, "wb");
    gzprintf(file, "{\"format\":\"%s\",\"version\":%d,\"interval_ms\":100}\n", TOOL_RUN_FORMAT,
             TOOL_RUN_VERSION);
    gzprintf(file, "{\"name\":0,\"is\":\"a\"}\n{\"name\":1,\"is\":\"b\"}\n");
    for (int i = 0; i < 5; i++)
        gzprintf(file, ways[i], 100 * i);
    gzprintf(file, "{\"t\":500,\"c\":0,\"v\":[]}\n{\"t\":600,\"c\":0,\"v\":[0,1234567890123456789,1,-2]}\n");
    gzclose(file);
    struct tool_run *run = run_load();
    assert_true(tool_run_value(run, 0, 0, 3) == 40);
    assert_true(tool_run_value(run, 1, 0, 3) == -8);
    assert_true(tool_run_value(run, 0, 0, 4) == 40);
    assert_true(tool_run_value(run, 1, 0, 4) == -10);
    assert_true(tool_run_value(run, 0, 0, 6) == 40 + 1234567890123456789.0);
    assert_true(tool_run_value(run, 1, 0, 6) == -12);
    tool_run_free(run);
}

/* Steps double until the run fits; nothing that was counted is lost. */
TEST(long_runs_get_longer_steps, set_up, tear_down)
{
    enum { SAMPLES = 5000 };
    struct tool_run_writer *w = run_begin(10);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        sample(w, i * 10, 0, 3, 0);
        assert_true(tool_run_write(w, json_pack("{s:I, s:i, s:s, s:s, s:i, s:i, s:[i, i]}", "t",
                                                (json_int_t)i * 10, "c", 0, "op", "lookup", "phase", "work",
                                                "sum", 2000, "max", 1000, "b", 300, 2)));
    }
    assert_true(tool_run_close(w));
    struct tool_run *run = run_load();
    assert_int_equal(run->step_ms, 160);
    assert_true(run->bin_count <= TOOL_RUN_BINS && run->bin_count > TOOL_RUN_BINS / 2);
    const int calls = tool_run_counter(run, "wire.calls_served");
    assert_true(tool_run_value(run, calls, -1, run->bin_count - 1) == 3 * SAMPLES);
    for (uint32_t bin = 1; bin + 1 < run->bin_count; bin++)
        assert_true(fabs(tool_run_rate(run, calls, -1, bin) - 300) < 1e-6);
    assert_int_equal(run->latency_count, 1);
    assert_int_equal(run->latencies[0]->whole.count, 2 * SAMPLES);
    uint64_t in_bins = 0;
    for (uint32_t bin = 0; bin < run->bin_count; bin++)
        in_bins += run->latencies[0]->rows[bin][300 / TOOL_RUN_ROW_WIDTH];
    assert_int_equal(in_bins, 2 * SAMPLES);
    const double exact = (double)mr_histogram_low_ns(300);
    assert_true(fabs(tool_run_percentile_ns(run->latencies[0], 100, 0.99) / exact - 1) < 0.12);
    tool_run_free(run);
}

/* A server that was started again begins at 0; a core that came later has not risen before. */
TEST(restarts_and_late_cores_are_no_peaks, set_up, tear_down)
{
    struct tool_run_writer *w = run_begin(100);
    for (uint32_t i = 0; i < 10; i++) {
        sample(w, i * 100, 0, i == 0 ? 1000 : i == 5 ? -1040 : 10, 0);
        if (i >= 3)
            sample(w, i * 100, 1, i == 3 ? 800000 : 10, 0);
    }
    assert_true(tool_run_write(w, json_pack("{s:i, s:i, s:b}", "t", 1000, "c", 1, "away", 1)));
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "t", 1000, "annotation", "epoch 2")));
    assert_true(tool_run_close(w));
    struct tool_run *run = run_load();
    const int calls = tool_run_counter(run, "wire.calls_served");
    for (uint32_t bin = 0; bin < run->bin_count; bin++) {
        assert_true(tool_run_rate(run, calls, 0, bin) <= 100 + 1e-6);
        assert_true(tool_run_rate(run, calls, 1, bin) <= 100 + 1e-6);
    }
    assert_true(run->cores[1]->away[10]);
    assert_int_equal(run->annotation_count, 1);
    assert_string_equal(run->annotations[0].text, "epoch 2");
    tool_run_free(run);
}

/* Lines about calls are no counters and no latencies. */
TEST(slow_calls_come_with_the_run, set_up, tear_down)
{
    struct tool_run_writer *w = tool_run_create(path);
    assert_true(tool_run_write(w, json_pack("{s:s, s:i, s:i, s:i}", "format", TOOL_RUN_FORMAT, "version",
                                            TOOL_RUN_VERSION, "interval_ms", 100, "on_slow_ns", 5000)));
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "name", 0, "is", "wire.calls_served")));
    for (uint32_t i = 0; i < 20; i++)
        sample(w, i * 100, 0, 10, 0);
    assert_true(
        tool_run_write(w, json_pack("{s:i, s:i, s:{s:i, s:i, s:s, s:i, s:s}}", "t", 700, "c", 0, "call", "n",
                                    1, "at", 7, "op", "lookup", "total", 5000, "from", "there")));
    assert_true(tool_run_write(
        w, json_pack("{s:i, s:i, s:{s:i, s:s}}", "t", 800, "c", 0, "call", "total", 4999, "op", "echo")));
    assert_true(tool_run_write(w, json_pack("{s:i, s:i, s:i}", "t", 900, "c", 0, "calls_lost", 3)));
    assert_true(tool_run_close(w));
    struct tool_run *run = run_load();
    assert_int_equal(run->calls.slow_ns, 5000);
    assert_int_equal(run->calls.count, 2);
    assert_int_equal(run->calls.slow, 1);
    assert_int_equal(run->calls.lost, 3);
    assert_int_equal(run->calls.burst_count, 1);
    assert_int_equal(run->calls.bursts[0].time_ms, 700);
    assert_int_equal(run->latency_count, 0);
    assert_true(tool_run_rise(run, 0, -1) == 19 * 10);
    tool_run_free(run);
}

TEST(what_is_damaged_or_unknown_does_no_harm, set_up, tear_down)
{
    struct tool_run_writer *w = run_begin(100);
    sample(w, 0, 0, 1, 1);
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "t", 50, "something", "new")));
    assert_true(tool_run_write(w, json_pack("{s:i, s:i, s:[i, i, s]}", "t", 60, "c", 99999, "v", 0, 5, "x")));
    assert_true(tool_run_write(
        w, json_pack("{s:i, s:i, s:[i, i, i, i, i]}", "t", 70, "c", 0, "v", 5000, 5, -1, 5, 0)));
    assert_true(tool_run_write(w, json_pack("{s:i, s:i, s:s, s:s, s:[i, i]}", "t", 80, "c", 0, "op", "lookup",
                                            "phase", "work", "b", 4000, 1)));
    sample(w, 100, 0, 1, 1);
    assert_true(tool_run_close(w));
    struct tool_run *run = run_load();
    assert_true(tool_run_value(run, 0, -1, 1) == 2);
    tool_run_free(run);
}

/* A recorder that was killed leaves what it had flushed. */
TEST(a_file_without_its_end_is_read, set_up, tear_down)
{
    struct tool_run_writer *w = run_begin(100);
    for (uint32_t i = 0; i < 50; i++)
        sample(w, i * 100, 0, 1, 0);
    assert_true(tool_run_flush(w));
    FILE *f = fopen(path, "re");
    static char bytes[100000];
    const size_t count = fread(bytes, 1, sizeof(bytes), f);
    assert_int_equal(fclose(f), 0);
    assert_true(tool_run_close(w));
    f = fopen(path, "we");
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
    struct tool_run *run = run_load();
    assert_int_equal(run->bin_count, 50);
    tool_run_free(run);
}

/* Runs come from other machines, and reports print names, annotations and texts of them. */
TEST(what_a_run_says_gives_a_terminal_no_commands, set_up, tear_down)
{
    struct tool_run_writer *w = tool_run_create(path);
    char *text = NULL;
    size_t bytes;
    assert_non_null(w);
    assert_true(tool_run_write(w, json_pack("{s:s, s:i, s:i, s:i, s:s}", "format", TOOL_RUN_FORMAT, "version",
                                            TOOL_RUN_VERSION, "interval_ms", 100, "on_slow_ns", 1, "server",
                                            "\033]0;x\a")));
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "name", 0, "is", "table.\033[2J")));
    sample(w, 0, 0, 1, 0);
    assert_true(tool_run_write(w, json_pack("{s:i, s:i, s:s, s:s, s:i, s:i, s:[i, i]}", "t", 50, "c", 0, "op",
                                            "\033[1mlookup", "phase", "all", "sum", 9, "max", 9, "b", 3, 1)));
    assert_true(
        tool_run_write(w, json_pack("{s:i, s:i, s:{s:i, s:i, s:i, s:s, s:s}}", "t", 60, "c", 0, "call", "n",
                                    1, "at", 1, "total", 100, "op", "push\033[3m", "from",
                                    "\xc2\x9b"
                                    "2J")));
    assert_true(tool_run_write(w, json_pack("{s:i, s:s}", "t", 70, "annotation", "\033c")));
    sample(w, 100, 0, 1, 0);
    assert_true(tool_run_close(w));
    struct tool_run *run = run_load();
    FILE *out = open_memstream(&text, &bytes);
    tool_run_print(run, "run.mrp", out);
    tool_run_csv(run, out);
    for (uint32_t i = 0; i < run->annotation_count; i++)
        fputs(run->annotations[i].text, out);
    assert_int_equal(fclose(out), 0);
    for (const char *const *said =
             (const char *const[]){"of \\x1b]0;x\\x07,", "table.\\x1b[2J", "\\x1b[1mlookup", "push\\x1b[3m",
                                   "\\xc2\\x9b2J", "\\x1bc", NULL};
         *said != NULL; said++)
        if (strstr(text, *said) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", *said, text);
    assert_null(strchr(text, '\033'));
    assert_null(strstr(text, "\xc2\x9b"));
    free(text);
    tool_run_free(run);
}

static void refused(const char *contents, const char *says)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(contents, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_null(tool_run_load(path, error_text, sizeof(error_text)));
    if (strstr(error_text, says) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", says, error_text);
}

TEST(what_is_no_run_is_refused, set_up, tear_down)
{
    refused("", "is no run");
    refused("hello\n", "is no run");
    refused("{\"format\": \"millrace run\", \"version\": 9}\n", "version 9");
    refused("{\"format\": \"millrace run\", \"version\": 1}\n", "0 samples");
    assert_int_equal(unlink(path), 0);
    assert_null(tool_run_load(path, error_text, sizeof(error_text)));
    assert_non_null(strstr(error_text, "No such file"));
}
