/* Who this server is on the network: its addresses, and the numbers of the headers that it speaks.
 * Made from the configuration once the port is open; read by every core, changed by none. */
#ifndef DP_NET_H
#define DP_NET_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"

#define DP_ETHER_BYTES 14u
#define DP_VLAN_BYTES  4u
#define DP_IPV4_BYTES  20u
#define DP_IPV6_BYTES  40u
#define DP_UDP_BYTES   8u
/* Ethernet, one VLAN tag, IPv6, UDP: the most that stands before a datagram. */
#define DP_HEADERS_BYTES_MAX (DP_ETHER_BYTES + DP_VLAN_BYTES + DP_IPV6_BYTES + DP_UDP_BYTES)

#define DP_ETHERTYPE_IPV4 0x0800u
#define DP_ETHERTYPE_ARP  0x0806u
#define DP_ETHERTYPE_VLAN 0x8100u
#define DP_ETHERTYPE_IPV6 0x86ddu

#define DP_PROTOCOL_ICMP   1u
#define DP_PROTOCOL_UDP    17u
#define DP_PROTOCOL_ICMPV6 58u

#define DP_MTU_MIN 1280u
#define DP_MTU_MAX 9000u

/* Which of the server's addresses a packet was sent to, and is answered from. */
enum dp_local { DP_LOCAL_IPV4, DP_LOCAL_IPV6, DP_LOCAL_LINK };

struct dp_net {
    uint8_t mac[6];
    bool has_ipv4;
    bool has_ipv6;
    uint8_t ipv4[4];
    uint8_t ipv6[16];
    uint8_t link_local[16]; /* fe80:: and the modified EUI-64 of `mac` (RFC 4291, appendix A) */
    /* How many bits of the addresses all hosts on the link share; 0: none, all hosts are on it. */
    uint8_t ipv4_prefix, ipv6_prefix;
    /* Routers on the link, for all other hosts. */
    bool has_ipv4_gateway, has_ipv6_gateway;
    uint8_t ipv4_gateway[4], ipv6_gateway[16];
    uint16_t vlan; /* 0 = untagged */
    uint16_t mtu;
    uint16_t udp_port; /* core i answers on udp_port + i */
    uint16_t core_count;
    /* Take a UDP checksum that covers the pseudo header only. A sender in the same machine leaves the rest to
     * a network card that its packet never meets: Linux hands such packets to AF_XDP and AF_PACKET as they
     * are. */
    bool partial_checksums;
};

/* Reads the addresses out of the configuration. False, with one line in `error`, when one does not parse.
 * `mac` stays zero and link_local unset when the configuration names no MAC address: see dp_net_set_mac. */
bool dp_net_from_config(struct dp_net *net, const struct dp_config *config, char error[DP_ERROR_BYTES]);
void dp_net_set_mac(struct dp_net *net, const uint8_t mac[6]);

bool dp_net_is_link_local(const uint8_t ipv6[16]);
/* Whether the prefix of our address of that family says that `ip` (4 or 16 bytes) is on our link. */
bool dp_net_is_on_link(const struct dp_net *net, bool is_ipv4, const uint8_t *ip);

/* Largest UDP payload that fits the MTU over either IP version: a multiple of 8, at most MR_UDP_BYTES_MAX. */
uint32_t dp_net_udp_bytes_max(const struct dp_net *net);

/* The source address for `local`: 4 or 16 bytes. */
const uint8_t *dp_net_address(const struct dp_net *net, enum dp_local local);

#endif
