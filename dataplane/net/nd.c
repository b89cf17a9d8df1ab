#include "dataplane/net/nd.h"
#include <string.h>
#include "dataplane/net/checksum.h"

enum {
    HOP_LIMIT = 255, /* proves that the packet was not forwarded */
    SOLICITATION_BYTES = 24,
    MESSAGE_BYTES = DP_ND_ADVERTISEMENT_BYTES, /* with an option for a MAC address */
    FLAG_SOLICITED = 0x40,
    FLAG_OVERRIDE = 0x20,
    OPTION_SOURCE_MAC = 1,
    OPTION_TARGET_MAC = 2,
    AT_FLAGS = 4,
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

/* A solicitation or an advertisement, with one option. */
static void put_message(uint8_t *out, uint8_t type, const uint8_t *target, uint8_t option, const uint8_t *mac)
{
    memset(out, 0, MESSAGE_BYTES);
    out[0] = type;
    memcpy(out + AT_TARGET, target, 16);
    out[SOLICITATION_BYTES] = option;
    out[SOLICITATION_BYTES + 1] = 1;
    memcpy(out + SOLICITATION_BYTES + 2, mac, 6);
}

static bool is_ours(const struct dp_net *net, const uint8_t *ip)
{
    return memcmp(ip, net->link_local, 16) == 0 || (net->has_ipv6 && memcmp(ip, net->ipv6, 16) == 0);
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
    if (!is_ours(net, target))
        return 0;

    const uint8_t *destination = probe ? all_nodes : frame->source;
    uint8_t *at = out;
    at += dp_frame_put_ether(net, at, probe ? all_nodes_mac : frame->peer_mac, frame->tci, DP_ETHERTYPE_IPV6);
    at += dp_frame_put_ipv6(at, target, destination, DP_PROTOCOL_ICMPV6, HOP_LIMIT, MESSAGE_BYTES);
    put_message(at, DP_ND_ADVERTISEMENT, target, OPTION_TARGET_MAC, net->mac);
    at[AT_FLAGS] = probe ? FLAG_OVERRIDE : FLAG_OVERRIDE | FLAG_SOLICITED;
    dp_checksum_store(
        at + 2,
        dp_checksum_add(dp_checksum_pseudo6(target, destination, DP_PROTOCOL_ICMPV6, MESSAGE_BYTES), at,
                        MESSAGE_BYTES),
        0);
    return (uint32_t)(at - out) + MESSAGE_BYTES;
}

uint32_t dp_nd_ask(const struct dp_net *net, const uint8_t ip[16], uint8_t out[DP_ND_ANSWER_BYTES_MAX])
{
    const uint8_t *source = dp_net_is_link_local(ip) || !net->has_ipv6 ? net->link_local : net->ipv6;
    const uint8_t group_mac[6] = {0x33, 0x33, 0xff, ip[13], ip[14], ip[15]};
    const uint8_t group[16] = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, ip[13], ip[14], ip[15]};
    uint8_t *at = out + dp_frame_put_ether(net, out, group_mac, net->vlan, DP_ETHERTYPE_IPV6);
    at += dp_frame_put_ipv6(at, source, group, DP_PROTOCOL_ICMPV6, HOP_LIMIT, MESSAGE_BYTES);
    put_message(at, DP_ND_SOLICITATION, ip, OPTION_SOURCE_MAC, net->mac);
    dp_checksum_store(at + 2,
                      dp_checksum_add(dp_checksum_pseudo6(source, group, DP_PROTOCOL_ICMPV6, MESSAGE_BYTES),
                                      at, MESSAGE_BYTES),
                      0);
    return (uint32_t)(at - out) + MESSAGE_BYTES;
}

/* The MAC address in the option for the target's; NULL: there is none of that length. */
static const uint8_t *find_target_mac(const uint8_t *option, size_t bytes)
{
    for (; bytes >= 8; bytes -= (size_t)option[1] * 8, option += (size_t)option[1] * 8)
        if (option[0] == OPTION_TARGET_MAC && option[1] == 1)
            return option + 2;
    return NULL;
}

bool dp_nd_read_advertisement(const struct dp_net *net, const struct dp_frame *frame, uint8_t ip[16],
                              uint8_t mac[6])
{
    const uint8_t *message = frame->payload, *target = message + AT_TARGET, *found;
    if (frame->payload_bytes < SOLICITATION_BYTES || message[0] != DP_ND_ADVERTISEMENT || message[1] != 0 ||
        frame->hop_limit != HOP_LIMIT || target[0] == 0xff || is_ours(net, target))
        return false;
    size_t options_bytes = frame->payload_bytes - (size_t)SOLICITATION_BYTES;
    if (!options_are_valid(message + SOLICITATION_BYTES, options_bytes, false))
        return false;
    found = find_target_mac(message + SOLICITATION_BYTES, options_bytes);
    if (found == NULL || (found[0] & 1) != 0)
        return false;
    memcpy(ip, target, 16);
    memcpy(mac, found, 6);
    return true;
}
