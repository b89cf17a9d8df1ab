/* millrace perf report: what a recorded run shows. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/printable.h"
#include "tools/commands.h"
#include "tools/perf/perf.h"
#include "tools/perf/report_html.h"
#include "tools/perf/run.h"
#include "tools/perf/run_facts.h"
#include "tools/perf/run_summary.h"

#define CHANGES_SHOWN 20u

static const char command[] = "millrace perf report";

struct report {
    const char *html;
    bool csv, json, compare;
    const char *paths[2];
    struct tool_run *runs[2];
};

static void print_fact(void *arg, const char *node, const char *name, const char *before, const char *after)
{
    char line[MR_PRINTABLE_BYTES_MAX];
    (void)arg;
    (void)snprintf(line, sizeof(line), "%s%s%s: %s -> %s", node, node[0] != '\0' ? " " : "", name,
                   before[0] != '\0' ? before : "(none)", after[0] != '\0' ? after : "(none)");
    puts(mr_make_printable(line, sizeof(line)));
}

static void print_changes(const struct tool_run *before, const struct tool_run *after)
{
    static struct tool_run_changes changes;
    char old[24], now[24];
    tool_run_changes(before, after, &changes);
    printf("\nwhat changed most:\n%-40s %12s %12s %8s\n", "", "before", "after", "ratio");
    for (uint32_t i = 0; i < changes.count && i < CHANGES_SHOWN; i++) {
        tool_quantity(changes.list[i].before->value, changes.list[i].before->unit, old);
        tool_quantity(changes.list[i].after->value, changes.list[i].after->unit, now);
        char name[64];
        (void)mr_printable(name, sizeof(name), changes.list[i].before->name,
                           strlen(changes.list[i].before->name));
        printf("%-40s %12s %12s", name, old, now);
        if (isfinite(changes.list[i].ratio))
            printf(" %8.3g\n", changes.list[i].ratio);
        else
            printf(" %8s\n", "new");
    }
    printf("\nwhat else differs, of configuration and machine:\n");
    if (tool_run_facts_differ(before, after, print_fact, NULL) == 0)
        printf("nothing\n");
}

static void add_fact(void *arg, const char *node, const char *name, const char *before, const char *after)
{
    (void)json_array_append_new(
        arg, json_pack("{s:s, s:s, s:s, s:s}", "node", node, "name", name, "before", before, "after", after));
}

static json_t *changes_json(const struct tool_run *before, const struct tool_run *after)
{
    static struct tool_run_changes changes;
    json_t *list = json_array();
    tool_run_changes(before, after, &changes);
    for (uint32_t i = 0; i < changes.count; i++)
        (void)json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "name", changes.list[i].before->name,
                                                    "before", changes.list[i].before->value, "after",
                                                    changes.list[i].after->value));
    json_t *facts = json_array();
    (void)tool_run_facts_differ(before, after, add_fact, facts);
    return json_pack("{s:o, s:o, s:o, s:o}", "before", tool_run_json(before), "after", tool_run_json(after),
                     "changes", list, "facts", facts);
}

static int write_html(const struct report *r)
{
    FILE *out = fopen(r->html, "we");
    if (out == NULL)
        return cli_fail(command, "cannot write %s: %s", r->html, strerror(errno));
    tool_report_html(r->runs[0], r->paths[0], r->runs[1], r->paths[1], out);
    const bool good = ferror(out) == 0;
    if (fclose(out) != 0 || !good)
        return cli_fail(command, "cannot write %s: %s", r->html, strerror(errno));
    return 0;
}

static int perf_report_print(const struct report *r)
{
    if (r->json)
        return tool_print_json(command, r->runs[1] != NULL ? changes_json(r->runs[0], r->runs[1])
                                                           : tool_run_json(r->runs[0]));
    if (r->csv) {
        tool_run_csv(r->runs[0], stdout);
        return 0;
    }
    for (int i = 0; i < 2 && r->runs[i] != NULL; i++) {
        if (i > 0)
            printf("\n");
        tool_run_print(r->runs[i], r->paths[i], stdout);
    }
    if (r->runs[1] != NULL)
        print_changes(r->runs[0], r->runs[1]);
    printf("\n%s has the plots: open it in a browser\n", r->html);
    return 0;
}

static int report(struct report *r, uint32_t count)
{
    char error[512];
    int exit_code = 0;
    for (uint32_t i = 0; i < count && exit_code == 0; i++) {
        r->runs[i] = tool_run_load(r->paths[i], error, sizeof(error));
        if (r->runs[i] == NULL)
            exit_code = cli_fail(command, "%s", error);
    }
    if (exit_code == 0 && r->html != NULL)
        exit_code = write_html(r);
    if (exit_code == 0)
        exit_code = perf_report_print(r);
    for (uint32_t i = 0; i < count; i++)
        if (r->runs[i] != NULL)
            tool_run_free(r->runs[i]);
    return exit_code;
}

/* Returns "run.html" for "run.mrp"; the caller frees it. */
static char *html_beside(const char *path)
{
    const size_t bytes = strlen(path),
                 end = bytes > 4 && strcmp(path + bytes - 4, ".mrp") == 0 ? bytes - 4 : bytes;
    char *html = malloc(end + sizeof(".html"));
    if (html != NULL) {
        memcpy(html, path, end);
        memcpy(html + end, ".html", sizeof(".html"));
    }
    return html;
}

int tool_perf_report(int argc, char **argv)
{
    struct report r = {0};
    const struct cli_option options[] = {
        {"output", CLI_STRING, &r.html, "FILE", "the HTML file; default: the run's name with .html"},
        {"compare", CLI_FLAG, &r.compare, NULL, "show two runs side by side, and what changed most"},
        {"csv", CLI_FLAG, &r.csv, NULL, "print every counter over time instead, as CSV; no HTML file"},
        {"json", CLI_FLAG, &r.json, NULL, "print the figures as one JSON value instead; no HTML file"},
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options] RUN.mrp, or --compare BEFORE.mrp AFTER.mrp",
        .summary = "Prints what a recorded run comes to, and writes one HTML file with plots: throughput,\n"
                   "latency, busy share and phases of the cores, memory, losses and checkpoints. It needs\n"
                   "nothing from the network.\n"
                   "\n"
                   "  millrace perf report run.mrp\n"
                   "  millrace perf report --compare monday.mrp tuesday.mrp",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 2,
    };
    const uint32_t count = cli_parse(&usage, argc, argv, r.paths);
    if (count == 2 && !r.compare)
        cli_refuse(command, "two runs need --compare");
    if (count == 1 && r.compare)
        cli_refuse(command, "--compare needs two runs, and only %s is named", r.paths[0]);
    if (r.csv && (r.json || r.compare))
        cli_refuse(command, "--csv shows one run, and no --json");
    if ((r.csv || r.json) && r.html != NULL)
        cli_refuse(command, "--output names the HTML file, which --csv and --json do not write");
    char *beside = r.html == NULL && !r.csv && !r.json ? html_beside(r.paths[0]) : NULL;
    if (beside != NULL)
        r.html = beside;
    const int exit_code = report(&r, count);
    free(beside);
    return exit_code;
}
