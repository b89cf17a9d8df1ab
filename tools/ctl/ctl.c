/* millrace ctl: its commands, and what the queries among them have in common. */
#include "tools/ctl/ctl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/base/plural.h"
#include "tools/commands.h"

static const struct {
    const char *name;
    int (*run)(const struct tool_query *query);
    const char *core_help; /* of --core; NULL: it has no such option */
    const char *summary;
} queries[] = {
    {"status", tool_ctl_status, NULL,
     "Shows the checkpoint that is being written or loaded, the saves that wait, and how\n"
     "the last one ended."},
    {"checkpoints", tool_ctl_checkpoints, NULL,
     "Shows the saves that wait, the one that is being written, and the last ones since\n"
     "the server's start; and the checkpoint from which the server was restored."},
    {"heartbeat", tool_ctl_heartbeat, NULL,
     "Shows the state and load of each core, and what it has left out since the server's\n"
     "start: rows refused at a limit, gradients of keys without a row, gradients skipped\n"
     "for NaN or Inf, calls with steps too far off to count."},
    {"list", tool_ctl_list, NULL,
     "Lists the tables and variables of the server, with their rows, the memory held for\n"
     "them, what was left out (rows refused at a limit, gradients of keys without a row,\n"
     "gradients skipped for NaN or Inf), and the options of ctl create that differ from\n"
     "their defaults."},
    {"memory", tool_ctl_memory, "only this core; default: the sum of all",
     "Shows where every byte is: the node's limit and how much of it is taken, and each\n"
     "table's index, values, optimizer state, slack and filter. \"over\" is what a table\n"
     "takes in addition to its values and state."},
    {"rpc", tool_ctl_rpc, NULL,
     "Shows the world of workers in which the node takes part: who they are, and which of\n"
     "them are alive; the node's functions, and their load. Counters count from the start\n"
     "of the world."},
    {"stats", tool_ctl_stats, "only this core; default: all",
     "Shows every counter of every core. They count from the server's start; millrace top\n"
     "shows rates."},
    {"streams", tool_ctl_streams, NULL,
     "Shows the streams of batches of which the server has a record: how many batches were\n"
     "applied, how often one was applied again, when the stream was used (of two, the one\n"
     "with the higher number was used later), and its plan."},
};

/* The cores that --core names. 0, or the exit code after one line when the server has no such core. */
static int pick_cores(struct tool_query *q, uint32_t core)
{
    const uint32_t count = mr_client_core_count(q->client);
    const bool all = core == UINT32_MAX;
    if (!all && core >= count)
        return cli_fail(q->command, "the server has %" PRIu32 " core%s, so --core must be below that", count,
                        mr_plural(count));
    q->first_core = all ? 0 : core;
    q->end_core = all ? count : core + 1;
    return 0;
}

/* Runs the query that argv[0] names. */
static int query(int argc, char **argv)
{
    char command[64];
    struct tool_connection c = {0};
    uint32_t i = 0, core = UINT32_MAX;
    while (strcmp(queries[i].name, argv[0]) != 0)
        i++;
    (void)snprintf(command, sizeof(command), "millrace ctl %s", queries[i].name);
    const struct cli_option options[] = {
        {"core", CLI_U32, &core, "N", queries[i].core_help},
        TOOL_CONNECTION_OPTIONS(&c),
    };
    const uint32_t skipped = queries[i].core_help ? 0 : 1;
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options]",
        .summary = queries[i].summary,
        .options = options + skipped,
        .option_count = sizeof(options) / sizeof(*options) - skipped,
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    struct tool_query q = {.command = command, .json = c.json};
    int exit_code = tool_connect(command, &c, &q.client);
    if (exit_code != 0)
        return exit_code;
    exit_code = pick_cores(&q, core);
    if (exit_code == 0)
        exit_code = queries[i].run(&q);
    mr_client_destroy(q.client);
    return exit_code;
}

int tool_ctl_end(const char *command, const struct tool_connection *c, struct mr_client *client,
                 enum mr_status status, json_t *json, const char *format, ...)
{
    int exit_code = 0;
    va_list args;
    va_start(args, format);
    if (status != MR_OK)
        exit_code = tool_call_failed(command, status);
    else if (c->json)
        exit_code = tool_print_json(command, json_incref(json));
    else
        (void)vprintf(format, args);
    va_end(args);
    json_decref(json);
    mr_client_destroy(client);
    return exit_code;
}

static const struct tool_command list[] = {
    {"create", tool_ctl_create, "make a table or a variable"},
    {"freeze", tool_ctl_freeze, "take no new rows, or no updates at all; or end that"},
    {"save", tool_ctl_save, "start a checkpoint; training continues"},
    {"restore", tool_ctl_restore, "go back to a checkpoint"},
    {"status", query, "the checkpoint that is being written, and how the last one ended"},
    {"checkpoints", query, "the saves that wait, and the last ones"},
    {"heartbeat", query, "state and load of each core"},
    {"list", query, "tables and variables"},
    {"memory", query, "where every byte of each core is"},
    {"rpc", query, "remote calls: the workers of the world, and what the node's functions do"},
    {"stats", query, "every counter of every core"},
    {"streams", query, "the plans of which the server has applied batches"},
    {"forget-stream", tool_ctl_forget_stream, "drop the record of plans that must not continue"},
};

int tool_ctl(int argc, char **argv)
{
    const struct tool_commands commands = {.program = "millrace ctl",
                                           .summary = "Controls one server.",
                                           .list = list,
                                           .count = sizeof(list) / sizeof(*list),
                                           .name_width = 15};
    return tool_run_command(&commands, argc, argv);
}
