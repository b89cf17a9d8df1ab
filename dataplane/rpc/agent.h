/* A worker's agent: the state machine behind struct mr_rpc. It stands on one endpoint, which both calls and
 * serves, and knows no socket, no NIC and no thread of its own but the executor's.
 *
 * Whoever moves the packets is its driver: a thread of a worker's program, or core 0 of a node. All of the
 * agent belongs to the thread that is inside ("enters") at the moment, apart from what is marked "any
 * thread". Others hand it work with mr_agent_submit() and wait on futures. Handlers of the endpoint and
 * timers run inside.
 *
 * Names: the agent of the worker is struct mr_rpc itself, so that what the program holds needs no wrapping.
 * Ids of contexts and references are (rank << MR_RPC_ID_SHIFT) | counter, unique in the world.
 */
#ifndef MR_RPC_AGENT_H
#define MR_RPC_AGENT_H

#include "dataplane/rpc/base/driver.h"
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "dataplane/rpc/world/member.h"

/* The endpoint is the driver's, made before, and destroyed after the agent. MR_INVALID_ARGUMENT,
 * MR_NO_MEMORY. */
enum mr_status mr_agent_create(const struct mr_agent_config *config, struct mr_rpc **out, char *error,
                               size_t error_bytes);
/* Going away, in this order, of which none may be left out:
 * inside: calls in flight end with MR_SHUTTING_DOWN, none begins, sessions end; */
void mr_agent_close(struct mr_rpc *agent);
/* not inside, while it is still driven: waits for the functions that run, and ends the executor's threads; */
void mr_agent_join(struct mr_rpc *agent);
/* nobody is inside or waits any more, or will; the endpoint is still there. Values of ours and what contexts
 * of others kept are freed. Futures, results, references and contexts that somebody still has stay what they
 * are until they are released, by any thread: gone(driver.self) is called when the last one has been, perhaps
 * within this call, and nothing is left of the agent then; the endpoint must be there until then. `gone` may
 * be NULL. */
void mr_agent_destroy(struct mr_rpc *agent, void (*gone)(void *driver));

/* How it stands with a node's world. Inside. */
enum mr_agent_end {
    MR_AGENT_GOES_ON,
    MR_AGENT_OVER,    /* there were others, and all of them have left or died */
    MR_AGENT_FENCED,  /* the others take us for dead */
    MR_AGENT_REFUSED, /* joining failed: `why` gets the line */
};
enum mr_agent_end mr_agent_end(const struct mr_rpc *agent, char *why, size_t why_bytes);
/* A node that is stopped, before it closes. Inside: no other worker's call begins from now on
 * (MR_SHUTTING_DOWN), those that run may still call; */
void mr_agent_retire(struct mr_rpc *agent);
/* inside: functions that still run, and answers that wait for memory; */
uint32_t mr_agent_unfinished(struct mr_rpc *agent);
/* inside: says to the others that we go: they take us for dead at once. Each call says it to those who have
 * not answered; false when all have, or are dead. */
bool mr_agent_say_goodbye(struct mr_rpc *agent);

/* ---- inside: the driver's side ---- */

/* Whether the op of this request is the agent's; then it is answered. */
bool mr_agent_on_request(struct mr_rpc *agent, const struct mr_request *request);
/* What this agent and its world are, for RPC_STATUS, which anybody may ask: answers it. */
void mr_agent_serve_status(struct mr_rpc *agent, const struct mr_request *request);
/* mr_agent_on_reply() and mr_agent_on_session(): world/member.h. */
/* Joins and serves from now on, if it was held; from the next turn on. */
void mr_agent_release(struct mr_rpc *agent);
/* Looks up those counters that are not counted as they change. */
void mr_agent_count(struct mr_rpc *agent);
/* Submitted work and timers. Returns when it wants to be called next at the latest. Follow it with a poll of
 * the endpoint. */
uint64_t mr_agent_turn(struct mr_rpc *agent, uint64_t now_us);

/* ---- any thread ---- */

/* As of the last mr_agent_count(). */
const struct mr_agent_counters *mr_agent_counters(const struct mr_rpc *agent);
struct mr_agent_driver *mr_agent_driver(struct mr_rpc *agent);
struct mr_functions *mr_agent_functions(struct mr_rpc *agent);

#endif
