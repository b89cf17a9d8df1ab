/* What struct ps_rpc is made of. For ps/server/rpc_node.c, which is core 0's side, and ps/server/rpc_life.c,
 * which is main's. */
#ifndef PS_RPC_INTERNAL_H
#define PS_RPC_INTERNAL_H

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include "ps/server/rpc_modules.h"
#include "ps/server/rpc_node.h"

struct ps_rpc {
    /* Set at creation and start. */
    const struct ps_config *config;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t incarnation;
    cpu_set_t places; /* of threads that run functions */
    struct dp *dp;
    struct dp_core *core;

    /* Core 0's; `agent` also of whoever has had core 0 make it. */
    struct mr_rpc *agent; /* from start to stop: one after the other */
    uint64_t next_us;     /* when the agent wants its turn */
    bool stirred;         /* something came for it since its last one */
    bool closed;          /* the agent is */
    bool end_reported;    /* its world has ended, and the keeper knows */
    enum mr_agent_end end;
    char why[MR_RPC_ERROR_BYTES];      /* written before the keeper is told */
    struct mr_agent_counters counters; /* of the agent there is */

    /* Main's and the keeper's, who makes the next agent when a world has ended. */
    struct ps_rpc_modules modules;
    pthread_t keeper;
    bool has_keeper;
    sem_t ended;
    _Atomic bool stopping;
};

/* Core 0: a new agent, which is held; when it fails the old one stays. */
enum mr_status ps_rpc_make_agent(struct ps_rpc *rpc, char *error, size_t error_bytes);

#endif
