/* A worker's agent: the state machine behind struct mr_rpc. It stands on one endpoint, which both calls and
 * serves, and knows no socket, no NIC and no thread of its own but the executor's.
 *
 * Whoever moves the packets is its driver: a thread of a worker's program, or core 0 of a node. All of the
 * agent belongs to the thread that is inside ("enters") at the moment, apart from what is marked "any
 * thread". Others hand it work with mr_agent_submit() and wait on futures. Handlers of the endpoint and
 * timers run inside.
 *
 * Names: the agent of the worker is struct mr_rpc itself, so that what the program holds needs no wrapping.
 * Ids of contexts and references are (rank << MR_RPC_ID_SHIFT) | counter, unique in the world.
 */
#ifndef MR_RPC_AGENT_H
#define MR_RPC_AGENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/rpc/base/functions.h"
#include "dataplane/rpc/base/values.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "dataplane/wire/endpoint.h"

#define MR_RPC_ID_SHIFT    48
#define MR_RPC_ERROR_BYTES 512u
#define MR_RPC_NO_RANK     UINT32_MAX

struct mr_member; /* another worker, see member.h */
struct mr_long_in;
struct mr_long_out;

/* Work for the thread inside; whoever submits it owns it until run() is called. */
struct mr_work {
    struct mr_work *next;
    void (*run)(struct mr_rpc *agent, struct mr_work *work);
};

/* What drives the agent. */
struct mr_agent_driver {
    void *self;
    uint64_t (*now_us)(void *self); /* any thread; the endpoint's clock */
    /* Any thread. The caller is inside until it leaves, if nobody is now and it may be. It must not be inside
     * already. A driver whose agent belongs to one thread for good always says no. */
    bool (*enter)(void *self);
    /* Sends what was made to be sent, unless more follows at once (`more`: the same thread will wait, or
     * enter again, soon). */
    void (*leave)(void *self, bool more);
    /* Any thread: there is submitted work where there was none. */
    void (*wake)(void *self);
    /* Any thread, not inside: returns when *done has MR_DONE (true), or at deadline_us (false). May drive
     * meanwhile. Before it sleeps on the word as a futex, it adds MR_DONE_SLEEPER. Whoever ends what is
     * waited for calls mr_agent_done(). */
    bool (*wait)(void *self, _Atomic uint32_t *done, uint64_t deadline_us);
    /* Any thread: this process was forked from the worker's, and must not touch what others of its threads
     * may have held. NULL: never. */
    bool (*is_inherited)(void *self);
    /* On each thread that runs functions, first: a driver that is pinned gives it another place. NULL:
     * nothing. */
    void (*thread_begins)(void *self);
};

/* Bits of the word that is waited for; the others are its owner's. */
#define MR_DONE         1u
#define MR_DONE_SLEEPER 2u

struct mr_agent_config {
    struct mr_agent_driver driver;
    struct mr_endpoint *endpoint; /* its handlers call mr_agent_on_*(); below */
    const char *name; /* "": no member (a node that is the rendezvous only); rank is MR_RPC_NO_RANK then */
    uint32_t rank, world_size;
    uint8_t uuid[MR_UUID_BYTES]; /* the endpoint's client_uuid */
    uint32_t incarnation;        /* the endpoint's: another one at each start */
    bool is_node;
    bool is_rendezvous; /* serves JOIN, LEAVE and ALIVE */
    /* neither joins nor serves (BUSY) before mr_agent_release(): functions are still being registered */
    bool held;
    struct mr_address rendezvous;                         /* unless is_rendezvous */
    uint32_t timeout_ms, dead_after_ms, executor_threads; /* as in mr_rpc_options, defaults filled in */
    /* As message_bytes and long_memory_bytes there; longer messages than `from` go in parts, see
     * long_message.h. 0: the defaults. */
    size_t long_bytes_max, long_memory_bytes, long_from_bytes;
};

/* What an agent has done so far. Written inside; any thread may read. */
#define MR_AGENT_COUNTER_LIST(X)                                                                             \
    X(calls_served,                                                                                          \
      "calls of functions of this worker that came and were answered, by a result or an error")              \
    X(calls_failed, "of these: by an error")                                                                 \
    X(calls_refused, "of these: without running: no such function, or wrong arguments")                      \
    X(calls_made, "calls that this worker made to others and that have ended")                               \
    X(calls_made_failed, "of these: with an error")                                                          \
    X(calls_under_way, "calls that this worker has made and that have not ended")                            \
    X(functions_running, "functions that run or wait for a thread")                                          \
    X(threads, "threads that run functions, made so far")                                                    \
    X(threads_waiting, "of these: in functions that wait for other workers")                                 \
    X(values_owned, "values of this worker that somebody holds a reference to")                              \
    X(values_held, "references that this worker holds to others' values")                                    \
    X(contexts_begun, "autograd contexts that this worker has begun and not ended")                          \
    X(contexts_known, "autograd contexts that are known here and not ended, whoever has begun them")         \
    X(long_bytes, "bytes of memory that messages in parts, and results that came so, take")                  \
    X(long_messages, "messages that came in parts and are whole")                                            \
    X(members_joined, "workers that have joined, this one among them")                                       \
    X(members_dead, "workers of them that have died or left")

struct mr_agent_counters {
#define MR_AGENT_COUNTER_FIELD(name, help) uint64_t name;
    MR_AGENT_COUNTER_LIST(MR_AGENT_COUNTER_FIELD)
#undef MR_AGENT_COUNTER_FIELD
};

/* The endpoint is the driver's, made before, and destroyed after the agent. MR_INVALID_ARGUMENT,
 * MR_NO_MEMORY. */
enum mr_status mr_agent_create(const struct mr_agent_config *config, struct mr_rpc **out, char *error,
                               size_t error_bytes);
/* Going away, in this order, of which none may be left out:
 * inside: calls under way end with MR_SHUTTING_DOWN, none begins, sessions end; */
void mr_agent_close(struct mr_rpc *agent);
/* not inside, while it is still driven: waits for the functions that run, and ends the executor's threads; */
void mr_agent_join(struct mr_rpc *agent);
/* nobody is inside or waits any more, or will; the endpoint is still there. Values of ours and what contexts
 * of others kept are freed. Futures, results, references and contexts that somebody still has stay what they
 * are until they are released, by any thread: gone(driver.self) is called when the last one has been, perhaps
 * within this call, and nothing is left of the agent then; the endpoint must be there until then. `gone` may
 * be NULL. */
void mr_agent_destroy(struct mr_rpc *agent, void (*gone)(void *driver));

/* How it stands with a node's world. Inside. */
enum mr_agent_end {
    MR_AGENT_GOES_ON,
    MR_AGENT_OVER,    /* there were others, and all of them have left or died */
    MR_AGENT_FENCED,  /* the others take us for dead */
    MR_AGENT_REFUSED, /* joining failed: `why` gets the line */
};
enum mr_agent_end mr_agent_end(const struct mr_rpc *agent, char *why, size_t why_bytes);
/* A node that is told to stop, before it closes. Inside: no other worker's call begins from now on
 * (MR_SHUTTING_DOWN), those that run may still call; */
void mr_agent_retire(struct mr_rpc *agent);
/* inside: functions that still run, and answers that wait for memory; */
uint32_t mr_agent_unfinished(struct mr_rpc *agent);
/* inside: says to the others that we go: they take us for dead at once. Each call says it to those who have
 * not answered; false when all have, or are dead. */
bool mr_agent_say_farewell(struct mr_rpc *agent);

/* ---- inside: the driver's side ---- */

/* Whether the op of this request is the agent's; then it is answered. */
bool mr_agent_on_request(struct mr_rpc *agent, const struct mr_request *request);
/* What this agent and its world are, for RPC_STATUS, which anybody may ask: answers it. */
void mr_agent_serve_status(struct mr_rpc *agent, const struct mr_request *request);
/* All calls of the endpoint are the agent's, and so are all its sessions. */
void mr_agent_on_reply(struct mr_rpc *agent, struct mr_call *wire, void *user, enum mr_status status,
                       const struct mr_message *reply);
void mr_agent_on_session(struct mr_rpc *agent, struct mr_session *session, enum mr_session_event event);
/* Joins and serves from now on, if it was held; from the next turn on. */
void mr_agent_release(struct mr_rpc *agent);
/* Looks up those counters that are not counted as they change. */
void mr_agent_count(struct mr_rpc *agent);
/* Submitted work and timers. Returns when it wants to be called next at the latest. Follow it with a poll of
 * the endpoint. */
uint64_t mr_agent_turn(struct mr_rpc *agent, uint64_t now_us);

/* ---- any thread ---- */

/* As of the last mr_agent_count(). */
const struct mr_agent_counters *mr_agent_counters(const struct mr_rpc *agent);
/* Whoever has something of the agent's that it does not know of, or that outlives it, holds it. The last one
 * to let go frees it. */
void mr_agent_hold(struct mr_rpc *agent);
void mr_agent_put(struct mr_rpc *agent);
/* Runs it inside, in the order of submission; after mr_agent_destroy() at once. */
void mr_agent_submit(struct mr_rpc *agent, struct mr_work *work);
/* The same without waking anybody: whoever submits many calls mr_agent_wake() behind the last. */
void mr_agent_submit_quietly(struct mr_rpc *agent, struct mr_work *work);
void mr_agent_wake(struct mr_rpc *agent);
bool mr_agent_has_work(const struct mr_rpc *agent);
/* *done has MR_DONE and nothing else now, and who sleeps on it is woken; `done` may be gone when this
 * returns. Returns what it was. */
uint32_t mr_agent_done(_Atomic uint32_t *done);
uint64_t mr_agent_now_us(const struct mr_rpc *agent);
struct mr_functions *mr_agent_functions(struct mr_rpc *agent);
struct mr_agent_driver *mr_agent_driver(struct mr_rpc *agent);
/* The worker is the one of a process that this one was forked from. Any thread. */
bool mr_agent_is_inherited(const struct mr_rpc *agent);
/* MR_FORKED then, told by mr_rpc_error(). */
enum mr_status mr_agent_check_process(const struct mr_rpc *agent, const char *caller);
/* The line of mr_rpc_last_error() of this thread. */
void mr_rpc_error_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define mr_rpc_error(status, ...) (mr_rpc_error_line(__VA_ARGS__), (status))

/* ---- inside: messages to other workers, of any RPC op ---- */

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
     * goes in then. */
    bool stays;
    /* of such a call, or one with such an answer: set once nobody wants it any more; or NULL */
    const bool *over;
    /* Of such a call: the other worker has not looked at it, and never will. May be NULL. */
    void (*unread)(struct mr_rpc *agent, struct mr_agent_call *call);
    /* of calls of functions, which have a session for each: those that wait for others do not hold these up
     * */
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
/* Ends it with MR_CANCELLED, through ended(), unless it has ended. */
void mr_agent_cancel(struct mr_rpc *agent, struct mr_agent_call *call);
/* Ends it so only if the other worker cannot have begun with it. False: nothing is changed. */
bool mr_agent_withdraw(struct mr_rpc *agent, struct mr_agent_call *call);
void mr_agent_free(struct mr_rpc *agent, struct mr_call *kept, struct mr_long_in *kept_in);

/* Serving another op: `from` is a living member. The rules of mr_on_request hold. */
typedef void (*mr_agent_serve)(struct mr_rpc *agent, void *self, uint32_t from,
                               const struct mr_request *request);
void mr_agent_set_op(struct mr_rpc *agent, uint8_t op, mr_agent_serve serve, void *self);
struct mr_endpoint *mr_agent_endpoint(struct mr_rpc *agent);

/* ---- what references and autograd hang into calls; NULL functions: not there, such calls are refused
 * ---- */

struct mr_agent_references {
    void *self;
    struct mr_value_hooks values;
    /* Any thread: whether it may be used; else why not, as text. */
    const char *(*check)(void *self, const struct mr_rref *rref);
    /* Any thread: one more handle, and one less, of arguments that wait to be sent and of values that were
     * received. */
    void (*retain)(void *self, struct mr_rref *rref);
    void (*release)(void *self, struct mr_rref *rref);
    /* Inside: whether all the references of a message, and one remote_came(), will not fail for want of
     * memory. */
    bool (*reserve)(void *self);
    /* Inside, on the caller: the call that makes this value is about to leave, or to run here (told again,
     * nothing happens); it never left. */
    enum mr_status (*remote_goes)(void *self, struct mr_rref *rref);
    void (*remote_never)(void *self, struct mr_rref *rref, enum mr_status status);
    /* Inside, on the callee: a call of another whose result is to stay came; it ended, or one of ours did.
     * `result` is the receiver's (NULL when it failed), and so is an object in it, with what destroys it. */
    enum mr_status (*remote_came)(void *self, uint32_t from, uint64_t reference, uint64_t fork);
    void (*remote_ended)(void *self, uint64_t reference, enum mr_status status, const char *error,
                         struct mr_rpc_result *result, void (*destroy)(void *object));
    void (*died)(void *self, uint32_t rank); /* inside */
    /* Inside: values of ours that somebody holds, and our holds of others'. */
    void (*count)(void *self, uint64_t *owned, uint64_t *held);
    /* Inside: whether others hold what is ours, or we what is theirs, so that we cannot leave; then one line,
     * unless `what` is NULL. */
    bool (*held)(void *self, char *what, size_t what_bytes);
    /* Inside, timers: when it wants to be called next. */
    uint64_t (*turn)(void *self, uint64_t now_us);
};
void mr_agent_set_references(struct mr_rpc *agent, const struct mr_agent_references *references);

struct mr_rpc_call;
struct mr_agent_autograd {
    void *self;
    /* On the caller, its thread, before anything is sent. */
    enum mr_status (*call_out)(void *self, struct mr_autograd *context, uint32_t to, const char *function,
                               const struct mr_value *arguments, uint32_t argument_count,
                               uint64_t *context_id, uint64_t *invocation);
    /* On the caller, inside: the call's results came; they get their numbers. Unless this says MR_OK the call
     * fails. */
    enum mr_status (*reply_in)(void *self, uint64_t context_id, uint64_t invocation, struct mr_value *results,
                               uint32_t result_count);
    /* On the callee, the executor's thread, around the function's run; see executing.h. Arguments and results
     * get their numbers. */
    enum mr_status (*run_begins)(void *self, struct mr_rpc_call *call);
    enum mr_status (*run_ended)(void *self, struct mr_rpc_call *call, enum mr_status status);
    void (*died)(void *self, uint32_t rank); /* inside */
};
void mr_agent_set_autograd(struct mr_rpc *agent, const struct mr_agent_autograd *autograd);

#endif
