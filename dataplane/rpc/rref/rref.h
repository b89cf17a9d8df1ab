/* References in an agent: what stands between struct mr_rref, which any thread may hold, and the state
 * machine of references.h, which belongs to whoever is inside.
 *
 * A struct mr_rref is one handle: the program's, or of a value that was received. It counts its own holders,
 * and holds once what it refers to. What the state machine knows of it is made when it is first needed
 * inside, and freed by submitted work. Released handles are kept for a while, so that one that is used
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
#include "dataplane/optimizer/versions.h"
#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/world/member.h"

/* ---- for the other parts of the library; any thread ---- */

uint64_t mr_rref_id(const struct mr_rref *rref);
/* On the owner, when the value is there: as mr_rref_local_value(). Else NULL; also when the function that was
 * to make it failed. */
const struct mr_value *mr_rref_value_now(struct mr_rref *rref);
/* On the owner: the value, when it is an object that `destroy` destroys. Else NULL. */
void *mr_rref_object(struct mr_rref *rref, void (*destroy)(void *object));
/* On the owner: the versions of a parameter (dataplane/optimizer/versions.h), there as long as the reference is
 * held. NULL: it is no parameter, or another worker's. For the rest of the library a parameter's value is an
 * object; mr_rref_to_here() copies its newest version. */
struct mr_versions *mr_parameter_versions(struct mr_rref *parameter);

/* ---- for the agent ---- */

struct mr_rrefs; /* an agent's */

/* Makes the agent's references, and its hooks for values. MR_NO_MEMORY. */
enum mr_status mr_rrefs_create(struct mr_rpc *agent, struct mr_rrefs **out);
/* Inside: messages that found no memory go out. Returns when it wants to be called again. NULL is fine. */
uint64_t mr_rrefs_tick(struct mr_rrefs *all, uint64_t now_us);
/* Inside; of an agent that is no worker, too. */
void mr_rrefs_died(struct mr_rpc *agent, uint32_t rank);
/* Inside: values of ours that somebody holds, and our holds of others'. NULL is fine. */
void mr_rrefs_count(const struct mr_rrefs *all, uint64_t *owned, uint64_t *holds);
/* Inside: whether others hold what is ours, or we what is theirs, so that we cannot leave; then one line,
 * unless `what` is NULL. */
bool mr_rrefs_held(const struct mr_rrefs *all, char *what, size_t bytes);
/* The op RPC_REFERENCE. */
void mr_outbox_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Inside, of mr_agent_close(): whoever waits for values or confirmations gets MR_SHUTTING_DOWN. NULL is
 * fine. */
void mr_rrefs_close(struct mr_rrefs *all);
/* Nobody is inside or waits any more, or will; the endpoint and the rest of the agent are still there. Values
 * are freed; handles stay until they are released. NULL is fine. */
void mr_rrefs_end(struct mr_rrefs *all);
/* All handles have been released. NULL is fine. */
void mr_rrefs_free(struct mr_rrefs *all);

/* ---- for calls ---- */

/* Any thread: NULL, or why it cannot be passed. */
const char *mr_rref_check(const struct mr_rpc *agent, const struct mr_rref *rref);
/* Any thread: one more handle, and one less, of each reference among the values. */
void mr_rrefs_retain(const struct mr_value *values, uint32_t count);
void mr_rrefs_release(const struct mr_value *values, uint32_t count);
/* Inside: whether taking in all the references of a message, and one mr_remote_came(), will not fail for want
 * of memory. */
bool mr_rrefs_reserve(struct mr_rrefs *all);

/* ---- for mr_remote(); inside ---- */

/* On the caller: the call that was to make this value never left. That it leaves is mr_rref_make(). */
void mr_remote_never(struct mr_rref *rref, enum mr_status status);
/* On the callee: a call of worker `from` whose result is to stay came; and that it, or one of ours, ended.
 * `result` is the receiver's (NULL when it failed), and so is an object in it, with what destroys it. */
enum mr_status mr_remote_came(struct mr_rpc *agent, uint32_t from, uint64_t reference, uint64_t fork);
void mr_remote_ended(struct mr_rpc *agent, uint64_t reference, enum mr_status status, const char *error,
                     struct mr_rpc_result *result, void (*destroy)(void *object));

#endif
