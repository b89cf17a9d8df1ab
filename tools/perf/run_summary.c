#include "tools/perf/run_summary.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/slow_report.h"

static void run_summary_add(struct tool_figures *out, double value, enum tool_unit unit, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));

static void run_summary_add(struct tool_figures *out, double value, enum tool_unit unit, const char *format,
                            ...)
{
    va_list args;
    if (out->count == TOOL_FIGURES_MAX || !isfinite(value))
        return;
    struct tool_figure *f = &out->list[out->count++];
    f->unit = unit;
    f->value = value;
    va_start(args, format);
    (void)vsnprintf(f->name, sizeof(f->name), format, args);
    va_end(args);
}

static double per_s(const struct tool_run *run, const char *name)
{
    const double seconds = tool_run_seconds(run);
    const int counter = tool_run_counter(run, name);
    return counter < 0 ? 0 : tool_run_rise(run, counter, -1) / (seconds > 0 ? seconds : 1);
}

static double last(const struct tool_run *run, const char *name)
{
    return tool_run_value(run, tool_run_counter(run, name), -1, run->bin_count - 1);
}

static double busy_share(const struct tool_run *run)
{
    const int busy = tool_run_counter(run, "core.busy_ppm");
    double sum = 0;
    for (uint32_t bin = 0; bin < run->bin_count; bin++)
        sum += tool_run_value(run, busy, -1, bin);
    return sum / 1e6 / run->bin_count / (run->core_count > 0 ? run->core_count : 1);
}

static void add_latency(const struct tool_run_latency *l, struct tool_figures *out)
{
    static const struct {
        const char *name;
        double share;
    } points[] = {{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}};
    for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++)
        run_summary_add(out, (double)mr_histogram_percentile_ns(&l->whole, points[i].share), TOOL_UNIT_NS,
                        "%s %s %s", l->op, l->phase, points[i].name);
    run_summary_add(out, (double)l->whole.max_ns, TOOL_UNIT_NS, "%s %s max", l->op, l->phase);
}

void tool_run_figures(const struct tool_run *run, struct tool_figures *out)
{
    static const struct {
        const char *counter, *name;
        enum tool_unit unit;
    } rates[] = {
        {"wire.calls_served", "calls per second", TOOL_UNIT_COUNT},
        {"table.keys_looked_up", "keys looked up per second", TOOL_UNIT_COUNT},
        {"table.keys_pushed", "keys pushed per second", TOOL_UNIT_COUNT},
        {"wire.rx_bytes", "bytes received per second", TOOL_UNIT_BYTES},
        {"wire.tx_bytes", "bytes sent per second", TOOL_UNIT_BYTES},
        {"wire.segments_resent", "segments resent per second", TOOL_UNIT_COUNT},
        {"wire.segments_repeated", "segments received again per second", TOOL_UNIT_COUNT},
        {"wire.window_losses", "windows shrunk by losses per second", TOOL_UNIT_COUNT},
        {"wire.busy_sent", "calls refused for memory per second", TOOL_UNIT_COUNT},
    };
    *out = (struct tool_figures){0};
    for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
        run_summary_add(out, per_s(run, rates[i].counter), rates[i].unit, "%s", rates[i].name);
    run_summary_add(out, busy_share(run), TOOL_UNIT_SHARE, "busy share of the cores");
    run_summary_add(out, last(run, "table.rows"), TOOL_UNIT_COUNT, "rows at the end");
    run_summary_add(out, last(run, "ps.memory_bytes"), TOOL_UNIT_BYTES, "memory at the end");
    for (uint32_t i = 0; i < run->latency_count; i++)
        add_latency(run->latencies[i], out);
}

static void print_latencies(const struct tool_run *run, FILE *out)
{
    static const double shares[] = {0.5, 0.99, 0.999};
    char text[24];
    (void)fprintf(out, "%-24s %-6s %10s %12s %12s %12s %12s\n", "operation", "phase", "calls", "p50", "p99",
                  "p99.9", "max");
    for (uint32_t i = 0; i < run->latency_count; i++) {
        const struct tool_run_latency *l = run->latencies[i];
        if (l->whole.count == 0)
            continue;
        tool_quantity((double)l->whole.count, TOOL_UNIT_COUNT, text);
        (void)fprintf(out, "%-24s %-6s %10s", l->op, l->phase, text);
        for (size_t p = 0; p < sizeof(shares) / sizeof(*shares); p++) {
            tool_quantity((double)mr_histogram_percentile_ns(&l->whole, shares[p]), TOOL_UNIT_NS, text);
            (void)fprintf(out, " %12s", text);
        }
        tool_quantity((double)l->whole.max_ns, TOOL_UNIT_NS, text);
        (void)fprintf(out, " %12s\n", text);
    }
}

static bool is_latency(const struct tool_run *run, const struct tool_figure *f)
{
    for (uint32_t i = 0; i < run->latency_count; i++) {
        const size_t op = strlen(run->latencies[i]->op);
        if (strncmp(f->name, run->latencies[i]->op, op) == 0 && f->name[op] == ' ' && f->unit == TOOL_UNIT_NS)
            return true;
    }
    return false;
}

void tool_run_print(const struct tool_run *run, const char *path, FILE *out)
{
    static struct tool_figures figures;
    char text[24];
    const char *server = json_string_value(json_object_get(run->header, "server"));
    tool_run_figures(run, &figures);
    (void)fprintf(out, "%s: %.1f s of %s, %u core%s, %u annotations\n\n", path, (double)run->end_ms / 1e3,
                  server != NULL ? server : "?", run->core_count, run->core_count == 1 ? "" : "s",
                  run->annotation_count);
    for (uint32_t i = 0; i < figures.count; i++) {
        if (is_latency(run, &figures.list[i]))
            continue;
        tool_quantity(figures.list[i].value, figures.list[i].unit, text);
        (void)fprintf(out, "%-40s %12s\n", figures.list[i].name, text);
    }
    (void)fputc('\n', out);
    print_latencies(run, out);
    tool_slow_print(run, out);
}

json_t *tool_run_json(const struct tool_run *run)
{
    static struct tool_figures figures;
    static const char *const units[] = {"count", "bytes", "ratio", "ns"};
    json_t *list = json_array();
    tool_run_figures(run, &figures);
    for (uint32_t i = 0; i < figures.count; i++)
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:f}", "name", figures.list[i].name, "unit",
                                              units[figures.list[i].unit], "value", figures.list[i].value));
    json_t *annotations = json_array();
    for (uint32_t i = 0; i < run->annotation_count; i++)
        (void)json_array_append_new(annotations,
                                    json_pack("{s:f, s:s}", "s", (double)run->annotations[i].time_ms / 1e3,
                                              "text", run->annotations[i].text));
    return json_pack("{s:O, s:f, s:I, s:o, s:o, s:o*}", "header", run->header, "seconds",
                     (double)run->end_ms / 1e3, "cores", (json_int_t)run->core_count, "figures", list,
                     "annotations", annotations, "slow_calls", tool_slow_json(run));
}

void tool_run_csv(const struct tool_run *run, FILE *out)
{
    (void)fprintf(out, "s");
    for (uint32_t n = 0; n < run->name_count; n++)
        if (run->names[n] != NULL)
            (void)fprintf(out, ",%s", run->names[n]);
    (void)fputc('\n', out);
    for (uint32_t bin = 0; bin < run->bin_count; bin++) {
        (void)fprintf(out, "%.3f", (double)(bin * run->step_ms) / 1e3);
        for (uint32_t n = 0; n < run->name_count; n++)
            if (run->names[n] != NULL)
                (void)fprintf(out, ",%.0f", tool_run_value(run, (int)n, -1, bin));
        (void)fputc('\n', out);
    }
}

static double distance(const struct tool_change *c)
{
    return c->ratio > 0 ? fabs(log(c->ratio)) : INFINITY;
}

static int by_distance(const void *a, const void *b)
{
    const double x = distance(a), y = distance(b);
    return x > y ? -1 : x < y;
}

uint32_t tool_run_compare(const struct tool_figures *before, const struct tool_figures *after,
                          struct tool_change out[TOOL_FIGURES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < before->count; i++)
        for (uint32_t j = 0; j < after->count; j++) {
            const struct tool_figure *x = &before->list[i], *y = &after->list[j];
            if (strcmp(x->name, y->name) != 0 || (x->value == 0 && y->value == 0))
                continue;
            out[count++] = (struct tool_change){x, y, y->value / x->value};
        }
    qsort(out, count, sizeof(*out), by_distance);
    return count;
}

void tool_run_changes(const struct tool_run *before, const struct tool_run *after,
                      struct tool_run_changes *out)
{
    tool_run_figures(before, &out->before);
    tool_run_figures(after, &out->after);
    out->count = tool_run_compare(&out->before, &out->after, out->list);
}
