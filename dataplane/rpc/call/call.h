/* Calls of functions on the caller's side, and their outcomes. A future is held by its user, by the agent
 * until the call is over, and by whoever hands it to the agent in between; the last one frees it. */
#ifndef MR_RPC_CALL_H
#define MR_RPC_CALL_H

#include <stdatomic.h>
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/world/member.h"
#include "dataplane/wire/base/timer_wheel.h"

#define MR_RPC_FUTURE_BYTES_INLINE 192u
#define MR_RPC_FUTURE_THEN         4u /* bit of the word, beside MR_DONE and MR_DONE_SLEEPER */

struct mr_rpc_future {
    _Atomic uint32_t word;
    _Atomic uint32_t holds;
    struct mr_rpc *agent;

    /* Written before MR_DONE. */
    enum mr_status status;
    struct mr_rpc_result *result;
    mr_rpc_then_run then;
    void *then_user;
    struct mr_job then_job;

    /* Of a call of a function, see call.c. */
    struct mr_work work, cancel_work;
    _Atomic bool cancelled;
    bool ended; /* inside */
    bool local; /* our own function: `call` holds only `to` */
    /* Has no deadline of its own: its answer may bring references, and is waited for when the future has
     * ended long since. */
    struct mr_agent_call call;
    struct mr_timer timer; /* inside: for the deadline */
    uint64_t begun_us, deadline_us;
    struct mr_rpc_head head;
    struct mr_rref *rref; /* MR_RPC_REMOTE, fetches: held until the call is over */
    uint64_t *passed; /* words of the references among the arguments, in case it never leaves; NULL: none */
    uint32_t passed_count;
    struct mr_value *waiting; /* copies of arguments that wait to be sent, in bytes_inline or in block */
    uint32_t waiting_count;
    void *block;
    uint64_t reserved_bytes; /* of the memory for long messages, for the block */
    char function[MR_RPC_NAME_BYTES];
    char error[MR_RPC_ERROR_BYTES]; /* the whole line, when status is not MR_OK */
    _Alignas(64) uint8_t bytes_inline[MR_RPC_FUTURE_BYTES_INLINE];
};

struct mr_rpc_order {
    const char *caller; /* the public function, for error lines */
    uint32_t to;
    const char *function;
    const struct mr_value *arguments;
    uint32_t argument_count;
    const struct mr_rpc_call_options *options; /* may be NULL */
    uint32_t flags;                            /* enum mr_rpc_head_flag */
    struct mr_rref *rref;                      /* MR_RPC_REMOTE: of what the function will return */
    bool waits; /* the caller waits for it at once, so it need not be sent before */
};

/* Any thread. Begins a call whose answer is values: a future that is pending, counts as in flight, and is
 * held twice, by the caller and for the agent. NULL: no memory. */
struct mr_rpc_future *mr_rpc_future_begin(struct mr_rpc *agent, const char *name, uint32_t to,
                                          uint32_t timeout_ms);
/* Any thread. */
void mr_rpc_future_put(struct mr_rpc_future *future);
/* Inside: the call ends at its deadline, if it has one; now_us may be a little in the past. */
void mr_rpc_future_arm(struct mr_rpc_future *future, uint64_t now_us);
/* Inside: ends the calls whose time is up. Returns when the next one's is. */
uint64_t mr_rpc_future_tick(struct mr_rpc *agent, uint64_t now_us);
/* mr_agent_call.ended of such calls. */
bool mr_rpc_future_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                         const struct mr_message *reply);
/* Inside: ends the call; `result` (may be NULL) becomes the future's. `why` is the text after "function on
 * worker: ", or NULL for the status' own text. Only the first end counts. */
void mr_rpc_future_end(struct mr_rpc_future *future, enum mr_status status, const char *why,
                       struct mr_rpc_result *result);

/* ---- call_fetch.c; inside ---- */

/* The op RPC_FETCH. */
void mr_fetch_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Tries the answers again for which there was no memory, or whose parameter was being changed. */
void mr_fetch_retry(struct mr_rpc *agent);
/* Answers all of these with MR_SHUTTING_DOWN. */
void mr_fetch_drop_all(struct mr_rpc *agent);

#endif
