#include "drop_causes.h"

#include <string.h>

#define OFFLOAD_CURE                                                                                         \
    "switch them off at the sender's end (sudo ethtool -K INTERFACE tso off gso off tx off), or set driver " \
    "= "                                                                                                     \
    "socket"

const struct mr_drop_cause mr_drop_causes[] = {
    {"port.rx_malformed", 0,
     "frames with a wrong length or header, as a virtual link gives that joins datagrams (GSO), or leaves "
     "checksums out",
     OFFLOAD_CURE},
    {"port.rx_checksum", 0, "frames with a wrong checksum, as a virtual link gives that leaves checksums out",
     OFFLOAD_CURE "; on a real link, check cable and NIC"},
    {"port.rx_fragment", 0,
     "IP fragments, which are not put together: a path is narrower than its sender knows",
     "set the sender's MTU to that of the path, and let routers send ICMP \"too big\""},
    {"port.tx_dropped", 0, "frames that the port did not take in time: its transmit ring stayed full",
     "raise port.tx_descriptors, or use a faster link; ethtool -S INTERFACE shows pauses"},
    {"port.tx_no_way", 0, "packets to hosts whose MAC address did not become known",
     "check that the host answers ARP and neighbour solicitations; beyond a router, set port.ipv4_gateway or "
     "port.ipv6_gateway"},
    {"port.steer_full", 0, "packets for another core, whose ring was full: it is overloaded, or does not run",
     "give each core a CPU of its own (cores.cpus), and the port a queue for each core (millrace doctor)"},
    {"port.no_buffer", 0, "no packet buffer was free", "raise memory.packets_mib"},
    {"socket.rx_dropped", 0, "datagrams that the kernel dropped: the socket's buffer was full",
     "sudo sysctl -w net.core.rmem_max=16777216, and give the cores CPUs of their own (cores.cpus)"},
    {"nic.rx_missed_errors", 0, "packets that the NIC dropped: its receive ring was full",
     "raise port.rx_descriptors, give each core a CPU of its own (cores.cpus), or add cores"},
    {"nic.rx_mbuf_allocation_errors", 0, "packets that the driver dropped: no buffer was free",
     "raise memory.packets_mib"},
    {"nic.rx_errors", 0, "packets with errors that the NIC dropped",
     "check cable, transceiver and switch port"},
    {"nic.tx_errors", 0, "packets that the NIC could not send",
     "check the link; ethtool -S INTERFACE says more"},
    {"wire.drop_short", 0, "datagrams that are cut short, or longer than they say",
     "a virtual link joins datagrams (see port.rx_malformed), another program sends to this port, or "
     "something on "
     "the path changes packets: capture them (millrace capture)"},
    {"wire.drop_magic", 0, "datagrams that are no packets of Millrace",
     "another program sends to this port: find it (millrace capture), or set port.udp_port"},
    {"wire.drop_type", 0, "packets of an unknown type, as a newer version may send",
     "upgrade the older side (millrace ctl nodes, millrace --version)"},
    {"wire.drop_tag", 0, "packets that were not sealed with the session's key",
     "something on the path changes packets, or sends in another's name: capture them (millrace capture)"},
    {"wire.drop_proof", 0, "HELLOs without proof of a key of this node",
     "give the clients the key file of this node (node.key_file, node.key)"},
    {"wire.drop_range", 0, "packets with a length, an offset or an id out of range",
     "something on the path changes packets, or a client is at fault: capture them (millrace capture)"},
    {"wire.drop_message", 0, "messages whose list of tensors is wrong: a client is at fault",
     "upgrade the client's library; its own log has BAD_MESSAGE"},
    {"wire.drop_rate", 0, "HELLOs beyond what one address may send",
     "clients start in a loop, or many share an address: then raise transport.hellos_per_address"},
    {"wire.drop_session", 10, "packets for sessions that this core does not have",
     "clients of a former start, or packets that reach the wrong core: compare port.steering (millrace "
     "doctor "
     "--server)"},
    {"wire.drop_repeated", 10, "packets that had come before",
     "the network doubles packets: look for a loop"},
    {"wire.drop_stale", 10, "packets of calls that are over",
     "the path is slow or loses packets: compare wire.segments_resent with wire.tx_packets"},
    {"wire.drop_cookie", 10, "HELLOs with a stale cookie",
     "somebody sends in others' names, or the way back to clients is cut: check routes and firewalls"},
};
const uint32_t mr_drop_cause_count = sizeof(mr_drop_causes) / sizeof(mr_drop_causes[0]);
_Static_assert(sizeof(mr_drop_causes) / sizeof(mr_drop_causes[0]) <= MR_DROP_CAUSES_MAX, "arrays have room");

uint32_t mr_drop_cause_find(const char *counter)
{
    uint32_t i = 0;
    while (i < mr_drop_cause_count && strcmp(mr_drop_causes[i].counter, counter) != 0)
        i++;
    return i;
}

bool mr_drop_cause_matters(const struct mr_drop_cause *cause, uint64_t dropped, uint64_t received)
{
    return dropped > 0 && dropped * 100 > received * cause->normal_percent;
}
