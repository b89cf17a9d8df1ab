/* The data plane: DPDK ports, polling cores, Ethernet to UDP, and the transport's endpoint on each core.
 *
 * Knows nothing of what the calls mean: the application above gives a dispatch table indexed by the op enum,
 * and gets requests on the core that the packet named. ps/ includes this header and none of DPDK's.
 */
#ifndef DP_DATAPLANE_H
#define DP_DATAPLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/loop/fault.h"
#include "dataplane/loop/phases.h"
#include "dataplane/wire/base/counter_set.h"
#include "dataplane/wire/endpoint.h"

#define DP_CORES_MAX   64
#define DP_ERROR_BYTES 512

struct dp;
struct dp_core;
struct dp_capture;

enum dp_poll_mode {
    DP_POLL_BUSY,     /* never sleeps: a dedicated core */
    DP_POLL_ADAPTIVE, /* sleeps a little once idle for a while: shared machines */
};

enum dp_driver {
    DP_DRIVER_AUTO,
    DP_DRIVER_AF_XDP,
    DP_DRIVER_AF_PACKET,
    DP_DRIVER_TAP,
    DP_DRIVER_MEMIF,
    DP_DRIVER_PCI,
    DP_DRIVER_SOCKET /* no DPDK port: the kernel's UDP sockets */
};

enum dp_fault_direction {
    DP_FAULT_OFF,
    DP_FAULT_RECEIVE = 1,
    DP_FAULT_TRANSMIT = 2,
    DP_FAULT_BOTH = DP_FAULT_RECEIVE | DP_FAULT_TRANSMIT,
};

/* Faults put in between the port and the cores, for tests. */
struct dp_fault_config {
    enum dp_fault_direction direction;
    struct dp_fault_rates rates;
    uint64_t seed;
};

/* Over memif, bundles of small messages (mr_endpoint_config.bundle_bytes_max) are kept as short as a packet
 * of 1500 bytes: with all calls in one packet the two sides would work by turns. */
#define DP_BUNDLE_BYTES_MAX 1408u

struct dp_config {
    /* EAL */
    char file_prefix[64];         /* separates several servers on a machine */
    uint32_t hugepage_memory_mib; /* DPDK's own memory: packet buffers and rings */
    int hugepages;                /* 1 = required, 0 = never, -1 = when there are enough free ones */
    /* port */
    /* AUTO: PCI when device is a PCI address; SOCKET when the kernel has the configured addresses on it;
     * else af_xdp or af_packet, the first that opens */
    enum dp_driver driver;
    /* "0000:3b:00.0", a network interface's name, a memif socket path, or a tap's name; SOCKET: an interface
     * or "" */
    char device[128];
    bool memif_client; /* memif: connect to the socket instead of offering it */
    char mac[20];      /* "" = the device's own */
    char ipv4[32];     /* "10.0.0.1/24" or "" */
    char ipv6[64];     /* "fd00::1/64" or ""; the link-local address always answers */
    /* Routers to hosts that are not on the link, "" = none: only for calls to hosts that no packet came
     * from. */
    char ipv4_gateway[16], ipv6_gateway[46];
    uint16_t vlan;     /* 0 = untagged */
    uint16_t mtu;      /* 1280..9000; 0 = the device's own, of memif 9000 */
    uint16_t udp_port; /* core i listens on udp_port + i */
    uint16_t rx_descriptors, tx_descriptors;
    /* cores */
    uint32_t core_count;
    int core_cpus[DP_CORES_MAX]; /* -1 = not pinned */
    enum dp_poll_mode poll_mode;
    uint32_t adaptive_idle_us; /* adaptive: spin this long before the first sleep */
    bool cpu_events;           /* counters of the processor, where it has any and the kernel allows it */
    uint32_t measured_turns;   /* of the poll loop, one in so many is measured (loop/phases.h); 0: none */
    /* transport: app, io, incarnation-independent fields are filled in by the data plane */
    struct mr_endpoint_config endpoint;
    /* Of core 0's endpoint beside that, where the application calls (dp_app.on_reply). */
    size_t calling_memory_bytes;
    uint32_t calling_sessions;
    struct dp_fault_config fault; /* off */
};

/* Defaults for every field. */
void dp_config_default(struct dp_config *config);

/* Calls on a core's own thread. `core_app` is what core_start returned. */
typedef void (*dp_handler)(void *core_app, struct mr_endpoint *ep, const struct mr_request *request);

struct dp_app {
    void *self;
    /* Makes the core's application state. NULL = failed (having written why to `error`): dp_start fails. */
    void *(*core_start)(void *self, struct dp_core *core, char error[DP_ERROR_BYTES]);
    /* A little background work, at most ~20 us; returns whether there is more to do now. */
    bool (*core_poll)(void *core_app, uint64_t now_us);
    void (*core_stop)(void *core_app);
    /* Indexed by enum mr_op; NULL answers MR_UNKNOWN_OP. */
    const dp_handler *dispatch;
    uint64_t (*last_push_step)(void *core_app, const uint8_t *client_uuid);
    /* A hint, see mr_on_prefetch. NULL: it gets none. */
    void (*prefetch)(void *core_app, const struct mr_prefetch *requests, uint32_t count);
    /* Another, see mr_on_arriving. NULL: it gets none. */
    void (*arriving)(void *core_app, struct mr_call_ref ref, const uint8_t *message, uint32_t received_bytes,
                     uint32_t message_bytes);
    /* Core 0's endpoint calls, too: its sessions and calls are the application's, see mr_on_reply and
     * mr_on_session. NULL: it only serves, as the other cores' do. An address to call is one that a request
     * came from (mr_call_ref_address), which has the way back, or one with a path of zero: its MAC address is
     * asked for, or that of the gateway to it (see dp_can_reach). */
    void (*on_reply)(void *core_app, struct mr_call *call, void *user, enum mr_status status,
                     const struct mr_message *reply);
    void (*on_session)(void *core_app, struct mr_client_session *session, enum mr_client_session_event event);
};

/* EAL, port, queues, steering: everything but the threads. The EAL can be started once per process, so one dp
 * at a time and per process; and one per device, which it holds a lock on until dp_destroy or the process's
 * end. On failure writes one line that says what, where and how to fix it. */
enum mr_status dp_create(const struct dp_config *config, struct dp **out, char error[DP_ERROR_BYTES]);
/* Starts the polling threads; returns once each core's core_start has returned. */
enum mr_status dp_start(struct dp *dp, const struct dp_app *app, char error[DP_ERROR_BYTES]);
/* Stops and joins the threads (core_stop runs on each), closes the port. */
void dp_stop(struct dp *dp);
void dp_destroy(struct dp *dp);

enum dp_port_state {
    DP_PORT_UP,
    DP_PORT_DOWN, /* no link; it may come back */
    /* removed, or taken by another process: nothing arrives any more, and only dp_destroy is left to do */
    DP_PORT_LOST,
};
/* Reports the state of the port. Nothing else does: to the cores a lost port looks like a quiet one. One
 * thread should ask a few times a second. Unless it is up, one line that says why is in `why`. */
enum dp_port_state dp_port_state(const struct dp *dp, char why[DP_ERROR_BYTES]);

/* What was chosen: "af_xdp", "hugepages" / "no-huge", "one core" / "flow rules" / "rss" / "rings" and why (a
 * few words), for logs, doctor and the demo. */
const char *dp_driver_name(const struct dp *dp);
enum dp_driver dp_driver(const struct dp *dp); /* never DP_DRIVER_AUTO */
const char *dp_driver_why(const struct dp *dp);
/* What carries the packets, and whether that bypasses the kernel. */
const char *dp_carrier_name(const struct dp *dp);
/* A line that says what would be faster on this link, and how to get it; NULL: nothing that is known. */
const char *dp_faster(const struct dp *dp);
const char *dp_memory_name(const struct dp *dp);
const char *dp_dpdk_version(void);
const char *dp_steering_name(const struct dp *dp);
const char *dp_steering_why(const struct dp *dp);
/* Whether core 0 can call a host: a packet came from there, or its family, the port's link and its gateways
 * allow it; with driver = socket, the kernel's routes do. False: one line in `why` says what to do. Any
 * thread. */
bool dp_can_reach(const struct dp *dp, const struct mr_address *to, char why[DP_ERROR_BYTES]);
/* The configured IPv4 and IPv6 address, with core 0's port; port 0: there is none. Any thread. */
void dp_own_addresses(const struct dp *dp, struct mr_address own[2]);
/* Whether core 0 itself listens there. So it does at its port of a loopback address: the names of many
 * machines lead there on the machines themselves. Any thread. */
bool dp_is_own_address(const struct dp *dp, const struct mr_address *address);
/* The address that always answers, "fe80::...". */
#define DP_ADDRESS_BYTES 46
void dp_link_local(const struct dp *dp, char text[DP_ADDRESS_BYTES]);

/* ---- cores ---- */
uint32_t dp_core_index(const struct dp_core *core);
struct mr_endpoint *dp_core_endpoint(struct dp_core *core);
uint64_t dp_now_us(void); /* monotonic; the clock of every deadline */
/* Share of the last second that the core spent working, in parts per million. Any thread. */
uint32_t dp_core_busy_ppm(const struct dp_core *core);
/* For the core's thread, to say which phase its work belongs to. */
struct dp_phases *dp_core_phases(struct dp_core *core);
/* Turns of its poll loop. They do not stop, also when the core has nothing to do: if they do, it hangs. Any
 * thread. */
uint64_t dp_core_turns(const struct dp_core *core);

/* Runs `run` on core `index`'s thread in its next loop. Any thread; never blocks; false when the ring is full
 * (try again). The task's memory is the caller's and must live until run() has been called; run() may hand it
 * on. What was posted before dp_stop() runs before the core ends. */
struct dp_task {
    void (*run)(struct dp_task *task, void *core_app, struct dp_core *core);
};
bool dp_post(struct dp *dp, uint32_t index, struct dp_task *task);

/* The application has work for core `index` where its core_poll finds it: that is called soon, also when the
 * core sleeps. Any thread; never blocks. */
void dp_wake(struct dp *dp, uint32_t index);
/* Has core_poll called at due_us at the latest; UINT64_MAX: in every poll only. The
 * core's thread. */
void dp_core_due(struct dp_core *core, uint64_t due_us);
/* Returns the eventfd that wakes the core when it sleeps, for the kernel's notices of I/O that has completed;
 * -1: there is none. Any thread. */
int dp_core_bell(const struct dp_core *core);

/* Puts the packets that the core receives and sends into a capture (dataplane/capture/capture.h), which is
 * the caller's and stays until it is taken away again: NULL. The core's thread. */
void dp_core_set_capture(struct dp_core *core, struct dp_capture *capture);
/* What its packets begin with: enum mr_capture_link. */
uint32_t dp_link_type(const struct dp *dp);

/* ---- counters ---- */

/* Port and loop counters, declared once. X(name, kind, unit, help). Per core, written by its thread only. */
#define DP_COUNTER_LIST(X)                                                                                   \
    X(loops, COUNTER, NONE, "turns of the poll loop")                                                        \
    X(loops_busy, COUNTER, NONE, "turns that found work")                                                    \
    X(sleeps, COUNTER, NONE, "naps of the adaptive mode")                                                    \
    X(rx_frames, COUNTER, NONE, "Ethernet frames received; from a socket, datagrams")                        \
    X(tx_frames, COUNTER, NONE, "Ethernet frames sent; through a socket, datagrams")                         \
    X(tx_dropped, COUNTER, NONE, "frames dropped because the port's transmit ring stayed full")              \
    X(tx_no_way, COUNTER, NONE, "packets not sent because the host's MAC address was not known yet")         \
    X(rx_arp, COUNTER, NONE, "ARP requests answered")                                                        \
    X(rx_too_long, COUNTER, NONE,                                                                            \
      "reports by routers (ICMP) that a datagram of ours is too long for the next link")                     \
    X(rx_icmp, COUNTER, NONE, "ICMP and ICMPv6 echo requests answered")                                      \
    X(rx_nd, COUNTER, NONE, "neighbour solicitations answered")                                              \
    X(rx_other, COUNTER, NONE, "frames of protocols not served here")                                        \
    X(rx_malformed, COUNTER, NONE, "frames with a wrong length or header")                                   \
    X(rx_checksum, COUNTER, NONE, "frames with a wrong checksum")                                            \
    X(rx_not_mine, COUNTER, NONE, "frames for another address or UDP port")                                  \
    X(rx_fragment, COUNTER, NONE, "IP fragments, which are not put together")                                \
    X(steered_out, COUNTER, NONE, "packets handed on to another core")                                       \
    X(steered_in, COUNTER, NONE, "packets taken from another core")                                          \
    X(steer_full, COUNTER, NONE, "packets dropped because another core's ring was full")                     \
    X(no_buffer, COUNTER, NONE, "times no packet buffer was free")                                           \
    X(steering, GAUGE, NONE,                                                                                 \
      "how packets find their core: 0 one core, 1 flow rules, 2 RSS, 3 rings, 4 sockets")                    \
    X(queues, GAUGE, NONE, "receive queues of the port")                                                     \
    X(carrier, GAUGE, NONE,                                                                                  \
      "what carries the packets: 0 NIC, 1 shared memory, 2 and 3 AF_XDP without and with copies, "           \
      "4 packet socket, 5 tap, 6 and 7 UDP sockets with and without super-packets")                          \
    X(virtual_link, GAUGE, NONE, "1: no device is behind the port's interface, or it has none")              \
    X(fault_lost, COUNTER, NONE, "packets lost on purpose (section fault of the configuration)")             \
    X(fault_duplicated, COUNTER, NONE, "packets duplicated on purpose")                                      \
    X(fault_late, COUNTER, NONE, "packets held back on purpose")                                             \
    X(fault_corrupted, COUNTER, NONE, "packets damaged on purpose")

struct dp_counters {
    DP_COUNTER_LIST(MR_COUNTER_FIELD)
};

extern const struct mr_counter_set dp_port_counter_set;

/* Looks at what is not counted by the cores themselves: their threads, the CPUs, the NIC, the sockets. One
 * thread, not a core's, should call it a few times a second. */
void dp_refresh_counters(struct dp *dp);
/* Whether counters of the processor are missing, or not whole; then one line that says why, and what to do,
 * is in `why`. */
bool dp_cpu_events_missing(const struct dp *dp, char why[DP_ERROR_BYTES]);

/* A set of u64 counters for /millrace telemetry (dpdk-telemetry.py), the STATS call and metrics. The
 * transport's and the data plane's own are there already; ps/ adds its sets in core_start. `set` and `values`
 * must outlive the core. */
void dp_core_add_counters(struct dp_core *core, const struct mr_counter_set *set, const uint64_t *values);
typedef void dp_visit_counter(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                              uint64_t value);
/* Visits every counter of a core: "wire.rx_packets", "port.rx_frames", "table.rows", ... Any thread. */
void dp_core_each_counter(const struct dp_core *core, dp_visit_counter *visit, void *arg);

#endif
