#include "dataplane/net/frame.h"
#include <string.h>
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"

#define VLAN_ID_MASK      0x0fffu
#define IPV4_FRAGMENT     0x3fffu /* "more fragments", or an offset */
#define IPV4_DO_NOT_SPLIT 0x4000u
#define IPV6_FRAGMENT     44u
#define HOP_LIMIT         64u

static bool mac_is_group(const uint8_t *mac)
{
    return (mac[0] & 1) != 0;
}

static bool mac_is_broadcast(const uint8_t *mac)
{
    return (mac[0] & mac[1] & mac[2] & mac[3] & mac[4] & mac[5]) == 0xff;
}

/* A sender that may be answered: one host, and not this one. */
static bool ipv4_is_host(const uint8_t *address)
{
    return address[0] != 0 && address[0] < 224 && address[0] != 127;
}

static bool ipv6_is_unspecified_or_loopback(const uint8_t *address)
{
    static const uint8_t zero[15];
    return memcmp(address, zero, sizeof(zero)) == 0 && address[15] <= 1;
}

static bool ipv6_is_mine(const struct dp_net *net, const uint8_t *address)
{
    return memcmp(address, net->link_local, 16) == 0 ||
           (net->has_ipv6 && memcmp(address, net->ipv6, 16) == 0);
}

/* ff02::1:ffXX:XXXX with the last 24 bits of one of our addresses (RFC 4291, section 2.7.1). */
static bool ipv6_is_solicited_node(const struct dp_net *net, const uint8_t *address)
{
    static const uint8_t prefix[13] = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff};
    if (memcmp(address, prefix, sizeof(prefix)) != 0)
        return false;
    return memcmp(address + 13, net->link_local + 13, 3) == 0 ||
           (net->has_ipv6 && memcmp(address + 13, net->ipv6 + 13, 3) == 0);
}

static bool port_is_mine(const struct dp_net *net, uint16_t port)
{
    return port >= net->udp_port && port - net->udp_port < net->core_count;
}

/* A checksum over the pseudo header only, as the sending host leaves it for its network card to finish. */
static bool checksum_is_partial(const struct dp_net *net, const uint8_t *field, uint64_t pseudo)
{
    uint16_t value;
    memcpy(&value, field, sizeof(value));
    return net->partial_checksums && value == dp_checksum_fold(pseudo);
}

static enum dp_verdict parse_udp(const struct dp_net *net, const uint8_t *udp, uint16_t bytes,
                                 uint64_t pseudo_addresses, bool zero_allowed, bool checked,
                                 struct dp_frame *out)
{
    if (bytes < DP_UDP_BYTES)
        return DP_FRAME_MALFORMED;
    uint16_t udp_bytes = dp_get16(udp + 4);
    if (udp_bytes < DP_UDP_BYTES || udp_bytes > bytes)
        return DP_FRAME_MALFORMED;
    out->source_port = dp_get16(udp);
    out->destination_port = dp_get16(udp + 2);
    if (!port_is_mine(net, out->destination_port))
        return DP_FRAME_NOT_MINE;
    if (out->source_port == 0)
        return DP_FRAME_MALFORMED;
    out->payload = udp + DP_UDP_BYTES;
    out->payload_bytes = (uint16_t)(udp_bytes - DP_UDP_BYTES);
    if (checked)
        return DP_FRAME_UDP;
    if (dp_get16(udp + 6) == 0)
        return zero_allowed ? DP_FRAME_UDP : DP_FRAME_CHECKSUM;

    uint64_t pseudo = dp_checksum_add16(pseudo_addresses, udp_bytes);
    if (checksum_is_partial(net, udp + 6, pseudo))
        return DP_FRAME_UDP;
    return dp_checksum_fold(dp_checksum_add(pseudo, udp, udp_bytes)) == UINT16_MAX ? DP_FRAME_UDP
                                                                                   : DP_FRAME_CHECKSUM;
}

static enum dp_verdict parse_icmp(const uint8_t *icmp, uint16_t bytes, struct dp_frame *out)
{
    if (bytes < 8)
        return DP_FRAME_MALFORMED;
    if (dp_checksum_fold(dp_checksum_add(0, icmp, bytes)) != UINT16_MAX)
        return DP_FRAME_CHECKSUM;
    out->payload = icmp;
    out->payload_bytes = bytes;
    return DP_FRAME_ICMP;
}

static enum dp_verdict parse_ipv4(const struct dp_net *net, const uint8_t *ip, size_t present,
                                  struct dp_checked checked, struct dp_frame *out)
{
    if (present < DP_IPV4_BYTES || ip[0] >> 4 != 4)
        return DP_FRAME_MALFORMED;
    uint16_t header_bytes = (uint16_t)((ip[0] & 0x0f) * 4);
    uint16_t total_bytes = dp_get16(ip + 2);
    if (header_bytes < DP_IPV4_BYTES || total_bytes < header_bytes || total_bytes > present)
        return DP_FRAME_MALFORMED;
    if (!net->has_ipv4 || memcmp(ip + 16, net->ipv4, 4) != 0)
        return DP_FRAME_NOT_MINE;
    if (!checked.ip && dp_checksum_fold(dp_checksum_add(0, ip, header_bytes)) != UINT16_MAX)
        return DP_FRAME_CHECKSUM;
    if (!ipv4_is_host(ip + 12) || memcmp(ip + 12, net->ipv4, 4) == 0)
        return DP_FRAME_MALFORMED;
    if ((dp_get16(ip + 6) & IPV4_FRAGMENT) != 0)
        return DP_FRAME_FRAGMENT;

    uint16_t bytes = (uint16_t)(total_bytes - header_bytes);
    out->source = ip + 12;
    out->destination = ip + 16;
    out->local = DP_LOCAL_IPV4;
    out->hop_limit = ip[8];
    switch (ip[9]) {
    case DP_PROTOCOL_UDP:
        return parse_udp(net, ip + header_bytes, bytes,
                         dp_checksum_pseudo4(ip + 12, ip + 16, DP_PROTOCOL_UDP, 0), true, checked.udp, out);
    case DP_PROTOCOL_ICMP:
        return parse_icmp(ip + header_bytes, bytes, out);
    default:
        return DP_FRAME_OTHER;
    }
}

static enum dp_verdict parse_icmpv6(const uint8_t *ip, const uint8_t *icmp, uint16_t bytes,
                                    struct dp_frame *out)
{
    if (bytes < 8)
        return DP_FRAME_MALFORMED;
    uint64_t sum = dp_checksum_pseudo6(ip + 8, ip + 24, DP_PROTOCOL_ICMPV6, bytes);
    if (dp_checksum_fold(dp_checksum_add(sum, icmp, bytes)) != UINT16_MAX)
        return DP_FRAME_CHECKSUM;
    out->payload = icmp;
    out->payload_bytes = bytes;
    return DP_FRAME_ICMPV6;
}

static bool find_local_ipv6(const struct dp_net *net, const uint8_t *destination, struct dp_frame *out)
{
    out->multicast = ipv6_is_solicited_node(net, destination);
    out->local = DP_LOCAL_LINK;
    if (out->multicast || memcmp(destination, net->link_local, 16) == 0)
        return true;
    out->local = DP_LOCAL_IPV6;
    return net->has_ipv6 && memcmp(destination, net->ipv6, 16) == 0;
}

static enum dp_verdict parse_ipv6(const struct dp_net *net, const uint8_t *ip, size_t present,
                                  struct dp_checked checked, struct dp_frame *out)
{
    if (present < DP_IPV6_BYTES || ip[0] >> 4 != 6)
        return DP_FRAME_MALFORMED;
    uint16_t bytes = dp_get16(ip + 4);
    if (bytes > present - DP_IPV6_BYTES)
        return DP_FRAME_MALFORMED;
    if (!find_local_ipv6(net, ip + 24, out))
        return DP_FRAME_NOT_MINE;
    if (ip[8] == 0xff || ipv6_is_mine(net, ip + 8))
        return DP_FRAME_MALFORMED;
    out->source = ip + 8;
    out->destination = ip + 24;
    out->hop_limit = ip[7];
    switch (ip[6]) {
    case DP_PROTOCOL_UDP:
        if (out->multicast)
            return DP_FRAME_NOT_MINE;
        if (ipv6_is_unspecified_or_loopback(ip + 8))
            return DP_FRAME_MALFORMED;
        return parse_udp(net, ip + DP_IPV6_BYTES, bytes,
                         dp_checksum_pseudo6(ip + 8, ip + 24, DP_PROTOCOL_UDP, 0), false, checked.udp, out);
    case DP_PROTOCOL_ICMPV6:
        return parse_icmpv6(ip, ip + DP_IPV6_BYTES, bytes, out);
    case IPV6_FRAGMENT:
        return DP_FRAME_FRAGMENT;
    default:
        return DP_FRAME_OTHER;
    }
}

enum dp_verdict dp_frame_parse(const struct dp_net *net, const uint8_t *bytes, size_t byte_count,
                               struct dp_checked checked, struct dp_frame *out)
{
    /* Our own address as the sender's is an echo of what we sent, or a forgery. */
    if (byte_count < DP_ETHER_BYTES || mac_is_group(bytes + 6) || memcmp(bytes + 6, net->mac, 6) == 0)
        return DP_FRAME_MALFORMED;
    *out = (struct dp_frame){.peer_mac = bytes + 6};
    if (!mac_is_group(bytes) && memcmp(bytes, net->mac, 6) != 0)
        return DP_FRAME_NOT_MINE;

    size_t offset = DP_ETHER_BYTES;
    uint16_t ether_type = dp_get16(bytes + 12);
    if (ether_type == DP_ETHERTYPE_VLAN) {
        if (byte_count < DP_ETHER_BYTES + DP_VLAN_BYTES)
            return DP_FRAME_MALFORMED;
        out->tci = dp_get16(bytes + 14);
        ether_type = dp_get16(bytes + 16);
        offset += DP_VLAN_BYTES;
    }
    if ((out->tci & VLAN_ID_MASK) != net->vlan)
        return DP_FRAME_NOT_MINE;
    /* A tag of VLAN 0 carries a priority only: the answer is sent untagged. */
    if (net->vlan == 0)
        out->tci = 0;

    switch (ether_type) {
    case DP_ETHERTYPE_IPV4:
        return mac_is_group(bytes) ? DP_FRAME_NOT_MINE
                                   : parse_ipv4(net, bytes + offset, byte_count - offset, checked, out);
    case DP_ETHERTYPE_IPV6:
        return mac_is_broadcast(bytes) ? DP_FRAME_NOT_MINE
                                       : parse_ipv6(net, bytes + offset, byte_count - offset, checked, out);
    case DP_ETHERTYPE_ARP:
        out->payload = bytes + offset;
        out->payload_bytes = (uint16_t)(byte_count - offset);
        return DP_FRAME_ARP;
    default:
        return DP_FRAME_OTHER;
    }
}

void dp_path_get(const struct mr_address *address, struct dp_path *out)
{
    memcpy(out, address->path, sizeof(*out));
}

void dp_path_set(struct mr_address *address, const struct dp_path *path)
{
    memcpy(address->path, path, sizeof(*path));
}

void dp_frame_sender(const struct dp_frame *frame, struct mr_address *out)
{
    struct dp_path path = {
        .tci = frame->tci, .local_port = frame->destination_port, .local = (uint8_t)frame->local};
    memcpy(path.peer_mac, frame->peer_mac, 6);
    memset(out, 0, sizeof(*out));
    if (frame->local == DP_LOCAL_IPV4) {
        out->ip[10] = 0xff;
        out->ip[11] = 0xff;
        memcpy(out->ip + 12, frame->source, 4);
    } else {
        memcpy(out->ip, frame->source, 16);
    }
    out->port = frame->source_port;
    dp_path_set(out, &path);
}

uint32_t dp_frame_header_bytes(const struct mr_address *to)
{
    struct dp_path path;
    dp_path_get(to, &path);
    return DP_ETHER_BYTES + (path.tci != 0 ? DP_VLAN_BYTES : 0) +
           (path.local == DP_LOCAL_IPV4 ? DP_IPV4_BYTES : DP_IPV6_BYTES) + DP_UDP_BYTES;
}

uint32_t dp_frame_put_ether(const struct dp_net *net, uint8_t *bytes, const uint8_t *peer_mac, uint16_t tci,
                            uint16_t ether_type)
{
    memcpy(bytes, peer_mac, 6);
    memcpy(bytes + 6, net->mac, 6);
    if (tci == 0) {
        dp_put16(bytes + 12, ether_type);
        return DP_ETHER_BYTES;
    }
    dp_put16(bytes + 12, DP_ETHERTYPE_VLAN);
    dp_put16(bytes + 14, tci);
    dp_put16(bytes + 16, ether_type);
    return DP_ETHER_BYTES + DP_VLAN_BYTES;
}

uint32_t dp_frame_put_ipv4(uint8_t *bytes, const uint8_t *source, const uint8_t *destination,
                           uint8_t protocol, uint32_t payload_bytes)
{
    memset(bytes, 0, DP_IPV4_BYTES);
    bytes[0] = 0x45;
    dp_put16(bytes + 2, DP_IPV4_BYTES + payload_bytes);
    dp_put16(bytes + 6, IPV4_DO_NOT_SPLIT); /* atomic, so its identification means nothing (RFC 6864) */
    bytes[8] = HOP_LIMIT;
    bytes[9] = protocol;
    memcpy(bytes + 12, source, 4);
    memcpy(bytes + 16, destination, 4);
    /* Of what was written, not of where: to read back 16-bit stores as words would wait for them. */
    uint64_t sum =
        dp_checksum_pseudo4(source, destination, protocol, (uint16_t)(DP_IPV4_BYTES + payload_bytes));
    sum = dp_checksum_add16(sum, 0x4500);
    sum = dp_checksum_add16(sum, IPV4_DO_NOT_SPLIT);
    dp_checksum_store(bytes + 10, dp_checksum_add16(sum, HOP_LIMIT << 8), 0);
    return DP_IPV4_BYTES;
}

uint32_t dp_frame_put_ipv6(uint8_t *bytes, const uint8_t *source, const uint8_t *destination,
                           uint8_t protocol, uint8_t hop_limit, uint32_t payload_bytes)
{
    memset(bytes, 0, 8);
    bytes[0] = 0x60;
    dp_put16(bytes + 4, payload_bytes);
    bytes[6] = protocol;
    bytes[7] = hop_limit;
    memcpy(bytes + 8, source, 16);
    memcpy(bytes + 24, destination, 16);
    return DP_IPV6_BYTES;
}

void dp_frame_build(const struct dp_net *net, const struct mr_address *to, uint8_t *bytes,
                    uint32_t payload_bytes, enum dp_checksums checksums)
{
    struct dp_path path;
    uint16_t udp_bytes = (uint16_t)(DP_UDP_BYTES + payload_bytes);
    uint64_t pseudo;
    dp_path_get(to, &path);
    const uint8_t *source = dp_net_address(net, (enum dp_local)path.local);
    if (path.local == DP_LOCAL_IPV4) {
        bytes += dp_frame_put_ether(net, bytes, path.peer_mac, path.tci, DP_ETHERTYPE_IPV4);
        uint8_t *ip = bytes;
        bytes += dp_frame_put_ipv4(bytes, source, to->ip + 12, DP_PROTOCOL_UDP, udp_bytes);
        if (checksums == DP_CHECKSUMS_BY_CARD)
            dp_put16(ip + 10, 0);
        pseudo = dp_checksum_pseudo4(source, to->ip + 12, DP_PROTOCOL_UDP, udp_bytes);
    } else {
        bytes += dp_frame_put_ether(net, bytes, path.peer_mac, path.tci, DP_ETHERTYPE_IPV6);
        bytes += dp_frame_put_ipv6(bytes, source, to->ip, DP_PROTOCOL_UDP, HOP_LIMIT, udp_bytes);
        pseudo = dp_checksum_pseudo6(source, to->ip, DP_PROTOCOL_UDP, udp_bytes);
    }
    dp_put16(bytes, path.local_port);
    dp_put16(bytes + 2, to->port);
    dp_put16(bytes + 4, udp_bytes);
    dp_put16(bytes + 6, 0);
    if (checksums == DP_CHECKSUMS_NO_UDP && path.local == DP_LOCAL_IPV4)
        return;
    if (checksums == DP_CHECKSUMS_BY_CARD) {
        uint16_t partial = dp_checksum_fold(pseudo);
        memcpy(bytes + 6, &partial, sizeof(partial));
    } else {
        uint64_t sum = dp_checksum_add16(pseudo, path.local_port);
        sum = dp_checksum_add16(dp_checksum_add16(sum, to->port), udp_bytes);
        dp_checksum_store(bytes + 6, dp_checksum_add(sum, bytes + DP_UDP_BYTES, payload_bytes), 1);
    }
}
