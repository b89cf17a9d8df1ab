#include "dataplane/arp.h"
#include <string.h>
#include "dataplane/bytes.h"

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
    /* Somebody else claims our address: nothing to tell him. */
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
