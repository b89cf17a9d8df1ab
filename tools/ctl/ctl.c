/* millrace ctl: which command. */
#include "tools/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "dataplane/wire/base/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"create", tool_ctl_create, "make a table or a variable"},
    {"freeze", tool_ctl_freeze, "take no new rows, or no updates at all; or end that"},
    {"save", tool_ctl_save, "start a checkpoint; training continues"},
    {"restore", tool_ctl_restore, "go back to a checkpoint"},
    {"status", tool_ctl_status, "the checkpoint that is being written, and how the last one ended"},
    {"checkpoints", tool_ctl_checkpoints, "the saves that wait, and the last ones"},
    {"heartbeat", tool_ctl_heartbeat, "state and load of each core"},
    {"list", tool_ctl_list, "tables and variables"},
    {"memory", tool_ctl_memory, "where every byte of each core is"},
    {"rpc", tool_ctl_rpc, "remote calls: the workers of the world, and what the node's functions do"},
    {"stats", tool_ctl_stats, "every counter of every core"},
    {"streams", tool_ctl_streams, "the plans of which the server has applied batches"},
    {"forget-stream", tool_ctl_forget_stream, "drop the record of plans that must not continue"},
};

int tool_print_json(const char *command, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_REAL_PRECISION(7)) : NULL;
    json_decref(value);
    if (!text)
        return cli_fail(command, "no memory for the output");
    int failed = puts(text) < 0 || fflush(stdout) != 0;
    free(text);
    return failed ? cli_fail(command, "the output could not be written") : 0;
}

static void print_help(void)
{
    (void)printf("usage: millrace ctl COMMAND [arguments]\n\nControls one server.\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        (void)printf("  %-15s%s\n", commands[i].name, commands[i].help);
    (void)printf("\nmillrace ctl COMMAND --help says more.\n");
}

int tool_ctl(int argc, char **argv)
{
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        print_help();
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < sizeof(commands) / sizeof(*commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    cli_refuse("millrace ctl", "%s%s", argc < 2 ? "a command is missing" : "no command ",
               argc < 2 ? "" : argv[1]);
}
