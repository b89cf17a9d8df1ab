#include "tools/perf/report_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/run_facts.h"
#include "tools/perf/run_summary.h"
#include "tools/perf/slow_report.h"
#include "tools/perf/svg.h"

#define MAP_COLUMNS  200u
#define CHANGES_MAX  40u
#define PLOT_OPS_MAX 4u

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Millrace: report of a run</title>\n<style>\n"
    ":root{--ink:#1c2430;--soft:#5b6776;--grid:#e3e7ec;--paper:#fff}\n"
    "body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;"
    "max-width:1360px;padding:16px}\n"
    "h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:28px 0 8px}p{color:var(--soft);margin:0 0 "
    "8px}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:18px}\n"
    "figure{margin:0;min-width:0}figcaption{font-weight:600;margin-bottom:2px}svg{display:block;width:100%;"
    "height:auto}\n"
    "svg text{font:13px system-ui,sans-serif;fill:var(--soft)}\n"
    "@media(max-width:700px){svg text{font-size:19px}}\n"
    ".keys{font-size:13px}.keys span{margin-right:10px;white-space:nowrap}"
    ".keys span::before{content:\"\";display:inline-block;width:14px;height:3px;margin-right:5px;"
    "vertical-align:middle;background:currentColor}\n"
    ".grid{stroke:var(--grid);fill:none}.annotation{stroke:#c026d3;stroke-dasharray:3 3;fill:none}\n"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}\n"
    ".c0{stroke:#1764ab}.k0{color:#1764ab}.c1{stroke:#d9480f}.k1{color:#d9480f}\n"
    ".c2{stroke:#2b8a3e}.k2{color:#2b8a3e}.c3{stroke:#7b2cbf}.k3{color:#7b2cbf}\n"
    ".c4{stroke:#b08900}.k4{color:#b08900}.c5{stroke:#0b7285}.k5{color:#0b7285}\n"
    ".c6{stroke:#c2255c}.k6{color:#c2255c}.c7{stroke:#495057}.k7{color:#495057}\n"
    ".c8{stroke:#5c940d}.k8{color:#5c940d}.c9{stroke:#364fc7}.k9{color:#364fc7}\n"
    ".c10{stroke:#862e9c}.k10{color:#862e9c}.c11{stroke:#087f5b}.k11{color:#087f5b}\n"
    ".s1{fill:#dbeafe}.s2{fill:#bcd7fb}.s3{fill:#93bff5}.s4{fill:#669fe8}.s5{fill:#3d7dd2}.s6{fill:#225fb3}"
    ".s7{fill:#12448c}.s8{fill:#082a5e}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:3px 12px 3px 0;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}\n"
    ".two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:24px}"
    ".two>*{min-width:0}\n"
    "@media print{.plots,.two{grid-template-columns:1fr 1fr}}\n"
    "</style></head><body>\n";

/* ---- plots of counters ---- */

#define PHASES_EVERY_MS 250u /* cores count their phases less often than they may be asked */

/* A line of a plot, as a report names it: counters that rise become rates. */
struct wanted_line {
    const char *counter, *name;
    double scale;
    bool is_level; /* as it is: not a rate */
};

struct wanted_plot {
    const char *title;
    enum tool_unit unit;
    struct wanted_line lines[6];
};

static const struct wanted_plot wanted_plots[] = {
    {"Calls and keys per second",
     TOOL_UNIT_COUNT,
     {{"wire.calls_served", "calls", 1, false},
      {"table.keys_looked_up", "keys looked up", 1, false},
      {"table.keys_pushed", "keys pushed", 1, false}}},
    {"Bytes per second",
     TOOL_UNIT_BYTES,
     {{"wire.rx_bytes", "received", 1, false}, {"wire.tx_bytes", "sent", 1, false}}},
    {"Memory", TOOL_UNIT_BYTES, {{"ps.memory_bytes", "tables, variables and batches", 1, true}}},
    {"Losses and retransmissions per second",
     TOOL_UNIT_COUNT,
     {{"wire.segments_resent", "segments sent again", 1, false},
      {"wire.segments_repeated", "received again", 1, false},
      {"wire.window_losses", "windows shrunk by losses", 1, false},
      {"wire.window_delays", "by delays", 1, false},
      {"wire.busy_sent", "calls refused", 1, false},
      {"port.tx_dropped", "frames dropped", 1, false}}},
    {"Checkpoints: bytes written of the running one",
     TOOL_UNIT_BYTES,
     {{"checkpoint.running_bytes", "written", 1, true}, {"checkpoint.running_bytes_total", "of", 1, true}}},
};

struct buffers {
    double values[TOOL_LINES_MAX][TOOL_RUN_BINS];
    struct tool_plot_annotation annotations[TOOL_RUN_ANNOTATIONS_MAX + TOOL_SLOW_BURSTS_MAX];
};

static struct tool_plot plot_of(const struct tool_run *run, struct buffers *b, const char *title,
                                enum tool_unit unit)
{
    for (uint32_t i = 0; i < run->annotation_count; i++)
        b->annotations[i] = (struct tool_plot_annotation){(double)run->annotations[i].time_ms / 1e3,
                                                          run->annotations[i].text};
    for (uint32_t i = 0; i < run->calls.burst_count; i++)
        b->annotations[run->annotation_count + i] = (struct tool_plot_annotation){
            (double)run->calls.bursts[i].time_ms / 1e3, run->calls.bursts[i].text};
    return (struct tool_plot){.title = title,
                              .unit = unit,
                              .seconds = (double)(run->bin_count * run->step_ms) / 1e3,
                              .points = run->bin_count,
                              .annotation_count = run->annotation_count + run->calls.burst_count,
                              .annotations = b->annotations};
}

static void add_line(struct tool_plot *plot, const struct buffers *b, const char *name)
{
    struct tool_line *line = &plot->lines[plot->line_count];
    (void)snprintf(line->name, sizeof(line->name), "%s", name);
    line->values = b->values[plot->line_count];
    plot->line_count++;
}

static void plot_wanted(const struct tool_run *run, const struct wanted_plot *wanted, struct buffers *b,
                        FILE *out)
{
    struct tool_plot plot = plot_of(run, b, wanted->title, wanted->unit);
    for (uint32_t l = 0; l < sizeof(wanted->lines) / sizeof(*wanted->lines); l++) {
        const struct wanted_line *line = &wanted->lines[l];
        const int counter = line->counter != NULL ? tool_run_counter(run, line->counter) : -1;
        if (counter < 0)
            continue;
        for (uint32_t bin = 0; bin < run->bin_count; bin++)
            b->values[plot.line_count][bin] =
                line->scale * (line->is_level ? tool_run_value(run, counter, -1, bin)
                                              : tool_run_rate(run, counter, -1, bin));
        if (!line->is_level)
            b->values[plot.line_count][0] = NAN;
        add_line(&plot, b, line->name);
    }
    if (plot.line_count > 0)
        tool_plot_lines(&plot, out);
}

static void plot_busy(const struct tool_run *run, struct buffers *b, FILE *out)
{
    struct tool_plot plot = plot_of(run, b, "Busy share of each core", TOOL_UNIT_SHARE);
    const int busy = tool_run_counter(run, "core.busy_ppm");
    for (uint32_t core = 0; core < run->core_count && plot.line_count < TOOL_LINES_MAX && busy >= 0; core++) {
        char name[128];
        const char *node = json_string_value(json_array_get(json_object_get(run->header, "nodes"), core));
        for (uint32_t bin = 0; bin < run->bin_count; bin++)
            b->values[plot.line_count][bin] = run->cores[core] == NULL || run->cores[core]->away[bin]
                                                  ? NAN
                                                  : tool_run_value(run, busy, (int)core, bin) / 1e6;
        (void)snprintf(name, sizeof(name), "%s%score %u", node != NULL ? node : "",
                       node != NULL && node[0] != '\0' ? ": " : "", core);
        add_line(&plot, b, name);
    }
    if (plot.line_count > 0)
        tool_plot_lines(&plot, out);
}

/* Where a loop's cycles went: every counter phase.* of all cores, as a share of their sum. */
static void plot_phases(const struct tool_run *run, struct buffers *b, FILE *out)
{
    struct tool_plot plot = plot_of(run, b, "Where the cores' cycles go", TOOL_UNIT_SHARE);
    static double sum[TOOL_RUN_BINS];
    memset(sum, 0, sizeof(sum));
    for (uint32_t n = 0; n < run->name_count; n++) {
        if (run->names[n] == NULL || strncmp(run->names[n], "phase.", 6) != 0 ||
            plot.line_count == TOOL_LINES_MAX)
            continue;
        for (uint32_t bin = 0; bin < run->bin_count; bin++) {
            b->values[plot.line_count][bin] = tool_run_rate(run, (int)n, -1, bin);
            sum[bin] += b->values[plot.line_count][bin];
        }
        add_line(&plot, b, run->names[n] + 6);
    }
    for (uint32_t l = 0; l < plot.line_count; l++) {
        double share = NAN; /* stays for as long as a core may take to count again */
        uint64_t age_ms = 0;
        for (uint32_t bin = 0; bin < run->bin_count; bin++) {
            age_ms = sum[bin] > 0 ? 0 : age_ms + run->step_ms;
            if (sum[bin] > 0)
                share = b->values[l][bin] / sum[bin];
            b->values[l][bin] = age_ms <= PHASES_EVERY_MS ? share : NAN;
        }
    }
    if (plot.line_count > 0)
        tool_plot_lines(&plot, out);
}

/* What the processor counted for each key that was looked up or pushed. */
static void plot_per_key(const struct tool_run *run, struct buffers *b, FILE *out)
{
    static const char *const counters[] = {"cpu.cache_misses", "cpu.dtlb_misses", "cpu.branch_misses"};
    static const char *const names[] = {"cache misses", "TLB misses", "branch misses"};
    struct tool_plot plot = plot_of(run, b, "Misses for each key", TOOL_UNIT_COUNT);
    const int looked_up = tool_run_counter(run, "table.keys_looked_up");
    const int pushed = tool_run_counter(run, "table.keys_pushed");
    for (uint32_t i = 0; i < sizeof(counters) / sizeof(*counters); i++) {
        const int counter = tool_run_counter(run, counters[i]);
        bool counts = false;
        for (uint32_t bin = 0; counter >= 0 && bin < run->bin_count; bin++)
            counts |= tool_run_rate(run, counter, -1, bin) > 0;
        if (!counts)
            continue;
        for (uint32_t bin = 0; bin < run->bin_count; bin++) {
            const double keys = tool_run_rate(run, looked_up, -1, bin) + tool_run_rate(run, pushed, -1, bin);
            b->values[plot.line_count][bin] = keys > 0 ? tool_run_rate(run, counter, -1, bin) / keys : NAN;
        }
        add_line(&plot, b, names[i]);
    }
    if (plot.line_count > 0)
        tool_plot_lines(&plot, out);
    else
        (void)fprintf(out, "<figure><figcaption>Misses for each key</figcaption><p>The server's processor "
                           "counts no misses, or does not let it see them, as on most virtual "
                           "machines.</p></figure>\n");
}

/* ---- plots of latencies ---- */

/* Calls of whoever watches, this program among them. */
static bool is_watching(const char *op)
{
    static const char *const ops[] = {"stats",     "latency", "recent_calls", "heartbeat",
                                      "node_info", "memory",  "list",         "annotate"};
    for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
        if (strcmp(op, ops[i]) == 0)
            return true;
    return false;
}

/* Of the operations whose calls were worked on longest, all together. */
static uint32_t busiest(const struct tool_run *run, const struct tool_run_latency *out[PLOT_OPS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run->latency_count; i++) {
        const struct tool_run_latency *l = run->latencies[i];
        uint32_t at = count;
        if (strcmp(l->phase, "work") != 0 || l->whole.count == 0 || is_watching(l->op))
            continue;
        for (; at > 0 && out[at - 1]->whole.sum_ns < l->whole.sum_ns; at--)
            if (at < PLOT_OPS_MAX)
                out[at] = out[at - 1];
        if (at < PLOT_OPS_MAX)
            out[at] = l;
        count += count < PLOT_OPS_MAX;
    }
    return count;
}

static void plot_percentiles(const struct tool_run *run, const struct tool_run_latency *l, struct buffers *b,
                             FILE *out)
{
    static const double shares[] = {0.5, 0.99, 0.999};
    static const char *const names[] = {"p50", "p99", "p99.9"};
    char title[96];
    (void)snprintf(title, sizeof(title), "%s: %s of a call", l->op, l->phase);
    struct tool_plot plot = plot_of(run, b, title, TOOL_UNIT_NS);
    for (uint32_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
        double known = NAN; /* calls are counted once a second; what lies between is as before */
        for (uint32_t bin = 0; bin < run->bin_count; bin++) {
            const double now = tool_run_percentile_ns(l, bin, shares[i]);
            known = isfinite(now) ? now : known;
            b->values[plot.line_count][bin] = known;
        }
        add_line(&plot, b, names[i]);
    }
    tool_plot_lines(&plot, out);
}

static void plot_heat(const struct tool_run *run, const struct tool_run_latency *l, FILE *out)
{
    static double low_ns[TOOL_RUN_ROWS + 1];
    const uint64_t second = run->step_ms >= 1000 ? 1 : 1000 / run->step_ms; /* in bins: calls come so often */
    const uint64_t least = (run->bin_count + MAP_COLUMNS - 1) / MAP_COLUMNS;
    const uint32_t width = (uint32_t)(second > least ? second : least);
    const uint32_t columns = (run->bin_count + width - 1) / width;
    uint32_t *counts = calloc((size_t)columns * TOOL_RUN_ROWS, sizeof(*counts));
    char title[96];
    if (counts == NULL)
        return;
    for (uint32_t row = 0; row <= TOOL_RUN_ROWS; row++)
        low_ns[row] = (double)mr_histogram_low_ns(row * TOOL_RUN_ROW_WIDTH);
    for (uint32_t bin = 0; bin < run->bin_count; bin++)
        for (uint32_t row = 0; row < TOOL_RUN_ROWS; row++)
            counts[bin / width * TOOL_RUN_ROWS + row] += l->rows[bin][row];
    (void)snprintf(title, sizeof(title), "%s: how many calls took how long (%s)", l->op, l->phase);
    const struct tool_map map = {.title = title,
                                 .seconds = (double)(run->bin_count * run->step_ms) / 1e3,
                                 .columns = columns,
                                 .rows = TOOL_RUN_ROWS,
                                 .counts = counts,
                                 .low_ns = low_ns};
    tool_plot_map(&map, out);
    free(counts);
}

/* ---- tables ---- */

static void cell(double value, enum tool_unit unit, FILE *out)
{
    char text[24];
    tool_quantity(value, unit, text);
    (void)fprintf(out, "<td>%s</td>", text);
}

static void latency_table(const struct tool_run *run, FILE *out)
{
    (void)fprintf(out, "<div class=\"wide\"><table><tr><th>operation</th><th>phase</th><th>calls</th>"
                       "<th>mean</th><th>p50</th><th>p99</th><th>p99.9</th><th>max</th></tr>\n");
    for (uint32_t i = 0; i < run->latency_count; i++) {
        const struct tool_run_latency *l = run->latencies[i];
        if (l->whole.count == 0)
            continue;
        (void)fprintf(out, "<tr><td>");
        tool_html_text(l->op, out);
        (void)fprintf(out, "</td><td>");
        tool_html_text(l->phase, out);
        (void)fprintf(out, "</td>");
        cell((double)l->whole.count, TOOL_UNIT_COUNT, out);
        cell(mr_histogram_mean_ns(&l->whole), TOOL_UNIT_NS, out);
        cell((double)mr_histogram_percentile_ns(&l->whole, 0.5), TOOL_UNIT_NS, out);
        cell((double)mr_histogram_percentile_ns(&l->whole, 0.99), TOOL_UNIT_NS, out);
        cell((double)mr_histogram_percentile_ns(&l->whole, 0.999), TOOL_UNIT_NS, out);
        cell((double)l->whole.max_ns, TOOL_UNIT_NS, out);
        (void)fprintf(out, "</tr>\n");
    }
    (void)fprintf(out, "</table></div>\n");
}

static void change_table(const struct tool_run *before, const struct tool_run *after, FILE *out)
{
    static struct tool_run_changes changes;
    tool_run_changes(before, after, &changes);
    (void)fprintf(out, "<h2>What changed most</h2><div class=\"wide\"><table><tr><th>figure</th>"
                       "<th>before</th><th>after</th><th>ratio</th></tr>\n");
    for (uint32_t i = 0; i < changes.count && i < CHANGES_MAX; i++) {
        (void)fprintf(out, "<tr><td>");
        tool_html_text(changes.list[i].before->name, out);
        (void)fprintf(out, "</td>");
        cell(changes.list[i].before->value, changes.list[i].before->unit, out);
        cell(changes.list[i].after->value, changes.list[i].after->unit, out);
        if (isfinite(changes.list[i].ratio))
            (void)fprintf(out, "<td>%.3g</td></tr>\n", changes.list[i].ratio);
        else
            (void)fprintf(out, "<td>new</td></tr>\n");
    }
    (void)fprintf(out, "</table></div>\n");
}

static void fact_row(void *arg, const char *node, const char *name, const char *before, const char *after)
{
    const char *const cells[] = {node, name, before, after};
    FILE *out = arg;
    (void)fprintf(out, "<tr>");
    for (size_t i = 0; i < sizeof(cells) / sizeof(*cells); i++) {
        (void)fprintf(out, "<td>");
        tool_html_text(cells[i], out);
        (void)fprintf(out, "</td>");
    }
    (void)fprintf(out, "</tr>\n");
}

static void fact_table(const struct tool_run *before, const struct tool_run *after, FILE *out)
{
    (void)fprintf(
        out, "<h2>What else differs</h2><div class=\"wide\"><table><tr><th>node</th><th>of its configuration "
             "or machine</th><th>before</th><th>after</th></tr>\n");
    if (tool_run_facts_differ(before, after, fact_row, out) == 0)
        (void)fprintf(out, "<tr><td>nothing</td></tr>\n");
    (void)fprintf(out, "</table></div>\n");
}

static void header_line(const struct tool_run *run, FILE *out)
{
    static const char *const members[] = {"server", "started", "millrace", "host", "kernel", "processor"};
    (void)fprintf(out, "<p>%.1f s, %u core%s", (double)run->end_ms / 1e3, run->core_count,
                  run->core_count == 1 ? "" : "s");
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        const char *text = json_string_value(json_object_get(run->header, members[i]));
        if (text == NULL)
            continue;
        (void)fprintf(out, "; %s ", members[i]);
        tool_html_text(text, out);
    }
    (void)fprintf(out, "</p>\n");
}

static void annotation_list(const struct tool_run *run, FILE *out)
{
    if (run->annotation_count == 0)
        return;
    (void)fprintf(out,
                  "<h2>Annotations</h2><div class=\"wide\"><table><tr><th>annotation</th><th>at</th></tr>\n");
    for (uint32_t i = 0; i < run->annotation_count; i++) {
        (void)fprintf(out, "<tr><td>");
        tool_html_text(run->annotations[i].text, out);
        (void)fprintf(out, "</td><td>%.1f s</td></tr>\n", (double)run->annotations[i].time_ms / 1e3);
    }
    (void)fprintf(out, "</table></div>\n");
}

static void one_run(const struct tool_run *run, const char *path, struct buffers *b, FILE *out)
{
    const struct tool_run_latency *ops[PLOT_OPS_MAX];
    const uint32_t op_count = busiest(run, ops);
    (void)fprintf(out, "<section><h1>");
    tool_html_text(path, out);
    (void)fprintf(out, "</h1>\n");
    header_line(run, out);
    (void)fprintf(out, "<div class=\"plots\">\n");
    for (size_t i = 0; i < sizeof(wanted_plots) / sizeof(*wanted_plots); i++)
        plot_wanted(run, &wanted_plots[i], b, out);
    plot_busy(run, b, out);
    plot_phases(run, b, out);
    plot_per_key(run, b, out);
    for (uint32_t i = 0; i < op_count; i++) {
        plot_heat(run, ops[i], out);
        plot_percentiles(run, ops[i], b, out);
    }
    (void)fprintf(out, "</div>\n<h2>Latency on the server</h2>\n");
    latency_table(run, out);
    tool_slow_html(run, out);
    annotation_list(run, out);
    tool_run_facts_html(run, out);
    (void)fprintf(out, "</section>\n");
}

void tool_report_html(const struct tool_run *run, const char *path, const struct tool_run *other,
                      const char *other_path, FILE *out)
{
    struct buffers *b = calloc(1, sizeof(*b));
    if (b == NULL)
        return;
    (void)fputs(head, out);
    if (other != NULL) {
        change_table(run, other, out);
        fact_table(run, other, out);
        (void)fprintf(out, "<div class=\"two\">\n");
    }
    one_run(run, path, b, out);
    if (other != NULL) {
        one_run(other, other_path, b, out);
        (void)fprintf(out, "</div>\n");
    }
    (void)fprintf(out, "</body></html>\n");
    free(b);
}
