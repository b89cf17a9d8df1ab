/* What commands that show a server live have in common: they wait from one update to the next, redraw a
 * terminal, end by a signal, and wait for a server that is away. */
#ifndef TOOL_LIVE_H
#define TOOL_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#define TOOL_INTERVAL_S_MIN 0.05f
#define TOOL_INTERVAL_S_MAX 86400.0f

/* From now on SIGINT and SIGTERM end the waits below instead of the program. */
void tool_live_begin(void);
bool tool_live_ended(void);
/* Returns early when a signal comes. */
void tool_live_wait_until(uint64_t time_us);

/* Clears the terminal and prints each line as far as it is wide, and no more of them than it has. */
void tool_live_draw(const char *text);

/* The server does not answer: says so once, on standard error, so that a pipe holds updates alone. */
void tool_live_away(const char *command, bool is_terminal, bool *is_away);
void tool_live_back(const char *command, bool *is_away);

#endif
