/* libmillrace, to see what a server, a cluster, a hub or this client does: states, counters, latencies,
 * memory, slow calls, packets. The conventions are those of millrace.h; nothing here changes rows. */
#ifndef MILLRACE_OBSERVE_H
#define MILLRACE_OBSERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "millrace.h"
#include "mr_histogram.h"
#include "mr_annotation.h"
#include "mr_tolerance.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cores, calls, memory ---- */

#define MR_NODE_WHY_BYTES 256u
struct mr_core_state {
    uint32_t core;
    /* 1 serving, 2 saving, 3 restoring, 4 stopping, 5 serving a checkpoint read only, 6 failed: it serves
     * nothing, as `why` says */
    uint32_t state;
    uint32_t incarnation;
    uint64_t uptime_us;
    double busy_share; /* 0..1, of the last second */
    uint64_t last_step;
    uint64_t cached_batches, rows, memory_bytes;
    uint64_t rtt_us; /* as the client sees it */
    /* what was asked for and not done since the server's start; the first three over all features, as in
     * struct mr_feature_info: */
    uint64_t rows_refused, gradients_without_row, gradients_skipped;
    uint64_t steps_ignored;      /* calls whose step was too far from that of other calls to count */
    char why[MR_NODE_WHY_BYTES]; /* of one that failed; else "" */
};
/* Reports the state of each core. states: [mr_client_core_count()], or [MR_CLIENT_CORES_MAX] where nodes
 * may join meanwhile. If cores do not answer, that is the outcome, and their `state` is 0; those of the
 * others are set. */
MR_API enum mr_status mr_heartbeat(struct mr_client *client, const struct mr_options *options,
                                   struct mr_core_state *states);
/* Calls `visit`, on this thread, with every counter of one core, in a fixed order. */
MR_API enum mr_status mr_stats(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               void (*visit)(void *arg, const char *name, uint64_t value), void *arg);
/* Calls `visit`, on this thread, with every histogram of how long calls to one core have taken since its
 * start: by operation ("lookup", "push_grad", ...; protocol.md lists them) and phase: "wait", from the
 * arrival of the last of a request until its work begins; "work", until its answer is there; "send", until
 * the last of that has gone to the port. In bursts one call in eight is timed, and counts for eight. The
 * histogram of a window: mr_histogram_subtract() what was there before; of several cores:
 * mr_histogram_merge(). A histogram is valid until `visit` returns. */
MR_API enum mr_status mr_latencies(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                   void (*visit)(void *arg, const char *op, const char *phase,
                                                 const struct mr_histogram *histogram),
                                   void *arg);
/* Does the same with how long this client's own calls took, each from the call to its last answer, to all
 * cores that it went to, and for a thread that waits for that until it goes on. Calls that got no answer are
 * not in it. */
MR_API enum mr_status mr_client_latencies(struct mr_client *client,
                                          void (*visit)(void *arg, const char *op,
                                                        const struct mr_histogram *histogram),
                                          void *arg);
/* Calls `visit`, on this thread, with what the node of this core is: its configuration ("config.port.mtu")
 * and what it runs on ("machine.kernel", "dpdk"). The strings are valid until `visit` returns. Needs the role
 * operator. */
MR_API enum mr_status mr_facts(struct mr_client *client, const struct mr_options *options, uint32_t core,
                               void (*visit)(void *arg, const char *name, const char *value), void *arg);
/* Annotates this time for recordings (millrace perf record): a line of UTF-8, at most 143 bytes, such as
 * "epoch 3". The node keeps its last 256 annotations. Core 0. MR_INVALID_ARGUMENT. */
MR_API enum mr_status mr_annotate(struct mr_client *client, const struct mr_options *options,
                                  const char *text);
/* Calls `visit`, on this thread, with the annotations after number `since` of the node that has the core,
 * the oldest first: those that clients set, and, for operators, what the node's log says at level info and
 * above. An annotation is valid until `visit` returns. Writes the number of the newest, and how many after
 * `since` were forgotten before they were read. `visit`, `last` and `missed` may be NULL. */
MR_API enum mr_status mr_annotations(struct mr_client *client, const struct mr_options *options,
                                     uint32_t core, uint64_t since, uint64_t *last, uint64_t *missed,
                                     void (*visit)(void *arg, const struct mr_annotation *annotation),
                                     void *arg);
/* A call that a core has served. Its time goes from the arrival of the last of its request until the last of
 * its answer has gone to the port, or until the client wants it no more. The phases are those of
 * mr_latencies(), but for a long call that waits for its turn behind others: that is wait here, and work
 * there. */
struct mr_recent_call {
    uint64_t number;     /* from 1, in the order in which the core's calls were over */
    uint64_t arrived_ns; /* by the core's clock: mr_recent_calls_state.now_ns */
    uint64_t total_ns;
    bool is_timed; /* phases are known; in bursts they are of one call in eight */
    uint64_t wait_ns, work_ns, send_ns;
    const char *op;  /* "lookup", ... */
    uint32_t status; /* enum mr_status of the answer */
    uint32_t table;  /* id; 0: none, or several */
    uint32_t keys;   /* of lookups and pushes by key, and of feeds; else 0 */
    uint32_t request_bytes, reply_bytes;
    char client[64]; /* its address, "10.0.0.7:41000" */
};
struct mr_recent_calls_state {
    uint64_t next;   /* position of what follows */
    uint64_t lost;   /* calls before those visited that the core no longer had */
    uint64_t left;   /* calls that follow those visited, and can be read */
    uint64_t now_ns; /* the core's clock */
    uint64_t calls;  /* of this core, since its start */
    uint64_t slow;   /* of these: that were slow when they were over */
};
#define MR_RECENT_CALLS_FROM_NOW UINT64_MAX
/* Calls `visit`, on this thread, with the last calls of a core, the oldest first: up to 256 from `position`
 * on, of the last 512. slow_ns > 0: instead with those that took so long or longer, with up to 8 calls before
 * and 4 after each. The core selects them, and keeps the last 512, from the first such question on until none
 * has come for 10 s; of several readers the smallest span counts. position: 0, or MR_RECENT_CALLS_FROM_NOW to
 * see only what comes, then `next` of the answer before. `state` may be NULL. Needs the role operator. */
MR_API enum mr_status mr_recent_calls(struct mr_client *client, const struct mr_options *options,
                                      uint32_t core, uint64_t slow_ns, uint64_t position,
                                      struct mr_recent_calls_state *state,
                                      void (*visit)(void *arg, const struct mr_recent_call *call), void *arg);
/* How far a server's or hub's clock (CLOCK_MONOTONIC of its machine) is ahead of this process's. */
struct mr_clock_offset {
    /* names of the two clocks: equal exactly when they are one, as within one machine; then offset_ns and
     * error_ns are 0 */
    uint64_t own_clock, peer_clock;
    uint64_t at_ns;    /* own time of the exchange */
    int64_t offset_ns; /* the peer's clock minus the own one */
    uint64_t error_ns; /* offset_ns is wrong by at most that: half the round trip */
};
#define MR_CLOCK_EXCHANGES 8
/* Measures that for a core's node, as NTP does (RFC 5905, section 8): of MR_CLOCK_EXCHANGES requests the one
 * with the shortest round trip counts. With options->future it is one request, and the round trip ends when
 * the future is waited for. Clocks drift: a program that runs for long asks now and then. MR_UNKNOWN_OP of a
 * server or hub that is too old. */
MR_API enum mr_status mr_clock_offset(struct mr_client *client, const struct mr_options *options,
                                      uint32_t core, struct mr_clock_offset *out);
/* Writes what this client counts as a file of Prometheus's text format, for node_exporter's textfile
 * collector (its directory, a name that ends with ".prom"): counters of its links, replay, and how long
 * its calls took. Whoever reads the file sees this text or the one before. `name` tells clients apart, by the
 * label `client`; NULL: the program and its process number. MR_IO_ERROR. */
MR_API enum mr_status mr_client_write_metrics(struct mr_client *client, const char *path, const char *name);
/* How a core uses its memory. */
struct mr_core_memory {
    uint64_t limit_bytes;     /* for tables and variables; never exceeded */
    uint64_t mapped_bytes;    /* of limit_bytes: taken from the kernel, in units of 2 MiB */
    uint64_t allocated_bytes; /* of mapped_bytes: used by tables and variables with their indexes */
    uint64_t ahead_bytes;     /* of mapped_bytes: prepared before it is needed */
    uint64_t units_failed;    /* units that the machine had no memory for */
    /* the same for fed batches and records; not part of the above */
    uint64_t batch_limit_bytes, batch_mapped_bytes;
    uint64_t batch_bytes; /* batches kept now */
    uint64_t variable_bytes;
    uint64_t scratch_bytes;    /* working memory of pushes, outside the limits; grows with the largest push */
    uint64_t checkpoint_bytes; /* buffers of a running checkpoint, outside the limits */
};
/* How a table uses memory: index + values + state + slack + filter is all that it takes. */
struct mr_table_memory {
    uint32_t id;
    uint64_t rows;
    uint64_t index_bytes, values_bytes, state_bytes;
    uint64_t slack_bytes; /* free places, padding, and whatever else is kept per row */
    uint64_t filter_bytes;
    uint64_t limit_bytes; /* of the table on the whole node; 0: only the node's limit */
};
/* Reports the memory of one core. `visit` is called on this thread for each table, in the order of ids; NULL:
 * not wanted. */
MR_API enum mr_status mr_memory(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                struct mr_core_memory *memory,
                                void (*visit)(void *arg, const struct mr_table_memory *table), void *arg);

/* ---- the cluster ---- */

/* The cluster that a node is a member of, as that node knows it. */
struct mr_cluster_state {
    uint64_t epoch;         /* of its map; 0: the node has none yet */
    uint32_t node_count;    /* 0 with epoch 0; both are 0 also for a node that is in no cluster */
    uint32_t self;          /* which of them answered; UINT32_MAX: the map lacks it */
    uint32_t without_owner; /* partitions, of 4096, that have not been given out */
    uint32_t outside;       /* nodes that have a session with ZooKeeper and are not in the map */
    uint64_t lease_us;      /* for so long a node serves after ZooKeeper has confirmed it */
    uint64_t lease_left_us; /* of the node that answered; 0: it serves nothing now */
    bool is_member;
    bool has_copies;         /* cluster.replication is 2 */
    bool answers_wait;       /* to pushes, for copies that are in sync: cluster.copies = sync */
    uint8_t tolerance;       /* enum mr_tolerance */
    uint16_t tolerance_node; /* which of them that is about; UINT16_MAX: none */
};
struct mr_cluster_member {
    const char *name, *address; /* valid during the visit */
    uint32_t core_count;
    uint32_t partitions; /* of 4096, that it owns */
    uint32_t backups;    /* with copies: of others' partitions, that it follows */
    uint32_t uncopied;   /* with copies: that it owns, and no backup is in sync */
    bool is_present;     /* it has a session with ZooKeeper */
    bool is_spare;       /* cluster.role = spare: it owns only what it takes over from dead nodes */
    uint64_t start_id;
    const char *version; /* "0.3.0+1a2b3c4d", "before 0.3.0"; valid during the visit */
};
/* Reports the cluster. `visit` is called on this thread for each node, in the order of the map; NULL: not
 * wanted. */
MR_API enum mr_status mr_cluster(struct mr_client *client, const struct mr_options *options,
                                 struct mr_cluster_state *state,
                                 void (*visit)(void *arg, const struct mr_cluster_member *node), void *arg);

/* ---- packets ---- */

/* Packets that a core receives and sends, copied as they pass: `millrace capture`. */
enum mr_capture_request_kind {
    MR_REQUEST_CAPTURE_START = 1,
    MR_REQUEST_CAPTURE_READ,
    MR_REQUEST_CAPTURE_HALT, /* a read after which the core records no more; what it has can be read */
    MR_REQUEST_CAPTURE_END
};
struct mr_capture_request {
    enum mr_capture_request_kind kind;
    uint64_t id;       /* random bits, not 0: the capture's */
    uint64_t position; /* to read: 0 at first, then `next` of the answer before */
    /* the rest to start: */
    const char *who;        /* named to others who are refused meanwhile, below 96 bytes; NULL: nobody */
    const char *peer;       /* only packets from and to "10.0.0.7" or "10.0.0.7:41000"; NULL: all */
    const char *const *ops; /* [op_count] only packets of calls of these operations, "lookup", ... */
    uint32_t op_count;      /* 0: all packets */
    uint32_t snap_bytes;    /* recorded of each packet, 64..16384; 0: 512 */
    uint32_t ring_kib;      /* of the core's memory for packets that have not been read; 0: 8192 */
    uint32_t idle_ms;       /* the capture ends when nobody reads it for so long, up to 60000; 0: 10000 */
};
struct mr_captured {
    uint64_t time_ns;     /* since 1970, by the server's clock */
    const uint8_t *bytes; /* valid during the visit */
    uint32_t captured_bytes, packet_bytes;
    uint32_t lost; /* packets for which there was no room, between the one before and this one */
    bool is_sent;  /* by the core; otherwise it was received */
};
struct mr_capture_state {
    uint64_t next;         /* position of what follows */
    uint64_t left_bytes;   /* recorded and not read; 0 after a halt: that was all */
    uint64_t seen, wanted; /* packets that passed but for the caller's own, and that the filter let through */
    uint64_t lost;         /* of `wanted`: for which there was no room */
    uint32_t link_type;    /* as pcap numbers them: 1 Ethernet, 101 IP */
    uint32_t snap_bytes;
    /* of the server, to start only */
    char machine[128], system[256], program[64], port[128];
};
/* Starts, reads or ends a capture on one core, which records for one caller at a time: MR_ALREADY_STARTED,
 * and mr_last_error() says for whom. MR_INVALID_ARGUMENT: the core has no such capture (any more), or an
 * option is wrong. The client's own packets to that core are left out. `state` may be NULL; `visit` is called
 * on this thread for each packet that was read; NULL: not wanted. To be repeated safely. */
MR_API enum mr_status mr_capture(struct mr_client *client, const struct mr_options *options, uint32_t core,
                                 const struct mr_capture_request *request, struct mr_capture_state *state,
                                 void (*visit)(void *arg, const struct mr_captured *packet), void *arg);

/* ---- remote calls ---- */

/* The world of workers that a node takes part in, as the node knows it (see millrace_rpc.h). */
struct mr_world {
    bool is_worker;     /* the node is a worker itself, of this rank; else the others only meet there */
    bool is_rendezvous; /* the workers meet there */
    bool is_complete;   /* all have joined */
    uint32_t rank, world_size, joined;
    uint32_t threads_max;       /* that run functions, while none of them waits for other workers */
    uint32_t threads;           /* made so far */
    uint32_t functions_running; /* calls of functions that run now */
    uint32_t functions_blocked; /* of functions_running: those that wait for other workers */
    uint32_t functions_waiting; /* calls that wait for a thread */
    uint64_t calls_served;      /* by the node */
    uint64_t calls_failed;      /* of calls_served: ended with an error */
    uint64_t calls_refused;     /* of calls_failed: not run at all (no such function, wrong arguments) */
    uint64_t calls_made, calls_made_failed, calls_under_way; /* by the node's functions */
    uint64_t values_owned; /* values of the node that somebody holds references to */
    uint64_t values_held;  /* references of the node to values of others */
    uint32_t dead_after_ms;
    uint64_t contexts_begun;   /* autograd contexts that the node has begun and that have not ended */
    uint64_t contexts_known;   /* all autograd contexts that the node knows and that have not ended */
    uint64_t context_oldest_s; /* age of the oldest that the node has begun */
};
struct mr_world_member {
    char name[64]; /* "" until it has joined */
    uint32_t rank;
    bool has_joined, is_node, is_rendezvous, is_dead, has_left;
    char address[64]; /* "10.0.0.2:45321"; "" for the rendezvous itself */
};
struct mr_world_visitor {
    /* in the order of ranks; NULL: not wanted */
    void (*member)(void *arg, const struct mr_world_member *member);
    /* line: "name(arguments) -> results"; NULL: not wanted */
    void (*function)(void *arg, const char *line);
    void *arg;
};
/* Reports the world of workers. `visitor` (NULL: not wanted) is called on this thread. MR_UNKNOWN_OP: the
 * node takes no part in remote calls. */
MR_API enum mr_status mr_world(struct mr_client *client, const struct mr_options *options,
                               struct mr_world *world, const struct mr_world_visitor *visitor);

/* ---- the hub, and the way to a core ---- */

struct mr_hub_status {
    uint64_t samples_read, batches_handed_out, batches_applied, batches_handed_again, batches_expired,
        broken_lines;
    uint64_t trainers, batches_fed, batches_waiting, epoch;
    bool at_end;
};
MR_API enum mr_status mr_hub_status(struct mr_client *hub, const struct mr_options *options,
                                    struct mr_hub_status *status);

/* Sends tensors, or none, to a core and back, for measurements. Reply: the same tensors. */
MR_API enum mr_status mr_echo(struct mr_client *client, const struct mr_options *options, uint32_t core,
                              const struct mr_tensor *tensors, uint32_t count, struct mr_reply **reply);

#ifdef __cplusplus
}
#endif
#endif
