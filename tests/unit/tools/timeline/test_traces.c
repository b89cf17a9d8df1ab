/* Traces of machines whose clocks differ, joined; and how a trainer's time divides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/timeline/division.h"
#include "tools/timeline/traces.h"
#include "tests/test.h"

#define FILES 3
static char paths[FILES][40];
static const char *const list[FILES] = {paths[0], paths[1], paths[2]};

static int set_up(void **state)
{
    for (int i = 0; i < FILES; i++) {
        strcpy(paths[i], "/tmp/test_traces.XXXXXX");
        close(mkstemp(paths[i]));
    }
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < FILES; i++)
        unlink(paths[i]);
    return 0;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Both processes have the pid 7. The server's clock shows 1000 ms more; the trainer's wait is from 10 to 20
 * ms of its own clock, the server's work from 12 to 18 ms of it. */
static const char trainer[] =
    "[{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 7, \"tid\": 0, \"args\": {\"name\": \"main\"}},"
    "{\"ph\": \"X\", \"name\": \"ask for a batch\", \"pid\": 7, \"tid\": 0, \"ts\": 6000, \"dur\": 4000,"
    " \"args\": {\"batch\": \"0x5\"}},"
    "{\"ph\": \"X\", \"name\": \"lookup\", \"pid\": 7, \"tid\": 0, \"ts\": 10000, \"dur\": 10000,"
    " \"args\": {\"batch\": \"0x5\"}},"
    "{\"ph\": \"X\", \"name\": \"step\", \"pid\": 7, \"tid\": 0, \"ts\": 20000, \"dur\": 3000},"
    "{\"ph\": \"X\", \"name\": \"push\", \"pid\": 7, \"tid\": 0, \"ts\": 21000, \"dur\": 1000,"
    " \"args\": {\"batch\": \"0x5\"}},"
    "{\"ph\": \"M\", \"name\": \"process_clock\", \"pid\": 7, \"args\": {\"host\": \"gpu\", \"clock\": "
    "\"0xa\","
    " \"offsets\": [[\"0xb\", 10000000, 1000000000, 500]]}},"
    "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 7, \"args\": {\"name\": \"train\"}}]";
static const char server[] =
    "[{\"ph\": \"X\", \"name\": \"lookup_batch\", \"pid\": 7, \"tid\": 1, \"ts\": 1012000, \"dur\": 6000,"
    " \"args\": {\"batch\": \"0x5\"}},"
    "{\"ph\": \"M\", \"name\": \"process_clock\", \"pid\": 7, \"args\": {\"host\": \"ps\", \"clock\": "
    "\"0xb\","
    " \"offsets\": []}},"
    "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 7, \"args\": {\"name\": \"millraced\"}}]";

static void traces_load(struct tool_traces *t)
{
    char error[300];
    write_text(paths[0], trainer);
    write_text(paths[1], server);
    if (!tool_traces_load(list, 2, t, error, sizeof(error)))
        fail_msg("%s", error);
}

static const struct tool_span *traces_find(const struct tool_traces *t, const char *name)
{
    for (size_t i = 0; i < t->span_count; i++)
        if (strcmp(t->spans[i].name, name) == 0)
            return &t->spans[i];
    fail_msg("no span %s", name);
    return NULL;
}

TEST(spans_are_moved_to_the_first_clock)
{
    struct tool_traces t;
    traces_load(&t);
    assert_int_equal(t.span_count, 5);
    assert_int_equal(traces_find(&t, "ask for a batch")->begin_ns, 0);
    assert_int_equal(traces_find(&t, "lookup_batch")->begin_ns, 6000000);
    assert_int_equal(traces_find(&t, "lookup_batch")->end_ns, 12000000);
    assert_string_equal(t.processes[0].title, "train on gpu");
    assert_int_equal(t.processes[0].error_ns, 0);
    assert_int_in_range(t.processes[1].error_ns, 500, 700);
    tool_traces_free(&t);
}

TEST(what_is_written_is_one_timeline)
{
    struct tool_traces t;
    json_error_t problem;
    char flows[8] = "";
    size_t i, flow_count = 0, spans = 0, names = 0;
    json_t *event;
    traces_load(&t);
    FILE *file = fopen(paths[2], "we");
    assert_true(tool_traces_write(&t, file));
    assert_int_equal(fclose(file), 0);
    tool_traces_free(&t);
    json_t *all = json_load_file(paths[2], 0, &problem);
    assert_non_null(all);
    json_array_foreach(json_object_get(all, "traceEvents"), i, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        spans += strcmp(kind, "X") == 0;
        names += strcmp(kind, "M") == 0;
        if (strcmp(kind, "s") == 0 || strcmp(kind, "t") == 0 || strcmp(kind, "f") == 0)
            flows[flow_count++ % (sizeof(flows) - 1)] = kind[0];
        assert_int_in_range(json_integer_value(json_object_get(event, "pid")), 1, 2);
    }
    assert_int_equal(spans, 5);
    assert_int_equal(names, 3);
    assert_string_equal(flows, "sttf"); /* asked for, looked up, served, pushed */
    json_decref(all);
}

TEST(time_divides_by_what_is_waited_for)
{
    struct tool_traces t;
    struct tool_division d;
    traces_load(&t);
    assert_true(tool_is_trainer(&t.processes[0]));
    assert_false(tool_is_trainer(&t.processes[1]));
    assert_true(tool_divide(&t, 0, &d));
    assert_int_equal(d.batches, 1);
    assert_int_equal(d.total_ns, 17000000);
    assert_int_equal(d.parts_ns[TOOL_PART_HUB], 4000000);
    assert_int_equal(d.parts_ns[TOOL_PART_LOOKUP_WORK], 6000000);
    assert_int_equal(d.parts_ns[TOOL_PART_LOOKUP_REST], 4000000);
    assert_int_equal(d.parts_ns[TOOL_PART_COMPUTE], 2000000); /* the step without the push in it */
    assert_int_equal(d.parts_ns[TOOL_PART_PUSH_REST], 1000000);
    assert_int_equal(d.parts_ns[TOOL_PART_OTHER], 0);
    assert_int_equal(tool_waits_ns(&d), 15000000);
    assert_int_equal(tool_largest_wait(&d), TOOL_PART_LOOKUP_WORK);
    tool_traces_free(&t);
}

static void refuse(const char *text, const char *expected)
{
    struct tool_traces t;
    char error[300];
    write_text(paths[0], text);
    assert_false(tool_traces_load(list, 2, &t, error, sizeof(error)));
    assert_non_null(strstr(error, expected));
}

TEST(broken_files_are_refused)
{
    write_text(paths[1], server);
    refuse("[{\"ph\":", "no JSON");
    refuse("{\"a\": 1}", "no list of trace events");
    refuse("[{\"ph\": \"M\", \"name\": \"process_clock\", \"args\": {\"clock\": \"0xc\"}}]",
           "its clock is not known");
    write_text(paths[1], "[]");
    refuse("[1, {\"ph\": 2}, null]", "no spans");
    unlink(paths[1]);
    refuse("[]", paths[1]);
}

int main(void)
{
    return tests_run(set_up, tear_down);
}
