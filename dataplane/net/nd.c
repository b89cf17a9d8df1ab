#include "dataplane/net/nd.h"
#include <string.h>
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"

enum {
    ADVERTISEMENT = 136,
    HOP_LIMIT = 255, /* proves that the packet was not forwarded */
    SOLICITATION_BYTES = 24,
    FLAG_SOLICITED = 0x40,
    FLAG_OVERRIDE = 0x20,
    OPTION_SOURCE_MAC = 1,
    OPTION_TARGET_MAC = 2,
    AT_TARGET = 8,
    OPTIONS_MAX = 8,
};

static const uint8_t unspecified[16];
static const uint8_t all_nodes[16] = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
static const uint8_t all_nodes_mac[6] = {0x33, 0x33, 0, 0, 0, 1};

/* No option may have length 0, none may pass the end, and a sender without an address names no MAC. */
static bool options_are_valid(const uint8_t *option, size_t bytes, bool source_unspecified)
{
    for (int i = 0; i < OPTIONS_MAX && bytes >= 2; i++) {
        size_t option_bytes = (size_t)option[1] * 8;
        if (option_bytes == 0 || option_bytes > bytes ||
            (source_unspecified && option[0] == OPTION_SOURCE_MAC))
            return false;
        option += option_bytes;
        bytes -= option_bytes;
    }
    return bytes == 0;
}

static void put_advertisement(uint8_t *out, const struct dp_net *net, const uint8_t *target, uint8_t flags)
{
    memset(out, 0, DP_ND_ADVERTISEMENT_BYTES);
    out[0] = ADVERTISEMENT;
    out[4] = flags;
    memcpy(out + AT_TARGET, target, 16);
    out[SOLICITATION_BYTES] = OPTION_TARGET_MAC;
    out[SOLICITATION_BYTES + 1] = 1;
    memcpy(out + SOLICITATION_BYTES + 2, net->mac, 6);
}

uint32_t dp_nd_answer(const struct dp_net *net, const struct dp_frame *frame,
                      uint8_t out[DP_ND_ANSWER_BYTES_MAX], enum dp_verdict *why)
{
    const uint8_t *request = frame->payload;
    bool probe = memcmp(frame->source, unspecified, 16) == 0;
    *why = DP_FRAME_MALFORMED;
    if (frame->payload_bytes < SOLICITATION_BYTES || request[1] != 0 || frame->hop_limit != HOP_LIMIT ||
        (probe && !frame->multicast) ||
        !options_are_valid(request + SOLICITATION_BYTES, frame->payload_bytes - (size_t)SOLICITATION_BYTES,
                           probe))
        return 0;
    const uint8_t *target = request + AT_TARGET;
    *why = DP_FRAME_NOT_MINE;
    if (memcmp(target, net->link_local, 16) != 0 && !(net->has_ipv6 && memcmp(target, net->ipv6, 16) == 0))
        return 0;

    const uint8_t *destination = probe ? all_nodes : frame->source;
    uint8_t *at = out;
    at += dp_frame_put_ether(net, at, probe ? all_nodes_mac : frame->peer_mac, frame->tci, DP_ETHERTYPE_IPV6);
    at +=
        dp_frame_put_ipv6(at, target, destination, DP_PROTOCOL_ICMPV6, HOP_LIMIT, DP_ND_ADVERTISEMENT_BYTES);
    put_advertisement(at, net, target, probe ? FLAG_OVERRIDE : FLAG_OVERRIDE | FLAG_SOLICITED);
    dp_checksum_store(at + 2,
                      dp_checksum_add(dp_checksum_pseudo6(target, destination, DP_PROTOCOL_ICMPV6,
                                                          DP_ND_ADVERTISEMENT_BYTES),
                                      at, DP_ND_ADVERTISEMENT_BYTES),
                      0);
    return (uint32_t)(at - out) + DP_ND_ADVERTISEMENT_BYTES;
}
