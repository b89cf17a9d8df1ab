/* This node in a world of workers: the agent (dataplane/rpc/agent.h) that core 0 drives, over the
 * endpoint that also serves the tables' clients.
 *
 * All of the agent belongs to core 0's thread. Functions run on threads of the agent's own, which keep off
 * the data cores' CPUs; what they hand back wakes core 0 if it sleeps. Other threads call functions like
 * anybody else (millrace_rpc.h).
 *
 * Life: create, dp_start() (which starts the agent on core 0), load, open, close, dp_stop(), destroy.
 */
#ifndef PS_RPC_NODE_H
#define PS_RPC_NODE_H

#include "dataplane/dataplane.h"
#include "dataplane/rpc/agent.h"
#include "ps/config/config.h"

struct ps_rpc;

/* ---- main's thread ---- */

/* For a node whose rpc.world_size is not 0. NULL: no memory. `config` stays. Before the data plane, whose
 * threads have other places. */
struct ps_rpc *ps_rpc_create(const struct ps_config *config);
/* What the data plane is to know: core 0's endpoint calls. */
void ps_rpc_dp_config(const struct ps_rpc *rpc, struct dp_config *out);
void ps_rpc_dp_app(struct dp_app *app);
/* Loads the modules, and has them start. Their status and line, see ps/server/rpc_modules.h. */
enum mr_status ps_rpc_load(struct ps_rpc *rpc, char *error, size_t error_bytes);
/* Others may join and call from now on. Before that they are told to try again. When all of them have gone,
 * the worker is made anew, and modules are started anew, for the next world. False: no thread could be made
 * for that. */
bool ps_rpc_open(struct ps_rpc *rpc);
/* No function begins any more; returns when those that run have ended, their answers are sent, and the others
 * know that we go. */
void ps_rpc_close(struct ps_rpc *rpc);
/* After dp_stop(). NULL is fine. */
void ps_rpc_destroy(struct ps_rpc *rpc);

/* ---- core 0's thread ---- */

/* Makes the agent. MR_NO_MEMORY, MR_INVALID_ARGUMENT, with a line in `error`. */
enum mr_status ps_rpc_start(struct ps_rpc *rpc, struct dp *dp, struct dp_core *core, uint32_t incarnation,
                            char error[DP_ERROR_BYTES]);
/* The agent's part of core_poll. */
void ps_rpc_poll(struct ps_rpc *rpc, uint64_t now_us);
/* Looks up those counters that are not counted as they change. */
void ps_rpc_count(struct ps_rpc *rpc);
/* The core's last turn is over. */
void ps_rpc_stop(struct ps_rpc *rpc);

#endif
