/* How packets find their core, chosen from what the port can do. Pure, any thread.
 *
 * One session belongs to one core, and core i's packets go to UDP port udp_port + i. In order of preference:
 *   flow rules  the port puts each UDP destination port on its core's queue
 *   rss         the port spreads packets over its queues by a hash of addresses and ports: a client learns
 *               which of its source ports lead to the right queue (mr_accept.arrived_core); until then rings
 *               carry its packets on
 *   rings       the core that receives a packet hands it on
 * Sockets need none of them: the kernel finds each core's by its UDP port.
 */
#ifndef DP_STEERING_H
#define DP_STEERING_H

#include <stdbool.h>
#include <stdint.h>

#define DP_STEERING_WHY_BYTES 128

/* The numbers are shown in STATS and telemetry (port.steering). */
enum dp_steering {
    DP_STEERING_ONE_CORE,
    DP_STEERING_FLOW_RULES,
    DP_STEERING_RSS,
    DP_STEERING_RINGS,
    DP_STEERING_SOCKETS
};

struct dp_steering_facts {
    uint32_t core_count;
    uint16_t queue_count;   /* receive queues that are open */
    bool sockets;           /* each core has a socket of its own */
    bool flow_rules;        /* a rule per core is in place */
    const char *flow_error; /* else: why not; NULL = none were tried */
    bool rss;               /* the port spreads UDP over the queues by its ports */
};

struct dp_steering_choice {
    enum dp_steering steering;
    char why[DP_STEERING_WHY_BYTES]; /* a few words: "1 queue for 2 cores" */
};

void dp_steering_choose(const struct dp_steering_facts *facts, struct dp_steering_choice *out);

/* "one core", "flow rules", "rss", "rings" */
const char *dp_steering_text(enum dp_steering steering);

/* The RSS hash types to ask a port for that offers `offered` (RTE_ETH_RSS_...): those over UDP's ports; 0
 * when it has none for IPv4 or, should it be wanted, for IPv6. */
struct dp_rss_types {
    uint64_t udp_ipv4, udp_ipv6;
};
uint64_t dp_steering_rss_types(const struct dp_rss_types *types, uint64_t offered);

#endif
