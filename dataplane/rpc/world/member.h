/* Another worker as an agent knows it: who it is, sessions and calls to it, and whether it is alive.
 * Functions are called inside, unless their comment says otherwise. */
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

/* A call of an RPC op. Whoever makes it owns it until ended() is called. preamble.step of the request is the
 * caller's rank. */
struct mr_agent_call {
    uint32_t to; /* another rank */
    uint8_t op;
    /* The session that the call takes. There is one for each depth of calls of functions, so that calls that
     * wait for others do not hold those up, and one for each of the following. */
    uint8_t depth;
    bool control; /* ops whose handler never waits */
    bool fetch;   /* fetches, which wait for functions there */
    bool parts;   /* parts of long messages */
    /* Tensors with data stay valid until the call has ended, so that the request may be sent in parts. */
    bool stays;
    /* Set once nobody wants the call any more: then no more parts of its request or answer are sent or
     * fetched. May be NULL. */
    const bool *over;
    /* Called if the other worker has not looked at a request in parts, and never will. May be NULL. */
    void (*unread)(struct mr_rpc *agent, struct mr_agent_call *call);
    uint64_t deadline_us; /* UINT64_MAX: none; the call ends when the worker dies */
    /* Called once, inside. `reply` is NULL unless one arrived. It is valid until this returns; or, if this
     * returns true, until mr_agent_free(agent, call->wire, call->in), so remember both. The status is
     * MR_DEADLINE_EXCEEDED after the deadline, whatever was sent, and MR_WORKER_DIED if the worker died or
     * was restarted. */
    bool (*ended)(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                  const struct mr_message *reply);

    /* The agent's. */
    struct mr_call *wire; /* NULL once the answer arrives in parts, in `in` */
    struct mr_long_in *in;
    struct mr_long_out *out; /* the request, in parts */
    struct mr_member *member;
    bool cancelled;
};

/* Begins a call. Tensors are as in mr_call_begin(): those with data are copied, unless call->stays is set;
 * for the others, sets `data` to where the caller writes before mr_agent_send(). If this fails, ended() is
 * not called. MR_UNKNOWN_WORKER, MR_WORKER_DIED, MR_TOO_LARGE, MR_NO_MEMORY, MR_SHUTTING_DOWN. */
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
/* Frees the memory of a reply; each may be NULL. */
void mr_agent_free(struct mr_rpc *agent, struct mr_call *kept, struct mr_long_in *kept_in);

/* The endpoint's handler of replies; all of the endpoint's calls are the agent's. */
void mr_agent_on_reply(struct mr_rpc *agent, struct mr_call *wire, void *user, enum mr_status status,
                       const struct mr_message *reply);

/* ---- the other worker ---- */

enum mr_member_session {
    MR_SESSION_CALLS, /* followed by one for each further depth */
    MR_SESSION_CONTROL = MR_SESSION_CALLS + MR_EXECUTOR_DEPTHS,
    MR_SESSION_FETCHES,
    MR_SESSION_PARTS,
    MR_MEMBER_SESSIONS
};

struct mr_member {
    /* Never changed once `present`; then any thread may read it. */
    char name[MR_RPC_NAME_BYTES];
    uint32_t rank;        /* MR_RPC_NO_RANK: the rendezvous as such, in mr_rpc.rendezvous */
    _Atomic bool present; /* any thread */
    bool is_node, is_rendezvous;
    uint8_t uuid[MR_UUID_BYTES];
    uint32_t incarnation;
    uint64_t start_id; /* of the process that answered there first; 0: none yet */
    struct mr_address address;
    struct mr_address other_address; /* of the other family; port 0: none is known */

    struct mr_client_session *sessions[MR_MEMBER_SESSIONS];
    uint64_t pending_since_us; /* while calls_pending > 0 */
    uint64_t heard_us;         /* when the last ALIVE or answer came from it */
    bool knows_refusal; /* at the rendezvous: it has been answered that the world cannot come together */
    bool has_list; /* at the rendezvous: it has said that it is alive, as only members with the list do */
    uint64_t wanted_us; /* at the rendezvous: when another first asked for its rank or name; 0: none has */
    uint32_t calls_pending;
    _Atomic bool dead; /* any thread; once set it stays */
    _Atomic bool left; /* any thread; why it is dead: it has said goodbye */
    bool alive_in_flight;
    struct mr_agent_call alive;
    struct mr_agent_call goodbye;      /* of a node that is stopped, or a worker that leaves alone */
    struct mr_agent_call announcement; /* at the rendezvous of an open world: of who is arriving */
    bool goodbye_in_flight, goodbye_heard;
    bool announcement_in_flight, announcement_heard;

    /* At the rendezvous: what its last LEAVE said, see world.h. */
    uint32_t leave_phase, leave_epoch;
    bool leave_quiet, leave_unchanged;
    uint64_t leave_activity;
};

/* Any thread: returns why that worker cannot be called now, and sets the error line; MR_OK: it can. */
enum mr_status mr_member_check(struct mr_rpc *agent, uint32_t rank);
/* Does the same as mr_agent_begin() without checking the member; for ops of the world itself. */
enum mr_status mr_member_begin(struct mr_rpc *agent, struct mr_member *member, struct mr_agent_call *call,
                               struct mr_tensor *tensors, uint32_t tensor_count);
/* Regards the member as dead from now on: ends calls to it with MR_WORKER_DIED, and calls agent->died. Does
 * nothing the second time. */
void mr_member_died(struct mr_rpc *agent, struct mr_member *member);
/* Closes the sessions to it; calls to it end. */
void mr_member_close(struct mr_rpc *agent, struct mr_member *member);
/* Returns the member that sent the request; NULL: no living member did. */
struct mr_member *mr_member_of_request(struct mr_rpc *agent, const struct mr_request *request);
/* Any thread: writes "worker \"b\" (rank 1)". */
#define MR_MEMBER_TEXT_BYTES 96u
void mr_member_text(struct mr_rpc *agent, uint32_t rank, char text[MR_MEMBER_TEXT_BYTES]);

#endif
