/* Slow calls of a run, made up. */
#ifndef SLOW_CALLS_H
#define SLOW_CALLS_H

#include "tools/perf/run_calls.h"
#include "tests/test.h"

enum { MS = 1000000, SLOW_NS = 5 * MS };

/* Times in ms; wait < 0: not timed. */
static inline void slow_calls_add(struct tool_run_calls *calls, uint32_t core, uint64_t time, const char *op,
                                  int total, int wait, int work)
{
    json_t *line = json_pack("{s:{s:I, s:I, s:s, s:I, s:i, s:i, s:s}}", "call", "n",
                             (json_int_t)calls->count + 1, "at", (json_int_t)time * MS, "op", op, "total",
                             (json_int_t)total * MS, "in", 10, "out", 20, "from", "10.0.0.<7>:1");
    assert_non_null(line);
    json_t *call = json_object_get(line, "call");
    if (wait >= 0) {
        (void)json_object_set_new(call, "wait", json_integer((json_int_t)wait * MS));
        (void)json_object_set_new(call, "work", json_integer((json_int_t)work * MS));
        (void)json_object_set_new(call, "table", json_integer(3));
        (void)json_object_set_new(call, "keys", json_integer(4000));
    }
    assert_true(tool_run_calls_take(calls, core, time, line));
    json_decref(line);
}

#endif
