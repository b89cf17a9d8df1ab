/* A port's bursts on their way into a capture: what the wire has, before faults of received packets and after
 * those of packets sent. */
#include <rte_mbuf.h>
#include "dataplane/loop/core.h"

static void record(struct dp_core *core, uint64_t time_ns, bool is_sent, const struct rte_mbuf *packet)
{
    dp_capture_frame(core->capture, time_ns, is_sent, rte_pktmbuf_mtod(packet, const uint8_t *),
                     packet->data_len, packet->pkt_len);
}

void dp_capture_received(struct dp_core *core, struct rte_mbuf **packets, uint32_t count)
{
    if (count == 0)
        return;
    const uint64_t time_ns = dp_capture_time_ns();
    for (uint32_t i = 0; i < count; i++)
        record(core, time_ns, false, packets[i]);
}

void dp_capture_sending(struct dp_core *core)
{
    const uint64_t time_ns = dp_capture_time_ns();
    for (uint32_t i = core->tx_captured; i < core->tx_count; i++)
        record(core, time_ns, true, core->tx[i]);
}

void dp_core_set_capture(struct dp_core *core, struct dp_capture *capture)
{
    core->capture = capture;
    if (core->socket != NULL)
        dp_socket_port_set_capture(core->socket, capture);
}

uint32_t dp_link_type(const struct dp *dp)
{
    return dp->config.driver == DP_DRIVER_SOCKET ? MR_CAPTURE_LINK_IP : MR_CAPTURE_LINK_ETHERNET;
}
