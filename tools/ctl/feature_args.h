/* A feature's descriptor from a command line. Pure. */
#ifndef TOOL_FEATURE_ARGS_H
#define TOOL_FEATURE_ARGS_H

#include <stddef.h>
#include <stdint.h>
#include "mr_feature.h"
#include "dataplane/wire/base/cli.h"

/* The options' values as they stand on the command line; NULL or untouched where not given. */
struct tool_feature_args {
    struct mr_feature feature; /* numbers are parsed straight into it */
    uint32_t dim;
    uint64_t memory_mib, filter_mib;
    const char *shape, *dtype, *optimizer, *optimizer_args, *schedule, *init, *pooling, *admission, *eviction;
};

#define TOOL_FEATURE_OPTION_COUNT 26u

/* Defaults, and the option table's rows for them. */
void tool_feature_args_init(struct tool_feature_args *args,
                            struct cli_option rows[TOOL_FEATURE_OPTION_COUNT]);
/* For options of a feature that is there: those that are not given stay as they are in `is`. Then out is
 * what it shall be; what cannot be altered is the server's to refuse. */
void tool_feature_args_init_alter(struct tool_feature_args *args, const struct mr_feature *is,
                                  struct cli_option rows[TOOL_FEATURE_OPTION_COUNT]);
bool tool_feature_args_finish_alter(const struct tool_feature_args *args, struct mr_feature *out, char *error,
                                    size_t error_bytes);
/* kind: "table" or "variable". False with one line in `error` that names the option and what it takes. */
bool tool_feature_args_finish(const struct tool_feature_args *args, const char *kind, const char *name,
                              struct mr_feature *out, char *error, size_t error_bytes);

#endif
