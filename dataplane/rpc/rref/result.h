/* The result of a call: values, and the memory that holds them. Small values are copied into the result
 * itself; large ones stay in the reply's receive buffer, which goes back to the endpoint when the result is
 * freed. */
#ifndef MR_RPC_RESULT_H
#define MR_RPC_RESULT_H

#include "dataplane/rpc/base/work.h"
#include "dataplane/rpc/world/member.h"

#define MR_RESULT_VALUES_INLINE 2u
#define MR_RESULT_BYTES_INLINE  256u
#define MR_RESULT_BYTES_COPIED  4096u /* larger replies stay where they are */

struct mr_rpc_result {
    struct mr_rpc *agent;
    struct mr_value *values;
    uint32_t count;
    struct mr_call *kept;       /* the call whose reply holds the values; NULL: none */
    struct mr_long_in *kept_in; /* the same for a reply in parts */
    void *block;                /* malloc()ed, or NULL */
    struct mr_work freeing;
    struct mr_value values_inline[MR_RESULT_VALUES_INLINE];
    _Alignas(64) uint8_t bytes_inline[MR_RESULT_BYTES_INLINE];
};

/* Any thread: makes a result with a copy of the values, and takes over the references in them. NULL: no
 * memory; nothing was taken over. */
struct mr_rpc_result *mr_result_copy(struct mr_rpc *agent, const struct mr_value *values, uint32_t count);
/* Inside: makes a result from a reply. *keep says whether the memory of the reply (call->wire, call->in)
 * belongs to the result now. NULL: no values, no memory, or a malformed reply, as *status says; then no
 * reference is left. */
struct mr_rpc_result *mr_result_of_reply(struct mr_rpc *agent, const struct mr_agent_call *call,
                                         const struct mr_message *reply, bool *keep, enum mr_status *status);

#endif
