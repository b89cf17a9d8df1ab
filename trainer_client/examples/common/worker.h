/* What the examples of remote calls have in common: the options by which workers find each other, joining,
 * and saying what failed. */
#ifndef EXAMPLES_WORKER_H
#define EXAMPLES_WORKER_H

#include <stdint.h>
#include <millrace_rpc.h>
#include "dataplane/wire/base/cli.h"

#define EXAMPLE_NOT_GIVEN UINT32_MAX

struct example_worker {
    const char *program;
    uint32_t rank, world_size; /* rank: EXAMPLE_NOT_GIVEN unless it was given */
    const char *master_addr, *key_file;
    uint32_t master_port;
};

/* A worker of `program` before its options are read. */
#define EXAMPLE_WORKER(name, size)                                                                           \
    {                                                                                                        \
        .program = (name), .rank = EXAMPLE_NOT_GIVEN, .world_size = (size), .master_addr = "127.0.0.1",      \
        .master_port = 29500                                                                                 \
    }

/* The options rank, world-size, master-addr, master-port and key-file; `world_max` is the largest world, and
 * `world_help` says which the default is. */
#define EXAMPLE_WORKER_OPTIONS(worker, world_max, world_help)                                                \
    {"rank", CLI_U32_IN(0, (world_max)-1), &(worker)->rank, "N",                                             \
     "this process's, 0 to world size - 1 (required)"},                                                      \
        {"world-size", CLI_U32_IN(1, world_max), &(worker)->world_size, "N",                                 \
         "processes in all; " world_help},                                                                   \
        {"master-addr", CLI_STRING, &(worker)->master_addr, "TEXT", "where rank 0 is; default 127.0.0.1"},   \
        {"master-port", CLI_U32_IN(1, 65535), &(worker)->master_port, "N",                                   \
         "UDP, where it listens; default 29500"},                                                            \
    {                                                                                                        \
        "key-file", CLI_STRING, &(worker)->key_file, "TEXT", "pre-shared key, as in docs/security.md"        \
    }

/* A pseudo-random number from 0 to below 1. */
float example_draw(uint64_t *state);
/* Seconds of a clock that only moves forward. */
double example_now_s(void);

/* Joins as `name`; checks the rank first. Ends the program with a line when it fails. */
struct mr_rpc *example_join(const struct example_worker *worker, const char *name,
                            struct mr_rpc_options *options);
/* "program: what: last error", and exit code 1 to return. */
int example_failed(const struct example_worker *worker, const char *what);
/* Leaves with the others, unless exit_code says that we failed: then they see a worker that died. Returns the
 * exit code. */
int example_leave(const struct example_worker *worker, struct mr_rpc *rpc, uint32_t timeout_ms,
                  int exit_code);

#endif
