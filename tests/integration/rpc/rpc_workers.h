/* Workers of a world, in the test's own process; each has a function "whoami" that returns its name. For
 * cmocka tests. */
#ifndef TESTS_RPC_WORKERS_H
#define TESTS_RPC_WORKERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "millrace_rpc.h"

#define RPC_WORKERS_MAX 8u

struct rpc_workers {
    const char *rendezvous;
    uint32_t world_size;
    uint32_t dead_after_ms; /* 0: the default */
    bool meet_at_first;     /* the rendezvous is rank 0 of them; else a node */
    /* Of worker i of those that join together, in place of `rendezvous`, and its own address; NULL: as
     * usual. */
    const char *places[RPC_WORKERS_MAX], *listens[RPC_WORKERS_MAX];
    uint32_t count;
    struct mr_rpc *rpcs[RPC_WORKERS_MAX];
};

/* Workers "w1", "w2", ... of ranks first, first + 1, ...; returns when the world is complete. */
void rpc_workers_join(struct rpc_workers *workers, uint32_t first, uint32_t count);
/* All of them leave together; the status of each is to be this. */
void rpc_workers_leave(struct rpc_workers *workers, enum mr_status expected);
/* One that joins in a process of its own, does `then` (may be NULL), and nothing but serve until it is
 * killed. Before this process has threads. */
pid_t rpc_workers_fork(const struct rpc_workers *workers, uint32_t rank, void (*then)(struct mr_rpc *rpc));

/* The call fails so, and its line says `says`. */
void rpc_workers_refused(enum mr_status got, enum mr_status expected, const char *says);
/* Calls a function that returns one i64, or one string. */
int64_t rpc_workers_i64(struct mr_rpc *rpc, uint32_t to, const char *function,
                        const struct mr_value *arguments, uint32_t argument_count);
void rpc_workers_string(struct mr_rpc *rpc, uint32_t to, const char *function,
                        const struct mr_value *arguments, uint32_t argument_count, const char *expected);

#endif
