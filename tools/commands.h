/* The commands of `millrace`. Each takes its own arguments, argv[0] being its name, and returns the exit
 * code. */
#ifndef TOOL_COMMANDS_H
#define TOOL_COMMANDS_H

#include <jansson.h>
#include <stddef.h>

int tool_ctl(int argc, char **argv);
int tool_top(int argc, char **argv);
int tool_ckpt(int argc, char **argv);
int tool_dev(int argc, char **argv);
int tool_doctor(int argc, char **argv);
int tool_perf(int argc, char **argv);
int tool_bench(int argc, char **argv);
int tool_capture(int argc, char **argv);
int tool_timeline(int argc, char **argv);

struct tool_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* one line */
};

/* A program with commands: "millrace", "millrace ctl". */
struct tool_commands {
    const char *program, *summary;
    const struct tool_command *list;
    size_t count;
    int name_width; /* in --help */
};

/* Runs the command that argv[1] names, with argv[1] as its argv[0]; prints --help and --version itself. Ends
 * the program when there is no such command. */
int tool_run_command(const struct tool_commands *commands, int argc, char **argv);

/* Prints a JSON value on one line and drops it. 0, or the exit code when memory is short or output failed. */
int tool_print_json(const char *command, json_t *value);

#endif
