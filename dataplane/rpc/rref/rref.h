/* References in an agent: connects struct mr_rref, which any thread may hold, with the state machine of
 * rref_count.h, which belongs to the thread inside.
 *
 * A struct mr_rref is one handle: one that the program made, or that came with a value. It counts its own
 * holders, and holds once what it refers to. Its part in the state machine is made when it is first needed
 * inside, and freed by submitted work. Released handles are kept for a while, so that using one of them is an
 * error instead of a crash.
 *
 * The library's own functions ("mr.") take and return references as any other function does: arguments belong
 * to the call until the function returns (mr_rref_retain() keeps one), and mr_rpc_return() adds a hold of
 * what it returns.
 */
#ifndef MR_RPC_RREF_H
#define MR_RPC_RREF_H

#include <stdatomic.h>
#include "dataplane/optimizer/versions.h"
#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/world/member.h"

/* ---- for the other parts of the library; any thread that holds the reference ---- */

/* Returns a number that is the same on all workers for references to one value, and that no other value
 * has. */
uint64_t mr_rref_id(const struct mr_rref *rref);
/* On the owner: returns what mr_rref_local_value() returns, without waiting. NULL: the value does not exist
 * yet, or the function that was to make it failed. */
const struct mr_value *mr_rref_value_now(struct mr_rref *rref);
/* On the owner: returns the object, if the value is one that `destroy` destroys. Else NULL. */
void *mr_rref_object(struct mr_rref *rref, void (*destroy)(void *object));
/* On the owner: returns the versions of a parameter, valid while the reference is held. NULL: it is not a
 * parameter, or another worker owns it. For the rest of the library a parameter's value is an object;
 * mr_rref_to_here() copies its newest version. */
struct mr_versions *mr_parameter_versions(struct mr_rref *parameter);

/* ---- for the agent ---- */

struct mr_rrefs; /* all references of an agent */

/* Makes the agent's references, and its hooks for values. MR_NO_MEMORY. */
enum mr_status mr_rrefs_create(struct mr_rpc *agent, struct mr_rrefs **out);
/* Inside: sends messages for which there was no memory. Returns when to call it again. `all` may be NULL. */
uint64_t mr_rrefs_tick(struct mr_rrefs *all, uint64_t now_us);
/* Inside: a worker died. The agent need not be a worker. */
void mr_rrefs_died(struct mr_rpc *agent, uint32_t rank);
/* Inside: counts the values of this worker that somebody holds, and its holds of others'. `all` may be
 * NULL. */
void mr_rrefs_count(const struct mr_rrefs *all, uint64_t *owned, uint64_t *holds);
/* Inside: returns whether others hold values of this worker, or it holds theirs, so that it cannot leave.
 * Writes one line about that, unless `what` is NULL. */
bool mr_rrefs_held(const struct mr_rrefs *all, char *what, size_t bytes);
/* Serves the op RPC_REFERENCE. */
void mr_outbox_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Inside, in mr_agent_close(): ends all waits for values and confirmations with MR_SHUTTING_DOWN. `all` may
 * be NULL. */
void mr_rrefs_close(struct mr_rrefs *all);
/* Releases the references to parameters with names, which would otherwise live as long as the agent. Any
 * thread, before mr_rrefs_end(). `all` may be NULL. */
void mr_rrefs_release_named(struct mr_rrefs *all);
/* Frees the values; handles stay until they are released. Nobody is inside or waits, or ever will; the
 * endpoint and the rest of the agent still exist. `all` may be NULL. */
void mr_rrefs_end(struct mr_rrefs *all);
/* Frees the rest, once all handles have been released. `all` may be NULL. */
void mr_rrefs_free(struct mr_rrefs *all);

/* Inside, in an open world: the worker has joined. `all` may be NULL. */
void mr_rrefs_joined(struct mr_rrefs *all, uint32_t rank);

/* ---- for calls ---- */

/* Any thread: returns why the reference cannot be passed; NULL: it can. */
const char *mr_rref_check(const struct mr_rpc *agent, const struct mr_rref *rref);
/* Any thread: add and release one hold of each reference among the values. */
void mr_rrefs_retain(const struct mr_value *values, uint32_t count);
void mr_rrefs_release(const struct mr_value *values, uint32_t count);
/* Inside: reserves the memory to take in all references of a message, and for one mr_remote_came(). False:
 * there is none. */
bool mr_rrefs_reserve(struct mr_rrefs *all);

/* ---- for mr_remote(); inside ---- */

/* On the caller: the call that was to make this value never left. (mr_rref_make() says that it leaves.) */
void mr_remote_never(struct mr_rref *rref, enum mr_status status);
/* On the callee: a call of worker `from` came, whose result stays here. */
enum mr_status mr_remote_came(struct mr_rpc *agent, uint32_t from, uint64_t reference, uint64_t fork);
/* Such a call ended, or one of this worker's to itself. Takes `result` (NULL when it failed), and an object
 * in it, which `destroy` destroys. */
void mr_remote_ended(struct mr_rpc *agent, uint64_t reference, enum mr_status status, const char *error,
                     struct mr_rpc_result *result, void (*destroy)(void *object));

#endif
