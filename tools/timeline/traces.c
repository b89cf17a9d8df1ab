#include "tools/timeline/traces.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/printable.h"

#include "tools/timeline/clocks.h"

static bool refuse(char *error, size_t error_bytes, const char *path, const char *why)
{
    snprintf(error, error_bytes, "%s: %s", path, why);
    return false;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static uint64_t number_of_text(const char *text)
{
    return text == NULL ? 0 : strtoull(text, NULL, 16);
}

static int64_t ns_of(const json_t *event, const char *key)
{
    return llround(json_number_value(json_object_get(event, key)) * 1000.0);
}

static bool read_offsets(struct tool_clocks *clocks, uint64_t own, const json_t *offsets)
{
    size_t i;
    const json_t *o;
    json_array_foreach(offsets, i, o)
    {
        const uint64_t peer = number_of_text(json_string_value(json_array_get(o, 0)));
        const int64_t error_ns = json_integer_value(json_array_get(o, 3));
        if (peer == 0 || own == 0 || error_ns < 0)
            continue;
        if (!tool_clocks_measured(clocks, own, peer, json_integer_value(json_array_get(o, 1)),
                                  json_integer_value(json_array_get(o, 2)), (uint64_t)error_ns))
            return false;
    }
    return true;
}

static void copy_text(char *to, size_t bytes, const json_t *args, const char *key)
{
    const char *text = text_of(args, key);
    if (text != NULL)
        snprintf(to, bytes, "%s", text);
}

/* What the file says of its process; counts its spans. */
static bool read_process(struct tool_process *p, struct tool_clocks *clocks, size_t *span_count)
{
    size_t i;
    const json_t *event;
    snprintf(p->name, sizeof(p->name), "?");
    json_array_foreach(p->events, i, event)
    {
        const char *kind = text_of(event, "ph"), *name = text_of(event, "name");
        const json_t *args = json_object_get(event, "args");
        if (kind == NULL || name == NULL)
            continue;
        *span_count += strcmp(kind, "X") == 0;
        if (strcmp(kind, "M") == 0 && strcmp(name, "process_name") == 0) {
            copy_text(p->name, sizeof(p->name), args, "name");
            p->spans_left_out = (uint64_t)json_integer_value(json_object_get(args, "spans_left_out"));
        } else if (strcmp(kind, "M") == 0 && strcmp(name, "process_clock") == 0) {
            copy_text(p->host, sizeof(p->host), args, "host");
            p->clock = number_of_text(text_of(args, "clock"));
            if (!read_offsets(clocks, p->clock, json_object_get(args, "offsets")))
                return false;
        }
    }
    return true;
}

static bool read_file(const char *path, struct tool_process *p, char *error, size_t error_bytes)
{
    json_error_t problem;
    json_t *all = json_load_file(path, 0, &problem);
    if (all == NULL)
        return refuse(error, error_bytes, path,
                      problem.line > 0 ? "no JSON: it is no trace, or was not finished" : problem.text);
    json_t *events = json_is_array(all) ? all : json_object_get(all, "traceEvents");
    p->events = json_is_array(events) ? json_incref(events) : NULL;
    json_decref(all);
    return p->events != NULL ||
           refuse(error, error_bytes, path, "no trace: it holds no list of trace events");
}

/* Programs of one name are numbered, and named by their machine. */
static void title_all(struct tool_traces *t)
{
    for (uint32_t i = 0; i < t->process_count; i++) {
        struct tool_process *p = &t->processes[i];
        uint32_t number = 1, alike = 0;
        for (uint32_t k = 0; k < t->process_count; k++) {
            const bool same = strcmp(t->processes[k].name, p->name) == 0;
            alike += same;
            number += same && k < i;
        }
        char suffix[16] = "";
        if (alike > 1)
            snprintf(suffix, sizeof(suffix), " %u", number);
        snprintf(p->title, sizeof(p->title), "%s%s%s%s", p->name, suffix, p->host[0] != '\0' ? " on " : "",
                 p->host);
        mr_make_printable(p->title, sizeof(p->title));
    }
}

static bool take_spans(struct tool_traces *t, uint32_t index, const struct tool_clocks *clocks)
{
    struct tool_process *p = &t->processes[index];
    size_t i;
    const json_t *event;
    json_array_foreach(p->events, i, event)
    {
        const char *kind = text_of(event, "ph"), *name = text_of(event, "name");
        if (kind == NULL || name == NULL || strcmp(kind, "X") != 0)
            continue;
        struct tool_span *s = &t->spans[t->span_count];
        uint64_t error_ns = 0;
        int64_t begin_ns = ns_of(event, "ts");
        const int64_t length_ns = ns_of(event, "dur");
        if (p->clock != 0 && !tool_clocks_move(clocks, p->clock, &begin_ns, &error_ns))
            return false;
        p->error_ns = error_ns > p->error_ns ? error_ns : p->error_ns;
        *s = (struct tool_span){.name = name,
                                .begin_ns = begin_ns,
                                .end_ns = begin_ns + (length_ns > 0 ? length_ns : 0),
                                .batch = text_of(json_object_get(event, "args"), "batch"),
                                .process = index,
                                .track = (uint32_t)json_integer_value(json_object_get(event, "tid"))};
        t->span_count++;
    }
    return true;
}

static int by_begin(const void *left, const void *right)
{
    const struct tool_span *a = left, *b = right;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    return (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns); /* an outer one before those in it */
}

static bool traces_load(const char *const *paths, uint32_t count, struct tool_traces *t,
                        struct tool_clocks *clocks, char *error, size_t error_bytes)
{
    size_t spans = 0;
    t->processes = calloc(count, sizeof(*t->processes));
    if (t->processes == NULL)
        return refuse(error, error_bytes, paths[0], "no memory");
    for (; t->process_count < count; t->process_count++) {
        struct tool_process *p = &t->processes[t->process_count];
        if (!read_file(paths[t->process_count], p, error, error_bytes))
            return false;
        if (!read_process(p, clocks, &spans)) {
            t->process_count++; /* its events are to be freed */
            return refuse(error, error_bytes, paths[t->process_count - 1], "no memory");
        }
    }
    title_all(t);
    t->spans = calloc(spans + 1, sizeof(*t->spans));
    if (t->spans == NULL || !tool_clocks_join(clocks, t->processes[0].clock))
        return refuse(error, error_bytes, paths[0], "no memory");
    for (uint32_t i = 0; i < t->process_count; i++)
        if (!take_spans(t, i, clocks))
            return refuse(
                error, error_bytes, paths[i],
                "its clock is not known to the others: add the traces of the processes between them, "
                "or name files of one run only");
    if (t->span_count == 0)
        return refuse(error, error_bytes, paths[0], "no spans, nor in the other files");
    qsort(t->spans, t->span_count, sizeof(*t->spans), by_begin);
    const int64_t first_ns = t->spans[0].begin_ns;
    for (size_t i = 0; i < t->span_count; i++) {
        t->spans[i].begin_ns -= first_ns;
        t->spans[i].end_ns -= first_ns;
    }
    return true;
}

bool tool_traces_load(const char *const *paths, uint32_t count, struct tool_traces *out, char *error,
                      size_t error_bytes)
{
    struct tool_clocks *clocks = tool_clocks_new();
    *out = (struct tool_traces){0};
    const bool good = clocks != NULL ? traces_load(paths, count, out, clocks, error, error_bytes)
                                     : refuse(error, error_bytes, paths[0], "no memory");
    tool_clocks_free(clocks);
    if (!good)
        tool_traces_free(out);
    return good;
}

void tool_traces_free(struct tool_traces *t)
{
    for (uint32_t i = 0; i < t->process_count; i++)
        json_decref(t->processes[i].events);
    free(t->processes);
    free(t->spans);
    *t = (struct tool_traces){0};
}

static int by_batch(const void *left, const void *right)
{
    const struct tool_span *a = left, *b = right;
    const int order = strcmp(a->batch, b->batch);
    return order != 0 ? order : by_begin(left, right);
}

struct tool_span *tool_traces_by_batch(const struct tool_traces *t, size_t *count)
{
    struct tool_span *spans = calloc(t->span_count + 1, sizeof(*spans));
    *count = 0;
    for (size_t i = 0; spans != NULL && i < t->span_count; i++)
        if (t->spans[i].batch != NULL)
            spans[(*count)++] = t->spans[i];
    if (*count > 0)
        qsort(spans, *count, sizeof(*spans), by_batch);
    return spans;
}

/* ---- writing ---- */

static bool traces_put(FILE *file, json_t *event, bool *is_first)
{
    const bool good = event != NULL && fputs(*is_first ? "\n" : ",\n", file) >= 0 &&
                      json_dumpf(event, file, JSON_REAL_PRECISION(16)) == 0;
    *is_first = false;
    json_decref(event);
    return good;
}

/* The names of a process and of its tracks. Process i has the pid i + 1: those of several machines may
 * repeat. */
static bool put_names(const struct tool_process *p, int pid, FILE *file, bool *is_first)
{
    size_t i;
    const json_t *event;
    bool good = traces_put(file,
                           json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid",
                                     pid, "args", "name", p->title),
                           is_first);
    json_array_foreach(p->events, i, event)
    {
        const char *name = text_of(event, "name");
        if (name == NULL || strcmp(name, "thread_name") != 0)
            continue;
        good = traces_put(file,
                          json_pack("{s:s, s:s, s:i, s:O, s:O}", "ph", "M", "name", name, "pid", pid, "tid",
                                    json_object_get(event, "tid"), "args", json_object_get(event, "args")),
                          is_first) &&
               good;
    }
    return good;
}

static double us(int64_t ns)
{
    return (double)ns / 1000.0;
}

static bool put_span(const struct tool_span *s, FILE *file, bool *is_first)
{
    json_t *event =
        json_pack("{s:s, s:s, s:i, s:i, s:f, s:f}", "ph", "X", "name", s->name, "pid", (int)s->process + 1,
                  "tid", (int)s->track, "ts", us(s->begin_ns), "dur", us(s->end_ns - s->begin_ns));
    if (event != NULL && s->batch != NULL &&
        json_object_set_new(event, "args", json_pack("{s:s}", "batch", s->batch)) != 0) {
        json_decref(event);
        event = NULL;
    }
    return traces_put(file, event, is_first);
}

/* A flow begins ("s") at a batch's first span, passes ("t") through others, and ends ("f") at the last. */
static bool put_flow(const struct tool_span *s, const char *kind, FILE *file, bool *is_first)
{
    return traces_put(file,
                      json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:s}", "ph", kind, "cat", "batch",
                                "name", "batch", "id", s->batch, "pid", (int)s->process + 1, "tid",
                                (int)s->track, "ts", us(s->begin_ns), "bp", "e"),
                      is_first);
}

static bool put_flows(const struct tool_traces *t, FILE *file, bool *is_first)
{
    size_t count;
    struct tool_span *spans = tool_traces_by_batch(t, &count);
    bool good = spans != NULL;
    for (size_t i = 0; good && i < count; i++) {
        const bool begins = i == 0 || strcmp(spans[i].batch, spans[i - 1].batch) != 0;
        const bool ends = i + 1 == count || strcmp(spans[i].batch, spans[i + 1].batch) != 0;
        if (!begins || !ends)
            good = put_flow(&spans[i], begins ? "s" : ends ? "f" : "t", file, is_first);
    }
    free(spans);
    return good;
}

bool tool_traces_write(const struct tool_traces *t, FILE *file)
{
    bool is_first = true, good = fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [", file) >= 0;
    for (uint32_t i = 0; good && i < t->process_count; i++)
        good = put_names(&t->processes[i], (int)i + 1, file, &is_first);
    for (size_t i = 0; good && i < t->span_count; i++)
        good = put_span(&t->spans[i], file, &is_first);
    return good && put_flows(t, file, &is_first) && fputs("\n]}\n", file) >= 0;
}
