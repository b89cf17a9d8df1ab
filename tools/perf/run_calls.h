/* The calls of a recorded run: slow ones, and those before and after them (millrace perf record
 * --on-slow). */
#ifndef TOOL_RUN_CALLS_H
#define TOOL_RUN_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>

#define TOOL_RUN_CALLS_MAX    100000u
#define TOOL_SLOW_BURSTS_MAX  100u
#define TOOL_SLOW_BESIDE_MAX  3u
#define TOOL_SLOW_SPAN_MS_MIN 1000u /* slow calls that are closer than that are one burst */

struct tool_run_call {
    uint64_t time_ms; /* of the run: when it arrived */
    uint64_t number;
    uint64_t arrived_ns; /* by the core's clock, for comparisons with calls of the same core */
    uint64_t total_ns, wait_ns, work_ns;
    bool is_timed; /* wait_ns and work_ns are known */
    uint32_t core, table, keys;
    uint32_t request_bytes, reply_bytes;
    char op[32], client[64], status[32]; /* status "": it is good */
};

struct tool_run_calls {
    uint64_t slow_ns; /* 0: the run has no such calls */
    uint32_t count, room;
    struct tool_run_call *list;
    uint32_t slow;           /* of them */
    uint64_t lost, left_out; /* calls that the cores no longer had; calls beyond what a run may hold */
    uint32_t burst_count;
    struct tool_slow_burst {
        uint64_t time_ms, end_ms; /* of the first, and of the last */
        uint32_t calls;
        uint64_t longest_ns;
        char text[64]; /* "12 slow calls, up to 14.1 ms" */
    } bursts[TOOL_SLOW_BURSTS_MAX];
};

/* Takes one line of the run about calls; false: it is about something else. */
bool tool_run_calls_take(struct tool_run_calls *calls, uint32_t core, uint64_t time_ms, const json_t *line);
/* All lines are there: finds the bursts in a run that ended at end_ms. */
void tool_run_calls_end(struct tool_run_calls *calls, uint64_t end_ms);
void tool_run_calls_free(struct tool_run_calls *calls);

/* Fills `out` with the slow calls, the slowest first. Returns how many: at most `max`. */
uint32_t tool_run_slowest(const struct tool_run_calls *calls, const struct tool_run_call **out, uint32_t max);

/* What the core worked on while the call was there, the longest first: other calls that are in the run. Its
 * own wait is explained by these. */
struct tool_beside {
    const struct tool_run_call *call;
    uint64_t ns; /* of its work, within the time of the slow call */
};
uint32_t tool_run_beside(const struct tool_run_calls *calls, const struct tool_run_call *slow,
                         struct tool_beside out[TOOL_SLOW_BESIDE_MAX]);

#endif
