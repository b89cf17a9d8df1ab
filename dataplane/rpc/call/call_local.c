/* Calls of functions of our own: no message, the executor's threads run them. */
#include <stdlib.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/call.h"

/* Before it can end: that is work, too, which is submitted later. */
static void begin_local(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, work);

    (void)agent;
    mr_future_arm(f, f->begun_us);
}

static enum mr_status copy_arguments(struct mr_rpc_call *call, const struct mr_call_order *order)
{
    size_t bytes = mr_values_copy_bytes(order->arguments, order->argument_count);

    if (bytes != 0) {
        call->copied = aligned_alloc(64, bytes);
        if (call->copied == NULL)
            return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the arguments", order->caller,
                                order->function);
    }
    mr_values_copy(order->arguments, order->argument_count, call->arguments, call->copied);
    call->argument_count = order->argument_count;
    mr_call_hold_references(call->agent, call->arguments, call->argument_count, true);
    return MR_OK;
}

static enum mr_status wrong_arguments(const struct mr_call_order *order, const struct mr_function *function)
{
    char text[192];

    mr_signature_describe(order->arguments, order->argument_count, text, sizeof(text));
    return mr_rpc_error(MR_WRONG_SIGNATURE, "%s: %s: it was called with (%s), and takes (%s)", order->caller,
                        order->function, text, function->arguments_text);
}

enum mr_status mr_call_start_local(struct mr_rpc *agent, struct mr_rpc_future *f,
                                   const struct mr_call_order *order)
{
    struct mr_function *function = mr_functions_find(&agent->functions, order->function);

    if (function == NULL)
        return mr_rpc_error(MR_UNKNOWN_FUNCTION, "%s: %s: this worker has no function of that name",
                            order->caller, order->function);
    if (!mr_signature_matches(&function->arguments, order->arguments, order->argument_count))
        return wrong_arguments(order, function);
    struct mr_rpc_call *call = mr_executing_new(agent, function, order->argument_count);

    if (call == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "%s: %s: no memory for the call", order->caller, order->function);
    enum mr_status status = copy_arguments(call, order);

    if (status != MR_OK) {
        mr_executing_free(call);
        return status;
    }
    call->caller = agent->config.rank;
    call->deadline_us = f->deadline_us;
    call->head = f->head;
    call->future = f;
    f->local = true;
    if ((function->flags & MR_RPC_INLINE) != 0) {
        mr_executing_run(call);
        mr_serving_end_inline(call);
        return MR_OK;
    }
    f->work.run = begin_local;
    mr_agent_submit(agent, &f->work);
    mr_serving_run_local(call);
    return MR_OK;
}
