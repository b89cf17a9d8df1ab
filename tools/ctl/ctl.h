/* The commands of `millrace ctl`, one call of the server each. Same convention as tools/commands.h. */
#ifndef TOOL_CTL_H
#define TOOL_CTL_H

#include "tools/commands.h"
#include "tools/connection.h"

int tool_ctl_create(int argc, char **argv);
int tool_ctl_drop(int argc, char **argv);
int tool_ctl_alter(int argc, char **argv);
int tool_ctl_freeze(int argc, char **argv);
int tool_ctl_save(int argc, char **argv);
int tool_ctl_restore(int argc, char **argv);
int tool_ctl_forget_stream(int argc, char **argv);
int tool_ctl_annotate(int argc, char **argv);
int tool_ctl_move(int argc, char **argv);
int tool_ctl_drain(int argc, char **argv);
int tool_ctl_rebalance(int argc, char **argv);
int tool_ctl_forget(int argc, char **argv);
int tool_ctl_take_over(int argc, char **argv);

/* Commands that take no words and only show something; their options are in ctl.c. They return the exit
 * code. */
struct tool_query {
    const char *command;
    struct mr_client *client;
    bool json;
    uint32_t first_core, end_core; /* the cores of --core, or all */
};
int tool_ctl_status(const struct tool_query *q);
int tool_ctl_checkpoints(const struct tool_query *q);
int tool_ctl_heartbeat(const struct tool_query *q);
int tool_ctl_list(const struct tool_query *q);
int tool_ctl_memory(const struct tool_query *q);
int tool_ctl_moves(const struct tool_query *q);
int tool_ctl_nodes(const struct tool_query *q);
int tool_ctl_rpc(const struct tool_query *q);
int tool_ctl_stats(const struct tool_query *q);
int tool_ctl_streams(const struct tool_query *q);

/* Ends a command after its call: reports the failure, or prints `json` if that is asked for, else the text.
 * Drops `json` and destroys the client. Returns the exit code. */
int tool_ctl_end(const char *command, const struct tool_connection *c, struct mr_client *client,
                 enum mr_status status, json_t *json, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
