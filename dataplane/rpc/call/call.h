/* Calls of functions, on the caller's side. */
#ifndef MR_RPC_CALL_H
#define MR_RPC_CALL_H

#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/call/future.h"

struct mr_call_order {
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

/* Any thread, not inside. On success *out is held once for the caller. Errors known at once, with the
 * line. */
enum mr_status mr_call_start(struct mr_rpc *agent, const struct mr_call_order *order,
                             struct mr_rpc_future **out);
/* timeout_ms as in mr_rpc_call_options, as an absolute time. */
uint64_t mr_call_deadline_us(const struct mr_rpc *agent, uint32_t timeout_ms);

/* The rest of it, for calls of other ops whose answer are values: a future that counts as under way is
 * over. */
struct mr_rpc_future *mr_call_future(struct mr_rpc *agent, const char *name, uint32_t to,
                                     uint32_t timeout_ms);
void mr_call_forget(struct mr_rpc *agent, struct mr_rpc_future *future);
/* mr_agent_call.ended of such calls. */
bool mr_call_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                   const struct mr_message *reply);
/* Of its parts: one of ours; one more handle, or one less, of each reference. */
enum mr_status mr_call_start_local(struct mr_rpc *agent, struct mr_rpc_future *future,
                                   const struct mr_call_order *order);
void mr_call_hold_references(struct mr_rpc *agent, const struct mr_value *values, uint32_t count, bool hold);

#endif
