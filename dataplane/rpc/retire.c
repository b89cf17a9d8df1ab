/* A node that is stopped: it finishes what it runs, and says goodbye, so that nobody waits until its silence
 * counts as death. */
#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/base/rpc.h"

#define GOODBYE_CALL_US 300000u /* then it is said again */

void mr_agent_retire(struct mr_rpc *agent)
{
    agent->retiring = true;
}

uint32_t mr_agent_unfinished(struct mr_rpc *agent)
{
    uint32_t left = mr_executor_load(agent->executor) + agent->job_count + mr_agent_has_work(agent);

    return left + (agent->unanswered != NULL) + mr_longs_unfinished(agent);
}

static bool goodbye_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                          const struct mr_message *reply)
{
    call->member->goodbye_in_flight = false;
    call->member->goodbye_heard = reply != NULL;
    return false;
}

static void say_to(struct mr_rpc *agent, struct mr_member *m)
{
    struct mr_leave_wire said = {.phase = MR_LEAVE_GONE};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(said), &said);

    m->goodbye = (struct mr_agent_call){.op = MR_OP_RPC_LEAVE,
                                        .control = true,
                                        .deadline_us = mr_agent_now(agent) + GOODBYE_CALL_US,
                                        .ended = goodbye_ended};
    if (mr_member_begin(agent, m, &m->goodbye, &tensor, 1) != MR_OK)
        return;
    m->goodbye_in_flight = true;
    mr_agent_send(agent, &m->goodbye);
}

bool mr_agent_say_goodbye(struct mr_rpc *agent)
{
    bool waits = false;

    if (!atomic_load(&agent->complete) || agent->config.rank == MR_RPC_NO_RANK)
        return false;
    for (uint32_t i = 0; i < agent->config.world_size; i++) {
        struct mr_member *m = &agent->members[i];

        if (i == agent->config.rank || atomic_load(&m->dead) || m->goodbye_heard ||
            m->leave_phase == MR_LEAVE_GONE)
            continue;
        waits = true;
        if (!m->goodbye_in_flight)
            say_to(agent, m);
    }
    return waits;
}
