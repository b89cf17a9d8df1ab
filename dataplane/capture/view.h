/* What a captured packet is about: addresses, ports and the datagram, as far as they can be read.
 *
 * Unlike dp_frame_parse() it also looks at frames that this host sent or that are for others, and refuses
 * nothing. Pure, any thread. */
#ifndef DP_CAPTURE_VIEW_H
#define DP_CAPTURE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dp_view {
    bool is_ip;                          /* the addresses are valid */
    bool is_udp;                         /* the ports and the payload are */
    uint8_t source[16], destination[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
    uint16_t source_port, destination_port;
    const uint8_t *payload; /* in the frame */
    uint32_t payload_bytes;
};

/* Looks at an Ethernet frame, with or without a VLAN tag. */
void dp_view_frame(const uint8_t *frame, size_t bytes, struct dp_view *out);

#endif
