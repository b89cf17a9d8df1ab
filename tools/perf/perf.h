/* The commands of `millrace perf`. Each takes its own arguments, argv[0] being its name, and returns the exit
 * code. */
#ifndef TOOL_PERF_H
#define TOOL_PERF_H

int tool_perf_top(int argc, char **argv);
int tool_perf_record(int argc, char **argv);
int tool_perf_report(int argc, char **argv);

#endif
