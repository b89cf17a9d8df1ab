#include "dataplane/rpc/world/member.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/rpc/base/rpc.h"

void mr_member_text(struct mr_rpc *agent, uint32_t rank, char text[MR_MEMBER_TEXT_BYTES])
{
    if (rank < agent->config.world_size && atomic_load(&agent->complete) &&
        atomic_load(&agent->members[rank].present))
        snprintf(text, MR_MEMBER_TEXT_BYTES, "worker \"%s\" (rank %u)", agent->members[rank].name, rank);
    else
        snprintf(text, MR_MEMBER_TEXT_BYTES, "rank %u", rank);
}

enum mr_status mr_member_check(struct mr_rpc *agent, uint32_t rank)
{
    char text[MR_MEMBER_TEXT_BYTES];
    if (rank >= agent->config.world_size)
        return mr_rpc_error(MR_UNKNOWN_WORKER, "there is no rank %u in this world of %u worker%s", rank,
                            agent->config.world_size, mr_plural(agent->config.world_size));
    if (!atomic_load(&agent->complete))
        return mr_rpc_error(MR_NOT_READY, "not all workers have joined yet");
    if (atomic_load(&agent->left))
        return mr_rpc_error(MR_SHUTTING_DOWN, "this worker has left the world");
    if (atomic_load(&agent->fenced))
        return mr_rpc_error(
            MR_WORKER_DIED,
            "this worker itself, \"%s\" (rank %u), was taken for dead by the others: nothing was "
            "heard of it for %u ms",
            agent->name, agent->config.rank, agent->config.dead_after_ms);
    if (!atomic_load(&agent->members[rank].present))
        return mr_rpc_error(MR_UNKNOWN_WORKER, "no worker has joined this world as rank %u", rank);
    if (!atomic_load(&agent->members[rank].dead))
        return MR_OK;
    mr_member_text(agent, rank, text);
    if (atomic_load(&agent->members[rank].left))
        return mr_rpc_error(MR_WORKER_DIED, "%s has left the world", text);
    return mr_rpc_error(MR_WORKER_DIED, "%s died: nothing was heard of it for %u ms, or it was restarted",
                        text, agent->config.dead_after_ms);
}

struct mr_member *mr_member_of_request(struct mr_rpc *agent, const struct mr_request *request)
{
    uint64_t rank = request->message->preamble.step;
    if (rank >= agent->config.world_size)
        return NULL;
    struct mr_member *m = &agent->members[rank];

    if (!m->present || memcmp(m->uuid, request->client_uuid, MR_UUID_BYTES) != 0 || atomic_load(&m->dead) ||
        !atomic_load(&agent->complete))
        return NULL;
    m->heard_us = request->now_us;
    return m;
}

/* ---- sessions and calls ---- */

/* The address at which the member joined, or else its other one. NULL: it cannot be reached at either, and
 * the error line says why not at the first. */
static const struct mr_address *choose_address(struct mr_rpc *agent, const struct mr_member *m)
{
    const struct mr_agent_driver *driver = &agent->config.driver;
    char why[MR_RPC_ERROR_BYTES], other[MR_RPC_ERROR_BYTES], text[MR_MEMBER_TEXT_BYTES] = "the rendezvous";
    if (driver->can_reach == NULL || driver->can_reach(driver->self, &m->address, why, sizeof(why)))
        return &m->address;
    if (m->other_address.port != 0 &&
        driver->can_reach(driver->self, &m->other_address, other, sizeof(other)))
        return &m->other_address;
    if (m->rank != MR_RPC_NO_RANK)
        mr_member_text(agent, m->rank, text);
    (void)mr_rpc_error(MR_UNREACHABLE, "%s cannot be reached at %s", text, why);
    return NULL;
}

static enum mr_status session_of(struct mr_rpc *agent, struct mr_member *m, const struct mr_agent_call *call,
                                 struct mr_client_session **out)
{
    struct mr_client_session **session = &m->sessions[call->parts     ? MR_SESSION_PARTS
                                                      : call->fetch   ? MR_SESSION_FETCHES
                                                      : call->control ? MR_SESSION_CONTROL
                                                                      : MR_SESSION_CALLS + call->depth];
    enum mr_status status = MR_OK;
    if (*session == NULL) {
        const struct mr_address *to = choose_address(agent, m);
        if (to == NULL)
            return MR_UNREACHABLE;
        status = mr_client_session_open(agent->config.endpoint, to, 0, m, session);
    }
    *out = *session;
    return status;
}

/* Returns whether all calls in flight on the other worker may wait for this one. */
static bool is_stuck(const struct mr_agent_call *call, const struct mr_client_session *session)
{
    struct mr_client_session_info info;
    if (call->depth + 1u < MR_EXECUTOR_DEPTHS)
        return false;
    mr_client_session_info(session, &info);
    return info.calls_pending >= MR_WINDOW_MAX;
}

enum mr_status mr_member_begin(struct mr_rpc *agent, struct mr_member *m, struct mr_agent_call *call,
                               struct mr_tensor *tensors, uint32_t tensor_count)
{
    struct mr_client_session *session;
    struct mr_call_options options = {
        .op = call->op, .step = agent->config.rank, .deadline_us = call->deadline_us, .user = call};
    enum mr_status status = session_of(agent, m, call, &session);
    if (status == MR_OK && is_stuck(call, session))
        status = MR_BUSY;
    if (status == MR_OK)
        status = mr_call_begin(agent->config.endpoint, session, &options, tensors, tensor_count, &call->wire);
    if (status != MR_OK)
        return status;
    call->member = m;
    call->cancelled = false;
    call->in = NULL;
    return MR_OK;
}

static void tell_unread(struct mr_rpc *agent, void *of)
{
    struct mr_agent_call *call = of;
    if (call->unread != NULL)
        call->unread(agent, call);
}

static void forget_out(struct mr_rpc *agent, void *of)
{
    ((struct mr_agent_call *)of)->out = NULL;
}

/* Sends a note in its place. */
static enum mr_status begin_long(struct mr_rpc *agent, struct mr_agent_call *call, struct mr_tensor *tensors,
                                 uint32_t tensor_count)
{
    uint64_t words[MR_LONG_NOTE_WORDS] = {0}, bytes = mr_message_long_bytes(tensors, tensor_count);
    struct mr_tensor note = mr_body_tensor(MR_BODY_LONG_NOTE, words);
    if (bytes == 0 || bytes > agent->config.long_bytes_max)
        return MR_TOO_LARGE;
    struct mr_long_out *out = mr_long_out_new(agent, call->to, call->op, tensors, tensor_count, words);

    if (out == NULL)
        return MR_NO_MEMORY;
    out->call = call;
    out->unread = tell_unread;
    out->gone = forget_out;
    out->of = call;
    call->out = out;
    enum mr_status status = mr_member_begin(agent, &agent->members[call->to], call, &note, 1);

    if (status != MR_OK)
        mr_long_out_end(agent, out, false);
    return status;
}

static bool is_long(const struct mr_rpc *agent, const struct mr_agent_call *call,
                    const struct mr_tensor *tensors, uint32_t tensor_count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < tensor_count; i++)
        bytes += tensors[i].bytes < UINT64_MAX - bytes ? tensors[i].bytes : UINT64_MAX - bytes;
    return call->stays && mr_long_is(agent, bytes);
}

enum mr_status mr_agent_begin(struct mr_rpc *agent, struct mr_agent_call *call, struct mr_tensor *tensors,
                              uint32_t tensor_count)
{
    enum mr_status status = mr_member_check(agent, call->to);
    if (status != MR_OK)
        return status;
    assert(call->to != agent->config.rank);
    status = is_long(agent, call, tensors, tensor_count)
                 ? begin_long(agent, call, tensors, tensor_count)
                 : mr_member_begin(agent, &agent->members[call->to], call, tensors, tensor_count);
    if (status == MR_TOO_LARGE)
        return mr_rpc_error(status,
                            "a message takes at most %zu MiB: see message_bytes, or a node's " MR_LONG_KEY,
                            agent->config.long_bytes_max >> 20);
    if (status == MR_BUSY)
        return mr_rpc_error(
            status,
            "%u calls that functions wait for, which are called by others and so on, are over there: "
            "one more could wait for ever; make fewer at a time, or let them call less deep",
            MR_WINDOW_MAX);
    return status == MR_OK || status == MR_UNREACHABLE
               ? status
               : mr_rpc_error(status, "no memory for messages is left: see memory_bytes");
}

void mr_agent_send(struct mr_rpc *agent, struct mr_agent_call *call)
{
    uint64_t now_us = mr_agent_now(agent);
    if (call->member->calls_pending++ == 0)
        call->member->pending_since_us = now_us;
    mr_call_send(agent->config.endpoint, call->wire, now_us);
}

void mr_agent_drop(struct mr_rpc *agent, struct mr_agent_call *call)
{
    mr_long_out_end(agent, call->out, false);
    mr_call_free(agent->config.endpoint, call->wire);
    call->wire = NULL;
}

bool mr_agent_withdraw(struct mr_rpc *agent, struct mr_agent_call *call)
{
    if (call->wire == NULL)
        return false;
    call->cancelled = true;
    if (mr_call_withdraw(agent->config.endpoint, call->wire))
        return true;
    call->cancelled = false;
    return false;
}

bool mr_agent_error_text(const struct mr_message *reply, char *text, size_t bytes)
{
    text[0] = 0;
    if (reply == NULL || reply->preamble.tensor_count != 1 || reply->tensors[0].dtype != MR_U8)
        return false;
    uint64_t length = reply->tensors[0].bytes < bytes ? reply->tensors[0].bytes : bytes - 1;

    snprintf(text, bytes, "%.*s", (int)length, (const char *)reply->tensors[0].data);
    return true;
}

void mr_agent_free(struct mr_rpc *agent, struct mr_call *kept, struct mr_long_in *kept_in)
{
    if (kept != NULL)
        mr_call_free(agent->config.endpoint, kept);
    mr_long_release(kept_in);
}

/* Translates the transport's status into what it means for workers. */
static enum mr_status outcome(struct mr_rpc *agent, const struct mr_agent_call *call, enum mr_status status)
{
    if (status == MR_CANCELLED)
        return call->cancelled ? MR_CANCELLED : agent->closing ? MR_SHUTTING_DOWN : MR_WORKER_DIED;
    /* The transport was busy until the deadline. (is_stuck() is about workers that are busy.) */
    if (status == MR_BUSY)
        return MR_DEADLINE_EXCEEDED;
    if (status == MR_UNKNOWN_OUTCOME || status == MR_UNREACHABLE)
        return mr_agent_now(agent) >= call->deadline_us ? MR_DEADLINE_EXCEEDED : MR_WORKER_DIED;
    return status;
}

static bool answer_comes_in_parts(const struct mr_agent_call *call, enum mr_status status,
                                  const struct mr_message *reply)
{
    return status == MR_OK && reply != NULL && (call->op == MR_OP_RPC_CALL || call->op == MR_OP_RPC_FETCH) &&
           mr_long_is_note(reply);
}

static void begin_answer(struct mr_rpc *agent, struct mr_agent_call *call, const struct mr_message *note)
{
    call->wire = NULL;
    if (mr_long_receive_reply(agent, call, note))
        return;
    mr_member_died(agent, call->member); /* references in it would stay in flight for ever */
    (void)call->ended(agent, call, MR_NO_MEMORY, NULL);
}

void mr_agent_on_reply(struct mr_rpc *agent, struct mr_call *wire, void *user, enum mr_status status,
                       const struct mr_message *reply)
{
    struct mr_agent_call *call = user;
    struct mr_member *m = call->member;
    m->calls_pending--;
    if (reply != NULL)
        m->heard_us = mr_agent_now(agent);
    /* The other side forgot the session, and whether it ran the call is unknown: references may be lost. */
    if (status == MR_UNKNOWN_OUTCOME && call->deadline_us == UINT64_MAX)
        mr_member_died(agent, m);
    mr_long_out_end(agent, call->out, false);
    if (answer_comes_in_parts(call, status, reply)) {
        begin_answer(agent, call, reply);
        mr_call_free(agent->config.endpoint, wire);
    } else if (!call->ended(agent, call, reply != NULL ? status : outcome(agent, call, status), reply)) {
        mr_call_free(agent->config.endpoint, wire);
    }
}

/* ---- death ---- */

void mr_member_close(struct mr_rpc *agent, struct mr_member *m)
{
    for (uint32_t i = 0; i < MR_MEMBER_SESSIONS; i++) {
        struct mr_client_session *session = m->sessions[i];
        m->sessions[i] = NULL;
        if (session != NULL)
            mr_client_session_close(agent->config.endpoint, session, mr_agent_now(agent));
    }
}

void mr_member_died(struct mr_rpc *agent, struct mr_member *m)
{
    if (atomic_exchange(&m->dead, true) || m->rank == agent->config.rank)
        return;
    mr_member_close(agent, m);
    if (m->rank == MR_RPC_NO_RANK)
        return;
    for (const mr_agent_died *died = agent->died; *died != NULL; died++)
        (*died)(agent, m->rank);
}
