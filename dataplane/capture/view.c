#include "dataplane/capture/view.h"
#include <string.h>
#include "dataplane/net/bytes.h"
#include "dataplane/net/net.h"

static void map_ipv4(const uint8_t *ipv4, uint8_t out[16])
{
    memset(out, 0, 10);
    out[10] = out[11] = 0xff;
    memcpy(out + 12, ipv4, 4);
}

static void view_udp(const uint8_t *udp, size_t bytes, struct dp_view *out)
{
    if (bytes < DP_UDP_BYTES)
        return;
    const uint32_t length = dp_get16(udp + 4);
    out->is_udp = true;
    out->source_port = dp_get16(udp);
    out->destination_port = dp_get16(udp + 2);
    out->payload = udp + DP_UDP_BYTES;
    out->payload_bytes = (uint32_t)(bytes - DP_UDP_BYTES);
    if (length >= DP_UDP_BYTES && length < bytes) /* the rest is padding */
        out->payload_bytes = length - DP_UDP_BYTES;
}

static void view_ipv4(const uint8_t *ip, size_t bytes, struct dp_view *out)
{
    const size_t header = (size_t)(ip[0] & 0x0f) * 4;
    out->is_ip = true;
    map_ipv4(ip + 12, out->source);
    map_ipv4(ip + 16, out->destination);
    const bool is_later_fragment = (dp_get16(ip + 6) & 0x1fff) != 0;
    if (ip[9] == DP_PROTOCOL_UDP && header >= DP_IPV4_BYTES && header <= bytes && !is_later_fragment)
        view_udp(ip + header, bytes - header, out);
}

static void view_ipv6(const uint8_t *ip, size_t bytes, struct dp_view *out)
{
    out->is_ip = true;
    memcpy(out->source, ip + 8, 16);
    memcpy(out->destination, ip + 24, 16);
    if (ip[6] == DP_PROTOCOL_UDP)
        view_udp(ip + DP_IPV6_BYTES, bytes - DP_IPV6_BYTES, out);
}

void dp_view_frame(const uint8_t *frame, size_t bytes, struct dp_view *out)
{
    size_t at = DP_ETHER_BYTES;
    *out = (struct dp_view){.is_ip = false};
    if (bytes < at)
        return;
    uint32_t type = dp_get16(frame + 12);
    if (type == DP_ETHERTYPE_VLAN && bytes >= at + DP_VLAN_BYTES) {
        type = dp_get16(frame + 16);
        at += DP_VLAN_BYTES;
    }
    if (type == DP_ETHERTYPE_IPV4 && bytes >= at + DP_IPV4_BYTES)
        view_ipv4(frame + at, bytes - at, out);
    else if (type == DP_ETHERTYPE_IPV6 && bytes >= at + DP_IPV6_BYTES)
        view_ipv6(frame + at, bytes - at, out);
}
