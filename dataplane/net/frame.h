/* Ethernet frames in and out: Ethernet, one VLAN tag, IPv4 or IPv6, UDP.
 *
 * Pure functions over bytes: no port, no mbuf, no state. Parsing believes nothing that the frame says: every
 * length is checked against what is there before it is used, and whatever is not exactly right gets a verdict
 * that names the counter to raise. Any thread.
 */
#ifndef DP_FRAME_H
#define DP_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "dataplane/net/net.h"

enum dp_verdict {
    DP_FRAME_UDP,  /* a datagram for one of the cores */
    DP_FRAME_ARP,  /* ARP, unchecked: see arp.h */
    DP_FRAME_ICMP, /* ICMP for this host, checksum checked: see icmp.h */
    /* ICMPv6, checksum checked: see icmp.h and nd.h. The destination may be a multicast group */
    DP_FRAME_ICMPV6,
    /* dropped, for this reason */
    DP_FRAME_OTHER,
    DP_FRAME_MALFORMED,
    DP_FRAME_CHECKSUM,
    DP_FRAME_NOT_MINE,
    DP_FRAME_FRAGMENT,
};

/* What the port has verified already. */
struct dp_checked {
    bool ip;  /* IPv4 header checksum */
    bool udp; /* UDP checksum */
};

/* A parsed frame. Pointers point into the frame. */
struct dp_frame {
    const uint8_t *peer_mac;
    const uint8_t *source; /* IP address: 4 or 16 bytes; NULL for ARP */
    const uint8_t *destination;
    const uint8_t *payload; /* UDP: the datagram's bytes. ICMP: the whole message. ARP: the ARP packet */
    uint16_t payload_bytes;
    uint16_t tci; /* VLAN tag control information as received; 0 = untagged */
    uint16_t source_port, destination_port;
    enum dp_local local; /* whom it was sent to, where the destination is not a multicast group */
    uint8_t hop_limit;
    bool multicast; /* IPv6: sent to our solicited-node group */
};

enum dp_verdict dp_frame_parse(const struct dp_net *net, const uint8_t *bytes, size_t byte_count,
                               struct dp_checked checked, struct dp_frame *out);

/* What mr_address.path holds for this data plane: all that an answer needs to find its way back. */
struct dp_path {
    uint8_t peer_mac[6];
    uint16_t tci;        /* 0 = untagged */
    uint16_t local_port; /* UDP port to answer from */
    uint8_t local;       /* enum dp_local */
    uint8_t zero[9];
};
static_assert(sizeof(struct dp_path) == sizeof(((struct mr_address *)0)->path), "path size");

/* The address of the frame's sender, with the way back. For DP_FRAME_UDP. */
void dp_frame_sender(const struct dp_frame *frame, struct mr_address *out);
void dp_path_get(const struct mr_address *address, struct dp_path *out);
void dp_path_set(struct mr_address *address, const struct dp_path *path);

/* Whether it is an address that a packet came from. Others have no way there yet: their path is zero. */
static inline bool dp_has_path(const struct mr_address *address)
{
    struct dp_path path;
    memcpy(&path, address->path, sizeof(path));
    return path.local_port != 0;
}

/* Bytes of all headers in front of a datagram to `to`; at most DP_HEADERS_BYTES_MAX. */
uint32_t dp_frame_header_bytes(const struct mr_address *to);

/* Who writes the checksums of what is sent. */
enum dp_checksums {
    DP_CHECKSUMS_HERE, /* both, in software */
    /* IPv4's is left 0 and UDP's holds the pseudo header's sum, as network cards want it */
    DP_CHECKSUMS_BY_CARD,
    /* IPv4's here; UDP over IPv4 is sent without (RFC 768: zero), over IPv6 it may not be (RFC 8200, 8.1) */
    DP_CHECKSUMS_NO_UDP,
};

/* Writes the headers of a datagram whose `payload_bytes` bytes already lie after them, and best have just
 * been written: with checksums made here they are read once more. */
void dp_frame_build(const struct dp_net *net, const struct mr_address *to, uint8_t *bytes,
                    uint32_t payload_bytes, enum dp_checksums checksums);

/* Ethernet and VLAN header of an answer to `peer_mac`; returns its length. */
uint32_t dp_frame_put_ether(const struct dp_net *net, uint8_t *bytes, const uint8_t *peer_mac, uint16_t tci,
                            uint16_t ether_type);
/* IPv4 header with checksum; IPv6 header. Each returns its length. */
uint32_t dp_frame_put_ipv4(uint8_t *bytes, const uint8_t *source, const uint8_t *destination,
                           uint8_t protocol, uint32_t payload_bytes);
uint32_t dp_frame_put_ipv6(uint8_t *bytes, const uint8_t *source, const uint8_t *destination,
                           uint8_t protocol, uint8_t hop_limit, uint32_t payload_bytes);

#endif
