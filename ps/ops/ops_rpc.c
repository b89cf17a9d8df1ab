/* Calls between workers: to the agent, if there is one. */
#include "ps/ops/ops.h"
#include "ps/server/rpc_node.h"

void ps_op_rpc(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_core *core = core_app;
    if (core->rpc != NULL) {
        ps_rpc_request(core->rpc, ep, request);
    } else if (core->index != 0) {
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP,
                       "remote calls go to core 0 of a node: its first port");
    } else {
        mr_reply_error(ep, request->ref, MR_UNKNOWN_OP,
                       "this node takes no part in remote calls: set rpc.world_size in its configuration");
    }
}
