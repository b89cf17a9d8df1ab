/* Another worker, as an agent knows it: who it is, the sessions to it, and whether it is alive. Inside, but
 * for what is said. */
#ifndef MR_RPC_MEMBER_H
#define MR_RPC_MEMBER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "dataplane/wire/endpoint.h"

struct mr_member;
struct mr_long_in;
struct mr_long_out;

/* ---- messages to other workers, of any RPC op ---- */

/* One call of an op; whoever makes it owns it until ended() is called. preamble.step of the request says our
 * rank. */
struct mr_agent_call {
    uint32_t to; /* not our own rank */
    uint8_t op;
    /* In a session of its own: functions that take long over there do not hold it up. For what never waits
     * there. */
    bool control;
    bool fetch; /* in another one: for what waits there for functions, and must not hold them up */
    bool parts; /* in another one: parts of long messages */
    /* Its tensors with data stay until it has ended, so that it may be too long for the transport; what it
     * is sent as then. */
    bool stays;
    /* of such a call, or one with such an answer: set once nobody wants it any more; or NULL */
    const bool *over;
    /* Of such a call: the other worker has not looked at it, and never will. May be NULL. */
    void (*unread)(struct mr_rpc *agent, struct mr_agent_call *call);
    /* of calls of functions, which have a session for each: those that wait for others do not hold these
     * up */
    uint8_t depth;
    uint64_t deadline_us; /* UINT64_MAX: none; it ends when the worker dies */
    /* Inside, once. `reply` is NULL unless one came; it is valid until this returns, or, when this returns
     * true, until mr_agent_free(agent, call->wire, call->in): whoever wants that notes both. Deadlines are
     * MR_DEADLINE_EXCEEDED, whatever was sent; a worker that died or was restarted is MR_WORKER_DIED. */
    bool (*ended)(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                  const struct mr_message *reply);

    struct mr_call *wire; /* from here on the agent's. NULL once an answer comes in parts, as: */
    struct mr_long_in *in;
    struct mr_long_out *out; /* the request, in parts */
    struct mr_member *member;
    bool cancelled;
};

/* tensors as in mr_call_begin: with data, copied (or they stay, see mr_agent_call); without, `data` is set to
 * where the caller writes before mr_agent_send(). If it fails ended() is not called: MR_UNKNOWN_WORKER,
 * MR_WORKER_DIED, MR_TOO_LARGE, MR_NO_MEMORY, MR_SHUTTING_DOWN. */
enum mr_status mr_agent_begin(struct mr_rpc *agent, struct mr_agent_call *call, struct mr_tensor *tensors,
                              uint32_t tensor_count);
void mr_agent_send(struct mr_rpc *agent, struct mr_agent_call *call);
/* Begun and not sent: forgotten, ended() is not called. */
void mr_agent_drop(struct mr_rpc *agent, struct mr_agent_call *call);
/* Ends it with MR_CANCELLED, through ended(), if the other worker cannot have begun with it. False: nothing
 * is changed. */
bool mr_agent_withdraw(struct mr_rpc *agent, struct mr_agent_call *call);
void mr_agent_free(struct mr_rpc *agent, struct mr_call *kept, struct mr_long_in *kept_in);

/* ---- the endpoint's handlers ---- */

/* All calls of the endpoint are the agent's, and so are all its sessions. */
void mr_agent_on_reply(struct mr_rpc *agent, struct mr_call *wire, void *user, enum mr_status status,
                       const struct mr_message *reply);
void mr_agent_on_session(struct mr_rpc *agent, struct mr_client_session *session,
                         enum mr_client_session_event event);

/* ---- the other worker ---- */

enum mr_member_session {
    MR_SESSION_CALLS, /* and one for each further depth */
    MR_SESSION_CONTROL = MR_SESSION_CALLS + MR_EXECUTOR_DEPTHS,
    MR_SESSION_FETCHES,
    MR_SESSION_PARTS,
    MR_MEMBER_SESSIONS
};

struct mr_member {
    /* Never changed once the world is complete; then any thread may read it. */
    char name[MR_RPC_NAME_BYTES];
    uint32_t rank; /* MR_RPC_NO_RANK: the rendezvous as such, in mr_rpc.rendezvous */
    bool present;
    bool is_node, is_rendezvous;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t incarnation;
    uint64_t start_id; /* of the process that answered there first; 0: none yet */
    struct mr_address address;

    _Atomic bool dead; /* any thread; never again alive */
    bool away;         /* a session says so, since */
    struct mr_client_session *sessions[MR_MEMBER_SESSIONS];
    uint32_t calls_pending;
    uint64_t pending_since_us; /* while calls_pending > 0 */
    uint64_t heard_us;         /* the last ALIVE of it, or answer to one of ours */
    struct mr_agent_call alive;
    bool alive_in_flight;
    struct mr_agent_call goodbye; /* retire.c */
    bool goodbye_in_flight, goodbye_heard;

    /* At the rendezvous: what it last said in LEAVE, see world.h. */
    uint32_t leave_phase, leave_epoch;
    bool leave_quiet, leave_unchanged;
    uint64_t leave_activity;
};

/* Why nobody could be called there now; MR_OK. The line is said. Any thread. */
enum mr_status mr_member_check(struct mr_rpc *agent, uint32_t rank);
/* mr_agent_begin() to this one, without asking whether it is a member. */
enum mr_status mr_member_begin(struct mr_rpc *agent, struct mr_member *member, struct mr_agent_call *call,
                               struct mr_tensor *tensors, uint32_t tensor_count);
/* It is dead from now on: calls to it end with MR_WORKER_DIED. Nothing if it was. */
void mr_member_died(struct mr_rpc *agent, struct mr_member *member);
/* Says BYE on its sessions; calls end. */
void mr_member_close(struct mr_rpc *agent, struct mr_member *member);
/* The member whose request this is; NULL: none that is alive. */
struct mr_member *mr_member_of_request(struct mr_rpc *agent, const struct mr_request *request);
/* "worker \"b\" (rank 1)"; any thread. */
#define MR_MEMBER_TEXT_BYTES 96u
void mr_member_text(struct mr_rpc *agent, uint32_t rank, char text[MR_MEMBER_TEXT_BYTES]);

#endif
