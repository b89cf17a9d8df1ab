/* Another worker, as an agent knows it: who it is, the sessions to it, and whether it is alive. Inside, but
 * for what is said. */
#ifndef MR_RPC_MEMBER_H
#define MR_RPC_MEMBER_H

#include <stdatomic.h>
#include "dataplane/rpc/agent.h"
#include "dataplane/rpc/base/executor.h"

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
    struct mr_session *sessions[MR_MEMBER_SESSIONS];
    uint32_t calls_pending;
    uint64_t pending_since_us; /* while calls_pending > 0 */
    uint64_t heard_us;         /* the last ALIVE of it, or answer to one of ours */
    struct mr_agent_call alive;
    bool alive_under_way;
    struct mr_agent_call farewell; /* retire.c */
    bool farewell_under_way, farewell_heard;

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
