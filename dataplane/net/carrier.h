/* What carries a port's packets between the link and the cores, whether that bypasses the kernel, and what
 * would be faster. Pure, any thread. */
#ifndef DP_CARRIER_H
#define DP_CARRIER_H

#include <stdbool.h>

/* The numbers are shown in STATS and telemetry (port.carrier). */
enum dp_carrier {
    DP_CARRIER_NIC,           /* DPDK drives the NIC */
    DP_CARRIER_SHARED_MEMORY, /* memif */
    DP_CARRIER_XDP_ZERO_COPY, /* the NIC writes into this process's memory; the kernel starts it */
    DP_CARRIER_XDP_COPY,      /* the kernel copies each packet */
    DP_CARRIER_PACKET_SOCKET, /* af_packet */
    DP_CARRIER_TAP,           /* each packet is a system call */
    DP_CARRIER_SUPER_PACKETS, /* UDP sockets; the kernel moves runs of datagrams as one */
    DP_CARRIER_DATAGRAMS      /* UDP sockets of a kernel that moves them one by one */
};

/* "AF_XDP in copy mode, through the kernel" */
const char *dp_carrier_text(enum dp_carrier carrier);

/* One line that says what would be faster on such a link and how to get it; NULL: nothing that is known.
 * is_virtual: no device is behind the link (veth, bridge, tap). */
const char *dp_carrier_advice(enum dp_carrier carrier, bool is_virtual);

#endif
