/* Requests for our functions: from the message to the executor, and back to an answer. Inside, unless said
 * otherwise. */
#ifndef MR_RPC_SERVING_H
#define MR_RPC_SERVING_H

#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/world/member.h"

/* The ops RPC_CALL and RPC_CANCEL. */
void mr_serving_request(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
void mr_serving_cancel(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Answers for which there was no memory: again; and none of them any more. */
void mr_serving_retry(struct mr_rpc *agent);
void mr_serving_drop_all(struct mr_rpc *agent);

/* ---- answers ---- */

enum mr_answered {
    MR_ANSWER_LATER, /* there is no memory for it now */
    MR_ANSWER_SENT,
    MR_ANSWER_HELD, /* it is sent in parts: the values must stay until release(of) */
};
struct mr_answer_hold {
    void (*release)(void *of);
    void *of;
};
/* The answer is these values, of a call in `context` (0: none), for worker `to`, or says why they cannot
 * travel. */
enum mr_answered mr_serving_reply(struct mr_rpc *agent, struct mr_call_ref ref, uint32_t to, uint64_t context,
                                  const struct mr_value *values, uint32_t count, struct mr_answer_hold hold);

/* ---- shared with calls of our own functions ---- */

/* Runs the function of a call on this thread, in its context, and checks the results against the signature.
 * call->status and call->error have the outcome. Any thread. */
void mr_function_run(struct mr_rpc_call *call);

/* What the executor gets. Any thread. */
struct mr_job mr_serving_job(struct mr_rpc_call *call, void (*run)(struct mr_job *job));
/* On the executor's thread: runs the function, unless no thread can be had or the caller's time is up;
 * call->status says so then. */
void mr_serving_run(struct mr_rpc_call *call);
/* Of a call by mr_remote(): the result stays here, the references' from now on. */
void mr_serving_keep(struct mr_rpc_call *call);

#endif
