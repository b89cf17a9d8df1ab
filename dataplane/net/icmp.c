#include "dataplane/net/icmp.h"
#include <string.h>
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"

enum {
    ECHO_REPLY = 0,
    UNREACHABLE = 3,
    FRAGMENTATION_NEEDED = 4,
    ECHO_REQUEST = 8,
    PACKET_TOO_BIG_V6 = 2,
    ECHO_REQUEST_V6 = 128,
    ECHO_REPLY_V6 = 129,
    HOP_LIMIT = 64,
    ERROR_BYTES = 8, /* before what is quoted */
    IPV4_FRAGMENT_OFFSET = 0x1fff,
};

static bool is_echo(const struct dp_frame *frame, uint8_t type, size_t header_bytes, size_t out_bytes_max,
                    enum dp_verdict *why)
{
    *why = DP_FRAME_OTHER;
    if (frame->multicast || frame->payload[0] != type)
        return false;
    *why = DP_FRAME_MALFORMED;
    return frame->payload[1] == 0 && header_bytes + frame->payload_bytes <= out_bytes_max;
}

/* The request's bytes come back with another type. */
static void put_echo(uint8_t *out, const struct dp_frame *frame, uint8_t type, uint64_t pseudo)
{
    memcpy(out, frame->payload, frame->payload_bytes);
    out[0] = type;
    dp_put16(out + 2, 0);
    dp_checksum_store(out + 2, dp_checksum_add(pseudo, out, frame->payload_bytes), 0);
}

uint32_t dp_icmp_answer(const struct dp_net *net, const struct dp_frame *frame, uint8_t *out,
                        size_t out_bytes_max, enum dp_verdict *why)
{
    uint8_t *at = out;
    if (!is_echo(frame, ECHO_REQUEST, DP_ETHER_BYTES + DP_VLAN_BYTES + DP_IPV4_BYTES, out_bytes_max, why))
        return 0;
    at += dp_frame_put_ether(net, at, frame->peer_mac, frame->tci, DP_ETHERTYPE_IPV4);
    at += dp_frame_put_ipv4(at, net->ipv4, frame->source, DP_PROTOCOL_ICMP, frame->payload_bytes);
    put_echo(at, frame, ECHO_REPLY, 0);
    return (uint32_t)(at - out) + frame->payload_bytes;
}

uint32_t dp_icmpv6_answer(const struct dp_net *net, const struct dp_frame *frame, uint8_t *out,
                          size_t out_bytes_max, enum dp_verdict *why)
{
    const uint8_t *source = dp_net_address(net, frame->local);
    uint8_t *at = out;
    if (!is_echo(frame, ECHO_REQUEST_V6, DP_ETHER_BYTES + DP_VLAN_BYTES + DP_IPV6_BYTES, out_bytes_max, why))
        return 0;
    at += dp_frame_put_ether(net, at, frame->peer_mac, frame->tci, DP_ETHERTYPE_IPV6);
    at += dp_frame_put_ipv6(at, source, frame->source, DP_PROTOCOL_ICMPV6, HOP_LIMIT, frame->payload_bytes);
    put_echo(at, frame, ECHO_REPLY_V6,
             dp_checksum_pseudo6(source, frame->source, DP_PROTOCOL_ICMPV6, frame->payload_bytes));
    return (uint32_t)(at - out) + frame->payload_bytes;
}

/* ---- datagrams that are too long ---- */

/* The header of a packet as it was sent, and what follows it, as far as they are quoted. */
struct quoted {
    const uint8_t *source, *destination, *udp;
    uint32_t udp_present; /* bytes from there on */
};

static bool read_ipv4(const uint8_t *ip, uint32_t present, struct quoted *out)
{
    if (present < DP_IPV4_BYTES || ip[0] >> 4 != 4)
        return false;
    uint32_t header_bytes = (uint32_t)(ip[0] & 0x0f) * 4;
    if (header_bytes < DP_IPV4_BYTES || header_bytes > present || ip[9] != DP_PROTOCOL_UDP ||
        (dp_get16(ip + 6) & IPV4_FRAGMENT_OFFSET) != 0)
        return false;
    *out = (struct quoted){ip + 12, ip + 16, ip + header_bytes, present - header_bytes};
    return true;
}

static bool read_ipv6(const uint8_t *ip, uint32_t present, struct quoted *out)
{
    if (present < DP_IPV6_BYTES || ip[0] >> 4 != 6 || ip[6] != DP_PROTOCOL_UDP)
        return false;
    *out = (struct quoted){ip + 8, ip + 24, ip + DP_IPV6_BYTES, present - DP_IPV6_BYTES};
    return true;
}

/* The address that the report was sent to is the one that the packet came from, and its port a core's. */
static bool is_ours(const struct dp_net *net, const struct dp_frame *frame, const struct quoted *quoted)
{
    size_t bytes = frame->local == DP_LOCAL_IPV4 ? 4 : 16;
    if (quoted->udp_present < DP_UDP_BYTES ||
        memcmp(quoted->source, dp_net_address(net, frame->local), bytes) != 0)
        return false;
    uint32_t core = (uint32_t)dp_get16(quoted->udp) - net->udp_port;
    return core < net->core_count;
}

static void fill_in(const struct dp_frame *frame, const struct quoted *quoted, uint32_t mtu,
                    struct dp_too_long *out)
{
    uint32_t headers = (frame->local == DP_LOCAL_IPV4 ? DP_IPV4_BYTES : DP_IPV6_BYTES) + DP_UDP_BYTES;
    *out = (struct dp_too_long){.local_port = dp_get16(quoted->udp),
                                .udp_bytes = mtu > headers ? mtu - headers : 0,
                                .datagram = quoted->udp + DP_UDP_BYTES,
                                .datagram_bytes = (uint16_t)(quoted->udp_present - DP_UDP_BYTES)};
    if (frame->local == DP_LOCAL_IPV4) {
        out->to.ip[10] = 0xff;
        out->to.ip[11] = 0xff;
        memcpy(out->to.ip + 12, quoted->destination, 4);
    } else {
        memcpy(out->to.ip, quoted->destination, 16);
    }
    out->to.port = dp_get16(quoted->udp + 2);
}

bool dp_icmp_too_long(const struct dp_net *net, const struct dp_frame *frame, enum dp_verdict verdict,
                      struct dp_too_long *out)
{
    const uint8_t *icmp = frame->payload;
    struct quoted quoted;
    if (frame->multicast || frame->payload_bytes < ERROR_BYTES)
        return false;
    uint32_t present = frame->payload_bytes - (uint32_t)ERROR_BYTES, mtu;
    if (verdict == DP_FRAME_ICMP) {
        if (icmp[0] != UNREACHABLE || icmp[1] != FRAGMENTATION_NEEDED ||
            !read_ipv4(icmp + ERROR_BYTES, present, &quoted))
            return false;
        mtu = dp_get16(icmp + 6);
    } else {
        if (icmp[0] != PACKET_TOO_BIG_V6 || !read_ipv6(icmp + ERROR_BYTES, present, &quoted))
            return false;
        mtu = (uint32_t)dp_get16(icmp + 4) << 16 | dp_get16(icmp + 6);
    }
    if (!is_ours(net, frame, &quoted))
        return false;
    fill_in(frame, &quoted, mtu, out);
    return true;
}
