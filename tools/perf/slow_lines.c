#include "tools/perf/slow_lines.h"

#include <stdlib.h>
#include <string.h>
#include "millrace_observe.h"

#define SPAN_NS_MIN 1e3
#define SPAN_NS_MAX 1e12

bool tool_span_ns(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    const double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        const double span_ns = value * units[i].ns;
        if (strcmp(end, units[i].name) != 0 || !(span_ns >= SPAN_NS_MIN && span_ns <= SPAN_NS_MAX))
            continue;
        *ns = (uint64_t)(span_ns + 0.5);
        return true;
    }
    return false;
}

static void write_line(struct tool_slow_lines *l, json_t *line)
{
    if (!tool_run_write(l->file, line))
        l->failed = true;
}

static bool has_room(struct tool_slow_lines *l, uint64_t time_ms, bool is_slow)
{
    if (time_ms / 1000 != l->second) {
        l->second = time_ms / 1000;
        l->lines_in_second = 0;
    }
    const uint64_t limit = is_slow ? TOOL_SLOW_LINES_A_SECOND : TOOL_SLOW_LINES_A_SECOND / 2;
    return l->lines_in_second < limit && l->lines < TOOL_SLOW_LINES_MAX;
}

void tool_slow_lines_add(struct tool_slow_lines *l, uint32_t core, uint64_t time_ms,
                         const struct mr_recent_call *call)
{
    const bool is_slow = call->total_ns >= l->slow_ns;
    if (!has_room(l, time_ms, is_slow)) {
        l->left_out++;
        l->slow_left_out += is_slow;
        return;
    }
    l->lines++;
    l->lines_in_second++;
    l->slow += is_slow;
    json_t *c = json_pack("{s:I, s:I, s:s, s:I, s:I, s:I, s:s}", "n", (json_int_t)call->number, "at",
                          (json_int_t)call->arrived_ns, "op", call->op, "total", (json_int_t)call->total_ns,
                          "in", (json_int_t)call->request_bytes, "out", (json_int_t)call->reply_bytes, "from",
                          call->client);
    if (c != NULL && call->is_timed) {
        (void)json_object_set_new(c, "wait", json_integer((json_int_t)call->wait_ns));
        (void)json_object_set_new(c, "work", json_integer((json_int_t)call->work_ns));
    }
    if (c != NULL && call->table != 0)
        (void)json_object_set_new(c, "table", json_integer((json_int_t)call->table));
    if (c != NULL && call->keys != 0)
        (void)json_object_set_new(c, "keys", json_integer((json_int_t)call->keys));
    if (c != NULL && call->status != MR_OK)
        (void)json_object_set_new(c, "status", json_string(mr_status_name((enum mr_status)call->status)));
    write_line(l, json_pack("{s:I, s:I, s:o}", "t", (json_int_t)time_ms, "c", (json_int_t)core, "call", c));
}

void tool_slow_lines_end(struct tool_slow_lines *l, uint32_t core, uint64_t time_ms, uint64_t lost)
{
    const uint64_t left_out = l->left_out - l->told_left_out;
    if (lost == 0 && left_out == 0)
        return;
    l->lost += lost;
    l->told_left_out = l->left_out;
    write_line(l, json_pack("{s:I, s:I, s:I, s:I}", "t", (json_int_t)time_ms, "c", (json_int_t)core,
                            "calls_lost", (json_int_t)lost, "calls_left_out", (json_int_t)left_out));
}
