/* millrace perf top: where each core's cycles go, now. */
#include "tools/perf/perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/clock.h"
#include "millrace_observe.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/live.h"
#include "tools/perf/core_cycles.h"

#define ALL_CORES UINT32_MAX
#define ANSWER_MS 1000u /* that a node of a cluster has to answer */

static const char command[] = "millrace perf top";

struct perf_top {
    struct tool_connection c;
    uint32_t core; /* ALL_CORES, or the only one that is shown */
    float interval_s;
    uint32_t updates; /* 0: no end */
};

/* The samples of all cores at one time. */
struct round {
    struct tool_cycles_sample *samples; /* [room] */
    uint32_t room, count, answered;
};

/* Makes room for the samples of so many cores. False: no memory. */
static bool round_grow(struct round *r, uint32_t count)
{
    if (count <= r->room)
        return true;
    struct tool_cycles_sample *samples = realloc(r->samples, count * sizeof(*samples));
    if (samples == NULL)
        return false;
    r->samples = samples;
    r->room = count;
    return true;
}

static bool is_shown(const struct perf_top *top, uint32_t core)
{
    return top->core == ALL_CORES || top->core == core;
}

/* Of a cluster, one core that answers is enough: nodes may be away. */
static enum mr_status take_samples(const struct perf_top *top, struct mr_client *client, struct round *r)
{
    struct mr_core_place place;
    const bool is_cluster = mr_client_core_place(client, 0, &place) && place.node[0] != '\0';
    const struct mr_options options = {.deadline_ms = is_cluster ? ANSWER_MS : 0};
    enum mr_status status = MR_OK;
    r->answered = r->count = 0;
    if (!round_grow(r, mr_client_core_count(client)))
        return MR_NO_MEMORY;
    const uint32_t cores = mr_client_core_count(client); /* nodes may have come meanwhile */
    r->count = r->samples == NULL ? 0 : cores < r->room ? cores : r->room;
    for (uint32_t core = 0; core < r->count; core++) {
        struct tool_cycles_sample *sample = &r->samples[core];
        sample->count = 0;
        if (!is_shown(top, core) || (status != MR_OK && !is_cluster))
            continue;
        const enum mr_status asked = mr_stats(client, &options, core, tool_cycles_visit, sample);
        sample->time_us = mr_clock_us();
        if (asked != MR_OK) {
            sample->count = 0;
            status = asked;
            continue;
        }
        r->answered++;
    }
    return is_cluster && r->answered > 0 ? MR_OK : status;
}

static void add_node(const struct mr_client *client, uint32_t core, json_t *object)
{
    struct mr_core_place place;
    if (mr_client_core_place(client, core, &place) && place.node[0] != '\0')
        (void)json_object_set_new(object, "node", json_string(place.node));
}

static int print_json(const struct mr_client *client, const struct round *before, const struct round *now)
{
    json_t *list = json_array();
    for (uint32_t core = 0; core < now->count; core++) {
        struct tool_cycles c;
        if (!tool_cycles_between(&before->samples[core], &now->samples[core], &c))
            continue;
        json_t *object = tool_cycles_json(&c, core);
        add_node(client, core, object);
        (void)json_array_append_new(list, object);
    }
    return tool_print_json(command, list);
}

static void print_text(FILE *out, const struct round *before, const struct round *now)
{
    struct tool_cycles c;
    bool has_heading = false;
    for (uint32_t core = 0; core < now->count; core++) {
        if (!tool_cycles_between(&before->samples[core], &now->samples[core], &c))
            continue;
        if (!has_heading)
            tool_cycles_heading(&now->samples[core], out);
        has_heading = true;
        tool_cycles_line(&c, core, out);
    }
    for (uint32_t core = 0; core < now->count; core++) {
        if (!tool_cycles_between(&before->samples[core], &now->samples[core], &c))
            continue;
        tool_cycles_ops(&c, core, out);
        tool_cycles_cpu(&c, core, out);
    }
}

static int print_update(const struct perf_top *top, const struct mr_client *client, bool is_terminal,
                        const struct round *before, const struct round *now)
{
    char *text = NULL;
    size_t bytes;
    if (top->c.json)
        return print_json(client, before, now);
    FILE *out = is_terminal ? open_memstream(&text, &bytes) : stdout;
    if (out == NULL)
        return cli_fail(command, "no memory left");
    print_text(out, before, now);
    if (is_terminal && fclose(out) == 0)
        tool_live_draw(text);
    else
        (void)putchar('\n');
    free(text);
    return fflush(stdout) == 0 ? 0 : cli_fail(command, "the output could not be written");
}

/* 0, or the exit code after one line about why nothing can be shown. */
static int perf_top_check(const struct perf_top *top, const struct round *now)
{
    if (top->core != ALL_CORES && top->core >= now->count)
        return cli_fail(command, "--core %u: the server has cores 0 to %u", top->core, now->count - 1);
    for (uint32_t core = 0; core < now->count; core++)
        if (now->samples[core].count > 0 && tool_cycles_measured(&now->samples[core]))
            return 0;
    return cli_fail(command, "the server does not measure where its cycles go: set cores.measured_turns = 64 "
                             "in its configuration, and start it again");
}

/* Updates until a signal, or until there were as many as were asked for. */
static int perf_top_show(const struct perf_top *top, struct mr_client *client)
{
    struct round rounds[2] = {{NULL}};
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    const uint64_t interval_us = (uint64_t)((double)top->interval_s * 1e6);
    uint64_t next_us = mr_clock_us();
    uint32_t which = 0, shown = 0, count_before = 0;
    bool is_away = false;
    int exit_code = 0;
    while (!tool_live_ended() && exit_code == 0 && (top->updates == 0 || shown < top->updates)) {
        struct round *now = &rounds[which];
        if (take_samples(top, client, now) != MR_OK) {
            tool_live_away(command, is_terminal, &is_away);
            count_before = 0;
        } else {
            tool_live_back(command, &is_away);
            if (now->count == count_before) {
                exit_code = print_update(top, client, is_terminal, &rounds[1 - which], now);
                shown++;
            } else {
                exit_code = perf_top_check(top, now);
            }
            count_before = now->count;
            which = 1 - which;
        }
        next_us += interval_us;
        if (exit_code == 0 && (top->updates == 0 || shown < top->updates))
            tool_live_wait_until(next_us);
    }
    free(rounds[0].samples);
    free(rounds[1].samples);
    return exit_code;
}

int tool_perf_top(int argc, char **argv)
{
    struct perf_top top = {.core = ALL_CORES, .interval_s = 1.0f};
    const struct cli_option options[] = {
        {"interval", CLI_FLOAT, &top.interval_s, "SECONDS", "seconds between two updates; default 1"},
        {"count", CLI_U32, &top.updates, "N", "exit after this many updates; default: never"},
        {"core", CLI_U32, &top.core, "N", "show only this core; default: all cores"},
        TOOL_CONNECTION_OPTIONS(&top.c),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary = "Shows where each core's cycles go, by phase of its loop: polls that found nothing\n"
                   "(idle), receiving, checking packets, operations (dispatch) and their work in tables\n"
                   "(gather, optimizer), sending, and what a core does beside that; and how many cycles\n"
                   "a packet and a key cost, without idle ones. Below that: what each class of operations\n"
                   "costs, what the processor counted (instructions a cycle, misses a packet and a key),\n"
                   "or why it counts nothing, and what the kernel did to the core's thread.\n"
                   "On a terminal the display is refreshed; in a pipe, one block is printed per interval.\n"
                   "\n"
                   "  millrace perf top --server 10.0.0.1:7700 --core 0",
        CLI_OPTIONS(options),
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (top.interval_s < TOOL_INTERVAL_S_MIN || top.interval_s > TOOL_INTERVAL_S_MAX)
        cli_refuse(command, "--interval must be 0.05 to 86400 seconds");
    struct mr_client *client;
    top.c.any_node = true;
    int exit_code = tool_connect(command, &top.c, &client);
    if (exit_code != 0)
        return exit_code;
    tool_live_begin();
    exit_code = perf_top_show(&top, client);
    mr_client_destroy(client);
    return exit_code;
}
