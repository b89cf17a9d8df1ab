/* The checksums of a received packet: what its port, or a core that had it before, says about them. */
#ifndef DP_RX_CHECKSUMS_H
#define DP_RX_CHECKSUMS_H

#include <rte_mbuf.h>
#include "dataplane/net/frame.h"

/* What need not be computed again. NONE is not "not checked": the packet's bytes lack the checksum, and the
 * port vouches for them, as virtio-net does for what another guest, or its host, leaves to the device. What
 * the port calls wrong is judged by the bytes. */
static inline struct dp_checked dp_rx_checked(uint64_t ol_flags)
{
    const uint64_t ip = ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK, l4 = ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    return (struct dp_checked){.ip = ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD || ip == RTE_MBUF_F_RX_IP_CKSUM_NONE,
                               .udp = l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD || l4 == RTE_MBUF_F_RX_L4_CKSUM_NONE};
}

/* The bytes have changed: nobody vouches for them now. */
static inline void dp_rx_set_unchecked(struct rte_mbuf *packet)
{
    packet->ol_flags &= ~(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
}

/* This core has checked both. */
static inline void dp_rx_set_checked(struct rte_mbuf *packet)
{
    dp_rx_set_unchecked(packet);
    packet->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
}

#endif
