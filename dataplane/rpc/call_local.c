/* Calls of functions of our own: no message, the executor's threads run them. */
#include <stdlib.h>
#include "dataplane/rpc/agent_internal.h"
#include "dataplane/rpc/call.h"

static struct mr_rpc_future *of_work(struct mr_work *work)
{
    return (struct mr_rpc_future *)(void *)((uint8_t *)work - offsetof(struct mr_rpc_future, work));
}

static void list_local(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = of_work(work);

    f->listed = true;
    f->next = agent->locals;
    f->before = &agent->locals;
    if (f->next != NULL)
        f->next->before = &f->next;
    agent->locals = f;
}

void mr_call_forget_local(struct mr_rpc *agent, struct mr_rpc_future *f)
{
    if (!f->listed)
        return;
    f->listed = false;
    *f->before = f->next;
    if (f->next != NULL)
        f->next->before = f->before;
}

uint64_t mr_call_local_turn(struct mr_rpc *agent, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    struct mr_rpc_future *next;

    for (struct mr_rpc_future *f = agent->locals; f != NULL; f = next) {
        next = f->next;
        if (f->call.deadline_us > now_us) {
            if (f->call.deadline_us < next_us)
                next_us = f->call.deadline_us;
            continue;
        }
        mr_call_forget_local(agent, f);
        mr_future_end(f, MR_DEADLINE_EXCEEDED, "it did not end within the call's time-out", NULL);
    }
    return next_us;
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

    mr_signature_describe(order->arguments, order->argument_count, text, sizeof text);
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
    call->deadline_us = f->call.deadline_us;
    call->head = f->head;
    call->future = f;
    f->local = true;
    if ((function->flags & MR_RPC_INLINE) != 0) {
        mr_executing_run(call);
        mr_serving_end_local(call);
        return MR_OK;
    }
    f->work.run = list_local;
    mr_agent_submit(agent, &f->work);
    mr_serving_run_local(call);
    return MR_OK;
}
