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
    return tool_fail(command, "%s", error[0] ? error : mr_status_text(status));
}

bool tool_parse_and_connect(const struct tool_usage *usage, int argc, char **argv,
                            const struct tool_connection *c, struct mr_client **client, int *exit_code)
{
    uint32_t word_count;
    if (!tool_options_parse(usage, argc, argv, NULL, &word_count, exit_code))
        return false;
    *exit_code = tool_connect(usage->command, c, client);
    return *exit_code == 0;
}

int tool_call_failed(const char *command, enum mr_status status)
{
    const char *where = mr_last_error();
    return tool_fail(command, "%s", where[0] ? where : mr_status_text(status));
}

int tool_pick_cores(const char *command, const struct mr_client *client, uint32_t core, uint32_t *first,
                    uint32_t *end)
{
    const uint32_t count = mr_client_core_count(client);
    if (core != TOOL_ALL_CORES && core >= count)
        return tool_fail(command, "the server has %" PRIu32 " core%s, so --core must be below that", count,
                         mr_plural(count));
    *first = core == TOOL_ALL_CORES ? 0 : core;
    *end = core == TOOL_ALL_CORES ? count : core + 1;
    return 0;
}
