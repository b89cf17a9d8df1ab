/* Several workers in one process, joined by queues: for tests of agents without sockets. With
 * TEST_LONG_FROM_BYTES in the environment all messages of more bytes go in parts. One thread moves all
 * packets and is inside all agents in turn; functions run on the agents' own threads. Time is the real
 * clock's, and goes on faster where a test skips some. */
#ifndef TEST_RPC_NET_H
#define TEST_RPC_NET_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "dataplane/rpc/agent.h"

#define NET_WORKERS_MAX 6u
#define NET_MEMORY      (8u << 20)

struct mr_contexts;

struct net_packet {
    struct net_packet *next;
    struct mr_address from, to;
    uint32_t bytes;
    _Alignas(8) uint8_t data[MR_UDP_BYTES_MAX];
};

struct net;
struct net_worker {
    struct net *net;
    struct mr_endpoint *ep;
    struct mr_endpoint *leaving; /* of an agent that was destroyed, until nothing of it is held */
    struct mr_rpc *rpc;
    struct mr_address address, other; /* other.port 0: it has one only */
    uint32_t incarnation;
    uint64_t random_state;
    struct net_packet *open;
    bool silent;    /* neither sends nor receives */
    uint32_t muted; /* bit i: nothing goes to or comes from worker i */
};

struct net {
    pthread_mutex_t lock; /* of all below, and of being inside any agent */
    struct net_worker workers[NET_WORKERS_MAX];
    uint32_t count;
    struct net_packet *first, *last;
    uint64_t skipped_us;
    bool stopping;
    pthread_t thread;
    _Atomic uint32_t events;
    uint64_t packets;
    uint64_t silence_at; /* at so many of them the worker falls silent; 0: never */
    uint32_t silence_of;
    uint32_t lose_per_1000, repeat_per_1000; /* packets; may be changed by net_loss() */
    uint64_t random_state;

    /* Settings for the workers that are added afterwards. */
    uint32_t world_size, executor_threads, dead_after_ms, timeout_ms;
    bool are_nodes, are_held, is_open;
    bool say_no_version, say_no_rpc; /* as versions before 0.3.0, and as one that lacks the capability */
    uint32_t rendezvous[NET_WORKERS_MAX], rendezvous_count; /* indices of workers; none: the first worker */
    bool have_two;                                          /* each of them has an IPv4 address, too */
    uint32_t apart; /* bit i: nobody can reach the first address of worker i; for all workers, at any time */
};

/* Starts the thread; settings have defaults (1 executor thread is the hardest). */
void net_start(struct net *net, uint32_t world_size);
/* Closes and destroys all workers, and checks that nothing is left of them. */
void net_stop(struct net *net);
/* cmocka's setup and teardown: *state is a network, which the test starts and the teardown stops. */
int net_setup(void **state);
int net_teardown(void **state);
/* A worker that joins; rank 0 is the rendezvous. The status is mr_agent_create()'s. */
struct mr_rpc *net_add(struct net *net, const char *name, uint32_t rank);
struct mr_rpc *net_add_with(struct net *net, const char *name, uint32_t rank, uint32_t world_size,
                            uint32_t is_rendezvous);
/* A whole world: workers "w0", "w1", ... that have joined. */
void net_world(struct net *net, uint32_t world_size);
/* None of the workers is taken for dead before the time-outs of calls, and their default is ten minutes: a
 * machine that others use, or an emulated one, needs more than one for some. */
void net_die_late(struct net *net);
/* Waits until the worker has joined. Fails the test if it cannot. */
void net_wait_joined(struct net *net, uint32_t worker);
/* So much time goes by, with packets as usual. */
void net_skip(struct net *net, uint64_t us);
/* From now on so many of a thousand packets are lost, and so many come twice. */
void net_loss(struct net *net, uint32_t lose_per_1000, uint32_t repeat_per_1000, uint64_t seed);
/* It is gone without a word, or its network is. */
void net_silence(struct net *net, uint32_t worker, bool silent);
/* The same after so many more packets of all workers. */
void net_silence_after(struct net *net, uint32_t worker, uint64_t packets);
/* Nothing goes from one to the other, either way. */
void net_mute(struct net *net, uint32_t worker, uint32_t other, bool muted);
/* Closes and destroys a worker, whatever is still held of it; not more than once. */
void net_end(struct net *net, uint32_t worker);
/* Nothing of it is left. */
bool net_is_gone(const struct net *net, uint32_t worker);
/* Autograd contexts that the worker knows. */
uint32_t contexts_known(struct mr_contexts *contexts);
/* Another process at the same address that knows nothing. */
void net_replace(struct net *net, uint32_t worker);
/* Another process at the same address that joins as that rank. */
void net_restart(struct net *net, uint32_t worker, const char *name, uint32_t rank);
/* Registers it on that worker. */
void net_function(struct mr_rpc *rpc, const char *name, const char *arguments, const char *results,
                  mr_rpc_run run, void *user, uint32_t flags);
/* Functions for it: one does nothing, one returns its arguments, and one fails: "row 17 is missing". */
enum mr_status net_nothing(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count);
enum mr_status net_mirror(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count);
enum mr_status net_fails(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count);
/* Of a test whose state begins with its struct net. */
static inline struct mr_rpc *worker(void **state, uint32_t rank)
{
    return ((struct net *)*state)->workers[rank].rpc;
}

/* Where functions wait until the test lets them pass. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t begun, ended; /* how many have come, and passed */
    bool open;
    void *object; /* of the function that waits */
};

void gate_init(struct gate *gate);
void gate_pass(struct gate *gate);
/* A function that passes the gate which its user pointer is. */
enum mr_status gate_pass_call(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count);
void gate_wait_begun(struct gate *gate, uint32_t count);
/* Returns once all that had come have passed. */
void gate_open(struct gate *gate);
void gate_close(struct gate *gate); /* and as if nothing had come */

/* What goes well. */
#define made(call)                                                                                           \
    do {                                                                                                     \
        if ((call) != MR_OK)                                                                                 \
            fail_msg("%s", mr_rpc_last_error());                                                             \
    } while (0)

/* What does not, and all that its error line says. */
#define expect_error(expected, call, ...)                                                                    \
    do {                                                                                                     \
        const char *const parts_[] = {__VA_ARGS__};                                                          \
        assert_int_equal(call, expected);                                                                    \
        for (size_t i_ = 0; i_ < sizeof(parts_) / sizeof(parts_[0]); i_++)                                   \
            if (strstr(mr_rpc_last_error(), parts_[i_]) == NULL)                                             \
                fail_msg("\"%s\" does not say \"%s\"", mr_rpc_last_error(), parts_[i_]);                     \
    } while (0)

#endif
