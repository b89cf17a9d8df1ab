/* A run: its clients, and what they have counted, block by block. */
#ifndef TOOL_LOAD_RUN_H
#define TOOL_LOAD_RUN_H

#include "tools/bench/load_report.h"
#include "tools/bench/worker.h"
#include "tools/connection.h"

struct tool_load_run {
    const struct tool_bench_plan *plan;
    const atomic_bool *stop;
    struct tool_worker *workers; /* [plan->clients] */
    uint32_t connected, started;
    bool is_over; /* the threads have ended */
    struct tool_bench_times times;
    uint64_t block_ns;             /* end of the last block */
    struct tool_load_stats before; /* up to there */
    struct tool_load_block total;
};

/* Connects the clients; each makes a call for what the plan names. 0, or the exit code after one line;
 * tool_load_run_fini() is to be called all the same. */
int tool_load_run_init(struct tool_load_run *r, const char *command, const struct tool_connection *c,
                       const struct tool_bench_plan *plan, const atomic_bool *stop);
/* Starts them all. 0, or the exit code after one line. */
int tool_load_run_start(struct tool_load_run *r, const char *command);
/* Waits for the end of the next block, or of the run, and sets *block to what came in it. False: there was no
 * further one; `total` is complete then. */
bool tool_load_run_next(struct tool_load_run *r, struct tool_load_block *block);
/* The text of the first failure of the first client that had one; "": none had. After the end. */
const char *tool_load_run_first_error(const struct tool_load_run *r);
/* Disconnects the clients. Those that run must have been told to stop. */
void tool_load_run_fini(struct tool_load_run *r);

#endif
