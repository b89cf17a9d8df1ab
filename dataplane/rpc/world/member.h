/* Another worker as an agent knows it: who it is, the sessions to it, calls to it, and whether it is alive.
 * Inside, unless said otherwise. */
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

/* A call of an RPC op. Whoever makes it owns it until ended() is called. The request's preamble.step is the
 * caller's rank. */
struct mr_agent_call {
    uint32_t to; /* not our own rank */
    uint8_t op;
    /* Which session the call takes: one for each depth of calls of functions, so that calls that wait for
     * others do not hold these up; or one of these. */
    uint8_t depth;
    bool control; /* for ops whose handler never waits */
    bool fetch;   /* for fetches, which wait for functions there */
    bool parts;   /* for parts of long messages */
    /* Tensors with data stay valid until the call has ended, so that the request may be sent in parts. */
    bool stays;
    /* Set once nobody wants the call any more: then parts of its request or answer are not sent or fetched
     * any more. May be NULL. */
    const bool *over;
    /* The other worker has not looked at the request (sent in parts), and never will. May be NULL. */
    void (*unread)(struct mr_rpc *agent, struct mr_agent_call *call);
    uint64_t deadline_us; /* UINT64_MAX: none; the call ends when the worker dies */
    /* Called once, inside. `reply` is NULL unless one came. It is valid until this returns; or, if this
     * returns true, until mr_agent_free(agent, call->wire, call->in), so note both. After the deadline the
     * status is MR_DEADLINE_EXCEEDED, whatever was sent; if the worker died or was restarted, it is
     * MR_WORKER_DIED. */
    bool (*ended)(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                  const struct mr_message *reply);

    /* The agent's. */
    struct mr_call *wire; /* NULL once the answer comes in parts, in: */
    struct mr_long_in *in;
    struct mr_long_out *out; /* the request, in parts */
    struct mr_member *member;
    bool cancelled;
};

/* Begins a call. Tensors are as in mr_call_begin(): those with data are copied, unless call->stays; for the
 * others `data` is set to where the caller writes before mr_agent_send(). If this fails ended() is not
 * called. MR_UNKNOWN_WORKER, MR_WORKER_DIED, MR_TOO_LARGE, MR_NO_MEMORY, MR_SHUTTING_DOWN. */
enum mr_status mr_agent_begin(struct mr_rpc *agent, struct mr_agent_call *call, struct mr_tensor *tensors,
                              uint32_t tensor_count);
void mr_agent_send(struct mr_rpc *agent, struct mr_agent_call *call);
/* Forgets a call that was begun and not sent; ended() is not called. */
void mr_agent_drop(struct mr_rpc *agent, struct mr_agent_call *call);
/* Ends a call with MR_CANCELLED, through ended(), unless the other worker may have begun with it. False:
 * nothing changed. */
bool mr_agent_withdraw(struct mr_rpc *agent, struct mr_agent_call *call);
/* Writes the text of an error that came as a reply. False: there is none, and `text` is "". */
bool mr_agent_error_text(const struct mr_message *reply, char *text, size_t bytes);
/* Frees what a reply lies in; each may be NULL. */
void mr_agent_free(struct mr_rpc *agent, struct mr_call *kept, struct mr_long_in *kept_in);

/* The endpoint's handler of replies, for all of its calls: they are the agent's. */
void mr_agent_on_reply(struct mr_rpc *agent, struct mr_call *wire, void *user, enum mr_status status,
                       const struct mr_message *reply);

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
    struct mr_client_session *sessions[MR_MEMBER_SESSIONS];
    uint32_t calls_pending;
    uint64_t pending_since_us; /* while calls_pending > 0 */
    uint64_t heard_us;         /* the last ALIVE of it, or answer to one of ours */
    struct mr_agent_call alive;
    bool alive_in_flight;
    struct mr_agent_call goodbye; /* of a node that is stopped */
    bool goodbye_in_flight, goodbye_heard;

    /* At the rendezvous: what it last said in LEAVE, see world.h. */
    uint32_t leave_phase, leave_epoch;
    bool leave_quiet, leave_unchanged;
    uint64_t leave_activity;
};

/* Returns why that worker cannot be called now, with the line; else MR_OK. Any thread. */
enum mr_status mr_member_check(struct mr_rpc *agent, uint32_t rank);
/* Does the same as mr_agent_begin(), without a check of the member; for ops of the world itself. */
enum mr_status mr_member_begin(struct mr_rpc *agent, struct mr_member *member, struct mr_agent_call *call,
                               struct mr_tensor *tensors, uint32_t tensor_count);
/* Takes the member for dead from now on: calls to it end with MR_WORKER_DIED, and agent->died hears of it.
 * Again does nothing. */
void mr_member_died(struct mr_rpc *agent, struct mr_member *member);
/* Closes the sessions to it; calls end. */
void mr_member_close(struct mr_rpc *agent, struct mr_member *member);
/* Returns the member that sent the request; NULL: no living one did. */
struct mr_member *mr_member_of_request(struct mr_rpc *agent, const struct mr_request *request);
/* Writes "worker \"b\" (rank 1)". Any thread. */
#define MR_MEMBER_TEXT_BYTES 96u
void mr_member_text(struct mr_rpc *agent, uint32_t rank, char text[MR_MEMBER_TEXT_BYTES]);

#endif
