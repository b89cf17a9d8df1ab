/* Workers of remote calls over loopback, each in a process of its own. */
#ifndef TEST_RPC_PROCESSES_H
#define TEST_RPC_PROCESSES_H

#include <stdint.h>
#include <sys/types.h>
#include "millrace_rpc.h"

/* Free a moment ago, and not given to anybody else by itself so soon. */
void rpc_free_address(char text[32]);
/* Joins as "w<rank>"; NULL, with the error on stderr, when it fails. options->rendezvous is set from
 * `address`. */
struct mr_rpc *rpc_join(uint32_t rank, uint32_t world_size, const char *address,
                        struct mr_rpc_options *options);
/* What the function returns is the process's exit code. */
pid_t rpc_in_process(int (*run)(uint32_t rank, const char *address), uint32_t rank, const char *address);
void rpc_expect_end(pid_t pid, int code);
void rpc_expect_killed(pid_t pid);
/* Ranks 0 to count - 1, all of which end with 0, but for `killed` (UINT32_MAX: none), which is killed. */
void rpc_run_world(int (*run)(uint32_t rank, const char *address), uint32_t count, uint32_t killed);

#endif
