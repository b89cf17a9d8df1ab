/* The command line of millrace bench: read, and checked as far as that needs no server. */
#ifndef TOOL_BENCH_OPTIONS_H
#define TOOL_BENCH_OPTIONS_H

#include "tools/bench/plan.h"
#include "tools/connection.h"
#include "tools/ctl/feature_args.h"

struct tool_bench_options {
    struct tool_connection connection;
    struct tool_bench_plan plan;
    const char *keys, *keys_per_call, *mix, *arrivals, *wire_dtype, *table, *out;
    bool write_existing;
    struct tool_feature_args feature;
    uint32_t dim; /* 0: not given */
};

#define TOOL_BENCH_COMMAND "millrace bench"

/* Ends the program after --help, and after a mistake. */
void tool_bench_options_read(struct tool_bench_options *o, int argc, char **argv);
/* The texts among the options, and what goes together. False with one line in `error`. Pure. */
bool tool_bench_options_finish(struct tool_bench_options *o, char *error, size_t error_bytes);
/* What tool_bench_options_read() begins with. */
void tool_bench_options_init(struct tool_bench_options *o);

#endif
