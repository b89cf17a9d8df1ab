/* A client: the nodes that it calls, its links to their cores, what it knows about them, and the lock that
 * protects all of it. */
#ifndef MRC_CLIENT_H
#define MRC_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "dataplane/wire/base/list.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"
#include "dataplane/udp/address.h"
#include "trainer_client/call/keys.h"
#include "trainer_client/call/known_features.h"
#include "trainer_client/call/core_link.h"
#include "trainer_client/millrace.h"
#include "trainer_client/call/names.h"
#include "trainer_client/call/node.h"
#include "trainer_client/call/shard_map.h"
#include "trainer_client/call/progress.h"

#define MRC_SERVER_BYTES        128u
#define MRC_MESSAGE_BYTES_LEAST (1u << 20) /* no node can be configured to take only shorter ones */
#define MRC_DEADLINE_MS_DEFAULT 10000u
#define MRC_CONNECT_MS_DEFAULT  10000u
#define MRC_MEMORY_BYTES_DEFAULT                                                                             \
    (256u << 20) /* a request and a reply of the largest length, and others besides */
#define MRC_BUSY_POLL_US_DEFAULT 50u
#define MRC_REPLAY_BYTES_DEFAULT (64u << 20)
/* those of a cluster, and servers that were named and turned out to be among them */
#define MRC_NODES_MAX (2 * MR_CLUSTER_NODES_MAX)

/* A server that the program named. */
struct mrc_seed {
    char name[MR_HOST_BYTES + 8u];
    bool is_done;          /* it is among the nodes, unless: */
    enum mr_status status; /* why it is not */
    char why[384];
};

struct mrc_reshard;

struct mr_client {
    /* set at creation */
    uint32_t forks; /* mrc_forks() then */
    pid_t process;
    char server[MRC_SERVER_BYTES]; /* as it was named, for errors */
    struct mrc_link_config link_config;
    uint32_t deadline_ms;
    uint32_t busy_poll_us;
    bool any_node; /* one is enough to begin with */
    bool watches;  /* the driver also spins when a long answer is due */
    bool has_progress_thread;
    bool replay; /* keep pushes for a server that restarts */
    uint64_t replay_bytes;
    pthread_t progress_thread;
    /* the longest message that all nodes take, as far as is known. Set under the lock */
    _Atomic uint32_t message_bytes_max;

    pthread_mutex_t lock; /* of everything below, and of all futures and calls */
    struct mrc_progress progress;
    struct mrc_keys keys;
    struct mrc_features features; /* of the nodes, as they are now */
    struct mrc_features met;      /* numbers that the caller may use, with what they named when it got them */
    struct mrc_names *names;      /* addresses of servers that are named */
    uint32_t names_ended;         /* look-ups that mrc_nodes_poll() has seen */
    uint32_t seed_count;
    struct mrc_seed *seeds; /* while the client is being made; NULL: it is */
    uint64_t hosts_us;      /* when it looks at the names of silent nodes again */
    struct mrc_node *nodes[MRC_NODES_MAX];
    uint32_t node_count, link_count;
    struct mrc_link *
        *links; /* of all nodes, in the order in which they were made; set by the driving thread */
    struct mrc_cluster cluster;
    struct mrc_shard_map *shard_map; /* NULL: not known yet */
    struct mrc_reshard *reshard;     /* what is kept, on its way to other owners (call_hooks.h) */
    uint32_t calls_held;             /* begun and not freed, including views that the caller holds */
    uint64_t room_made;              /* rises when a call ends or is freed */
    uint32_t room_waiters;           /* threads that wait for that */
    struct mr_histogram *latencies[MR_OP_COUNT]; /* of its own calls; NULL: none so far */
    struct mr_link pending_notify;               /* futures, see mrc_futures_notify_pending() */
    bool stopping;                               /* the progress thread must end */
    bool closed; /* destroyed by its owner; the last reply to be freed frees it */
};

/* Returns whether the client was made by a process that this one was forked from. Only what was set at
 * creation may then be used. */
bool mrc_is_inherited(const struct mr_client *client);
/* Returns MR_FORKED, reported by mrc_error(), for such a client. `what` is the name of the call. */
enum mr_status mrc_check_process(const struct mr_client *client, const char *what);

/* Adds a node that may be at these addresses, with the link to its core 0. MR_NO_MEMORY, also when there are
 * too many; MR_UNREACHABLE: there is no way to any of them. By the driving thread. */
enum mr_status mrc_client_add_node(struct mr_client *client, const struct mrc_addresses *addresses,
                                   struct mrc_node **out, char *error, size_t error_bytes);
/* Adds a new link to the list, and watches its socket. False: no memory. By the driving thread. */
bool mrc_client_add_link(struct mr_client *client, struct mrc_link *link);

/* Frees the memory of an ended call. Under the lock. */
void mrc_client_free_call(struct mr_client *client, struct mrc_link *link, struct mr_call *call);
/* Does the same for a reply's call, and gives up the lock. The last reply of a client that its owner has
 * destroyed frees the client. */
void mrc_client_release_reply(struct mr_client *client, struct mrc_link *link, struct mr_call *call);
/* Returns the number of calls in flight on all links. Under the lock. */
uint32_t mrc_client_calls_pending(const struct mr_client *client);

#endif
