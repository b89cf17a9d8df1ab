/* millrace perf: where the time of a server's cores goes, live, recorded and shown. */
#include "tools/perf/perf.h"

#include "tools/commands.h"

static const struct tool_command list[] = {
    {"top", tool_perf_top, "show where each core's cycles go, live"},
    {"record", tool_perf_record, "record everything that a server counts, into a file"},
    {"report", tool_perf_report, "show a recorded run: figures, and plots in an HTML file"},
    {"--help", NULL, "print this text"},
};

int tool_perf(int argc, char **argv)
{
    const struct tool_commands commands = {.program = "millrace perf",
                                           .summary = "Shows where the time of a server's cores goes.",
                                           .list = list,
                                           .count = sizeof(list) / sizeof(*list),
                                           .name_width = 12};
    return tool_run_command(&commands, argc, argv);
}
