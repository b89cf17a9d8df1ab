/* The table and the variable that a load is for: made for the run and dropped after it, or a table that is
 * there already, which only changes if the user says so. */
#ifndef TOOL_LOAD_TABLE_H
#define TOOL_LOAD_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include "millrace.h"
#include "tools/bench/plan.h"

/* What the server has left out of the table's calls. */
struct tool_drop_stats {
    uint64_t rows_refused, gradients_without_row, gradients_skipped;
};

struct tool_load_table {
    const char *command;
    struct mr_client *client;
    char name[MR_NAME_BYTES];     /* of the table; "": the mix needs none */
    char variable[MR_NAME_BYTES]; /* the same */
    bool is_own;                  /* the table is dropped at the end */
    bool has_table, has_variable; /* they have been made */
    struct tool_drop_stats before;
};

/* Makes what the plan's mix needs, or finds `existing` (NULL: a table of the run's own); completes the plan.
 * 0, or the exit code after one line; tool_load_table_drop() is to be called all the same. */
int tool_load_table_make(struct tool_load_table *t, struct tool_bench_plan *plan, const char *existing,
                         bool write_existing);
/* Makes the plan's first rows, unless `stop` is set meanwhile. Progress goes to standard error if that is a
 * terminal. */
int tool_load_table_preload(const struct tool_load_table *t, const struct tool_bench_plan *plan,
                            const atomic_bool *stop);
/* What has been left out since tool_load_table_make(). False: the server does not say. */
bool tool_load_table_drop_stats(const struct tool_load_table *t, struct tool_drop_stats *out);
/* Drops what was made; waits for a save that is being written. */
int tool_load_table_drop(struct tool_load_table *t);

#endif
