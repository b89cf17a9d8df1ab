/* What came back from a call: values, and the memory they lie in. Small ones are copied into the result
 * itself; large ones stay in the reply's receive buffer, which is returned to the endpoint when the result is
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
    struct mr_call *kept;       /* the reply's; NULL: none */
    struct mr_long_in *kept_in; /* the same of a reply in parts */
    void *block;                /* malloc()ed, or NULL */
    struct mr_work freeing;
    struct mr_value values_inline[MR_RESULT_VALUES_INLINE];
    _Alignas(64) uint8_t bytes_inline[MR_RESULT_BYTES_INLINE];
};

/* Any thread: a copy of the values; references in it are the result's from now on. NULL: no memory; then
 * nothing was taken. */
struct mr_rpc_result *mr_result_copy(struct mr_rpc *agent, const struct mr_value *values, uint32_t count);
/* Inside: of a reply. *keep says whether what the reply lies in (call->wire, call->in) is the result's now.
 * NULL: no memory, or a malformed reply: *status says so, and no reference is left. */
struct mr_rpc_result *mr_result_of_reply(struct mr_rpc *agent, const struct mr_agent_call *call,
                                         const struct mr_message *reply, bool *keep, enum mr_status *status);

#endif
