/* The commands of `millrace`. Each takes its own arguments, argv[0] being its name, and returns the exit
 * code. */
#ifndef TOOL_COMMANDS_H
#define TOOL_COMMANDS_H

int tool_ctl(int argc, char **argv);
int tool_top(int argc, char **argv);
int tool_ckpt(int argc, char **argv);
int tool_doctor(int argc, char **argv);

#endif
