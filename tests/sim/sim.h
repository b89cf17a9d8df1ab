/* The simulator: server cores, clients and the network between them in one thread, under a virtual clock,
 * from one seed.
 *
 *   sim.c         the program
 *   seeds.c       command line, and the processes that share the seeds (also of tests/sim_references/)
 *   sim_random.c  everything hangs on the seed
 *   sim_world.c   one run: the clock, what happens when, the end
 *   sim_draw.c    what kind of world a seed is: machines, links, faults, work
 *   sim_fault.c   restarts, pauses, partitions, and their end
 *   sim_play.c    packets that were taken in, played again: that nothing comes of them
 *   sim_net.c     the network: links, queues, sockets; what is lost, repeated, delayed, damaged, cut off
 *   sim_address.c what servers may send to an address that nobody has proven to be at
 *   sim_grant.c   whether senders keep to what they were granted
 *   sim_server.c  what servers do with requests
 *   sim_client.c  what clients ask for
 *   sim_share.c   whether sessions, and priorities, get their shares
 *   sim_record.c  numbered pushes: what servers know of them, over restarts
 *   sim_check.c   the model that all this is checked against
 *
 * docs/testing.md says what is checked, and how a seed that failed is looked into.
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "dataplane/wire/endpoint.h"
#include "sim_random.h"

#define SIM_SERVERS_MAX  3u
#define SIM_CLIENTS_MAX  4u
#define SIM_NODES_MAX    (SIM_SERVERS_MAX + SIM_CLIENTS_MAX)
#define SIM_CALLS_MAX    160u /* per client */
#define SIM_LATER_MAX    512u
#define SIM_OLD_PACKETS  32u
#define SIM_TAKEN        4u /* packets of each type that were taken in, and are played again */
#define SIM_PORTS        8u /* that one client uses one after another */
#define SIM_STRANGERS    8u /* addresses at which there is nobody */
#define SIM_ADDRESSES    (SIM_CLIENTS_MAX * SIM_PORTS + SIM_STRANGERS)
#define SIM_FIRST_US     1000000u
#define SIM_MEMORY_BYTES ((size_t)192 << 20) /* the most that one endpoint gets */

/* ---- what will happen ---- */
enum sim_event_kind {
    SIM_ARRIVAL, /* a packet, at a node's socket */
    SIM_ANSWER,  /* a request put off is answered, or its answer goes on */
    SIM_CALLS,   /* a client begins calls */
    SIM_REPLAY,  /* a client brings a push again that its server may have lost */
    SIM_RELEASE, /* a client lets its other calls go, too */
    SIM_CANCEL,
    SIM_FREE,
    SIM_RESTART,
    SIM_CUT,
    SIM_STALL,
    SIM_MOVE,
    SIM_PATH,  /* a path carries larger or smaller datagrams than before */
    SIM_PLAY,  /* somebody on the path sends a packet once more */
    SIM_KEYS,  /* a node goes on from the old pre-shared key towards the new one */
    SIM_SHARE, /* all clients have their shares of the link by now */
};

struct sim_event {
    uint64_t at_us;
    uint64_t order; /* of equal times */
    uint32_t kind;  /* enum sim_event_kind */
    uint32_t index;
    void *what;
};

/* ---- the network ---- */
struct sim_faults { /* parts per million per packet */
    uint32_t lose_ppm, repeat_ppm, reorder_ppm, damage_ppm, truncate_ppm, replay_ppm, stranger_ppm,
        no_room_ppm, spike_ppm;
    uint64_t spike_us; /* longest delay spike */
};

struct sim_packet {
    struct sim_packet *next;
    struct mr_address from;
    uint32_t to; /* node */
    bool again;  /* it was taken in before: nothing may come of it */
    uint32_t bytes;
    uint32_t room; /* at data */
    uint8_t data[];
};

/* The way to a node: a queue that drops what does not fit, emptied at the link's rate. */
struct sim_link {
    uint64_t bytes_per_ms; /* 0: no limit */
    uint64_t queue_bytes;
    uint64_t free_ns; /* when all that is in it will have left */
    uint64_t carried_bytes;
};

struct sim_grant {
    uint64_t call_id;
    uint32_t bytes;
};

struct sim_node {
    struct sim *sim;
    uint32_t index;
    bool is_server;
    struct mr_endpoint *ep;
    struct mr_endpoint_config config;
    struct mr_address address;
    struct sim_rng rng; /* the endpoint's own */
    struct sim_link link;
    uint32_t life; /* rises with each restart */
    bool has_new_key, has_old_key;
    /* its clock: what it shows at SIM_FIRST_US, and how much too fast it is */
    uint64_t clock_base_us;
    int64_t clock_drift_ppm;
    /* its processor and socket */
    uint64_t poll_at_us, busy_until_us, stalled_until_us;
    uint64_t packet_ns; /* to take in one */
    struct sim_packet *queue, **queue_end;
    uint64_t queue_bytes, queue_bytes_max;
    uint8_t *memory;
    uint8_t open[MR_UDP_BYTES_MAX];
    struct mr_address open_to;
    bool is_open;
    struct sim_grant grants[SIM_NODES_MAX][MR_WINDOW_MAX]; /* by receiver and call */
    /* server: what it may send where */
    uint32_t receiving_bytes; /* of the packet it is looking at, that it may still answer with; 0 = none */
    struct mr_address receiving_from;
    bool cookie_came[SIM_ADDRESSES], proven[SIM_ADDRESSES];
    /* client */
    struct mr_client_session *sessions[SIM_SERVERS_MAX];
    uint32_t calls_started, calls_waiting;
    uint64_t last_number[SIM_SERVERS_MAX]; /* of its pushes */
    bool calls_held;                       /* as many wait as may */
    bool held[SIM_SERVERS_MAX]; /* the session: it was restarted, and pushes are brought again first */
    uint32_t moves;
    uint64_t carried_bytes, share_from_bytes; /* of what it sent; and as of sim.share_from_us */
};

/* ---- the model ---- */
struct sim_call {
    uint32_t client, serial, life;
    uint8_t op;
    uint8_t server;
    bool started, ended, cancelled, crashed, has_deadline, freed;
    enum mr_status status;
    uint32_t executed;         /* times, over all lives of the server */
    uint32_t executed_session; /* times within the session of the last execution */
    uint64_t session_id;
    uint32_t request_bytes, reply_bytes;
    uint64_t started_us, ended_us;
    uint64_t deadline_us; /* by the client's clock */
    struct mr_call *call;
    /* numbered pushes */
    uint64_t number;     /* 0: not numbered */
    bool applied, saved; /* at the server, and in its last checkpoint */
    bool known_safe;     /* the client knows that it is saved */
    bool ahead;          /* brought again while others are held back */
    uint8_t priority;
    uint32_t overtaken; /* of a stream: by calls of a higher priority that were begun later */
};

/* A call whose answer comes later, or in parts. */
struct sim_later {
    bool used;
    bool open;           /* the reply was begun */
    struct mr_tensor to; /* its bytes */
    uint64_t written;
    uint32_t node, life;
    struct mr_call_ref ref;
    const struct mr_request *request;
};

struct sim_work {
    uint32_t calls_per_client, burst_max, waiting_max;
    uint64_t gap_us;
    uint32_t busy_ppm, later_ppm, parts_ppm, cancel_ppm, deadline_ppm, number_ppm, save_ppm;
    uint32_t request_bytes_max, reply_bytes_max;
    uint32_t large_ppm;     /* of messages up to the largest */
    bool steady;            /* nothing is lost: nothing may be sent again, and links are to be used */
    bool shared;            /* one link carries what all clients want, and nothing is lost */
    uint64_t far_us;        /* what every way takes more */
    bool stream;            /* calls of high priority without an end, and a few of low priority */
    uint64_t small_late_us; /* a small call takes no longer, whatever else there is; 0: not checked */
    uint64_t late_us;       /* no call does */
};

struct sim {
    uint64_t seed;
    const char *kind;
    struct sim_rng rng;
    uint64_t now_us;
    uint64_t faults_end_us;
    struct sim_faults faults;
    uint32_t servers, clients, restarts;
    bool may_restart_servers, may_restart_clients, memory_is_short, calm;
    bool changes_keys, plays;
    bool changes_paths;
    bool honest; /* nothing is damaged, forged or replayed, and all have the same key */
    struct sim_work work;

    struct sim_node nodes[SIM_NODES_MAX];
    uint64_t cut_until_us[SIM_NODES_MAX][SIM_NODES_MAX]; /* [from][to] */
    uint32_t path_bytes[SIM_NODES_MAX]
                       [SIM_NODES_MAX]; /* likewise: the largest UDP payload that gets through */
    struct sim_event *heap;
    uint32_t heap_count, heap_room;
    uint64_t order;
    struct sim_packet *old[SIM_OLD_PACKETS]; /* seen before, to be played again */
    struct sim_packet *taken[MR_PACKET_TYPE_END][SIM_TAKEN];
    struct sim_packet *spare[3]; /* by size */
    struct sim_later later[SIM_LATER_MAX];
    uint32_t later_count;
    struct sim_call calls[SIM_CLIENTS_MAX][SIM_CALLS_MAX];
    uint32_t calls_to_start, calls_alive; /* alive: neither given back nor lost with their client */
    uint64_t trace;                       /* hash of everything that happened */
    uint64_t packets, executions, slowest_small_us;
    uint64_t share_from_us; /* 0: not yet */
    bool share_is_over;
    bool verbose;
    bool failed;
    char why[256];
};

static inline bool sim_is_client(const struct sim *sim, uint32_t node)
{
    return node >= sim->servers;
}

/* The run is a failure; the first reason counts. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_note(struct sim *sim, uint64_t a, uint64_t b); /* into the trace */
/* A line of what happens, for --verbose. */
#define sim_log(sim, ...)                                                                                    \
    do {                                                                                                     \
        if ((sim)->verbose)                                                                                  \
            sim_log_line(sim, __VA_ARGS__);                                                                  \
    } while (0)
void sim_log_line(const struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- sim_world.c ---- */

/* For all runs of this process. */
struct sim *sim_create(void);
void sim_destroy(struct sim *sim);
/* One run; false: it failed, and sim->why says how. */
bool sim_run(struct sim *sim, uint64_t seed, bool verbose);
void sim_at(struct sim *sim, uint64_t at_us, enum sim_event_kind kind, uint32_t index, void *what);
/* A node's clock, and when it will show `local_us`. */
uint64_t sim_clock_us(const struct sim_node *node);
uint64_t sim_when_us(const struct sim_node *node, uint64_t local_us);
void sim_node_start(struct sim_node *node);

/* ---- sim_draw.c ---- */
void sim_draw(struct sim *sim);
void sim_draw_clock(struct sim_node *node);

/* ---- sim_fault.c ---- */
void sim_keys_configure(struct sim_node *node);
void sim_path_draw(struct sim *sim);
void sim_fault_begin(struct sim *sim);
void sim_fault_happen(struct sim *sim, enum sim_event_kind kind);
void sim_fault_end(struct sim *sim);

/* ---- sim_net.c ---- */
void sim_net_io(struct sim_node *node, struct mr_endpoint_io *io);
void sim_net_arrive(struct sim *sim, struct sim_packet *packet);
/* The node takes in what waits at its socket, as much as one turn may. */
void sim_net_receive(struct sim_node *node);
void sim_net_close(struct sim_node *node);
void sim_net_end(struct sim *sim);  /* of a run */
void sim_net_free(struct sim *sim); /* of all */

/* The name of its type. */
const char *sim_packet_type(const struct sim_packet *packet);
struct sim_packet *sim_packet_copy(struct sim *sim, const struct sim_packet *packet);
void sim_packet_free(struct sim *sim, struct sim_packet *packet);

/* ---- sim_play.c ---- */
/* The node has taken in the packet, and counted `before` before that. */
void sim_play_keep(struct sim_node *node, const struct sim_packet *packet,
                   const struct mr_wire_counters *before);
/* SIM_PLAY: one of those kept goes to its node once more. */
void sim_play(struct sim *sim);
void sim_play_next(struct sim *sim);
/* One that was taken in before is given to the node. */
void sim_play_check(struct sim_node *node, const struct sim_packet *packet);
void sim_play_end(struct sim *sim); /* of a run */

/* ---- sim_address.c ---- */
void sim_address_check_send(struct sim_node *server, const struct mr_address *to, const uint8_t *data,
                            uint32_t bytes);
void sim_address_note_retry(struct sim_node *server, const struct mr_address *client);
void sim_address_note_hello(struct sim_node *server, const struct mr_address *client, const uint8_t *data,
                            uint32_t bytes);
void sim_address_set(struct mr_address *address, uint32_t node, uint16_t port);
void sim_address_client(struct mr_address *address, uint32_t client, uint32_t move);
void sim_address_stranger(struct mr_address *address, uint32_t stranger);

/* ---- sim_grant.c ---- */
void sim_grant_came(struct sim_node *sender, uint32_t receiver, const uint8_t *data, uint32_t bytes);
void sim_grant_check(struct sim_node *sender, uint32_t receiver, const uint8_t *data);

/* ---- sim_server.c ---- */
void sim_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request);
void sim_answer_later(struct sim *sim, uint32_t index);

/* ---- sim_client.c ---- */
void sim_on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                  const struct mr_message *reply);
void sim_client_calls(struct sim *sim, struct sim_node *node);
void sim_client_replay(struct sim *sim, struct sim_call *c);
void sim_client_release(struct sim *sim, uint32_t which);
void sim_on_session(void *app, struct mr_client_session *session, enum mr_client_session_event event);
void sim_client_cancel(struct sim *sim, struct sim_call *c);
void sim_client_free(struct sim *sim, struct sim_call *c);
void sim_client_crashed(struct sim *sim, struct sim_node *node);

/* ---- sim_share.c ---- */
/* When client i begins after the start, and how many of its calls wait at most. */
uint64_t sim_share_begins_us(struct sim *sim, uint32_t i);
uint32_t sim_share_waiting(const struct sim *sim, uint32_t i);
/* SIM_SHARE. And: a client wants next to nothing more. */
void sim_share_settled(struct sim *sim);
void sim_share_over(struct sim *sim);
uint8_t sim_stream_priority(uint32_t serial);
void sim_stream_ended(struct sim *sim, const struct sim_call *ended);

/* ---- sim_record.c ---- */
bool sim_record_apply(struct sim_call *c); /* false: it was before */
uint64_t sim_record_floor(const struct sim *sim, uint32_t server, uint32_t client);
void sim_record_save(struct sim *sim, uint32_t server);
void sim_record_restore(struct sim *sim, uint32_t server);
void sim_record_learn(struct sim *sim, const struct sim_call *from, uint64_t floor);
void sim_record_check(struct sim *sim);

/* ---- sim_check.c ---- */
bool sim_repeatable(const struct sim_call *c);
void sim_fill(struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt);
/* Bytes `from` to `to` of it. */
void sim_fill_part(struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt, uint64_t from,
                   uint64_t to);
bool sim_intact(const struct mr_tensor *t, uint64_t client, uint64_t serial, uint64_t salt);
/* The call that the request is; NULL: it was damaged. */
struct sim_call *sim_check_request(struct sim *sim, const struct mr_request *request);
void sim_check_executed(struct sim *sim, struct sim_call *c, const struct mr_request *request);
void sim_check_end(struct sim *sim, const struct sim_call *c, const struct mr_message *reply);
void sim_check_calls(struct sim *sim); /* at the end */

#endif
