#include "dataplane/dpdk/port_carrier.h"
#include <linux/if_xdp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

static bool copies_nothing(int fd)
{
    struct xdp_options options = {0};
    socklen_t bytes = sizeof(options);
    return getsockopt(fd, SOL_XDP, XDP_OPTIONS, &options, &bytes) == 0 &&
           (options.flags & XDP_OPTIONS_ZEROCOPY) != 0;
}

static bool has_super_packets(int fd)
{
    int run_bytes = 0;
    socklen_t bytes = sizeof(run_bytes);
    return getsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &run_bytes, &bytes) == 0;
}

enum dp_carrier dp_port_carrier(enum dp_driver driver, int fd)
{
    switch (driver) {
    case DP_DRIVER_PCI:
        return DP_CARRIER_NIC;
    case DP_DRIVER_MEMIF:
        return DP_CARRIER_SHARED_MEMORY;
    case DP_DRIVER_AF_XDP:
        return copies_nothing(fd) ? DP_CARRIER_XDP_ZERO_COPY : DP_CARRIER_XDP_COPY;
    case DP_DRIVER_TAP:
        return DP_CARRIER_TAP;
    case DP_DRIVER_SOCKET:
        return has_super_packets(fd) ? DP_CARRIER_SUPER_PACKETS : DP_CARRIER_DATAGRAMS;
    default:
        return DP_CARRIER_PACKET_SOCKET;
    }
}
