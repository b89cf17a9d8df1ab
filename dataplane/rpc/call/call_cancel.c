/* Cancelling a call of our own. */
#include <stdlib.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/wire/base/list.h"

struct cancel_message {
    struct mr_agent_call call;
};

static bool cancel_told(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                        const struct mr_message *reply)
{
    free(call);
    return false;
}

/* So that it does not begin over there, if it has not; it does no harm if this is lost. */
static void tell_cancel(struct mr_rpc *agent, const struct mr_rpc_future *f)
{
    struct cancel_message *message = calloc(1, sizeof(*message));
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &f->head.number);

    if (message == NULL)
        return;
    message->call = (struct mr_agent_call){.to = f->call.to,
                                           .op = MR_OP_RPC_CANCEL,
                                           .control = true,
                                           .deadline_us = f->deadline_us,
                                           .ended = cancel_told};
    if (mr_agent_begin(agent, &message->call, &tensor, 1) == MR_OK)
        mr_agent_send(agent, &message->call);
    else
        free(message);
}

static void cancel(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, cancel_work);

    bool ended = f->ended;

    mr_future_end(f, MR_CANCELLED, NULL, NULL);
    if (!ended && f->local)
        mr_serving_cancel_local(agent, f);
    else if (!ended && !mr_agent_withdraw(agent, &f->call))
        tell_cancel(agent, f);
    mr_future_put(f);
}

void mr_rpc_cancel(struct mr_rpc_future *f)
{
    if (mr_rpc_done(f) || atomic_exchange(&f->cancelled, true))
        return;
    mr_future_hold(f);
    f->cancel_work.run = cancel;
    mr_agent_submit(f->agent, &f->cancel_work);
}
