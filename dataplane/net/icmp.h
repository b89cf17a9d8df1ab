/* Echo (ping) over ICMP and ICMPv6 (RFC 792, RFC 4443), and what routers say of datagrams that are too long.
 * Pure, any thread. */
#ifndef DP_ICMP_H
#define DP_ICMP_H

#include "dataplane/net/frame.h"

/* Writes the echo reply to a DP_FRAME_ICMP or DP_FRAME_ICMPV6 frame, of at most `out_bytes_max` bytes.
 * Returns its length, or 0 with the reason in `*why`: not an echo request, sent to a group, or too large. */
uint32_t dp_icmp_answer(const struct dp_net *net, const struct dp_frame *frame, uint8_t *out,
                        size_t out_bytes_max, enum dp_verdict *why);
uint32_t dp_icmpv6_answer(const struct dp_net *net, const struct dp_frame *frame, uint8_t *out,
                          size_t out_bytes_max, enum dp_verdict *why);

/* What a router says of a packet of ours that it could not send on: it was longer than the next link takes.
 * It proves nothing: before believing it, compare the quoted datagram with what was sent. */
struct dp_too_long {
    struct mr_address to;    /* whom it was for; without a path */
    uint16_t local_port;     /* one of our cores' */
    uint32_t udp_bytes;      /* the longest UDP payload that gets through; 0: the router does not know */
    const uint8_t *datagram; /* the beginning of its UDP payload, inside the frame */
    uint16_t datagram_bytes;
};

/* Reads "fragmentation needed" (ICMP type 3, code 4: RFC 792, RFC 1191) out of a DP_FRAME_ICMP frame, or
 * "packet too big" (type 2: RFC 4443) out of a DP_FRAME_ICMPV6 one. False: it is none, or is about no
 * datagram of ours; nothing is written. */
bool dp_icmp_too_long(const struct dp_net *net, const struct dp_frame *frame, enum dp_verdict verdict,
                      struct dp_too_long *out);

#endif
