/* A node that is stopped: it ends what it runs, and says farewell, so that nobody waits for it until its
 * silence tells. */
#include <string.h>
#include "dataplane/rpc/base/rpc.h"

#define FAREWELL_CALL_US 300000u /* then it is said again */

void mr_agent_retire(struct mr_rpc *agent)
{
    agent->retiring = true;
}

uint32_t mr_agent_unfinished(struct mr_rpc *agent)
{
    uint32_t left = mr_executor_load(agent->executor) + agent->job_count + mr_agent_has_work(agent);

    return left + (agent->unanswered != NULL) + mr_longs_unfinished(agent);
}

static bool farewell_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                           const struct mr_message *reply)
{
    call->member->farewell_under_way = false;
    call->member->farewell_heard = reply != NULL;
    return false;
}

static void say_to(struct mr_rpc *agent, struct mr_member *m)
{
    struct mr_leave_wire said = {.phase = MR_LEAVE_GONE};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(said), &said);

    m->farewell = (struct mr_agent_call){.op = MR_OP_RPC_LEAVE,
                                         .control = true,
                                         .deadline_us = mr_agent_now(agent) + FAREWELL_CALL_US,
                                         .ended = farewell_ended};
    if (mr_member_begin(agent, m, &m->farewell, &tensor, 1) != MR_OK)
        return;
    m->farewell_under_way = true;
    mr_agent_send(agent, &m->farewell);
}

bool mr_agent_say_farewell(struct mr_rpc *agent)
{
    bool waits = false;

    if (!atomic_load(&agent->complete) || agent->config.rank == MR_RPC_NO_RANK)
        return false;
    for (uint32_t i = 0; i < agent->config.world_size; i++) {
        struct mr_member *m = &agent->members[i];

        if (i == agent->config.rank || atomic_load(&m->dead) || m->farewell_heard ||
            m->leave_phase == MR_LEAVE_GONE)
            continue;
        waits = true;
        if (!m->farewell_under_way)
            say_to(agent, m);
    }
    return waits;
}

bool mr_retire_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    const struct mr_message *message = request->message;
    struct mr_leave_wire said;

    if (!from->is_node || message->preamble.tensor_count != 1 || message->tensors[0].bytes != sizeof(said))
        return false;
    memcpy(&said, message->tensors[0].data, sizeof(said));
    if (said.phase != MR_LEAVE_GONE)
        return false;
    mr_reply_status(agent->config.endpoint, request->ref, MR_OK);
    if (from->is_rendezvous)
        mr_world_rendezvous_lost(agent, mr_agent_now(agent));
    else
        mr_member_died(agent, from);
    return true;
}
