/* This node in a world of workers: the agent (dataplane/rpc/agent.h) that core 0 drives, over the
 * endpoint that also serves the tables' clients.
 *
 * The agent belongs to core 0's thread. Functions run on threads of the agent, which keep off the data cores'
 * CPUs; their results wake core 0 if it sleeps. Other threads call functions as any program does
 * (millrace_rpc.h).
 *
 * Order: create, dp_start() (which starts the agent on core 0), load, start_modules, open, close, dp_stop(),
 * destroy.
 */
#ifndef PS_RPC_NODE_H
#define PS_RPC_NODE_H

#include "dataplane/dataplane.h"
#include "dataplane/rpc/agent.h"
#include "ps/config/config.h"

struct ps_node;
struct ps_rpc;

/* ---- main's thread ---- */

/* Creates the worker of a node whose rpc.world_size is not 0; the node's configuration and parameters must
 * outlive it. Call it before the data plane starts, whose threads get other CPUs. NULL: no memory. */
struct ps_rpc *ps_rpc_create(const struct ps_node *node);
/* Configure the data plane for it: core 0's endpoint makes calls. */
void ps_rpc_dp_config(const struct ps_rpc *rpc, struct dp_config *out);
void ps_rpc_dp_app(struct dp_app *app);
/* Loads the modules, and starts them: after a restore, so that they find their parameters. Status and line
 * are those of ps/server/rpc_modules.h. */
enum mr_status ps_rpc_load(struct ps_rpc *rpc, char *error, size_t error_bytes);
enum mr_status ps_rpc_start_modules(struct ps_rpc *rpc, char *error, size_t error_bytes);
/* Lets others join and call from now on; before that they are asked to try again. When all of them have left
 * or died, makes a new worker and starts the modules again, for the next world. False: no thread could be
 * made for that. */
bool ps_rpc_open(struct ps_rpc *rpc);
/* Lets no more functions begin; returns when running functions have ended, their answers have been sent, and
 * the others know that this node stops. */
void ps_rpc_close(struct ps_rpc *rpc);
/* Call it after dp_stop(). NULL is allowed. */
void ps_rpc_destroy(struct ps_rpc *rpc);

/* ---- core 0's thread ---- */

/* Makes the agent. MR_NO_MEMORY, MR_INVALID_ARGUMENT, with a line in `error`. */
enum mr_status ps_rpc_start(struct ps_rpc *rpc, struct dp *dp, struct dp_core *core, uint32_t incarnation,
                            char error[DP_ERROR_BYTES]);
/* Polls the agent; returns when that is due again. */
uint64_t ps_rpc_poll(struct ps_rpc *rpc, uint64_t now_us);
/* Updates the counters that are not counted as they change. */
void ps_rpc_count(struct ps_rpc *rpc);
/* The core has polled for the last time. */
void ps_rpc_stop(struct ps_rpc *rpc);

#endif
