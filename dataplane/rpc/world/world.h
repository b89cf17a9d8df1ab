/* The members of the world: joining it, staying alive, leaving it together. Functions are called inside,
 * unless their comment says otherwise.
 *
 * The rendezvous (rank 0's worker, or a node) keeps the list. Workers send JOIN to it until all have done so,
 * and then get the list. A worker that knows several places where it may be asks one after the other. ALIVE
 * tells the rendezvous that they live, and its answer lists who died. A worker that is silent for
 * dead_after_ms is dead, for ever. If the rendezvous dies, workers ask each other. A program's rendezvous has
 * joined once each of the others has the list, and has said so by its first ALIVE, or is dead: it may leave
 * at once, and nobody else has the list.
 *
 * A worker whose name, rank or world size does not fit is refused. The world of a program cannot come
 * together then: all who have asked are told so, with the reason, and the rendezvous ends, too. One that asks
 * for the rank or name of a member waits until that one has asked again, or has given up its place.
 *
 * Leaving: each worker that shuts down sends LEAVE with the epoch, whether it is quiet (no calls in flight,
 * none of its values held by others), and a number that rises with each call and execution. When all living
 * workers have reported in one epoch, the next begins. If all were quiet in two epochs in a row and no number
 * rose, there was an instant at which nothing was in flight anywhere, and nothing can begin again: everybody
 * may leave (the double counting of Mattern, "Algorithms for distributed termination detection", 1987). Nodes
 * do not shut down: they count as quiet. A node's world is over when all programs have left or died; where
 * there are none, when all other nodes have. A worker that ends without the others says goodbye, and is dead
 * for them at once.
 *
 * An open world is complete at once, with the rendezvous alone. It takes in one worker at a time: announces
 * it to all members, and gives it the list when all of them have answered. So whoever has joined is known to
 * everybody who can hear of it by a call or a reference. A worker leaves by itself, with a goodbye, and is
 * dead from then on; its rank is not used again, as references say by rank who holds them.
 */
#ifndef MR_RPC_WORLD_H
#define MR_RPC_WORLD_H

#include "dataplane/rpc/world/member.h"

/* JOIN, request: u8[sizeof]. */
struct mr_join_wire {
    char name[MR_RPC_NAME_BYTES];
    uint32_t rank, world_size, incarnation;
    uint32_t flags; /* enum mr_join_flag */
    /* Where else the worker listens: an address of the other family than the one that this comes from. Port
     * 0: nowhere. */
    uint8_t other_ip[16];
    uint16_t other_port, reserved; /* zero */
};
static_assert(sizeof(struct mr_join_wire) == 100, "join size");

enum mr_join_flag {
    MR_JOIN_NODE = 1u << 0,
    MR_JOIN_RENDEZVOUS = 1u << 1,
    /* Only in RPC_STATUS: */
    MR_MEMBER_JOINED = 1u << 2,
    MR_MEMBER_DEAD = 1u << 3, /* and in the JOIN of an open world */
    MR_MEMBER_LEFT = 1u << 4,
    /* The worker expects an open world. */
    MR_JOIN_OPEN = 1u << 5,
};
/* JOIN, answer: u8[world_size], 1 for each rank that has joined; and, once all have, u8[n, sizeof] with a
 * line for each. In an open world the lines come once all members know the worker, one for each that has
 * ever joined. The rendezvous tells members of a worker by a JOIN of its own, u8[sizeof] with its line. */
struct mr_member_wire {
    char name[MR_RPC_NAME_BYTES];
    uint8_t uuid[MR_UUID_BYTES];
    uint8_t ip[16];
    uint32_t rank, incarnation, flags;
    uint16_t port, other_port; /* other_port 0: it has no other address */
    uint8_t other_ip[16];
};
static_assert(sizeof(struct mr_member_wire) == 128, "member size");

/* RPC_STATUS, answer: MR_BODY_WORLD, a struct mr_member_wire without uuid for each rank (with only the rank
 * if it has not joined), and a line "name(arguments) -> results" for each function. */

/* LEAVE, request: this; answer: u64[2] {epoch, 1 if all may go}, u8[world_size] enum mr_leave_state. */
struct mr_leave_wire {
    uint64_t phase; /* enum mr_leave_phase */
    uint64_t epoch, quiet, activity;
};
enum mr_leave_phase { MR_LEAVE_NOT = 0, MR_LEAVE_CALLED = 1, MR_LEAVE_GONE = 2 };
enum mr_leave_state { MR_LEAVE_MISSING = 0, MR_LEAVE_BUSY = 1, MR_LEAVE_QUIET = 2, MR_LEAVE_OVER = 3 };
/* ALIVE, answer (of the rendezvous): u8[world_size] 1 for each rank that is dead. */

/* A node that is stopped, and a worker that leaves without the others, sends LEAVE with MR_LEAVE_GONE to
 * everybody, and is dead from then on. The answer is empty. */

enum mr_leaving_step { MR_LEAVING_NOT, MR_LEAVING_WAITS, MR_LEAVING_BYE, MR_LEAVING_DONE };

/* The state of mr_rpc_shutdown(). */
struct mr_leaving {
    enum mr_leaving_step step;
    uint64_t next_us, epoch, bye_until_us;
    bool in_flight;
    struct mr_agent_call call;
    uint8_t *states;         /* enum mr_leave_state of each rank, as last reported */
    bool parts;              /* mr_agent_part() waits for */
    _Atomic uint32_t parted; /* MR_DONE: all have heard */
    /* At the rendezvous. */
    uint64_t world_epoch;
    bool all_may_go;
};

enum mr_status mr_world_init(struct mr_rpc *agent);
void mr_world_fini(struct mr_rpc *agent);
/* Runs the timers of the world, and those of alive.c. Returns when to call it again. */
uint64_t mr_world_tick(struct mr_rpc *agent, uint64_t now_us);
uint64_t mr_alive_tick(struct mr_rpc *agent, uint64_t now_us);
/* The endpoint's handler of sessions; all of the endpoint's sessions are the agent's. A worker died if
 * another process answers in its place. */
void mr_agent_on_session(struct mr_rpc *agent, struct mr_client_session *session,
                         enum mr_client_session_event event);
/* The rendezvous has accepted this worker, and says its version. If that has other bodies of remote calls,
 * joining fails before anything else is sent. */
void mr_world_check_version(struct mr_rpc *agent, const struct mr_peer_version *version);
/* The rendezvous died or was restarted: from now on workers ask each other who is alive. */
void mr_world_rendezvous_lost(struct mr_rpc *agent, uint64_t now_us);
/* Whether this node's world goes on for as long as that member lives. */
bool mr_world_is_kept_by(const struct mr_rpc *agent, const struct mr_member *member);
/* Writes a member as it is in the list of members. */
void mr_world_write_member(const struct mr_member *member, struct mr_member_wire *out);
/* Reads a line of the list of members, and notes the member as one. False: it is not sane. */
bool mr_world_read_member(struct mr_rpc *agent, const struct mr_member_wire *line);
/* Of an open world, at the rendezvous: announces members[agent->arriving] to those who have not answered yet.
 * Once all have, it is a member. */
void mr_arrival_tick(struct mr_rpc *agent);
/* Of an open world, at a member: serves the announcement. False: the request is none. */
bool mr_arrival_serve(struct mr_rpc *agent, const struct mr_request *request);
/* Serve the ops JOIN, LEAVE and ALIVE. */
void mr_world_serve_join(struct mr_rpc *agent, const struct mr_request *request);
void mr_world_serve_leave(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
void mr_world_serve_alive(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request);
/* Writes the error of mr_rpc_init(): "2 of 3 workers have joined; missing: rank 1", and who is kept out.
 * False: nobody is known to have joined. */
bool mr_world_missing(struct mr_rpc *agent, char *out, size_t bytes);
/* Returns how many living workers, including this one, have not called mr_rpc_shutdown(), as far as is known
 * here. */
uint32_t mr_leave_staying(const struct mr_rpc *agent);
/* Writes who keeps this worker from leaving. */
void mr_leave_missing(struct mr_rpc *agent, char *out, size_t bytes);
/* Begins to leave, unless it has begun; runs its timers. */
void mr_leave_begin(struct mr_rpc *agent);
uint64_t mr_leave_tick(struct mr_rpc *agent, uint64_t now_us);
/* A member died. At the rendezvous, it may have been the last that had not sent LEAVE. */
void mr_leave_died(struct mr_rpc *agent, uint32_t rank);

/* Not inside: waits until all have joined. MR_DEADLINE_EXCEEDED (`error` says who is missing),
 * MR_UNREACHABLE, MR_VERSION_MISMATCH, or why the rendezvous refused. */
enum mr_status mr_workers_wait_joined(struct mr_rpc *agent, uint64_t deadline_us, char *error,
                                      size_t error_bytes);

/* Not inside, before mr_agent_close(): says goodbye, unless all have agreed that this worker may leave.
 * Returns once all others have heard it, or are dead, or after a second. */
void mr_agent_part(struct mr_rpc *agent);

/* ---- a node that is stopped, before mr_agent_close(); inside ---- */

/* From now on no call of another worker begins (MR_SHUTTING_DOWN). Functions that run may still call
 * others. */
void mr_agent_retire(struct mr_rpc *agent);
/* Returns how many functions still run, and how many answers wait for memory. */
uint32_t mr_agent_unfinished(struct mr_rpc *agent);
/* Notifies the others that this worker stops, so that it counts as dead for them at once: those that have not
 * answered yet, at each call. Returns false when all have answered, or are dead. */
bool mr_agent_say_goodbye(struct mr_rpc *agent);

#endif
