/* Outcomes of calls in flight. A future is held by its user, by the agent until the call is over, and by
 * whoever hands it to the agent meanwhile; the last one frees it. */
#ifndef MR_RPC_FUTURE_H
#define MR_RPC_FUTURE_H

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

/* Any thread. One that is pending, held twice: by the caller, and for the agent. NULL: no memory. */
struct mr_rpc_future *mr_rpc_future_new(struct mr_rpc *agent, const char *function, uint32_t to);
/* Any thread. */
void mr_rpc_future_hold(struct mr_rpc_future *future);
void mr_rpc_future_put(struct mr_rpc_future *future);
/* The copies of arguments are needed no more. */
void mr_rpc_future_block_free(struct mr_rpc_future *future);
/* Inside: it ends at its deadline, if there is one; now_us may be a little in the past. The calls whose time
 * is up end; when the next one's is. */
void mr_rpc_future_arm(struct mr_rpc_future *future, uint64_t now_us);
uint64_t mr_rpc_future_tick(struct mr_rpc *agent, uint64_t now_us);
/* Inside: the call is over; the result (may be NULL) is the future's. `why` is the text after "function on
 * worker: ", NULL: the status' own. Only the first time counts. */
void mr_rpc_future_end(struct mr_rpc_future *future, enum mr_status status, const char *why,
                       struct mr_rpc_result *result);

#endif
