/* Packets in: to the endpoint, to another core, or answered right here. */
#include <rte_mbuf.h>
#include "dataplane/loop/core.h"
#include "dataplane/net/arp.h"
#include "dataplane/net/icmp.h"
#include "dataplane/net/nd.h"

static struct dp_checked checked_by_port(const struct rte_mbuf *packet)
{
    uint64_t ip = packet->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    uint64_t l4 = packet->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

    return (struct dp_checked){.ip = ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD,
                               .udp = l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD};
}

static void count_drop(struct dp_counters *counters, enum dp_verdict why)
{
    switch (why) {
    case DP_FRAME_MALFORMED:
        counters->rx_malformed++;
        break;
    case DP_FRAME_CHECKSUM:
        counters->rx_checksum++;
        break;
    case DP_FRAME_NOT_MINE:
        counters->rx_not_mine++;
        break;
    case DP_FRAME_FRAGMENT:
        counters->rx_fragment++;
        break;
    default:
        counters->rx_other++;
        break;
    }
}

/* ARP, ICMP and neighbour discovery: the answer is built in a packet of its own. */
__attribute__((cold)) static void answer(struct dp_core *core, const struct dp_frame *frame,
                                         enum dp_verdict verdict)
{
    const struct dp_net *net = &core->dp->net;
    struct dp_counters *counters = &core->counters;
    struct rte_mbuf *packet = rte_pktmbuf_alloc(core->pool);
    enum dp_verdict why = DP_FRAME_OTHER;
    uint64_t *answered;
    uint32_t bytes;
    uint8_t ip[4], mac[6];

    if (verdict == DP_FRAME_ARP && dp_arp_read_reply(net, frame, ip, mac)) {
        dp_neighbour_learn(&core->dp->neighbours, ip, mac);
        rte_pktmbuf_free(packet);
        return;
    }
    if (packet == NULL) {
        counters->no_buffer++;
        return;
    }
    uint8_t *out = rte_pktmbuf_mtod(packet, uint8_t *);
    if (verdict == DP_FRAME_ARP) {
        answered = &counters->rx_arp;
        bytes = dp_arp_answer(net, frame, out, &why);
    } else if (verdict == DP_FRAME_ICMP) {
        answered = &counters->rx_icmp;
        bytes = dp_icmp_answer(net, frame, out, rte_pktmbuf_tailroom(packet), &why);
    } else if (dp_nd_is_solicitation(frame)) {
        answered = &counters->rx_nd;
        bytes = dp_nd_answer(net, frame, out, &why);
    } else {
        answered = &counters->rx_icmp;
        bytes = dp_icmpv6_answer(net, frame, out, rte_pktmbuf_tailroom(packet), &why);
    }
    if (bytes == 0) {
        count_drop(counters, why);
        rte_pktmbuf_free(packet);
        return;
    }
    ++*answered;
    packet->data_len = (uint16_t)bytes;
    packet->pkt_len = bytes;
    dp_transmit_or_drop(core, packet);
}

/* A router says that a datagram of ours was too long: the core that sent it looks into that. False: it says
 * nothing of the kind. */
__attribute__((cold)) static bool take_report(struct dp_core *core, struct rte_mbuf *packet,
                                              const struct dp_frame *frame, enum dp_verdict verdict,
                                              bool steered, uint64_t now_us)
{
    struct dp_too_long report;

    if ((verdict != DP_FRAME_ICMP && verdict != DP_FRAME_ICMPV6) ||
        !dp_icmp_too_long(&core->dp->net, frame, verdict, &report))
        return false;
    uint32_t owner = (uint32_t)report.local_port - core->dp->net.udp_port;

    if (owner != core->index && !steered) {
        dp_steer(core, owner, packet);
        return true;
    }
    core->counters.rx_too_long++;
    mr_endpoint_too_long(core->endpoint, now_us, &report.to, report.datagram, report.datagram_bytes,
                         report.udp_bytes);
    rte_pktmbuf_free(packet);
    return true;
}

void dp_receive(struct dp_core *core, struct rte_mbuf *packet, bool steered, uint64_t now_us)
{
    const struct dp_net *net = &core->dp->net;
    enum dp_verdict verdict = DP_FRAME_MALFORMED;
    struct mr_address from;
    struct dp_frame frame = {0};

    if (packet->nb_segs == 1)
        verdict = dp_frame_parse(net, rte_pktmbuf_mtod(packet, const uint8_t *), packet->data_len,
                                 checked_by_port(packet), &frame);
    if (verdict == DP_FRAME_UDP) {
        uint32_t owner = (uint32_t)frame.destination_port - net->udp_port;

        if (owner != core->index && !steered) {
            dp_steer(core, owner, packet);
            return;
        }
        /* So a client learns that another source port would lead here directly. Nothing it can do helps with
         * rings. */
        if (steered && core->dp->port.steering.steering == DP_STEERING_RSS)
            mr_endpoint_arrived_at(core->endpoint, (uint16_t)packet->hash.usr);
        dp_frame_sender(&frame, &from);
        mr_endpoint_receive(core->endpoint, now_us, &from, frame.payload, frame.payload_bytes);
    } else if (verdict <= DP_FRAME_ICMPV6) {
        if (take_report(core, packet, &frame, verdict, steered, now_us))
            return;
        answer(core, &frame, verdict);
    } else {
        count_drop(&core->counters, verdict);
    }
    rte_pktmbuf_free(packet);
}
