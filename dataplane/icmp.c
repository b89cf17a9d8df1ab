#include "dataplane/icmp.h"
#include <string.h>
#include "dataplane/bytes.h"
#include "dataplane/checksum.h"

enum {
    ECHO_REPLY = 0,
    ECHO_REQUEST = 8,
    ECHO_REQUEST_V6 = 128,
    ECHO_REPLY_V6 = 129,
    HOP_LIMIT = 64,
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
