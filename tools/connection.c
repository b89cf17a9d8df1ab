#include "tools/connection.h"
#include "dataplane/wire/base/plural.h"

#include <inttypes.h>
#include <stdlib.h>

int tool_connect(const char *command, const struct tool_connection *c, struct mr_client **client)
{
    const char *server = c->server ? c->server : getenv("MILLRACE_SERVER");
    struct mr_client_options options = {
        .server = server && server[0] ? server : TOOL_SERVER_DEFAULT,
        .key_file = c->key_file,
        .deadline_ms = c->deadline_ms,
        .connect_ms = c->deadline_ms,
    };
    char error[512] = "";
    enum mr_status status = mr_client_create(&options, client, error, sizeof(error));
    if (status == MR_OK)
        return 0;
    return cli_fail(command, "%s", error[0] ? error : mr_status_text(status));
}

int tool_parse_and_connect(const struct cli_usage *usage, int argc, char **argv,
                           const struct tool_connection *c, struct mr_client **client)
{
    (void)cli_parse(usage, argc, argv, NULL);
    return tool_connect(usage->program, c, client);
}

int tool_call_failed(const char *command, enum mr_status status)
{
    const char *where = mr_last_error();
    return cli_fail(command, "%s", where[0] ? where : mr_status_text(status));
}

int tool_pick_cores(const char *command, const struct mr_client *client, uint32_t core, uint32_t *first,
                    uint32_t *end)
{
    const uint32_t count = mr_client_core_count(client);
    if (core != TOOL_ALL_CORES && core >= count)
        return cli_fail(command, "the server has %" PRIu32 " core%s, so --core must be below that", count,
                        mr_plural(count));
    *first = core == TOOL_ALL_CORES ? 0 : core;
    *end = core == TOOL_ALL_CORES ? count : core + 1;
    return 0;
}
