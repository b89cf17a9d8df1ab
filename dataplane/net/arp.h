/* ARP for the server's IPv4 address, and for those of hosts that it calls (RFC 826). Pure, any thread. */
#ifndef DP_ARP_H
#define DP_ARP_H

#include "dataplane/net/frame.h"

#define DP_ARP_BYTES            28u
#define DP_ARP_ANSWER_BYTES_MAX (DP_ETHER_BYTES + DP_VLAN_BYTES + DP_ARP_BYTES)

/* Writes the reply to a request for our address; returns its length, or 0 with the reason in `*why`. Probes
 * (a sender without an address yet, RFC 5227) are answered too. */
uint32_t dp_arp_answer(const struct dp_net *net, const struct dp_frame *frame,
                       uint8_t out[DP_ARP_ANSWER_BYTES_MAX], enum dp_verdict *why);
/* Writes "who has `ip`?" for everybody on the link; returns its length. For a server with an IPv4 address. */
uint32_t dp_arp_ask(const struct dp_net *net, const uint8_t ip[4], uint8_t out[DP_ARP_ANSWER_BYTES_MAX]);
/* A reply to us: who says it, and which MAC address he has. False: it is none, or malformed. */
bool dp_arp_read_reply(const struct dp_net *net, const struct dp_frame *frame, uint8_t ip[4], uint8_t mac[6]);

#endif
