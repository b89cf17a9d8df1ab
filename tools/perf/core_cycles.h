/* What `millrace perf top` shows: a core's counters at two times, and where its cycles went between them.
 * Pure.
 *
 * The server names the phases of its loop, the classes of operations, and what its processor counts; whatever
 * it names is shown.
 */
#ifndef TOOL_CORE_CYCLES_H
#define TOOL_CORE_CYCLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

#define TOOL_CYCLES_COUNTERS_MAX 160u
#define TOOL_CYCLES_NAME_BYTES   40u

struct tool_cycles_sample {
    uint64_t time_us;
    uint32_t count; /* 0: the core did not answer */
    struct tool_cycles_counter {
        char name[TOOL_CYCLES_NAME_BYTES]; /* "phase.gather" */
        uint64_t value;
    } list[TOOL_CYCLES_COUNTERS_MAX];
};

/* A visitor for mr_stats(): keeps what the functions below need. */
void tool_cycles_visit(void *arg, const char *name, uint64_t value);

/* Between two samples of a core. */
struct tool_cycles {
    const struct tool_cycles_sample *before, *now;
    double seconds;
};
/* False: there is nothing between them yet, as the core has not answered both times, or was started between
 * them, or measures nothing. */
bool tool_cycles_between(const struct tool_cycles_sample *before, const struct tool_cycles_sample *now,
                         struct tool_cycles *out);
/* Whether the server measures its phases at all (cores.measured_turns). */
bool tool_cycles_measured(const struct tool_cycles_sample *now);

/* "core  poll idle ... cycles/packet cycles/key", and the lines under it. */
void tool_cycles_heading(const struct tool_cycles_sample *sample, FILE *out);
void tool_cycles_line(const struct tool_cycles *c, uint32_t core, FILE *out);
/* What the classes of operations cost, one line each; nothing of those that were not called. Of few calls
 * none may have been measured: then the cost is not known. */
void tool_cycles_ops(const struct tool_cycles *c, uint32_t core, FILE *out);
/* What the processor counted; and what the kernel did, with the reason if the processor has nothing. */
void tool_cycles_cpu(const struct tool_cycles *c, uint32_t core, FILE *out);

/* All of it. */
json_t *tool_cycles_json(const struct tool_cycles *c, uint32_t core);

#endif
