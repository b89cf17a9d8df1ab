/* A worker's agent: the state machine behind struct mr_rpc. It uses one endpoint to call and to serve, and
 * knows no sockets and no NIC. Its only threads are the executor's.
 *
 * A driver moves the packets: a thread of a worker's program, or core 0 of a node. At any moment at most one
 * thread is "inside" the agent (see enter() in base/driver.h), and the whole agent belongs to that thread,
 * except what is marked "any thread". Other threads submit work with mr_agent_submit() and wait for futures.
 * The endpoint's handlers and timers run inside.
 *
 * A worker's agent is struct mr_rpc itself, so that the program's handle needs no wrapper. Ids of contexts
 * and references are (rank << MR_RPC_ID_SHIFT) | counter, unique in the world.
 */
#ifndef MR_RPC_AGENT_H
#define MR_RPC_AGENT_H

#include "dataplane/rpc/base/driver.h"
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "dataplane/rpc/world/world.h"

/* Creates an agent. The driver owns the endpoint: it creates it before the agent, and destroys it after it.
 * MR_INVALID_ARGUMENT, MR_NO_MEMORY. */
enum mr_status mr_agent_create(const struct mr_agent_config *config, struct mr_rpc **out, char *error,
                               size_t error_bytes);

/* ---- the end of an agent: these three, in this order ---- */

/* Inside: calls in flight end with MR_SHUTTING_DOWN, no call begins, sessions are closed. */
void mr_agent_close(struct mr_rpc *agent);
/* Not inside, while the driver still polls: waits for running functions, and ends the executor's threads. */
void mr_agent_join(struct mr_rpc *agent);
/* When nobody is inside or waits, or ever will, and the endpoint still exists: frees this worker's values and
 * what other workers' contexts kept. Futures, results, references and contexts that a program still has stay
 * valid until any thread releases them. gone(driver.self), which may be NULL, is called when the last one has
 * been released, perhaps within this call: the endpoint must exist until then, and nothing of the agent is
 * left after that. */
void mr_agent_destroy(struct mr_rpc *agent, void (*gone)(void *driver));

/* ---- a node's world; inside ---- */

enum mr_agent_end {
    MR_AGENT_GOES_ON,
    MR_AGENT_OVER,    /* all programs have left or died; in a world of nodes, all other nodes have */
    MR_AGENT_FENCED,  /* the others regard this worker as dead, or have begun another world */
    MR_AGENT_REFUSED, /* joining failed: `why` gets the line */
};
/* Returns whether the world has ended. */
enum mr_agent_end mr_agent_end(const struct mr_rpc *agent, char *why, size_t why_bytes);

/* ---- inside: what the driver calls, with mr_agent_on_reply() and mr_agent_on_session() in world/ ---- */

/* Answers a request whose op is the agent's. Returns whether it is. */
bool mr_agent_on_request(struct mr_rpc *agent, const struct mr_request *request);
/* Answers RPC_STATUS, which anybody may send: the state of this agent and of its world. */
void mr_agent_serve_status(struct mr_rpc *agent, const struct mr_request *request);
/* Lets an agent that was held join and serve, from the next mr_agent_poll() on. */
void mr_agent_release(struct mr_rpc *agent);
/* Updates the counters that are not counted as they change. */
void mr_agent_count(struct mr_rpc *agent);
/* Runs submitted work and timers. Returns the time by which it must be called again. Poll the endpoint
 * after it. */
uint64_t mr_agent_poll(struct mr_rpc *agent, uint64_t now_us);

/* ---- any thread ---- */

/* Returns the counters as of the last mr_agent_count(). */
const struct mr_agent_counters *mr_agent_counters(const struct mr_rpc *agent);
struct mr_agent_driver *mr_agent_driver(struct mr_rpc *agent);
struct mr_functions *mr_agent_functions(struct mr_rpc *agent);

#endif
