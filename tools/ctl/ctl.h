/* The commands of `millrace ctl`, one call of the server each. Same convention as tools/commands.h. */
#ifndef TOOL_CTL_H
#define TOOL_CTL_H

#include <jansson.h>

int tool_ctl_create(int argc, char **argv);
int tool_ctl_freeze(int argc, char **argv);
int tool_ctl_save(int argc, char **argv);
int tool_ctl_restore(int argc, char **argv);
int tool_ctl_checkpoints(int argc, char **argv);
int tool_ctl_status(int argc, char **argv);
int tool_ctl_heartbeat(int argc, char **argv);
int tool_ctl_streams(int argc, char **argv);
int tool_ctl_forget_stream(int argc, char **argv);
int tool_ctl_memory(int argc, char **argv);
int tool_ctl_rpc(int argc, char **argv);
int tool_ctl_list(int argc, char **argv);
int tool_ctl_stats(int argc, char **argv);

/* Prints a JSON value on one line and drops it. 0, or the exit code when memory is short or output failed. */
int tool_print_json(const char *command, json_t *value);

#endif
