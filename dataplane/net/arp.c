#include "dataplane/net/arp.h"
#include <string.h>
#include "dataplane/net/bytes.h"

enum {
    ARP_REQUEST = 1,
    ARP_REPLY = 2,
    /* offsets */
    AT_OPERATION = 6,
    AT_SENDER_MAC = 8,
    AT_SENDER_IP = 14,
    AT_TARGET_MAC = 18,
    AT_TARGET_IP = 24,
};

/* Ethernet and IPv4: hardware type 1, protocol 0x0800, lengths 6 and 4. */
static const uint8_t kind[6] = {0, 1, 8, 0, 6, 4};

uint32_t dp_arp_answer(const struct dp_net *net, const struct dp_frame *frame,
                       uint8_t out[DP_ARP_ANSWER_BYTES_MAX], enum dp_verdict *why)
{
    const uint8_t *request = frame->payload;
    *why = DP_FRAME_MALFORMED;
    if (frame->payload_bytes < DP_ARP_BYTES || memcmp(request, kind, sizeof(kind)) != 0 ||
        (request[AT_SENDER_MAC] & 1) != 0)
        return 0;
    *why = DP_FRAME_OTHER;
    if (dp_get16(request + AT_OPERATION) != ARP_REQUEST)
        return 0;
    *why = DP_FRAME_NOT_MINE;
    if (!net->has_ipv4 || memcmp(request + AT_TARGET_IP, net->ipv4, 4) != 0)
        return 0;
    /* Another host claims our address: there is nothing to answer. */
    if (memcmp(request + AT_SENDER_IP, net->ipv4, 4) == 0)
        return 0;

    uint8_t *reply = out + dp_frame_put_ether(net, out, frame->peer_mac, frame->tci, DP_ETHERTYPE_ARP);
    memcpy(reply, kind, sizeof(kind));
    dp_put16(reply + AT_OPERATION, ARP_REPLY);
    memcpy(reply + AT_SENDER_MAC, net->mac, 6);
    memcpy(reply + AT_SENDER_IP, net->ipv4, 4);
    memcpy(reply + AT_TARGET_MAC, request + AT_SENDER_MAC, 6);
    memcpy(reply + AT_TARGET_IP, request + AT_SENDER_IP, 4);
    return (uint32_t)(reply - out) + DP_ARP_BYTES;
}

uint32_t dp_arp_ask(const struct dp_net *net, const uint8_t ip[4], uint8_t out[DP_ARP_ANSWER_BYTES_MAX])
{
    static const uint8_t everybody[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    uint8_t *request = out + dp_frame_put_ether(net, out, everybody, net->vlan, DP_ETHERTYPE_ARP);
    memcpy(request, kind, sizeof(kind));
    dp_put16(request + AT_OPERATION, ARP_REQUEST);
    memcpy(request + AT_SENDER_MAC, net->mac, 6);
    memcpy(request + AT_SENDER_IP, net->ipv4, 4);
    memset(request + AT_TARGET_MAC, 0, 6);
    memcpy(request + AT_TARGET_IP, ip, 4);
    return (uint32_t)(request - out) + DP_ARP_BYTES;
}

bool dp_arp_read_reply(const struct dp_net *net, const struct dp_frame *frame, uint8_t ip[4], uint8_t mac[6])
{
    const uint8_t *reply = frame->payload;
    if (frame->payload_bytes < DP_ARP_BYTES || memcmp(reply, kind, sizeof(kind)) != 0 ||
        (reply[AT_SENDER_MAC] & 1) != 0 || dp_get16(reply + AT_OPERATION) != ARP_REPLY || !net->has_ipv4 ||
        memcmp(reply + AT_TARGET_IP, net->ipv4, 4) != 0 || memcmp(reply + AT_SENDER_IP, net->ipv4, 4) == 0)
        return false;
    memcpy(ip, reply + AT_SENDER_IP, 4);
    memcpy(mac, reply + AT_SENDER_MAC, 6);
    return true;
}
