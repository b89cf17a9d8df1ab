/* What a server's counters say of its log of pushes (checkpoint.durability = log). */
#ifndef TOOL_LOG_STATE_H
#define TOOL_LOG_STATE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define TOOL_LOG_LINE_BYTES 256u

/* Over all cores. */
struct tool_log_state {
    uint64_t cores, stalled; /* that keep a log; that cannot write it */
    uint64_t kept_bytes;     /* in no published checkpoint */
    uint64_t flushes, flush_us, flush_last_us, flush_max_us;
    uint64_t answers_waiting, errors;
};

/* A visitor for mr_stats() of every core; arg: a struct tool_log_state. */
void tool_log_counter(void *arg, const char *name, uint64_t value);
/* "12.0 MiB in no checkpoint yet; a flush takes 0.8 ms, the last 0.6 ms, the longest 12.0 ms; 3 answers
 * wait" */
void tool_log_line(const struct tool_log_state *log, char *out, size_t out_bytes);
json_t *tool_log_json(const struct tool_log_state *log);

#endif
