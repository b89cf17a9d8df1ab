/* millrace ctl annotate. */
#include "millrace_observe.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

int tool_ctl_annotate(int argc, char **argv)
{
    static const char command[] = "millrace ctl annotate";
    struct tool_connection c = {0};
    const struct cli_option options[] = {TOOL_CONNECTION_OPTIONS(&c)};
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "TEXT [options]",
        .summary =
            "Annotates this time in recordings of the server: \"millrace perf record\" takes the text, and\n"
            "the report's plots have a line there.\n"
            "\n"
            "  millrace ctl annotate \"switched to the new embeddings\"",
        CLI_OPTIONS(options),
        .words_min = 1,
        .words_max = 1,
    };
    const char *word;
    struct mr_client *client;
    (void)cli_parse(&usage, argc, argv, &word);
    int exit_code = tool_connect(command, &c, &client);
    if (exit_code != 0)
        return exit_code;
    enum mr_status status = mr_annotate(client, NULL, word);
    return tool_ctl_end(command, &c, client, status, json_pack("{s:s}", "annotation", word),
                        "annotated: %s\n", word);
}
