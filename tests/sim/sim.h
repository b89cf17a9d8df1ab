/* The simulator: server cores, clients and the network between them in one thread, under a virtual clock, from one seed.
 *
 *   sim_net.c    the network: what it loses, repeats, delays, damages, cuts off
 *   sim_app.c    what servers and clients do, and the model that their work is checked against
 *   sim_world.c  one run: set-up from the seed, the clock, restarts, the end
 *   sim.c        command line
 */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "dataplane/wire/endpoint.h"

#define SIM_SERVERS_MAX 3u
#define SIM_CLIENTS_MAX 4u
#define SIM_NODES_MAX   (SIM_SERVERS_MAX + SIM_CLIENTS_MAX)
#define SIM_CALLS_MAX   160u /* per client */
#define SIM_PACKETS_MAX 65536u
#define SIM_OLD_PACKETS 64u
#define SIM_LATER_MAX   512u

/* ---- randomness: everything hangs on the seed ---- */
struct sim_rng {
    uint64_t state;
};
uint64_t sim_random(struct sim_rng *rng);
uint64_t sim_below(struct sim_rng *rng, uint64_t n);                    /* 0..n-1 */
uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high); /* both included */
bool sim_chance(struct sim_rng *rng, uint32_t ppm);

/* ---- the network ---- */
struct sim_faults { /* parts per million per packet */
    uint32_t lose_ppm, repeat_ppm, reorder_ppm, damage_ppm, truncate_ppm, replay_ppm, stranger_ppm,
        no_room_ppm;
    uint32_t spike_ppm;
    uint64_t spike_us; /* longest delay spike */
};

struct sim_packet {
    uint64_t arrives_us;
    uint64_t order; /* of equal times */
    struct mr_address from;
    uint32_t to; /* node */
    uint32_t bytes;
    uint8_t *data;
};

struct sim_node {
    struct sim *sim;
    uint32_t index;
    bool is_server;
    struct mr_endpoint *ep;
    struct mr_endpoint_config config;
    struct mr_address address;
    struct sim_rng rng; /* the endpoint's own */
    uint64_t poll_at_us;
    uint64_t stalled_until_us;
    uint64_t cut_off_until_us;
    uint8_t open[MR_UDP_BYTES_MAX];
    struct mr_address open_to;
    bool is_open;
    uint32_t life; /* rises with each restart */
    /* client */
    struct mr_session *sessions[SIM_SERVERS_MAX];
    uint32_t calls_started;
    uint64_t next_call_us;
};

/* ---- the model ---- */
struct sim_call {
    uint32_t client, serial, life;
    uint8_t op;
    uint8_t server;
    bool started, ended, cancelled, crashed, has_deadline;
    bool freed;
    enum mr_status status;
    uint32_t executed;         /* times, over all lives of the server */
    uint32_t executed_session; /* times within the session of the last execution */
    uint64_t session_id;
    uint32_t request_bytes, reply_bytes;
    uint64_t started_us, deadline_us, ended_us, free_at_us;
    struct mr_call *call;
};

struct sim_later {
    bool used;
    uint32_t node, life;
    uint64_t at_us;
    struct mr_call_ref ref;
    const struct mr_request *request;
};

struct sim {
    uint64_t seed;
    struct sim_rng rng;
    uint64_t now_us;
    uint64_t faults_until_us;
    uint64_t end_us;
    uint64_t next_restart_us, next_cut_us, next_stall_us;
    struct sim_faults faults;
    uint32_t servers, clients, restarts;
    bool may_restart_servers, may_restart_clients, memory_is_short;
    uint32_t busy_ppm, later_ppm, cancel_ppm, deadline_ppm;
    uint32_t request_bytes_max, reply_bytes_max;
    uint32_t calls_per_client;
    uint64_t call_gap_us;

    struct sim_node nodes[SIM_NODES_MAX];
    struct sim_packet *heap; /* [SIM_PACKETS_MAX], by arrival */
    uint32_t heap_count;
    uint64_t order;
    struct sim_packet old[SIM_OLD_PACKETS]; /* seen before, to be played again */
    struct sim_later later[SIM_LATER_MAX];
    struct sim_call calls[SIM_CLIENTS_MAX][SIM_CALLS_MAX];
    uint64_t trace; /* hash of everything that happened */
    uint64_t packets, executions;
    bool verbose;
    bool failed;
    char why[256];
};

/* The run is a failure; the first reason counts. */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_note(struct sim *sim, uint64_t a, uint64_t b); /* into the trace */

/* sim_net.c */
void sim_net_io(struct sim_node *node, struct mr_endpoint_io *io);
bool sim_net_deliver(struct sim *sim); /* the next packet, if it is due */
uint64_t sim_net_next_us(const struct sim *sim);
void sim_net_free(struct sim *sim);

/* sim_app.c */
void sim_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request);
void sim_on_reply(void *app, struct mr_call *call, void *user, enum mr_status status,
                  const struct mr_message *reply);
void sim_client_step(struct sim *sim, struct sim_node *node); /* begin, cancel and free what is due */
void sim_answer_later(struct sim *sim);
uint64_t sim_app_next_us(const struct sim *sim);
void sim_client_crashed(struct sim *sim, struct sim_node *node);
bool sim_all_ended(const struct sim *sim);
void sim_check_calls(struct sim *sim);

/* sim_world.c: one run; false: it failed, and sim->why says how. */
bool sim_run(struct sim *sim, uint64_t seed, bool verbose);

#endif
