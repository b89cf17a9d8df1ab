/* Packets in, from the port and from other cores: to the endpoint, to another core, or answered right here.
 * Requests that the endpoint finds in them go to their handlers. */
#include <rte_branch_prediction.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include "dataplane/loop/core.h"
#include "dataplane/loop/rx_checksums.h"
#include "dataplane/net/arp.h"
#include "dataplane/net/icmp.h"
#include "dataplane/net/nd.h"

/* Where a burst out costs no system call, clients get their first answers while the rest of a burst in is
 * served: else the two sides would take turns. */
#define PACKETS_PER_FLUSH 4u

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

/* A host that core 0 calls says which MAC address it has. */
__attribute__((cold)) static bool learn(struct dp_core *core, const struct dp_frame *frame,
                                        enum dp_verdict verdict)
{
    const struct dp_net *net = &core->dp->net;
    uint8_t ip[16] = {[10] = 0xff, [11] = 0xff}, mac[6];
    bool is_one = verdict == DP_FRAME_ARP
                      ? dp_arp_read_reply(net, frame, ip + 12, mac)
                      : verdict == DP_FRAME_ICMPV6 && dp_nd_read_advertisement(net, frame, ip, mac);
    if (is_one)
        dp_neighbour_learn(&core->dp->neighbours, ip, mac);
    return is_one;
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
    if (learn(core, frame, verdict)) {
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

/* Where a driver cannot give a NIC the whole of a long buffer (e1000 takes powers of two), the end of a long
 * frame is in a second one. False: it does not fit into the first. */
__attribute__((cold)) static bool join_segments(struct rte_mbuf *packet)
{
    return rte_pktmbuf_linearize(packet) == 0;
}

/* Takes the packet over. */
static void receive_packet(struct dp_core *core, struct rte_mbuf *packet, bool steered, uint64_t now_us)
{
    const struct dp_net *net = &core->dp->net;
    enum dp_verdict verdict = DP_FRAME_MALFORMED;
    struct mr_address from;
    struct dp_frame frame = {0};
    if (likely(packet->nb_segs == 1) || join_segments(packet))
        verdict = dp_frame_parse(net, rte_pktmbuf_mtod(packet, const uint8_t *), packet->data_len,
                                 dp_rx_checked(packet->ol_flags), &frame);
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

static uint32_t receive_from_port(struct dp_core *core, uint64_t now_us)
{
    const struct dp_port *port = &core->dp->port;
    struct rte_mbuf *packets[DP_BURST + DP_FAULT_EXTRA];
    uint32_t total = 0;
    for (uint32_t queue = core->rx_queue_first; queue < port->queue_count; queue += core->rx_queue_step) {
        enum dp_phase before = dp_phase_enter(&core->phases, DP_PHASE_receive);
        uint32_t count = rte_eth_rx_burst(port->id, (uint16_t)queue, packets, DP_BURST);
        core->counters.rx_frames += count;
        if (unlikely(core->capture != NULL))
            dp_capture_received(core, packets, count);
        if (unlikely(core->rx_fault != NULL))
            count = dp_fault_port_receive(core, packets, count, now_us);
        (void)dp_phase_enter(&core->phases, DP_PHASE_check);
        for (uint32_t i = 0; i < count; i++) {
            receive_packet(core, packets[i], false, now_us);
            if (i % PACKETS_PER_FLUSH == PACKETS_PER_FLUSH - 1 && i + 1 < count && !port->kernel_driven)
                dp_transmit_answers(core, now_us);
        }
        dp_phase_leave(&core->phases, before);
        total += count;
    }
    return total;
}

static uint32_t receive_steered(struct dp_core *core, uint64_t now_us)
{
    void *packets[DP_BURST];
    enum dp_phase before = dp_phase_enter(&core->phases, DP_PHASE_receive);
    uint32_t count = rte_ring_dequeue_burst(core->steered, packets, DP_BURST, NULL);
    (void)dp_phase_enter(&core->phases, DP_PHASE_check);
    if (unlikely(core->capture != NULL))
        dp_capture_received(core, (struct rte_mbuf **)packets, count);
    for (uint32_t i = 0; i < count; i++)
        receive_packet(core, packets[i], true, now_us);
    core->counters.steered_in += count;
    dp_phase_leave(&core->phases, before);
    return count;
}

uint32_t dp_receive(struct dp_core *core, uint64_t now_us)
{
    if (core->socket != NULL) {
        uint32_t datagrams = dp_socket_port_receive(core->socket, core->endpoint, &core->phases, now_us);
        core->counters.rx_frames += datagrams;
        return datagrams;
    }
    return receive_from_port(core, now_us) + receive_steered(core, now_us);
}

/* ---- requests, from the endpoint ---- */

void dp_serve_request(void *arg, struct mr_endpoint *endpoint, const struct mr_request *request)
{
    struct dp_core *core = arg;
    uint8_t op = request->message->preamble.op;
    enum dp_phase before = dp_op_enter(&core->phases);
    core->phases.op_calls[dp_op_class(op)]++;
    if (op < MR_OP_COUNT && core->dp->app.dispatch[op] != NULL)
        core->dp->app.dispatch[op](core->app, endpoint, request);
    else
        mr_reply_status(endpoint, request->ref, MR_UNKNOWN_OP);
    dp_op_leave(&core->phases, op, before);
}

void dp_prefetch_requests(void *arg, const struct mr_prefetch *requests, uint32_t count)
{
    struct dp_core *core = arg;
    enum dp_phase before = dp_phase_enter(&core->phases, DP_PHASE_gather);
    core->dp->app.prefetch(core->app, requests, count);
    dp_phase_leave(&core->phases, before);
}

void dp_request_arriving(void *arg, struct mr_call_ref ref, const uint8_t *message, uint32_t received_bytes,
                         uint32_t message_bytes)
{
    const struct dp_core *core = arg;
    core->dp->app.arriving(core->app, ref, message, received_bytes, message_bytes);
}
