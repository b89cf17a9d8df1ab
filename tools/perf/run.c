#include "tools/perf/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tools/perf/run_file.h"

/* ---- bins ---- */

/* Two bins become one: of counters the later value, of calls the sum. */
static void halve(struct tool_run *run)
{
    for (uint32_t c = 0; c < run->core_count; c++) {
        struct tool_run_core *core = run->cores[c];
        for (uint32_t bin = 0; core != NULL && bin < TOOL_RUN_BINS / 2; bin++) {
            for (uint32_t n = 0; n < run->name_count; n++)
                if (core->values[n] != NULL)
                    core->values[n][bin] = core->values[n][2 * bin + 1];
            core->away[bin] = core->away[2 * bin] || core->away[2 * bin + 1];
        }
        if (core != NULL)
            memset(core->away + TOOL_RUN_BINS / 2, 0, TOOL_RUN_BINS / 2 * sizeof(*core->away));
    }
    for (uint32_t i = 0; i < run->latency_count; i++) {
        struct tool_run_latency *l = run->latencies[i];
        for (uint32_t bin = 0; bin < TOOL_RUN_BINS / 2; bin++)
            for (uint32_t row = 0; row < TOOL_RUN_ROWS; row++)
                l->rows[bin][row] = l->rows[2 * bin][row] + l->rows[2 * bin + 1][row];
        memset(l->rows + TOOL_RUN_BINS / 2, 0, TOOL_RUN_BINS / 2 * sizeof(*l->rows));
    }
    run->bin_count = (run->bin_count + 1) / 2;
    run->step_ms *= 2;
}

/* Carries the counters of all cores on to the end of that bin. */
static void fill_up_to(struct tool_run *run, uint32_t bin)
{
    for (; run->bin_count <= bin; run->bin_count++) {
        if (run->bin_count == 0)
            continue;
        for (uint32_t c = 0; c < run->core_count; c++)
            for (uint32_t n = 0; run->cores[c] != NULL && n < run->name_count; n++)
                if (run->cores[c]->values[n] != NULL)
                    run->cores[c]->values[n][run->bin_count] = run->cores[c]->now[n];
    }
}

static uint32_t bin_at(struct tool_run *run, uint64_t time_ms)
{
    while (time_ms / run->step_ms >= TOOL_RUN_BINS) {
        fill_up_to(run, TOOL_RUN_BINS - 1);
        halve(run);
    }
    const uint32_t bin = (uint32_t)(time_ms / run->step_ms);
    fill_up_to(run, bin);
    if (time_ms > run->end_ms)
        run->end_ms = time_ms;
    return bin;
}

/* ---- lines ---- */

static struct tool_run_core *core_of(struct tool_run *run, json_int_t c)
{
    if (c < 0 || c >= (json_int_t)TOOL_RUN_CORES_MAX)
        return NULL;
    if (run->cores[c] == NULL) {
        struct tool_run_core *core = calloc(1, sizeof(*core));
        bool *away = calloc(TOOL_RUN_BINS, sizeof(*away));
        if (core == NULL || away == NULL) {
            free(core);
            free(away);
            return NULL;
        }
        core->away = away;
        run->cores[c] = core;
    }
    if (run->core_count <= (uint32_t)c)
        run->core_count = (uint32_t)c + 1;
    return run->cores[c];
}

static void take_name(struct tool_run *run, const json_t *line)
{
    const json_int_t n = json_integer_value(json_object_get(line, "name"));
    const char *is = json_string_value(json_object_get(line, "is"));
    if (is == NULL || n < 0 || n >= (json_int_t)TOOL_RUN_NAMES_MAX || run->names[n] != NULL)
        return;
    run->names[n] = strdup(is);
    if (run->names[n] != NULL && run->name_count <= (uint32_t)n)
        run->name_count = (uint32_t)n + 1;
}

/* `values`: pairs of a counter and by how much it rose. */
static void take_values(struct tool_run *run, struct tool_run_core *core, const int64_t *values,
                        uint32_t count, uint32_t bin)
{
    for (uint32_t i = 0; i + 1 < count; i += 2) {
        const int64_t n = values[i];
        if (n < 0 || n >= (int64_t)run->name_count)
            continue;
        if (core->values[n] == NULL)
            core->values[n] = calloc(TOOL_RUN_BINS, sizeof(*core->values[n]));
        if (core->values[n] == NULL)
            continue;
        core->now[n] += values[i + 1];
        core->values[n][bin] = core->now[n];
        for (uint32_t before = 0; !core->seen && before < bin; before++)
            core->values[n][before] = core->now[n]; /* it has not risen in the run */
    }
    core->seen = true;
}

static void take_counters(struct tool_run *run, struct tool_run_core *core, const json_t *pairs, uint32_t bin)
{
    int64_t values[2 * TOOL_RUN_NAMES_MAX];
    uint32_t count = 0;
    while (count < json_array_size(pairs) && count < 2 * TOOL_RUN_NAMES_MAX) {
        values[count] = json_integer_value(json_array_get(pairs, count));
        count++;
    }
    take_values(run, core, values, count, bin);
}

static bool take_counter_line(void *arg, uint64_t time_ms, uint32_t core, const int64_t *values,
                              uint32_t count)
{
    struct tool_run *run = arg;
    struct tool_run_core *c = core_of(run, core);
    const uint32_t bin = bin_at(run, time_ms);
    if (c != NULL)
        take_values(run, c, values, count, bin);
    return true;
}

static struct tool_run_latency *latency_of(struct tool_run *run, const char *op, const char *phase)
{
    for (uint32_t i = 0; i < run->latency_count; i++)
        if (strcmp(run->latencies[i]->op, op) == 0 && strcmp(run->latencies[i]->phase, phase) == 0)
            return run->latencies[i];
    struct tool_run_latency *l = run->latency_count < TOOL_RUN_LATENCIES_MAX ? calloc(1, sizeof(*l)) : NULL;
    if (l == NULL)
        return NULL;
    l->rows = calloc(TOOL_RUN_BINS, sizeof(*l->rows));
    if (l->rows == NULL) {
        free(l);
        return NULL;
    }
    (void)snprintf(l->op, sizeof(l->op), "%s", op);
    (void)snprintf(l->phase, sizeof(l->phase), "%s", phase);
    run->latencies[run->latency_count++] = l;
    return l;
}

static void take_latency(struct tool_run *run, const json_t *line, uint32_t bin)
{
    const char *op = json_string_value(json_object_get(line, "op"));
    const char *phase = json_string_value(json_object_get(line, "phase"));
    const json_t *pairs = json_object_get(line, "b");
    struct tool_run_latency *l = op != NULL && phase != NULL ? latency_of(run, op, phase) : NULL;
    if (l == NULL)
        return;
    const uint64_t max_ns = (uint64_t)json_integer_value(json_object_get(line, "max"));
    l->whole.sum_ns += (uint64_t)json_integer_value(json_object_get(line, "sum"));
    if (max_ns > l->whole.max_ns)
        l->whole.max_ns = max_ns;
    for (size_t i = 0; i + 1 < json_array_size(pairs); i += 2) {
        const json_int_t bucket = json_integer_value(json_array_get(pairs, i));
        const json_int_t count = json_integer_value(json_array_get(pairs, i + 1));
        if (bucket < 0 || bucket >= MR_HISTOGRAM_BUCKETS || count <= 0)
            continue;
        l->whole.buckets[bucket] += (uint64_t)count;
        l->whole.count += (uint64_t)count;
        l->rows[bin][(uint32_t)bucket / TOOL_RUN_ROW_WIDTH] += (uint32_t)count;
    }
}

static void take_annotation(struct tool_run *run, const char *text, uint64_t time_ms)
{
    char *copy = run->annotation_count < TOOL_RUN_ANNOTATIONS_MAX ? strdup(text) : NULL;
    if (copy != NULL)
        run->annotations[run->annotation_count++] = (struct tool_run_annotation){time_ms, copy};
}

static bool take_line(void *arg, const json_t *line)
{
    struct tool_run *run = arg;
    if (run->header == NULL) {
        const json_int_t interval_ms = json_integer_value(json_object_get(line, "interval_ms"));
        run->header = json_deep_copy(line);
        run->interval_ms = interval_ms > 0 && interval_ms <= 3600000 ? (uint64_t)interval_ms : 100;
        run->step_ms = run->interval_ms;
        const json_int_t slow_ns = json_integer_value(json_object_get(line, "on_slow_ns"));
        run->calls.slow_ns = slow_ns > 0 ? (uint64_t)slow_ns : 0;
        return run->header != NULL;
    }
    if (json_object_get(line, "name") != NULL) {
        take_name(run, line);
        return true;
    }
    const json_t *t = json_object_get(line, "t");
    if (!json_is_integer(t) || json_integer_value(t) < 0)
        return true;
    const uint64_t time_ms = (uint64_t)json_integer_value(t);
    const json_t *said = json_object_get(line, "annotation");
    const char *annotation =
        json_string_value(said != NULL ? said : json_object_get(line, "mark")); /* before 0.4.0 */
    struct tool_run_core *core = json_object_get(line, "c") != NULL
                                     ? core_of(run, json_integer_value(json_object_get(line, "c")))
                                     : NULL;
    const uint32_t bin = bin_at(run, time_ms);
    if (annotation != NULL)
        take_annotation(run, annotation, time_ms);
    else if (core != NULL &&
             tool_run_calls_take(&run->calls, (uint32_t)json_integer_value(json_object_get(line, "c")),
                                 time_ms, line))
        return true;
    else if (core != NULL && json_object_get(line, "op") != NULL)
        take_latency(run, line, bin);
    else if (core != NULL && json_is_true(json_object_get(line, "away")))
        core->away[bin] = true;
    else if (core != NULL)
        take_counters(run, core, json_object_get(line, "v"), bin);
    return true;
}

struct tool_run *tool_run_load(const char *path, char *error, size_t error_bytes)
{
    struct tool_run *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        (void)snprintf(error, error_bytes, "no memory for a run");
        return NULL;
    }
    static const struct tool_run_visitor visitor = {.line = take_line, .counters = take_counter_line};
    if (!tool_run_read(path, &visitor, run, error, error_bytes)) {
        tool_run_free(run);
        return NULL;
    }
    if (run->bin_count < 2) {
        (void)snprintf(error, error_bytes, "%s has %u samples; a report needs two", path, run->bin_count);
        tool_run_free(run);
        return NULL;
    }
    tool_run_calls_end(&run->calls, run->end_ms);
    return run;
}

void tool_run_free(struct tool_run *run)
{
    for (uint32_t c = 0; c < run->core_count; c++) {
        if (run->cores[c] == NULL)
            continue;
        for (uint32_t n = 0; n < run->name_count; n++)
            free(run->cores[c]->values[n]);
        free(run->cores[c]->away);
        free(run->cores[c]);
    }
    for (uint32_t n = 0; n < run->name_count; n++)
        free(run->names[n]);
    for (uint32_t i = 0; i < run->latency_count; i++) {
        free(run->latencies[i]->rows);
        free(run->latencies[i]);
    }
    for (uint32_t i = 0; i < run->annotation_count; i++)
        free(run->annotations[i].text);
    tool_run_calls_free(&run->calls);
    json_decref(run->header);
    free(run);
}

/* ---- what reports read ---- */

int tool_run_counter(const struct tool_run *run, const char *name)
{
    for (uint32_t n = 0; n < run->name_count; n++)
        if (run->names[n] != NULL && strcmp(run->names[n], name) == 0)
            return (int)n;
    return -1;
}

double tool_run_bin_s(const struct tool_run *run, uint32_t bin)
{
    const uint64_t begin_ms = bin * run->step_ms;
    const uint64_t whole_ms = run->step_ms, left_ms = run->end_ms + run->interval_ms - begin_ms;
    return (double)(left_ms < whole_ms ? left_ms : whole_ms) / 1e3;
}

double tool_run_value(const struct tool_run *run, int counter, int core, uint32_t bin)
{
    double sum = 0;
    for (uint32_t c = 0; counter >= 0 && c < run->core_count; c++)
        if ((core < 0 || (uint32_t)core == c) && run->cores[c] != NULL &&
            run->cores[c]->values[counter] != NULL)
            sum += (double)run->cores[c]->values[counter][bin];
    return sum;
}

static double rise(const struct tool_run *run, int counter, int core, uint32_t from, uint32_t to)
{
    const double by = tool_run_value(run, counter, core, to) - tool_run_value(run, counter, core, from);
    return by > 0 ? by : 0;
}

double tool_run_rate(const struct tool_run *run, int counter, int core, uint32_t bin)
{
    return bin == 0 ? 0 : rise(run, counter, core, bin - 1, bin) / tool_run_bin_s(run, bin);
}

double tool_run_rise(const struct tool_run *run, int counter, int core)
{
    double sum = 0;
    for (uint32_t bin = 1; bin < run->bin_count; bin++)
        sum += rise(run, counter, core, bin - 1, bin);
    return sum;
}

double tool_run_seconds(const struct tool_run *run)
{
    double sum = 0;
    for (uint32_t bin = 1; bin < run->bin_count; bin++)
        sum += tool_run_bin_s(run, bin);
    return sum;
}

double tool_run_percentile_ns(const struct tool_run_latency *l, uint32_t bin, double share)
{
    uint64_t count = 0, below = 0;
    for (uint32_t row = 0; row < TOOL_RUN_ROWS; row++)
        count += l->rows[bin][row];
    for (uint32_t row = 0; row < TOOL_RUN_ROWS && count > 0; row++) {
        below += l->rows[bin][row];
        if (below > 0 && (double)below >= share * (double)count) {
            const double low = (double)mr_histogram_low_ns(row * TOOL_RUN_ROW_WIDTH);
            return (low + (double)mr_histogram_low_ns((row + 1) * TOOL_RUN_ROW_WIDTH)) / 2;
        }
    }
    return NAN;
}
