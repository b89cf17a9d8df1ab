/* millrace ctl heartbeat, stats. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/connection.h"
#include "tools/core_rates.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

#define CORES_MAX 64u /* of one server: the wire protocol's limit */

static json_t *state_json(const struct mr_core_state *s)
{
    return json_pack(
        "{s:I, s:s, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "core", (json_int_t)s->core,
        "state", tool_node_state_name(s->state), "incarnation", (json_int_t)s->incarnation, "uptime_s",
        (double)s->uptime_us / 1e6, "busy_share", s->busy_share, "last_step", (json_int_t)s->last_step,
        "cached_batches", (json_int_t)s->cached_batches, "rows", (json_int_t)s->rows, "memory_bytes",
        (json_int_t)s->memory_bytes, "rtt_us", (json_int_t)s->rtt_us, "rows_refused",
        (json_int_t)s->rows_refused, "gradients_without_row", (json_int_t)s->gradients_without_row,
        "gradients_skipped", (json_int_t)s->gradients_skipped, "steps_ignored", (json_int_t)s->steps_ignored);
}

static int print_states(const char *command, bool json, const struct mr_core_state *states, uint32_t count)
{
    if (json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(list, state_json(&states[i]));
        return tool_print_json(command, list);
    }
    (void)printf("%4s  %-10s %11s %10s %6s %10s %8s %12s %10s %8s %10s %10s %10s %10s\n", "core", "state",
                 "incarnation", "uptime s", "busy", "last step", "batches", "rows", "memory MiB", "rtt us",
                 "refused", "no row", "skipped", "far steps");
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_core_state *s = &states[i];
        (void)printf("%4" PRIu32 "  %-10s %11" PRIu32 " %10.1f %5.1f%% %10" PRIu64 " %8" PRIu64 " %12" PRIu64
                     " %10.1f %8" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
                     s->core, tool_node_state_name(s->state), s->incarnation, (double)s->uptime_us / 1e6,
                     100.0 * s->busy_share, s->last_step, s->cached_batches, s->rows,
                     (double)s->memory_bytes / (1024.0 * 1024.0), s->rtt_us, s->rows_refused,
                     s->gradients_without_row, s->gradients_skipped, s->steps_ignored);
    }
    return 0;
}

int tool_ctl_heartbeat(int argc, char **argv)
{
    static const char command[] = "millrace ctl heartbeat";
    struct tool_connection c = {0};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary = "Shows the state and load of each core, and what it has left out since the server's\n"
                   "start: rows refused at a limit, gradients of keys without a row, gradients skipped\n"
                   "for NaN or Inf, calls with steps too far off to count.",
        .options = options,
        .option_count = sizeof(options) / sizeof(*options),
    };
    struct mr_client *client;
    int exit_code = tool_parse_and_connect(&usage, argc, argv, &c, &client);
    if (exit_code != 0)
        return exit_code;
    struct mr_core_state states[CORES_MAX];
    enum mr_status status = mr_heartbeat(client, NULL, states);
    if (status == MR_OK)
        exit_code = print_states(command, c.json, states, mr_client_core_count(client));
    else
        exit_code = tool_call_failed(command, status);
    mr_client_destroy(client);
    return exit_code;
}

static void add_counter(void *arg, const char *name, uint64_t value)
{
    (void)json_object_set_new(arg, name, json_integer((json_int_t)value));
}

static void print_counter(void *arg, const char *name, uint64_t value)
{
    (void)printf("core %" PRIu32 "  %-40s %20" PRIu64 "\n", *(const uint32_t *)arg, name, value);
}

static int print_stats(const char *command, const struct tool_connection *c, struct mr_client *client,
                       uint32_t first, uint32_t end)
{
    json_t *list = json_array();
    enum mr_status status = MR_OK;
    for (uint32_t core = first; core < end && status == MR_OK; core++) {
        json_t *counters = json_object();
        if (c->json)
            status = mr_stats(client, NULL, core, add_counter, counters);
        else
            status = mr_stats(client, NULL, core, print_counter, &core);
        json_array_append_new(list, json_pack("{s:I, s:o}", "core", (json_int_t)core, "counters", counters));
    }
    if (status == MR_OK && c->json)
        return tool_print_json(command, list);
    json_decref(list);
    return status == MR_OK ? 0 : tool_call_failed(command, status);
}

int tool_ctl_stats(int argc, char **argv)
{
    static const char command[] = "millrace ctl stats";
    struct tool_connection c = {0};
    uint32_t core = TOOL_ALL_CORES;
    const struct cli_option options[] = {
        {"core", CLI_U32, &core, "N", "only this core; default: all"},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary = "Shows every counter of every core. They count from the server's start; millrace top\n"
                   "shows rates.",
        .options = options,
        .option_count = sizeof(options) / sizeof(*options),
    };
    struct mr_client *client;
    int exit_code = tool_parse_and_connect(&usage, argc, argv, &c, &client);
    if (exit_code != 0)
        return exit_code;
    uint32_t first, end;
    exit_code = tool_pick_cores(command, client, core, &first, &end);
    if (exit_code == 0)
        exit_code = print_stats(command, &c, client, first, end);
    mr_client_destroy(client);
    return exit_code;
}
