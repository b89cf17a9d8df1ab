/* Requests for functions of this worker: from the message to the executor, and back to an answer. Functions
 * are called inside, unless their comment says otherwise. */
#ifndef MR_RPC_SERVING_H
#define MR_RPC_SERVING_H

#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/world/member.h"

/* Serve the ops RPC_CALL and RPC_CANCEL. */
void mr_serving_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
void mr_serving_cancel(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Try again the answers for which there was no memory, or answer all of them with MR_SHUTTING_DOWN. */
void mr_serving_retry(struct mr_rpc *agent);
void mr_serving_drop_all(struct mr_rpc *agent);

/* ---- answers ---- */

enum mr_answered {
    MR_ANSWER_LATER, /* there is no memory for it at the moment */
    MR_ANSWER_SENT,
    MR_ANSWER_HELD, /* it is sent in parts: the values must stay until release(of) is called */
};
struct mr_answer_hold {
    void (*release)(void *of);
    void *of;
};
/* Answers worker `to` with these values, of a call in `context` (0: none), or with an error if they cannot
 * travel. */
enum mr_answered mr_serving_reply(struct mr_rpc *agent, struct mr_call_ref ref, uint32_t to, uint64_t context,
                                  const struct mr_value *values, uint32_t count, struct mr_answer_hold hold);

/* ---- shared with calls of a worker's own functions ---- */

/* Any thread: runs the function of a call on this thread, in its context, and checks the results against the
 * signature. call->status and call->error have the outcome. The function cannot postpone the call. */
void mr_function_run(struct mr_rpc_call *call);

/* Any thread: returns the job for the executor. */
struct mr_job mr_serving_job(struct mr_rpc_call *call, void (*run)(struct mr_job *job));
/* On the executor's thread: runs the function, unless there is no thread for it or the caller's time is up,
 * as call->status then says. Then calls `end`, which submits the call's end quietly: on this thread, or, if
 * the function postponed the call, on the one that finishes it. */
void mr_serving_run(struct mr_rpc_call *call, void (*end)(struct mr_rpc_call *call));
/* Keeps the result of a call by mr_remote() on this worker; it belongs to the references from now on. */
void mr_serving_keep(struct mr_rpc_call *call);

#endif
