/* Timelines: what is written is JSON with every span, and those beyond the bound are counted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/clock_name.h"
#include "dataplane/wire/base/trace.h"
#include "tests/test.h"

static char path[] = "/tmp/test_trace.XXXXXX";

static struct mr_trace *open_trace(void)
{
    struct mr_trace *t = NULL;
    char error[200];
    assert_true(mr_trace_open(path, "a program", &t, error, sizeof(error)));
    assert_non_null(t);
    return t;
}

/* Closes the trace; what it wrote, to be freed. */
static char *close_trace(struct mr_trace *t)
{
    char error[200], *text = NULL;
    size_t bytes = 0;
    assert_true(mr_trace_close(t, error, sizeof(error)));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_true(getdelim(&text, &bytes, '\0', file) > 0);
    fclose(file);
    return text;
}

TEST(spans_are_written_as_events)
{
    struct mr_trace *t = open_trace();
    char expected[600];
    int pid = (int)getpid();
    mr_trace_name(t, 1, "feeding");
    mr_trace_add(t, 1, "build", 1000007, 1005000, 77);
    mr_trace_add(t, 0, "wait", 1000000, 3000001, MR_TRACE_NO_BATCH);
    snprintf(
        expected, sizeof(expected),
        "[\n"
        "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": 1, \"args\": {\"name\": "
        "\"feeding\"}},\n"
        "{\"ph\": \"X\", \"name\": \"build\", \"pid\": %d, \"tid\": 1, \"ts\": 1000.007, \"dur\": 4.993, "
        "\"args\": "
        "{\"batch\": \"0x4d\"}},\n"
        "{\"ph\": \"X\", \"name\": \"wait\", \"pid\": %d, \"tid\": 0, \"ts\": 1000.000, \"dur\": 2000.001},\n"
        "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"a program\", "
        "\"spans_left_out\": 0}}\n"
        "]\n",
        pid, pid, pid, pid);
    char *text = close_trace(t);
    char *clock = strstr(text, "{\"ph\": \"M\", \"name\": \"process_clock\""),
         *after = strchr(clock, '\n') + 1;
    memmove(clock, after, strlen(after) + 1);
    assert_string_equal(text, expected);
    free(text);
}

TEST(clocks_of_peers_are_written)
{
    struct mr_trace *t = open_trace();
    char expected[200];
    mr_trace_clock(t, 0x11, 1000, -50, 7);
    mr_trace_clock(t, mr_clock_name(), 1500, 0, 0); /* the own one needs no offset */
    mr_trace_clock(t, 0x11, 2000, -51, 6);
    char *text = close_trace(t);
    snprintf(expected, sizeof(expected),
             "\"clock\": \"%#" PRIx64
             "\", \"offsets\": [[\"0x11\", 1000, -50, 7], [\"0x11\", 2000, -51, 6]]}}",
             mr_clock_name());
    assert_non_null(strstr(text, expected));
    free(text);
}

TEST(a_span_ends_now)
{
    struct mr_trace *t = open_trace();
    uint64_t begin_ns = mr_trace_begin(t);
    assert_true(begin_ns > 0 && begin_ns <= mr_clock_ns());
    mr_trace_span(t, 0, "now", begin_ns, 1);
    char *text = close_trace(t);
    assert_non_null(strstr(text, "\"name\": \"now\""));
    assert_null(strstr(text, "\"dur\": 184467")); /* not before it began */
    free(text);
}

TEST(spans_beyond_the_bound_are_counted)
{
    struct mr_trace *t = open_trace();
    for (uint32_t i = 0; i < MR_TRACE_SPANS_MAX + 3; i++)
        mr_trace_add(t, 0, i < MR_TRACE_SPANS_MAX ? "kept" : "lost", i, i + 1, i);
    char *text = close_trace(t);
    assert_non_null(strstr(text, "\"spans_left_out\": 3}"));
    assert_null(strstr(text, "lost"));
    free(text);
}

TEST(no_trace_does_nothing)
{
    char error[200] = "untouched";
    for (uint32_t i = 0; i < 2; i++) {
        struct mr_trace *t = (void *)error;
        assert_true(mr_trace_open(i == 0 ? NULL : "", "p", &t, error, sizeof(error)));
        assert_null(t);
    }
    assert_int_equal(mr_trace_begin(NULL), 0);
    mr_trace_name(NULL, 0, "nobody");
    mr_trace_span(NULL, 0, "nothing", 0, 0);
    assert_true(mr_trace_close(NULL, error, sizeof(error)));
    assert_string_equal(error, "untouched");
}

TEST(a_file_that_cannot_be_created_is_named)
{
    struct mr_trace *t = NULL;
    char error[200];
    assert_false(mr_trace_open("/nowhere/trace.json", "p", &t, error, sizeof(error)));
    assert_null(t);
    assert_string_equal(error, "cannot create the trace /nowhere/trace.json: No such file or directory");
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = tests_run(NULL, NULL);
    unlink(path);
    return failed;
}
