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
     "Shows the checkpoint that is being written or loaded, the saves that are waiting,\n"
     "how the last one ended, and how the log of pushes does, if the server keeps one.\n\n"
     "  millrace ctl status --json"},
    {"checkpoints", tool_ctl_checkpoints, NULL,
     "Shows the saves that are waiting, the one that is being written, and the most recent\n"
     "ones since the server's start; also the checkpoint from which it was restored.\n\n"
     "  millrace ctl checkpoints"},
    {"heartbeat", tool_ctl_heartbeat, NULL,
     "Shows the state and load of each core, and what it has left out since the server's\n"
     "start: rows that it refused at a limit, gradients for keys without a row, gradients\n"
     "that it skipped because of NaN or Inf, and calls whose step was too far from that of\n"
     "other calls to count.\n\n"
     "  millrace ctl heartbeat --server 10.0.0.1:7700"},
    {"list", tool_ctl_list, NULL,
     "Lists the tables and variables of the server, with the number of rows, the memory held\n"
     "for them, what was left out (rows refused at a limit, gradients for keys without a\n"
     "row, gradients skipped because of NaN or Inf), and the options of \"millrace ctl create\"\n"
     "that differ from their defaults.\n\n"
     "  millrace ctl list"},
    {"memory", tool_ctl_memory, "show only this core; default: the sum of all cores",
     "Shows how memory is used: the node's limit, how much of it is taken, and what each\n"
     "table's index, values, optimizer state, slack and filter take. The column \"over\" is\n"
     "what a table takes in addition to its values and state, in percent of these.\n\n"
     "  millrace ctl memory --core 0"},
    {"moves", tool_ctl_moves, NULL,
     "Shows the partitions that move between nodes of the cluster: how far each move has\n"
     "come, its rate, and how long it will take.\n\n"
     "  millrace ctl moves"},
    {"nodes", tool_ctl_nodes, NULL,
     "Shows the cluster as one of its nodes knows it: the epoch of the map, for how long\n"
     "that node may serve without another word from ZooKeeper, and the nodes: whether each\n"
     "is there, how many of the 4096 partitions it owns, its cores and its address.\n\n"
     "  millrace ctl nodes --server node1:7700,node2:7700"},
    {"rpc", tool_ctl_rpc, NULL,
     "Shows the world of workers in which the node takes part: the workers, which of them\n"
     "are alive, the functions that the node offers, and their load. The counters start at\n"
     "0 when the world starts.\n\n"
     "  millrace ctl rpc"},
    {"stats", tool_ctl_stats, "show only this core; default: all cores",
     "Shows every counter of every core. The counters start at 0 when the server starts;\n"
     "\"millrace top\" shows rates.\n\n"
     "  millrace ctl stats --core 0 --json"},
    {"streams", tool_ctl_streams, NULL,
     "Shows the streams of batches of which the server has a record: how many batches were\n"
     "applied, how often a core applied one a second time (0, unless something is wrong),\n"
     "when the stream was last used (of two streams, the one with the higher number was used\n"
     "later), and its plan: \"-\" if a program chose the stream's number.\n\n"
     "  millrace ctl streams"},
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
    c.any_node = queries[i].run == tool_ctl_nodes || queries[i].run == tool_ctl_moves;
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
    {"create", tool_ctl_create, "create a table or a variable"},
    {"alter", tool_ctl_alter, "change options of a table or variable while it serves"},
    {"drop", tool_ctl_drop, "drop tables and variables, with what they have learnt"},
    {"freeze", tool_ctl_freeze, "refuse new rows, or all changes; or lift that"},
    {"save", tool_ctl_save, "start a checkpoint; training continues"},
    {"restore", tool_ctl_restore, "go back to a checkpoint"},
    {"status", query, "show the checkpoint that is being written, and how the last one ended"},
    {"checkpoints", query, "show the saves that are waiting, and the most recent ones"},
    {"heartbeat", query, "show the state and load of each core"},
    {"list", query, "list tables and variables"},
    {"memory", query, "show how each core's memory is used"},
    {"nodes", query, "show the nodes of the cluster, and what each of them owns"},
    {"move", tool_ctl_move, "move partitions from one node of the cluster to another"},
    {"drain", tool_ctl_drain, "move all partitions away from a node"},
    {"rebalance", tool_ctl_rebalance, "move partitions until all nodes have their share"},
    {"forget", tool_ctl_forget, "take a node that is away and owns nothing out of the map"},
    {"take-over", tool_ctl_take_over, "let the others have what a node owns that is away"},
    {"moves", query, "show the partitions that move"},
    {"rpc", query, "show the workers for remote calls, and the load of the node's functions"},
    {"annotate", tool_ctl_annotate, "annotate this time in recordings of the server"},
    {"stats", query, "show every counter of every core"},
    {"streams", query, "show the streams of batches that the server has a record of"},
    {"forget-stream", tool_ctl_forget_stream, "drop the record of streams that must not continue"},
};

int tool_ctl(int argc, char **argv)
{
    const struct tool_commands commands = {.program = "millrace ctl",
                                           .summary = "Sends one command to a server, and prints the reply.",
                                           .list = list,
                                           .count = sizeof(list) / sizeof(*list),
                                           .name_width = 15};
    return tool_run_command(&commands, argc, argv);
}
