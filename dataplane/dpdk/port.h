/* The DPDK port: choosing and opening a driver, queues, packet buffers.
 *
 * Every transmit queue has its own pool of packet buffers, and what is sent on a queue must come from that
 * pool, in one segment: net_af_xdp of DPDK 22.11 transmits anything else wrongly.
 */
#ifndef DP_PORT_H
#define DP_PORT_H

#include <stdbool.h>
#include <stdint.h>
#include <rte_mbuf.h>
#include "dataplane/net/carrier.h"
#include "dataplane/net/frame.h"
#include "dataplane/net/net.h"
#include "dataplane/net/steering.h"

#define DP_QUEUES_MAX DP_CORES_MAX

struct dp_port {
    uint16_t id;
    uint16_t queue_count; /* receive and transmit queues, always as many of each */
    enum dp_driver driver;
    enum dp_checksums checksums; /* of what is sent */
    /* The kernel moves the packets, in part on this CPU (ksoftirqd): a core that finds nothing must let it
     * run, or the packets it waits for wait for it. */
    bool kernel_driven;
    bool rss;          /* packets are spread over the queues by a hash of their addresses and UDP ports */
    bool filters_vlan; /* the card admits frames of the VLANs that it was told of alone */
    struct dp_steering_choice steering;
    enum dp_carrier carrier;
    bool virtual_link;    /* no device is behind the interface, or there is none */
    char device_name[64]; /* DPDK's name */
    struct rte_mempool *pools[DP_QUEUES_MAX];
    int fds[DP_QUEUES_MAX]; /* readable when the queue has packets; -1: the driver has none to wait on */
};

/* The configured driver; DP_DRIVER_PCI for AUTO with a PCI address, which the EAL has to know before it
 * starts. */
enum dp_driver dp_port_choose_bus(const struct dp_config *config);

/* Opens the configured port, or with AUTO the first that opens; fills in net->mac, mtu and partial_checksums.
 * False, with one line in `error`, on failure: nothing is left open then. */
bool dp_port_open(struct dp_port *port, const struct dp_config *config, struct dp_net *net,
                  char error[DP_ERROR_BYTES]);
void dp_port_close(struct dp_port *port);

/* "af_xdp", "af_packet", ... */
const char *dp_port_driver_text(enum dp_driver driver);

/* rte_flow rules UDP destination port base+i -> queue i. NULL when all are in place; else why not, and none
 * is left. The text is valid until the next call. */
const char *dp_port_add_flow_rules(const struct dp_port *port, const struct dp_net *net);

#endif
