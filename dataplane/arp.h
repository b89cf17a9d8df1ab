/* ARP for the server's IPv4 address (RFC 826). Pure, any thread. */
#ifndef DP_ARP_H
#define DP_ARP_H

#include "dataplane/frame.h"

#define DP_ARP_BYTES            28u
#define DP_ARP_ANSWER_BYTES_MAX (DP_ETHER_BYTES + DP_VLAN_BYTES + DP_ARP_BYTES)

/* Writes the reply to a request for our address; returns its length, or 0 with the reason in `*why`. Probes (a sender
 * without an address yet, RFC 5227) are answered too. */
uint32_t dp_arp_answer(const struct dp_net *net, const struct dp_frame *frame,
                       uint8_t out[DP_ARP_ANSWER_BYTES_MAX], enum dp_verdict *why);

#endif
