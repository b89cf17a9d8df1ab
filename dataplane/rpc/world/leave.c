/* Leaving a world: all workers together, once nothing is in flight anywhere; a node that is stopped says
 * goodbye. */
#include <stdio.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"

#define LEAVE_WAIT_US   3000u    /* between two LEAVEs */
#define LEAVE_CALL_US   1000000u /* of one; then it is sent again */
#define GOODBYE_CALL_US 300000u  /* then it is sent again */
#define BYE_US          2000000u /* how long the rendezvous waits until the others know that all may leave */

static void over(struct mr_rpc *agent, enum mr_status status)
{
    if (agent->leaving.step == MR_LEAVING_DONE)
        return;
    agent->leaving.step = MR_LEAVING_DONE;
    agent->leave_status = status;
    (void)mr_agent_done(&agent->left_world);
}

static bool is_busy(struct mr_rpc *agent)
{
    return atomic_load(&agent->in_flight) != 0 || mr_executor_load(agent->executor) != 0 ||
           agent->unanswered != NULL;
}

static bool is_quiet(struct mr_rpc *agent)
{
    return !is_busy(agent) && !mr_rrefs_held(agent->rrefs, NULL, 0);
}

/* ---- at the rendezvous ---- */

static bool takes_part(const struct mr_member *m)
{
    return m->present && !m->is_node && !atomic_load(&m->dead);
}

static uint8_t state_of(const struct mr_member *m)
{
    if (!takes_part(m) || m->leave_phase == MR_LEAVE_GONE)
        return MR_LEAVE_OVER;
    if (m->leave_phase == MR_LEAVE_NOT)
        return MR_LEAVE_MISSING;
    return m->leave_quiet ? MR_LEAVE_QUIET : MR_LEAVE_BUSY; /* as its last LEAVE said */
}

static void leave_note(struct mr_rpc *agent, struct mr_member *m, const struct mr_leave_wire *said)
{
    m->leave_phase = (uint32_t)said->phase;
    if (said->phase != MR_LEAVE_CALLED || said->epoch != agent->leaving.world_epoch)
        return;
    if (m->leave_epoch != said->epoch) {
        m->leave_unchanged =
            m->leave_epoch + 1 == said->epoch && m->leave_quiet && m->leave_activity == said->activity;
        m->leave_epoch = (uint32_t)said->epoch;
    } else if (m->leave_activity != said->activity) {
        m->leave_unchanged = false;
    }
    m->leave_activity = said->activity;
    m->leave_quiet = said->quiet != 0;
    m->leave_unchanged = m->leave_unchanged && m->leave_quiet;
}

static void count_leaving(struct mr_rpc *agent)
{
    bool still = true;
    if (!atomic_load(&agent->complete) || agent->leaving.all_may_go || agent->config.is_open)
        return;
    MR_MEMBER_EACH(m, agent) {
        if (!takes_part(m))
            continue;
        if (m->leave_phase == MR_LEAVE_NOT || m->leave_epoch != agent->leaving.world_epoch)
            return;
        still = still && m->leave_unchanged;
    }
    if (still)
        agent->leaving.all_may_go = true;
    else
        agent->leaving.world_epoch++;
}

void mr_leave_died(struct mr_rpc *agent, uint32_t rank)
{
    if (agent->config.is_rendezvous)
        count_leaving(agent);
}

/* Serves the goodbye of a worker that leaves without the others. Returns whether this was one. */
static bool serve_goodbye(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    const struct mr_message *message = request->message;
    struct mr_leave_wire said;
    if (message->preamble.tensor_count != 1 || message->tensors[0].bytes != sizeof(said))
        return false;
    memcpy(&said, message->tensors[0].data, sizeof(said));
    if (said.phase != MR_LEAVE_GONE || (!from->is_node && agent->leaving.all_may_go))
        return false;
    mr_reply_status(agent->config.endpoint, request->ref, MR_OK);
    atomic_store(&from->left, true);
    if (from->is_rendezvous)
        mr_world_rendezvous_lost(agent, mr_agent_now(agent));
    else
        mr_member_died(agent, from);
    return true;
}

void mr_world_serve_leave(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    const struct mr_message *message = request->message;
    struct mr_leave_wire said;
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_LEAVE, NULL),
                                   mr_tensor_1d(MR_U8, agent->config.world_size, NULL)};
    if (serve_goodbye(agent, from, request))
        return;
    if (!agent->config.is_rendezvous || message->preamble.tensor_count != 1 ||
        message->tensors[0].bytes != sizeof(said)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 2)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    memcpy(&said, message->tensors[0].data, sizeof(said));
    leave_note(agent, from, &said);
    count_leaving(agent);

    const uint64_t words[MR_LEAVE_WORDS] = {
        [MR_LEAVE_EPOCH] = agent->leaving.world_epoch, [MR_LEAVE_ALL_MAY_GO] = agent->leaving.all_may_go};
    uint8_t *states = tensors[1].data;

    memcpy(tensors[0].data, words, sizeof(words));
    MR_MEMBER_EACH(m, agent)
        states[m->rank] = state_of(m);
    mr_reply_end(ep, request->ref);
}

static bool others_are_gone(const struct mr_rpc *agent)
{
    MR_MEMBER_EACH(m, agent)
        if (m->rank != agent->config.rank && takes_part(m) && m->leave_phase != MR_LEAVE_GONE)
            return false;
    return true;
}

static uint64_t rendezvous_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_leaving *leaving = &agent->leaving;
    struct mr_leave_wire said = {.phase = MR_LEAVE_CALLED,
                                 .epoch = leaving->world_epoch,
                                 .quiet = is_quiet(agent),
                                 .activity = atomic_load(&agent->activity)};
    if (leaving->step == MR_LEAVING_WAITS) {
        leave_note(agent, &agent->members[agent->config.rank], &said);
        count_leaving(agent);
        if (leaving->all_may_go) {
            atomic_store(&agent->left, true);
            leaving->step = MR_LEAVING_BYE;
            leaving->bye_until_us = now_us + BYE_US;
        }
    }
    if (leaving->step == MR_LEAVING_BYE && (others_are_gone(agent) || now_us >= leaving->bye_until_us))
        over(agent, MR_OK);
    return leaving->step == MR_LEAVING_DONE ? UINT64_MAX : now_us + LEAVE_WAIT_US;
}

/* ---- as a worker ---- */

static bool leave_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                        const struct mr_message *reply)
{
    struct mr_leaving *leaving = &agent->leaving;
    uint64_t words[MR_LEAVE_WORDS];
    leaving->in_flight = false;
    leaving->next_us = mr_agent_now(agent) + LEAVE_WAIT_US;
    if (leaving->step == MR_LEAVING_BYE) {
        over(agent, MR_OK);
        return false;
    }
    if (status == MR_WORKER_DIED && reply != NULL)
        atomic_store(&agent->fenced, true);
    if (status != MR_OK || reply->preamble.tensor_count != 2 ||
        !mr_body_read(MR_BODY_LEAVE, &reply->tensors[0], words) ||
        reply->tensors[1].bytes != agent->config.world_size)
        return false;
    memcpy(leaving->states, reply->tensors[1].data, agent->config.world_size);
    leaving->epoch = words[MR_LEAVE_EPOCH];
    if (words[MR_LEAVE_ALL_MAY_GO] != 0 && leaving->step == MR_LEAVING_WAITS) {
        atomic_store(&agent->left, true);
        leaving->step = MR_LEAVING_BYE;
        leaving->next_us = 0;
    }
    return false;
}

static void send_leave(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_leaving *leaving = &agent->leaving;
    struct mr_leave_wire said = {.phase = leaving->step == MR_LEAVING_BYE ? MR_LEAVE_GONE : MR_LEAVE_CALLED,
                                 .epoch = leaving->epoch,
                                 .quiet = is_quiet(agent),
                                 .activity = atomic_load(&agent->activity)};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(said), &said);
    leaving->call = (struct mr_agent_call){
        .op = MR_OP_RPC_LEAVE, .control = true, .deadline_us = now_us + LEAVE_CALL_US, .ended = leave_ended};
    leaving->next_us = now_us + LEAVE_WAIT_US;
    if (mr_member_begin(agent, &agent->rendezvous, &leaving->call, &tensor, 1) != MR_OK)
        return;
    leaving->in_flight = true;
    mr_agent_send(agent, &leaving->call);
}

/* In an open world nobody waits for the others: once its own calls have ended, the worker says goodbye. */
static uint64_t open_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_leaving *leaving = &agent->leaving;
    if (atomic_load(&agent->fenced)) {
        atomic_store(&agent->left, true);
        over(agent, MR_WORKER_DIED);
        return UINT64_MAX;
    }
    if (leaving->step == MR_LEAVING_WAITS && !is_busy(agent)) {
        atomic_store(&agent->left, true);
        leaving->step = MR_LEAVING_BYE;
        leaving->bye_until_us = now_us + BYE_US;
    }
    if (leaving->step == MR_LEAVING_BYE && (!mr_agent_say_goodbye(agent) || now_us >= leaving->bye_until_us))
        over(agent, MR_OK);
    return leaving->step == MR_LEAVING_DONE ? UINT64_MAX : now_us + LEAVE_WAIT_US;
}

/* A worker that leaves without the others. */
static uint64_t part_tick(struct mr_rpc *agent, uint64_t now_us)
{
    if (mr_agent_say_goodbye(agent))
        return now_us + LEAVE_WAIT_US;
    agent->leaving.parts = false;
    (void)mr_agent_done(&agent->leaving.parted);
    return UINT64_MAX;
}

uint64_t mr_leave_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_leaving *leaving = &agent->leaving;
    if (leaving->parts)
        return part_tick(agent, now_us);
    if (leaving->step == MR_LEAVING_NOT || leaving->step == MR_LEAVING_DONE)
        return UINT64_MAX;
    if (agent->config.is_open)
        return open_tick(agent, now_us);
    if (agent->config.is_rendezvous)
        return rendezvous_tick(agent, now_us);
    if (atomic_load(&agent->rendezvous.dead) || atomic_load(&agent->fenced)) {
        atomic_store(&agent->left, true);
        over(agent, leaving->step == MR_LEAVING_BYE ? MR_OK : MR_WORKER_DIED);
        return UINT64_MAX;
    }
    if (leaving->in_flight)
        return UINT64_MAX;
    if (now_us >= leaving->next_us)
        send_leave(agent, now_us);
    return leaving->next_us;
}

void mr_leave_begin(struct mr_rpc *agent)
{
    if (agent->leaving.step != MR_LEAVING_NOT)
        return;
    agent->leaving.step = MR_LEAVING_WAITS;
    agent->leaving.next_us = 0;
}

/* ---- who stays ---- */

uint32_t mr_leave_staying(const struct mr_rpc *agent)
{
    uint32_t staying = agent->leaving.step == MR_LEAVING_NOT;
    if (agent->config.is_open)
        return staying;
    for (uint32_t i = 0; i < agent->config.world_size; i++) {
        uint8_t state = agent->config.is_rendezvous ? state_of(&agent->members[i]) : agent->leaving.states[i];
        staying += i != agent->config.rank && state == MR_LEAVE_MISSING;
    }
    return staying;
}

/* ---- what is said when it takes too long ---- */

/* About itself, a worker knows more than a state. */
static const char *own_reason(struct mr_rpc *agent, char *what, size_t bytes)
{
    if (atomic_load(&agent->in_flight) != 0 || mr_executor_load(agent->executor) != 0)
        return "has calls in flight";
    if (!mr_rrefs_held(agent->rrefs, what, bytes))
        return "has answers to send";
    return what;
}

void mr_leave_missing(struct mr_rpc *agent, char *out, size_t bytes)
{
    static const char *const what[] = {[MR_LEAVE_MISSING] = "has not called mr_rpc_shutdown",
                                       [MR_LEAVE_BUSY] =
                                           "has calls in flight, or references tie it to others"};
    char held[320];
    size_t used = 0;
    if (bytes > 0)
        out[0] = 0;
    if (agent->config.is_open) {
        snprintf(out, bytes, "this worker %s", own_reason(agent, held, sizeof(held)));
        return;
    }
    for (uint32_t i = 0; i < agent->config.world_size && used + 1 < bytes; i++) {
        uint8_t state = agent->config.is_rendezvous ? state_of(&agent->members[i]) : agent->leaving.states[i];
        char text[MR_MEMBER_TEXT_BYTES];
        if (i == agent->config.rank)
            state = is_quiet(agent) ? MR_LEAVE_QUIET : MR_LEAVE_BUSY;
        if (state > MR_LEAVE_BUSY)
            continue;
        mr_member_text(agent, i, text);
        const char *why = i == agent->config.rank ? own_reason(agent, held, sizeof(held)) : what[state];
        int n = snprintf(out + used, bytes - used, "%s%s %s", used == 0 ? "" : "; ", text, why);

        used = n < 0 || (size_t)n >= bytes - used ? bytes : used + (size_t)n;
    }
}

/* ---- the goodbye of a node that is stopped or a worker that leaves without the others: so that nobody waits
 * until its silence counts as death ---- */

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
    MR_MEMBER_EACH(m, agent) {
        if (m->rank == agent->config.rank || !m->present || atomic_load(&m->dead) || m->goodbye_heard ||
            m->leave_phase == MR_LEAVE_GONE)
            continue;
        waits = true;
        if (!m->goodbye_in_flight)
            say_to(agent, m);
    }
    return waits;
}
