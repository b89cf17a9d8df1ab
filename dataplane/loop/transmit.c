/* Packets out: room for the endpoint's datagrams after their headers, bursts to the port or to the queue's
 * owner. */
#include <assert.h>
#include <string.h>
#include <rte_branch_prediction.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include "dataplane/loop/core.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/net/arp.h"
#include "dataplane/net/nd.h"
#include "dataplane/net/route.h"

static uint32_t send_burst(struct dp_core *core)
{
    if (core->tx_owner == core) {
        uint32_t sent =
            rte_eth_tx_burst(core->dp->port.id, core->tx_queue, core->tx, (uint16_t)core->tx_count);
        core->counters.tx_frames += sent;
        return sent;
    }
    uint32_t sent =
        rte_ring_enqueue_burst(core->tx_owner->tx_handed, (void **)core->tx, core->tx_count, NULL);
    if (sent > 0)
        dp_waiter_ring(&core->tx_owner->waiter);
    return sent;
}

static uint32_t flush_socket(struct dp_core *core)
{
    uint32_t datagrams = dp_socket_port_flush(core->socket);
    core->counters.tx_frames += datagrams;
    core->tx_refused |= dp_socket_port_is_full(core->socket);
    return datagrams;
}

uint32_t dp_transmit_flush(struct dp_core *core)
{
    if (core->socket != NULL)
        return flush_socket(core);
    if (unlikely(core->tx_fault != NULL))
        dp_fault_port_transmit(core);
    if (core->tx_count == 0)
        return 0;
    if (unlikely(core->capture != NULL))
        dp_capture_sending(core);
    uint32_t sent = send_burst(core);
    core->tx_count -= sent;
    core->tx_decided = core->tx_captured = core->tx_count;
    if (core->tx_count > 0 && sent > 0)
        memmove((void *)core->tx, (void *)(core->tx + sent), core->tx_count * sizeof(void *));
    return sent;
}

void dp_transmit_answers(struct dp_core *core, uint64_t now_us)
{
    enum dp_phase before = dp_phase_enter(&core->phases, DP_PHASE_transmit);
    mr_endpoint_flush(core->endpoint, now_us);
    (void)dp_transmit_flush(core);
    dp_phase_leave(&core->phases, before);
}

static bool make_room(struct dp_core *core)
{
    if (core->tx_count >= DP_TX_BATCH)
        (void)dp_transmit_flush(core);
    return core->tx_count < DP_TX_BATCH;
}

uint32_t dp_transmit_handed(struct dp_core *core)
{
    uint32_t taken = 0;
    if (core->tx_owner != core || rte_ring_empty(core->tx_handed))
        return 0;
    for (uint32_t turn = 0; turn < DP_RING_PACKETS / DP_TX_BATCH && make_room(core); turn++) {
        uint32_t room = DP_TX_BATCH - core->tx_count;
        uint32_t got =
            rte_ring_dequeue_burst(core->tx_handed, (void **)(core->tx + core->tx_count), room, NULL);
        core->tx_count += got;
        taken += got;
        if (got < room)
            break;
    }
    return taken;
}

void dp_transmit_or_drop(struct dp_core *core, struct rte_mbuf *packet)
{
    if (make_room(core)) {
        core->tx[core->tx_count++] = packet;
    } else {
        core->counters.tx_dropped++;
        rte_pktmbuf_free(packet);
    }
}

__attribute__((cold)) static void ask_for(struct dp_core *core, const uint8_t ip[16], bool is_ipv4)
{
    const struct dp_net *net = &core->dp->net;
    struct rte_mbuf *packet = rte_pktmbuf_alloc(core->pool);
    if (packet == NULL) {
        core->counters.no_buffer++;
        return;
    }
    uint8_t *out = rte_pktmbuf_mtod(packet, uint8_t *);
    packet->data_len = (uint16_t)(is_ipv4 ? dp_arp_ask(net, ip + 12, out) : dp_nd_ask(net, ip, out));
    packet->pkt_len = packet->data_len;
    dp_transmit_or_drop(core, packet);
}

/* The way to a host that no packet came from yet. False: there is none, or it is not known yet. */
__attribute__((cold)) static bool find_way(struct dp_core *core, struct mr_address *to)
{
    struct dp *dp = core->dp;
    struct dp_path path;
    uint8_t hop[16];
    bool ask;
    if (core->index != 0 || dp_route_find(&dp->net, to, dp->net.udp_port, &path, hop) != DP_ROUTE_FOUND)
        return false;
    bool known = dp_neighbour_find(&dp->neighbours, hop, mr_clock_us(), path.peer_mac, &ask);
    if (ask)
        ask_for(core, hop, path.local == DP_LOCAL_IPV4);
    if (known)
        dp_path_set(to, &path);
    return known;
}

uint8_t *dp_transmit_begin(void *arg, const struct mr_address *to, uint32_t bytes_max)
{
    struct dp_core *core = arg;
    assert(bytes_max <= dp_net_udp_bytes_max(&core->dp->net));
    if (!make_room(core)) {
        core->tx_refused = true;
        return NULL;
    }
    if (core->tx_open == NULL)
        core->tx_open = rte_pktmbuf_alloc(core->pool);
    if (core->tx_open == NULL) {
        core->counters.no_buffer++;
        core->tx_refused = true;
        return NULL;
    }
    core->tx_open_to = *to;
    core->tx_open_lost = false;
    if (unlikely(!dp_has_path(to)))
        core->tx_open_lost = !find_way(core, &core->tx_open_to);
    return rte_pktmbuf_mtod_offset(core->tx_open, uint8_t *, dp_frame_header_bytes(&core->tx_open_to));
}

static void request_offload(struct rte_mbuf *packet, const struct mr_address *to)
{
    struct dp_path path;
    bool ipv4;
    dp_path_get(to, &path);
    ipv4 = path.local == DP_LOCAL_IPV4;
    packet->l2_len = DP_ETHER_BYTES + (path.tci != 0 ? DP_VLAN_BYTES : 0);
    packet->l3_len = ipv4 ? DP_IPV4_BYTES : DP_IPV6_BYTES;
    packet->ol_flags |=
        RTE_MBUF_F_TX_UDP_CKSUM | (ipv4 ? RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM : RTE_MBUF_F_TX_IPV6);
}

void dp_transmit_end(void *arg, uint32_t bytes)
{
    struct dp_core *core = arg;
    struct rte_mbuf *packet = core->tx_open;
    const struct dp *dp = core->dp;
    if (bytes == 0)
        return;
    if (unlikely(core->tx_open_lost)) { /* as on a network that loses it: it is sent again */
        core->counters.tx_no_way++;
        return;
    }
    uint32_t frame_bytes = dp_frame_header_bytes(&core->tx_open_to) + bytes;
    dp_frame_build(&dp->net, &core->tx_open_to, rte_pktmbuf_mtod(packet, uint8_t *), bytes,
                   dp->port.checksums);
    packet->data_len = (uint16_t)frame_bytes;
    packet->pkt_len = frame_bytes;
    if (dp->port.checksums == DP_CHECKSUMS_BY_CARD)
        request_offload(packet, &core->tx_open_to);
    core->tx_open = NULL;
    core->tx[core->tx_count++] = packet;
    if (core->tx_count == DP_TX_BATCH)
        (void)dp_transmit_flush(core);
}

void dp_transmit_drop_all(struct dp_core *core)
{
    (void)dp_transmit_flush(core);
    core->counters.tx_dropped += core->tx_count;
    rte_pktmbuf_free_bulk(core->tx, core->tx_count);
    core->tx_count = 0;
    rte_pktmbuf_free(core->tx_open);
    core->tx_open = NULL;
}
