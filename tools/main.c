/* millrace: the program for operators. One command per file. */
#include <stdio.h>

#include "tools/commands.h"
#include "dataplane/wire/base/cli.h"

static const struct tool_command list[] = {
    {"ctl", tool_ctl, "create tables and variables; save, restore, freeze and inspect one server"},
    {"top", tool_top, "show what each core does, live"},
    {"perf", tool_perf, "show where each core's time goes; record what a server counts, and show it"},
    {"ckpt", tool_ckpt, "list, verify, compare, dump, export, compact and import checkpoints on disk"},
    {"dev", tool_dev, "start a server for development here, for a notebook, a test or one command"},
    {"doctor", tool_doctor,
     "show what keeps the server from working well on this machine, and how to fix it"},
    {"bench", tool_bench, "make calls as trainers would, and show how many there are and how long they take"},
    {"capture", tool_capture, "write the packets of a server's port to a file for Wireshark"},
    {"timeline", tool_timeline, "join the traces of a training, and show what its trainers wait for"},
    {"--version", NULL, "print the version"},
    {"--help", NULL, "print this text"},
};

int main(int argc, char **argv)
{
    const struct tool_commands commands = {.program = "millrace",
                                           .summary = "Tools for the Millrace parameter server.",
                                           .list = list,
                                           .count = sizeof(list) / sizeof(*list),
                                           .name_width = 12};
    const int exit_code = tool_run_command(&commands, argc, argv);
    /* Output that was lost, on a full disk for example, is a failure. */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    if (exit_code == 0)
        (void)fprintf(stderr, "millrace: the output could not be written\n");
    return exit_code != 0 ? exit_code : CLI_EXIT_FAILED;
}
