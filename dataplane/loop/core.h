/* A core from the inside: what the files of the data plane share. Not for ps/.
 *
 * Everything in struct dp_core belongs to the core's thread, but for the rings, the waiter's bell, `woken`
 * and `busy_ppm`.
 */
#ifndef DP_CORE_H
#define DP_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <rte_ring.h>
#include "dataplane/capture/capture.h"
#include "dataplane/dataplane.h"
#include "dataplane/dpdk/port.h"
#include "dataplane/dpdk/port_lock.h"
#include "dataplane/dpdk/port_watch.h"
#include "dataplane/dpdk/port_xstats.h"
#include "dataplane/loop/cpu_counters.h"
#include "dataplane/loop/fault.h"
#include "dataplane/loop/phases.h"
#include "dataplane/loop/socket_port.h"
#include "dataplane/loop/waiter.h"
#include "dataplane/net/frame.h"
#include "dataplane/net/neighbours.h"

#define DP_BURST            32u
#define DP_TX_BATCH         64u
#define DP_FAULT_EXTRA      DP_BURST /* room for packets that the fault port had held back */
#define DP_RING_PACKETS     2048u
#define DP_RING_TASKS       1024u
#define DP_COUNTER_SETS_MAX 32u

struct dp_counter_set {
    const struct mr_counter_set *set;
    const uint64_t *values;
};

struct dp_core {
    struct dp *dp;
    struct mr_endpoint *endpoint;
    void *app;
    struct dp_capture *capture; /* the application's; NULL: nothing is captured */
    uint32_t index;
    struct dp_socket_port *socket; /* NULL: the core has queues of a DPDK port */

    /* Receiving: the queues this core polls are index, index + core_count, ... */
    uint16_t rx_queue_first;
    uint16_t rx_queue_step;
    struct rte_ring *steered; /* packets for this core that another core received */

    /* Transmitting: on a queue of its own, or through the queue of the core that owns it. */
    struct dp_core *tx_owner;   /* itself, when the queue is its own */
    struct rte_ring *tx_handed; /* owner: packets of the cores without a queue */
    struct rte_mempool *pool;
    uint32_t tx_count;
    uint16_t tx_queue;
    bool tx_open_lost; /* of tx_open: the receiver's MAC address is not known yet */
    bool tx_refused;   /* tx_begin had no room since the last poll of the endpoint */
    bool thread_started;
    struct rte_mbuf *tx[DP_TX_BATCH + DP_FAULT_EXTRA]; /* waiting for the next burst; full at DP_TX_BATCH */
    struct rte_mbuf *tx_open; /* between tx_begin and tx_end, or kept for the next tx_begin */
    struct mr_address tx_open_to;

    /* NULL unless packets are to be lost, repeated, damaged ... on their way. */
    struct dp_fault *rx_fault, *tx_fault;
    uint32_t tx_decided;  /* of tx: they have been through tx_fault */
    uint32_t tx_captured; /* of tx: they have been captured, or need not be */

    struct rte_ring *tasks;
    struct dp_waiter waiter;
    _Atomic bool woken; /* dp_wake() since the last poll */

    uint64_t replies_short;   /* so far, as of the last poll */
    uint64_t calls_until_us;  /* until then more of them are expected */
    uint64_t poll_us;         /* when the running poll began */
    uint64_t idle_since_us;   /* 0 = was busy in the last poll */
    uint64_t endpoint_due_us; /* when the endpoint wants to be polled */
    uint64_t app_due_us;      /* and when the application does */
    /* The share of time with work, measured over windows of a fixed length. */
    uint64_t window_start_us;
    uint64_t window_busy_us;
    _Atomic uint32_t busy_ppm;

    _Atomic uint32_t set_count;
    struct dp_counter_set sets[DP_COUNTER_SETS_MAX];
    struct dp_counters counters;
    struct dp_phases phases;
    struct dp_cpu cpu; /* of the thread that refreshes, but for its counters */
    int tid;           /* of the thread */
    pthread_t thread;
};

struct dp {
    struct dp_config config;
    struct dp_net net;
    struct dp_neighbours neighbours;
    struct dp_port port;
    struct dp_port_lock port_lock;
    struct dp_port_watch port_watch;
    struct dp_port_xstats port_xstats;
    const char *driver_why;
    const char *faster; /* than the port; NULL: nothing known */
    bool hugepages;
    struct dp_app app;
    struct dp_core *cores;
    _Atomic bool stop;
    /* Guards what dp_start waits for. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t cores_ready;
    bool start_failed;
    char start_error[DP_ERROR_BYTES];
};

/* poll.c: the thread. */
void *dp_core_run(void *arg);

/* transmit.c */
/* Sends what the core has gathered; what the port does not take stays for the next time. Returns packets
 * sent. */
uint32_t dp_transmit_flush(struct dp_core *core);
/* Sends the endpoint's answers, and what the core has gathered. */
void dp_transmit_answers(struct dp_core *core, uint64_t now_us);
/* Owner of a queue: takes over the packets of the cores without one. Returns packets taken. */
uint32_t dp_transmit_handed(struct dp_core *core);
/* Queue a packet that can be lost (ARP, ICMP): dropped and counted when there is no room. */
void dp_transmit_or_drop(struct dp_core *core, struct rte_mbuf *packet);
/* The endpoint's hooks. */
uint8_t *dp_transmit_begin(void *arg, const struct mr_address *to, uint32_t bytes_max);
void dp_transmit_end(void *arg, uint32_t bytes);
/* Gives everything back that is still here. */
void dp_transmit_drop_all(struct dp_core *core);

/* receive.c */
/* Receives a burst from each of the core's queues, and what other cores handed on. Returns how many
 * packets. */
uint32_t dp_receive(struct dp_core *core, uint64_t now_us);
/* Hooks of the endpoint: a request for its handler, and requests that came together. `arg` is the core. */
void dp_serve_request(void *arg, struct mr_endpoint *endpoint, const struct mr_request *request);
void dp_prefetch_requests(void *arg, const struct mr_prefetch *requests, uint32_t count);
void dp_request_arriving(void *arg, struct mr_call_ref ref, const uint8_t *message, uint32_t received_bytes,
                         uint32_t message_bytes);

/* fault_port.c */
bool dp_fault_port_create(struct dp_core *core, char error[DP_ERROR_BYTES]);
void dp_fault_port_destroy(struct dp_core *core);
/* With core->rx_fault: turns a burst just received into what is passed on; returns its length, up to DP_BURST
 * + DP_FAULT_EXTRA. */
uint32_t dp_fault_port_receive(struct dp_core *core, struct rte_mbuf **packets, uint32_t count,
                               uint64_t now_us);
/* With core->tx_fault: the same for what waits in core->tx. */
void dp_fault_port_transmit(struct dp_core *core);
/* When the next packet held back must be passed on; UINT64_MAX = none is. */
uint64_t dp_fault_port_due_us(const struct dp_core *core);

/* capture_port.c: with core->capture. */
/* Records a burst that was just received, but for packets of other cores. */
void dp_capture_received(struct dp_core *core, struct rte_mbuf **packets, uint32_t count);
/* Records what waits in core->tx and has not been recorded. */
void dp_capture_sending(struct dp_core *core);

/* steer.c */
/* Hands a checked packet on to core `index`; takes it over. */
void dp_steer(struct dp_core *from, uint32_t index, struct rte_mbuf *packet);
bool dp_rings_create(struct dp *dp, char error[DP_ERROR_BYTES]);
void dp_rings_destroy(struct dp *dp);

/* counters.c */
void dp_core_add_own_counters(struct dp_core *core);
/* Once the threads run. */
void dp_cpus_open(struct dp *dp);
/* Once they have ended. */
void dp_cpus_close(struct dp *dp);

/* telemetry.c: serves the counters of `dp`; NULL to stop. */
void dp_telemetry_serve(struct dp *dp);

#endif
