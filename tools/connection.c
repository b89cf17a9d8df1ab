#include "tools/connection.h"

#include <stdlib.h>

const char *tool_server_name(const struct tool_connection *c)
{
    const char *server = c->server != NULL ? c->server : getenv("MILLRACE_SERVER");
    return server != NULL && server[0] != '\0' ? server : TOOL_SERVER_DEFAULT;
}

int tool_connect(const char *command, const struct tool_connection *c, struct mr_client **client)
{
    struct mr_client_options options = {
        .server = tool_server_name(c),
        .key_file = c->key_file,
        .deadline_ms = c->deadline_ms,
        .connect_ms = c->deadline_ms,
        .any_node = c->any_node,
    };
    char error[512] = "";
    enum mr_status status = mr_client_create(&options, client, error, sizeof(error));
    if (status == MR_OK)
        return 0;
    return cli_fail(command, "%s", error[0] ? error : mr_status_text(status));
}

int tool_call_failed(const char *command, enum mr_status status)
{
    const char *where = mr_last_error();
    return cli_fail(command, "%s", where[0] ? where : mr_status_text(status));
}
