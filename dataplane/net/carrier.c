#include "dataplane/net/carrier.h"
#include <stddef.h>

const char *dp_carrier_text(enum dp_carrier carrier)
{
    static const char *const text[] = {
        [DP_CARRIER_NIC] = "a NIC driven by DPDK, bypassing the kernel",
        [DP_CARRIER_SHARED_MEMORY] = "shared memory, bypassing the kernel",
        [DP_CARRIER_XDP_ZERO_COPY] = "AF_XDP with zero copy, bypassing the kernel's network stack",
        [DP_CARRIER_XDP_COPY] = "AF_XDP in copy mode, through the kernel",
        [DP_CARRIER_PACKET_SOCKET] = "a packet socket, through the kernel",
        [DP_CARRIER_TAP] = "a tap, through the kernel",
        [DP_CARRIER_SUPER_PACKETS] = "UDP sockets with super-packets, through the kernel",
        [DP_CARRIER_DATAGRAMS] = "UDP sockets without super-packets, through the kernel",
    };
    return text[carrier];
}

const char *dp_carrier_advice(enum dp_carrier carrier, bool is_virtual)
{
    switch (carrier) {
    case DP_CARRIER_XDP_COPY:
    case DP_CARRIER_PACKET_SOCKET:
        if (is_virtual)
            return "the link is virtual: large calls are faster with driver = socket, which needs the node's "
                   "address "
                   "on the interface (ip address add); small calls are slower";
        return carrier == DP_CARRIER_XDP_COPY ? "the kernel copies each packet: all calls are faster with "
                                                "driver = pci, or with a kernel driver "
                                                "that has zero copy (docs/real-nics.md)"
                                              : "the kernel copies each packet: all calls are faster with "
                                                "driver = pci, most also with driver "
                                                "= af_xdp (docs/real-nics.md)";
    case DP_CARRIER_SUPER_PACKETS:
        return is_virtual
                   ? NULL
                   : "a NIC is behind the link: all calls are faster with driver = pci, small ones also with "
                     "driver = af_xdp (docs/real-nics.md)";
    case DP_CARRIER_DATAGRAMS:
        return "this kernel sends datagrams one by one: large calls are faster with Linux 5.0 or newer";
    default:
        return NULL;
    }
}
