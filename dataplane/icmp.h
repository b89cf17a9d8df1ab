/* Echo (ping) over ICMP and ICMPv6 (RFC 792, RFC 4443). Pure, any thread. */
#ifndef DP_ICMP_H
#define DP_ICMP_H

#include "dataplane/frame.h"

/* Writes the echo reply to a DP_FRAME_ICMP or DP_FRAME_ICMPV6 frame, of at most `out_bytes_max` bytes. Returns its length,
 * or 0 with the reason in `*why`: not an echo request, sent to a group, or too large. */
uint32_t dp_icmp_answer(const struct dp_net *net, const struct dp_frame *frame, uint8_t *out,
                        size_t out_bytes_max, enum dp_verdict *why);
uint32_t dp_icmpv6_answer(const struct dp_net *net, const struct dp_frame *frame, uint8_t *out,
                          size_t out_bytes_max, enum dp_verdict *why);

#endif
