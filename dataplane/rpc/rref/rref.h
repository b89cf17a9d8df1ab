/* References in an agent: what stands between struct mr_rref, which any thread may hold, and the state
 * machine of references.h, which belongs to whoever is inside.
 *
 * A struct mr_rref is one handle: the program's, or of a value that was received. It counts its own holders,
 * and holds once what it refers to. What the state machine knows of it is made when it is first needed
 * inside, and let go by submitted work. Released handles are kept for a while, so that one that is used
 * afterwards is an error instead of a crash.
 *
 * For the other parts of the library (a struct mr_rref that the caller holds, any thread):
 *   - mr_rref_id() is the same on all workers for references to the same value, and no two values ever have
 *     the same;
 *   - mr_rref_owner() and mr_rref_is_owner() are the public ones;
 *   - on the owner, mr_rref_value_now() is the value, without waiting; mr_rref_local_value() waits for it. An
 *     object is the pointer that mr_rref_create() or mr_rpc_return_object() was given;
 *   - functions of the library's own ("mr.") take and return references as any other does: arguments are the
 *     call's until the function returns (mr_rref_retain() keeps one), mr_rpc_return() holds what it returns
 *     once more.
 */
#ifndef MR_RPC_RREF_H
#define MR_RPC_RREF_H

#include <stdatomic.h>
#include "dataplane/rpc/agent.h"

/* ---- for the other parts of the library; any thread ---- */

uint64_t mr_rref_id(const struct mr_rref *rref);
/* On the owner, when the value is there: as mr_rref_local_value(). Else NULL; also when the function that was
 * to make it failed. */
const struct mr_value *mr_rref_value_now(struct mr_rref *rref);
/* On the owner: the value, when it is an object that `destroy` destroys. Else NULL. */
void *mr_rref_object(struct mr_rref *rref, void (*destroy)(void *object));

/* ---- for the agent ---- */

struct mr_rrefs; /* an agent's */

/* Makes the agent's references and sets its hooks. MR_NO_MEMORY. */
enum mr_status mr_rrefs_create(struct mr_rpc *agent, struct mr_rrefs **out);
/* Inside, of mr_agent_close(): whoever waits for values or confirmations gets MR_SHUTTING_DOWN. NULL is
 * fine. */
void mr_rrefs_close(struct mr_rrefs *all);
/* Nobody is inside or waits any more, or will; the endpoint and the rest of the agent are still there. Values
 * are freed; handles stay until they are released. NULL is fine. */
void mr_rrefs_end(struct mr_rrefs *all);
/* All handles have been released. NULL is fine. */
void mr_rrefs_free(struct mr_rrefs *all);
/* Handles that somebody holds. For tests. Any thread. */
uint32_t mr_rrefs_alive(const struct mr_rrefs *all);

#endif
