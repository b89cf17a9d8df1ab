/* IPv6 neighbour discovery: a solicitation for one of our addresses is answered with an advertisement (RFC
 * 4861, sections 7.1.1 and 7.2.4), and hosts that we call are asked for (7.1.2 and 7.2.2). Pure, any
 * thread. */
#ifndef DP_ND_H
#define DP_ND_H

#include "dataplane/net/frame.h"

#define DP_ND_SOLICITATION  135u
#define DP_ND_ADVERTISEMENT 136u
/* An advertisement with its target's link-layer address option. */
#define DP_ND_ADVERTISEMENT_BYTES 32u
#define DP_ND_ANSWER_BYTES_MAX    (DP_ETHER_BYTES + DP_VLAN_BYTES + DP_IPV6_BYTES + DP_ND_ADVERTISEMENT_BYTES)

/* True for a DP_FRAME_ICMPV6 frame that is a neighbour solicitation. */
static inline bool dp_nd_is_solicitation(const struct dp_frame *frame)
{
    return frame->payload[0] == DP_ND_SOLICITATION;
}

/* Writes the advertisement; returns its length, or 0 with the reason in `*why`. A solicitation without a
 * source address (duplicate address detection) is answered to all nodes. */
uint32_t dp_nd_answer(const struct dp_net *net, const struct dp_frame *frame,
                      uint8_t out[DP_ND_ANSWER_BYTES_MAX], enum dp_verdict *why);
/* Writes the solicitation for `ip`, to the group of hosts that may have it; returns its length. It is sent
 * from our address of the same scope. */
uint32_t dp_nd_ask(const struct dp_net *net, const uint8_t ip[16], uint8_t out[DP_ND_ANSWER_BYTES_MAX]);
/* An advertisement, in a DP_FRAME_ICMPV6 frame: whose it is, and which MAC address it has. False: it is none,
 * or malformed. */
bool dp_nd_read_advertisement(const struct dp_net *net, const struct dp_frame *frame, uint8_t ip[16],
                              uint8_t mac[6]);

#endif
