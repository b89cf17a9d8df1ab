/* Calls of functions, on the caller's side. */
#ifndef MR_RPC_CALL_H
#define MR_RPC_CALL_H

#include "dataplane/rpc/call/future.h"

struct mr_rpc_order {
    const char *caller; /* the public function, for error lines */
    uint32_t to;
    const char *function;
    const struct mr_value *arguments;
    uint32_t argument_count;
    const struct mr_rpc_call_options *options; /* may be NULL */
    uint32_t flags;                            /* enum mr_rpc_head_flag */
    struct mr_rref *rref;                      /* MR_RPC_REMOTE: of what the function will return */
    bool waits; /* the caller waits for it at once: it need not be sent before */
};

/* The future of a call whose answer are values; it counts as in flight. NULL: no memory. */
struct mr_rpc_future *mr_rpc_future_begin(struct mr_rpc *agent, const char *name, uint32_t to,
                                          uint32_t timeout_ms);
/* mr_agent_call.ended of such calls. */
bool mr_rpc_future_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                         const struct mr_message *reply);

/* ---- call_local.c ---- */

/* A call of a function of ours. */
enum mr_status mr_local_call_start(struct mr_rpc *agent, struct mr_rpc_future *future,
                                   const struct mr_rpc_order *order);
/* If it has not begun it will not. */
void mr_local_call_cancel(struct mr_rpc *agent, const struct mr_rpc_future *future);

/* ---- call_fetch.c; inside ---- */

/* The op RPC_FETCH. */
void mr_fetch_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Answers for which there was no memory, or whose parameter was being changed, again. */
void mr_fetch_retry(struct mr_rpc *agent);
/* Nobody will answer these any more. */
void mr_fetch_drop_all(struct mr_rpc *agent);

#endif
