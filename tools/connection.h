/* What every command that talks to a server has in common: its options, connecting, and saying what went
 * wrong. */
#ifndef TOOL_CONNECTION_H
#define TOOL_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace.h"
#include "dataplane/wire/base/cli.h"

struct tool_connection {
    const char *server; /* NULL: $MILLRACE_SERVER, else TOOL_SERVER_DEFAULT */
    const char *key_file;
    uint32_t deadline_ms;
    bool json;
    bool any_node; /* of a cluster: one that answers is enough */
};

#define TOOL_SERVER_DEFAULT "127.0.0.1:7700"

/* Rows of an option table (dataplane/wire/base/cli.h) for a struct tool_connection *c. */
#define TOOL_CONNECTION_OPTIONS(c)                                                                           \
    {"server", CLI_STRING, &(c)->server, "HOST:PORT,...",                                                    \
     "the server, or nodes of a cluster; default: $MILLRACE_SERVER, else " TOOL_SERVER_DEFAULT},             \
        {"key-file", CLI_STRING, &(c)->key_file, "FILE",                                                     \
         "file with the pre-shared key, 64 hex digits; default: $MILLRACE_KEY_FILE, else no key"},           \
        {"deadline-ms", CLI_U32, &(c)->deadline_ms, "N",                                                     \
         "give up after so many milliseconds; default 10000"},                                               \
    {                                                                                                        \
        "json", CLI_FLAG, &(c)->json, NULL, "print one JSON value instead of text"                           \
    }

/* Returns the server that a command talks to: as named, by the environment, or TOOL_SERVER_DEFAULT. */
const char *tool_server_name(const struct tool_connection *c);
/* 0, or the exit code after one line about what is wrong. */
int tool_connect(const char *command, const struct tool_connection *c, struct mr_client **client);
/* Prints one line about a failed call and returns the exit code. */
int tool_call_failed(const char *command, enum mr_status status);

#endif
