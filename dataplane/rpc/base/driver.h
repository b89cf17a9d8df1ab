/* What drives an agent, how it is configured, and what it counts. */
#ifndef MR_RPC_DRIVER_H
#define MR_RPC_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"

#define MR_RPC_NO_RANK UINT32_MAX

/* Bits of the word that is waited for; the others are its owner's. */
#define MR_DONE         1u
#define MR_DONE_SLEEPER 2u

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

#endif
