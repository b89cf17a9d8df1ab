/* What the examples of remote calls have in common: the options by which workers find each other, joining,
 * and saying what failed. */
#ifndef EXAMPLES_WORKER_H
#define EXAMPLES_WORKER_H

#include <stdint.h>
#include <millrace_rpc.h>
#include "trainer_client/examples/common/options.h"

#define EXAMPLE_NOT_GIVEN UINT32_MAX

struct example_worker {
    const char *program;
    uint32_t rank, world_size; /* rank: EXAMPLE_NOT_GIVEN unless it was given */
    const char *master_addr, *key_file;
    uint32_t master_port;
};

/* The options rank, world-size, master-addr, master-port and key-file; `world_max` is the largest world. */
#define EXAMPLE_WORKER_OPTIONS(worker, world_max)                                                            \
    {"rank",       "this process's, 0 to world size - 1 (required)", EXAMPLE_NUMBER, &(worker)->rank, 0,     \
     (world_max)-1},                                                                                         \
        {"world-size", "processes in all", EXAMPLE_NUMBER, &(worker)->world_size, 1, (world_max)},           \
        {"master-addr", "where rank 0 is", EXAMPLE_TEXT, &(worker)->master_addr, 0, 0},                      \
        {"master-port", "UDP, where it listens", EXAMPLE_NUMBER, &(worker)->master_port, 1, 65535},          \
    {                                                                                                        \
        "key-file", "pre-shared key, as in docs/security.md", EXAMPLE_TEXT, &(worker)->key_file, 0, 0        \
    }
#define EXAMPLE_WORKER_OPTION_COUNT 5u

/* Joins as `name`; checks the rank first. Ends the program with a line when it fails. */
struct mr_rpc *example_join(const struct example_program *program, const struct example_worker *worker,
                            const char *name, struct mr_rpc_options *options);
/* "program: what: last error", and exit code 1 to return. */
int example_failed(const struct example_worker *worker, const char *what);
/* Leaves with the others, unless exit_code says that we failed: then they see a worker that died. Returns the
 * exit code. */
int example_leave(const struct example_worker *worker, struct mr_rpc *rpc, uint32_t timeout_ms,
                  int exit_code);

#endif
