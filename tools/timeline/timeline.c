/* millrace timeline: one timeline of a training, from the traces of its hub, trainers and servers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/base/cli.h"
#include "tools/commands.h"
#include "tools/timeline/division.h"
#include "tools/timeline/traces.h"

#define FILES_MAX 256u

static const char command[] = "millrace timeline";

static int write_file(const struct tool_traces *t, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return cli_fail(command, "cannot create %s: %s", path, strerror(errno));
    const bool good = tool_traces_write(t, file);
    if (fclose(file) != 0 || !good)
        return cli_fail(command, "cannot write %s: %s", path, strerror(errno));
    return 0;
}

static uint64_t worst_error_ns(const struct tool_traces *t)
{
    uint64_t worst_ns = 0;
    for (uint32_t i = 0; i < t->process_count; i++)
        worst_ns = t->processes[i].error_ns > worst_ns ? t->processes[i].error_ns : worst_ns;
    return worst_ns;
}

/* What a reader has to know of the files, on standard error. */
static void timeline_tell(const struct tool_traces *t)
{
    (void)fprintf(stderr, "%s: clocks agree to %.1f us\n", command, (double)worst_error_ns(t) / 1e3);
    for (uint32_t i = 0; i < t->process_count; i++) {
        const struct tool_process *p = &t->processes[i];
        if (p->clock == 0)
            (void)fprintf(stderr, "%s: %s does not say which clock it reads; taken for the first file's\n",
                          command, p->title);
        if (p->spans_left_out > 0)
            (void)fprintf(stderr, "%s: %s has left out its last %llu spans\n", command, p->title,
                          (unsigned long long)p->spans_left_out);
    }
}

static double percent(int64_t part_ns, int64_t total_ns)
{
    return total_ns > 0 ? 100.0 * (double)part_ns / (double)total_ns : 0;
}

static void print_division(const struct tool_traces *t, const struct tool_division *d)
{
    const char *title = t->processes[d->process].title;
    const double batches = d->batches > 0 ? (double)d->batches : 1;
    const int64_t waits_ns = tool_waits_ns(d);
    const enum tool_part largest = tool_largest_wait(d);
    printf("%s: %llu batches in %.3f s\n%-30s %14s %8s\n", title, (unsigned long long)d->batches,
           (double)d->total_ns / 1e9, "", "us per batch", "share");
    for (int i = 0; i < TOOL_PART_COUNT; i++)
        printf("%-30s %14.1f %6.1f %%\n", tool_part_text((enum tool_part)i),
               (double)d->parts_ns[i] / 1e3 / batches, percent(d->parts_ns[i], d->total_ns));
    if (largest == TOOL_PART_COMPUTE)
        printf("why your GPU waits: it does not\n\n");
    else
        printf("why your GPU waits: %.0f %% of the time it does, most of it for: %s (%.0f %%)\n\n",
               percent(waits_ns, d->total_ns), tool_part_text(largest),
               percent(d->parts_ns[largest], d->total_ns));
}

static int summarize(const struct tool_traces *t, bool json)
{
    json_t *trainers = json_array();
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->process_count; i++) {
        struct tool_division d;
        if (!tool_is_trainer(&t->processes[i]))
            continue;
        if (!tool_divide(t, i, &d)) {
            json_decref(trainers);
            return cli_fail(command, "no memory for the summary");
        }
        count++;
        if (json)
            (void)json_array_append_new(trainers, tool_division_json(t, &d));
        else
            print_division(t, &d);
    }
    if (json)
        return tool_print_json(command, json_pack("{s:f, s:o}", "clock_error_s",
                                                  (double)worst_error_ns(t) / 1e9, "trainers", trainers));
    json_decref(trainers);
    if (count == 0)
        printf("no trace of a trainer among the files: there is nothing to divide\n");
    return 0;
}

int tool_timeline(int argc, char **argv)
{
    const char *output = NULL, *paths[FILES_MAX];
    bool json = false;
    const struct cli_option options[] = {
        {"output", CLI_STRING, &output, "FILE",
         "write one timeline of all, which https://ui.perfetto.dev opens"},
        {"json", CLI_FLAG, &json, NULL, "print the summary as one JSON value"},
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options] TRACE.json...",
        .summary =
            "Joins the traces of a training's hub, trainers and servers, also of several machines, puts\n"
            "them on one clock, and prints what each trainer waits for. The programs write traces when\n"
            "they end: millraced --set node.trace=FILE, millrace-hub --trace FILE, fm train --trace FILE,\n"
            "millrace.Trace in Python.\n"
            "\n"
            "  millrace timeline --output run.json server.json hub.json trainer.json",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = FILES_MAX,
    };
    const uint32_t count = cli_parse(&usage, argc, argv, paths);
    struct tool_traces traces;
    char error[512];
    if (!tool_traces_load(paths, count, &traces, error, sizeof(error)))
        return cli_fail(command, "%s", error);
    timeline_tell(&traces);
    int exit_code = output != NULL ? write_file(&traces, output) : 0;
    if (exit_code == 0)
        exit_code = summarize(&traces, json);
    tool_traces_free(&traces);
    return exit_code;
}
