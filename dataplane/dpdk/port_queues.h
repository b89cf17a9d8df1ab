/* The queues of a port and the packet buffers behind them. Main thread, between configuring and starting. */
#ifndef DP_PORT_QUEUES_H
#define DP_PORT_QUEUES_H

#include "dataplane/dpdk/port.h"

#define DP_XDP_HEADROOM_BYTES 256u /* the kernel's, in front of every packet (XDP_PACKET_HEADROOM) */
#define DP_ETHER_EXTRA_BYTES  22u  /* Ethernet header, VLAN tag, frame check sequence */

/* PACKET_MMAP's frames hold its own header and must tile the block. */
uint32_t dp_port_af_packet_frame_bytes(uint32_t mtu);

/* Makes a pool of buffers for each of the port's queues, and the queues. 0, or -errno: pools that were made
 * stay in `port`. */
int dp_port_setup_queues(struct dp_port *port, const struct dp_config *config, const struct dp_net *net);

#endif
