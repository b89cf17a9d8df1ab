/* An agent's driver, its configuration, and its counters. */
#ifndef MR_RPC_DRIVER_H
#define MR_RPC_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "dataplane/wire/endpoint.h"

#define MR_RPC_NO_RANK        UINT32_MAX
#define MR_RPC_RENDEZVOUS_MAX 16u

/* Bits of a word that threads wait for; the other bits belong to the word's owner. */
#define MR_DONE         1u
#define MR_DONE_SLEEPER 2u

/* What moves an agent's packets. */
struct mr_agent_driver {
    void *self;
    uint64_t (*now_us)(void *self); /* any thread; the endpoint's clock */
    /* Any thread that is not inside. Enters the agent, if nobody is inside and the caller may be; returns
     * true, and the caller is inside until leave(). A driver whose agent always belongs to one thread returns
     * false. */
    bool (*enter)(void *self);
    /* Leaves the agent and sends what is ready; not if `more`: the same thread will wait or enter again
     * soon. */
    void (*leave)(void *self, bool more);
    /* Any thread: work was submitted. */
    void (*wake)(void *self);
    /* Any thread that is not inside. Waits until *done has MR_DONE (returns true) or until deadline_us
     * (false), and may drive the agent in the meantime. Adds MR_DONE_SLEEPER before it sleeps on the word as
     * a futex; mr_agent_done() ends the wait. */
    bool (*wait)(void *self, _Atomic uint32_t *done, uint64_t deadline_us);
    /* Any thread: returns whether this process is a fork of the worker's, and must not touch what other
     * threads of the worker may have held. NULL: it never is. */
    bool (*is_inherited)(void *self);
    /* Called first on each thread that runs functions; a pinned driver gives it other CPUs. May be NULL. */
    void (*thread_begins)(void *self);
    /* Inside: whether packets can be sent to a worker at that address; otherwise writes one line: the
     * address, why not, and what to do. Asked when a session is opened. NULL: all can be reached. */
    bool (*can_reach)(void *self, const struct mr_address *to, char *why, size_t why_bytes);
};

struct mr_named_parameters;

struct mr_agent_config {
    struct mr_agent_driver driver;
    struct mr_endpoint *endpoint; /* its handlers call mr_agent_on_*() */
    const char *name; /* "": no member, only the rendezvous of others; then rank is MR_RPC_NO_RANK */
    uint32_t rank, world_size;
    /* Workers join and leave one by one, and world_size is how many may ever join. */
    bool is_open;
    uint8_t uuid[MR_UUID_BYTES]; /* the endpoint's client_uuid */
    uint32_t incarnation;        /* the endpoint's, different at each start */
    bool is_node;
    bool is_rendezvous; /* serves JOIN, LEAVE and ALIVE */
    /* Neither joins nor serves (BUSY) before mr_agent_release(), while functions are being registered. */
    bool held;
    /* Unless is_rendezvous: where it may be. They are tried in turn until one answers that it is there. */
    struct mr_address rendezvous[MR_RPC_RENDEZVOUS_MAX];
    uint32_t rendezvous_count;
    const char *rendezvous_text; /* what the user calls that, for error lines; "": at this worker */
    /* Where this worker listens, for workers that do not reach the address from which it joins: IPv4 and
     * IPv6. Port 0: it has none of that family, or it is not known. */
    struct mr_address own[2];
    uint32_t timeout_ms, dead_after_ms, executor_threads; /* as in mr_rpc_options, defaults filled in */
    /* As message_bytes and long_memory_bytes there. Messages of more than long_from_bytes go in parts, see
     * world/long_message.h. 0: the defaults. */
    size_t long_bytes_max, long_memory_bytes, long_from_bytes;
    /* Where parameters with names are, which outlive the agent. NULL: in the agent. */
    struct mr_named_parameters *parameters;
};

/* What an agent counts. Written inside; any thread may read. */
#define MR_AGENT_COUNTER_LIST(X)                                                                             \
    X(calls_served, COUNTER, NONE,                                                                           \
      "calls of this worker's functions that were answered, with a result or an error")                      \
    X(calls_failed, COUNTER, NONE, "calls of this worker's functions that were answered with an error")      \
    X(calls_refused, COUNTER, NONE,                                                                          \
      "calls of these that were not run: no such function, or wrong arguments")                              \
    X(calls_made, COUNTER, NONE, "calls that this worker made to others and that have ended")                \
    X(calls_made_failed, COUNTER, NONE,                                                                      \
      "calls that this worker made to others and that have ended with an error")                             \
    X(calls_under_way, GAUGE, NONE, "calls that this worker has made and that have not ended")               \
    X(functions_running, GAUGE, NONE, "functions that run or wait for a thread")                             \
    X(threads, GAUGE, NONE, "threads made so far that run functions")                                        \
    X(threads_waiting, GAUGE, NONE, "threads in functions that wait for other workers")                      \
    X(values_owned, GAUGE, NONE, "values of this worker that somebody holds a reference to")                 \
    X(values_held, GAUGE, NONE, "references that this worker holds to values of others")                     \
    X(contexts_begun, GAUGE, NONE, "autograd contexts that this worker has begun and not ended")             \
    X(contexts_known, GAUGE, NONE,                                                                           \
      "autograd contexts that this worker knows, begun by any worker and not ended")                         \
    X(long_bytes, GAUGE, BYTES,                                                                              \
      "bytes of memory in use for messages in parts, and for results that came in parts")                    \
    X(long_messages, COUNTER, NONE, "messages in parts that were received completely")                       \
    X(members_joined, GAUGE, NONE, "workers that have joined, including this one")                           \
    X(members_dead, GAUGE, NONE, "workers that have joined and are dead or gone")

struct mr_agent_counters {
    MR_AGENT_COUNTER_LIST(MR_COUNTER_FIELD)
};

#endif
