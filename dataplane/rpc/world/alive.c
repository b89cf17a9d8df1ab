/* Reports that this worker is alive, and notices which others are not. */
#include "dataplane/rpc/base/rpc.h"

#define ALIVE_PER_DEATH 4u      /* ALIVEs in the time after which a worker is dead */
#define ALIVE_MAX_US    500000u /* the longest time between two */

static uint64_t dead_after_us(const struct mr_rpc *agent)
{
    return (uint64_t)agent->config.dead_after_ms * 1000u;
}

void mr_world_serve_alive(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    uint32_t size = agent->config.is_rendezvous ? agent->config.world_size : 0;
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, size, NULL);
    from->has_list = true;
    if (!mr_reply_begin(agent->config.endpoint, request->ref, MR_OK, &tensor, 1)) {
        mr_reply_busy(agent->config.endpoint, request->ref);
        return;
    }
    uint8_t *dead = tensor.data;

    for (uint32_t i = 0; i < size; i++)
        dead[i] = atomic_load(&agent->members[i].dead);
    mr_reply_end(agent->config.endpoint, request->ref);
}

static bool alive_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                        const struct mr_message *reply)
{
    struct mr_member *m = call->member;
    uint32_t size = agent->config.world_size;
    m->alive_in_flight = false;
    /* Unknown: the node that was the rendezvous has begun another world. */
    if ((status == MR_WORKER_DIED || status == MR_UNKNOWN_WORKER) && reply != NULL)
        atomic_store(&agent->fenced, true);
    if (status != MR_OK || reply->preamble.tensor_count != 1 || reply->tensors[0].bytes != size)
        return false;
    for (uint32_t i = 0; i < size; i++)
        if (((const uint8_t *)reply->tensors[0].data)[i] != 0 && i != agent->config.rank)
            mr_member_died(agent, &agent->members[i]);
    return false;
}

static void ask_alive(struct mr_rpc *agent, struct mr_member *m, uint64_t now_us)
{
    if (m->alive_in_flight || atomic_load(&m->dead))
        return;
    m->alive = (struct mr_agent_call){.op = MR_OP_RPC_ALIVE,
                                      .control = true,
                                      .deadline_us = now_us + dead_after_us(agent),
                                      .ended = alive_ended};
    if (mr_member_begin(agent, m, &m->alive, NULL, 0) != MR_OK)
        return;
    m->alive_in_flight = true;
    mr_agent_send(agent, &m->alive);
}

/* Returns whether the member has been silent for too long. */
static bool is_silent(struct mr_rpc *agent, const struct mr_member *m, uint64_t now_us, bool asked)
{
    uint64_t heard_us = m->heard_us;
    for (uint32_t i = 0; i < MR_MEMBER_SESSIONS; i++) {
        struct mr_client_session_info info = {.silent_since_us = 0};
        if (m->sessions[i] != NULL)
            mr_client_session_info(m->sessions[i], &info);
        if (info.silent_since_us > heard_us)
            heard_us = info.silent_since_us;
    }
    if (!asked && m->calls_pending == 0)
        return false;
    if (!asked && m->pending_since_us > heard_us)
        heard_us = m->pending_since_us;
    return now_us > heard_us && now_us - heard_us > dead_after_us(agent);
}

void mr_world_rendezvous_lost(struct mr_rpc *agent, uint64_t now_us)
{
    mr_member_died(agent, &agent->rendezvous);
    MR_MEMBER_EACH(m, agent) {
        m->heard_us = now_us; /* from now on they are asked */
        if (m->is_rendezvous)
            mr_member_died(agent, m);
    }
}

void mr_agent_on_session(struct mr_rpc *agent, struct mr_client_session *session,
                         enum mr_client_session_event event)
{
    struct mr_client_session_info info;
    mr_client_session_info(session, &info);
    struct mr_member *m = info.user;

    if (event == MR_SESSION_AWAY)
        return;
    /* Another process answers in the worker's place: what the worker knew is lost. */
    if (m->rank != MR_RPC_NO_RANK) {
        if (m->start_id == 0)
            m->start_id = info.start_id;
        if (info.incarnation != m->incarnation || info.start_id != m->start_id)
            mr_member_died(agent, m);
        return;
    }
    /* Before all have joined, it only forgets workers that ask again anyway. */
    if (m->start_id != info.start_id && m->start_id != 0 && atomic_load(&agent->complete))
        mr_world_rendezvous_lost(agent, mr_agent_now(agent));
    m->start_id = info.start_id;
    m->incarnation = info.incarnation;
    mr_world_check_version(agent, &info.version); /* last: it may close the session */
}

uint64_t mr_alive_tick(struct mr_rpc *agent, uint64_t now_us)
{
    uint64_t interval_us = dead_after_us(agent) / ALIVE_PER_DEATH;
    bool alone = atomic_load(&agent->rendezvous.dead);
    if (!atomic_load(&agent->complete) || atomic_load(&agent->left))
        return UINT64_MAX;
    if (now_us < agent->alive_next_us)
        return agent->alive_next_us;
    if (interval_us > ALIVE_MAX_US)
        interval_us = ALIVE_MAX_US;
    /* This worker itself was stopped: that time does not count against the others. */
    if (agent->alive_next_us != 0 && now_us - agent->alive_next_us > dead_after_us(agent) / 2) {
        MR_MEMBER_EACH(m, agent)
            m->heard_us = now_us;
        agent->rendezvous.heard_us = now_us;
    }
    agent->alive_next_us = now_us + interval_us;
    if (!agent->config.is_rendezvous && !alone) {
        ask_alive(agent, &agent->rendezvous, now_us);
        if (is_silent(agent, &agent->rendezvous, now_us, true))
            mr_world_rendezvous_lost(agent, now_us);
    }
    MR_MEMBER_EACH(m, agent) {
        if (m->rank == agent->config.rank || !m->present || atomic_load(&m->dead))
            continue;
        if (alone)
            ask_alive(agent, m, now_us);
        if (is_silent(agent, m, now_us, alone || agent->config.is_rendezvous))
            mr_member_died(agent, m);
    }
    return agent->alive_next_us;
}
