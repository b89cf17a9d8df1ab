/* A worker that arrives in an open world: all members hear of it before it is one. */
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"

#define ANNOUNCE_CALL_US 300000u /* then it is sent again */

/* ---- at the rendezvous ---- */

/* Whether the member has to answer before the next worker is one. */
static bool is_to_hear(const struct mr_rpc *agent, const struct mr_member *m)
{
    return m->present && m->rank != agent->config.rank && !atomic_load(&m->dead);
}

static bool ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                  const struct mr_message *reply)
{
    call->member->announcement_in_flight = false;
    call->member->announcement_heard = reply != NULL;
    return false;
}

static void announce_to(struct mr_rpc *agent, struct mr_member *m)
{
    struct mr_member_wire line;
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(line), &line);
    mr_world_write_member(&agent->members[agent->arriving], &line);
    m->announcement = (struct mr_agent_call){.op = MR_OP_RPC_JOIN,
                                             .control = true,
                                             .deadline_us = mr_agent_now(agent) + ANNOUNCE_CALL_US,
                                             .ended = ended};
    if (mr_member_begin(agent, m, &m->announcement, &tensor, 1) != MR_OK)
        return;
    m->announcement_in_flight = true;
    mr_agent_send(agent, &m->announcement);
}

static void take_in(struct mr_rpc *agent)
{
    struct mr_member *m = &agent->members[agent->arriving];
    agent->arriving = MR_RPC_NO_RANK;
    MR_MEMBER_EACH(other, agent)
        other->announcement_heard = false;
    atomic_store(&m->present, true);
    mr_rrefs_joined(agent->rrefs, m->rank);
}

void mr_arrival_tick(struct mr_rpc *agent)
{
    bool all_have_heard = true;
    if (agent->arriving == MR_RPC_NO_RANK)
        return;
    MR_MEMBER_EACH(m, agent) {
        if (!is_to_hear(agent, m) || (m->announcement_heard && !m->announcement_in_flight))
            continue;
        all_have_heard = false;
        if (!m->announcement_in_flight)
            announce_to(agent, m);
    }
    if (all_have_heard)
        take_in(agent);
}

/* ---- at a member ---- */

bool mr_arrival_serve(struct mr_rpc *agent, const struct mr_request *request)
{
    const struct mr_message *message = request->message;
    struct mr_member_wire line;
    if (!agent->config.is_open || agent->config.is_rendezvous || message->preamble.tensor_count != 1 ||
        message->tensors[0].bytes != sizeof(line))
        return false;
    const struct mr_member *from = mr_member_of_request(agent, request);
    enum mr_status status = MR_BAD_MESSAGE;

    memcpy(&line, message->tensors[0].data, sizeof(line));
    if (!atomic_load(&agent->complete)) {
        mr_reply_busy(agent->config.endpoint, request->ref);
        return true;
    }
    if (from != NULL && from->is_rendezvous && line.rank < agent->config.world_size &&
        (agent->members[line.rank].present || mr_world_read_member(agent, &line)))
        status = MR_OK;
    mr_reply_status(agent->config.endpoint, request->ref, status);
    return true;
}
